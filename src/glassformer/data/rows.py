"""Check the rows of token ids that a user gives, and pad them on the right into one tensor."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.base.errors import DataError
from glassformer.base.shapes import Bool, Int, Tensor
from glassformer.base.typed import came
from glassformer.data.tokens.vocabulary import PAD


def pad(sequences: Sequence[Sequence[int]]) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"] | None]:
    """Pad rows of different lengths with <pad> on the right; also return which ids are real, None without padding."""
    lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
    width = int(lengths.max(initial=0))
    if width == 0:
        raise DataError(
            f"A batch needs at least one token; got {len(sequences)} sequences without any. "
            f"Give at least one sequence with at least one id."
        )
    real: NDArray[np.bool_] = np.arange(width)[None, :] < lengths[:, None]
    tokens = np.full((len(sequences), width), PAD, np.int64)
    tokens[real] = flat(sequences)
    return torch.as_tensor(tokens), None if bool(real.all()) else torch.as_tensor(real)


def flat(rows: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """All ids, row after row. Errors: `DataError` naming row and place of a value that is not a whole number."""
    try:
        return np.frombuffer(array("q", chain.from_iterable(rows)), np.int64)
    except (TypeError, OverflowError):
        check_rows(rows, "a batch, special tokens included,")
        raise


def check_lists(rows: Sequence[Sequence[object]], name: str) -> None:
    """DataError unless `rows` is a list of lists: text must be encoded first, and a number alone is not a row."""
    for number, row in [(None, rows), *(enumerate(rows) if is_list(rows) else ())]:
        if not is_list(row):
            where = "they are" if number is None else f"row {number} (counted from 0) is"
            raise DataError(
                f"Rows in {name} must be lists of token ids, but {where} {came(row)}. "
                "Encode texts first with tokenizer.encode_all(texts); for a single row, give [ids]."
            )


def is_list(value: object) -> bool:
    """Whether a value has a length and items, and is not text; a tensor with a dimension counts, too."""
    try:
        return not isinstance(value, str | bytes) and len(value) >= 0  # pyright: ignore[reportArgumentType]
    except TypeError:
        return False


def check_rows(rows: Sequence[Sequence[int]], name: str) -> None:
    """`check_lists`, and a DataError for a value that is not a whole number, naming row and place."""
    check_lists(rows, name)
    for number, row in enumerate(rows):
        if are_ids(row):
            continue
        place = next(place for place, id in enumerate(row) if not are_ids([id]))
        raise DataError(
            f"Rows in {name} must hold whole numbers, but row {number} has {came(row[place])} at place {place} "
            "(both counted from 0). Encode the text with the model's tokenizer."
        )


def are_ids(row: Iterable[int]) -> bool:
    """Whether all of these are whole numbers of 64 bits; an array is a fast test."""
    try:
        array("q", row)
    except (TypeError, OverflowError):
        return False
    return True


def check_ids(rows: Sequence[Sequence[int]], vocab_size: int, name: str) -> None:
    """DataError for an id outside the vocabulary, naming row and place in the caller's rows, before any padding.

    Also for rows that are not lists of ids, such as text.
    """
    check_rows(rows, name)
    for row, ids in enumerate(rows):
        if len(ids) and (min(ids) < 0 or max(ids) >= vocab_size):
            place = next(place for place, id in enumerate(ids) if not 0 <= id < vocab_size)
            raise DataError(
                f"Ids in {name} must be from 0 to {vocab_size - 1}, the vocabulary of the model, but row {row}, column "
                f"{place} (counted from 0) holds {ids[place]}. Encode the text with the model's tokenizer."
            )
