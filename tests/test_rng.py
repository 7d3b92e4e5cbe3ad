"""Random streams: their numbers depend on the address alone."""

import itertools

import pytest
import torch

from paper_lib import rng


def numbers(g, n=4):
    return tuple(torch.rand(n, generator=g).tolist())


def test_every_part_of_an_address_matters_and_nothing_else_does():
    addresses = [(0,), (1,), (0, "a"), (0, "init"), (1, "a"), (0, "a", 1), (0, "a", 2, 1)]
    first = [numbers(rng.generator(*a)) for a in addresses]
    torch.manual_seed(123)  # the global state has no part in it, nor has the order of asking
    again = [numbers(rng.generator(*a)) for a in reversed(addresses)][::-1]
    assert first == again
    assert all(a != b for a, b in itertools.combinations(first, 2))


def test_a_zero_at_the_end_is_a_part_of_an_address():
    addresses = [(s, "init", *[0] * n) for s in (0, 3) for n in range(5)] + [(0,), (0, "init", 0, 0, 2), (0, "init", 1)]
    drawn = [numbers(rng.generator(*a)) for a in addresses]
    assert all(a != b for a, b in itertools.combinations(drawn, 2))


@pytest.mark.parametrize("word", rng.LENGTHS)
def test_words_whose_zeros_are_not_marked_have_one_length(word):
    length = rng.LENGTHS[word]
    rng.generator(0, word, *[0] * (length - 1))
    for other in {1, 2, 3, 4} - {length}:
        with pytest.raises(ValueError, match=f"has {other} parts; those that begin with '{word}' have {length}"):
            rng.generator(0, word, *[0] * (other - 1))


def test_a_seed_has_the_same_stream_whatever_stands_beside_it():
    alone = numbers(rng.generator(3, "noise", 1, 0))
    assert numbers(rng.generators((0, 3, 7), "noise", 1, 0)[1]) == alone
    assert numbers(rng.generators((3,), "noise", 1, 0)[0]) == alone


def test_the_global_generator_is_left_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    rng.permutations(10, rng.generators((0, 1), "order", 0, 0))
    assert torch.equal(torch.rand(3), expected)


def test_permutations_hold_every_item_once_and_differ_between_seeds():
    order = rng.permutations(50, rng.generators((0, 1), "order", 0, 0))
    assert torch.equal(order.sort(1).values, torch.arange(50).expand(2, 50))
    assert not torch.equal(order[0], order[1])


def test_the_numbers_of_an_address_are_pinned():
    """Every stored run rests on them; a change here makes all of them stale."""
    assert torch.randint(1000, (5,), generator=rng.generator(3, "order", 1, 2)).tolist() == [537, 78, 72, 258, 858]
    ends_in_zero = rng.generator(3, "order", 1, 0), rng.generator(3, "memory", 0), rng.generator(3, "init")
    assert [int(torch.randint(1000, (), generator=g)) for g in ends_in_zero] == [752, 987, 946]
