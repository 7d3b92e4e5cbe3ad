"""Stacked networks against PyTorch's own modules, one a seed, with the same weights."""

import math

import pytest
import torch
from torch import nn

from paper_lib import networks, rng
from paper_lib.networks import MLP, CifarNet

SEEDS = (0, 5, 2)


class Masked(nn.Module):
    """Dropout of given units: dropped ones are 0, kept ones are divided by the chance of being kept."""

    def __init__(self, mask, rate):
        super().__init__()
        self.kept, self.rate = mask > 0, rate

    def forward(self, h):
        return torch.where(self.kept, h / (1 - self.rate), torch.zeros_like(h))


def linear(weight, bias):
    layer = nn.Linear(*weight.shape)
    layer.weight = nn.Parameter(weight.detach().T.clone())
    layer.bias = nn.Parameter(bias.detach()[0].clone())
    return layer


def convolution(weight, bias, padding):
    layer = nn.Conv2d(weight.shape[1], weight.shape[0], 3, padding=padding)
    layer.weight, layer.bias = nn.Parameter(weight.detach().clone()), nn.Parameter(bias.detach().clone())
    return layer


def mlp_of(network, params, row, masks):
    masks, rates = list(masks), (*network.dropout, *[0.0] * 9)
    num_layers = len(network.hidden) + 1
    modules = [nn.Flatten()]
    for i in range(num_layers):
        modules.append(linear(params[2 * i][row], params[2 * i + 1][row]))
        if i < num_layers - 1:
            modules.append(nn.ReLU())
        if masks and rates[i] > 0:
            modules.append(Masked(masks.pop(0)[row], rates[i]))
    return nn.Sequential(*modules)


def cifar_net_of(network, params, row, masks):
    p = [t[row] for t in params]
    drop = [Masked(m[row], r) for m, r in zip(masks, network.dropout, strict=True)] if masks else [nn.Identity()] * 3

    def block(i):
        first, second = convolution(p[i], p[i + 1], "same"), convolution(p[i + 2], p[i + 3], 0)
        return first, nn.ReLU(), second, nn.ReLU(), nn.MaxPool2d(2)

    return nn.Sequential(
        *block(0),
        drop[0],
        *block(4),
        drop[1],
        nn.Flatten(),
        linear(p[8], p[9]),
        nn.ReLU(),
        drop[2],
        linear(p[10], p[11]),
    )


CASES = {
    "mlp": (MLP((1, 4, 3), (6, 5), 3), mlp_of, (1, 4, 3), 7),
    "mlp with dropout": (MLP((12,), (6, 5), 3, (0.5, 0.2)), mlp_of, (12,), 7),
    "mlp with dropout of its output": (MLP((12,), (6,), 3, (0.5, 0.5)), mlp_of, (12,), 7),
    "linear": (MLP((4,), (), 2), mlp_of, (4,), 3),
    "cifarnet": (CifarNet(4), cifar_net_of, (3, 32, 32), 2),
}


@pytest.mark.parametrize("own_inputs", [False, True], ids=["shared inputs", "inputs of each seed"])
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("case", CASES)
def test_outputs_and_gradients_are_those_of_one_module_a_seed(case, training, own_inputs):
    network, module_of, shape, n = CASES[case]
    params = tuple(p.requires_grad_() for p in network.init(SEEDS, "cpu", torch.float64))
    x = torch.randn(*([len(SEEDS)] if own_inputs else []), n, *shape, dtype=torch.float64, generator=rng.generator(0))
    masks = [m[0] for m in network.draw_masks(rng.generators(SEEDS, "dropout", 0, 0), 1, n)] if training else []
    out = network(params, x, masks)
    coefficients = torch.randn(out.shape, dtype=torch.float64, generator=rng.generator(1))
    (out * coefficients).sum().backward()
    rtol = 1e-6 if masks else 1e-12  # masks are float32
    for row in range(len(SEEDS)):
        module = module_of(network, params, row, masks)
        expected = module(x[row] if own_inputs else x)
        torch.testing.assert_close(out[row], expected, rtol=rtol, atol=rtol)
        (expected * coefficients[row]).sum().backward()
        theirs = list(module.parameters())
        assert len(theirs) == len(params)
        for ours, other in zip(params, theirs, strict=True):
            gradient = other.grad.T if other.dim() == 2 else other.grad
            torch.testing.assert_close(ours.grad[row], gradient.reshape(ours[row].shape), rtol=100 * rtol, atol=rtol)


def test_bfloat16_is_float32_but_for_rounding_and_keeps_parameters_and_outputs():
    exact, rounded = CifarNet(4), CifarNet(4, precision="bfloat16")
    x = torch.randn(3, 3, 32, 32, generator=rng.generator(0))
    masks = [m[0] for m in exact.draw_masks(rng.generators(SEEDS, "dropout", 0, 0), 1, 3)]
    found = []
    for network in (exact, rounded):
        params = tuple(p.requires_grad_() for p in exact.init(SEEDS, "cpu"))
        out = network(params, x, masks)
        out.square().sum().backward()
        assert out.dtype == params[0].grad.dtype == torch.float32
        found.append((out, *(p.grad for p in params)))
    (one, *grads), (other, *others) = found
    assert 0 < (one - other).norm() < 0.02 * one.norm()
    # rounding makes other units the largest of their four, so gradients differ more than outputs; with 3, 64 and 256
    # images their cosine was at least 0.987 in every layer
    for a, b in zip(grads, others, strict=True):
        assert 0 < (a - b).norm() < 0.2 * a.norm() and torch.cosine_similarity(a.flatten(), b.flatten(), 0) > 0.98
    tapes = [[], []]
    with torch.no_grad():
        for network, tape in zip((exact, rounded), tapes, strict=True):
            network(params, x, tape=tape)
    assert all(torch.equal(h, g) for (_, h), (_, g) in zip(*tapes, strict=True))  # what is linearised stays exact
    with pytest.raises(ValueError, match=r"precision='bf16' is not one of auto, float32, bfloat16"):
        CifarNet(4, precision="bf16")(params, x)


def test_the_precision_is_bfloat16_only_where_a_cpu_has_instructions_for_it(monkeypatch):
    names = {"AVX512-BF16": "avx512_bf16", "AMX": "amx_tile"}
    for there in ((), ("AVX512-BF16",), ("AMX",), ("AVX512-BF16", "AMX")):
        for kind, name in names.items():
            monkeypatch.setattr(torch.cpu, f"_is_{name}_supported", lambda has=kind in there: has, raising=False)
        assert networks.bfloat16_instructions() == there
        assert networks.precision("auto", "cpu") == (torch.bfloat16 if there else torch.float32)
    assert networks.precision("auto", "cuda:0") == networks.precision("float32", "cpu") == torch.float32


def test_pieces_of_a_prediction_make_up_the_whole(monkeypatch):
    network, x = CifarNet(4), torch.randn(7, 3, 32, 32, dtype=torch.float64, generator=rng.generator(0))
    params = network.init(SEEDS, "cpu", torch.float64)
    masks = [m[0] for m in network.draw_masks(rng.generators(SEEDS, "dropout", 0, 0), 1, 7)]
    whole = network(params, x, masks)
    monkeypatch.setattr(networks, "IMAGES_AT_ONCE", 3)
    with torch.no_grad():
        torch.testing.assert_close(network(params, x, masks), whole)
        assert network.features(params, x).shape == (3, 7, 512)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_masks_keep_units_at_their_rate_independently(rate):
    network = MLP((4,), (40, 10), 2, (rate, 0.0, rate))
    masks = network.draw_masks(rng.generators(SEEDS, "dropout", 0, 0), 50, 20)
    assert [tuple(m.shape) for m in masks] == [(50, 3, 20, 40), (50, 3, 20, 2)]  # none where the rate is 0
    kept = (masks[0] > 0).double()
    torch.testing.assert_close(masks[0].unique(), torch.tensor([0.0, 1 / (1 - rate)]))
    sd = math.sqrt(rate * (1 - rate) / kept[:, 0].numel())
    assert all(abs(kept[:, r].mean() - (1 - rate)) < 4 * sd for r in range(3))
    # units, points and steps move independently: the counts over an axis have the binomial's variance
    for axis in (0, 2, 3):
        count = kept.sum(axis)
        ratio = count.var() / (kept.shape[axis] * rate * (1 - rate))
        assert abs(ratio - 1) < 5 * math.sqrt(2 / count.numel())
    assert not torch.equal(masks[0][:, 0], masks[0][:, 1])
    alone = network.draw_masks(rng.generators(SEEDS[1:2], "dropout", 0, 0), 50, 20)
    assert all(torch.equal(a[:, 0], m[:, 1]) for a, m in zip(alone, masks, strict=True))


def test_kept_units_make_up_for_dropped_ones():
    """The mean over masks of a linear network is its output without dropout."""
    network = MLP((3,), (), 4, (0.25,))
    params, x = network.init((0,), "cpu"), torch.ones(1, 3)
    masks = network.draw_masks(rng.generators((0,), "dropout", 0, 0), 1, 40_000)
    mean = network(params, x.expand(40_000, 3), [masks[0][0]]).mean(1)
    torch.testing.assert_close(mean, network(params, x)[:, 0], rtol=0.02, atol=0)


def test_initial_weights_are_uniform_within_the_fan_in_bound_for_each_seed_alone():
    """PyTorch's default for these layers is uniform on +-1/sqrt(fan in): compared with its own layer's moments."""
    network = MLP((100,), (300,), 5)
    weight = network.init((0, 1), "cpu")[0]
    torch.manual_seed(0)
    reference = nn.Linear(100, 300).weight
    assert weight.abs().max() <= 0.1 and weight.abs().max() > 0.0999
    assert abs(weight[0].std() / reference.std() - 1) < 0.02 and abs(weight.mean()) < 1e-3
    assert torch.equal(network.init((1,), "cpu")[0][0], weight[1])
    assert not torch.equal(weight[0], weight[1])
    first = CifarNet(10).init((0,), "cpu")[0]
    assert 0.95 / math.sqrt(27) < first.abs().max() <= 1 / math.sqrt(27)


def test_flatten_and_unflatten_undo_each_other_in_the_order_of_the_tuple():
    params = CifarNet(7).init((0, 1), "cpu")
    flat = networks.flatten(params)
    assert flat.shape == (2, sum(p.numel() for p in params) // 2)
    assert torch.equal(flat[1, : params[0][0].numel()], params[0][1].flatten())
    back = networks.unflatten(flat, params)
    assert all(torch.equal(a, b) for a, b in zip(back, params, strict=True))
    with pytest.raises(ValueError, match="does not fill"):
        networks.unflatten(flat[:, 1:], params)


def test_build_names_what_it_cannot_build():
    assert networks.build("mlp", (2,), (3,), 4, (0.1,)) == MLP((2,), (3,), 4, (0.1,))
    assert networks.build("cifarnet", (3, 32, 32), (), 4, ()) == CifarNet(4)
    with pytest.raises(ValueError, match=r"network='mpl' is not one of .*did you mean 'mlp'"):
        networks.build("mpl", (2,), (3,), 4, ())
    with pytest.raises(ValueError, match=r"\(3, 32, 32\), and these have \(1, 28, 28\)"):
        networks.build("cifarnet", (1, 28, 28), (), 4, ())
