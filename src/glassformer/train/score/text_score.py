"""How well a model predicts running text: every token of it, exactly once; or those that were hidden from it."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from itertools import groupby, islice

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.data.batch import Batch
from glassformer.data.config import DataConfig
from glassformer.data.running.token_file import TokenFile
from glassformer.data.running.windows import EvaluationWindow, evaluation_windows
from glassformer.decode.answer import nothing
from glassformer.foundation.errors import DataError
from glassformer.model.heads import SequenceHead
from glassformer.model.transformer import Transformer
from glassformer.train.objective import (
    Objective,
    Targets,
    asked_for,
    hidden,
    likeliest,
    loss_in_places,
    masked_token,
    next_token,
)
from glassformer.train.ranks.distributed import ALONE, Ranks
from glassformer.train.ranks.shares import sum_of_batches
from glassformer.train.record.events import Metric
from glassformer.train.sources.text_batches import Reader

LARGEST = math.log(sys.float_info.max)
PLACES = {"cpu": 2048}
"""Tokens that are scored at once, by device: on a processor more leave its cache, and take a quarter longer."""
MANY = 32768
"""On other devices, which more tokens keep busy."""


@torch.no_grad()
def text_scores(
    model: Transformer,
    tokens: TokenFile,
    reader: Reader,
    data: DataConfig,
    objective: Objective,
    poll: Callable[[], None] = nothing,
    ranks: Ranks = ALONE,
) -> dict[str, Metric]:
    """`loss`: nats a target. `perplexity`: e to that. `n`: targets. `unknown`, if any: tokens that are <unk>.

    Of next_token the whole text is scored, as `evaluation_windows` says, and there are figures that compare between
    vocabularies; see `of_whole_text`. Of the other objectives windows stand one behind the other, and what is hidden
    in them is the same at every evaluation. Of masked also `token_accuracy`, the share of hidden tokens that got the
    highest score. Several processes (`ranks`) share the batches out and come to the same figures, to the last bit.
    Errors: `DataError` for a text of which nothing can be hidden.
    """
    model.eval()
    device, head = next(model.parameters()).device, model.head
    assert not isinstance(head, SequenceHead), "of a text every token is asked for"
    own: list[tuple[float, int, int]] = []
    places = PLACES.get(device.type, MANY)
    for batch, skip in islice(batches(tokens, reader, data, places), ranks.number, None, ranks.count):
        poll()
        there = batch.to(device)
        asked = behind(objective, skip)(there)
        vectors, ids = asked_for(hidden(model, there, asked), asked)
        nll = loss_in_places(head, vectors, ids, 0.0).nll.item()
        n_right = int((likeliest(head, vectors)[: len(ids)] == ids).sum()) if reader.objective == "masked" else 0
        own.append((nll, len(ids), n_right))
    total, n, right = (sum_of_batches([each[which] for each in own], ranks) for which in range(3))
    if not n:
        raise nothing_asked(tokens, data)
    metrics: dict[str, Metric] = {"loss": total / n, **exponential("perplexity", total / n)}
    if reader.objective == "next_token":
        metrics |= of_whole_text(total, tokens)
    if reader.objective == "masked":
        metrics["token_accuracy"] = right / n
    unknown = {"unknown": tokens.counts.n_unknown} if tokens.counts.n_unknown else {}
    return metrics | {"n": int(n)} | unknown


def check_scored(tokens: TokenFile, reader: Reader, data: DataConfig) -> None:
    """Refuse a text that no evaluation could score. Errors: `DataError`, as `text_scores` has it."""
    for batch, skip in batches(tokens, reader, data, PLACES["cpu"]):  # nearly always the first one has a target
        if behind(asked_of(data), skip)(batch).n_targets:
            return
    raise nothing_asked(tokens, data)


def asked_of(data: DataConfig) -> Objective:
    """What is asked of running text, where no model is there yet to say it."""
    return masked_token if data.objective == "masked" else next_token


def nothing_asked(tokens: TokenFile, data: DataConfig) -> DataError:
    """What is said of a text of which nothing is scored."""
    if data.whole_words and not tokens.counts.n_words:
        return DataError(
            "With data.whole_words those tokens of a text are hidden and scored that are of a word, but this one is "
            "white space alone. Give a text with words, or set data.whole_words=False."
        )
    if data.objective == "masked":
        return DataError(
            "Of a text those tokens are hidden and scored that the vocabulary has, but of the "
            f"{len(tokens):,} tokens of this one {tokens.counts.n_unknown:,} are <unk>, and none was left to hide. "
            "Give a text in the letters or words of the training text, or train with tokenizer.kind='byte', which "
            "lacks none."
        )
    return DataError(
        f"Of a text those tokens are scored that follow others of their document, but of the {len(tokens):,} tokens of "
        "this one none was asked for. Give a text with longer documents, or set data.document_mask=False."
    )


def of_whole_text(nats: float, tokens: TokenFile) -> dict[str, Metric]:
    """What the whole text costs, by sizes that no tokenizer has a say in.

    So it compares between all tokenizers that give the text back as it was, but not with one of words: that throws
    white space away, which costs nothing then and yet counts in the sizes.

    `bits_per_byte` (of UTF-8) and `bits_per_character`; all tokens are paid for, <bos> and <eos> too, but for the first
    one, which nothing precedes. `word_perplexity`: e to the nats a word, between white space; left out where that is no
    float any more, and of white space alone, which has no word.
    """
    counts = tokens.counts
    bits = nats / math.log(2)
    return {
        "bits_per_byte": bits / counts.n_bytes,
        "bits_per_character": bits / counts.n_characters,
        **(exponential("word_perplexity", nats / counts.n_words) if counts.n_words else {}),
    }


def batches(tokens: TokenFile, reader: Reader, data: DataConfig, places: int) -> Iterator[tuple[Batch, int]]:
    """The windows of an evaluation, those of one shape together; and of how many of their first targets none counts.

    A batch has as many windows as `places` tokens hold, and at least one.
    """
    windows = evaluation_windows(len(tokens), data.window, data.stride)
    row = 0
    for (length, skip), alike in groupby(windows, shape_of):
        for starts in in_rows(alike, length, places):
            yield reader.batch(tokens, starts, length, rows=range(row, row + len(starts))), skip
            row += len(starts)


def shape_of(window: EvaluationWindow) -> tuple[int, int]:
    """How many tokens it reads, and how many of those that it predicts have been scored before."""
    return window.stop - window.start, window.scored - window.start - 1


def in_rows(windows: Iterator[EvaluationWindow], length: int, places: int) -> Iterator[NDArray[np.int64]]:
    """The starts of windows of this length, as many at a time as `places` tokens hold."""
    rows = max(1, places // length)
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


def exponential(name: str, value: float) -> dict[str, Metric]:
    """The figure e^value by its name; none where no float is as large, as of text that has no words."""
    return {name: math.exp(value)} if value < LARGEST else {}
