"""Save and load: a model with everything that belongs to it, in a folder that is whole or not there.

    model.safetensors  optimizer.safetensors  config.json  tokenizer.json  state.json  MANIFEST.json

`source_tokenizer.json` is there when the source has a vocabulary of its own. No pickle is read or written, in any case.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer import __version__
from glassformer.data.dataset import Tokenizers
from glassformer.data.tokenizer import Labels, Tokenizer, tokenizer_from_json
from glassformer.foundation.errors import CheckpointError, DataError
from glassformer.model.config import ModelConfig
from glassformer.model.transformer import Transformer
from glassformer.store.files import write_new
from glassformer.store.folders import (
    CONFIG,
    FORMAT,
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
    step_number,
)
from glassformer.store.json_file import DEEPEST, LARGEST, RESTORE, deeper_than, read_json, read_text, readable
from glassformer.store.leftovers import displaced
from glassformer.store.manifest import MANIFEST, write_manifest
from glassformer.store.staging import staged_folder
from glassformer.store.tensors import read_tensors, refuse_non_finite, room_for, shown, write_tensors
from glassformer.store.weights import enough_memory, rebuild, stored_names, unique_weights, usable

PICKLES = (".bin", ".ckpt", ".pkl", ".pickle", ".pt", ".pth")
READ = (MODEL, CONFIG, TOKENIZER, SOURCE_TOKENIZER, STATE)
"""What `load` reads: all but the optimizer."""

Moments = Mapping[str, Mapping[str, Tensor]]
"""State of an optimizer: parameter name -> what it keeps (exp_avg, exp_avg_sq, step, …) -> tensor."""


@dataclass(frozen=True)
class Loaded:
    """What a checkpoint held. The model is in evaluation mode."""

    model: Transformer
    tokenizers: Tokenizers
    state: dict[str, Any]
    folder: Path
    """The checkpoint that was loaded."""
    skipped: tuple[Skipped, ...]
    """Damaged checkpoints of the run that were passed over for it."""


def save(
    folder: Path | str,
    model: Transformer,
    tokenizers: Tokenizers,
    *,
    optimizer: Moments | None = None,
    state: Mapping[str, Any] | None = None,
) -> Path:
    """Write a checkpoint at `folder`, whole or not at all; a checkpoint that is there is replaced. Returns the folder.

    `state` is any plain JSON: it comes back equal. Tied weights are stored once.
    Errors: `DivergedError` for NaN or infinity, `ResourceError` for a full disk, `CheckpointError` for a folder that
    cannot be written or holds something else. All of them leave every earlier checkpoint as it was.
    """
    folder = Path(folder)
    refuse_foreign(folder)
    tensors = {MODEL: unique_weights(model)}
    refuse_non_finite(tensors[MODEL], "Weights")
    if optimizer is not None:
        tensors[OPTIMIZER] = flattened(optimizer, model)
        refuse_non_finite(tensors[OPTIMIZER], "The state of the optimizer")
    texts = texts_of(model, tokenizers, {} if state is None else state)
    needed = sum(room_for(named) for named in tensors.values()) + sum(len(text) for text in texts.values())
    with staged_folder(folder, needed) as staging:
        for name, named in tensors.items():
            write_tensors(staging / name, named)
        for name, text in texts.items():
            write_new(staging / name, text)
        write_manifest(staging)
    return folder


def load(folder: Path | str, *, device: str | torch.device = "cpu", verify: bool = True) -> Loaded:
    """Read a checkpoint folder, or of a run folder the checkpoint that its state calls best, else the newest one.

    `verify` compares the SHA-256 of every file that is read; sizes are compared always.
    Errors: `CheckpointError` naming file, what was expected and what was found; `ConfigError` for the device;
    `ResourceError` when the model does not fit into memory.
    """
    place, hashed = usable(device), READ if verify else ()
    found, skipped = find(Path(folder), hashed)
    entries = check(found, hashed=hashed)
    sides = [read_tokenizer(found / name) for name in (SOURCE_TOKENIZER, TOKENIZER) if name in entries]
    tokenizers = Tokenizers(sides[0], sides[-1])
    model = rebuild(read_json(found / CONFIG), read_tensors(found / MODEL), found, place)
    refuse_small(model.config, tokenizers, str(found))
    return Loaded(model, tokenizers, read_state(found), found, skipped)


def load_optimizer(
    folder: Path | str, *, device: str | torch.device = "cpu", verify: bool = True
) -> dict[str, dict[str, Tensor]]:
    """The state of the optimizer in a checkpoint, by parameter name, as `save` got it; `folder` as for `load`."""
    place, hashed = usable(device), (OPTIMIZER,) if verify else ()
    found, _ = find(Path(folder), READ if verify else ())
    if OPTIMIZER not in check(found, hashed=hashed):
        raise CheckpointError(f"{found} has no {OPTIMIZER}, so training cannot go on from it. Use one that has.")
    weights = read_tensors(found / MODEL)
    optimizer: dict[str, dict[str, Tensor]] = {name: {} for name in weights}
    tensors = read_tensors(found / OPTIMIZER)
    for key, tensor in tensors.items():
        slot, _, name = key.partition("/")
        if name not in weights or (slot.startswith("exp_avg") and tensor.shape != weights[name].shape):
            raise CheckpointError(f"{found / OPTIMIZER}: {shown(key)} fits no weight in {MODEL}. {RESTORE}")
        with enough_memory(f"The optimizer in {found}", tensors, place):
            optimizer[name][slot] = tensor.to(place, copy=True)
    return {name: slots for name, slots in optimizer.items() if slots}


def find(folder: Path, hashed: tuple[str, ...]) -> tuple[Path, tuple[Skipped, ...]]:
    """The checkpoint that `folder` is or, as a run, has, and those passed over. Errors: `CheckpointError` for none."""
    with readable(folder):
        folder = displaced(folder) or folder
        if (folder / MANIFEST).exists():
            return folder, ()
        if not folder.is_dir():
            what = "is a file; give the folder it is in" if folder.exists() else "does not exist; check the name"
            raise CheckpointError(f"{folder} {what}.")
        names = sorted(path.name for path in folder.iterdir())
    found = best_or_newest(folder, hashed=hashed)
    if found.folder is not None:
        return found.folder, found.skipped
    raise CheckpointError(nothing_found(folder, names, found))


def nothing_found(folder: Path, names: list[str], found: Found) -> str:
    """The message for a folder without a checkpoint that can be loaded: what it seems to be, and what to do."""
    if found.skipped:
        reasons = " ".join(each.reason for each in found.skipped[:2])
        return f"{folder} has no complete checkpoint; {len(found.skipped)} were looked at. {reasons}"
    pickle = next((name for name in names if name.endswith(PICKLES)), None)
    advice = "Train first, or give another folder."
    if CONFIG in names:
        advice = "It looks like a Hugging Face folder; bring it in with `glassformer import`."
    elif pickle is not None:
        advice = f"{shown(pickle)} is a pickle, which can run code when it is read and so never is."
    return f"{folder} is neither a checkpoint (it has no {MANIFEST}) nor a run that has one. {advice}"


def refuse_foreign(folder: Path) -> None:
    """Refuse to write a checkpoint over something that is none."""
    with readable(folder):
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise CheckpointError(f"{folder} is a file or a link; a checkpoint is a folder. Choose another name.")
        ours = step_number(folder) is not None or (folder / MANIFEST).exists()
        if folder.is_dir() and not ours and any(folder.iterdir()):
            raise CheckpointError(f"{folder} holds something other than a checkpoint. Choose another name.")


def flattened(optimizer: Moments, model: Transformer) -> dict[str, Tensor]:
    """The optimizer's tensors by "slot/parameter". Errors: `CheckpointError` for a name that is no weight's."""
    names = stored_names(model)
    for name in optimizer:
        if names.get(name) != name:
            known = f"it is stored as {names[name]}" if name in names else "the model has no such weight"
            raise CheckpointError(
                f"The optimizer has state for {shown(name)}, but {known}. Key it by named_parameters()."
            )
    return {f"{slot}/{name}": tensor for name, slots in optimizer.items() for slot, tensor in slots.items()}


def texts_of(model: Transformer, tokenizers: Tokenizers, state: Mapping[str, Any]) -> dict[str, bytes]:
    """The JSON files of a checkpoint."""
    refuse_small(model.config, tokenizers, "The model to be saved")
    versions = {"format": FORMAT, "glassformer": __version__, "torch": torch.__version__}
    texts = {
        CONFIG: json.dumps(model.config.to_dict(), indent=2),
        TOKENIZER: tokenizers.target.to_json(),
        STATE: json.dumps({**versions, "state": plain(state)}, indent=2),
    }
    if tokenizers.source is not tokenizers.target:  # two that hold the same are two, as their embeddings are
        texts[SOURCE_TOKENIZER] = tokenizers.source.to_json()
    files = {name: text.encode("utf-8") for name, text in texts.items()}
    for name, data in files.items():
        if len(data) > LARGEST:
            raise CheckpointError(f"{name} would have {len(data):,} bytes, but at most {LARGEST:,} are read again.")
    return files


def plain(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state, if JSON gives it back as it is. Errors: `CheckpointError` naming the entry that would change."""
    for key, value in state.items():
        try:
            same = json.loads(json.dumps({key: value}, allow_nan=False)) == {key: value}
        except (TypeError, ValueError, RecursionError):
            same = False
        if not same or deeper_than(value, DEEPEST - 2):
            raise CheckpointError(
                f"state[{key!r}] must be plain JSON (text, finite numbers, true, false, none, lists, objects with text "
                f"keys), to come back as it was; got {str(value)[:60]!r}. Convert it before saving."
            )
    return dict(state)


def read_tokenizer(path: Path) -> Tokenizer:
    """A tokenizer from its file."""
    try:
        return tokenizer_from_json(read_text(path))
    except DataError as error:
        raise CheckpointError(f"{path}: {error}") from error


def refuse_small(config: ModelConfig, tokenizers: Tokenizers, where: str) -> None:
    """Refuse tokenizers that give ids which the model does not have, and a label set that is not that of its head."""
    sizes = {"source": config.source_vocab_size or config.vocab_size, "target": config.vocab_size}
    for (side, size), tokenizer in zip(sizes.items(), tokenizers, strict=True):
        if isinstance(tokenizer, Labels):
            refuse_labels(config, tokenizer, where)
        elif size is not None and tokenizer.vocab_size > size:
            raise CheckpointError(
                f"{where}: the {side} tokenizer has {tokenizer.vocab_size} ids, but the model reads {size}. "
                "Use the tokenizer that the model was made for."
            )


def refuse_labels(config: ModelConfig, labels: Labels, where: str) -> None:
    """Refuse more or fewer labels than the head scores."""
    scored = getattr(config.head, "n_labels", None)
    if scored is not None and scored != len(labels.entries):
        raise CheckpointError(
            f"{where}: the label set has {len(labels.entries)} labels, but the head scores {scored}. "
            "Use the labels that the model was made for."
        )
