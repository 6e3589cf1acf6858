"""The index of tokenizers: one line here makes a new kind known to configs, checkpoints and contract tests."""

from __future__ import annotations

from glassformer.data.bytewise import ByteTokenizer
from glassformer.data.subword import BytePairTokenizer
from glassformer.data.vocabulary import BLANK, BOS, EOS, PAD, SEP, SPECIALS, UNK, Tokenizer, read_json
from glassformer.data.words import CharacterTokenizer, Labels, WordTokenizer
from glassformer.foundation.errors import DataError

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
    "WordTokenizer",
    "tokenizer_from_json",
]

TOKENIZERS: dict[str, type[Tokenizer]] = {
    "word": WordTokenizer,
    "character": CharacterTokenizer,
    "byte": ByteTokenizer,
    "bpe": BytePairTokenizer,
}

_STORED: dict[str, type[Tokenizer]] = {**TOKENIZERS, Labels.kind: Labels}
"""What a file may hold: a label set too, which is made from labels and chosen by nobody."""


def tokenizer_from_json(text: str) -> Tokenizer:
    """The tokenizer that any `to_json` wrote. A file of the `tokenizers` library carries no kind: it is bpe."""
    record = read_json(text)
    kind = record.get("kind", "bpe" if "model" in record else None)
    if not isinstance(kind, str) or kind not in _STORED:
        raise DataError(
            f"A tokenizer file names its kind ({', '.join(TOKENIZERS)}) or is one of the `tokenizers` library, "
            f"but this one has kind {kind!r}. Take the tokenizer.json of a glassformer run or export."
        )
    return _STORED[kind].from_json(text)
