"""Contrastive search: choose a likely token whose vector differs from those of the text so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from glassformer.base.errors import ConfigError
from glassformer.base.shapes import Bool, Float, Int, Tensor
from glassformer.data.tokens.vocabulary import EOS
from glassformer.decode.choose import apply
from glassformer.decode.filters import Context, Filter
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


class Seen(NamedTuple):
    """What was read of the unfinished rows: unit vectors of all tokens, which are real, and the next token's logits."""

    directions: Float[Tensor, "B T D"]
    real: Bool[Tensor, "B T"]
    logits: Float[Tensor, "B V"]

    def select(self, rows: Int[Tensor, " rows"]) -> Seen:
        """Return the given rows."""
        return Seen(*(each[rows] for each in self))


def contrastive(
    model: Transformer,
    *,
    alpha: float,
    k: int = 4,
    filters: Sequence[Filter] = (),
    eos: int = EOS,
    stop: Stop | None = None,
    **given: Any,
) -> Iterator[Emitted]:
    """Yield tokens as `generate` does, choosing among the k most likely by probability and by novelty.

    The chosen token v maximises (1 - alpha) * p(v) - alpha * max_j cos(h_v, h_j) (Su et al. 2022, equation 5). Here h
    are the vectors before the head, h_v is that of v read after the text, and j runs over all tokens read before. alpha
    0 is greedy decoding. Each step reads k tokens per row. `filters` apply before the k are taken; tokens that they
    forbid are never written. When a row is as long as the model takes, v cannot be read, and the most likely token is
    its last. The other arguments are those of `generate`. Errors: `ConfigError`, `DataError`.
    """
    check_writes(model)
    if not 0 <= alpha <= 1:
        raise ConfigError(f"alpha of contrastive search must be from 0 to 1; got {alpha}. Try 0.6.")
    if k < 1:
        raise ConfigError(f"k of contrastive search must be at least 1; got {k}. Try k=4.")
    rows, evaluation = begin_rows(model, **given), Evaluation(model)
    if (context := rows.max_context) == 1:
        raise ConfigError("Contrastive search reads one token ahead, so max_context must be at least 2; got 1.")
    if context is not None:  # leave room for the candidate token
        rows = rows._replace(max_context=context - 1, drop=min(rows.drop, context - 1))
    with torch.no_grad(), evaluation:
        run, seen = read(model, read_first(model, rows))
    while True:
        with torch.no_grad(), evaluation:
            tokens, run, seen = step(model, rows.context(run.active), run, seen, alpha, k, filters)
        yield from rows.grow(Emitted(run.active, tokens.tolist()), eos, stop)
        if all(rows.done):
            return
        with torch.no_grad(), evaluation:
            run, seen = stay(model, rows, run, seen)


def read(model: Transformer, run: Run) -> tuple[Run, Seen]:
    """Read the tokens that a run holds; return it, and what contrastive search needs of them."""
    run, hidden = forward(model, run)
    real = torch.ones_like(run.tokens, dtype=torch.bool) if run.keep is None else run.keep
    return run, Seen(F.normalize(hidden, dim=-1), real, model.head(hidden[:, -1]))


def step(
    model: Transformer, context: Context, run: Run, seen: Seen, alpha: float, k: int, filters: Sequence[Filter]
) -> tuple[Int[Tensor, " B"], Run, Seen]:
    """Choose the next token of each row; return it with the updated run and what was read."""
    logits = apply(filters, seen.logits, context)
    p, candidates = logits.softmax(-1).topk(min(k, logits.shape[-1]))
    n, k = p.shape
    lengths = [len(ids) - begin for ids, begin in zip(context.read, run.begins, strict=True)]
    room = torch.tensor([length != model.config.stack.max_len for length in lengths], device=p.device)
    if not bool(room.any()):
        return candidates[:, 0], run, seen
    rows = torch.arange(n, device=p.device)
    spread = rows.repeat_interleave(k)
    run.cache.select(spread)
    of_source = {
        "memory": None if run.memory is None else run.memory[spread],
        "source_keep": None if run.memory_keep is None else run.memory_keep[spread],
    }
    keep = None if bool(room.all()) else room[spread, None]  # a full row reads padding and ends with this step
    ahead = model.hidden(candidates.flatten()[:, None], keep=keep, cache=run.cache, **of_source)[:, 0]
    ahead = ahead.unflatten(0, (n, k))
    directions = F.normalize(ahead, dim=-1)
    similarity = (directions @ seen.directions.mT).masked_fill(~seen.real[:, None], -torch.inf).amax(-1)
    best = ((1 - alpha) * p - alpha * similarity).masked_fill(p == 0, -torch.inf).argmax(-1) * room
    run.cache.select(rows * k + best)
    more = Seen(
        torch.cat([seen.directions, directions[rows, best][:, None]], 1),
        torch.cat([seen.real, room[:, None]], 1),
        logits,
    )
    return candidates[rows, best], run, more._replace(logits=model.head(ahead[rows, best]))


def stay(model: Transformer, rows: Rows, run: Run, seen: Seen) -> tuple[Run, Seen]:
    """Keep the unfinished rows; read all anew if one lost tokens at its front."""
    live = [i for i, row in enumerate(run.active) if not rows.done[row]]
    if len(live) < len(run.active):
        run, seen = run.select(live), seen.select(torch.tensor(live, device=run.tokens.device))
    if [rows.begin(row) for row in run.active] == run.begins:
        return run, seen
    return read(model, read_anew(model, rows, run.active, run.memory, run.memory_keep))
