"""WordPiece (Schuster & Nakajima 2012), cut as in BERT (Devlin et al. 2019): longest piece first, ## within a word.

Two things differ from BERT, so that every text can be recovered: the pieces consist of bytes and include the white
space before a word, and nothing becomes <unk>. The library learns the pieces by merging the most frequent pair, as in
bpe.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from glassformer.data.config import BYTES_AND_SPECIALS, TokenizerConfig
from glassformer.data.tokens.subword import Subword
from glassformer.data.tokens.vocabulary import SPECIALS, UNK

if TYPE_CHECKING:
    import tokenizers

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
    def from_json(cls, text: str) -> WordPieceTokenizer:
        return cls(text)

    @classmethod
    def train(cls, texts: Iterable[str], config: TokenizerConfig) -> WordPieceTokenizer:
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
