"""Figures: one function each, data in and a Figure out, on a white card in colours that colour-blind readers can tell.

A notebook shows the Figure that its cell's last line returns. Nothing here trains, reads a file or knows a model.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from paper_lib.rows import BLACK, BLUE, GREEN, GREY, PURPLE, ROWS, SKY, VERMILION, shown_in

TASK_COLOURS = ("#332288", "#CC6677", "#999933", "#44AA99", "#882255")
"""Of Tol's muted scheme, for colour-blind readers too: no task has the colour of a method beside it."""

STYLE = {
    "figure.dpi": 200,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "savefig.facecolor": "white",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": "medium",
    "legend.frameon": False,
    "lines.linewidth": 1.8,
}


def card(
    num_rows: int = 1, num_columns: int = 1, width: float = 5.0, height: float = 3.2, **kwargs: object
) -> tuple[Figure, np.ndarray]:
    """An empty white figure and its axes ``(row, column)``; further arguments are those of ``plt.subplots``.

    A page on a phone is 358 pixels wide, so text of 10 points is 9.3 pixels high on a card of 5 inches and too small
    on a wider one. Hence two panels abreast at most.

    It is closed for pyplot, so that a notebook draws it once: where it is returned.
    """
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            num_rows, num_columns, figsize=(width, height), layout="constrained", squeeze=False, **kwargs
        )
    plt.close(figure)
    return figure, axes


def legend_below(figure: Figure, axes: Axes | np.ndarray, num_columns: int) -> None:
    """One legend for the whole figure, from the labels of one or several ``axes``, each once, outside the data."""
    pairs = [pair for ax in np.ravel(axes) for pair in zip(*ax.get_legend_handles_labels(), strict=True)]
    by_label = {label: handle for handle, label in pairs}
    figure.legend(by_label.values(), by_label.keys(), loc="outside lower center", ncols=num_columns, frameon=False)


def change_point_fit(curves: Sequence, data: Sequence[tuple[np.ndarray, np.ndarray]]) -> Figure:
    """Figure 4: data and predictive distributions after each task, a model a row.

    Args:
        curves: with ``model``, ``task_trained``, ``x``, ``mean`` and ``sd``; every model after both tasks.
        data: training points of each task, ``x`` and ``y`` ``(n,)``.
    """
    names = list(dict.fromkeys(curve.model for curve in curves))
    figure, axes = card(len(names), 2, height=2.5 * len(names), sharex=True, sharey=True)
    for curve in curves:
        row, column = names.index(curve.model), curve.task_trained - 1
        ax = axes[row, column]
        for task, (x, y) in enumerate(data[: curve.task_trained]):
            ax.plot(
                x,
                y,
                "." if task == 0 else "x",
                color=TASK_COLOURS[task],
                ms=4,
                label=f"task {task + 1}, training points",
            )
        ax.fill_between(
            curve.x, curve.mean - 2 * curve.sd, curve.mean + 2 * curve.sd, color=GREY, alpha=0.25, lw=0, label="± 2 sd"
        )
        ax.plot(curve.x, curve.mean, color=BLACK, label="predictive mean")
        ax.plot(curve.x, 1 - np.abs(curve.x), ":", color=GREY, label="noise-free truth")
        ax.set_title(f"{curve.model}, after task {curve.task_trained}")
    for ax in axes[-1]:
        ax.set_xlabel("input x")
    for ax in axes[:, 0]:
        ax.set_ylabel("target y")
    legend_below(figure, axes[0, 1], 2)
    return figure


def change_point_scores(scores: pd.DataFrame) -> Figure:
    """Performance on each task after each task, for every model, a metric a row.

    Args:
        scores: of ``analysis.misspecification.run``.
    """
    figure, axes = card(2, 1, height=5.2, sharex=True)
    labels = {"mse": "squared error\n(lower is better)", "log_likelihood": "log likelihood, nats\n(higher is better)"}
    num_sets = _data_sets(scores)
    for ax, (metric, label) in zip(axes[:, 0], labels.items(), strict=True):
        mine = scores[(scores.metric == metric) & (scores.task_tested <= scores.task_trained)]
        by = mine.groupby(["model", "task_trained", "task_tested"]).value
        models = [model for model in scores.model.unique() if model != "single_task"]
        marks = zip((VERMILION, PURPLE, BLUE), "oDs", (-0.12, 0, 0.12), strict=True)
        for model, (colour, marker, shift) in zip(models, marks, strict=False):
            for position, cell in enumerate(((1, 1), (2, 1), (2, 2))):
                values = by.get_group((model, *cell))
                sd = values.std() if len(values) > 1 else None
                name = f"{model}, mean ± sd of {num_sets}" if position == 0 else None
                ax.errorbar(position + shift, values.mean(), sd, fmt=marker, color=colour, capsize=3, label=name)
        alone = mine[mine.model == "single_task"].value.mean()
        ax.axhline(alone, color=BLACK, ls="--", lw=1, label="bound: a line for the tested task alone")
        ax.set_ylabel(label)
        ax.margins(x=0.15)
    axes[0, 0].set_ylim(bottom=0)
    axes[1, 0].set_xticks(range(3), ["task 1\nafter task 1", "task 1\nafter task 2", "task 2\nafter task 2"])
    axes[1, 0].set_xlabel("tested task, last trained task")
    legend_below(figure, axes[0, 0], 1)
    return figure


def excess_error(table: pd.DataFrame, limit: float) -> Figure:
    """The line's error on task 1 above the noise against the points of a task, a panel a noise level.

    Args:
        table: of ``analysis.misspecification.excess_error``.
        limit: value for many points after both tasks.
    """
    precisions = sorted(table.noise_precision.unique())
    figure, axes = card(1, len(precisions), height=3.7, sharey=True)
    for ax, precision in zip(axes[0], precisions, strict=True):
        for trained, colour, marker in ((1, BLUE, "s"), (2, VERMILION, "o")):
            mine = table[(table.noise_precision == precision) & (table.task_trained == trained)]
            by = mine.groupby("num_points").excess_mse
            ax.fill_between(by.mean().index, by.min(), by.max(), color=colour, alpha=0.2, lw=0)
            label = f"after task {trained}, mean and range of {_data_sets(table)}"
            ax.plot(by.mean().index, by.mean(), marker=marker, ms=4, color=colour, label=label)
        ax.axhline(limit, color=BLACK, ls="--", lw=1, label="limit, 1/12")
        ax.set(xscale="log", yscale="log", xlabel="training points a task")
        ax.set_title(f"noise of sd {precision**-0.5:.2g}")
    axes[0, 0].set_ylabel("error on task 1\nabove the noise")
    legend_below(figure, axes[0, 0], 1)
    return figure


def _data_sets(table: pd.DataFrame) -> str:
    count = table.seed.nunique()
    return f"{count} data set{'s' if count > 1 else ''}"


def monte_carlo_check(
    x: Sequence[float],
    closed_form: Sequence[float],
    monte_carlo: Sequence[float],
    se: Sequence[float],
    *,
    x_label: str,
    y_label: str,
) -> Figure:
    """A closed form and its Monte Carlo estimate, and below them their difference in standard errors.

    Args:
        x: positions, ``(n,)`` as all that follow.
        closed_form: values of the formula.
        monte_carlo: estimates.
        se: their standard errors.
        x_label: what ``x`` is, with its unit.
        y_label: what is estimated, with its unit.
    """
    x, closed_form, monte_carlo, se = map(np.asarray, (x, closed_form, monte_carlo, se))
    figure, axes = card(2, 1, height=4.2, sharex=True, height_ratios=[2, 1])
    places, (above, below) = np.arange(len(x)), axes[:, 0]
    in_se = np.divide(monte_carlo - closed_form, se, out=np.zeros(len(x)), where=se > 0)
    limit = max(4, 1.2 * np.abs(in_se).max())
    above.plot(places, closed_form, "_", ms=22, mew=2, color=BLACK, label="closed form")
    above.errorbar(places, monte_carlo, 2 * se, fmt="o", ms=5, capsize=3, color=BLUE, label="Monte Carlo ± 2 se")
    above.set_ylabel(y_label)
    above.legend(frameon=False)
    below.axhspan(-2, 2, color=GREY, alpha=0.2, lw=0)
    below.plot(places, in_se, "o", ms=5, color=BLUE)
    below.set(xlabel=x_label, ylabel="difference\n(se)", ylim=(-limit, limit))
    shown = places[:: -(-len(x) // 16)]  # a tick each for up to 16
    below.set_xticks(shown, [f"{x[place]:g}" for place in shown])
    return figure


def prototype_swap(table: pd.DataFrame) -> Figure:
    """Log predictive a point of points that share a prototype: one integral of all, and a product of integrals.

    Args:
        table: ``swap`` of ``analysis.protocl_derivation.run``.
    """
    figure, axes = card(height=3.4)
    ax = axes[0, 0]
    ax.plot(
        table.num_points, table.exact, marker="o", color=BLUE, label="exact: one integral over the shared prototype"
    )
    ax.plot(table.num_points, table["product"], marker="s", color=VERMILION, label="as printed: an integral a point")
    ax.set_xscale("log", base=2)
    ax.set_xticks(table.num_points, [f"{n:g}" for n in table.num_points])
    ax.set(xlabel="points of one class", ylabel="log predictive (nats a point)")
    legend_below(figure, ax, 1)
    return figure


def accuracy_over_tasks(curves: Mapping[str, np.ndarray]) -> Figure:
    """Average accuracy P_k over the tasks so far, after each task, mean and sd over seeds.

    Args:
        curves: row name, one of ``rows.ROWS``, to P_k ``(seed, task)`` in [0, 1].
    """
    figure, axes = card(height=3.9)
    ax = axes[0, 0]
    draw_accuracy(ax, curves)
    ax.set_ylabel("average accuracy $P_k$ (%)")
    ax.set_title(f"mean ± sd over {seeds_in_words(map(len, curves.values()))}")
    legend_below(figure, ax, 2)
    return figure


def accuracy_panels(panels: Mapping[str, Mapping[str, np.ndarray]], own_scales: bool = False) -> Figure:
    """``accuracy_over_tasks`` for two groups of rows or data sets, side by side.

    Args:
        panels: title of a panel to its curves.
        own_scales: each panel's axis begins at the ten below its lowest value instead of at 0.
    """
    figure, axes = card(1, len(panels), height=5.0, sharey=not own_scales)
    for ax, (title, curves) in zip(axes[0], panels.items(), strict=True):
        draw_accuracy(ax, curves)
        ax.set_title(f"{title},\nmean ± sd over {seeds_in_words(map(len, curves.values()))}")
        if own_scales:
            lowest = min((v.mean(0) - sd_over_seeds(v)).min() for v in curves.values())
            ax.set_ylim(10 * np.floor(10 * max(lowest, 0)), 101)
    axes[0, 0].set_ylabel("average accuracy $P_k$ (%)")
    legend_below(figure, axes, 1)
    return figure


def draw_accuracy(ax: Axes, curves: Mapping[str, np.ndarray]) -> None:
    """Curves P_k ``(seed, task)`` of rows on an axis, mean and sd over seeds."""
    for place, (name, values) in enumerate(curves.items()):
        label, colour, marker, line = ROWS[name].style
        tasks = np.arange(1, values.shape[1] + 1)
        at = tasks + 0.04 * (place - (len(curves) - 1) / 2)  # side by side where curves coincide
        mean, sd = 100 * values.mean(0), 100 * sd_over_seeds(values)
        ax.errorbar(at, mean, _within(mean, sd), color=colour, marker=marker, ls=line, capsize=3, ms=5, label=label)
    ax.set_xticks(tasks)
    ax.set_xlabel("tasks learned, k")
    ax.set_ylim(0, 101)


def sd_over_seeds(values: np.ndarray) -> np.ndarray:
    """Standard deviation over seeds; 0 for one seed."""
    return values.std(0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1:])


def _within(mean: Any, spread: Any, lowest: float = 0.0) -> np.ndarray:
    """Lengths of the whiskers below and above, cut where the axis of a percentage ends."""
    mean, spread = np.asarray(mean, dtype=float), np.nan_to_num(np.asarray(spread, dtype=float))
    return np.stack([mean - np.clip(mean - spread, lowest, None), np.clip(mean + spread, None, 100.0) - mean])


def seeds_in_words(counts: Iterable[int]) -> str:
    """How many seeds the rows of a figure have."""
    counts = sorted(set(counts))
    return f"{' or '.join(f'{n:.0f}' for n in counts)} seed{'s' * (counts != [1])}"


def scores(panels: Mapping[str, pd.DataFrame]) -> Figure:
    """Final accuracy and triangle mean of each row as dots, mean and sd over seeds, with the paper's numbers.

    The axis begins at the ten below what is shown if all of that is above 50, else at 0. A single panel also tells
    the final accuracies as numbers.

    Args:
        panels: title of a panel, at most two, to the lines of ``tables.comparison``.
    """
    panels = {title: lines[lines.n > 0] for title, lines in panels.items()}
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines.index))
    figure, axes = card(1, len(panels), height=1.6 + 0.4 * len(names), sharey=True)
    place = {name: -at for at, name in enumerate(names)}
    for ax, (title, lines) in zip(axes[0], panels.items(), strict=True):
        lowest = np.nan_to_num(lines[["final", "triangle"]].min().min())
        left = 10 * np.floor(lowest / 10 - 0.2) if lowest > 50 else 0
        ax.set_title(f"{title},{' ' if len(panels) == 1 else chr(10)}{seeds_in_words(lines.n)}")
        for name, line in lines.iterrows():
            _draw_scores(ax, place[name], line, ROWS[name].style.colour)
            if len(panels) == 1:
                ax.text(1.02, place[name], f"{line.final:.1f}", transform=ax.get_yaxis_transform(), va="center")
        ax.set(xlabel="accuracy (%)", xlim=(left, 102))
        ax.set_xticks(np.arange(left, 101, (50 if len(panels) > 1 else 20) if left == 0 else 10))
        ax.grid(axis="x", alpha=0.3)
    if len(panels) == 1:
        ax.text(1.02, 1, "$P_T$ (%)", transform=ax.transAxes, va="bottom")
    axes[0, 0].set_yticks(list(place.values()), [narrow(ROWS[name].style.label) for name in names])
    axes[0, 0].set_ylim(0.6 - len(names), 0.6)
    dots = {"fmt": "o", "ms": 6, "color": BLACK, "capsize": 3}
    handles = [axes[0, 0].errorbar([], [], xerr=[], label="final accuracy $P_T$ ± sd", **dots)]
    handles += [axes[0, 0].errorbar([], [], xerr=[], label="triangle mean ± sd", mfc="white", **dots)]
    if any(lines["paper"].notna().any() for lines in panels.values()):
        handles += [Patch(facecolor=(*to_rgb(GREY), 0.3), edgecolor=GREY, label="printed number and its ±")]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


def accuracy_by_seconds(lines: pd.DataFrame) -> Figure:
    """Final accuracy of each row against its training time, mean over seeds, a mark a row.

    Args:
        lines: of ``tables.comparison``; rows that were not run are left out.
    """
    lines = lines[lines.n > 0]
    figure, axes = card(height=2.9 + 0.22 * (len(lines) + 1) // 2)
    ax = axes[0, 0]
    for name, line in lines.iterrows():
        label, colour, marker, _ = ROWS[name].style
        ax.plot(
            line.seconds,
            line.final,
            marker or "h",
            ms=8,
            color=colour,
            mfc=(*to_rgb(colour), 0.4),
            label=narrow(label, 28),
        )
    ax.set(xscale="log", xlabel="training time of a seed (s)", ylabel="final accuracy $P_T$ (%)", ylim=(0, 104))
    ax.grid(alpha=0.3)
    legend_below(figure, ax, 2)
    return figure


def _draw_scores(ax: Axes, place: float, line: pd.Series, colour: str) -> None:
    """One line of ``scores``: the triangle mean above the final accuracy, on the printed number."""
    if not np.isnan(line["paper"]):
        below, above = _within(line["paper"], line["margin"])
        ax.barh(place, below + above, 0.8, left=line["paper"] - below, color=GREY, alpha=0.3)
        ax.plot([line["paper"]] * 2, [place - 0.4, place + 0.4], color=GREY)
    for word, shift, face in (("triangle", 0.17, "white"), ("final", -0.17, colour)):
        ends = _within(line[word], line[f"{word} sd"])[:, None]
        ax.errorbar(line[word], place + shift, xerr=ends, fmt="o", ms=6, mfc=face, color=colour, capsize=3)


def narrow(label: str, width: int = 24) -> str:
    """A label on as many lines as keep it narrow, what is in brackets on its own if it would be split."""
    label = label if len(label) <= width else label.replace(" (", "\n(")
    return "\n".join(line for part in label.splitlines() for line in textwrap.wrap(part, width))


def accuracy_matrices(matrices: Mapping[str, np.ndarray]) -> Figure:
    """Accuracy on each task after each task, one panel a row of the experiment, at most two abreast, mean over seeds.

    Args:
        matrices: row name, one of ``rows.ROWS``, to ``(seed, task_trained, task_tested)``, NaN above the diagonal.
    """
    columns = min(2, len(matrices))
    rows = -(-len(matrices) // columns)
    figure, axes = card(rows, columns, height=2.7 * rows + 0.7, sharex=True, sharey=True)
    panels = list(axes.flat[: len(matrices)])
    for spare in axes.flat[len(matrices) :]:
        spare.remove()
    for ax, (name, values) in zip(panels, matrices.items(), strict=True):
        mean = 100 * values.mean(0)
        num_tasks = len(mean)
        image = ax.imshow(mean, cmap="cividis", vmin=0, vmax=100, extent=(0.5, num_tasks + 0.5, num_tasks + 0.5, 0.5))
        if num_tasks <= 5:
            for trained, tested in zip(*np.tril_indices(num_tasks), strict=True):
                value = mean[trained, tested]
                shade = "white" if value < 60 else "black"
                ax.text(tested + 1, trained + 1, f"{value:.0f}", ha="center", va="center", color=shade)
        ax.set_title(narrow(f"{ROWS[name].style.label}, {seeds_in_words([len(values)])}", 28))
        ax.set_xticks(range(1, num_tasks + 1))
        ax.set_yticks(range(1, num_tasks + 1))
    for ax in axes[:, 0]:
        ax.set_ylabel("after training on task")
    for ax in panels[-columns:]:
        ax.set_xlabel("task tested")
        ax.tick_params(labelbottom=True)
    figure.colorbar(image, ax=panels, label="accuracy (%)", location="bottom", shrink=0.6, aspect=30)
    return figure


REACH = 10.0
"""Points below the best that ``scores_by_epochs`` shows."""


def scores_by_epochs(rankings: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Validation scores of tuned settings against the epochs that they were trained for, one panel a data set.

    The best of each method is ringed. Scores more than ``REACH`` below the best stand as arrows at the edge.

    Args:
        rankings: title of a panel to row name, one of ``rows.ROWS``, to a table with columns ``epochs`` and ``score``,
            percent.
    """
    figure, axes = card(1, len(rankings), height=3.4)
    for ax, (title, by_method) in zip(axes[0], rankings.items(), strict=True):
        low = max(table.score.max() for table in by_method.values()) - REACH
        for place, (name, table) in enumerate(by_method.items()):
            label, colour, marker, _ = ROWS[name].style
            shifted = table.epochs * 1.08 ** (2 * place - len(by_method) + 1)
            shown, best = table.score >= low, table.score.idxmax()
            ax.plot(shifted[shown], table.score[shown], marker, color=colour, label=label, alpha=0.7, markersize=5)
            ax.plot(shifted[~shown], [low - 0.4] * int((~shown).sum()), "v", color=colour, alpha=0.5, markersize=4)
            ax.plot(shifted[best], table.score[best], "o", mfc="none", mew=1.5, color=colour, markersize=11)
        ax.set_ylim(low - 1, low + REACH + 1)
        ticks = sorted({e for table in by_method.values() for e in table.epochs})
        ax.set_xscale("log")
        ax.set_xticks(ticks, [f"{e:g}" for e in ticks])
        ax.minorticks_off()
        ax.set(title=title, xlabel="epochs a task")
    axes[0, 0].set_ylabel("validation score (%)")
    legend_below(figure, axes[0, 0], len(rankings))
    return figure


def memory_curves(
    panels: Mapping[str, pd.DataFrame],
    totals: Sequence[int],
    printed: Mapping[str, Mapping[int, tuple[float, float]]] | None = None,
) -> Figure:
    """Figure 7: final accuracy and triangle mean against the size of the memory, mean and sd over seeds, a panel a set.

    Sizes stand at even distances, as their logarithm nearly does and 0 has none.

    Args:
        panels: title of a panel to the lines of ``experiments.protocl_memory.curve``.
        totals: sizes, of which some may have no lines.
        printed: title to size to the printed number and its ±, percent.
    """
    printed, place = printed or {}, {total: at for at, total in enumerate(sorted(totals))}
    figure, axes = card(len(panels), 1, height=1.4 + 2.7 * len(panels))
    for ax, (title, lines) in zip(axes[:, 0], panels.items(), strict=True):
        for total, (value, margin) in printed.get(title, {}).items():
            below, above = _within(value, margin)
            ax.bar(place[total], below + above, 0.7, value - below, color=GREY, alpha=0.4, label="printed, ±")
            ax.plot([place[total] - 0.35, place[total] + 0.35], [value] * 2, color=GREY)
        for name, mine in lines.groupby("row", sort=False):
            label, colour, marker, _ = ROWS[name].style
            for score, words, line, face in (
                ("final", "$P_T$", "-", colour),
                ("triangle", "triangle mean", ":", "white"),
            ):
                by = mine.groupby("total")[score]
                at, ends = [place[t] for t in by.mean().index], _within(by.mean(), by.std())
                style = {"color": colour, "marker": marker, "ls": line, "mfc": face, "ms": 5, "capsize": 3}
                ax.errorbar(at, by.mean(), ends, label=f"{label}, {words}", **style)
        counts = lines.groupby(["row", "total"]).seed.nunique()
        ax.set_title(f"{title}, mean ± sd of {seeds_in_words(counts)}" if len(counts) else f"{title}, not run yet")
        ax.set_xticks(list(place.values()), [f"{total:,}" for total in place])
        ax.set(ylabel="accuracy (%)", ylim=(0, 101), xlim=(-0.5, len(place) - 0.5))
        ax.grid(axis="y", alpha=0.3)
    axes[-1, 0].set_xlabel("points of memory in all")
    legend_below(figure, axes, 2)
    return figure


def concentrations(panels: Mapping[str, np.ndarray], num_tasks: int) -> Figure:
    """Figure A8: the Dirichlet's parameters and the shares of the classes over training, a row a way to count.

    Args:
        panels: title of a row to the parameters ``(seed, epoch, class)`` after each epoch, classes in order of tasks.
        num_tasks: tasks in the stream.
    """
    figure, axes = card(len(panels), 2, height=1.0 + 2.1 * len(panels), sharex=True)
    for (left, right), (title, alpha) in zip(axes, panels.items(), strict=True):
        num_seeds, num_epochs, num_classes = alpha.shape
        tasks = num_tasks * np.arange(1, num_epochs + 1) / num_epochs
        share = 100 * alpha / alpha.sum(-1, keepdims=True)
        for c in range(num_classes):
            task, second = c * num_tasks // num_classes, c % (num_classes // num_tasks or 1)
            style = {"color": TASK_COLOURS[task % len(TASK_COLOURS)], "ls": "--" if second else "-", "lw": 1.4}
            for ax, values in ((left, alpha[..., c] / 1000), (right, share[..., c])):
                mean, se = values.mean(0), sd_over_seeds(values) / np.sqrt(num_seeds)
                ax.plot(tasks, mean, **style, label=None if second else f"task {task + 1}")
                ax.fill_between(tasks, mean - se, mean + se, color=style["color"], alpha=0.25, lw=0)
        right.axhline(100 / num_classes, color=BLACK, ls=":", lw=1.2, label="equal shares")
        left.set_ylim(bottom=0)
        right.set_ylim(0, min(101, 1.1 * share.mean(0).max()))
        left.set(title=narrow(title), ylabel=r"$\alpha$ (thousands)")
        right.set(title=f"shares, {num_seeds} seed{'s' * (num_seeds > 1)}", ylabel="share (%)")
    for ax in axes[-1]:
        ax.set_xticks(range(0, num_tasks + 1, -(-num_tasks // 5)))
        ax.set_xlabel("tasks learned")
    legend_below(figure, axes[0, 1], 3)
    return figure


def recursive_bayes(recursion: Any) -> Figure:
    """Posteriors of a line's intercept and slope from task to task, and how the log evidences of the tasks add up.

    Args:
        recursion: of ``analysis.scenarios.recursion``.
    """
    figure, axes = card(1, 2, height=3.7)
    left, right = axes[0]
    angle = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    mean, cov = (leaf.numpy() for leaf in recursion.sequential)
    shades = plt.get_cmap("cividis")(np.linspace(0.9, 0.05, len(mean)))
    batch = recursion.batch.mean.numpy()[:, None] + 2 * np.linalg.cholesky(recursion.batch.cov.numpy()) @ circle
    near = left.inset_axes([0.02, 0.66, 0.33, 0.33])
    for ax in (left, near):
        for i, (m, c) in enumerate(zip(mean, cov, strict=True)):
            ellipse = m[:, None] + 2 * np.linalg.cholesky(c) @ circle
            named = i in (1, len(mean) - 1) or len(mean) <= 6
            label = "prior" if i == 0 else f"after task {i}" if named else None
            ax.plot(*ellipse, color=shades[i], lw=1.2, label=label)
        ax.plot(*batch, ".", color=VERMILION, ms=2 if ax is left else 4, markevery=8, label="all data at once")
        ax.plot(*recursion.truth, "+", color=BLACK, ms=6, mew=1.2, label="truth")
    middle, reach = batch.mean(1), 1.6 * np.ptp(batch, axis=1).max() / 2
    near.set(xlim=middle[0] + np.array([-reach, reach]), ylim=middle[1] + np.array([-reach, reach]))
    near.set(xticks=[], yticks=[])
    near.spines[:].set_visible(True)
    left.indicate_inset_zoom(near, edgecolor=GREY)
    left.set(xlabel="intercept", ylabel="slope", title="beliefs, 2 sd")
    legend_below(figure, left, 3)

    tasks = np.arange(1, len(recursion.log_evidence) + 1)
    total = recursion.log_evidence.cumsum()
    right.bar(tasks, recursion.log_evidence, bottom=total - recursion.log_evidence, color=SKY, width=0.7)
    right.axhline(recursion.batch_log_evidence, color=VERMILION, ls="--", lw=1.2)
    right.text(
        tasks[0] - 0.4,
        recursion.batch_log_evidence,
        "all data at once",
        color=VERMILION,
        ha="left",
        va="bottom" if total[-1] < 0 else "top",
    )
    right.set_xticks(tasks[:: -(-len(tasks) // 10)])
    right.set(xlabel="task", ylabel="log evidence (nats)", title="each bar adds one task")
    return figure


def filter_assumptions(steps: pd.DataFrame, idle: pd.DataFrame) -> Figure:
    """Variances under the Ornstein-Uhlenbeck process: of each weight's optimum, and of a weight without data.

    Args:
        steps: of ``analysis.filter_derivation.transitions``.
        idle: of ``analysis.filter_derivation.variance_without_data``.
    """
    figure, axes = card(1, 2, height=3.9)
    left, right = axes[0]
    left.plot(steps.weight, steps.corrected, "_", ms=20, mew=2, color=BLUE, label="corrected")
    left.plot(steps.weight, steps.printed, "x", ms=7, mew=2, color=VERMILION, label="as printed")
    left.plot(steps.weight, steps.simulated, "o", ms=5, color=BLACK, label="simulated")
    left.set(xlabel="weight", ylabel="variance of the step\nof its optimum", yscale="log", title="Transition, η²")
    left.set_xticks(steps.weight)
    left.set_xlim(steps.weight.min() - 0.5, steps.weight.max() + 0.5)
    right.axhline(idle.limit[0], color=GREY, ls="--", lw=1, label="limit, η² / (1 − (1 − h)²)")
    right.plot(idle.step, idle.corrected, color=BLUE)
    right.plot(idle.step, idle.printed, color=VERMILION, ls=(0, (4, 2)))
    right.plot(idle.step[::5], idle.simulated[::5], "o", ms=4, color=BLACK)
    right.set(xlabel="steps without data", ylabel="prior variance of a weight", yscale="log", title="Exponent of 1 − h")
    handles = [*left.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


def lemma_1(table: pd.DataFrame) -> Figure:
    """One weight of a network followed over observations: Lemma 1, and Bayes' rule by numerical integration.

    Args:
        table: of ``analysis.filter_derivation.lemma_1``.
    """
    figure, axes = card(height=4.0)
    ax, of = axes[0, 0], dict(tuple(table.groupby("route")))
    lemma = of["lemma"]
    ax.fill_between(lemma.time, lemma["mean"] - 2 * lemma.sd, lemma["mean"] + 2 * lemma.sd, color=BLUE, alpha=0.2, lw=0)
    ax.plot(lemma.time, lemma["mean"], color=BLUE, label="Lemma 1, mean ± 2 sd")
    exact = of["linearised, by integration"]
    ax.errorbar(
        exact.time,
        exact["mean"],
        2 * exact.sd,
        fmt="o",
        ms=4,
        capsize=2,
        lw=1,
        color=BLACK,
        label="linearised network, integrated",
    )
    network = of["network, by integration"]
    ax.plot(network.time, network["mean"], "s", ms=4, mfc="none", color=GREEN, label="the network, integrated")
    printed = of["printed target"]
    ax.plot(printed.time, printed["mean"], color=VERMILION, ls=(0, (4, 2)), label="with y as printed")
    ax.plot(lemma.time, lemma.truth, ":", color=GREY, label="the true weight")
    ax.set(xlabel="observation", ylabel="posterior mean of the weight")
    legend_below(figure, ax, 2)
    return figure


def error_by_ratio(still: pd.DataFrame, drifting: pd.DataFrame, pairs: pd.DataFrame) -> Figure:
    """Error on task 1 against the ratio of task sizes, for one weight at rest, one that drifts, and two weights.

    Args:
        still: of ``analysis.weight_filter.one_weight`` without drift.
        drifting: the same with drift.
        pairs: of ``analysis.weight_filter.two_weights``, by ``model``.
    """
    figure, axes = card(2, 2, height=5.0, sharey=True)
    panels = [*axes[0], axes[1, 0]]
    sizes = sorted(still.num_first.unique())
    shades = plt.get_cmap("cividis")(np.linspace(0.85, 0.0, len(sizes)))
    for ax, table in zip(panels, (still, drifting), strict=False):
        for n, colour, width in zip(sizes, shades, np.linspace(6, 1.5, len(sizes)), strict=True):
            mine = table[(table.num_first == n) & (table.ratio >= 0.05)]
            ax.plot(mine.ratio, mine.error, color=colour, lw=width, label=f"{n} points of task 1")
    styles = ((VERMILION, "-"), (GREEN, "--"), (PURPLE, ":"), (BLUE, "-."))
    for (name, table), (colour, line) in zip(pairs.groupby("model", sort=False), styles, strict=False):
        mine = table[table.ratio >= 0.05]
        panels[2].plot(mine.ratio, mine.error, color=colour, ls=line, lw=2.2, label=name)
    for ax, title in zip(panels, ("one weight at rest", "one weight that drifts", "two weights at rest"), strict=True):
        ax.set(xscale="log", title=title, ylim=(-0.03, 1.03))
        ax.set_xticks([0.1, 1, 10], ["0.1", "1", "10"])
    for ax in axes[:, 0]:
        ax.set_ylabel("error on task 1")
    for ax in panels[1:]:
        ax.set_xlabel("task 2 / task 1 (points)")
    axes[1, 1].axis("off")
    for ax, place in ((panels[0], "upper left"), (panels[2], "lower left")):
        key = axes[1, 1].legend(*ax.get_legend_handles_labels(), loc=place, frameon=False)
        axes[1, 1].add_artist(key)
    return figure


def task_imbalance(scores: pd.DataFrame) -> Figure:
    """Networks: forgetting of task 1 and accuracy on task 2 against the ratio of task sizes, a row a design.

    Args:
        scores: of ``experiments.task_imbalance.by_design``.
    """
    designs, num_seeds = list(dict.fromkeys(scores.design)), scores.seed.nunique()
    figure, axes = card(len(designs), 2, height=7.4, sharex=True, sharey="col")
    there, ratios = set(scores.row), sorted(scores.ratio.unique())
    shown = [one for name in shown_in("task_imbalance") if (one := name.removeprefix("imbalance_")) in there]
    for (left, right), design in zip(axes, designs, strict=True):
        for place, row in enumerate(shown):
            name, colour, marker, _ = ROWS[f"imbalance_{row}"].style
            by = scores[(scores.design == design) & (scores.row == row)].groupby("ratio")
            for ax, measured, lowest in ((left, "forgetting", -100), (right, "task_2", 0)):
                mean = 100 * by[measured].mean()
                sd = 100 * by[measured].std() if num_seeds > 1 else 0 * mean
                ends = _within(mean, sd, lowest)
                ratio = mean.index * 1.06 ** (place - 1)
                ax.errorbar(ratio, mean, ends, marker=marker, ms=5, capsize=3, color=colour, label=name)
        left.axhline(0, color=GREY, ls="--", lw=1, label="nothing forgotten")
        left.set_title(design, loc="left")
        left.set_ylabel("forgetting (points)")
        right.set_ylabel("accuracy, task 2 (%)")
    for ax in axes[-1]:
        ax.set(xscale="log", xlabel="task 2 / task 1 (points)")
        ax.set_xticks(ratios, [f"{r:g}" for r in ratios])
        ax.minorticks_off()
    spread = f", mean ± sd of {num_seeds} seeds" if num_seeds > 1 else ", one seed"
    handles, labels = axes[0, 0].get_legend_handles_labels()
    labels = [label + spread if label != "nothing forgotten" else label for label in labels]
    figure.legend(handles, labels, loc="outside lower center", ncols=1, frameon=False)
    return figure


def drift_variance(table: pd.DataFrame) -> Figure:
    """Prior variance of a weight that drifts without data, by the printed and the corrected exponent.

    Args:
        table: ``drift`` of ``analysis.errata.run``.
    """
    figure, axes = card(height=3.5)
    ax = axes[0, 0]
    ax.plot(table.step, table.printed, marker="s", ms=4, color=VERMILION, label="as printed, $(1-h)^{-2}$")
    ax.plot(table.step, table.corrected, color=BLUE, label="corrected, $(1-h)^2$")
    ax.plot(table.step, table.simulated, "x", color=BLACK, label="simulated paths")
    ax.set(yscale="log", xlabel="steps without data", ylabel="variance of the weight")
    legend_below(figure, ax, 2)
    return figure


def complete_forgetting(single: Sequence[float], scores: Mapping[str, Sequence[float]], printed: Mapping) -> Figure:
    """Triangle mean and final accuracy of a learner that knows its last task only, with the paper's numbers.

    Args:
        single: accuracies on the task just learned, percent.
        scores: name of a score to its values at ``single``, percent.
        printed: name of a row of the paper to ``(accuracy just learned, value)``, percent.
    """
    figure, axes = card(height=3.8)
    ax = axes[0, 0]
    for (name, values), colour, line in zip(scores.items(), (BLUE, GREY), ("-", "--"), strict=False):
        ax.plot(single, values, color=colour, ls=line, label=name)
    for (name, (at, value)), marker in zip(printed.items(), ("o", "s", "D"), strict=False):
        ax.plot(at, value, marker, color=VERMILION, ms=7, label=f"printed: {name}, {value:.2f}")
    ax.set(xlabel="accuracy on the task just learned (%)", ylabel="score (%)", ylim=(15, 36))
    legend_below(figure, ax, 1)
    return figure
