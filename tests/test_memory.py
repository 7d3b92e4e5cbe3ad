"""Replay memory by following points whose value says which task and place they come from."""

import pytest
import torch

from paper_lib import memory as mem
from paper_lib.data.stream import Spec, Task

SPEC = Spec("made", "class_incremental", (1,), ((0, 1),) * 5, (("a", "b"),) * 5, (0.0,), (1.0,))
SEEDS = (0, 3)


def task(index, n):
    """Point ``i`` of task ``t`` is the number 10,000 t + i."""
    return Task(index, (10_000.0 * index + torch.arange(n))[:, None], torch.full((n,), index))


def filled(sizes, keeps):
    memory = mem.empty(SPEC, 2, "cpu")
    for t, n in enumerate(sizes):
        share, keep = keeps(t)
        memory = mem.add(memory, task(t, n), mem.choose(n, share, SEEDS, t), keep)
    return memory


def check_points(memory):
    assert torch.equal((memory.x[..., 0] // 10_000).long(), memory.task.expand(2, -1))
    assert torch.equal(memory.y, memory.task.expand(2, -1))
    for row in memory.x[..., 0]:
        assert len(row.unique()) == len(row)


def test_per_task_memory_keeps_as_many_distinct_points_of_each_task():
    memory = filled([500, 400, 30], lambda t: (50, None))
    assert torch.bincount(memory.task).tolist() == [50, 50, 30]  # all of a task that has fewer
    check_points(memory)
    assert not torch.equal(memory.x[0], memory.x[1])


def test_total_memory_shrinks_as_in_the_release():
    """1000 points: 1000, 500, 333, 250 and 200 a task; the first of those kept before stay."""
    previous = None
    for num_tasks, share in enumerate([1000, 500, 333, 250, 200], 1):
        memory = filled([2000] * num_tasks, lambda t: (1000 // (t + 1), 1000 // (t + 1)))
        assert torch.bincount(memory.task).tolist() == [share] * num_tasks
        check_points(memory)
        if previous is not None:
            for t in range(num_tasks - 1):
                assert torch.equal(memory.x[:, memory.task == t], previous.x[:, previous.task == t][:, :share])
        previous = memory


def test_the_choice_depends_on_seed_and_task_alone():
    chosen = mem.choose(100, 10, SEEDS, 1)
    assert torch.equal(mem.choose(100, 10, (7, 3, 0), 1)[[2, 1]], chosen)
    assert not torch.equal(mem.choose(100, 10, SEEDS, 2), chosen)
    counts = torch.bincount(mem.choose(10, 3, range(2000), 0).flatten(), minlength=10)
    assert (counts - 600).abs().max() < 4 * (2000 * 0.3 * 0.7) ** 0.5  # each point is as likely as another


@pytest.mark.parametrize(
    ("n", "kept", "times"), [(100, 30, 3), (99, 100, 1), (100, 100, 1), (199, 100, 1), (200, 100, 2)]
)
def test_the_pool_repeats_memory_by_the_floor_of_the_ratio(n, kept, times):
    memory = filled([200], lambda t: (kept, None))
    pool = mem.pool(task(1, n), memory, 2, oversample=True)
    plain = mem.pool(task(1, n), memory, 2, oversample=False)
    assert torch.equal(pool.x[: pool.num_current], task(1, n).x) and pool.num_current == n
    for row in range(2):
        for one, repeats in ((pool, times), (plain, 1)):
            drawn, counts = one.x[one.draws[row]].flatten().unique(return_counts=True)
            old = drawn < 10_000
            assert set(drawn[old].tolist()) == set(memory.x[row].flatten().tolist())
            assert (counts[old] == repeats).all() and (counts[~old] == 1).all() and (~old).sum() == n
            assert torch.equal(one.y[one.draws[row]], (one.x[one.draws[row]].flatten() // 10_000).long())


def test_without_memory_the_pool_is_the_task():
    pool = mem.pool(task(0, 7), mem.empty(SPEC, 2, "cpu"), 2, oversample=True)
    assert torch.equal(pool.x, task(0, 7).x) and torch.equal(pool.draws, torch.arange(7).expand(2, 7))


def test_memory_of_everything_is_stored_once_for_all_seeds():
    memory = mem.empty(SPEC, 1, "cpu")
    for t, n in enumerate((5, 4)):
        memory = mem.add(memory, task(t, n), torch.arange(n)[None])
    assert memory.x.shape == (1, 9, 1)
    pool = mem.pool(task(2, 3), memory, 3, oversample=False)
    assert len(pool.x) == 12
    everything = torch.cat([task(t, n).x.flatten() for t, n in ((0, 5), (1, 4), (2, 3))])
    for row in range(3):
        assert torch.equal(pool.x[pool.draws[row]].flatten().sort().values, everything)


def test_pixels_stay_bytes():
    pixels = Task(0, torch.zeros(4, 1, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64))
    memory = mem.add(mem.empty(SPEC, 2, "cpu"), pixels, mem.choose(4, 2, SEEDS, 0))
    assert memory.x.dtype == torch.uint8 and mem.pool(pixels, memory, 2, True).x.dtype == torch.uint8


def test_k_centre_always_takes_the_point_farthest_from_all_taken():
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    chosen = mem.k_centre(x, 8).tolist()
    distance = torch.cdist(x, x)
    assert chosen[0] == 0 and len(set(chosen)) == 8
    for k in range(1, 8):
        to_taken = distance[:, chosen[:k]].min(1).values
        torch.testing.assert_close(to_taken[chosen[k]], to_taken.max())
