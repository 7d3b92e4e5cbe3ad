"""Schematics in one style, drawn by code: nodes, plates, arrows and boxes on a white card without axes.

White nodes are latent, grey ones observed, small black squares fixed parameters. Each function returns a Figure.
Symbols are the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Ellipse, FancyArrowPatch, FancyBboxPatch, Rectangle
from numpy.typing import NDArray

from paper_lib.plots import TASK_COLOURS, card
from paper_lib.rows import BLACK, BLUE, GREEN, GREY, ORANGE, SKY, VERMILION

OBSERVED = "#D9D9D9"
RADIUS = 0.42


def canvas(width: float, height: float, x_range: tuple[float, float], y_range: tuple[float, float]) -> tuple:
    """A figure and its only axes, without frame, with one unit the same length in both directions."""
    figure, axes = card(1, 1, width, height)
    ax = axes[0, 0]
    blank(ax, x_range, y_range)
    return figure, ax


def blank(ax: Axes, x_range: tuple[float, float], y_range: tuple[float, float]) -> None:
    """Axes to draw on freely."""
    ax.set(xlim=x_range, ylim=y_range, aspect="equal")
    ax.axis("off")


def node(ax: Axes, at: tuple[float, float], label: str, observed: bool = False, radius: float = RADIUS) -> None:
    """A random variable."""
    face = OBSERVED if observed else "white"
    ax.add_patch(Circle(at, radius, facecolor=face, edgecolor=BLACK, lw=1.3, zorder=3))
    ax.text(*at, label, ha="center", va="center", fontsize=12, zorder=4)


def fixed(ax: Axes, at: tuple[float, float], label: str, side: tuple[float, float]) -> None:
    """A parameter that is not random, its label at an offset ``side``."""
    ax.add_patch(Rectangle((at[0] - 0.08, at[1] - 0.08), 0.16, 0.16, facecolor=BLACK, zorder=3))
    ax.text(at[0] + side[0], at[1] + side[1], label, ha="center", va="center", fontsize=12)


def plate(ax: Axes, low: tuple[float, float], high: tuple[float, float], label: str) -> None:
    """What is repeated, with how often in its lower right corner."""
    size = high[0] - low[0], high[1] - low[1]
    ax.add_patch(
        FancyBboxPatch(low, *size, boxstyle="round,pad=0,rounding_size=0.15", facecolor="none", edgecolor=GREY, lw=1.2)
    )
    ax.text(high[0] - 0.12, low[1] + 0.1, label, ha="right", va="bottom", fontsize=10, color="#444444")


def arrow(
    ax: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    gaps: tuple[float, float] = (RADIUS, RADIUS),
    bend: float = 0.0,
    colour: str = BLACK,
) -> None:
    """An arrow between two centres that stops ``gaps`` short of them; ``bend`` is its height over its length."""
    start, end = np.asarray(start, float), np.asarray(end, float)
    along = (end - start) / np.hypot(*(end - start))
    turn = np.arctan(2 * bend)  # a bent arrow leaves and arrives at this angle to the straight line
    leave, arrive = (_turned(along, angle) for angle in (-turn, turn))
    ax.add_patch(
        FancyArrowPatch(
            start + gaps[0] * leave,
            end - gaps[1] * arrive,
            connectionstyle=f"arc3,rad={bend}",
            arrowstyle="-|>",
            mutation_scale=13,
            shrinkA=0,
            shrinkB=1,
            color=colour,
            lw=1.3,
            zorder=2,
        )
    )


def key(ax: Axes, x: float, y: float, names: Sequence[str], step: float) -> None:
    """A legend of node kinds, ``latent``, ``observed`` or ``fixed``, each followed by what it is, in a row."""
    for i, name in enumerate(names):
        at = (x + i * step, y)
        if name == "fixed":
            fixed(ax, at, "", (0, 0))
        else:
            node(ax, at, "", observed=name == "observed", radius=0.14)
        ax.text(at[0] + 0.28, y, name, va="center", fontsize=10)


def filtering_model() -> Figure:
    """Figures 5 and A9: optimal weights drift from step to step, and each step shows one output for its input."""
    figure, ax = canvas(5.0, 2.8, (-1.6, 9.3), (-3.2, 2.3))
    steps = ("t-2", "t-1", "t", "t+1")
    for i, step in enumerate(steps):
        x = 2.0 * i + 0.9
        node(ax, (x, 0), rf"$\theta^*_{{{step}}}$", radius=0.56)
        node(ax, (x, 1.7), f"$y_{{{step}}}$", observed=True, radius=0.56)
        node(ax, (x, -1.7), f"$x_{{{step}}}$", observed=True, radius=0.56)
        arrow(ax, (x, 0), (x, 1.7), (0.56, 0.56))
        arrow(ax, (x, -1.7), (x, 1.7), (0.56, 0.56), bend=0.42)
        arrow(ax, (x - 2, 0), (x, 0), (0.7 if i == 0 else 0.56, 0.56))
    end = 2.0 * len(steps) + 0.9
    arrow(ax, (end - 2, 0), (end, 0), (0.56, 0.7))
    for x in (-1.1, end):
        ax.text(x, 0, r"$\cdots$", ha="center", va="center", fontsize=14)
    for y, what in ((1.7, "outputs"), (0, ""), (-1.7, "inputs")):
        ax.text(-0.9, y, what, ha="center", va="center", fontsize=10)
    ax.text(-0.8, 0.62, "optimal\nweights", ha="center", va="center", fontsize=10)
    ax.text(end - 0.2, 0.45, "drift", ha="center", va="center", fontsize=10)
    key(ax, 2.6, -2.85, ("latent", "observed"), 2.2)
    return figure


def protocl_model() -> Figure:
    """Figure 6: ProtoCL's generative model beside its embedding space."""
    figure, axes = card(2, 1, height=8.2)
    left, right = axes[:, 0]
    blank(left, (-1.5, 5.3), (-3.5, 4.2))
    node(left, (0, 1.9), "$p$")
    node(left, (0, 0), "$y$", observed=True)
    node(left, (3.5, 1.9), r"$\bar{z}_j$")
    node(left, (1.75, 0), "$z$", observed=True)
    node(left, (1.75, -1.7), "$x$", observed=True)
    fixed(left, (-1.15, 1.9), r"$\alpha$", (0, 0.4))
    fixed(left, (3.1, 3.0), r"$\mu_j$", (-0.42, 0.05))
    fixed(left, (3.9, 3.0), r"$\Lambda_j$", (0.45, 0.05))
    fixed(left, (3.5, 0), r"$\Sigma_\epsilon$", (0.45, 0))
    fixed(left, (3.5, -1.7), r"$w$", (0.4, 0))
    for start, end, gaps in (
        ((-1.15, 1.9), (0, 1.9), (0.1, RADIUS)),
        ((0, 1.9), (0, 0), (RADIUS, RADIUS)),
        ((0, 0), (1.75, 0), (RADIUS, RADIUS)),
        ((3.5, 1.9), (1.75, 0), (RADIUS, RADIUS)),
        ((3.1, 3.0), (3.5, 1.9), (0.1, RADIUS)),
        ((3.9, 3.0), (3.5, 1.9), (0.1, RADIUS)),
        ((3.5, 0), (1.75, 0), (0.1, RADIUS)),
    ):
        arrow(left, start, end, gaps)
    encoder = BLUE
    arrow(left, (1.75, -1.7), (1.75, 0), colour=encoder)
    left.plot([3.5, 1.8], [-1.7, -0.85], color=encoder, lw=1.3, ls=":", zorder=1)
    left.text(1.6, -0.86, "encoder\n$z = f(x; w)$", ha="right", va="center", fontsize=10, color=encoder)
    plate(left, (-0.75, -2.65), (2.45, 0.65), "points $i$")
    plate(left, (2.3, 0.85), (4.95, 3.45), "classes $j$")
    key(left, -1.2, -3.2, ("latent", "observed", "fixed"), 2.1)
    left.text(1.75, 4.0, "generative model", ha="center", va="center", weight="bold")

    blank(right, (-3.4, 3.4), (-4.9, 3.6))
    rng = np.random.default_rng(0)
    test = np.array([0.35, 0.35])
    prototypes = (((-1.8, 1.5), 0.30, 40), ((1.7, 1.6), 0.42, 14), ((0.1, -1.6), 0.62, 5))
    for label, ((mean, uncertainty, n), colour, marker) in enumerate(
        zip(prototypes, (BLUE, VERMILION, GREEN), ("o", "s", "^"), strict=True)
    ):
        points = np.asarray(mean) + 0.48 * rng.standard_normal((n, 2))
        right.plot(*points.T, marker, color=colour, ms=3.5, alpha=0.55)
        right.add_patch(Ellipse(mean, 4 * 0.48, 4 * 0.48, facecolor=colour, alpha=0.12, lw=0))
        right.add_patch(Ellipse(mean, 2 * uncertainty, 2 * uncertainty, facecolor="none", edgecolor=colour, lw=1.6))
        right.plot(*mean, "x", color=BLACK, ms=7, mew=2)
        beside = mean[1] + (1.1 if mean[1] > 0 else -1.4)  # on the side away from the test point
        right.text(mean[0], beside, f"class {label}: {n} points", ha="center", fontsize=10, color=colour)
        right.plot(*zip(mean, test, strict=True), color=GREY, ls="--", lw=1, zorder=0)
    right.plot(*test, "*", color=ORANGE, mec=BLACK, ms=15)
    right.text(test[0] + 0.3, test[1] - 0.1, "$z^*$, a test point", fontsize=10, va="top")
    right.text(
        0,
        -4.75,
        "$\\times$ mean $\\mu_j$ of a prototype,  ring: its uncertainty $\\Lambda_j^{-1}$,\n"
        "shade: spread $\\Sigma_\\epsilon$ of points about it; the nearest\n"
        "class wins, in units of ring and shade together",
        ha="center",
        va="bottom",
        fontsize=10,
    )
    right.text(0, 3.4, "embedding space after some points", ha="center", va="center", weight="bold")
    return figure


def scenarios(
    images: NDArray,
    names: Sequence[Sequence[str]],
    labels: Sequence[Sequence[Sequence[int]]],
    titles: Sequence[str],
    identified: Sequence[bool],
) -> Figure:
    """Figure A1: example images of two tasks, and what each scenario asks about them.

    Args:
        images: ``(task, class, example, height, width)``, grey, or with a last axis of 3 colours.
        names: of the classes ``(task, class)``.
        labels: what is to be predicted ``(scenario, task, class)``.
        titles: name of each scenario.
        identified: whether each scenario names the task at test time.
    """
    num_tasks, num_classes, num_examples = images.shape[:3]
    unit, left, width = 0.272, num_examples + 0.25, 3.75  # inches a unit; a unit is the side of an image
    right, bottom, top_edge = left + width * len(titles), -num_tasks * num_classes, 4.0
    figure, ax = canvas(unit * (right + 3.9), unit * (top_edge - bottom + 0.1), (0, 1), (0, 1))
    for task in range(num_tasks):
        top = -task * num_classes
        colour = TASK_COLOURS[task]
        low = (-3.9, top - num_classes + 0.04)
        ax.add_patch(Rectangle(low, right - low[0], num_classes - 0.08, facecolor=colour, alpha=0.1, lw=0))
        middle = top - num_classes / 2
        ax.text(-3.45, middle, f"task {task + 1}", ha="center", va="center", rotation=90, color=colour, weight="bold")
        for row, name in enumerate(names[task]):
            ax.text(-0.1, top - row - 0.5, name, ha="right", va="center")
            for example in range(num_examples):
                extent = (example + 0.05, example + 0.95, top - row - 0.95, top - row - 0.05)
                ax.imshow(images[task, row, example], extent=extent, cmap="gray", interpolation="nearest", zorder=3)
        for column, named in enumerate(identified):
            x = left + width * column
            for row, y in enumerate(labels[column][task]):
                ax.text(x + 2.1, top - row - 0.5, f"$y = {y}$", va="center")
            ax.text(x + 0.3, middle, f"$t = {task + 1 if named else '?'}$", va="center")
    for column, (title, named) in enumerate(zip(titles, identified, strict=True)):
        x = left + width * column
        choices = ", ".join(map(str, sorted({y for task in labels[column] for y in task})))
        ax.text(x + width / 2, 3.2, title.removesuffix("-incremental"), ha="center", va="center", weight="bold")
        ax.text(x + width / 2, 1.75, "from $x$ and $t$" if named else "from $x$ alone", ha="center", va="center")
        ax.text(x + width / 2, 0.85, rf"$y \in \{{{choices}\}}$", ha="center", va="center")
        ax.plot([x] * 2, [top_edge, bottom], color="white", lw=4, zorder=2)
    ax.text(num_examples / 2, 0.5, "images $x$", ha="center", va="center")
    blank(ax, (-3.9, right), (bottom - 0.1, top_edge))  # last, as imshow sets limits of its own
    return figure


def hmc_propagation(num_tasks: int = 3) -> Figure:
    """Figure 2: sample the posterior under the current prior, fit a density to the draws, make it the next prior.

    The example has two weights and is computed: task t observes a noisy product or sum of them, draws come from the
    posterior on a grid (so they are exact where HMC's would be approximate), the density is a mixture of Gaussians.

    Args:
        num_tasks: rows, from the prior on the left to draws from the posterior on the right.
    """
    from sklearn.mixture import GaussianMixture

    side = np.linspace(-3, 3, 121)
    grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    likelihoods = (
        lambda w: -0.5 * ((w[:, 0] * w[:, 1] - 1.0) / 0.35) ** 2,
        lambda w: -0.5 * ((np.abs(w).sum(1) - 2.4) / 0.3) ** 2,
        lambda w: -0.5 * ((w[:, 0] - w[:, 1] - 0.8) / 0.4) ** 2,
    )
    if not 1 <= num_tasks <= len(likelihoods):
        raise ValueError(f"num_tasks={num_tasks} must be 1 to {len(likelihoods)}")
    across, down = 11.5, -8.6  # from a panel's centre to the next one's, in units of a weight
    x_range, y_range = (-3.9, across + 3.3), (down * (num_tasks - 1) - 4.0, 4.4)
    figure, ax = canvas(5.0, 5.0 * (y_range[1] - y_range[0]) / (x_range[1] - x_range[0]), x_range, y_range)
    rng = np.random.default_rng(0)
    blues = LinearSegmentedColormap.from_list("prior", ["white", SKY, BLUE])
    log_prior = -0.5 * (grid**2).sum(1)
    for task in range(num_tasks):
        y = down * task
        density = np.exp(log_prior - log_prior.max()).reshape(len(side), -1)
        ax.contourf(side, y + side, density, levels=[0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0], cmap=blues)
        log_posterior = log_prior + likelihoods[task](grid)
        weight = np.exp(log_posterior - log_posterior.max())
        draws = grid[rng.choice(len(grid), 400, p=weight / weight.sum())]
        shown = draws + rng.uniform(-0.025, 0.025, draws.shape) + (across, y)
        ax.plot(*shown.T, ".", ms=3, color=VERMILION)
        log_prior = GaussianMixture(4, reg_covar=1e-3, random_state=0).fit(draws).score_samples(grid)

        name = r"p(\theta)" if task == 0 else rf"\hat{{p}}_{task}(\theta)"
        data = r"\mathcal{D}_1" if task == 0 else rf"\mathcal{{D}}_{{1:{task + 1}}}"
        for x, title in ((0, f"prior of task {task + 1}, ${name}$"), (across, rf"draws, $p(\theta \,|\, {data})$")):
            ax.add_patch(Rectangle((x - 3, y - 3), 6, 6, facecolor="none", edgecolor=GREY, lw=1))
            ax.text(x, y + 3.3, title, ha="center", va="bottom")
        arrow(ax, (3.3, y), (across - 3.3, y), (0, 0))
        ax.text(across / 2, y + 0.5, "HMC with\n" + rf"$\mathcal{{D}}_{task + 1}$", ha="center", va="bottom")
        if task + 1 < num_tasks:
            arrow(ax, (across - 3.2, y - 3.2), (3.2, y + down + 3.2), (0, 0))
            ax.text(across / 2, y - 1.0, "fit a\ndensity", ha="center", va="top")
    ax.text(0, y - 3.3, r"weight $\theta_1$", ha="center", va="top")
    ax.text(-3.3, y, r"weight $\theta_2$", ha="right", va="center", rotation=90)
    blank(ax, x_range, y_range)
    return figure


def _turned(direction: NDArray, angle: float) -> NDArray:
    """A direction ``(2,)`` turned counter-clockwise by an angle in radians."""
    c, s = np.cos(angle), np.sin(angle)
    return np.array([c * direction[0] - s * direction[1], s * direction[0] + c * direction[1]])
