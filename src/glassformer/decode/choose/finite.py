"""Refusing logits of which one is not a number or infinite: nothing chosen from them would mean anything."""

from __future__ import annotations

from glassformer.base.errors import DataError
from glassformer.base.shapes import Float, Tensor
from glassformer.decode.choose.context import Context


def unbounded(logits: Float[Tensor, "B V"]) -> int | None:
    """The index of the first row with a NaN or +inf logit; None if there is none. -inf only means a forbidden token."""
    best = logits.amax(-1)  # NaN if any logit is NaN
    found = best.isnan() | best.isposinf()
    return int(found.int().argmax()) if bool(found.any()) else None


def check_numbers(logits: Float[Tensor, "B V"], context: Context) -> None:
    """Refuse logits of the model that are NaN or +inf. Errors: `DataError` naming the row."""
    if (place := unbounded(logits)) is not None:
        what = "infinite" if bool(logits[place].amax().isposinf()) else "not numbers (NaN)"
        row = context.numbers[place]
        raise DataError(
            f"The model's logits are {what} in row {row} (counted from 0). Check that its weights are finite."
        )
