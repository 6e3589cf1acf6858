"""Writing a model as a Hugging Face folder, which transformers loads: config, weights and tokenizer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.base.errors import CheckpointError, ConfigError
from glassformer.data.tokenizer import Tokenizer
from glassformer.data.tokens.exported import LISTED, exported, names_of
from glassformer.data.tokens.subword import Subword
from glassformer.data.tokens.vocabulary import BOS, EOS, PAD, SPECIALS, UNK
from glassformer.nn.config import ModelConfig
from glassformer.nn.outputs import Lm
from glassformer.nn.transformer import Transformer
from glassformer.store.families import FAMILIES
from glassformer.store.family import Family
from glassformer.store.files import absolute, readable, refuse_unnamable, staged_folder, write_new
from glassformer.store.pretrained import CONFIG, ENDS, GENERATION, TOKENIZER, TOKENIZER_CONFIG, WEIGHTS
from glassformer.store.weights import INPUT, Kept, kept_rows, room_for, selected, unique_weights, write_tensors


class Exported(NamedTuple):
    """What was written."""

    family: str
    parameters: int
    tokens: int
    notes: list[str]
    """What a user should know about differences between the two."""


class Text(NamedTuple):
    """How the model reads and writes a text."""

    begins: bool
    """Whether <bos> comes before it."""
    never: Sequence[int]
    """Our ids that no text has, and so are never written."""
    longest: int
    """The most tokens that it reads, if its config does not say."""


def write_pretrained(folder: Path, model: Transformer, tokenizer: Tokenizer, text: Text, *, named: object) -> Exported:
    """Write a decoder as a new folder, atomically; `named` is what messages call the model.

    Errors: `ConfigError` for a model that no family has, `CheckpointError` for a folder that is in use, `DataError` for
    a tokenizer that has no tokenizer.json, and those of writing.
    """
    refuse_used(folder)
    refuse_other_model(model.config, named)
    name, family = family_for(model.config, named)
    unknown = isinstance(tokenizer, LISTED) or (isinstance(tokenizer, Subword) and bool(tokenizer.lacking))
    needed = [*([BOS] if text.begins and tokenizer.begins else []), *([UNK] if unknown else [])]
    kept = kept_rows(model.config, unique_weights(model), needed)
    config, weights = selected(model.config, unique_weights(model), kept)
    tensors = family.export(weights, config.stack.n_heads)
    dtype = str(weights[INPUT].dtype).removeprefix("torch.")
    several = {ENDS[EOS]: [kept.place(id) for id in (EOS, *tokenizer.ends)]} if tokenizer.ends else {}
    texts = {
        CONFIG: {"torch_dtype": dtype} | config_of(name, family, config, text) | ends_of(kept, *ENDS) | several,
        GENERATION: ends_of(kept, BOS, EOS, PAD) | several | {"suppress_tokens": suppressed(kept, text)},
        TOKENIZER_CONFIG: tokenizer_config(kept, text, config, names_of(tokenizer)),
    }
    files = {name: json.dumps(each, indent=2).encode() for name, each in texts.items()}
    files[TOKENIZER] = exported(tokenizer, kept.ids, kept.stands_for(BOS) if text.begins else None).encode()
    with staged_folder(folder, room_for(tensors) + sum(map(len, files.values()))) as staging:
        write_tensors(staging / WEIGHTS, tensors, {"format": "pt"})
        for file, data in files.items():
            write_new(staging / file, data)
    return Exported(name, sum(each.numel() for each in tensors.values()), len(kept.ids), vocabulary_notes(kept))


def vocabulary_notes(kept: Kept) -> list[str]:
    """What is different there, if anything is."""
    names = ", ".join(SPECIALS[id] if id < len(SPECIALS) else f"id {id}" for id in kept.silent)
    if not names:
        return []
    return [f"never written by this run: {names}; transformers computes a logit for each, and generate suppresses it"]


def refuse_used(folder: Path) -> None:
    """Refuse a path that is taken, except by an empty folder. Errors: `CheckpointError`."""
    refuse_unnamable(absolute(folder))
    with readable(folder):
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise CheckpointError(f"An export writes a new folder; {folder} is a file or a link. Choose another name.")
        if folder.is_dir() and any(folder.iterdir()):
            raise CheckpointError(
                f"An export writes a new folder; {folder} exists and is not empty. Choose another name, or delete it."
            )


def refuse_other_model(config: ModelConfig, named: object) -> None:
    """Refuse a model that is no decoder over tokens. Errors: `ConfigError`."""
    if config.encoder is not None or config.decoder is None:
        raise ConfigError(
            f"Only decoders can be exported, which have no encoder; {named} has one. Export a language model "
            "(glassformer train lm)."
        )
    if config.head.kind != Lm.kind or config.vocab_size is None or config.decoder.n_features is not None:
        raise ConfigError(
            f"Only models that read and predict tokens can be exported; the head of {named} is {config.head.kind!r}. "
            "Export a language model (glassformer train lm)."
        )


def family_for(config: ModelConfig, named: object) -> tuple[str, Family]:
    """The first family that has a model. Errors: `ConfigError` with what each family needs, the nearest first."""
    found = {name: each.shape.misfits(config) for name, each in FAMILIES.items() if each.shape is not None}
    nearest = sorted(found, key=lambda name: len(found[name]))
    if not found[nearest[0]]:
        return nearest[0], FAMILIES[nearest[0]]
    needs = "; ".join(f"{name} needs {', '.join(map(str, found[name]))}" for name in nearest)
    raise ConfigError(
        f"A model can be exported if all of its settings are those of one family in transformers; {named} fits none: "
        f"{needs}. Train a model with the settings of one family."
    )


def config_of(name: str, family: Family, config: ModelConfig, text: Text) -> dict[str, Any]:
    """The contents of config.json, except the ids of special tokens."""
    stack = config.stack
    if stack.max_len is None:
        scaled = round((stack.rotary.original_max_len or 0) * (stack.rotary.factor or 1))
        config = replace(config, decoder=replace(stack, max_len=max(text.longest, scaled)))
    assert family.shape is not None
    return {"architectures": [family.architecture], "model_type": name} | family.shape.write(config)


def ends_of(kept: Kept, *ids: int) -> dict[str, int | None]:
    """The settings that name the ids of special tokens; null for one that is absent."""
    return {ENDS[id]: kept.place(id) for id in ids}


def suppressed(kept: Kept, text: Text) -> list[int]:
    """The ids of the exported model that it must not write."""
    never = {*text.never, *kept.silent}
    return [new for new, old in enumerate(kept.ids) if old in never]


def tokenizer_config(kept: Kept, text: Text, config: ModelConfig, special: Sequence[str]) -> dict[str, Any]:
    """The contents of tokenizer_config.json: special tokens are never found in a text, and no space is cleaned up.

    `special`: their names in the file of the tokenizer.
    """
    names = {"bos_token": BOS, "eos_token": EOS, "unk_token": UNK, "pad_token": PAD}
    own = {name: special[kept.stands_for(id)] for name, id in names.items() if kept.place(id) is not None}
    fast = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    return fast | {"split_special_tokens": True, "model_max_length": config.stack.max_len or text.longest} | own
