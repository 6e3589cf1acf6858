"""Saving and loading checkpoints: a model with everything that belongs to it, in a folder that appears atomically.

    model.safetensors  optimizer.safetensors  config.json  tokenizer.json  state.json  MANIFEST.json

There is a `source_tokenizer.json` too if the source has its own vocabulary. No pickle is ever read or written.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.base.errors import CheckpointError, DataError
from glassformer.data.dataset import Tokenizers
from glassformer.data.tokenizer import Tokenizer, tokenizer_from_json
from glassformer.nn.transformer import Transformer
from glassformer.store.files import refuse_unnamable
from glassformer.store.folders import (
    CONFIG,
    MODEL,
    OPTIMIZER,
    SOURCE_TOKENIZER,
    STATE,
    TOKENIZER,
    Found,
    Skipped,
    best_or_newest,
    check,
    read_state,
)
from glassformer.store.json_file import RESTORE, read_json, read_text, readable
from glassformer.store.leftovers import displaced
from glassformer.store.lock import trains
from glassformer.store.manifest import MANIFEST
from glassformer.store.snapshot import Moments, refuse_small, take_snapshot, write_snapshot
from glassformer.store.tensors import read_tensors, shown
from glassformer.store.weights import enough_memory, rebuild, usable

PICKLES = (".bin", ".ckpt", ".pkl", ".pickle", ".pt", ".pth")
READ = (MODEL, CONFIG, TOKENIZER, SOURCE_TOKENIZER, STATE)
"""The files that `load` reads: all but the optimizer's."""


@dataclass(frozen=True)
class Loaded:
    """The contents of a checkpoint. The model is in evaluation mode."""

    model: Transformer
    tokenizers: Tokenizers
    state: dict[str, Any]
    folder: Path
    """The checkpoint that was loaded."""
    skipped: tuple[Skipped, ...]
    """Damaged checkpoints of the run that were skipped."""


def save(
    folder: Path | str,
    model: Transformer,
    tokenizers: Tokenizers,
    *,
    optimizer: Moments | None = None,
    state: Mapping[str, Any] | None = None,
) -> Path:
    """Write a checkpoint at `folder` atomically, replacing one that is there. Returns the folder.

    `state` may be any plain JSON and is loaded back equal. Tied weights are stored once.
    Errors: `DivergedError` for NaN or infinity, `ResourceError` for a full disk, `CheckpointError` for a folder that
    cannot be written or holds something else. After an error, every earlier checkpoint is as it was.
    """
    return write_snapshot(Path(folder), take_snapshot(model, tokenizers, optimizer=optimizer, state=state))


def load(folder: Path | str, *, device: str | torch.device = "cpu", verify: bool = True) -> Loaded:
    """Load a checkpoint folder; or, from a run folder, the checkpoint that its state calls best, else the newest one.

    `verify` compares the SHA-256 of every file that is read; their sizes are always compared. The optimizer's file is
    not read, so it may be missing.
    Errors: `CheckpointError` naming the file, what was expected and what was found; `ConfigError` for the device;
    `ResourceError` if the model does not fit into memory.
    """
    place = usable(device)
    found, skipped = find(Path(folder), hashed=verify)
    try:
        return _read(found, skipped, place, hashed=verify)
    except CheckpointError:
        if found == Path(folder) or (found / MANIFEST).exists():
            raise
    return load(folder, device=device, verify=verify)  # training has just deleted it and has a newer one


def _read(found: Path, skipped: tuple[Skipped, ...], place: torch.device, *, hashed: bool) -> Loaded:
    entries = check(found, read=READ, hashed=hashed)
    sides = [read_tokenizer(found / name) for name in (SOURCE_TOKENIZER, TOKENIZER) if name in entries]
    tokenizers = Tokenizers(sides[0], sides[-1])
    model = rebuild(read_json(found / CONFIG), read_tensors(found / MODEL), found, place)
    refuse_small(model.config, tokenizers, str(found))
    return Loaded(model, tokenizers, read_state(found), found, skipped)


def load_optimizer(
    folder: Path | str, *, device: str | torch.device = "cpu", verify: bool = True
) -> dict[str, dict[str, Tensor]]:
    """Load the optimizer state of a checkpoint, by parameter name, as `save` got it; `folder` as for `load`."""
    place = usable(device)
    found, _ = find(Path(folder), hashed=verify)
    if OPTIMIZER not in check(found, read=(OPTIMIZER,), hashed=verify):
        raise CheckpointError(
            f"{found} has no {OPTIMIZER}, so training cannot resume from it. Use a checkpoint that has one."
        )
    weights = read_tensors(found / MODEL)
    optimizer: dict[str, dict[str, Tensor]] = {name: {} for name in weights}
    tensors = read_tensors(found / OPTIMIZER)
    for key, tensor in tensors.items():
        slot, _, name = key.partition("/")
        if name not in weights or (slot.startswith("exp_avg") and tensor.shape != weights[name].shape):
            raise CheckpointError(
                f"{found / OPTIMIZER}: {shown(key)} does not match the name and shape of any weight in {MODEL}. "
                f"{RESTORE}"
            )
        with enough_memory(f"The optimizer in {found}", tensors, place):
            optimizer[name][slot] = tensor.to(place, copy=True)
    return {name: slots for name, slots in optimizer.items() if slots}


def find(folder: Path, *, hashed: bool) -> tuple[Path, tuple[Skipped, ...]]:
    """Return the checkpoint that `folder` is or, if it is a run folder, contains; and the skipped ones.

    `hashed` as for `check`, of what `load` reads.

    Errors: `CheckpointError` if there is none.
    """
    refuse_unnamable(folder)
    with readable(folder):
        folder = displaced(folder) or folder
        if (folder / MANIFEST).exists():
            return folder, ()
        if not folder.is_dir():
            what = "is a file; give the folder it is in" if folder.exists() else "does not exist; check the name"
            raise CheckpointError(f"{folder} {what}.")
        names = sorted(path.name for path in folder.iterdir())
    found = best_or_newest(folder, read=READ, hashed=hashed)
    if found.folder is not None:
        return found.folder, found.skipped
    raise CheckpointError(nothing_found(folder, names, found))


def nothing_found(folder: Path, names: list[str], found: Found) -> str:
    """Return the message for a folder without a loadable checkpoint: what the folder seems to be, and what to do."""
    if found.skipped:
        reasons = " ".join(each.reason for each in found.skipped[:2])
        checked = "1 was" if len(found.skipped) == 1 else f"{len(found.skipped)} were"
        return f"{folder} has no complete checkpoint; {checked} checked. {reasons}"
    pickle = next((name for name in names if name.endswith(PICKLES)), None)
    advice = "Train first, or give another folder."
    if CONFIG in names:
        advice = (
            f"If Hugging Face's transformers saved it, make a run of it: glassformer import {shlex.quote(str(folder))}"
            " (if it is an incomplete copy of a checkpoint, copy it again)."
        )
    elif trains(folder):
        advice = "It is being trained, and has not saved its first one yet. Wait for it: --checkpoint.every says when."
    elif "recipe.toml" in names:
        advice = (
            f"The run was stopped before its first one. Go on with it: glassformer resume {shlex.quote(str(folder))}"
        )
    elif pickle is not None:
        advice = (
            f"{shown(pickle)} is a pickle, which is never read, because reading one can run code. Give another folder."
        )
    return f"{folder} is neither a checkpoint (it has no {MANIFEST}) nor a run folder with one. {advice}"


def read_tokenizer(path: Path) -> Tokenizer:
    """Read a tokenizer from its file. Errors: `CheckpointError`."""
    try:
        return tokenizer_from_json(read_text(path))
    except DataError as error:
        raise CheckpointError(f"{path}: {error}") from error
