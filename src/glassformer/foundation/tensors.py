"""What a user gives a model to read: ids [B, T] or features [B, T, I], and anything else refused by name."""

from __future__ import annotations

import torch

from glassformer.foundation.errors import DataError
from glassformer.foundation.shapes import Tensor
from glassformer.foundation.typed import came

IDS = (torch.int64, torch.int32)


def check_read(name: str, given: object, *, features: bool | None = None) -> None:
    """Refuse what is no batch of ids (`features` False), no batch of features (True), or neither of both (None).

    Only class, dtype and number of dimensions are looked at, which costs nothing on any device. Errors: `DataError`.
    """
    forms = {False: "token ids [B, T] (int64)", True: "features [B, T, I] (floats)"}
    wanted = " or ".join(form for which, form in forms.items() if features in (which, None))
    if not isinstance(given, Tensor):
        raise DataError(
            f"{name} must be a tensor of {wanted}; got {came(given)}. Try torch.tensor(rows) for rows of ids of one "
            "length; Batch.pairs and its neighbours pad rows of unequal length."
        )
    is_ids = given.dtype in IDS and given.ndim == 2
    is_features = given.is_floating_point() and given.ndim == 3
    if not ((is_ids and features is not True) or (is_features and features is not False)):
        raise DataError(
            f"{name} must be {wanted}; got {given.dtype} of shape {list(given.shape)}. {mended(name, given, features)}"
        )


def mended(name: str, given: Tensor, features: bool | None) -> str:
    """What would make ids or features of it, as far as its shape tells."""
    reads_features = features is True or (features is None and given.ndim > 2)
    if reads_features and not given.is_floating_point():
        return "Features are floats, a vector of them for each place."
    if given.ndim == (2 if reads_features else 1):
        return f"A batch of one row is {name}[None]."
    if given.ndim == 2:
        return f"Ids are whole numbers: {name}.long()."
    return "Give one row for each sequence of the batch."
