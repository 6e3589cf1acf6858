"""Pad rows of feature vectors of different lengths into one tensor, for a model that reads features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.base.errors import DataError
from glassformer.base.shapes import Bool, Float, Tensor

Vectors = Sequence[Sequence[float]] | NDArray[np.floating]
"""One row: T vectors of I numbers each."""


def pad_features(rows: Sequence[Vectors]) -> tuple[Float[Tensor, "B T I"], Bool[Tensor, "B T"] | None]:
    """Return `tokens` and `keep` of a `Batch`: rows padded with zeros on the right; `keep` is None without padding.

    Errors: `DataError` naming row and place of a vector of another width, or of a value that is not finite.
    """
    width = next((len(vector) for row in rows for vector in row), 0)
    if width == 0:
        raise DataError(f"A batch needs at least one vector of features; got {len(rows)} rows without any. Add one.")
    length = max(len(row) for row in rows)
    found = np.zeros((len(rows), length, width), np.float32)
    real = np.zeros((len(rows), length), np.bool_)
    for number, row in enumerate(rows):
        for place, vector in enumerate(row):
            if len(vector) != width:
                raise DataError(
                    f"All vectors must have the same number of features, {width} as in the first one, but that at row "
                    f"{number}, place {place} (counted from 0) has {len(vector)}. Give each place the same features."
                )
            found[number, place] = vector
        real[number, : len(row)] = True
    wrong = np.argwhere(~np.isfinite(found))
    if len(wrong):
        number, place, feature = wrong[0].tolist()
        raise DataError(
            f"Features must be finite numbers; got {found[number, place, feature]} at row {number}, place {place}, "
            f"feature {feature} (counted from 0). Correct the data, or remove the row."
        )
    return torch.as_tensor(found), None if bool(real.all()) else torch.as_tensor(real)
