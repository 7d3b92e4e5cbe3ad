"""A chain to walk through: the networks that HMC draws, one after another, each with its decision boundary.

The script computes the network that the slider names on a grid of the plane; the picture beside it, drawn here, is the
mean of them all. Nothing is loaded from elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from paper_lib.interactive import Card, card, slider, svg
from paper_lib.rows import BLACK, VERMILION

CELLS, MOST_POINTS = 40, 300


def network(weights: NDArray, widths: Sequence[int], x: NDArray) -> NDArray:
    """Probability of class 1 at inputs ``(n, 2)`` by ReLU networks with parameters ``(draw, parameter)``."""
    h, at = np.broadcast_to(x, (len(weights), *x.shape)), 0
    for layer, (i, o) in enumerate(pairwise(widths)):
        weight = weights[:, at : at + i * o].reshape(-1, i, o)
        h, at = h @ weight + weights[:, None, at + i * o : at + i * o + o], at + i * o + o
        h = np.maximum(h, 0) if layer < len(widths) - 2 else h
    return 1 / (1 + np.exp(np.clip(h[..., 0] - h[..., 1], -500, 500)))


def walk(weights: NDArray, widths: Sequence[int], x: NDArray, y: NDArray, name: str = "chain") -> Card:
    """A slider through draws ``(draw, parameter)`` over points ``x`` ``(n, 2)`` with labels ``y``, some 300 of them."""
    every = np.linspace(0, len(x) - 1, min(MOST_POINTS, len(x))).round().astype(int)
    weights, x, y = weights.astype(float).round(3), x[every].astype(float).round(3), y[every]
    low, high = x.min(0) - 0.2, x.max(0) + 0.2
    middle = (np.arange(CELLS) + 0.5) / CELLS
    grid = np.stack(np.meshgrid(*(lo + (hi - lo) * middle for lo, hi in zip(low, high, strict=True))), -1).reshape(
        -1, 2
    )
    p = network(weights, widths, np.concatenate([grid, x]))
    first, mean = p[0], p.mean(0)
    labels = f"Decision regions of one network on {len(x)} points", "Decision regions of the mean over all draws shown"
    titles = "one draw", f"mean of {len(weights)} draws"
    pictures = [
        _picture(part, x, y, low, high, label, title)
        for part, label, title in zip((first, mean), labels, titles, strict=True)
    ]
    right = 100 * ((mean[len(grid) :] > 0.5) == y).mean()
    data = {"w": weights.tolist(), "s": list(widths), "x": x.tolist(), "y": y.tolist()}
    data |= {"low": low.tolist(), "high": high.tolist(), "n": CELLS}
    return card(
        name,
        slider("draw", "draw of the chain", 1, len(weights), 1, 1),
        *pictures,
        in_words(weights, widths, x, y, 0),
        f"The mean of all {len(weights)} draws: {right:.1f} % of the points on their side. Dots: class 0. "
        "Crosses: class 1. Shaded: where class 1 is predicted.",
        f"const d={json.dumps(data, separators=(',', ':'))};" + SCRIPT,
    )


def in_words(weights: NDArray, widths: Sequence[int], x: NDArray, y: NDArray, draw: int) -> str:
    """What stands below the picture of a draw."""
    right = ((network(weights[draw : draw + 1], widths, x)[0] > 0.5) == y).mean()
    return f"Draw {draw + 1} of {len(weights)}: <b>{100 * right:.1f} %</b> of the points on their side."


def _picture(p: NDArray, x: NDArray, y: NDArray, low: NDArray, high: NDArray, label: str, title: str) -> str:
    scale = np.array([350, -360]) / (high - low)
    places = np.array([40, 370]) + (x - low) * scale
    body = f'<path class="region" d="{region(p[: CELLS**2])}" fill="{VERMILION}" fill-opacity="0.2" stroke="none"/>'
    for (px, py), label_of in zip(places, y, strict=True):
        if label_of:
            body += f'<path d="M{px - 3:.0f} {py - 3:.0f}l6 6m0-6l-6 6" stroke="{VERMILION}" stroke-width="1.5"/>'
        else:
            body += f'<circle cx="{px:.0f}" cy="{py:.0f}" r="2.5" fill="{BLACK}"/>'
    ticks = [
        [(o + (t - lo) * s, f"{t:g}") for t in np.arange(np.ceil(lo), np.floor(hi) + 1) + 0.0]
        for o, lo, hi, s in zip((40, 370), low, high, scale, strict=True)
    ]
    return svg(label, title, *ticks, body)


def region(p: NDArray) -> str:
    """Where class 1 is predicted, as an SVG path of runs of cells, a row of the grid after another."""
    width, height, parts = 350 / CELLS, 360 / CELLS, []
    for row, inside in enumerate(p.reshape(CELLS, CELLS) > 0.5):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], inside, [0]])))
        for start, stop in edges.reshape(-1, 2):
            top = 370 - (row + 1) * height
            parts.append(
                f"M{40 + start * width:g} {top:g}h{(stop - start) * width:g}v{height:g}h-{(stop - start) * width:g}z"
            )
    return "".join(parts)


SCRIPT = """
const path=root.querySelector(".region"),out=root.querySelector("output"),input=root.querySelector("[name=draw]");
function net(w,x){let h=x,at=0;for(let l=0;l+1<d.s.length;l++){const i=d.s[l],o=d.s[l+1],g=[];
 for(let k=0;k<o;k++){let t=w[at+i*o+k];for(let j=0;j<i;j++)t+=h[j]*w[at+j*o+k];g.push(l+2<d.s.length?Math.max(t,0):t)}
 h=g;at+=i*o+o}return h[1]>h[0]}
function draw(){const k=+input.value-1,w=d.w[k],W=350/d.n,H=360/d.n;let s="";
 for(let r=0;r<d.n;r++){let from=-1;for(let c=0;c<=d.n;c++){const at=[d.low[0]+(d.high[0]-d.low[0])*(c+.5)/d.n,
  d.low[1]+(d.high[1]-d.low[1])*(r+.5)/d.n],on=c<d.n&&net(w,at);
  if(on&&from<0)from=c;if(!on&&from>=0){s+=`M${40+from*W} ${370-(r+1)*H}h${(c-from)*W}v${H}h${(from-c)*W}z`;from=-1}}}
 path.setAttribute("d",s);const right=d.x.filter((x,i)=>net(w,x)===(d.y[i]===1)).length/d.x.length;
 out.innerHTML=`Draw ${k+1} of ${d.w.length}: <b>${(100*right).toFixed(1)} %</b> of the points on their side.`}
root.addEventListener("input",draw);draw();
"""
