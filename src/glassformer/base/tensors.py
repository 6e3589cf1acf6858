"""Checks of the tensors that a user gives a model: ids [B, T] or features [B, T, I], masks, documents, prefixes."""

from __future__ import annotations

import torch

from glassformer.base.errors import ConfigError, DataError
from glassformer.base.shapes import Float, Tensor
from glassformer.base.typed import came

IDS = (torch.int64, torch.int32)


def check_read(name: str, given: object, *, features: bool | None = None) -> None:
    """Refuse anything but a batch of ids (`features` False), of features (True), or either (None), with a first place.

    It looks only at class, dtype and shape, which costs nothing on any device. Errors: `DataError`.
    """
    if not isinstance(given, Tensor):
        raise DataError(
            f"{name} must be a tensor of {wanted(features)}; got {came(given)}. Use torch.tensor(rows) if all rows "
            "have the same length; Batch.pairs and the other methods of Batch pad rows of different lengths."
        )
    is_ids = given.dtype in IDS and given.ndim == 2
    is_features = given.is_floating_point() and given.ndim == 3
    if not ((is_ids and features is not True) or (is_features and features is not False)):
        raise DataError(
            f"{name} must be {wanted(features)}; got {given.dtype} of shape {list(given.shape)}. "
            f"{mended(name, given, features)}"
        )
    if given.shape[1] == 0:
        raise DataError(
            f"Each row of {name} needs at least one {'token' if is_ids else 'vector'}; got shape "
            f"{list(given.shape)}. Begin a text with BOS, and end a source with EOS."
        )


def wanted(features: bool | None) -> str:
    """What `check_read` asks for."""
    forms = {False: "token ids [B, T] (int64)", True: "features [B, T, I] (floats)"}
    return " or ".join(form for which, form in forms.items() if features in (which, None))


def mended(name: str, given: Tensor, features: bool | None) -> str:
    """The remedy in the error of `check_read`, as far as the dtype and shape tell."""
    reads_features = features is True or (features is None and given.ndim > 2)
    if reads_features and not given.is_floating_point():
        return "Give floats, one vector for each position."
    if given.ndim == (2 if reads_features else 1):
        return f"For a batch of one row, give {name}[None]."
    if given.ndim == 2:
        return f"Ids must be whole numbers: give {name}.long()."
    return "Give one row for each sequence of the batch."


def check_keep(keep: object, name: str = "keep") -> None:
    """Raise `ConfigError` for a mask that is not boolean: numbers are 0/1 in some libraries and are added in others."""
    if keep is not None and getattr(keep, "dtype", None) != torch.bool:
        got = keep.dtype if isinstance(keep, Tensor) else came(keep)
        raise ConfigError(
            f"{name} must be boolean, True at real keys; got {got}. "
            f"Use {name}.bool() for a 0/1 mask, and bias= for numbers added to the scores."
        )


def check_shape(name: str, keep: Tensor | None, marked: str, values: Tensor) -> None:
    """Raise `DataError` unless a mask has one value for each place of `values` [B, T, ...]."""
    if keep is not None and keep.shape != values.shape[:2]:
        raise DataError(
            f"{name} needs one value for each position of {marked}, so both must have the same shape [B, T]; got "
            f"{name} {list(keep.shape)} and {marked} {list(values.shape[:2])}. Set {name}=None if all positions count."
        )


def check_beside(name: str, given: Tensor, beside: str, values: Tensor) -> None:
    """Raise `DataError` unless `given` has as many rows as `values`."""
    if given.shape[:1] != values.shape[:1]:
        raise DataError(
            f"Row i of {name} belongs to row i of {beside}, so both must have the same number of rows; got {name} "
            f"{list(given.shape)} and {beside} {list(values.shape)}. Give one row of {name} for each row of {beside}."
        )


def check_documents(documents: object, values: Tensor) -> None:
    """Raise `DataError` unless `documents` has a whole number for each place of tokens [B, T, ...]."""
    if documents is None:
        return
    if not isinstance(documents, Tensor) or documents.dtype not in IDS or documents.shape != values.shape[:2]:
        got = f"{documents.dtype} {list(documents.shape)}" if isinstance(documents, Tensor) else came(documents)
        raise DataError(
            f"documents says which document each token belongs to, so it must be a tensor of whole numbers of shape "
            f"{list(values.shape[:2])}; got {got}. Give one number for each token, padding included."
        )


def check_prefix(prefix: object, values: Tensor) -> None:
    """Raise `DataError` unless `prefix` has one length, from 0 to T, for each row of tokens [B, T, ...].

    On an accelerator the values are not checked, because that would wait for the device.
    """
    if prefix is None:
        return
    B, T = values.shape[:2]
    if not isinstance(prefix, Tensor) or prefix.dtype not in IDS or prefix.shape != (B,):
        got = f"{prefix.dtype} {list(prefix.shape)}" if isinstance(prefix, Tensor) else came(prefix)
        raise DataError(
            f"prefix says how many tokens at the start of each row every token may read, so it must be a tensor of "
            f"whole numbers of shape [{B}]; got {got}. Give one number for each row."
        )
    if prefix.device.type != "cpu" or torch.compiler.is_compiling():
        return
    wrong = ((prefix < 0) | (prefix > T)).nonzero()
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"A prefix must be from 0 to {T}, the length of a row; got {int(prefix[row])} for row {row} (counted from "
            "0). Give the number of tokens at the start of the row that every token may read."
        )


MASK_WAYS = (
    "Give a boolean tensor [B, H, T, S], [B, T, S] or [T, S], True where a query may read a key; Mask(keep=keep) for "
    "padding (boolean [B, S], True at real keys); Mask(causal=True) for the causal rule; floats [B, H, T, S] are added "
    "to the scores."
)


def as_mask(given: object, of_queries: torch.Size, S: int) -> Tensor:
    """A tensor that is given as a mask, as [#B, #H, T, S]. Errors: `ConfigError` as `Mask.of` says."""
    if not isinstance(given, Tensor):
        raise ConfigError(f"A mask must be a Mask or a tensor; got {came(given)}. {MASK_WAYS}")
    if given.layout != torch.strided or given.is_complex():
        raise ConfigError(
            f"A mask must be a dense tensor of real numbers; got {given.layout}, {given.dtype}. {MASK_WAYS}"
        )
    (B, H, T, _), shape = of_queries, list(given.shape)
    if shape == [B, S] == [T, S] and B > 1:
        raise ConfigError(
            f"A mask of shape {shape} could be [B, S], for the keys of each row, or [T, S], for each query. Give "
            "mask[:, None] for the first, mask[None] for the second."
        )
    if given.ndim in (2, 3):
        given = given[:, None, None] if shape == [B, S] else given[None, None] if given.ndim == 2 else given[:, None]
    sizes = zip(given.shape, (B, H, T, S), strict=False)
    if given.ndim != 4 or given.shape[3] != S or any(has not in (1, whole) for has, whole in sizes):
        raise ConfigError(
            f"A mask for {B} rows, {H} heads, {T} queries and {S} keys cannot have shape {shape}. {MASK_WAYS}"
        )
    table = given.expand(-1, -1, T, -1)
    if table.device.type == "cpu" and not torch.compiler.is_compiling():
        _check_mask_values(table)
    return table


def _check_mask_values(table: Tensor) -> None:
    """Raise `ConfigError` for a mask whose values have no meaning, or two: floats 0 and 1 may be rules or a bias."""
    unlike = ((table != 0) & (table != 1)).any()
    if table.is_floating_point():
        if bool((table.isnan() | (table == torch.inf)).any()):
            raise ConfigError(
                f"A mask of floats holds numbers to add to the scores, or -inf; got NaN or inf. {MASK_WAYS}"
            )
        if not bool(unlike) and bool(table.any()):
            raise ConfigError(
                f"A mask of floats that are all 0 or 1 could say which keys may be read, or be added to the scores; "
                f"got {table.dtype}. Give mask.bool() if 1 means that a key may be read, Mask(bias=mask) to add it "
                "(mask[None] if its shape is [T, S])."
            )
    elif bool(unlike):
        raise ConfigError(f"A mask of whole numbers holds 1 where a key may be read, else 0; got others. {MASK_WAYS}")


def check_mask_shapes(keep: Tensor | None, bias: Tensor | None, of_queries: torch.Size, S: int) -> None:
    """Raise `ConfigError` unless `keep` and `bias` are for queries of this shape [B, H, T, K] and S keys."""
    B, H, T, _ = of_queries
    if keep is not None and keep.shape != (B, S):
        raise ConfigError(
            f"keep of a Mask says which keys of each row are real, so for {B} rows and {S} keys its shape is "
            f"{[B, S]}; got {list(keep.shape)}. Give one value for each key."
        )
    if bias is None:
        return
    sizes = zip(reversed(bias.shape), (S, T, H, B), strict=False)
    if not (3 <= bias.ndim <= 4 and bias.shape[-1] == S and all(size in (1, most) for size, most in sizes)):
        raise ConfigError(
            f"bias of a Mask is added to the scores of {B} rows, {H} heads, {T} queries and {S} keys, so its shape "
            f"is {[H, T, S]} or {[B, H, T, S]}, where all but the last may be 1; got {list(bias.shape)}. "
            f"{'For the same in all heads, give bias[None].' if bias.ndim == 2 else 'Give a value for each key.'}"
        )


# Converting tensors to float64, which not every device supports.

WITHOUT = ("mps",)
"""Device types without float64."""


def in_float64(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Convert to float64: on the same device, or on the CPU if the device has no float64."""
    return (x.cpu() if x.device.type in WITHOUT else x).double()


def widest(device: torch.device) -> torch.dtype:
    """float64 if the device has it, else float32."""
    return torch.float32 if device.type in WITHOUT else torch.float64
