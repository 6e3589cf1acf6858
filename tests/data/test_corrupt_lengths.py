"""The longest source and target of a window: none drawn is longer, and where none is special some are as long."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.data.corrupt import Corruption, batch_of_windows
from glassformer.data.corrupt_lengths import longest
from glassformer.data.tokens.vocabulary import BOS, SPECIALS


def read_at_once(objective, window, share, mean, seed):
    """The longest that a stack reads of this window; a decoder does not read its last target."""
    batch = batch_of_windows(objective, [window], Corruption(40, share, mean), seed=seed, step=0)
    return max(batch.source.shape[1], batch.tokens.shape[1] - 1)


@given(
    st.sampled_from(["spans", "noise"]),
    st.lists(st.sampled_from([BOS, 7, 8, 9]), min_size=2, max_size=40).map(np.array),
    st.floats(0.01, 0.99),
    st.floats(1.0, 9.0),
    st.integers(0, 2**20),
)
def test_no_window_is_longer(objective, window, share, mean, seed):
    specials = int((window < len(SPECIALS)).sum())
    most = longest(objective, len(window), share, mean, specials)
    assert read_at_once(objective, window, share, mean, seed) <= most


@pytest.mark.parametrize(
    ("window", "share", "mean", "most"),
    # of 32 tokens 5 are hidden: in 2 spans 27 + 2 + <eos>, and in 5 of them 27 + 5 + <eos>; of half a decoder reads 24
    [(32, 0.15, 3.0, 30), (32, 0.15, 1.0, 33), (32, 0.5, 2.0, 25), (32, 0.9, 3.0, 33)],
)
def test_spans_of_text_alone_are_as_long(window, share, mean, most):
    assert longest("spans", window, share, mean) == most
    assert read_at_once("spans", np.arange(6, 6 + window), share, mean, seed=0) == most


def test_noise_reaches_a_window_and_one_in_the_decoder_and_more_in_the_source():
    assert longest("noise", 512, 0.3, 3.0) == 513
    text = np.arange(6, 38)
    seen = max(read_at_once("noise", text, 0.15, 1.0, seed) for seed in range(300))
    assert 33 < seen <= longest("noise", 32, 0.15, 1.0) < 2 * 32


@pytest.mark.parametrize("objective", ["next_token", "prefix", "masked"])
def test_of_others_the_window_is_all(objective):
    assert longest(objective, 32, 0.15, 3.0, specials=9) == 32
