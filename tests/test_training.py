"""Stacked training against torch.optim.Adam run seed by seed, and an epoch's bookkeeping by counting."""

import math

import pytest
import torch

from paper_lib import rng, training
from paper_lib.networks import MLP, CifarNet

SEEDS = (0, 4)


def params_of(seeds):
    return MLP((3,), (5,), 2).init(seeds, "cpu", torch.float64)


def loss_of(params, step):
    """Some loss, different at every step, that couples the parameters of a seed and not the seeds."""
    w1, b1, w2, b2 = params
    x = torch.linspace(-1, 1, 12, dtype=torch.float64).view(4, 3) * (1 + step)
    return (torch.tanh(x @ w1 + b1) @ w2 + b2).pow(2).flatten(1).sum(1)


@pytest.mark.parametrize("num_exempt", [0, 1])
def test_adam_over_stacked_seeds_is_adam_of_each_seed_with_pauses_or_without(num_exempt):
    weight_decay, rate = 0.3, 0.05
    params, moments = params_of(SEEDS), None
    moments = training.fresh_moments(params)
    for start in (0, 3):  # stored and gone on with after three steps
        own = training.leaves(params)
        optimiser = training.adam(own, moments, rate, weight_decay, num_exempt)
        for step in range(start, start + 3):
            optimiser.zero_grad()
            loss_of(own, step).sum().backward()
            optimiser.step()
        params, moments = tuple(p.detach() for p in own), training.moments_of(optimiser)
    assert moments.step == 6
    for row, seed in enumerate(SEEDS):
        alone = [p.clone().requires_grad_() for p in params_of((seed,))]
        cut = len(alone) - num_exempt
        groups = [{"params": alone[:cut], "weight_decay": weight_decay}]
        groups += [{"params": alone[cut:]}] if num_exempt else []
        reference = torch.optim.Adam(groups, lr=rate, fused=False, foreach=False)
        for step in range(6):
            reference.zero_grad()
            loss_of(alone, step).sum().backward()
            reference.step()
        for place, other in enumerate(alone):
            torch.testing.assert_close(params[place][row], other.detach()[0], rtol=1e-9, atol=1e-12)
            torch.testing.assert_close(moments.first[place][row], reference.state[other]["exp_avg"][0])
            torch.testing.assert_close(moments.second[place][row], reference.state[other]["exp_avg_sq"][0])


def test_an_optimiser_leaves_the_state_that_it_came_from_as_it_was():
    params = params_of(SEEDS)
    moments = training.fresh_moments(params)
    own = training.leaves(params)
    optimiser = training.adam(own, moments, 0.1)
    loss_of(own, 0).sum().backward()
    optimiser.step()
    assert all(torch.equal(p, q) for p, q in zip(params, params_of(SEEDS), strict=True))
    assert moments.step == 0 and all(not m.any() for m in (*moments.first, *moments.second))
    changed = training.tensors_of(optimiser)
    assert len(changed) == 3 * len(params) and all(t.any() for t in changed if t.dim() == 0)


@pytest.mark.parametrize(("n", "batch", "steps"), [(10, 4, 3), (12, 4, 3), (3, 5, 1), (1, 1, 1)])
def test_minibatches_hold_every_point_once_and_filling_has_no_weight(n, batch, steps):
    order = rng.permutations(n, rng.generators(SEEDS, "order", 0, 0)) + 100
    index, weight = training.minibatches(order, batch)
    assert index.shape == weight.shape == (steps, 2, batch)
    for row in range(2):
        seen, real = index[:, row].flatten(), weight[:, row].flatten() == 1
        assert torch.equal(seen[real], order[row])
        assert not weight[:, row].flatten()[~real].any()


def test_a_partial_batch_can_be_left_out():
    order = torch.arange(10)[None]
    index, weight = training.minibatches(order, 4, drop_partial=True)
    assert torch.equal(index.flatten(), torch.arange(8)) and weight.all()
    with pytest.raises(ValueError, match="3 points do not fill one batch of 4"):
        training.minibatches(order[:, :3], 4, drop_partial=True)


@pytest.mark.parametrize("n", [1, 31, 32, 33, 100])
def test_tapes_cover_an_epoch_in_order_and_the_first_is_the_longest(n):
    parts = list(training.tapes(n))
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(n))
    lengths = [part.stop - part.start for part in parts]
    assert max(lengths) == lengths[0] <= training.STEPS_A_TAPE


def test_masks_of_a_large_network_lie_ready_a_step_at_a_time_and_those_of_the_stored_runs_a_tape():
    """What a seed sees depends on neither device nor neighbours; ten seeds of CifarNet take 50 MB and not 1.5 GiB."""
    noise = training.masks(CifarNet(10), 128)
    assert noise.tape == 1 and training.masks(CifarNet(10), 32).tape == 7
    tape = noise.draw(rng.generators(range(2), "dropout", 0, 0), 1)
    assert sum(t[:, 0].numel() for t in tape) == 128 * CifarNet(10).mask_size == 128 * (32 * 225 + 64 * 36 + 512)
    for network in (MLP((784,), (200, 200), 128, (0.2,) * 3), MLP((784,), (256,), 128, (0.1,) * 2)):
        assert training.masks(network, 128).tape == training.STEPS_A_TAPE
    assert training.masks(MLP((3,), (4,), 2), 10**9).draw(rng.generators((0,), "dropout", 0, 0), 5) == ()


def test_a_tape_drawn_after_a_shorter_one_finds_its_place():
    stepper, average, count = running_mean("cuda" if torch.cuda.is_available() else "cpu")
    for steps in (1, 3):
        stepper((torch.ones(steps, 2, device=average.device), torch.ones(steps, 2, device=average.device)))
    assert count == 4


def running_mean(device):
    """A step in place that remembers order: each input moves the average half of the way."""
    average, count = torch.zeros(2, device=device), torch.zeros((), device=device)

    def step(x, weight):
        average.lerp_(x * weight, 0.5)
        count.add_(1)

    return training.Stepper(step, [average, count]), average, count


def test_a_stepper_takes_the_steps_of_its_tapes_in_order():
    stepper, average, count = running_mean("cpu")
    x = torch.arange(14.0).view(7, 2)
    stepper((x[:4], torch.ones(4, 2)))
    stepper((x[4:], torch.ones(3, 2)))
    expected = sum(x[i] * 0.5 ** (7 - i) for i in range(7))
    torch.testing.assert_close(average, expected)
    assert count == 7
    with pytest.raises(ValueError, match="zip"):
        stepper((x, torch.ones(3, 2)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: steps replayed as a CUDA graph are not tested")
def test_replayed_steps_are_those_of_the_cpu():
    (gpu, average, count), (cpu, expected, _) = running_mean("cuda"), running_mean("cpu")
    x, weight = torch.arange(14.0).view(7, 2), torch.linspace(0, 1, 14).view(7, 2)
    for part in (slice(0, 4), slice(4, 7)):
        gpu((x[part].cuda(), weight[part].cuda()))
        cpu((x[part], weight[part]))
    torch.testing.assert_close(average.cpu(), expected)
    assert count == 7  # warming up and capturing left no trace


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: Adam inside a CUDA graph is not tested")
def test_adam_inside_a_graph_is_adam_on_the_cpu():
    results = []
    for device in ("cpu", "cuda"):
        params = training.leaves(tuple(p.to(device) for p in params_of(SEEDS)))
        optimiser = training.adam(params, training.fresh_moments(params), 0.05, 0.1, num_exempt=1)

        def step(scale, params=params, optimiser=optimiser):
            optimiser.zero_grad(set_to_none=True)
            loss = sum((p * p * scale).sum() + p.sum() for p in params)
            loss.backward()
            optimiser.step()

        stepper = training.Stepper(step, [*params, *training.tensors_of(optimiser)])
        stepper((torch.linspace(0, 1, 9, dtype=torch.float64, device=device),))
        results.append([p.detach().cpu() for p in params])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_an_epoch_takes_every_draw_once_in_each_seeds_own_order_with_its_own_masks():
    network = MLP((3,), (4,), 2, (0.5,))
    draws = torch.stack([torch.arange(50), torch.arange(100, 150)])

    def epoch(rows, number):
        seen, total = [], torch.zeros(len(rows))
        stepper = training.Stepper(lambda *inputs: seen.append([t.clone() for t in inputs]), [total])
        seeds = tuple(SEEDS[r] for r in rows)
        epochs = training.Epochs(stepper, total, draws[rows], 1, seeds, training.masks(network, 1))
        at = training.start(len(rows), "cpu")._replace(epoch=torch.tensor(number))
        ((at, done),) = epochs.run(at, number + 1, 0)
        assert at.is_at(number + 1) and done == number + 1 and len(seen) == 50
        return [torch.stack(t) for t in zip(*seen, strict=True)]

    index, weight, masks = epoch([0, 1], 0)
    assert torch.equal(index[..., 0].T.sort(1).values, draws) and weight.all()
    assert masks.shape == (50, 2, 1, 4)
    assert not torch.equal(index[:, 0], index[:, 1] - 100)
    for row in (0, 1):
        alone = epoch([row], 0)
        assert all(torch.equal(a[:, 0], b[:, row]) for a, b in zip(alone, (index, weight, masks), strict=True))
    later = epoch([0, 1], 1)
    assert not torch.equal(later[0], index) and not torch.equal(later[2], masks)


def test_threads_draw_what_one_thread_draws():
    drawn, before = [], torch.get_num_threads()
    try:
        for num_threads in (1, 2):
            torch.set_num_threads(num_threads)
            with torch.inference_mode():
                out = torch.empty(5, 3, 40)
                training.draw_normals(out, rng.generators(range(5), "noise", 0, 0))
                drawn.append(out)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*drawn)
    assert (drawn[0].std((1, 2)) - 1).abs().max() < 0.3 and len(drawn[0].unique()) == 600


def test_a_smoothed_label_bounds_the_log_odds_at_which_the_loss_is_least():
    classes = torch.tensor([[[True, True, False, True]]])
    bound = math.log(1 + 0.9 * 3 / 0.1)
    logits = torch.tensor([[[0.0, bound, -torch.inf, 0.0]]], requires_grad=True)
    log_probs = logits.log_softmax(-1)
    training.smoothed(-log_probs[..., 1], log_probs, classes, 0.1).sum().backward()
    assert logits.grad.abs().max() < 1e-6 and logits.grad.isfinite().all()
