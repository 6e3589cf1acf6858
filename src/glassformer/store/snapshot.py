"""A checkpoint in memory: everything that its folder will hold, from one moment; and writing it to that folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer import __version__
from glassformer.base.errors import CheckpointError
from glassformer.data.dataset import Tokenizers
from glassformer.data.tokenizer import Labels
from glassformer.nn.config import ModelConfig
from glassformer.nn.ensemble import refuse_ensemble
from glassformer.nn.transformer import Transformer
from glassformer.store.files import refuse_unnamable, write_new
from glassformer.store.folders import CONFIG, FORMAT, MODEL, OPTIMIZER, SOURCE_TOKENIZER, STATE, TOKENIZER, step_number
from glassformer.store.json_file import DEEPEST, LARGEST, deeper_than, readable
from glassformer.store.leftovers import absolute
from glassformer.store.manifest import MANIFEST, write_manifest
from glassformer.store.staging import staged_folder
from glassformer.store.tensors import refuse_non_finite, room_for, shown, write_tensors
from glassformer.store.weights import stored_names, unique_weights

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
    for a committee.
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
            refuse_labels(config, tokenizer, where)
        elif size is not None and tokenizer.vocab_size > size:
            raise CheckpointError(
                f"{where}: the {side} tokenizer has {tokenizer.vocab_size} ids, but the model reads {size}. "
                "Use the tokenizer that the model was made for."
            )


def refuse_labels(config: ModelConfig, labels: Labels, where: str) -> None:
    """Raise `CheckpointError` if there are more or fewer labels than the head scores."""
    scored = getattr(config.head, "n_labels", None)
    if scored is not None and scored != len(labels.entries):
        raise CheckpointError(
            f"{where}: the label set has {len(labels.entries)} labels, but the head scores {scored}. "
            "Use the labels that the model was made for."
        )
