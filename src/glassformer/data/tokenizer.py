"""The registry of tokenizers: one line here makes a new kind known to configs, checkpoints and contract tests."""

from __future__ import annotations

from typing import cast

from glassformer.base.errors import DataError
from glassformer.data.tokens.sentencepiece import SentencePieceTokenizer
from glassformer.data.tokens.subword import (
    BytePairTokenizer,
    ByteTokenizer,
    Subword,
    UnigramTokenizer,
    WordPieceTokenizer,
)
from glassformer.data.tokens.vocabulary import BLANK, BOS, EOS, PAD, SEP, SPECIALS, THE_FILE, UNK, Tokenizer, read_json
from glassformer.data.tokens.words import CharacterTokenizer, Labels, WordTokenizer
from glassformer.data.trajectories.spaces import Spaces

__all__ = [
    "BLANK",
    "BOS",
    "EOS",
    "PAD",
    "SEP",
    "SPECIALS",
    "TOKENIZERS",
    "UNK",
    "BytePairTokenizer",
    "ByteTokenizer",
    "CharacterTokenizer",
    "Labels",
    "Tokenizer",
    "UnigramTokenizer",
    "WordPieceTokenizer",
    "WordTokenizer",
    "tokenizer_from_json",
]

TOKENIZERS: dict[str, type[Tokenizer]] = {
    "word": WordTokenizer,
    "character": CharacterTokenizer,
    "byte": ByteTokenizer,
    "bpe": BytePairTokenizer,
    "wordpiece": WordPieceTokenizer,
    "unigram": UnigramTokenizer,
}

_STORED: dict[str, type[Tokenizer]] = {
    **TOKENIZERS,
    "sentencepiece": SentencePieceTokenizer,
    Labels.kind: Labels,
    Spaces.kind: Spaces,
}
"""What a file may hold: also an imported vocabulary of SentencePiece, a label set, made from labels, and the spaces of
trajectories; none of them can be chosen."""


def tokenizer_from_json(text: str) -> Tokenizer:
    """Read the tokenizer that any `to_json` wrote. A file of the `tokenizers` library tells its kind by its model."""
    record = read_json(text)
    kind = record.get("kind", _kind_of(record["model"]) if "model" in record else None)
    if not isinstance(kind, str) or kind not in _STORED:
        raise DataError(
            f"A tokenizer file must name its kind ({', '.join(TOKENIZERS)}) or be one of the `tokenizers` library, "
            f"but this one has kind {kind!r}. {THE_FILE}"
        )
    return _STORED[kind].from_json(text)


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
