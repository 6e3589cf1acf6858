"""How well a model predicts running text: every token of it, exactly once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import groupby

import numpy as np
import torch

from glassformer.data.batch import Batch
from glassformer.data.config import DataConfig
from glassformer.data.token_file import TokenFile
from glassformer.data.windows import EvaluationWindow, evaluation_windows
from glassformer.decode.answer import nothing
from glassformer.model.transformer import Transformer
from glassformer.train.events import Metric
from glassformer.train.objective import Objective, Targets, loss_of
from glassformer.train.text_batches import next_tokens

PLACES = 8192
"""Tokens that are scored at once: more would leave the processor's cache, and be no faster."""


@torch.no_grad()
def next_token_scores(
    model: Transformer,
    tokens: TokenFile,
    data: DataConfig,
    objective: Objective,
    poll: Callable[[], None] = nothing,
) -> dict[str, Metric]:
    """The figures of a language model on the whole of a text; see `evaluation_windows` for what each token is told.

    `loss`: nats a token. `bits_per_byte` and `bits_per_character`: of the text in UTF-8 and in characters, whatever the
    tokenizer, so that models with other vocabularies compare; all tokens are paid for, <bos> and <eos> too, but for the
    first one, which nothing precedes. `perplexity` and `word_perplexity`: e to the nats a token, and a word (between
    white space). `n`: tokens scored. `unknown`, where there are any: tokens that the vocabulary lacks, scored as <unk>.
    """
    model.eval()
    device = next(model.parameters()).device
    total, n = 0.0, 0
    for batch, skip in batches(tokens, data):
        poll()
        asked = behind(objective, skip)
        total += loss_of(model, batch.to(device), asked).nll.item()
        n += asked(batch).n_targets
    counts = tokens.counts
    bits = total / math.log(2)
    metrics: dict[str, Metric] = {
        "loss": total / n,
        "bits_per_byte": bits / counts.n_bytes,
        "bits_per_character": bits / counts.n_characters,
        "perplexity": exponential(total / n),
        "word_perplexity": exponential(total / counts.n_words),
        "n": n,
    }
    return metrics | ({"unknown": counts.n_unknown} if counts.n_unknown else {})


def batches(tokens: TokenFile, data: DataConfig) -> Iterator[tuple[Batch, int]]:
    """The windows of an evaluation, those of one shape together; and of how many of their targets none counts."""
    windows = evaluation_windows(len(tokens), data.window, data.stride)
    for (length, skip), alike in groupby(windows, shape_of):
        yield from ((next_tokens(tokens, starts, length, data), skip) for starts in in_rows(alike, length))


def shape_of(window: EvaluationWindow) -> tuple[int, int]:
    """How many tokens it reads, and how many of those that it predicts have been scored before."""
    return window.stop - window.start, window.scored - window.start - 1


def in_rows(windows: Iterator[EvaluationWindow], length: int) -> Iterator[np.ndarray]:
    """The starts of windows of this length, as many at a time as `PLACES` holds."""
    rows = max(1, PLACES // length)
    starts: list[int] = []
    for window in windows:
        starts.append(window.start)
        if len(starts) == rows:
            yield np.array(starts)
            starts = []
    if starts:
        yield np.array(starts)


def behind(objective: Objective, skip: int) -> Objective:
    """The objective without its first `skip` targets in each row."""

    def later(batch: Batch) -> Targets:
        asked = objective(batch)
        if not skip:
            return asked
        keep = torch.arange(asked.ids.shape[1], device=asked.ids.device).expand(asked.ids.shape) >= skip
        return asked._replace(keep=keep if asked.keep is None else keep & asked.keep)

    return later


def exponential(value: float) -> float:
    """e^value; infinite where no float is as large."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf
