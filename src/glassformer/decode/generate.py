"""Decoding as a generator: the source is encoded once, then one token a step for every row that is not finished."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch

from glassformer.data.rows import check_ids, pad
from glassformer.data.vocabulary import BLANK, BOS, EOS, SEP
from glassformer.foundation.errors import ConfigError, DataError
from glassformer.foundation.shapes import Float, Int, Tensor
from glassformer.foundation.typed import came, is_of
from glassformer.model.config import ModelConfig
from glassformer.model.outputs import Lm
from glassformer.model.transformer import Transformer
from glassformer.parts import Cache

Choose = Callable[[Tensor], Tensor]
"""Logits [B, V] to the next tokens [B]."""


class Emitted(NamedTuple):
    """One step: the rows that still went on, by their place in the call, and the token each of them got."""

    rows: list[int]
    tokens: list[int]


def greedy(logits: Float[Tensor, "B V"]) -> Int[Tensor, " B"]:
    """The likeliest token; of equals, the one with the lowest id."""
    return logits.argmax(-1)


def generate(
    model: Transformer,
    *,
    sources: Sequence[Sequence[int]] | None = None,
    prompts: Sequence[Sequence[int]] | None = None,
    max_new_tokens: int | Sequence[int],
    choose: Choose = greedy,
    eos: int = EOS,
) -> Iterator[Emitted]:
    """Yields the tokens of each step until every row has ended with `eos` or reached its limit.

    An encoder-decoder takes `sources` (without special tokens) and begins each row with <bos>, or with `prompts`; a
    decoder takes `prompts` alone. Rows may differ in length; each gets what it would get alone. Rows that finished
    leave the batch. `max_new_tokens` is one limit, or one for each row. Errors: `ConfigError`, `DataError`.
    """
    check_writes(model)
    model.eval()
    with torch.no_grad():  # around no yield: whoever iterates keeps gradients as they are
        run = _start(model, sources, prompts)
    n_rows = len(run.tokens)
    limits = list(max_new_tokens) if isinstance(max_new_tokens, Sequence) else [max_new_tokens] * n_rows
    if len(limits) != n_rows or any(not is_of(limit, (int,)) or limit < 1 for limit in limits):
        got = f"{limits!r:.60}"
        raise ConfigError(f"max_new_tokens must be at least 1, once or for each of the {n_rows} rows; got {got}.")
    going = list(range(n_rows))  # the call's rows, in the order of the batch's
    done = [False] * n_rows
    for number in range(1, max(limits) + 1):
        with torch.no_grad():
            hidden = model.hidden(
                run.tokens, keep=run.keep, memory=run.memory, source_keep=run.memory_keep, cache=run.cache
            )
            chosen = choose(model.head(hidden[:, -1]))
        picked = chosen.tolist()
        live = [(row, token) for row, token in zip(going, picked, strict=True) if not done[row]]
        yield Emitted([row for row, _ in live], [token for _, token in live])
        for row, token in live:
            done[row] = token == eos or number >= limits[row]
        if all(done):
            return
        run = run._replace(tokens=chosen[:, None], keep=None)
        going, run = _leave(going, done, run, model.config.stack.max_len)


def check_writes(model: Transformer) -> None:
    """Refuse a model whose head gives no tokens, and what is no model. Errors: `ConfigError`."""
    if not isinstance(getattr(model, "config", None), ModelConfig):
        raise ConfigError(f"Tokens are written by a Transformer; got {came(model)}. Give the model first.")
    if not isinstance(model.config.head, Lm):
        raise ConfigError(
            f"Tokens are written by a model with head=Lm(); this one has head {model.config.head.kind!r}. "
            "Call model(tokens, keep=keep), or label_probabilities() of a classifier."
        )


def check_sources(model: Transformer, sources: Sequence[Sequence[int]]) -> None:
    """Refuse an id outside the source vocabulary by its row and column among `sources`. Errors: `DataError`."""
    size = model.config.source_vocab_size or model.config.vocab_size
    if size is not None:
        check_ids(sources, size, "sources")


class _Run(NamedTuple):
    """What goes from one step to the next."""

    tokens: Tensor
    keep: Tensor | None
    cache: Cache
    memory: Tensor | None
    memory_keep: Tensor | None


def _start(
    model: Transformer, sources: Sequence[Sequence[int]] | None, prompts: Sequence[Sequence[int]] | None
) -> _Run:
    if not model.config.stack.causal:
        raise ConfigError("generate() writes from left to right; this model reads both ways. Use fill_blanks().")
    if (sources is None) == (model.encoder is not None and model.decoder is not None):
        raise ConfigError("An encoder-decoder needs sources, a model of one stack has none; give sources or prompts.")
    if sources is not None:
        check_sources(model, sources)
    if prompts is not None:
        check_ids(prompts, model.config.vocab_size or 0, "prompts")
    if prompts is None:
        if sources is None:
            raise ConfigError("A decoder goes on from a prompt; give prompts, [[BOS]] for a fresh text.")
        prompts = [[BOS]] * len(sources)
    if sources is not None and len(sources) != len(prompts):
        raise DataError(f"Each source has one prompt; got {len(sources)} sources and {len(prompts)} prompts.")
    device = next(model.parameters()).device
    memory = memory_keep = None
    if sources is not None:
        source, memory_keep = pad([[*source, EOS] for source in sources])
        memory_keep = None if memory_keep is None else memory_keep.to(device)
        memory = model.encode(source.to(device), memory_keep)
    tokens, keep = _pad_left(prompts)
    return _Run(tokens.to(device), None if keep is None else keep.to(device), model.new_cache(), memory, memory_keep)


def _pad_left(prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor | None]:
    """Prompts with their padding in front, so that the last column is the last token of every row."""
    if any(len(prompt) == 0 for prompt in prompts):
        row = next(i for i, prompt in enumerate(prompts) if len(prompt) == 0)
        raise DataError(
            f"A prompt needs at least one token; prompt {row} (counted from 0) is empty. Begin it with BOS."
        )
    tokens, keep = pad([list(reversed(prompt)) for prompt in prompts])
    return tokens.flip(1), None if keep is None else keep.flip(1)


def _leave(going: list[int], done: list[bool], run: _Run, max_len: int | None) -> tuple[list[int], _Run]:
    """Takes finished rows out of the batch, once they are a quarter of it: moving the cache costs too.

    At once where the cache is as long as the model takes: a finished row goes on unseen, but must not go beyond that.
    """
    stay = [i for i, row in enumerate(going) if not done[row]]
    full = max_len is not None and run.cache.length >= max_len
    if len(going) - len(stay) < (1 if full else max(1, len(going) // 4)):
        return going, run
    rows = torch.tensor(stay, device=run.tokens.device)
    run.cache.select(rows)
    return [going[i] for i in stay], _Run(
        run.tokens[rows],
        None,
        run.cache,
        None if run.memory is None else run.memory[rows],
        None if run.memory_keep is None else run.memory_keep[rows],
    )


@torch.no_grad()
def fill_blanks(model: Transformer, sources: Sequence[Sequence[int]], lengths: Sequence[int]) -> list[list[int]]:
    """Answers of an encoder alone: row i reads [source, <sep>, blanks] and fills `lengths[i]` blanks at once."""
    check_writes(model)
    check_sources(model, sources)
    model.eval()
    device = next(model.parameters()).device
    rows = [[*source, SEP, *[BLANK] * length] for source, length in zip(sources, lengths, strict=True)]
    tokens, keep = pad(rows)
    logits = model(tokens.to(device), keep=None if keep is None else keep.to(device))
    best = logits.argmax(-1).tolist()
    ends = [len(row) for row in rows]
    return [best[i][end - length : end] for i, (end, length) in enumerate(zip(ends, lengths, strict=True))]
