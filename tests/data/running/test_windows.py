"""Windows are functions of (seed, step, row); an evaluation scores each token once, whatever window and stride."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.base.errors import ConfigError, DataError
from glassformer.data.kinds import ORDERS
from glassformer.data.running.token_file import Windows, count_evaluation_windows, evaluation_windows

SIZES = st.tuples(st.integers(2, 60), st.integers(1, 70)).flatmap(
    lambda sizes: st.tuples(st.just(sizes[0]), st.just(sizes[1]), st.integers(1, sizes[1]))
)


@given(SIZES)
def test_every_token_but_the_first_is_scored_exactly_once(sizes):
    n, window, stride = sizes
    found = list(evaluation_windows(n - 1, window, stride))
    assert [token for each in found for token in range(each.scored, each.stop + 1)] == [*range(1, n)]
    assert len(found) == count_evaluation_windows(n - 1, window, stride)
    for each in found:
        assert each.stop - each.start <= window
        assert each.start < each.scored <= each.stop < n  # each scored token has one before it in its window
    for each in found[1:]:
        assert each.scored - each.start > window - stride  # and in a later window more than so many


def test_the_rule_of_the_stride_on_ten_tokens():
    assert [tuple(each) for each in evaluation_windows(9, 4)] == [(0, 4, 1), (4, 8, 5), (8, 9, 9)]
    assert [tuple(each) for each in evaluation_windows(9, 4, 2)] == [(0, 4, 1), (2, 6, 5), (4, 8, 7), (6, 9, 9)]
    assert [tuple(each) for each in evaluation_windows(2, 4, 2)] == [(0, 2, 1)]


@pytest.mark.parametrize("order", ORDERS)
@given(step=st.integers(0, 10**6), rows=st.integers(1, 12))
def test_a_window_hangs_on_seed_step_and_row_alone(order, step, rows):
    starts = Windows(1000, 16, order, seed=3).starts(step, rows)
    assert np.array_equal(starts, Windows(1000, 16, order, seed=3).starts(step, rows))
    assert starts.shape == (rows,)
    assert starts.min() >= 0
    assert starts.max() + 16 <= 999  # the token behind the last one of the window is there


@given(step=st.integers(0, 10**6), rows=st.integers(1, 12))
def test_a_random_row_does_not_hang_on_how_many_there_are(step, rows):
    windows = Windows(1000, 16, "random", seed=3)
    assert np.array_equal(windows.starts(step, rows), windows.starts(step, 20)[:rows])


def test_random_windows_differ_by_seed_and_step_and_reach_both_ends():
    by_step = Windows(1000, 16, "random", 3)
    assert not np.array_equal(by_step.starts(0, 8), by_step.starts(1, 8))
    assert not np.array_equal(by_step.starts(0, 8), Windows(1000, 16, "random", 4).starts(0, 8))
    all_starts = {int(start) for step in range(200) for start in Windows(20, 16, "random").starts(step, 4)}
    assert all_starts == {0, 1, 2, 3}


@given(st.integers(2, 80), st.integers(1, 30), st.integers(1, 7))
def test_sequential_windows_follow_each_other_and_leave_nothing_out(n, window, rows):
    window = min(window, n - 1)
    windows = Windows(n, window, "sequential")
    starts = np.concatenate([windows.starts(step, rows) for step in range(4 * n)])
    one = windows.whole
    for first in range(0, len(starts) - one, one):  # once around: no gap and no overlap
        assert np.array_equal(np.diff(starts[first : first + one]), np.full(one - 1, window))
    assert starts[0] == 0
    if len(starts) >= one * window:
        assert {int(start) + offset for start in starts for offset in range(window + 1)} == {*range(n)}


def test_the_golden_windows_of_the_first_step():
    """Another numpy, or another way to draw, would silently train on other windows after a resume."""
    assert Windows(1_003_854, 64, "random", 0).starts(0, 4).tolist() == [614387, 408085, 191136, 223639]


def test_a_text_shorter_than_its_window_is_refused_for_training():
    assert Windows(17, 16).starts(0, 3).tolist() == [0, 0, 0]
    with pytest.raises(DataError, match=r"data.window=16 .* has 16 tokens.*data.window to at most 15"):
        Windows(16, 16)
    with pytest.raises(ConfigError, match="seed must be at least 0; got -1"):
        Windows(17, 16, seed=-1)
