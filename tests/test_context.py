"""Context points: where they come from and that they come as asked."""

import pytest
import torch

from paper_lib import context
from paper_lib.memory import Memory


def stream():
    return torch.Generator().manual_seed(0)


def test_stored_points_are_drawn_from_every_task_without_replacement():
    task = torch.tensor([0] * 5 + [1] * 3 + [2] * 4)
    memory = Memory(torch.zeros(1, 12, 1), torch.zeros(1, 12, dtype=torch.int64), task)
    places = context.from_memory(memory, 3, 400, stream())
    assert places.shape == (400, 9)
    assert torch.equal(task[places], torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2]).expand(400, 9))
    assert all(len(step.unique()) == 9 for step in places)
    times = places.flatten().bincount(minlength=12) / 400
    torch.testing.assert_close(times, 3 / torch.tensor([5.0] * 5 + [3.0] * 3 + [4.0] * 4), atol=0.1, rtol=0.0)
    with pytest.raises(ValueError, match="num_context=4 is more than the 3 points stored of task 2"):
        context.from_memory(memory, 4, 1, stream())


def test_pixels_are_uniform():
    x = context.pixels((1, 4, 5), (-1.0, 3.0), 6, 200, stream())
    assert x.shape == (200, 6, 1, 4, 5) and x.min() >= -1 and x.max() < 3
    assert float(x.mean()) == pytest.approx(1.0, abs=0.03) and float(x.var()) == pytest.approx(16 / 12, abs=0.03)


def test_half_of_the_colours_are_plain_and_half_are_images():
    images = torch.randint(0, 256, (10, 3, 4, 4), dtype=torch.uint8, generator=stream())
    images[:, 1] //= 4
    x = context.colours(images, 5, 20, stream())
    assert x.shape == (20, 5, 3, 4, 4) and x.dtype == torch.uint8
    plain, whole = x[:, :2], x[:, 2:]
    assert (plain == plain[..., :1, :1]).all()
    assert all(torch.isin(plain[:, :, c], images[:, c]).all() for c in range(3)) and plain[:, :, 1].max() < 64
    assert all(any(torch.equal(image, other) for other in images) for image in whole.flatten(0, 1))
