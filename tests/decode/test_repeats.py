"""What stands in a text already: beside its definition, and in linear time."""

import random
from collections.abc import Sequence

import pytest

from glassformer.decode.filters import enders, suffix_lengths
from glassformer.decode.speculative import followed

ROWS = [
    [draw.randrange(symbols) for _ in range(length)]
    for draw in [random.Random(4)]
    for symbols in (1, 2, 3)
    for length in (*range(9), 20, 33)
    for _ in range(25)
]


def guessed(ids: Sequence[int], n: int, most: int) -> list[int]:
    """What followed the last place that has the last `most` ids, or fewer, place by place."""
    for length in range(min(most, len(ids) - 1), 0, -1):
        for at in range(len(ids) - length - 1, -1, -1):
            if ids[at : at + length] == ids[len(ids) - length :]:
                return [*ids[at + length : at + length + n]]
    return []


def ending(ids: Sequence[int], n: int) -> set[int]:
    """The tokens that would end a run of n for the second time, run by run."""
    runs = {tuple(ids[at : at + n]) for at in range(len(ids) - n + 1)}
    return {run[-1] for run in runs if [*run[:-1]] == ids[len(ids) - n + 1 :]}


def test_ends_that_are_alike():
    assert suffix_lengths([5, 6, 7, 5, 6, 8, 6]) == [0, 0, 1, 0, 0, 1, 0, 0]
    for ids in ROWS:
        n = len(ids)
        lengths = [next(k for k in range(n, -1, -1) if ids[n - k :] == ids[max(0, at - k) : at]) for at in range(n)]
        assert suffix_lengths(ids) == [0, *reversed(lengths)]


@pytest.mark.parametrize("most", [1, 2, 3, 5, 99])
def test_guesses_are_those_of_the_definition(most):
    for ids in ROWS:
        for n in (0, 1, 4):
            assert followed(ids, n, most) == guessed(ids, n, most)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_what_ends_a_run_again_is_that_of_the_definition(n):
    for ids in ROWS:
        assert {*enders(ids, n)} == ending(ids, n)


class Counted(int):
    """An id that counts how often it is compared."""

    times = 0

    def __eq__(self, other: object) -> bool:
        Counted.times += 1
        return isinstance(other, int) and int(self) == int(other)

    __hash__ = int.__hash__


@pytest.mark.parametrize("row", [[5] * 2000, [5, 6] * 1000, [*[5] * 999, 6, *[5] * 1000], [7, *[5] * 40] * 50])
def test_it_is_found_in_linear_time(row):
    ids = [*map(Counted, row)]
    for find in (suffix_lengths, lambda ids: followed(ids, 9, 1000), lambda ids: enders(ids, 500)):
        Counted.times = 0
        find(ids)
        assert Counted.times <= 2 * len(ids)
