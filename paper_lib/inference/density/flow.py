r"""Normalising flows as priors: RealNVP and a neural spline flow, from zuko (``pip install paper-lib[flows]``).

Weights are standardised, :math:`z = (\theta - m) / s`, and the flow carries :math:`z` to a standard normal. A neural
spline is the identity outside [-5, 5], so without this it would not see weights of other scales. A density is the
description of the network and its parameters as tensors, one more axis in front for the seeds, so a state can hold it
and a checkpoint can save it; zuko's modules are built from the description where they are needed.

RealNVP is the paper's: couplings on halves of the weights, scale and shift each an MLP with LeakyReLU, the scale's
output through tanh. The release reverses the weights between couplings; here the halves take turns, which is the same.
A coupling is zuko's, from data to noise :math:`x e^{s} + t`; the release has :math:`(x - t) e^{-s}`. There
:math:`|s| \le 1`, and here zuko's soft bound after the tanh makes it at most 0.87.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from paper_lib.checks import check_choices, within

BINS = 8
"""Pieces of a spline, zuko's default."""

LEAK = 0.01
"""Slope of LeakyReLU below zero, PyTorch's default."""

LOG_SLOPE = -math.log(1e-3)
"""Bound of a log scale, zuko's default: ``u`` becomes u / (1 + abs(u) / bound)."""


@dataclass(frozen=True)
class FlowSettings:
    """A flow and how it is trained.

    Attributes:
        kind: ``realnvp`` or ``spline``, a neural spline flow with couplings.
        num_couplings: layers that each change half of the weights.
        hidden: widths of the networks inside a coupling.
        learning_rate: of Adamax; the release has 0.1.
        halve_every: steps after which the learning rate is halved; None for never.
        batch_size: rows a step.
        epochs: most passes over the rows.
        patience: epochs without a better held-out likelihood before training stops, and the best epoch's parameters
            are kept; None to train for all epochs and keep the last, as the release does.
        standardise: by each weight's mean and standard deviation.
        holdout: ``chains`` holds out a quarter of the chains, ``rows`` a quarter of the rows.
        max_rows: draws are thinned evenly to at most so many.
    """

    kind: Literal["realnvp", "spline"] = "realnvp"
    num_couplings: int = 4
    hidden: tuple[int, ...] = (100, 100)
    learning_rate: float = 1e-3
    halve_every: int | None = None
    batch_size: int = 256
    epochs: int = 200
    patience: int | None = 10
    standardise: bool = True
    holdout: Literal["chains", "rows"] = "chains"
    max_rows: int = 16_000

    def __post_init__(self):
        check_choices(self)
        within("learning_rate", self.learning_rate, 0, above=True)
        for name in ("num_couplings", "halve_every", "batch_size", "epochs", "patience", "max_rows"):
            if getattr(self, name) is not None:
                within(name, getattr(self, name), 1)


def published_flow(**changes) -> FlowSettings:
    """A RealNVP trained as the release trains its own, with zuko's couplings. Source: Kessler et al. 2023, code."""
    settings = {
        "learning_rate": 0.1,
        "halve_every": 5000,
        "batch_size": 32,
        "patience": None,
        "standardise": False,
        "holdout": "rows",
    }
    return FlowSettings(**{**settings, **changes})


class Flow(NamedTuple):
    """A flow a seed.

    Attributes:
        settings: the network's description; not a tensor.
        loc: ``(seed, dim)``.
        scale: ``(seed, dim)``.
        params: of the network, each ``(seed, ...)``.
    """

    settings: FlowSettings
    loc: Tensor
    scale: Tensor
    params: tuple[Tensor, ...]

    def log_prob(self, theta: Tensor) -> Tensor:
        """Log density ``(seed, chain)`` float64 at ``theta`` ``(seed, chain, dim)``, computed in the flow's dtype."""
        log_prob = _log_prob(self.settings, self.params, self._standardised(theta))
        return log_prob.double() - self.scale.double().log().sum(-1)[:, None]

    def log_prob_and_grad(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Log density ``(seed, chain)`` float64 and its gradient: of a RealNVP by hand, of a spline by autograd."""
        if self.settings.kind == "realnvp":
            log_prob, noise, tape = _affine(self.settings, self.params, self._standardised(theta))
            slope = _affine_slope(self.settings, self.params, noise, tape) / self.scale[:, None]
            return log_prob.double() - self.scale.double().log().sum(-1)[:, None], slope.to(theta.dtype)
        with torch.inference_mode(False), torch.enable_grad():
            leaf = theta.detach().clone().requires_grad_()
            log_prob = self.log_prob(leaf)
            (grad,) = torch.autograd.grad(log_prob.sum(), leaf)
        return log_prob.detach(), grad

    def sample(self, num_draws: int, streams: Sequence[torch.Generator]) -> Tensor:
        """Independent draws ``(seed, draw, dim)``, from one generator a seed."""
        shape, dtype, device = (num_draws, self.loc.shape[-1]), self.loc.dtype, self.loc.device
        noise = torch.stack([torch.randn(shape, generator=g, dtype=dtype, device=g.device) for g in streams])
        network = _network(self.settings, shape[-1], dtype, device)
        with torch.no_grad():
            drawn = torch.vmap(partial(_call, network, inverse=True))(self.params, noise.to(device))
        return self.loc[:, None] + self.scale[:, None] * drawn

    def _standardised(self, theta: Tensor) -> Tensor:
        return (theta.to(self.loc.dtype) - self.loc[:, None]) / self.scale[:, None]

    def to(self, dtype: torch.dtype | None = None, device: str | torch.device | None = None) -> Flow:
        """The flow in another precision or elsewhere."""
        loc, scale, *params = (t.to(device=device, dtype=dtype or t.dtype) for t in (*self[1:3], *self.params))
        return Flow(self.settings, loc, scale, tuple(params))


def isotropic(settings: FlowSettings, num_seeds: int, dim: int, precision: float, dtype=torch.float64, device="cpu"):
    """A flow that is the normal of mean zero and covariance 1/precision: the prior of the first task."""
    _need_halves(dim)
    network = _network(settings, dim, dtype, torch.device(device))
    loc = torch.zeros((num_seeds, dim), dtype=dtype, device=device)
    params = [p.detach().clone() for p in network.parameters()]
    # Where the last layer of every network is zero, a coupling is the identity.
    last = {id(p) for coupling in network.couplings for net in coupling.nets for p in net[-1].parameters()}
    params = [p.zero_() if id(own) in last else p for p, own in zip(params, network.parameters(), strict=True)]
    stacked = tuple(p.expand(num_seeds, *p.shape).clone() for p in params)
    return Flow(settings, loc, torch.full_like(loc, 1 / math.sqrt(precision)), stacked)


def train(
    settings: FlowSettings,
    rows: Tensor,
    held_out: Tensor,
    streams: Sequence[torch.Generator],
    told: Callable[[float], None] = lambda share: None,
) -> tuple[Flow, dict[str, Tensor]]:
    """A flow a seed, by maximum likelihood, all seeds in one step; none sees the others.

    Args:
        settings: network and training.
        rows: ``(seed, n, dim)`` to train on.
        held_out: ``(seed, m, dim)`` to stop on.
        streams: of each seed, draws initial parameters and the order of rows.
        told: is called with the share of epochs that are over, after each; with 1 after the last, however early.

    Returns:
        The flow (computed in float32), and of each seed ``curve``, mean held-out log densities a row after each epoch
        until it stopped ``(seed, epoch)``, NaN after that; ``held_out``, the one of the epoch that is kept, and
        ``epochs``, how many that is, ``(seed,)``.
    """
    num_seeds, num_rows, dim = rows.shape
    _need_halves(dim)
    loc, scale = torch.zeros_like(rows[:, 0]), torch.ones_like(rows[:, 0])
    if settings.standardise:
        loc, scale = rows.mean(1), rows.std(1, correction=0)
        scale = torch.where(scale > 0, scale, 1e-3)
    loc, scale = loc.float(), scale.float()
    x, y = (((t.float() - loc[:, None]) / scale[:, None]) for t in (rows, held_out))
    log_scale = scale.double().log().sum(-1)
    fresh = [_build(settings, dim, int(torch.randint(2**31, (), generator=g))).parameters() for g in streams]
    params = [torch.stack(own).detach().to(rows.device).requires_grad_() for own in zip(*fresh, strict=True)]
    optimiser = torch.optim.Adamax(params, lr=settings.learning_rate)
    best, step = [p.detach().clone() for p in params], 0
    best_score = torch.full((num_seeds,), -math.inf, dtype=torch.float64)
    best_epoch, running = [0] * num_seeds, [True] * num_seeds
    curve = torch.full((num_seeds, settings.epochs), math.nan, dtype=torch.float64)
    seeds = torch.arange(num_seeds)[:, None]
    for epoch in range(1, settings.epochs + 1):
        order = torch.stack([torch.randperm(num_rows, generator=g) for g in streams])
        for index in order.split(settings.batch_size, 1):
            optimiser.zero_grad()
            (-_log_prob(settings, params, x[seeds, index]).mean(1).sum()).backward()
            optimiser.step()
            step += 1
            if settings.halve_every and step % settings.halve_every == 0:
                optimiser.param_groups[0]["lr"] /= 2
        with torch.no_grad():
            scores = _log_prob(settings, params, y).double().mean(1) - log_scale
        for seed in range(num_seeds):
            if not running[seed]:
                continue
            score = float(scores[seed])
            if not math.isfinite(score):
                warnings.warn(
                    f"the flow's held-out likelihood is {score} after epoch {epoch} with learning_rate="
                    f"{settings.learning_rate:g}; the parameters of epoch {best_epoch[seed]} are kept",
                    stacklevel=3,
                )
                running[seed] = False
                continue
            curve[seed, epoch - 1] = score
            if settings.patience is None or score > best_score[seed]:
                best_score[seed], best_epoch[seed] = score, epoch
                for kept, p in zip(best, params, strict=True):
                    kept[seed] = p.detach()[seed]
            elif epoch - best_epoch[seed] >= settings.patience:
                running[seed] = False
        told(epoch / settings.epochs if any(running) else 1.0)
        if not any(running):
            break
    flow = Flow(settings, loc, scale, tuple(best))
    held = torch.where(best_score.isfinite(), best_score, math.nan)
    return flow, {"curve": curve[:, :epoch], "epochs": torch.tensor(best_epoch), "held_out": held}


def _log_prob(settings: FlowSettings, params: Sequence[Tensor], x: Tensor) -> Tensor:
    """Log density ``(seed, row)`` of standardised weights ``x`` ``(seed, row, dim)``."""
    if settings.kind == "realnvp":
        return _affine(settings, params, x)[0]
    return torch.vmap(partial(_call, _network(settings, x.shape[-1], x.dtype, x.device)))(params, x)


def _affine(settings: FlowSettings, params: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Tensor, list[tuple]]:
    r"""Log density of a RealNVP, its noise, and what its gradient needs, all seeds in each product of matrices.

    A coupling moves half of the weights to :math:`m e^{s} + t`, where :math:`t` and :math:`s` are functions of the
    other half, and its log determinant is the sum of :math:`s`.
    """
    nets = _nets(settings, params)
    log_prob, tape = -0.5 * x.shape[-1] * math.log(2 * math.pi), []
    for layer in range(settings.num_couplings):
        kept, moved = _halves(x, layer)
        shift, shift_tape = _forwards(nets[2 * layer], kept)
        raw, scale_tape = _forwards(nets[2 * layer + 1], kept)
        squashed = raw.tanh()
        bend = 1 + squashed.abs() / LOG_SLOPE
        log_scale = squashed / bend
        moved = moved * log_scale.exp()
        tape.append((shift_tape, scale_tape, moved, squashed, bend, log_scale))
        x = _whole(kept, moved + shift, layer)
        log_prob = log_prob + log_scale.sum(-1)
    return log_prob - 0.5 * x.square().sum(-1), x, tape


def _affine_slope(settings: FlowSettings, params: Sequence[Tensor], noise: Tensor, tape: Sequence[tuple]) -> Tensor:
    """Gradient of a RealNVP's log density, backwards through ``_affine``: as many products as forwards.

    Recorded operations cost a sampler more than the products that they stand for.
    """
    nets, slope = _nets(settings, params), -noise
    for layer, (shift_tape, scale_tape, moved, squashed, bend, log_scale) in reversed(list(enumerate(tape))):
        by_kept, by_moved = _halves(slope, layer)
        by_shift = _backwards(nets[2 * layer], shift_tape, by_moved)
        by_raw = (by_moved * moved + 1) * (1 - squashed.square()) / bend.square()
        by_scale = _backwards(nets[2 * layer + 1], scale_tape, by_raw)
        slope = _whole(by_kept + by_shift + by_scale, by_moved * log_scale.exp(), layer)
    return slope


def _nets(settings: FlowSettings, params: Sequence[Tensor]) -> list[list[tuple[Tensor, Tensor]]]:
    """Weights and biases by layer of the networks of each coupling, first of its shift, then of its scale."""
    layers, depth = list(zip(params[::2], params[1::2], strict=True)), len(settings.hidden) + 1
    return [layers[i : i + depth] for i in range(0, len(layers), depth)]


def _halves(x: Tensor, layer: int) -> tuple[Tensor, Tensor]:
    """The half that a coupling keeps, which is the last one in every second coupling, and the half that it moves."""
    first, last = x.tensor_split((x.shape[-1] // 2,), -1)
    return (first, last) if layer % 2 == 0 else (last, first)


def _whole(kept: Tensor, moved: Tensor, layer: int) -> Tensor:
    """The inverse of ``_halves``."""
    return torch.cat((kept, moved) if layer % 2 == 0 else (moved, kept), -1)


def _forwards(layers: Sequence[tuple[Tensor, Tensor]], x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Outputs of a network of each seed, and the pre-activations of its hidden layers."""
    before = []
    for weight, bias in layers:
        x = torch.baddbmm(bias[:, None], F.leaky_relu(x) if before else x, weight.mT)
        before.append(x)
    return x, before[:-1]


def _backwards(layers: Sequence[tuple[Tensor, Tensor]], before: Sequence[Tensor], slope: Tensor) -> Tensor:
    """The slope in a network's inputs, from that in its outputs."""
    for (weight, _), x in zip(reversed(layers[1:]), reversed(before), strict=True):
        slope = torch.ops.aten.leaky_relu_backward(torch.bmm(slope, weight), x, LEAK, False)
    return torch.bmm(slope, layers[0][0])


class _Coupling(nn.Module):
    """One half of the weights transformed, each by a function of one variable that networks of the other half choose.

    zuko's own coupling finds its halves by a search, which a CUDA graph cannot hold, and has one network where the
    release has two; hence this one around zuko's networks and functions.
    """

    def __init__(self, nets: Sequence[nn.Module], univariate: Callable[..., Any], layer: int):
        super().__init__()
        self.nets = nn.ModuleList(nets)
        self.univariate, self.layer = univariate, layer

    def forward(self, x: Tensor, inverse: bool = False) -> tuple[Tensor, Tensor | None]:
        """Weights after the coupling, and its log determinant unless it is the inverse that is asked for."""
        kept, moved = _halves(x, self.layer)
        function = self.univariate(*(net(kept) for net in self.nets))
        moved, log_det = (function.inv(moved), None) if inverse else function.call_and_ladj(moved)
        return _whole(kept, moved, self.layer), None if inverse else log_det.sum(-1)


class _Network(nn.Module):
    """Log density of standardised weights, or weights from noise: a module, so that its parameters can be passed in."""

    def __init__(self, couplings: Sequence[_Coupling]):
        super().__init__()
        self.couplings = nn.ModuleList(couplings)

    def forward(self, x: Tensor, inverse: bool = False) -> Tensor:
        if inverse:
            for coupling in reversed(self.couplings):
                x, _ = coupling(x, inverse)
            return x
        log_det = x.new_zeros(x.shape[:-1])
        for coupling in self.couplings:
            x, more = coupling(x)
            log_det = log_det + more
        return log_det - 0.5 * (x.square() + math.log(2 * math.pi)).sum(-1)


def _build(settings: FlowSettings, dim: int, seed: int) -> _Network:
    try:
        from zuko.nn import MLP
        from zuko.transforms import MonotonicAffineTransform, MonotonicRQSTransform
    except ImportError as error:
        raise ImportError(f"kind={settings.kind!r} needs zuko: pip install 'paper-lib[flows]'") from error

    def affine(shift, scale):
        return MonotonicAffineTransform(shift, scale.tanh())

    def spline(outputs):
        return MonotonicRQSTransform(*outputs.unflatten(-1, (-1, 3 * BINS - 1)).split((BINS, BINS, BINS - 1), -1))

    univariate, num_nets, width = (affine, 2, 1) if settings.kind == "realnvp" else (spline, 1, 3 * BINS - 1)
    couplings = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for layer in range(settings.num_couplings):
            num_kept = dim // 2 if layer % 2 == 0 else dim - dim // 2
            sizes = num_kept, (dim - num_kept) * width
            nets = [MLP(*sizes, settings.hidden, nn.LeakyReLU) for _ in range(num_nets)]
            couplings.append(_Coupling(nets, univariate, layer))
    return _Network(couplings)


@lru_cache(maxsize=8)
def _network(settings: FlowSettings, dim: int, dtype: torch.dtype, device: torch.device) -> _Network:
    """A network to pass parameters to; its own are never used."""
    with torch.inference_mode(False):
        return _build(settings, dim, 0).to(dtype=dtype, device=device)


def _call(network: _Network, params: Sequence[Tensor], x: Tensor, inverse: bool = False) -> Tensor:
    names = [name for name, _ in network.named_parameters()]
    return functional_call(network, dict(zip(names, params, strict=True)), (x, inverse))


def _need_halves(dim: int) -> None:
    if dim < 2:
        raise ValueError(f"a flow couples two halves of the weights, and there is {dim} weight; give at least 2")
