"""Figures to play with: inline SVG and a few lines of JavaScript, nothing loaded from elsewhere, usable by keyboard.

Each is a card with the figure to play with and a still picture beside it, both drawn here, so that a page without
JavaScript shows two still pictures. The script repeats in a few lines what Python computes; the browser test moves the
controls and compares the two.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from paper_lib.inference.gaussian import (
    Gaussian,
    Prototypes,
    class_sums,
    condition_dirichlet,
    condition_prototypes,
    dirichlet_log_predictive,
    prototype_log_density,
)
from paper_lib.inference.regression import condition_line, line_features
from paper_lib.rows import BLACK, BLUE, GREY, ORANGE, VERMILION

NOISE_PRECISION, NUM_POINTS = 100.0, 20
NOISE = tuple(np.random.default_rng(0).normal(0, NOISE_PRECISION**-0.5, 2 * NUM_POINTS).round(3).tolist())
"""Noise of the points of task 1, then of task 2."""

CLASSES = (("A", BLUE, (-0.5, 0.0)), ("B", VERMILION, (0.5, 0.0)))
"""Name, colour and prior mean of each class; the prior precision is 1."""
CONCENTRATION, NOISE_VAR, TEST_POINT = 0.7, 0.3, (0.0, 1.2)


class Card(NamedTuple):
    """HTML that a notebook and the book show as it is."""

    html: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return "a figure to play with"


class TwoLines(NamedTuple):
    """Bayesian lines through two tasks.

    Attributes:
        before: intercept and slope of the posterior mean after task 1.
        after: those after task 2.
        errors: squared error above the noise, on task 1 before task 2, on task 1 after it, and on task 2.
    """

    before: tuple[float, float]
    after: tuple[float, float]
    errors: tuple[float, float, float]


def two_lines(slope: float = -1.0, height: float = 1.0) -> TwoLines:
    """Task 1 is y = x + 1 on [-1, 0), task 2 is y = slope x + height on [0, 1]; both have the same noise."""
    belief, lines, noise = Gaussian(torch.zeros(2).double(), torch.eye(2).double()), [], torch.tensor(NOISE).double()
    for task, (a, b) in enumerate(((1.0, 1.0), (height, slope))):
        x = (torch.arange(NUM_POINTS).double() + 0.5) / NUM_POINTS - (1 - task)
        y = a + b * x + noise[task * NUM_POINTS :][:NUM_POINTS]
        belief, _ = condition_line(belief, line_features(x), y, NOISE_PRECISION)
        lines.append(tuple(belief.mean.tolist()))

    def error(line: tuple[float, float], a: float, b: float, side: int) -> float:
        d, e = line[0] - a, line[1] - b
        return d * d + side * d * e + e * e / 3  # the integral of (d + e x)^2 over [-1, 0] or [0, 1]

    errors = error(lines[0], 1, 1, -1), error(lines[1], 1, 1, -1), error(lines[1], height, slope, 1)
    return TwoLines(lines[0], lines[1], errors)


def two_tasks() -> Card:
    """A Bayesian line through two tasks, of which the second can be moved."""
    state = two_lines()
    controls = slider("slope", "slope of task 2", -1, 1, -1) + slider("height", "height of task 2 at x = 0", 0, 2, 1)
    return card(
        "two-tasks",
        controls,
        _two_lines_svg(
            state,
            "Points of both tasks and the Bayesian line before and after task 2, as set below",
            "yours: y against x",
        ),
        _two_lines_svg(
            state, "The paper's two tasks: the line after task 2 is flat and misses both", "the paper's: y against x"
        ),
        _errors_in_words(state),
        "The paper's tasks. Dots: task 1. Crosses: task 2. Dashed: the line after task 1. Solid: after task 2.",
        f"const noise={json.dumps(NOISE)},n={NUM_POINTS},beta={NOISE_PRECISION};" + TWO_TASKS,
    )


class Cluster(NamedTuple):
    """Belief about one class.

    Attributes:
        count: points seen.
        mean: of its prototype.
        sd: of that mean, in each dimension.
        probability: that the test point is of this class.
    """

    count: int
    mean: tuple[float, float]
    sd: float
    probability: float


def clusters(points: Sequence[tuple[int, float, float]]) -> list[Cluster]:
    """Beliefs about the classes after points ``(class, x, y)``, by the conjugate updates of prototypes and counts."""
    f64, table = torch.float64, torch.tensor(points, dtype=torch.float64).reshape(-1, 3)
    one_hot = torch.nn.functional.one_hot(table[:, 0].long(), len(CLASSES)).to(f64)
    prior = Prototypes(torch.ones(2, dtype=f64), torch.tensor([mean for *_, mean in CLASSES], dtype=f64))
    belief = condition_prototypes(prior, *class_sums(table[:, 1:], one_hot), NOISE_VAR)
    alpha = condition_dirichlet(torch.full((2,), CONCENTRATION, dtype=f64), one_hot.sum(0))
    test = torch.tensor([TEST_POINT], dtype=f64)
    score = prototype_log_density(belief, test, NOISE_VAR)[0] + dirichlet_log_predictive(alpha)
    leaves = (
        one_hot.sum(0),
        belief.precision_mean / belief.precision[:, None],
        belief.precision.rsqrt(),
        score.softmax(0),
    )
    return [Cluster(int(n), tuple(m), s, p) for n, m, s, p in zip(*(leaf.tolist() for leaf in leaves), strict=True)]


def prototypes() -> Card:
    """Conjugate beliefs about two prototypes, to which points can be added."""
    controls = '<fieldset><legend style="font-size:1em;margin:0">class of the next point</legend>' + "".join(
        f'<label><input type="radio" name="prototypes-class" value="{i}"{" checked" * (i == 0)}> {name}</label> '
        for i, (name, *_) in enumerate(CLASSES)
    )
    controls += "</fieldset>" + slider("x", "its first coordinate", -2, 2, 0) + slider("y", "its second", -2, 2, 1)
    controls += '<p><button type="button">add the point</button> <button type="button">begin again</button></p>'
    example = ((0, -1.0, 1.0), (0, -0.8, 0.6), (0, -1.2, 0.7), (1, 0.9, -0.8))
    return card(
        "prototypes",
        controls,
        _clusters_svg((), "Beliefs about two prototypes after the points that were added", "yours"),
        _clusters_svg(example, "The beliefs after three points of class A and one of class B", "an example"),
        _clusters_in_words(clusters(())),
        "After three points of A and one of B. Cross: mean of a prototype. Ring: one sd of that mean. Shade: one sd of "
        "a new point. Star: the test point. " + _clusters_in_words(clusters(example)),
        f"const classes={json.dumps(CLASSES)},s2={NOISE_VAR},a0={CONCENTRATION},test={json.dumps(TEST_POINT)};"
        + PROTOTYPES,
    )


def card(name: str, controls: str, played: str, still: str, words: str, caption: str, script: str) -> Card:
    """The figure to play with, its controls and what they lead to in words, and the still picture."""
    half = "flex:1 1 280px;margin:0;max-width:420px"
    card = "display:flex;flex-wrap:wrap;gap:16px;padding:12px;line-height:1.35;border:1px solid;border-radius:6px;"
    card += "color-scheme:light;background:#fff;color:#000"  # white in the dark as well, as all figures are
    return Card(
        f'<div id="{name}" style="{card}">'
        f'<div style="{half}">{played}<div class="controls">{controls}</div><output aria-live="polite">{words}</output>'
        f'</div><div style="{half}">{still}<p style="margin:0">{caption}</p></div></div>'
        f"<script>(()=>{{const root=document.getElementById({json.dumps(name)});{script}}})()</script>"
    )


def slider(name: str, label: str, low: float, high: float, value: float, step: float = 0.1) -> str:
    """A control with its label above it."""
    return (
        f'<p style="margin:4px 0"><label style="display:block">{label}<br><input type="range" name="{name}" '
        f'min="{low}" max="{high}" step="{step:g}" value="{value}" style="width:100%;min-height:24px"></label></p>'
    )


def svg(
    label: str, title: str, x_ticks: Sequence[tuple[float, str]], y_ticks: Sequence[tuple[float, str]], body: str
) -> str:
    """Axes with ticks at ``(pixel, text)`` around the body, in a box of 400 by 400 that scales with the page."""
    text = 'font-size="17" fill="#000" stroke="none"'
    ticks = "".join(f'<text x="{x:g}" y="390" text-anchor="middle" {text}>{t}</text>' for x, t in x_ticks)
    ticks += "".join(f'<text x="32" y="{y + 6:g}" text-anchor="end" {text}>{t}</text>' for y, t in y_ticks)
    return (
        f'<svg viewBox="0 0 400 400" role="img" aria-label="{label}" style="width:100%;display:block" fill="none" '
        f'stroke-width="2.5">{ticks}<rect x="40" y="10" width="350" height="360" stroke="{GREY}" stroke-width="1"/>'
        f'{body}<text x="48" y="30" {text}>{title}</text></svg>'
    )


def _two_lines_svg(state: TwoLines, label: str, title: str) -> str:
    """x from -1 to 1 and y from -1 to 3, as in the script."""

    def at(x: float, y: float) -> tuple[float, float]:
        return 215 + 170 * x, 280 - 90 * y

    def line(coef: tuple[float, float], style: str) -> str:
        (x1, y1), (x2, y2) = (at(x, coef[0] + coef[1] * x) for x in (-1, 1))
        return f'<line x1="{x1:g}" y1="{y1:.2f}" x2="{x2:g}" y2="{y2:.2f}" {style}/>'

    dots = ""
    for i, noise in enumerate(NOISE):
        task, x = divmod(i, NUM_POINTS)
        x = (x + 0.5) / NUM_POINTS - (1 - task)
        px, py = at(x, 1 - abs(x) + noise)
        if task == 0:
            dots += f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4" fill="{BLUE}"/>'
        else:
            move = f"translate({px:.1f} {py:.1f})"
            dots += f'<path d="M-4-4L4 4M-4 4L4-4" stroke="{VERMILION}" transform="{move}"/>'
    lines = line(state.before, f'stroke="{GREY}" stroke-dasharray="8 5"') + line(state.after, f'stroke="{BLACK}"')
    ticks = [(at(v, 0)[0], f"{v:g}") for v in (-1, 0, 1)], [(at(0, v)[1], f"{v:g}") for v in (-1, 0, 1, 2, 3)]
    return svg(label, title, *ticks, dots + lines)


def _errors_in_words(state: TwoLines) -> str:
    before, after, second = state.errors
    return (
        f"Squared error above the noise: on task 1 <b>{before:.3f}</b> before task 2 and <b>{after:.3f}</b> after it, "
        f"on task 2 <b>{second:.3f}</b>."
    )


TWO_TASKS = """
const at=(x,y)=>[215+170*x,280-90*y],svg=root.querySelector("svg"),[first,last]=svg.querySelectorAll("line");
const marks=svg.querySelectorAll("path"),out=root.querySelector("output");
const value=k=>+root.querySelector(`[name=${k}]`).value;
function fit(points){let a=1,b=0,c=1,u=0,v=0;
 for(const [x,y] of points){a+=beta;b+=beta*x;c+=beta*x*x;u+=beta*y;v+=beta*x*y}
 const d=a*c-b*b;return[(c*u-b*v)/d,(a*v-b*u)/d]}
function error(w,a,b,side){const d=w[0]-a,e=w[1]-b;return d*d+side*d*e+e*e/3}
function put(line,w){line.setAttribute("y1",at(0,w[0]-w[1])[1]);line.setAttribute("y2",at(0,w[0]+w[1])[1])}
function draw(){const s=value("slope"),h=value("height"),x=i=>(i%n+.5)/n-(i<n?1:0);
 const points=noise.map((e,i)=>[x(i),(i<n?1+x(i):h+s*x(i))+e]),one=fit(points.slice(0,n)),two=fit(points);
 points.slice(n).forEach((p,i)=>marks[i].setAttribute("transform",`translate(${at(...p)})`));
 put(first,one);put(last,two);
 const f=v=>`<b>${v.toFixed(3)}</b>`;
 out.innerHTML=`Squared error above the noise: on task 1 ${f(error(one,1,1,-1))} before task 2 and `+
 `${f(error(two,1,1,-1))} after it, on task 2 ${f(error(two,h,s,1))}.`}
root.addEventListener("input",draw);draw();
"""


def _clusters_svg(points: Sequence[tuple[int, float, float]], label: str, title: str) -> str:
    """Both coordinates from -2 to 2, as in the script."""

    def at(x: float, y: float) -> tuple[float, float]:
        return 215 + 85 * x, 190 - 85 * y

    body = ""
    for (_, colour, _), cluster in zip(CLASSES, clusters(points), strict=True):
        (x, y), wide = at(*cluster.mean), (NOISE_VAR + cluster.sd**2) ** 0.5
        body += f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{85 * wide:.1f}" fill="{colour}" fill-opacity="0.12"/>'
        body += f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{85 * cluster.sd:.1f}" stroke="{colour}"/>'
        body += f'<path d="M-7-7L7 7M-7 7L7-7" stroke="{colour}" transform="translate({x:.1f} {y:.1f})"/>'
    for i, *point in points:
        x, y = at(*point)
        body += f'<circle class="point" cx="{x:g}" cy="{y:g}" r="4" fill="{CLASSES[i][1]}"/>'
    x, y = at(*TEST_POINT)
    star = "M0-11L3-3 11-3 5 2 7 10 0 5-7 10-5 2-11-3-3-3Z"
    body += f'<path d="{star}" fill="{ORANGE}" stroke="#000" stroke-width="1" transform="translate({x:g} {y:g})"/>'
    ticks = [(at(v, 0)[0], f"{v:g}") for v in (-2, -1, 0, 1, 2)], [(at(0, v)[1], f"{v:g}") for v in (-2, -1, 0, 1, 2)]
    return svg(label, title, *ticks, body)


def _clusters_in_words(found: Sequence[Cluster]) -> str:
    each = [
        f"{name}: {c.count} points, mean ({c.mean[0]:.2f}, {c.mean[1]:.2f}), sd of the mean {c.sd:.2f}"
        for (name, *_), c in zip(CLASSES, found, strict=True)
    ]
    return "; ".join(each) + f". Probability that the star is an A: <b>{found[0].probability:.2f}</b>."


PROTOTYPES = """
const svg=root.querySelector("svg"),out=root.querySelector("output"),at=(x,y)=>[215+85*x,190-85*y];
const [add,again]=root.querySelectorAll("button"),value=k=>+root.querySelector(`[name=${k}]`).value;
const chosen=()=>+root.querySelector("[type=radio]:checked").value,circles=svg.querySelectorAll("circle");
const crosses=svg.querySelectorAll("path");
const make=()=>svg.appendChild(document.createElementNS(svg.namespaceURI,"circle"));
const set=(o,k)=>{for(const name in k)o.setAttribute(name,k[name])},next=make();let points=[];
function mark(){const [cx,cy]=at(value("x"),value("y"));
 set(next,{cx,cy,r:6,stroke:classes[chosen()][1],"stroke-dasharray":"3 2"})}
function draw(){const found=classes.map(([name,,m],i)=>{
  const mine=points.filter(p=>p[0]===i),k=mine.length,precision=1+k/s2;
  const mean=[0,1].map(d=>(m[d]+mine.reduce((t,p)=>t+p[d+1],0)/s2)/precision),v=s2+1/precision;
  const d2=(test[0]-mean[0])**2+(test[1]-mean[1])**2,[cx,cy]=at(...mean);
  set(circles[2*i],{cx,cy,r:85*Math.sqrt(v)});set(circles[2*i+1],{cx,cy,r:85/Math.sqrt(precision)});
  set(crosses[i],{transform:`translate(${cx} ${cy})`});
  return{name,k,mean,sd:1/Math.sqrt(precision),score:(a0+k)/v*Math.exp(-d2/2/v)}});
 const f=v=>v.toFixed(2).replace(/^-(0\\.00)$/,"$1");
 out.innerHTML=found.map(c=>`${c.name}: ${c.k} points, mean (${c.mean.map(f).join(", ")}), sd of the mean ${f(c.sd)}`)
 .join("; ")+`. Probability that the star is an A: <b>${f(found[0].score/(found[0].score+found[1].score))}</b>.`;mark()}
add.onclick=()=>{const i=chosen(),x=value("x"),y=value("y"),[cx,cy]=at(x,y);points.push([i,x,y]);
 set(make(),{cx,cy,r:4,fill:classes[i][1],class:"added"});draw()};
again.onclick=()=>{points=[];svg.querySelectorAll(".added").forEach(o=>o.remove());draw()};
root.addEventListener("input",mark);draw();
"""
