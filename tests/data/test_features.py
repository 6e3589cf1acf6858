"""Rows of features, padded; and what is said of a vector too wide and of a value that is no number."""

from __future__ import annotations

import numpy as np
import pytest

from glassformer.base.errors import DataError
from glassformer.data.features import pad_features


def test_rows_are_padded_with_zeros_on_the_right() -> None:
    tokens, keep = pad_features([np.ones((1, 2)), [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]])
    assert tokens.tolist() == [[[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]]
    assert keep is not None
    assert keep.tolist() == [[True, False, False], [True, True, True]]
    assert pad_features([np.ones((2, 3))] * 2)[1] is None


def test_unequal_widths_are_named_by_row_and_place() -> None:
    with pytest.raises(DataError, match=r"the same number of features, 2 as .* row 1, place 2 .* has 3"):
        pad_features([[[1.0, 2.0]], [[1.0, 2.0], [1.0, 2.0], [1.0, 2.0, 3.0]]])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_named_by_row_place_and_feature(value: float) -> None:
    with pytest.raises(DataError, match=rf"finite numbers; got {value} at row 1, place 0, feature 1 "):
        pad_features([[[1.0, 2.0], [1.0, 2.0]], [[1.0, value]]])


@pytest.mark.parametrize("rows", [[], [[]], [[], []], [[[]]]])
def test_nothing_to_pad(rows: list[list[list[float]]]) -> None:
    with pytest.raises(DataError, match=f"{len(rows)} rows without any"):
        pad_features(rows)
