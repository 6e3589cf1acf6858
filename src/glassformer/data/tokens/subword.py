"""Subwords over bytes: what the kinds bpe, wordpiece and unigram share, and byte-pair encoding itself.

Learning and fast encoding come from the `tokenizers` library, and `to_json` is its file format.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, cast

from glassformer.data.config import BYTES_AND_SPECIALS, TokenizerConfig
from glassformer.data.tokens.bytewise import join_pieces, piece_of, show_pieces
from glassformer.data.tokens.cuts import shares
from glassformer.data.tokens.vocabulary import SPECIALS, UNK, Tokenizer, read_json, utf8
from glassformer.data.tokens.whole_words import words_of

if TYPE_CHECKING:
    import tokenizers


class Subword(Tokenizer):
    """Frequent byte sequences as tokens. Every text has ids, and they give it back as it was encoded (`normal`)."""

    model: ClassVar[str]
    """The library's name for the kind, by which its files are recognised."""
    mark: ClassVar[str] = ""
    """Prefix of a token that continues a word, in a kind that has separate tokens for that."""
    adopted: ClassVar[bool] = False
    """Whether one of this kind may have been imported: it may find runs of spaces in a text before all else, have more
    tokens that end a text, put nothing before a document, and lack bytes."""
    lacking: frozenset[int] = frozenset()
    """The bytes of UTF-8 that no token of its vocabulary has; each becomes <unk>."""

    def __init__(self, text: str) -> None:
        """`text` is the JSON of the `tokenizers` library. DataError for one that this class would not have written."""
        from glassformer.data.tokens import (
            byte_level,  # here: it loads the library, for which `--help` need not wait
        )

        library = byte_level.read(text, self.like(text), self.kind, runs=self.adopted, ends=self.adopted)
        vocabulary, alphabet = library.get_vocab(), self.alphabet()
        if self.adopted and byte_level.unknown_is_a_token(read_json(text)):
            absent = {*alphabet} - byte_level.IN_NO_TEXT - vocabulary.keys()
            self.lacking = frozenset(byte_level.BYTES[each] for each in absent)
            alphabet = [each for each in alphabet if each in vocabulary]
        self._names = byte_level.ends_of(library)
        of_its_own = (self.mark, byte_level.runs_of(library), {*self._names.values()})
        self._library, self._pieces = library, byte_level.pieces(vocabulary, self.kind, alphabet, *of_its_own)
        self._keep_ends(library)
        self._panics_are_errors = byte_level.panics_are_errors

    def _keep_ends(self, library: tokenizers.Tokenizer) -> None:
        """Note what the file says of the beginning and the ends of a text."""
        self.ends, self.begins = tuple(sorted(self._names)), library.post_processor is None

    @classmethod
    @abstractmethod
    def untrained(cls) -> tokenizers.Tokenizer:
        """The library's tokenizer of this kind, with no vocabulary but the special tokens."""

    @classmethod
    def like(cls, text: str) -> tokenizers.Tokenizer:
        """The tokenizer without vocabulary whose settings a file must have: by default that of `untrained`."""
        return cls.untrained()

    @classmethod
    def alphabet(cls) -> Sequence[str]:
        """The tokens that every vocabulary of this kind has, so that every text has ids."""
        from glassformer.data.tokens import byte_level

        return byte_level.LETTERS

    @property
    def vocab_size(self) -> int:
        return len(self._pieces)

    def encode(self, text: str) -> list[int]:
        return list(chain.from_iterable(self.encode_parts(list(shares(text, self.cuts)))))

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Like `encode`, but faster for many texts: the library takes them together, on all cores."""
        for text in texts:
            utf8(text)
        with self._panics_are_errors():
            return [each.ids for each in self._library.encode_batch_fast(list(texts), add_special_tokens=False)]

    def unknown(self, text: str) -> list[bytes]:
        spelled = utf8(text)
        return [bytes([byte]) for byte in spelled if byte in self.lacking] if self.lacking else []

    def lacks(self, text: str) -> list[str]:
        return [each for each in text for _ in self.unknown(each)] if self.unknown(text) else []

    def decode(self, ids: Iterable[int]) -> str:
        return join_pieces(self._pieces, ids)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        ids = list(ids)
        return [self._names.get(id, shown) for id, shown in zip(ids, show_pieces(self._pieces, ids), strict=True)]

    def adds(self, id: int, *, first: bool = False) -> bytes:
        return piece_of(self._pieces, id)

    def words_of(self, ids: Iterable[int]) -> list[int]:
        return words_of(self._pieces, ids)

    def to_json(self) -> str:
        return self._library.to_str(pretty=True)


class BytePairTokenizer(Subword):
    """Byte-pair encoding (Sennrich et al. 2016) over bytes, on GPT-2's words: the most frequent pair is merged.

    One that was imported may be on the words of another published tokenizer.
    """

    kind = "bpe"
    model = "BPE"
    adopted = True
    least_vocab_size = BYTES_AND_SPECIALS

    def __init__(self, text: str) -> None:
        super().__init__(text)
        from glassformer.data.tokens import published

        if cut := published.cut_of(read_json(text)):
            self.cuts, self.composed = cut.cuts, cut.composed

    @classmethod
    def like(cls, text: str) -> tokenizers.Tokenizer:
        from tokenizers import models

        from glassformer.data.tokens import byte_level, published

        record = read_json(text)
        cut, model = published.cut_of(record), record.get("model")
        if cut is None or not isinstance(model, dict):
            return cls.untrained()
        whole_words_first = cast("dict[str, object]", model).get("ignore_merges") is True
        unknown = SPECIALS[UNK] if byte_level.unknown_is_a_token(record) else None
        return cut.untrained(models.BPE(ignore_merges=whole_words_first, unk_token=unknown))

    @classmethod
    def untrained(cls) -> tokenizers.Tokenizer:
        from tokenizers import models

        from glassformer.data.tokens import byte_level

        return byte_level.untrained(models.BPE(), byte_level.cut_to_bytes())

    @classmethod
    def from_json(cls, text: str) -> BytePairTokenizer:
        return cls(text)

    @classmethod
    def train(cls, texts: Iterable[str], config: TokenizerConfig) -> BytePairTokenizer:
        """Learn as many merges as fill `vocab_size`, or fewer if no pair repeats any more."""
        from tokenizers import trainers

        from glassformer.data.tokens import byte_level

        library = cls.untrained()
        trainer = trainers.BpeTrainer(
            vocab_size=config.vocab_size,
            special_tokens=list(SPECIALS),
            initial_alphabet=list(cls.alphabet()),
            show_progress=False,
        )
        byte_level.learn(library, trainer, texts)
        return cls(library.to_str())
