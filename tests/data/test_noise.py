"""Noise hides its share however many spans are drawn: those that find no place are given up or joined."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.data.corrupt import Coins, fitting, noise
from glassformer.data.tokens.vocabulary import BLANK

TEXT = np.arange(6, 106)


@pytest.mark.parametrize("mean", [1.0, 3.0, 10.0])
@pytest.mark.parametrize("share", [0.15, 0.5, 0.7, 0.9, 0.99])
@pytest.mark.parametrize("n", [1, 2, 7, 100])
def test_noise_hides_its_share_whatever_the_spans(n, share, mean):
    """Also where more spans are drawn than there are places between kept tokens."""
    for row in range(20):
        source, _ = noise(TEXT[:n], Coins(0, 0, row), share, mean)
        assert n - int((source != BLANK).sum()) == min(n, max(1, round(share * n)))
        assert not ((source[1:] == BLANK) & (source[:-1] == BLANK)).any()


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(1, 31), st.integers(0, 99))
def test_fitting_lengths_keep_their_sum_and_their_spans_while_they_can(lengths, places, seed):
    drawn = np.array(lengths)
    found = fitting(drawn, places, Coins(seed, 0, 0))
    assert len(found) == min(len(lengths), places)
    assert found.sum() == drawn.sum()
    full = drawn[drawn > 0].tolist()
    assert found[found > 0].tolist() == full if len(full) <= places else found.all()
