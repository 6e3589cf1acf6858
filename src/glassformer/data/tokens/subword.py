"""Subwords over bytes: what the kinds bpe, wordpiece and unigram share, and byte-pair encoding itself.

Learning and fast encoding come from the `tokenizers` library, and `to_json` is its file format.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, cast

from glassformer.data.tokens.vocabulary import (
    ANYWHERE,
    BYTES_AND_SPECIALS,
    SPECIALS,
    UNK,
    Tokenizer,
    VocabularySettings,
    check_ids_known,
    read_json,
    refuse_one_text,
    refuse_other_kind,
    shares,
    utf8,
    words_of,
)

if TYPE_CHECKING:
    import tokenizers


# Bytes as tokens: 256 ids that spell every text; and functions to join the byte pieces of subwords.


def join_pieces(pieces: Sequence[bytes], ids: Iterable[int]) -> str:
    """The text spelled by the bytes of each id; bytes that are not UTF-8, as a model may write them, become U+FFFD."""
    known = check_ids_known(ids, len(pieces))
    spelled = (pieces[id] for id in known if id >= len(SPECIALS) or id == UNK)
    return b"".join(spelled).decode("utf-8", errors="replace")


def piece_of(pieces: Sequence[bytes], id: int) -> bytes:
    """The bytes that one id adds to such a text."""
    check_ids_known([id], len(pieces))
    return pieces[id] if id >= len(SPECIALS) or id == UNK else b""


def show_pieces(pieces: Sequence[bytes], ids: Iterable[int]) -> list[str]:
    r"""Each id's bytes as text, with \\xNN for bytes that are only part of a character."""
    known = check_ids_known(ids, len(pieces))
    return [pieces[id].decode("utf-8", errors="backslashreplace") for id in known]


class ByteTokenizer(Tokenizer):
    """One id per byte of UTF-8: byte b is id 6 + b. Every text has ids, and they give the same text back."""

    kind = "byte"
    cuts = ANYWHERE
    pieces = (*(name.encode() for name in SPECIALS), *(bytes([byte]) for byte in range(256)))

    @property
    def vocab_size(self) -> int:
        return len(self.pieces)

    def encode(self, text: str) -> list[int]:
        return [len(SPECIALS) + byte for byte in utf8(text)]

    def decode(self, ids: Iterable[int]) -> str:
        return join_pieces(self.pieces, ids)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        return show_pieces(self.pieces, ids)

    def adds(self, id: int, *, first: bool = False) -> bytes:
        return piece_of(self.pieces, id)

    def words_of(self, ids: Iterable[int]) -> list[int]:
        return words_of(self.pieces, ids)

    def to_json(self) -> str:
        return json.dumps({"kind": self.kind, "specials": SPECIALS}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> ByteTokenizer:
        refuse_other_kind(read_json(text), cls.kind)
        return cls()

    @classmethod
    def train(cls, texts: Iterable[str], config: VocabularySettings) -> ByteTokenizer:
        return cls()  # nothing to learn: the vocabulary is all bytes, whatever the texts


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
        refuse_one_text(texts)
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

    @classmethod
    def from_json(cls, text: str) -> Subword:
        return cls(text)


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
        from glassformer.data.tokens import byte_level

        if cut := byte_level.cut_of(read_json(text)):
            self.cuts, self.composed = cut.cuts, cut.composed

    @classmethod
    def like(cls, text: str) -> tokenizers.Tokenizer:
        from tokenizers import models

        from glassformer.data.tokens import byte_level

        record = read_json(text)
        cut, model = byte_level.cut_of(record), record.get("model")
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
    def train(cls, texts: Iterable[str], config: VocabularySettings) -> BytePairTokenizer:
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


# WordPiece (Schuster & Nakajima 2012), cut as in BERT (Devlin et al. 2019): longest piece first, ## within a word.

LONGEST_WORD = 32
"""Letters, which are bytes: a longer word is cut there, because the time to find its pieces grows with the square."""


class WordPieceTokenizer(Subword):
    """Different pieces start a word and continue one. Every text can be recovered from its ids."""

    kind = "wordpiece"
    model = "WordPiece"
    mark = "##"
    least_vocab_size = BYTES_AND_SPECIALS + 255

    @classmethod
    def alphabet(cls) -> Sequence[str]:
        """Each byte at the start of a word, and each within one, except '#', which is a word by itself."""
        letters = super().alphabet()
        return [*letters, *(cls.mark + letter for letter in letters if letter != "#")]

    @classmethod
    def untrained(cls) -> tokenizers.Tokenizer:
        return cls._with({})

    @classmethod
    def _with(cls, vocabulary: dict[str, int]) -> tokenizers.Tokenizer:
        from tokenizers import models, pre_tokenizers

        from glassformer.data.tokens import byte_level

        cut = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split("#", "isolated"),  # or "###" in a text would be read as a continuing "#"
                byte_level.cut_to_bytes(),
                pre_tokenizers.FixedLength(LONGEST_WORD),
            ]
        )
        model = models.WordPiece(vocabulary, unk_token=SPECIALS[UNK], max_input_chars_per_word=LONGEST_WORD)
        return byte_level.untrained(model, cut)

    @classmethod
    def train(cls, texts: Iterable[str], config: VocabularySettings) -> WordPieceTokenizer:
        """Learn as many pieces as fill `vocab_size`, or fewer if no pair repeats any more."""
        from tokenizers import trainers

        from glassformer.data.tokens import byte_level

        trainer = trainers.WordPieceTrainer(
            vocab_size=config.vocab_size,
            # the alphabet too: otherwise the library numbers it in the order of a random hash, by which it breaks ties
            special_tokens=[*SPECIALS, *cls.alphabet()],
            show_progress=False,
        )
        model = byte_level.learn(cls.untrained(), trainer, texts)
        return cls(cls._with(dict(cast("Mapping[str, int]", model["vocab"]))).to_str())


# The unigram language model (Kudo 2018): of all ways to cut a word into known pieces, the most probable one.

DECIMALS = 6
"""Decimals of a log probability: the library adds in another order each time, and the last digits differ."""
AMONG_RARE = 256 * 1e-4
"""The library gives bytes that it did not keep the lowest score and a ten-thousandth more each, by a random hash."""


class UnigramTokenizer(Subword):
    """Pieces with probabilities. Every text can be recovered from its ids."""

    kind = "unigram"
    model = "Unigram"
    least_vocab_size = BYTES_AND_SPECIALS

    @classmethod
    def untrained(cls) -> tokenizers.Tokenizer:
        return cls._with([(name, 0.0) for name in SPECIALS])

    @classmethod
    def _with(cls, scored: list[tuple[str, float]]) -> tokenizers.Tokenizer:
        from tokenizers import models

        from glassformer.data.tokens import byte_level

        return byte_level.untrained(models.Unigram(scored, None, False), byte_level.cut_to_bytes())

    @classmethod
    def train(cls, texts: Iterable[str], config: VocabularySettings) -> UnigramTokenizer:
        """Learn the most probable pieces that fill `vocab_size`, or fewer, in order of their probability."""
        from tokenizers import trainers

        from glassformer.data.tokens import byte_level

        trainer = trainers.UnigramTrainer(
            vocab_size=config.vocab_size,
            special_tokens=list(SPECIALS),
            initial_alphabet=list(cls.alphabet()),
            unk_token=None,
            show_progress=False,
        )
        model = byte_level.learn(cls.untrained(), trainer, texts)
        learned = dict(cast("list[tuple[str, float | None]]", model["vocab"])[len(SPECIALS) :])
        return cls(cls._with(_scored(learned, cls.alphabet())[: config.vocab_size]).to_str())


def _scored(learned: dict[str, float | None], alphabet: Sequence[str]) -> list[tuple[str, float]]:
    """The vocabulary with log probabilities: special tokens, bytes, then what was learned, most probable first.

    A byte that was not kept, because it is rare or never occurred, is as probable as the rarest piece.
    """
    scores = {token: round(score, DECIMALS) for token, score in learned.items() if score is not None}
    lowest = min(scores.values(), default=0.0)
    letters = dict.fromkeys(alphabet, lowest)
    kept = {token: score for token, score in scores.items() if score > lowest + AMONG_RARE or token not in letters}
    longer = sorted((-score, token) for token, score in kept.items() if token not in letters)
    return [
        *((name, 0.0) for name in SPECIALS),
        *((letter, kept.get(letter, lowest)) for letter in alphabet),
        *((token, -score) for score, token in longer),
    ]
