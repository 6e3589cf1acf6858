"""Byte-pair encoding (Sennrich et al. 2016) over bytes, as GPT-2 cuts text: no normalisation, nothing lost.

The learning of merges and the fast encoding are those of the `tokenizers` library, and `to_json` is its file format.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from glassformer.data.bytewise import join_pieces, show_pieces
from glassformer.data.config import TokenizerConfig
from glassformer.data.vocabulary import Tokenizer, utf8


class BytePairTokenizer(Tokenizer):
    """Frequent byte sequences as tokens. Every text has ids, and they give the same text back."""

    kind = "bpe"

    def __init__(self, text: str) -> None:
        """`text` is the JSON of the `tokenizers` library. DataError for one that this class would not have written."""
        from glassformer.data import byte_level  # here, as it loads the library, which `--help` need not wait for

        self._library = byte_level.read(text)
        self._pieces = byte_level.pieces(self._library.get_vocab())
        self._panics_are_errors = byte_level.panics_are_errors

    @property
    def vocab_size(self) -> int:
        return len(self._pieces)

    def encode(self, text: str) -> list[int]:
        utf8(text)
        with self._panics_are_errors():
            return self._library.encode(text, add_special_tokens=False).ids

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """As `encode`, twice as fast and more: the library takes them together, on all cores."""
        for text in texts:
            utf8(text)
        with self._panics_are_errors():
            return [each.ids for each in self._library.encode_batch_fast(list(texts), add_special_tokens=False)]

    def decode(self, ids: Iterable[int]) -> str:
        return join_pieces(self._pieces, ids)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        return show_pieces(self._pieces, ids)

    def to_json(self) -> str:
        return self._library.to_str(pretty=True)

    @classmethod
    def from_json(cls, text: str) -> BytePairTokenizer:
        return cls(text)

    @classmethod
    def train(cls, texts: Iterable[str], config: TokenizerConfig) -> BytePairTokenizer:
        from glassformer.data import byte_level

        return cls(byte_level.learn(texts, config.vocab_size))
