"""Decoding whose steps are recorded: the host asks for a step before it has read the token that the last one chose.

All of a step is recorded once, from the embedding of a token to the choice of the next, and done again for each token
(machine.py). Its cache has constant shapes; it is recorded anew when rows leave, and when the cache is full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, cast

import torch

from glassformer.base.recording import Constants, as_recorded
from glassformer.base.shapes import Float, Int, Tensor
from glassformer.decode.choose.ahead import REFUSED, Ahead
from glassformer.decode.choose.context import Choose, Context
from glassformer.decode.choose.draw import own_uniforms
from glassformer.decode.machine import Machine, Work
from glassformer.decode.rows import Emitted, Rows, Stop
from glassformer.decode.run import Run, forward, read_first
from glassformer.nn.attend import ATTEND
from glassformer.nn.attention import Attention
from glassformer.nn.evaluation import Evaluation
from glassformer.nn.feed_forward import Experts
from glassformer.nn.fixed import FixedCache
from glassformer.nn.hooks import Hooks
from glassformer.nn.joint import Joint
from glassformer.nn.stack import Stack
from glassformer.nn.transformer import Transformer

LEAST_ROOM = 64
"""The least columns of a cache in constant shapes. A full one is exchanged for one of twice as many."""
REHEARSALS = 8
"""Steps of one shape before it is recorded. Libraries make their plans in the first one; and as recording takes as long
as some steps, a shape that is soon left would not be worth it."""


class Sent(NamedTuple):
    """A step that was asked for: its rows, what waits for their tokens, and the logits that these were chosen by."""

    going: list[int]
    ids: Callable[[], list[int]]
    logits: Float[Tensor, "B V"]


def may_be_recorded(model: Transformer, rows: Rows, max_context: int | None) -> bool:
    """Whether no step of these rows asks what is in a tensor, and nobody looks into the model.

    Experts ask how many tokens each of them has, and a row that may get longer than the model or the context takes is
    measured. Autocast keeps copies of weights only for a while.
    """
    stack = model.config.stack
    if isinstance(model, Joint) or type(model.reader) is not Stack or model.rounds_cache:
        return False
    if stack.pattern is not None and stack.pattern.window is not None:  # a cache that drops keys needs less memory
        return False
    if torch.is_autocast_enabled(next(model.parameters()).device.type):
        return False
    hooks = Hooks()
    for each in model.modules():
        hooks.watch(each)
        if isinstance(each, Experts) or (isinstance(each, Attention) and each.attend is not ATTEND["softmax"]["auto"]):
            return False
    read = [len(prompt) + limit - 1 for prompt, limit in zip(rows.prompts, rows.limits, strict=True)]
    fits = max_context is None or max(read, default=0) <= max_context
    return fits and (stack.max_len is None or columns_of(rows) <= stack.max_len) and not hooks.any


def columns_of(rows: Rows) -> int:
    """How many columns the rows take in a cache; the last token that a row writes is never read."""
    return max(map(len, rows.prompts), default=0) + max(rows.limits, default=0) - 1


def write_ahead(
    model: Transformer, rows: Rows, choose: Choose, ahead: Ahead, eos: int, stop: Stop | None, machine: Machine
) -> Iterator[Emitted]:
    """Yield what `generate` does. Errors: as there."""
    evaluation = Evaluation(model)
    with torch.no_grad(), evaluation:
        run, hidden = forward(model, read_first(model, rows, whole=True))
        steps = Steps(model, run, rows, ahead, machine)
        coming = steps.begin(hidden)
    while True:
        with torch.no_grad(), evaluation:
            steps.leave(rows.done)
            goes_on = any(len(rows.written[row]) + 1 < rows.limits[row] for row in coming.going if not rows.done[row])
            after = steps.launch() if goes_on else None
            ids = coming.ids()
            live = [i for i, row in enumerate(coming.going) if not rows.done[row]]
            going, chosen = [coming.going[i] for i in live], [ids[i] for i in live]
            if REFUSED in chosen:
                chosen = choose(coming.logits[live], rows.context(going)).tolist()  # which says why
        yield from rows.grow(Emitted(going, chosen), eos, stop)
        if after is None or all(rows.done):
            return
        coming = after


class Answer(NamedTuple):
    """What a step computes, in places where the next one writes its own."""

    ids: Int[Tensor, " B"]
    logits: Float[Tensor, "B V"]


class Steps:
    """The steps of rows whose prompts have been read."""

    def __init__(self, model: Transformer, run: Run, rows: Rows, ahead: Ahead, machine: Machine) -> None:
        self._model, self._rows, self._ahead, self._machine = model, rows, ahead, machine
        self._run = run._replace(tokens=run.tokens.new_zeros(len(run.going), 1), keep=None, prefix=None)
        self._written = 0
        self._constants: Constants = {}
        self._uniforms: Tensor | None = None
        self._answer: Answer | None = None
        self._launch: Work | None = None
        self._move()

    def begin(self, hidden: Float[Tensor, "B T D"]) -> Sent:
        """Choose the first tokens."""
        self._draw()
        self._choose(hidden)
        return self._sent()

    def leave(self, done: list[bool]) -> None:
        """Remove finished rows once they are a quarter of the batch: a batch of another size is recorded anew."""
        live = [i for i, row in enumerate(self._run.going) if not done[row]]
        if len(self._run.going) - len(live) >= max(1, len(self._run.going) // 4):
            self._run = self._run.select(live)
            self._forget()

    def launch(self) -> Sent:
        """Ask for the next step, which reads the tokens that the last one chose."""
        length = self._cache.length
        if length == self._cache.room:
            self._move()
        self._draw()
        if self._rehearsed < REHEARSALS:
            self._rehearsed += 1
            self._step()
            return self._sent()
        if self._launch is None:
            self._launch = self._machine.record(self._step)
            self._cache.stand_at(length)
        self._launch()
        self._cache.stand_at(length + 1)
        return self._sent()

    @property
    def _cache(self) -> FixedCache:
        return cast(FixedCache, self._run.cache)

    def _move(self) -> None:
        """Move to a cache of twice the columns, as far as they will be needed."""
        held = self._run.cache
        room = min(columns_of(self._rows), max(LEAST_ROOM, 2 * held.length))
        cache = cast(FixedCache, self._model.new_cache(room))
        cache.take(held)
        self._run = self._run._replace(cache=cache)
        self._forget()

    def _forget(self) -> None:
        self._launch, self._rehearsed, self._uniforms = None, 0, None

    def _draw(self) -> None:
        """Put the random numbers of the next step where it finds them."""
        if self._ahead.seed is None:
            return
        numbers, n = [self._rows.numbers[row] for row in self._run.going], self._written
        of_each = Context(numbers, [()] * len(numbers), [range(n)] * len(numbers))  # only how many were written counts
        if self._uniforms is None:
            self._uniforms = torch.empty(len(numbers), dtype=torch.float64, device=self._run.tokens.device)
        self._machine.give(own_uniforms(self._ahead.seed, of_each), self._uniforms)

    def _step(self) -> None:
        run = self._run
        with as_recorded(self._constants):
            of_source = {"memory": run.memory, "source_keep": run.memory_keep}
            self._choose(self._model.hidden(run.tokens, cache=run.cache, **of_source))

    def _choose(self, hidden: Float[Tensor, "B T D"]) -> None:
        logits = self._model.head(hidden.select(1, -1))
        ids = self._ahead(logits, self._uniforms)
        self._run.tokens.copy_(ids.clamp(min=0)[:, None])
        self._answer = Answer(ids, logits)

    def _sent(self) -> Sent:
        """The answer, copied before the next step writes over it."""
        assert self._answer is not None, "a step was made"
        self._written += 1
        return Sent(self._run.going, self._machine.sent(self._answer.ids), self._answer.logits.clone())
