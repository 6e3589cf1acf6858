"""Decoding token by token: encode the source once, then yield one token per step for every unfinished row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from glassformer.data.tokens.vocabulary import EOS
from glassformer.decode.choose import greedy
from glassformer.decode.filters import Choose
from glassformer.decode.prepare import kernels_of
from glassformer.decode.rows import (
    Emitted,
    Rows,
    Run,
    Stop,
    begin_rows,
    check_writes,
    forward,
    read_anew,
    read_first,
)
from glassformer.nn.observe import Evaluation
from glassformer.nn.transformer import Transformer


def generate(
    model: Transformer,
    *,
    sources: Sequence[Sequence[int]] | None = None,
    prompts: Sequence[Sequence[int]] | None = None,
    max_new_tokens: int | Sequence[int],
    choose: Choose = greedy,
    eos: int = EOS,
    stop: Stop | None = None,
    max_context: int | None = None,
    drop: int = 1,
    numbers: Sequence[int] | None = None,
    prefix: bool = False,
) -> Iterator[Emitted]:
    """Yield the tokens of each step until every row has ended with `eos`, at a `stop`, or at its limit.

    An encoder-decoder takes `sources` (without special tokens) and begins each row with <bos> or its prompt; a decoder
    takes only `prompts`. Rows may differ in length, and each gets the tokens that it would get alone. Finished rows
    leave the batch, and those that begin alike are read once, up to where they part. `max_new_tokens` is one limit, or
    one per row. `stop` is called after each step was yielded.

    With `max_context`, a longer row loses tokens at its front, as few multiples of `drop` as needed. drop=1 reads the
    last `max_context` tokens anew at each step; a larger `drop` keeps the cache for `drop` steps. Without, a row longer
    than the model takes is refused. `numbers` identify the rows to `choose` (None: their places in the call). With
    `prefix`, the tokens of a prompt read each other in both directions, as the objective "prefix" trains (Raffel et al.
    2020, section 3.2.1). Errors: `ConfigError`, `DataError`, also where a logit is NaN or +inf.

    >>> import torch
    >>> from glassformer import ModelConfig, StackConfig, Transformer, generate
    >>> model = Transformer(ModelConfig(vocab_size=9, decoder=StackConfig(d_model=8, n_heads=2, n_layers=1, d_ff=8)))
    >>> steps = list(generate(model, prompts=[[1, 7], [1]], max_new_tokens=3))
    >>> len(steps) <= 3
    True
    """
    check_writes(model)
    rows = begin_rows(model, max_new_tokens, sources, prompts, numbers, prefix, max_context, drop)
    if (written := kernels_of(model).write(model, rows, choose, eos, stop)) is not None:
        yield from written
        return
    evaluation, run = Evaluation(model), None
    while True:
        with torch.no_grad(), evaluation:  # around no yield: whoever iterates finds its own modes
            run = read_first(model, rows) if run is None else _next(model, rows, run)
            run, hidden = forward(model, run)
            live = [i for i, row in enumerate(run.active) if not rows.done[row]]
            active = [run.active[i] for i in live]
            logits = model.head(hidden.select(1, -1))
            chosen = choose(logits if len(live) == len(run.active) else logits[live], rows.context(active)).tolist()
        yield from rows.grow(Emitted(active, chosen), eos, stop)
        if all(rows.done):
            return


def _next(model: Transformer, rows: Rows, run: Run) -> Run:
    """Prepare the next step: read each row's newest token, or all tokens anew if a row lost some at its front."""
    live = [i for i, row in enumerate(run.active) if not rows.done[row]]
    active = [run.active[i] for i in live]
    if [rows.begin(row) for row in active] != [run.begins[i] for i in live]:
        return read_anew(model, rows, active, *run.memory_of(live))
    run = _leave(run, live, model.config.stack.max_len)
    newest = torch.tensor([[rows.written[row][-1]] for row in run.active], device=run.tokens.device)
    return run._replace(tokens=newest, keep=None, prefix=None)


def _leave(run: Run, live: list[int], max_len: int | None) -> Run:
    """Remove finished rows from the batch once they are a quarter of it, because copying the cache costs time too.

    If the cache is as long as the model takes, remove them at once: a finished row that stays would grow beyond that.
    """
    full = max_len is not None and run.cache.length >= max_len
    if len(run.active) - len(live) < (1 if full else max(1, len(run.active) // 4)):
        return run
    return run.select(live)
