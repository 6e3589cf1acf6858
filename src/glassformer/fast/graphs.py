"""Steps of decoding as CUDA graphs: captured once, replayed for each token, asked for before the last one is known.

A step is hundreds of small operations, and asking for one takes the host longer than an accelerator needs for it; a
graph asks for all of them at once. All of a step is captured, from the embedding of a token to the choice of the next.
Its cache has constant shapes; it is captured anew when rows leave, and when the cache is full.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple, cast

import torch

from glassformer.base.shapes import Float, Int, Tensor
from glassformer.base.tracing import Constants, as_recorded
from glassformer.decode.choose import Chooser, draw, greedy, own_uniforms
from glassformer.decode.filters import ByLogits, Choose, Context
from glassformer.decode.rows import Emitted, Rows, Run, Stop, forward, read_first
from glassformer.fast.native import Hooks
from glassformer.nn.attention import Attention
from glassformer.nn.cache import FixedCache
from glassformer.nn.ensemble import Ensemble
from glassformer.nn.feed_forward import Experts
from glassformer.nn.observe import Evaluation
from glassformer.nn.rules import ATTEND
from glassformer.nn.stack import Stack
from glassformer.nn.transformer import Transformer

LEAST_ROOM = 64
"""The least columns of a cache in constant shapes. A full one is exchanged for one of twice as many."""
REHEARSALS = 8
"""Steps of one shape before it is recorded. Libraries make their plans in the first one; and as recording takes as long
as some steps, a shape that is soon left would not be worth it."""
Work = Callable[[], None]
_ONE_AT_A_TIME = Lock()
"""CUDA records one graph at a time in a process."""


class Cuda:
    """What decoding asks of a CUDA device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._refuses = False

    def record(self, work: Work) -> Work:
        """Records the operations of `work` on the device, and returns what does them on the same tensors.

        Nothing in a tensor changes meanwhile, but whatever else `work` changes on the host does. What CUDA refuses to
        record is asked for one by one from then on; a warning says so.
        """
        if self._refuses:
            return work
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(self.device)
        # A failure leaves the stream of the record as the current one; the outer `with` sets it back.
        with _ONE_AT_A_TIME, torch.cuda.stream(torch.cuda.current_stream(self.device)):
            try:
                with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                    work()
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                self._refuses = True
                first = str(error.__context__ or error).partition("\n")[0]
                warnings.warn(
                    "A step of decoding cannot be a CUDA graph here, so its operations are asked for one by one: "
                    f"{first}",
                    stacklevel=2,
                )
                return work
        return graph.replay

    def give(self, numbers: Sequence[float], to: Float[Tensor, " B"]) -> None:
        """Puts numbers into a tensor once what was asked for before is done. Nobody waits.

        They come from memory of their own each time, which stays until it was read.
        """
        to.copy_(torch.tensor(numbers, dtype=to.dtype, pin_memory=True), non_blocking=True)

    def sent(self, ids: Int[Tensor, " B"]) -> Callable[[], list[int]]:
        """Begins to send numbers to the host, as they will be then; returns what waits for them."""
        here = torch.empty(ids.shape, dtype=ids.dtype, pin_memory=True)
        here.copy_(ids, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record(torch.cuda.current_stream(self.device))

        def received() -> list[int]:
            arrived.synchronize()
            return here.tolist()

        return received


RECORDERS: dict[str, Callable[[torch.device], Cuda]] = {"cuda": Cuda}
"""By the type of a device. A CPU needs none: there our C++ takes a whole step in one call."""


REFUSED = -1
"""In place of a token where `Choose` raises an error."""


@dataclass(frozen=True)
class Ahead:
    """A `Choose` that looks at logits only, and at random numbers that the host knows in advance."""

    steps: Sequence[ByLogits]
    seed: int | None
    """Of the random numbers, as `own_uniforms` makes them; None: the most likely token is chosen."""

    def __call__(self, logits: Float[Tensor, "B V"], uniforms: Float[Tensor, " B"] | None = None) -> Int[Tensor, " B"]:
        """Return what `Choose` would, or `REFUSED`."""
        given = kept = logits.to(torch.promote_types(logits.dtype, torch.float32))
        for each in self.steps:
            kept = each.step(kept)
        ids = kept.argmax(-1) if uniforms is None else draw(kept, uniforms)
        sound = (given.amax(-1) < math.inf) & kept.amax(-1).isfinite()  # NaN is not below infinity
        return torch.where(sound, ids, REFUSED)


def ahead_of(choose: Choose) -> Ahead | None:
    """Return how to choose as `choose` does before the last tokens are known; None if it has to know them."""
    if choose is greedy:
        return Ahead((), None)
    if not isinstance(choose, Chooser):
        return None
    steps = [each for each in choose.steps if isinstance(each, ByLogits)]
    if len(steps) < len(choose.steps):
        return None
    return Ahead(steps, None if choose.sampling.temperature == 0 else choose.sampling.seed)


class Sent(NamedTuple):
    """A step that was asked for: its rows, what waits for their tokens, and the logits that these were chosen by."""

    active: list[int]
    ids: Callable[[], list[int]]
    logits: Float[Tensor, "B V"]


def may_be_recorded(model: Transformer, rows: Rows) -> bool:
    """Whether no step of these rows asks what is in a tensor, and nobody looks into the model.

    Experts ask how many tokens each of them has, and a row that may get longer than the model or the context takes is
    measured. Autocast keeps copies of weights only for a while.
    """
    stack = model.config.stack
    if isinstance(model, Ensemble) or type(model.reader) is not Stack or model.rounds_cache:
        return False
    if stack.pattern is not None and stack.pattern.window is not None:  # a cache that drops keys needs less memory
        return False
    if stack.layers:  # masks of several kinds, which may ask where padding is
        return False
    if torch.is_autocast_enabled(next(model.parameters()).device.type):
        return False
    hooks = Hooks()
    for each in model.modules():
        hooks.watch(each)
        if isinstance(each, Experts) or (isinstance(each, Attention) and each.attend is not ATTEND["softmax"]["auto"]):
            return False
    read = [len(prompt) + limit - 1 for prompt, limit in zip(rows.prompts, rows.limits, strict=True)]
    fits = rows.max_context is None or max(read, default=0) <= rows.max_context
    return fits and (stack.max_len is None or columns_of(rows) <= stack.max_len) and not hooks.any


def columns_of(rows: Rows) -> int:
    """How many columns the rows take in a cache; the last token that a row writes is never read."""
    return max(map(len, rows.prompts), default=0) + max(rows.limits, default=0) - 1


def write(model: Transformer, rows: Rows, choose: Choose, eos: int, stop: Stop | None) -> Iterator[Emitted] | None:
    """What `generate` yields, by steps that are captured; None where they cannot be."""
    device, ahead = next(model.parameters()).device, ahead_of(choose)
    if device.type not in RECORDERS or ahead is None or not may_be_recorded(model, rows):
        return None
    return write_ahead(model, rows, choose, ahead, eos, stop, RECORDERS[device.type](device))


def write_ahead(
    model: Transformer, rows: Rows, choose: Choose, ahead: Ahead, eos: int, stop: Stop | None, recorder: Cuda
) -> Iterator[Emitted]:
    """Yield what `generate` does. Errors: as there."""
    evaluation = Evaluation(model)
    with torch.no_grad(), evaluation:
        run, hidden = forward(model, read_first(model, rows, whole=True))
        steps = Steps(model, run, rows, ahead, recorder)
        coming = steps.begin(hidden)
    while True:
        with torch.no_grad(), evaluation:
            steps.leave(rows.done)
            goes_on = any(len(rows.written[row]) + 1 < rows.limits[row] for row in coming.active if not rows.done[row])
            after = steps.launch() if goes_on else None
            ids = coming.ids()
            live = [i for i, row in enumerate(coming.active) if not rows.done[row]]
            active, chosen = [coming.active[i] for i in live], [ids[i] for i in live]
            if REFUSED in chosen:
                chosen = choose(coming.logits[live], rows.context(active)).tolist()  # which says why
        yield from rows.grow(Emitted(active, chosen), eos, stop)
        if after is None or all(rows.done):
            return
        coming = after


class Steps:
    """The steps of rows whose prompts have been read."""

    def __init__(self, model: Transformer, run: Run, rows: Rows, ahead: Ahead, recorder: Cuda) -> None:
        self._model, self._rows, self._ahead, self._recorder = model, rows, ahead, recorder
        self._run = run._replace(tokens=run.tokens.new_zeros(len(run.active), 1), keep=None, prefix=None)
        self._written = 0
        self._constants: Constants = {}
        self._uniforms: Tensor | None = None
        self._answer: tuple[Tensor, Tensor] | None = None
        """The ids and logits that a step computes, in places where the next one writes its own."""
        self._launch: Work | None = None
        self._move()

    def begin(self, hidden: Float[Tensor, "B T D"]) -> Sent:
        """Choose the first tokens."""
        self._draw()
        self._choose(hidden)
        return self._sent()

    def leave(self, done: list[bool]) -> None:
        """Remove finished rows once they are a quarter of the batch: a batch of another size is recorded anew."""
        live = [i for i, row in enumerate(self._run.active) if not done[row]]
        if len(self._run.active) - len(live) >= max(1, len(self._run.active) // 4):
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
            self._launch = self._recorder.record(self._step)
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
        numbers, n = [self._rows.numbers[row] for row in self._run.active], self._written
        of_each = Context(numbers, [()] * len(numbers), [range(n)] * len(numbers))  # only how many were written counts
        if self._uniforms is None:
            self._uniforms = torch.empty(len(numbers), dtype=torch.float64, device=self._run.tokens.device)
        self._recorder.give(own_uniforms(self._ahead.seed, of_each), self._uniforms)

    def _step(self) -> None:
        run = self._run
        with as_recorded(self._constants):
            of_source = {"memory": run.memory, "source_keep": run.memory_keep}
            self._choose(self._model.hidden(run.tokens, cache=run.cache, **of_source))

    def _choose(self, hidden: Float[Tensor, "B T D"]) -> None:
        logits = self._model.head(hidden.select(1, -1))
        ids = self._ahead(logits, self._uniforms)
        self._run.tokens.copy_(ids.clamp(min=0)[:, None])
        self._answer = (ids, logits)

    def _sent(self) -> Sent:
        """The answer, copied before the next step writes over it."""
        assert self._answer is not None, "a step was made"
        ids, logits = self._answer
        self._written += 1
        return Sent(self._run.active, self._recorder.sent(ids), logits.clone())
