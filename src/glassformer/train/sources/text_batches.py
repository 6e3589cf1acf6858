"""Turn windows of running text into batches, as the objective needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassformer.data.batch import Batch
from glassformer.data.config import DataConfig
from glassformer.data.corrupt import Corruption, batch_of_windows, sentence_ends
from glassformer.data.running.token_file import TokenFile
from glassformer.data.tokens.vocabulary import Tokenizer

FOLLOWED = ("next_token", "prefix")
"""Objectives that also need the token after the window, which its last token predicts."""


@dataclass(frozen=True)
class Reader:
    """Turns windows of token files into the batches of one objective."""

    objective: str
    how: Corruption
    seed: int

    def n_read(self, tokens: TokenFile) -> int:
        """How many tokens of a text can be read: all, or all but the last where each predicts the next."""
        return len(tokens) - (self.objective in FOLLOWED)

    def batch(
        self,
        tokens: TokenFile,
        starts: NDArray[np.int64],
        length: int,
        *,
        step: int = 0,
        rows: Sequence[int] | None = None,
    ) -> Batch:
        """Rows of `length` tokens to read. Their random choices depend only on (seed, step, row)."""
        windows = tokens.take(starts, length + (self.objective in FOLLOWED))
        return batch_of_windows(self.objective, list(windows), self.how, seed=self.seed, step=step, rows=rows)


def reader_of(data: DataConfig, tokenizer: Tokenizer, seed: int) -> Reader:
    """The reader that makes the batches of a recipe."""
    how = Corruption(
        tokenizer.vocab_size,
        data.mask_share,
        data.mean_span,
        tokenizer.words_of if data.whole_words else None,
        sentence_ends(tokenizer) if data.permute_sentences else None,
        data.document_mask,
    )
    return Reader(data.objective, how, seed)
