"""Figures about sampling: toy data, decision surfaces with their spread, traces, diagnostics; data in, a Figure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray

from paper_lib.plots import (
    BLACK,
    GREY,
    TASK_COLOURS,
    card,
    draw_accuracy,
    legend_below,
    narrow,
    sd_over_seeds,
    seeds_in_words,
)
from paper_lib.rows import ROWS, VERMILION

FAR = 40.0
"""Points below all others from which on a line is told at the edge of ``factors``."""

Points = Sequence[tuple[NDArray, NDArray]]
"""Inputs ``(n, 2)`` and labels ``(n,)`` of each task."""


def toy_sets(sets: Mapping[str, Points], best: Mapping[str, float]) -> Figure:
    """The toy sets, a panel each.

    Args:
        sets: title of a panel to its points.
        best: title to the accuracy of the best classifier that is not told the task, percent.
    """
    figure, axes = card(1, len(sets), height=3.6)
    for ax, (title, points) in zip(axes[0], sets.items(), strict=True):
        _draw_points(ax, points, label=True)
        ax.set(title=f"{title},\nat best {best[title]:.1f} %", xlabel="first input")
    axes[0, 0].set_ylabel("second input")
    legend_below(figure, axes[0, 0], 3)
    return figure


def accuracy(curves: Mapping[str, NDArray], notes: Mapping[str, str], best: float) -> Figure:
    """Average accuracy over the tasks so far, with what is wrong with a curve in its label.

    Args:
        curves: row name to P_k ``(seed, task)``.
        notes: row name to words for its label, such as how many densities failed.
        best: accuracy of the best classifier of all tasks that is not told the task, percent.
    """
    figure, axes = card(height=3.7 + 0.32 * len(curves))
    ax = axes[0, 0]
    draw_accuracy(ax, curves)
    ax.axhline(best, color=GREY, lw=1, label=f"best classifier of all tasks, {best:.1f} %")
    low = min(float((c.mean(0) - sd_over_seeds(c)).min()) for c in curves.values())
    ax.set_ylim(10 * np.floor(10 * max(low - 0.02, 0)), 102)
    ax.set_ylabel("accuracy, tasks so far, $P_k$ (%)")
    ax.set_title(f"mean ± sd over {seeds_in_words(map(len, curves.values()))}")
    handles, labels = ax.get_legend_handles_labels()
    by_label = {ROWS[row].style.label: f"{ROWS[row].style.label}\n({words})" for row, words in notes.items()}
    figure.legend(
        handles, [by_label.get(name, name) for name in labels], loc="outside lower center", ncols=1, frameon=False
    )
    return figure


def surfaces(panels: Mapping[str, Any], points: Points) -> Figure:
    """Mean probability of class 1 and its sd over draws, after each task or of several rows.

    Args:
        panels: title of a line of panels to a surface with ``x``, ``y``, ``mean`` ``(h, w)``, ``sd`` ``(h, w)`` and the
            number of tasks seen.
        points: of all tasks.
    """
    if not panels:
        return _not_run()
    figure, axes = card(len(panels), 2, height=1.2 + 1.7 * len(panels), sharex=True, sharey=True)
    for place, (line, (title, (x, y, mean, sd, seen))) in enumerate(zip(axes, panels.items(), strict=True)):
        left, right = line
        images = [
            ax.pcolormesh(x, y, values, cmap=cmap, vmin=0, vmax=top, shading="nearest", rasterized=True)
            for ax, values, cmap, top in ((left, mean, "cividis", 1.0), (right, sd, "magma", 0.5))
        ]
        left.contour(x, y, mean, levels=[0.5], colors="white", linewidths=1.2)
        for ax, name in ((left, title), (right, "" if place else "spread over draws")):
            for size, colour in ((3.4, "black"), (2.4, "white")):  # white on bright maps, too
                _draw_points(ax, points[:seen], size=size, colours=[colour] * len(points), most=16)
            ax.set_title(name)
    for column, (image, label) in enumerate(
        zip(images, ("mean probability of class 1", "sd of that probability"), strict=True)
    ):
        bar = figure.colorbar(image, ax=axes[:, column], location="bottom", label=label, aspect=25)
        bar.set_ticks([0, 0.5, 1] if column == 0 else [0.1, 0.3, 0.5])
    for ax in axes[-1]:
        ax.set_xlabel("first input")
    figure.supylabel("second input", fontsize="medium")
    return figure


def traces(panels: Mapping[str, Any]) -> Figure:
    """Accuracy and NLL of the task just learned against draws of one chain, a line a seed and task.

    Args:
        panels: title to traces with ``num_draws``, ``accuracy`` and ``nll`` ``(seed, task, point)``.
    """
    if not panels:
        return _not_run()
    figure, axes = card(2, len(panels), height=4.8, sharex="col", sharey="row")
    for column, (title, found) in enumerate(panels.items()):
        for ax, values in zip(axes[:, column], (100 * found.accuracy, found.nll), strict=True):
            for task in range(values.shape[1]):
                colour = TASK_COLOURS[task]
                ax.plot(found.num_draws, values[:, task].T, color=colour, lw=0.5, alpha=0.35)
                median = np.median(values[:, task], axis=0)
                ax.plot(found.num_draws, median, color=colour, lw=1.8, label=f"task {task + 1}")
            ax.set_xscale("log")
        seeds = f"{len(found.accuracy)} seed{'s' * (len(found.accuracy) > 1)}"
        axes[0, column].set_title(narrow(f"{title}, {seeds}", 22))
        axes[1, column].set_xlabel("draws of one chain")
    axes[0, 0].set_ylabel("accuracy (%)")
    axes[1, 0].set_ylabel("NLL (nats a point)")
    legend_below(figure, axes[0, 0], 3)
    return figure


def diagnostics(told: pd.DataFrame, max_rhat: float, min_ess: float) -> Figure:
    """ESS, R-hat, accuracy of HMC's draws and of the density's, and components, by task: median and range over seeds.

    Args:
        told: a line a row, seed and task with ``ess_log_density``, ``rhat_log_density``, ``accuracy``,
            ``density_accuracy`` and ``num_components``; the last two NaN where nothing is fitted.
        max_rhat: that passes.
        min_ess: that passes.
    """
    panels = (
        ("ess_log_density", "ESS of log density", 1, min_ess),
        ("rhat_log_density", "R-hat of log density", 1, max_rhat),
        ("density_accuracy", "accuracy when learned (%)", 100, None),
        ("num_components", "components", 1, None),
    )
    rows = [row for row in ROWS if row in set(told["row"])]
    if not rows:
        return _not_run()
    figure, axes = card(2, 2, height=5.0 + 0.28 * len(rows), sharex=True)
    for ax, (name, label, factor, threshold) in zip(axes.flat, panels, strict=True):
        for place, row in enumerate(rows):
            part, style = told[told["row"] == row], ROWS[row].style
            shift = 0.09 * (place - (len(rows) - 1) / 2)
            if part[name].notna().any():
                _draw_range(ax, part, name, factor, shift, style, filled=True)
            if name == "density_accuracy":
                _draw_range(ax, part, "accuracy", 100, shift - 0.03, style, filled=False)
        if threshold is not None:
            ax.axhline(threshold, color=BLACK, ls="--", lw=1)
            ax.set_yscale("log")
            for formatter in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
                formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "125" else "")
        if name == "num_components":
            ax.set_ylim(0, None if told[name].max() > 1 else 2)
            ax.yaxis.get_major_locator().set_params(integer=True)
        ax.set_title(label, loc="left", fontsize="medium")
        ax.set_xticks(sorted(told.task.unique()))
    for ax in axes[-1]:
        ax.set_xlabel("task")
    legend_below(figure, axes[0, 0], 1)
    return figure


def flows(told: Mapping[str, pd.DataFrame]) -> Figure:
    """How well flows fit the draws of task 1, a dot a seed, by how they were trained.

    Args:
        told: words for a way of training to lines with ``task``, ``gain`` over a Gaussian in nats, ``accuracy`` of
            HMC's draws and ``density_accuracy`` of the flow's.
    """
    if not told:
        return _not_run()
    figure, axes = card(1, 2, height=2.0 + 0.6 * len(told), sharey=True)
    for place, lines in enumerate(told.values()):
        first = lines[lines.task == 1]
        heights = -place + 0.4 * (np.linspace(0, 1, len(first)) - 0.5)
        axes[0, 0].plot(first.gain, heights, "o", ms=4, color=VERMILION)
        axes[0, 1].plot(100 * first.density_accuracy, heights, "o", ms=4, color=VERMILION, label="the flow's draws")
        axes[0, 1].plot(100 * first.accuracy, heights, "o", ms=5, mfc="none", color=BLACK, label="HMC's draws")
    axes[0, 0].axvline(0, color=BLACK, ls="--", lw=1)
    gains = np.concatenate([lines[lines.task == 1].gain for lines in told.values()])
    axes[0, 0].set_xscale("symlog", linthresh=1)
    ends = 3 * min(gains.min(), -1), 3 * max(gains.max(), 1)
    ticks = [0, *(sign * size for size in (1e8, 1e4, 1e2) for sign in (-1, 1))]
    axes[0, 0].set_xticks([tick for tick in ticks if ends[0] <= tick <= ends[1]])
    axes[0, 0].set_xlim(ends)
    axes[0, 0].xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if abs(value) < 1e6 else f"{value:.0e}")
    axes[0, 0].xaxis.set_minor_locator(NullLocator())
    axes[0, 0].set_yticks([-place for place in range(len(told))], told)
    axes[0, 0].set_ylim(0.5 - len(told), 0.5)
    axes[0, 0].set_xlabel("log density over\na Gaussian's (nats)")
    axes[0, 1].set_xlabel("right on task 1 (%)")
    handles, labels = axes[0, 1].get_legend_handles_labels()
    figure.legend(handles[:2], labels[:2], loc="outside lower center", ncols=2, frameon=False)
    return figure


def factors(lines: pd.DataFrame, meaning: Mapping[str, str]) -> Figure:
    """Final accuracy of a setting and of each change of one of its factors, a dot a seed.

    A line far below all others is told at the edge, so that it does not squeeze them.

    Args:
        lines: index the change in words, a column ``final`` with a list of percents, and ``colour``.
        meaning: what each colour says, of which the legend has those that occur.
    """
    if lines.empty:
        return _not_run()
    used = [colour for colour in meaning if colour in set(lines.colour)]
    figure, axes = card(height=1.4 + 0.36 * len(lines) + 0.2 * len(used))
    ax = axes[0, 0]
    means = lines.final.map(np.mean)
    lowest, rest = means.idxmin(), means.drop(means.idxmin())
    apart = len(rest) > 0 and rest.min() - means[lowest] > FAR
    within = [x for name, final in lines.final.items() for x in final if not (apart and name == lowest)]
    left = 5 * np.floor(min(within) / 5 - 0.2)
    for place, (name, line) in enumerate(lines.iterrows()):
        if apart and name == lowest:
            ax.annotate(
                f"{means[name]:.0f} %", (left, -place), (14, 0), textcoords="offset points", va="center",
                color=line.colour, arrowprops={"arrowstyle": "->", "color": line.colour},
            )  # fmt: skip
            continue
        seeds = len(line.final)
        gap = min(0.13, 0.7 / seeds)  # apart, where seeds end alike, and on their own line
        heights = -place + gap * (np.arange(seeds) - (seeds - 1) / 2)
        ax.plot(line.final, heights, "o", ms=5, mfc="none", mew=1.4, color=line.colour)
    ax.set_yticks([-place for place in range(len(lines))], lines.index)
    ax.set_ylim(0.6 - len(lines), 0.6)
    ax.set(xlabel="final accuracy (%), a dot a seed", xlim=(left, 101))
    ax.grid(axis="x", alpha=0.3)
    handles = [Line2D([], [], ls="", marker="o", mfc="none", mew=1.4, color=c, label=meaning[c]) for c in used]
    figure.legend(handles=handles, loc="outside lower center", ncols=1, frameon=False)
    return figure


def _not_run() -> Figure:
    """What stands where a figure of stored runs will."""
    figure, axes = card(height=1.0)
    axes[0, 0].text(0.5, 0.5, "not run yet", ha="center", va="center")
    axes[0, 0].axis("off")
    return figure


def _draw_points(
    ax: Axes, points: Points, label: bool = False, size: float = 4, colours: Sequence = TASK_COLOURS, most: int = 80
) -> None:
    for task, (x, y) in enumerate(points):
        for value, marker in ((0, "o"), (1, "s")):
            mine = x[y == value][:most]
            named = {"label": f"task {task + 1}"} if label and value == 0 else {}
            face = colours[task] if value else "none"
            ax.plot(*mine.T, marker, ms=size, mew=0.7, mfc=face, color=colours[task], alpha=0.75, **named)


def _draw_range(ax: Axes, part: pd.DataFrame, name: str, factor: float, shift: float, style: Any, filled: bool) -> None:
    by = factor * part.groupby("task")[name].agg(["median", "min", "max"])
    ends = [by["median"] - by["min"], by["max"] - by["median"]]
    face = style.colour if filled else "none"
    label = style.label if filled else None
    marker = style.marker or "o"
    ax.errorbar(
        by.index + shift,
        by["median"],
        ends,
        fmt=marker,
        ms=4,
        mfc=face,
        color=style.colour,
        capsize=2,
        lw=1,
        label=label,
    )
