"""VCL against a second implementation: one seed, float64, autograd of the whole objective, a loop over draws."""

import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from paper_lib import rng
from paper_lib.data.stream import Spec, make_stream
from paper_lib.methods import vcl
from paper_lib.methods.vcl import VCL

SEED, TASKS = 2, 2


def shapes(widths):
    return [shape for i, o in pairwise(widths) for shape in ((i, o), (1, o))]


def objective(mean, log_var, prior, x, y, noise, num_points):
    """Expected negative log-likelihood of a batch plus KL(q || prior) a point, by draws ``noise[draw][layer]``."""
    nll = 0.0
    for draw in noise:
        h = x
        for layer, e in enumerate(draw):
            w, b = mean[2 * layer : 2 * layer + 2]
            w_var, b_var = (v.exp() for v in log_var[2 * layer : 2 * layer + 2])
            if len(e) == len(w) + 1:  # of weights, the last row of biases
                h = h @ (w + w_var.sqrt() * e[:-1]) + b + b_var.sqrt() * e[-1:]
            else:  # of pre-activations
                h = h @ w + b + e[: len(x)] * (h.square() @ w_var + b_var + 1e-9).sqrt()
            h = h.relu() if layer < len(draw) - 1 else h
        nll = nll + F.cross_entropy(h, y) / len(noise)
    # expm1 keeps the gradient of a log variance exactly 0 at the prior, where Adam would blow rounding up.
    both = zip(mean, log_var, *prior, strict=True)
    kl = sum(0.5 * ((v - v0).expm1() - (v - v0) + (m - m0) ** 2 / v0.exp()).sum() for m, v, m0, v0 in both)
    return nll + kl / num_points


def fitted(method, start, prior, x, y, epochs, path):
    """Means and log variances after ``epochs`` passes from ``start``; without a prior, means of least training loss."""
    mean, log_var = ([p.clone().requires_grad_() for p in group] for group in start)
    optimiser = torch.optim.Adam(mean + (log_var if prior else []), lr=method.learning_rate)
    widths = [len(mean[0]), *(b.shape[1] for b in mean[1::2])]
    size = min(method.batch_size or len(x), len(x))
    rows = size if method.lrt_noise == "per_point" else 1
    weights = method.sampling == "weight"
    layers = [(i + 1, o) if weights else (rows, o) for i, o in pairwise(widths)]
    layers = [(method.num_samples, *shape) for shape in layers]
    for epoch in range(path[1], path[1] + epochs):
        order = torch.randperm(len(x), generator=rng.generator(SEED, "order", path[0], epoch))
        stream = rng.generator(SEED, "noise", path[0], epoch)
        batches = order.split(size)
        numbers = torch.empty(len(batches), sum(map(math.prod, layers))).normal_(generator=stream).double()
        for batch, line in zip(batches, numbers, strict=True):
            noise = [n.view(s) for n, s in zip(line.split([math.prod(s) for s in layers]), layers, strict=True)]
            if prior:
                loss = objective(mean, log_var, prior, x[batch], y[batch], list(zip(*noise, strict=True)), len(x))
            else:
                certain = [torch.full_like(v, -80.0) for v in log_var]
                silent = [[torch.zeros_like(n[0]) for n in noise]]
                loss = objective(mean, certain, (mean, certain), x[batch], y[batch], silent, len(x))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return [[p.detach() for p in group] for group in (mean, log_var)]


def plain(method, stream):
    """Posterior and predictive parameters, ``[means, log variances]``, after ``TASKS`` tasks."""
    spec, named = stream.spec, stream.spec.scenario == "task_incremental"
    shape = shapes((64, *method.hidden, spec.num_units))
    prior_log_var = math.log(method.prior_var)
    q = [[torch.full(s, value).double() for s in shape] for value in (0.0, prior_log_var)]

    def part(q, units):
        return [[*g[:-2], g[-2][:, units], g[-1][:, units]] for g in q]

    def whole(q, new, units):
        out = []
        for old, group in zip(q, new, strict=True):
            ends = [p.clone() for p in old[-2:]]
            for end, value in zip(ends, group[-2:], strict=True):
                end[:, units] = value
            out.append([*group[:-2], *ends])
        return out

    coresets, predictive = [], [q]
    for t, task in enumerate(stream.train[:TASKS]):
        units = list(spec.task_units[t]) if named else list(range(spec.num_units))
        x, y = task.x.flatten(1).double() / 255, torch.tensor([units.index(c) for c in task.y.tolist()])
        if method.coreset_selection == "k_centre":
            taken = [0]
            while len(taken) < method.coreset_per_task:
                taken.append(torch.cdist(x, x[taken]).min(1).values.argmax().item())
        else:
            taken = torch.randperm(len(x), generator=rng.generator(SEED, "memory", t))[: method.coreset_per_task]
        kept = torch.ones(len(x), dtype=torch.bool)
        kept[taken] = False
        coresets.append((x[taken], task.y[taken]))
        prior = part(q, units)
        fresh = [torch.full_like(v, method.init_log_var) for v in prior[1]]
        likelihood = method.likelihood_start and t == 0
        uniform = likelihood and method.likelihood_init == "uniform"
        address = ("init", t) if t else ("init",)
        draws, drawn = rng.generator(SEED, *address), []
        for layer, p in enumerate(prior[0]):
            new, bound = torch.empty(p.shape), len(prior[0][layer // 2 * 2]) ** -0.5  # one over the root of the fan-in
            if uniform:
                drawn.append(new.uniform_(-bound, bound, generator=draws))
            else:
                drawn.append(torch.nn.init.trunc_normal_(new, 0.0, 0.1, -0.2, 0.2, generator=draws))
        epoch, start = 0, prior
        if likelihood:
            start = fitted(method, (drawn, fresh), None, x, y, method.epochs, (t, epoch))
            start, epoch = [start[0], fresh], method.epochs
        elif t == 0 or method.restart:
            start = [drawn, fresh]
        elif named:
            start = [[*p[:-2], *n[-2:]] for p, n in zip(prior, (drawn, fresh), strict=True)]
        q = whole(q, fitted(method, start, prior, x[kept], y[kept], method.epochs, (t, epoch)), units)
        predictive, epoch = [q], epoch + method.epochs
        if not method.coreset_per_task:
            continue
        predictive = []
        for head in range(t + 1) if named else [t]:
            units = list(spec.task_units[head]) if named else units
            points, labels = coresets[head] if named else map(torch.cat, zip(*coresets, strict=True))
            labels = torch.tensor([units.index(c) for c in labels.tolist()])
            epochs = method.coreset_epochs or method.epochs
            refit = fitted(method, part(q, units), part(q, units), points, labels, epochs, (t, epoch))
            predictive.append(whole(q, refit, units))
            epoch += epochs
    return q, predictive


@pytest.fixture(autouse=True)
def float64(monkeypatch):
    # In float32 Adam would blow up the rounding of gradients that are almost 0.
    torch.set_default_dtype(torch.float64)
    monkeypatch.setattr(Spec, "scaler", lambda spec, device: lambda x: x / 255)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    ("scenario", "settings"),
    [
        ("class", {}),
        ("class", {"coreset_per_task": 20, "coreset_selection": "k_centre", "coreset_epochs": 3}),
        ("task", {"coreset_per_task": 20, "prior_var": 0.5}),
        ("task", {"lrt_noise": "shared", "restart": True, "coreset_per_task": 20}),
        ("task", {"batch_size": None, "likelihood_init": "truncated_normal"}),
        ("domain", {"sampling": "weight", "restart": True, "likelihood_start": False, "batch_size": None}),
    ],
)
def test_learning_and_refits_are_those_of_plain_training(scenario, settings, monkeypatch):
    monkeypatch.setattr(vcl, "UNITS_AT_ONCE", 2 * 100 * 9)  # a full batch comes in parts of a hundred points
    stream = make_stream("split_digits", f"{scenario}_incremental", scaling="unit")
    base = {"hidden": (9, 7), "epochs": 2, "batch_size": 64, "num_samples": 2, "learning_rate": 3e-3}
    method = VCL(**(base | settings))
    state = method.init(stream.spec, (5, SEED), "cpu")
    for task in stream.train[:TASKS]:
        state, *_ = method.learn(state, task)
    posterior, predictive = plain(method, stream)
    assert state.predictive.mean[0].shape[1] == len(predictive)
    for got, wanted in zip(state.posterior, posterior, strict=True):
        for a, b in zip(got, wanted, strict=True):
            torch.testing.assert_close(a[1].double(), b, rtol=0.0, atol=1e-8)
    for head, expected in enumerate(predictive):
        for got, wanted in zip(state.predictive, expected, strict=True):
            for a, b in zip(got, wanted, strict=True):
                torch.testing.assert_close(a[1, head].double(), b, rtol=0.0, atol=1e-8)
