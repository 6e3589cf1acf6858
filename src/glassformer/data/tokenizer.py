"""The registry of tokenizers: one line here makes a new kind known to configs, checkpoints and contract tests."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from glassformer.base.errors import DataError
from glassformer.data.kinds import KINDS
from glassformer.data.tokens.sentencepiece import SentencePieceTokenizer
from glassformer.data.tokens.subword import (
    BytePairTokenizer,
    ByteTokenizer,
    Subword,
    UnigramTokenizer,
    WordPieceTokenizer,
)
from glassformer.data.tokens.vocabulary import (
    THE_FILE,
    CharacterTokenizer,
    Labels,
    Tokenizer,
    WordTokenizer,
    read_json,
)

TOKENIZERS: dict[str, type[Tokenizer]] = {
    "word": WordTokenizer,
    "character": CharacterTokenizer,
    "byte": ByteTokenizer,
    "bpe": BytePairTokenizer,
    "wordpiece": WordPieceTokenizer,
    "unigram": UnigramTokenizer,
}

_STORED: dict[str, type[Tokenizer]] = {**TOKENIZERS, "sentencepiece": SentencePieceTokenizer, Labels.kind: Labels}
"""What a file may hold: also an imported vocabulary of SentencePiece, and a label set, made from labels; neither can be
chosen. Further ones belong to a kind of task: `Kind.stored`."""


def tokenizer_from_json(text: str) -> Tokenizer:
    """Read the tokenizer that any `to_json` wrote. A file of the `tokenizers` library tells its kind by its model."""
    record = read_json(text)
    kind = record.get("kind", _kind_of(record["model"]) if "model" in record else None)
    found = stored_as(kind) if isinstance(kind, str) else None
    if found is None:
        raise DataError(
            f"A tokenizer file must name its kind ({', '.join(TOKENIZERS)}) or be one of the `tokenizers` library, "
            f"but this one has kind {kind!r}. {THE_FILE}"
        )
    return found.from_json(text)


def stored_as(kind: str) -> type[Tokenizer] | None:
    """The class of what a file of this kind holds; None if there is none."""
    if kind in KINDS and (place := KINDS[kind].stored):
        module, _, name = place.partition(":")
        return getattr(import_module(module), name)
    return _STORED.get(kind)


def _kind_of(model: object) -> str:
    """Our name for a model of the library; bpe if it names none, as the library itself assumes."""
    settings = cast("dict[str, object]", model) if isinstance(model, dict) else {}
    name = settings.get("type")
    kinds = {cls.model: kind for kind, cls in TOKENIZERS.items() if issubclass(cls, Subword)}
    if name in (BytePairTokenizer.model, None) and settings.get("byte_fallback") is True:
        return "sentencepiece"
    if name is None:
        return BytePairTokenizer.kind
    if not isinstance(name, str) or name not in kinds:
        raise DataError(
            f"A file of the `tokenizers` library must hold one of the models {', '.join(kinds)}; got {name!r:.60}. "
            f"{THE_FILE}"
        )
    return kinds[name]
