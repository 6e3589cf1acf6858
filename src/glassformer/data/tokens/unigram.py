"""The unigram language model (Kudo 2018): of all ways to cut a word into known pieces, the most probable one.

Each piece has its own probability, and a way to cut has the product of its pieces' probabilities. Learning starts with
every frequent substring and drops those whose loss costs the least likelihood (with EM in between). The pieces consist
of bytes, and all single bytes stay, so every text has ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from glassformer.data.config import BYTES_AND_SPECIALS, TokenizerConfig
from glassformer.data.tokens.subword import Subword
from glassformer.data.tokens.vocabulary import SPECIALS

if TYPE_CHECKING:
    import tokenizers

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
    def from_json(cls, text: str) -> UnigramTokenizer:
        return cls(text)

    @classmethod
    def train(cls, texts: Iterable[str], config: TokenizerConfig) -> UnigramTokenizer:
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
