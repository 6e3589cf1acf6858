"""Reading and writing named tensors as a safetensors file, which holds numbers only, so that it can run no code."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from glassformer.base.errors import CheckpointError, DivergedError, ResourceError
from glassformer.store.files import sync_file, write_new
from glassformer.store.json_file import RESTORE, readable, regular_size, without_links

LARGEST_HEADER = 16 * 2**20  # bytes; a hundred thousand tensors need about 10 MiB
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: dict[str, str] | None = None) -> None:
    """Create `path` with tensors from any device and fsync it; `about` goes into its header.

    Errors: `OSError` from the system.
    """
    write_new(path, b"")  # safetensors creates files with mode 0600; this one has the mode of the user's umask
    mode = path.stat().st_mode
    try:
        save_file(separate(tensors), path, about)
    except SafetensorError as error:
        code = re.search(r"\(os error (\d+)\)", str(error))
        full = errno.ENOSPC if "No space left" in str(error) else errno.EIO
        number = int(code[1]) if code else full
        raise OSError(number, os.strerror(number) if code else str(error), str(path)) from error
    path.chmod(mode)
    sync_file(path)


def room_for(tensors: Mapping[str, Tensor]) -> int:
    """Estimate the bytes of a file of these tensors: their numbers, and a header entry for each."""
    return sum(tensor.nbytes + len(name) + 80 for name, tensor in tensors.items())


def separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors on the CPU, no two sharing memory, as the format requires; clones only those that would."""
    seen: set[int] = set()
    values: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        value = tensor.detach().to("cpu").contiguous()
        place = value.untyped_storage().data_ptr()
        values[name] = value.clone() if place in seen else value
        seen.add(place)
    return values


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Map the tensors of a file into memory; the disk is read only when they are used, so copy what must last.

    Errors: `CheckpointError` for anything but a safetensors file (no other format is ever tried); `ResourceError` for
    a file that the system cannot map.
    """
    size = regular_size(path)
    with readable(path), open(path, "rb", opener=without_links) as file:
        start = file.read(8)
    header = int.from_bytes(start, "little") if len(start) == 8 else size
    if header > min(size - 8, LARGEST_HEADER):
        raise CheckpointError(not_safetensors(path, start, f"its header would have {header:,} bytes"))
    try:
        with readable(path):
            return load_file(path)
    except SafetensorError as error:
        raise CheckpointError(not_safetensors(path, start, str(error)[:150])) from error
    except RuntimeError as error:  # from torch, if the system cannot map this much
        raise ResourceError(
            f"{path} could not be mapped into memory ({size:,} bytes): {str(error)[:150]}. Close other programs."
        ) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # from Rust: a BaseException, which no caller expects
            raise
        raise CheckpointError(not_safetensors(path, start, str(error)[:150])) from None


def not_safetensors(path: Path, start: bytes, reason: str) -> str:
    """Return the message for a file that is damaged or of another format."""
    pickled = start[:1] == b"\x80" or start[:2] == b"PK"
    seems = " It looks like a pickle, which is never read, because reading one can run code." if pickled else ""
    return f"{path} is not a safetensors file: {reason}.{seems} {RESTORE}"


def refuse_non_finite(tensors: Mapping[str, Tensor], what: str) -> None:
    """Raise `DivergedError` for NaN or infinity: a checkpoint with them is useless and would displace a useful one."""
    for name, tensor in tensors.items():
        if not tensor.dtype.is_floating_point or bool(torch.isfinite(tensor).all()):
            continue
        wrong = (~torch.isfinite(tensor)).nonzero()
        first = tuple(wrong[0].tolist())
        raise DivergedError(
            f"{what} must be finite to be saved; {len(wrong):,} of {tensor.numel():,} values of {name} are not, the "
            f"first ({tensor[first].item()}) at index {list(first)}. Nothing was written. Resume from the last "
            "checkpoint with a lower learning rate."
        )


def refuse_difference(path: Path, expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    """Raise `CheckpointError` if tensors differ from `expected` in names, shapes or `kind`, listing the differences."""
    both = [name for name in expected if name in found]
    shapes = [
        f"{shown(name)} (expected {list(expected[name].shape)}, found {list(found[name].shape)})"
        for name in both
        if expected[name].shape != found[name].shape
    ]
    kinds = [
        f"{shown(name)} (expected {kind(expected[name])}, found {kind(found[name])})"
        for name in both
        if kind(expected[name]) != kind(found[name])
    ]
    differences = {
        "missing": [shown(name) for name in expected if name not in found],
        "unexpected": [shown(name) for name in found if name not in expected],
        "of the wrong shape": shapes,
        "of the wrong type": kinds,
    }
    lines = [f"{len(each)} {how}: {listed(each)}" for how, each in differences.items() if each]
    if lines:
        raise CheckpointError(
            f"{path} does not match the model that the config.json beside it describes. Tensors: {'; '.join(lines)}. "
            "Use the config.json that was saved with these weights."
        )


def kind(tensor: Tensor) -> str:
    """Return the dtype's kind for comparison: all floating-point types that a model computes in count as equal."""
    return "a floating-point type" if tensor.dtype in FLOATS else str(tensor.dtype).removeprefix("torch.")


def shown(name: str) -> str:
    """Return a name read from a file, made safe and short for a terminal."""
    return name if len(name) <= 100 and name.isprintable() else f"{name[:60]!a}…"


def listed(names: list[str], most: int = 3) -> str:
    """Join the first few names and say how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
