"""Saving and loading checkpoints: a model with everything that belongs to it, in a folder that appears atomically.

    model.safetensors  optimizer.safetensors  config.json  tokenizer.json  state.json  MANIFEST.json

There is a `source_tokenizer.json` too if the source has its own vocabulary. No pickle is ever read or written.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer import __version__
from glassformer.base.errors import CheckpointError, DataError
from glassformer.base.typed import expect
from glassformer.data.dataset import Tokenizers
from glassformer.data.tokenizer import Labels, Tokenizer, tokenizer_from_json
from glassformer.nn.config import ModelConfig
from glassformer.nn.ensemble import refuse_ensemble
from glassformer.nn.transformer import Transformer
from glassformer.store.files import (
    DEEPEST,
    LARGEST,
    RESTORE,
    absolute,
    deeper_than,
    displaced,
    read_json,
    read_text,
    readable,
    refuse_unnamable,
    staged_folder,
    write_new,
)
from glassformer.store.folders import (
    CONFIG,
    FORMAT,
    MANIFEST,
    MODEL,
    OPTIMIZER,
    SOURCE_TOKENIZER,
    STATE,
    TOKENIZER,
    Found,
    Skipped,
    best_or_newest,
    check,
    last_complete,
    read_state,
    step_number,
    trains,
    write_manifest,
)
from glassformer.store.weights import (
    enough_memory,
    read_tensors,
    rebuild,
    refuse_non_finite,
    room_for,
    shown,
    stored_names,
    unique_weights,
    usable,
    write_tensors,
)

# A checkpoint in memory: everything that its folder will hold, from one moment; and writing it to that folder.

Moments = Mapping[str, Mapping[str, Tensor]]
"""State of an optimizer: parameter name -> slot (exp_avg, exp_avg_sq, step, …) -> tensor."""


@dataclass(frozen=True)
class Snapshot:
    """The files of a checkpoint that is not written yet."""

    tensors: dict[str, dict[str, Tensor]]
    """File -> name -> tensor."""
    texts: dict[str, bytes]

    def copied(self) -> Snapshot:
        """Return a copy in CPU memory of its own, which later changes to the model do not reach."""
        return Snapshot(
            {
                file: {name: tensor.detach().to("cpu", copy=True) for name, tensor in named.items()}
                for file, named in self.tensors.items()
            },
            self.texts,
        )

    @property
    def needed(self) -> int:
        """Estimate of the bytes that it takes on disk."""
        return sum(room_for(named) for named in self.tensors.values()) + sum(len(text) for text in self.texts.values())


def take_snapshot(
    model: Transformer,
    tokenizers: Tokenizers,
    *,
    optimizer: Moments | None = None,
    state: Mapping[str, Any] | None = None,
) -> Snapshot:
    """Return what `save` would write now. It changes with the model unless you take its `copied()`.

    Errors: `DivergedError` for NaN or infinity, `CheckpointError` for a state that is not plain JSON, `ConfigError`
    for an ensemble.
    """
    refuse_ensemble(model, "A checkpoint", "Save each member.")
    tensors = {MODEL: unique_weights(model)}
    refuse_non_finite(tensors[MODEL], "Weights")
    if optimizer is not None:
        tensors[OPTIMIZER] = flattened(optimizer, model)
        refuse_non_finite(tensors[OPTIMIZER], "The state of the optimizer")
    return Snapshot(tensors, texts_of(model, tokenizers, {} if state is None else state))


def write_snapshot(folder: Path, snapshot: Snapshot) -> Path:
    """Write a checkpoint at `folder` atomically, replacing one that is there. Errors: those of `save`."""
    refuse_unnamable(absolute(folder))
    refuse_foreign(folder)
    with staged_folder(folder, snapshot.needed) as staging:
        for name, named in snapshot.tensors.items():
            write_tensors(staging / name, named)
        for name, text in snapshot.texts.items():
            write_new(staging / name, text)
        write_manifest(staging)
    return folder


def refuse_foreign(folder: Path) -> None:
    """Raise `CheckpointError` if `folder` holds something other than a checkpoint."""
    with readable(folder):
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise CheckpointError(f"{folder} is a file or a link; a checkpoint is a folder. Choose another name.")
        ours = step_number(folder) is not None or (folder / MANIFEST).exists()
        if folder.is_dir() and not ours and any(folder.iterdir()):
            raise CheckpointError(f"{folder} holds something other than a checkpoint. Choose another name.")


def flattened(optimizer: Moments, model: Transformer) -> dict[str, Tensor]:
    """Return the optimizer's tensors by "slot/parameter". Errors: `CheckpointError` for a name that is no weight's."""
    names = stored_names(model)
    for name in optimizer:
        if names.get(name) != name:
            known = f"it is stored as {names[name]}" if name in names else "the model has no such weight"
            raise CheckpointError(
                f"The optimizer has state for {shown(name)}, but {known}. Use the names of named_parameters() as keys."
            )
    return {f"{slot}/{name}": tensor for name, slots in optimizer.items() for slot, tensor in slots.items()}


def texts_of(model: Transformer, tokenizers: Tokenizers, state: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the JSON files of a checkpoint, encoded."""
    refuse_small(model.config, tokenizers, "The model to be saved")
    versions = {"format": FORMAT, "glassformer": __version__, "torch": torch.__version__}
    texts = {
        CONFIG: json.dumps(model.config.to_dict(), indent=2),
        TOKENIZER: tokenizers.target.to_json(),
        STATE: json.dumps({**versions, "state": plain(state)}, indent=2),
    }
    if tokenizers.source is not tokenizers.target:  # two equal tokenizers stay two, as their embeddings do
        texts[SOURCE_TOKENIZER] = tokenizers.source.to_json()
    files = {name: text.encode("utf-8") for name, text in texts.items()}
    for name, data in files.items():
        if len(data) > LARGEST:
            raise CheckpointError(
                f"{name} must have at most {LARGEST:,} bytes, as no more is read; it would have {len(data):,}. Save a "
                "smaller state or vocabulary."
            )
    return files


def plain(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state if JSON preserves it exactly. Errors: `CheckpointError` naming the entry that would change."""
    for key, value in state.items():
        try:
            same = json.loads(json.dumps({key: value}, allow_nan=False)) == {key: value}
        except (TypeError, ValueError, RecursionError):
            same = False
        if not same or deeper_than(value, DEEPEST - 2):
            raise CheckpointError(
                f"state[{written(key)}] must be plain JSON (strings, finite numbers, True, False, None, lists, dicts "
                f"with string keys), so that it loads unchanged; got {written(value)}. Convert it before saving."
            )
    return dict(state)


def written(value: Any) -> str:
    """Return the start of a value's repr for a message; repr fails for numbers of 5,000 digits and for deep nesting."""
    try:
        return repr(value)[:60]
    except (ValueError, RecursionError):
        return f"a value that cannot be written out ({type(value).__name__})"


def refuse_small(config: ModelConfig, tokenizers: Tokenizers, where: str) -> None:
    """Raise `CheckpointError` if a tokenizer has more ids than the model, or a label set does not fit its head."""
    sizes = {"source": config.source_vocab_size or config.vocab_size, "target": config.vocab_size}
    for (side, size), tokenizer in zip(sizes.items(), tokenizers, strict=True):
        if isinstance(tokenizer, Labels):
            scored = getattr(config.head, "n_labels", None)
            if scored is not None and scored != len(tokenizer.entries):
                raise CheckpointError(
                    f"{where}: the label set has {len(tokenizer.entries)} labels, but the head scores {scored}. "
                    "Use the labels that the model was made for."
                )
        elif size is not None and tokenizer.vocab_size > size:
            raise CheckpointError(
                f"{where}: the {side} tokenizer has {tokenizer.vocab_size} ids, but the model reads {size}. "
                "Use the tokenizer that the model was made for."
            )


# Saving and loading checkpoints: a model with everything that belongs to it, in a folder that appears atomically.

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

    >>> from tempfile import TemporaryDirectory
    >>> from glassformer import ModelConfig, StackConfig, Transformer, load, save
    >>> from glassformer.data.config import TokenizerConfig
    >>> from glassformer.data.dataset import build_tokenizers
    >>> from glassformer.data.pairs import Pair
    >>> words = build_tokenizers(TokenizerConfig(kind="word"), [Pair("a b", "b a")])
    >>> stack = StackConfig(d_model=8, n_heads=2, n_layers=1, d_ff=8)
    >>> model = Transformer(ModelConfig(words.target.vocab_size, encoder=stack, decoder=stack))
    >>> with TemporaryDirectory() as folder:
    ...     load(save(f"{folder}/kept", model, words, state={"note": "any JSON"})).state["note"]
    'any JSON'
    """
    expect(tokenizers, Tokenizers, "tokenizers of save", "One for both sides: Tokenizers(tokenizer, tokenizer).")
    return write_snapshot(Path(folder), take_snapshot(model, tokenizers, optimizer=optimizer, state=state))


def load(folder: Path | str, *, device: str | torch.device = "cpu", verify: bool = True) -> Loaded:
    """Load a checkpoint folder; or, from a run folder, the checkpoint that its state calls best, else the newest one.

    `verify` compares the SHA-256 of every file that is read; their sizes are always compared. The optimizer's file is
    not read, so it may be missing.
    Errors: `CheckpointError` naming the file, what was expected and what was found; `ConfigError` for the device;
    `ResourceError` if the model does not fit into memory.

    >>> from tempfile import TemporaryDirectory
    >>> from glassformer import ModelConfig, StackConfig, Transformer, load, save
    >>> from glassformer.data.config import TokenizerConfig
    >>> from glassformer.data.dataset import build_tokenizers
    >>> from glassformer.data.pairs import Pair
    >>> words = build_tokenizers(TokenizerConfig(kind="word"), [Pair("a b", "b a")])
    >>> stack = StackConfig(d_model=8, n_heads=2, n_layers=1, d_ff=8)
    >>> model = Transformer(ModelConfig(words.target.vocab_size, encoder=stack, decoder=stack))
    >>> with TemporaryDirectory() as folder:
    ...     loaded = load(save(f"{folder}/kept", model, words))
    >>> loaded.model.config == model.config, loaded.tokenizers.target.decode(words.target.encode("b a"))
    (True, 'b a')
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


def load_optimizer(folder: Path | str, *, device: str | torch.device = "cpu") -> dict[str, dict[str, Tensor]]:
    """Load the optimizer state of a checkpoint, by parameter name, as `save` got it; `folder` as for `load`."""
    place = usable(device)
    found, _ = find(Path(folder), hashed=True)
    if OPTIMIZER not in check(found, read=(OPTIMIZER,)):
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


# Checkpoint averaging: load the mean of the weights of a run's last checkpoints as one model.

ALIKE = (CONFIG, TOKENIZER, SOURCE_TOKENIZER)
"""The files that must be identical in checkpoints that are averaged."""


def load_mean(run: Path, count: int, *, device: str | torch.device = "cpu") -> Loaded:
    """Load the newest complete checkpoint with the mean weights of the newest `count` (Vaswani et al. 2017, 6.1).

    The sum is in float64, whatever the dtype of the weights; tied weights stay tied. Damaged checkpoints are skipped
    and listed in `skipped`. Errors: `CheckpointError` if fewer are complete or if they differ in model or vocabulary;
    those of `load`.
    """
    folders, skipped = last_complete(run, count, read=READ)
    if len(folders) < count:
        raise CheckpointError(
            f"Averaging {count} checkpoints needs {count} complete ones; {run} has {len(folders)}. "
            f"{' '.join(each.reason for each in skipped[:2])}{' ' if skipped else ''}Train with --checkpoint.keep "
            f"{count} to keep that many, or average fewer."
        )
    refuse_unlike(folders)
    first = load(folders[0], device=device, verify=False)
    sums: dict[str, Tensor] = {name: each.detach().double() for name, each in first.model.named_parameters()}
    for folder in folders[1:]:
        for name, each in load(folder, device=device, verify=False).model.named_parameters():
            sums[name] += each.detach()
    with torch.no_grad():
        for name, each in first.model.named_parameters():
            each.copy_(sums[name] / len(folders))
    return replace(first, skipped=skipped)


def refuse_unlike(folders: list[Path]) -> None:
    """Raise `CheckpointError`, naming both and the file, if checkpoints differ in model or vocabulary."""
    newest = check(folders[0], read=READ, hashed=False)
    for folder in folders[1:]:
        other = check(folder, read=READ, hashed=False)
        for name in ALIKE:
            if newest.get(name) != other.get(name):
                raise CheckpointError(
                    f"Averaged checkpoints must have the same model and vocabulary, but {folders[0].name} and "
                    f"{folder.name} differ in {name}. Average only those after the change."
                )
