"""Which windows of tokens a step trains on, and which ones an evaluation reads, as functions of numbers alone.

Training: window `row` of step `step` depends only on (seed, step, row), so that a run that resumes, or is shared by
another number of processes, reads what it would have read.

Evaluation: every token except the first, which nothing precedes, is scored exactly once. The first window scores all
tokens that it predicts; each later one starts `stride` tokens further on and scores the tokens after those scored
before, each of which it predicts from more than `window - stride` tokens. Where hidden tokens are scored, windows
follow one another up to the last token of the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassformer.base.errors import ConfigError, DataError

Places = NDArray[np.int64]


class Windows:
    """The training windows of `n_tokens` tokens: `window` to read and one more, because each predicts the next."""

    def __init__(self, n_tokens: int, window: int, order: str = "random", seed: int = 0) -> None:
        if n_tokens <= window:
            raise DataError(
                f"A training window has data.window={window} tokens and the one after them, but the training text has "
                f"{n_tokens} tokens. Give a longer text, or set data.window to at most {n_tokens - 1}."
            )
        if seed < 0:
            raise ConfigError(f"seed must be at least 0; got {seed}. Try seed=0.")
        self.n_tokens, self.window, self.order, self.seed = n_tokens, window, order, seed
        self.whole = (n_tokens - 1) // window
        """The number of windows one after the other, without a gap."""

    def starts(self, step: int, rows: int, again: int = 0) -> Places:
        """[rows]: the first token of each window of this step (counted from 0).

        `again`: draw other windows at random for the same step, because the earlier ones are of no use.
        """
        assert min(step, rows - 1, again) >= 0, (step, rows, again)
        if self.order == "random" or again:
            return self._random(step, rows, (2, again) if again else ())  # (1,) is the key of what is hidden
        number = np.arange(rows, dtype=np.int64) + step * rows
        epoch, place = np.divmod(number, self.whole)
        # each epoch starts one token later, so that the tokens after the last whole window are read, too
        return place * self.window + epoch % (self.n_tokens - self.whole * self.window)

    def _random(self, step: int, rows: int, key: tuple[int, ...]) -> Places:
        # Raw output of Philox: numpy promises it for all versions, which it does not for its integers.
        random = np.random.Philox(np.random.SeedSequence((self.seed, step), spawn_key=key))
        return (random.random_raw(rows) % np.uint64(self.n_tokens - self.window)).astype(np.int64)


class EvaluationWindow(NamedTuple):
    """Reads the tokens `start` to `stop` (not included); of the tokens that these predict, `scored` to `stop` count."""

    start: int
    stop: int
    scored: int
    """The first token that is scored here; the last one is the token at `stop`. Means nothing for hidden tokens."""


def evaluation_windows(n_read: int, window: int, stride: int | None = None) -> Iterator[EvaluationWindow]:
    """The windows that read the first `n_read` tokens of a text, of which each predicts the next, once.

    `n_read`: all tokens but the last, which predicts nothing; all of them where those that are hidden are scored.
    `stride` is at most `window`; None: equal to it. Only where all are read, nothing follows the last window.
    """
    stride = stride or window
    assert n_read >= 1, n_read
    assert 1 <= stride <= window, (stride, window)
    scored = 1
    for start in range(0, n_read, stride):
        stop = min(start + window, n_read)
        yield EvaluationWindow(start, stop, scored)
        scored = stop + 1
        if stop == n_read:
            return


def count_evaluation_windows(n_read: int, window: int, stride: int | None = None) -> int:
    """The number of windows that `evaluation_windows` yields."""
    return 1 + -(-max(0, n_read - window) // (stride or window))
