"""What is known of a head before its weights are: no line of a map is lost in its small picture."""

import math

import numpy as np
import pytest

from glassformer.lens.trace.sight import SIDE, decided, shrunk


@pytest.mark.parametrize("shape", [(130, 200), (64, 65), (700, 3), (1, 129)])
def test_each_cell_is_the_largest_of_those_it_stands_for(shape):
    weights = np.random.default_rng(0).random((2, 3, *shape))
    small = shrunk(weights)
    rows, columns = (min(each, SIDE) for each in shape)
    assert small.shape == (2, 3, rows, columns)
    tops, lefts = ([*(np.arange(n) * length // n), length] for n, length in zip((rows, columns), shape, strict=True))
    for i in range(rows):
        for j in range(columns):
            part = weights[:, :, tops[i] : tops[i + 1], lefts[j] : lefts[j + 1]]
            assert (small[:, :, i, j] == part.max((-2, -1))).all()


def test_a_small_map_stays_as_it_is():
    weights = np.random.default_rng(0).random((1, 1, SIDE, SIDE))
    assert (shrunk(weights) == weights).all()


def test_confidence_and_entropy():
    """By hand: one head reads one key of four, another all alike; a row that sums to 4 is taken as shares."""
    sure = np.tile([0.0, 1.0, 0.0, 0.0], (3, 1))
    even = np.full((3, 4), 0.25)
    double = np.full((3, 4), 1.0)
    found = decided(np.stack([sure, even, double])[None])
    assert found["confidence"] == [[1.0, 0.25, 1.0]]
    assert found["entropy"] == [pytest.approx([0.0, math.log(4), math.log(4)], abs=1e-5)]
    blind = decided(np.zeros((1, 1, 2, 3)))
    assert blind == {"confidence": [[0.0]], "entropy": [[0.0]]}
