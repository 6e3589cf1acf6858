"""Score running text: batches of its windows, every token scored once, and samples of what the model writes."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.base.errors import DataError
from glassformer.data.batch import Batch
from glassformer.data.config import DataConfig
from glassformer.data.corrupt import Corruption, batch_of_windows, sentence_ends
from glassformer.data.running.token_file import EvaluationWindow, TokenFile, evaluation_windows
from glassformer.data.tokens.vocabulary import BOS, EOS, PAD, SPECIALS, Tokenizer
from glassformer.decode.answer import answer
from glassformer.decode.generate import generate
from glassformer.nn.heads import SequenceHead
from glassformer.nn.observe import Evaluation
from glassformer.nn.transformer import Transformer
from glassformer.train.evaluate import Scoring
from glassformer.train.loss import hidden, likeliest, loss_in_places, picked
from glassformer.train.objective import Objective, Targets, masked_token, next_token
from glassformer.train.ranks.team import sum_of_batches
from glassformer.train.records import Metric, Sample

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


LARGEST = math.log(sys.float_info.max)
PLACES = {"cpu": 2048}
"""Tokens scored at once, by device: on a CPU more would leave its cache and take a quarter longer."""
MANY = 32768
"""Tokens scored at once on other devices, which need more to keep busy."""


@torch.no_grad()
def text_scores(scoring: Scoring, tokens: TokenFile, reader: Reader) -> dict[str, Metric]:
    """Return `loss` (nats per target), `perplexity` (e^loss), `n` targets, and `unknown`, the number of <unk>, if any.

    With next_token the whole text is scored, as `evaluation_windows` says, and there are metrics that can be compared
    between vocabularies; see `of_whole_text`. With the other objectives windows follow one another, and the same tokens
    are hidden at every evaluation. With masked there is also `token_accuracy`, the share of hidden tokens that got the
    highest score. Errors: `DataError` for a text without targets.
    """
    model, data, ranks = scoring.model, scoring.recipe.data, scoring.ranks
    with Evaluation(model):
        device, head = scoring.device, model.head
        assert not isinstance(head, SequenceHead), "of a text every token is asked for"
        own: list[tuple[float, int, int]] = []
        places = PLACES.get(device.type, MANY)
        for batch, skip in islice(batches(tokens, reader, data, places), ranks.number, None, ranks.count):
            scoring.poll()
            there = batch.to(device)
            targets = behind(scoring.objective, skip)(there)
            vectors, ids = picked(hidden(model, there, targets), targets)
            nll = loss_in_places(head, vectors, ids, 0.0).nll.item()
            n_right = int((likeliest(head, vectors)[: len(ids)] == ids).sum()) if reader.objective == "masked" else 0
            own.append((nll, len(ids), n_right))
        total, n, right = (sum_of_batches([each[which] for each in own], ranks) for which in range(3))
        if not n:
            raise no_targets(tokens, data)
        metrics: dict[str, Metric] = {"loss": total / n, **exponential("perplexity", total / n)}
        if reader.objective == "next_token":
            metrics |= of_whole_text(total, tokens)
        if reader.objective == "masked":
            metrics["token_accuracy"] = right / n
        unknown = {"unknown": tokens.counts.n_unknown} if tokens.counts.n_unknown else {}
        return metrics | {"n": int(n)} | unknown


def check_scored(tokens: TokenFile, reader: Reader, data: DataConfig) -> None:
    """Refuse a text that cannot be scored. Errors: `DataError`, as for `text_scores`."""
    for batch, skip in batches(tokens, reader, data, PLACES["cpu"]):  # nearly always the first one has a target
        if behind(text_objective(data), skip)(batch).n_targets:
            return
    raise no_targets(tokens, data)


def text_objective(data: DataConfig) -> Objective:
    """The objective of running text, if there is no model yet to tell it."""
    return masked_token if data.objective == "masked" else next_token


def no_targets(tokens: TokenFile, data: DataConfig) -> DataError:
    """The error for a text without targets."""
    if data.whole_words and not tokens.counts.n_words:
        return DataError(
            "With data.whole_words, only tokens of words are hidden and scored, but this text is white space alone. "
            "Give a text with words, or set data.whole_words=False."
        )
    if data.objective == "masked":
        return DataError(
            f"Only tokens that the vocabulary has are hidden and scored, but of the {len(tokens):,} tokens of this "
            f"text {tokens.counts.n_unknown:,} are <unk>, and none was left to hide. Give a text in the letters or "
            "words of the training text, or train with tokenizer.kind='byte', which has no <unk>."
        )
    return DataError(
        f"Only tokens that follow others of their document are scored, but none of the {len(tokens):,} tokens of this "
        "text does. Give a text with longer documents, or set data.document_mask=False."
    )


def too_short(tokens: TokenFile, least: int) -> DataError:
    """The error for a text with fewer than `least` tokens."""
    why = "Only the tokens after the first are scored, so a text needs" if least > 1 else "A text to be scored needs"
    return DataError(f"{why} at least {least}; this text has {len(tokens)}. Give a longer one.")


def of_whole_text(nats: float, tokens: TokenFile) -> dict[str, Metric]:
    """The cost of the whole text, relative to sizes that do not depend on a tokenizer.

    It can be compared between all tokenizers that reproduce the text exactly, but not with a tokenizer of words: that
    drops white space, which then costs nothing and yet counts in the sizes.

    `bits_per_byte` (of UTF-8) and `bits_per_character`: the cost is of all tokens, <bos> and <eos> too, except the
    first one, which nothing precedes. `word_perplexity`: e to the nats per word, between white space; left out if it is
    too large for a float, or if the text is all white space and has no word.
    """
    counts = tokens.counts
    bits = nats / math.log(2)
    return {
        "bits_per_byte": bits / counts.n_bytes,
        "bits_per_character": bits / counts.n_characters,
        **(exponential("word_perplexity", nats / counts.n_words) if counts.n_words else {}),
    }


def batches(tokens: TokenFile, reader: Reader, data: DataConfig, places: int) -> Iterator[tuple[Batch, int]]:
    """The windows of an evaluation, batched by shape, each batch with the number of first targets per row to skip.

    A batch has as many windows as fit into `places` tokens, and at least one.
    """
    n_read = reader.n_read(tokens)
    if n_read < 1:
        raise too_short(tokens, len(tokens) - n_read + 1)
    windows = evaluation_windows(n_read, data.window, data.stride)
    row = 0
    for (length, skip), same in groupby(windows, shape_of):
        for starts in in_rows(same, length, places):
            yield reader.batch(tokens, starts, length, rows=range(row, row + len(starts))), skip
            row += len(starts)


def shape_of(window: EvaluationWindow) -> tuple[int, int]:
    """How many tokens a window reads, and how many of those that it predicts have been scored before."""
    return window.stop - window.start, window.scored - window.start - 1


def in_rows(windows: Iterator[EvaluationWindow], length: int, places: int) -> Iterator[NDArray[np.int64]]:
    """The starts of windows of this length, as many at a time as fit into `places` tokens."""
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
    """The objective without the first `skip` targets of each row."""

    def later(batch: Batch) -> Targets:
        targets = objective(batch)
        if not skip:
            return targets
        keep = torch.arange(targets.ids.shape[1], device=targets.ids.device).expand(targets.ids.shape) >= skip
        return targets._replace(keep=keep if targets.keep is None else keep & targets.keep)

    return later


def exponential(name: str, value: float) -> dict[str, Metric]:
    """{name: e^value}, or nothing if that is too large for a float, as for text that has no words."""
    return {name: math.exp(value)} if value < LARGEST else {}


USUAL = 64
"""Tokens of a continuation if decode.max_new_tokens is not set."""


@torch.no_grad()
def text_samples(scoring: Scoring, tokens: TokenFile, reader: Reader) -> list[Sample]:
    """Samples at places far apart: continuations of the text, or what was hidden in a window of it.

    As many as the recipe's `training.samples`.
    """
    model, recipe, tokenizer, poll = scoring.model, scoring.recipe, scoring.tokenizers.target, scoring.poll
    count, window = recipe.training.samples, min(recipe.data.window, len(tokens))
    if not count:
        return []
    starts = (len(tokens) - window) * np.arange(count) // max(1, count - 1)
    if reader.objective in FOLLOWED:
        limit = recipe.decode.max_new_tokens or USUAL
        rows, prefix = tokens.take(starts, window).tolist(), reader.objective == "prefix"
        return continuations(model, rows, limit, tokenizer, poll, prefix, apart=reader.how.document_mask)
    batch = reader.batch(tokens, starts, window)
    if batch.labels is not None:
        return filled(model, batch, batch.labels, tokenizer)
    assert batch.source is not None
    sources, targets = ([real(row) for row in side.tolist()] for side in (batch.source, batch.tokens))
    longest = max(map(len, targets)) + 1
    answers = answer(model, sources, max_new_tokens=min(longest, recipe.decode.max_new_tokens or longest), poll=poll)
    rows = zip(sources, targets, (each.ids for each in answers), strict=True)
    return [Sample(*(shown(ids, tokenizer) for ids in row)) for row in rows]


def continuations(
    model: Transformer,
    rows: Sequence[Sequence[int]],
    limit: int,
    tokenizer: Tokenizer,
    poll: Callable[[], None],
    prefix: bool,
    apart: bool,
) -> list[Sample]:
    """Half a window as the prompt, the text that follows it, and the model's greedy continuation.

    Prompt and continuation fit in one window, because the model was trained on nothing longer. If documents are kept
    `apart`, the prompt is cut to its last document.
    """
    read = max(1, len(rows[0]) // 2)
    write = min(len(rows[0]) - read, limit)
    prompts = [last_document(row[:read]) if apart else row[:read] for row in rows]
    written: list[list[int]] = [[] for _ in rows]
    for step in generate(model, prompts=prompts, max_new_tokens=write, prefix=prefix):
        poll()
        for row, token in zip(step.rows, step.tokens, strict=True):
            written[row].append(token)
    return [
        Sample(*(shown(ids, tokenizer) for ids in (prompt, row[read : read + write], own)))
        for prompt, row, own in zip(prompts, rows, written, strict=True)
    ]


def last_document(ids: Sequence[int]) -> Sequence[int]:
    """The ids from the last <bos> on; all of them if there is none."""
    return ids[max((place for place, id in enumerate(ids) if id == BOS), default=0) :]


def filled(model: Transformer, batch: Batch, labels: torch.Tensor, tokenizer: Tokenizer) -> list[Sample]:
    """Windows with hidden tokens, the original windows, and the model's guesses for the hidden tokens."""
    there = batch.to(next(model.parameters()).device)
    with Evaluation(model):
        best = model(there.tokens, keep=there.keep, documents=there.documents).argmax(-1).cpu()
    guess = torch.where(batch.tokens == labels, batch.tokens, best)
    rows = zip(batch.tokens.tolist(), labels.tolist(), guess.tolist(), strict=True)
    return [Sample(*(shown(ids, tokenizer) for ids in row)) for row in rows]


def real(ids: Sequence[int]) -> list[int]:
    """The ids without the special ones that a batch adds at both ends."""
    ends = {PAD, BOS, EOS}
    inner = [place for place, id in enumerate(ids) if id not in ends]
    return list(ids[inner[0] : inner[-1] + 1]) if inner else []


def shown(ids: Sequence[int], tokenizer: Tokenizer) -> str:
    """The text of ids, with the names of special tokens."""
    parts: list[str] = []
    stretch: list[int] = []
    for id in ids:
        if id < len(SPECIALS):
            parts += [tokenizer.decode(stretch), SPECIALS[id]]
            stretch = []
        else:
            stretch.append(id)
    return "".join([*parts, tokenizer.decode(stretch)])
