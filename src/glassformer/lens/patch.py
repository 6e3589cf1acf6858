"""Activation patching: what of a run with one input, put into a run with another, brings the first one's answer back.

Two inputs that differ in little, as `a b c` and `a d c`, are read by the same model; `kept` has what every head and
every block gave for the first. In a run with the second, one of those is put in the place of its own (Vig et al. 2020,
"Investigating Gender Bias in Language Models Using Causal Mediation Analysis"; Meng et al. 2022, "Locating and Editing
Factual Associations in GPT", section 2.1). What share of the answer's log probability comes back is the effect.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import nn

from glassformer.attend import Attend, Mask
from glassformer.decode.answer import nothing
from glassformer.foundation.errors import DataError
from glassformer.foundation.shapes import Float, Int, Tensor
from glassformer.lens.ablate import Head, by_attention
from glassformer.lens.blocks import place
from glassformer.model.stack import Stack
from glassformer.model.transformer import Transformer
from glassformer.parts import Attended, attentions, watch_attention

Where = tuple[str, int]
"""A stack, or a kind of attention, and its layer. Of a stream: how many blocks have written, 0 for the input."""
Replace = Callable[[Tensor], Tensor]
MOST_ROWS = 64
"""Runs of one forward."""
MOST_PLACES = 4096
"""Tokens of one forward, of all its runs together; one run may have more."""


class Input(NamedTuple):
    """What a model is given, one sequence without padding."""

    tokens: Int[Tensor, "1 T"]
    source: Int[Tensor, "1 S"] | None = None


@dataclass
class Kept:
    """What a run gave, to be put into another."""

    heads: dict[Where, Float[Tensor, "H T K"]] = field(default_factory=dict)
    """By kind of attention and layer, before the output map."""
    streams: dict[Where, Float[Tensor, "T D"]] = field(default_factory=dict)
    """By stack and number of blocks that have written."""


class Patching(NamedTuple):
    """The effects of every patch. Shares: 0 as the second input alone, 1 as the first."""

    one: float
    """Log probability (nats) of the answer to the first input, when the model reads that."""
    other: float
    """The same when it reads the second."""
    heads: dict[Where, Float[Tensor, " H"]]
    """Each head by itself, at all places."""
    streams: dict[str, Float[Tensor, "L T"]]
    """Of each stack: the stream behind so many blocks, at one place."""


@torch.no_grad()
def keep(model: Transformer, given: Input) -> Kept:
    """What every head and every block gives, in evaluation mode."""
    kept = Kept()

    def note(call: Attended) -> None:
        kept.heads[place(call.name)] = call.output[0]

    def noting(side: str, depth: int) -> Replace:
        def same(x: Tensor) -> Tensor:
            kept.streams[side, depth] = x[0]
            return x

        return same

    model.eval()
    everywhere = {where: noting(*where) for where in stream_places(model)}
    with watch_attention(model, note), replaced(model, {}, everywhere):
        model(given.tokens, source=given.source)
    return kept


@contextmanager
def patched(
    model: Transformer, kept: Kept, *, heads: Iterable[Head] = (), streams: Iterable[tuple[str, int, int | None]] = ()
) -> Generator[None]:
    """While it lasts, these heads and these vectors of the streams are those that were kept.

    A stream is a stack, how many blocks have written (0: the input), and a place, or None for all of them. With the
    inputs of all stacks, at all places, a run is the one that was kept. Errors: `ConfigError` for a head, and
    `DataError` for a stream, that the model does not have.
    """
    by_where = dict(by_attention(model, heads).values())
    asked: dict[Where, list[int | None]] = {}
    for side, depth, at in streams:
        if (side, depth) not in kept.streams:
            there = ", ".join(f"{name} {n}" for name, n in kept.streams)
            raise DataError(
                f"A stream is a stack and how many blocks have written; got {(side, depth)}. It has {there}."
            )
        asked.setdefault((side, depth), []).append(at)

    def of_heads(where: Where, numbers: Sequence[int]) -> Replace:
        def replace(output: Tensor) -> Tensor:
            output = output.clone()
            output[:, numbers] = kept.heads[where][numbers].to(output)
            return output

        return replace

    def of_stream(where: Where, places: Sequence[int | None]) -> Replace:
        def replace(x: Tensor) -> Tensor:
            x = x.clone()
            for at in places:
                chosen = slice(None) if at is None else at
                x[:, chosen] = kept.streams[where][chosen].to(x)
            return x

        return replace

    with replaced(
        model,
        {where: of_heads(where, numbers) for where, numbers in by_where.items()},
        {where: of_stream(where, places) for where, places in asked.items()},
    ):
        yield


@torch.no_grad()
def patch(
    model: Transformer, one: Input, other: Input, said: Sequence[int | None], *, poll: Callable[[], None] = nothing
) -> Patching:
    """The effect of every head, and of every vector of the streams, of the first input in a run with the second.

    `said` is the answer to the first, by place of `tokens`; None where none is asked for. Each effect is (p - b) /
    (a - b), with the answer's log probability p of the patched run, a and b those of the two inputs. `poll` is called
    before each forward, of which there are many: what it raises ends them.
    Errors: `DataError` where the inputs differ in length, or where both give the answer the same probability.
    """
    refuse_unlike(one, other)
    at_once = max(1, min(MOST_ROWS, MOST_PLACES // max(each.shape[1] for each in other if each is not None)))
    kept = keep(model, one)
    a, b = (float(scores(model, each, said, 1)[0]) for each in (one, other))
    if abs(a - b) < 1e-9:
        raise DataError(
            "Both inputs give the answer the same probability, so nothing can be brought back. Choose others."
        )
    heads: dict[Where, Tensor] = {}
    streams: dict[str, list[Tensor]] = {}

    def share(rows: int, of: Callable[[slice], tuple[Mapping[Where, Replace], Mapping[Where, Replace]]]) -> Tensor:
        found: list[Tensor] = []
        for begin in range(0, rows, at_once):
            poll()
            part = slice(begin, min(begin + at_once, rows))
            with replaced(model, *of(part)):
                found.append(scores(model, other, said, part.stop - part.start))
        return (torch.cat(found) - b) / (a - b)

    for where, given in kept.heads.items():
        heads[where] = share(
            len(given), lambda part, where=where, given=given: ({where: each_its_own(given, part)}, {})
        )
    for where, given in kept.streams.items():
        effect = share(len(given), lambda part, where=where, given=given: ({}, {where: each_its_own(given, part)}))
        streams.setdefault(where[0], []).append(effect)
    return Patching(a, b, heads, {side: torch.stack(rows) for side, rows in streams.items()})


def each_its_own(given: Tensor, part: slice) -> Replace:
    """Row i of a batch gets entry i of `part` along the second axis, and stays as it is elsewhere."""

    def replace(x: Tensor) -> Tensor:
        rows, entries = torch.arange(len(x)), torch.arange(part.start, part.stop)
        x = x.clone()
        x[rows, entries] = given[entries].to(x)
        return x

    return replace


def scores(model: Transformer, given: Input, said: Sequence[int | None], rows: int) -> Float[Tensor, " N"]:
    """Log probability (nats) of an answer, in each of so many equal rows."""
    source = None if given.source is None else given.source.expand(rows, -1)
    places = [t for t, token in enumerate(said) if token is not None]
    tokens = [token for token in said if token is not None]
    hidden = model.hidden(given.tokens.expand(rows, -1), source=source)
    log_p = model.head(hidden[:, places]).cpu().double().log_softmax(-1)
    return log_p[:, range(len(places)), tokens].sum(-1)


def refuse_unlike(one: Input, other: Input) -> None:
    """Refuse inputs of unlike lengths. Errors: `DataError`."""
    for first, second in zip(one, other, strict=True):
        if first is not None and second is not None and first.shape != second.shape:
            raise DataError(
                "Two inputs are patched place by place, so they must have the same number of tokens; "
                f"got {first.shape[1]} and {second.shape[1]}. Change tokens, and add or remove none."
            )


def stream_places(model: Transformer) -> list[Where]:
    """Every stack with every number of blocks that may have written."""
    return [(side, depth) for side, stack in stacks(model).items() for depth in range(len(stack.blocks) + 1)]


def stacks(model: Transformer) -> dict[str, Stack]:
    """The stacks that there are, by side."""
    sides = {"encoder": model.encoder, "decoder": model.decoder}
    return {side: stack for side, stack in sides.items() if stack is not None}


@contextmanager
def replaced(model: Transformer, heads: Mapping[Where, Replace], streams: Mapping[Where, Replace]) -> Generator[None]:
    """While it lasts, what heads give (before the output map) and what the streams hold goes through these."""
    there = {place(name): attention for name, attention in attentions(model).items()}
    with ExitStack() as undo:
        for where, replace in heads.items():
            attention = there[where]
            undo.callback(setattr, attention, "attend", attention.attend)
            attention.attend = _after(attention.attend, replace)
        for side, stack in stacks(model).items():
            mine = {depth: replace for (name, depth), replace in streams.items() if name == side}
            if mine:
                undo.callback(setattr, stack, "through", stack.through)
                stack.through = _between(stack.through, mine)
        yield


def _after(own: Attend, replace: Replace) -> Attend:
    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask, *, scale: float, dropout: float = 0.0) -> Tensor:
        return replace(own(q, k, v, mask, scale=scale, dropout=dropout))

    return attend


def _between(own: Callable[..., Tensor], replace: Mapping[int, Replace]) -> Callable[..., Tensor]:
    def through(blocks: nn.ModuleList, run: Callable[[nn.Module, Tensor], Tensor], x: Tensor) -> Tensor:
        written = 0

        def running(block: nn.Module, x: Tensor) -> Tensor:
            nonlocal written
            written += 1
            x = run(block, x)
            return replace[written](x) if written in replace else x

        return own(blocks, running, replace[0](x) if 0 in replace else x)

    return through
