"""Activation patching: which activations of a pass over one input restore its answer in a pass over another input.

The same model reads two inputs that differ little, like `a b c` and `a d c`; `keep` stores the output of every head and
block for the first. In a pass over the second, one activation is replaced by the stored one (Vig et al. 2020,
"Investigating Gender Bias in Language Models Using Causal Mediation Analysis"; Meng et al. 2022, "Locating and Editing
Factual Associations in GPT", section 2.1). The effect is the share of the answer's log-probability that this restores.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from glassformer.base.errors import DataError
from glassformer.base.shapes import Float, Int, Tensor
from glassformer.base.typed import expect
from glassformer.decode.answer import nothing
from glassformer.lens.ablate import Head, Replace, by_attention, by_place, place, recorded_stream, through
from glassformer.nn.observe import Attended, Evaluation, watch_attention
from glassformer.nn.stack import Stack
from glassformer.nn.transformer import Transformer

Where = tuple[str, int]
"""A kind of attention and its layer; or, for streams, a stack and how many blocks have written (0 at the input)."""
MOST_ROWS = 64
"""The most patched runs in one forward pass."""
MOST_PLACES = 4096
"""The most tokens in one forward pass, over all its runs; a single run may have more."""


class Input(NamedTuple):
    """The input of a model: one sequence without padding."""

    tokens: Int[Tensor, "1 T"]
    source: Int[Tensor, "1 S"] | None = None


@dataclass
class Kept:
    """The activations of one run, to be patched into another."""

    heads: dict[Where, Float[Tensor, "H T K"]] = field(default_factory=dict)
    """By kind of attention and layer, before the output projection."""
    streams: dict[Where, Float[Tensor, "T D"]] = field(default_factory=dict)
    """By stack and number of blocks that have written."""


class Patching(NamedTuple):
    """The effect of every patch, as a share: 0 as with the second input alone, 1 as with the first."""

    one: float
    """Log-probability (nats) of the answer to the first input when the model reads the first input."""
    other: float
    """The same when the model reads the second input."""
    heads: dict[Where, Float[Tensor, " H"]]
    """Each head by itself, at all positions."""
    streams: dict[str, Float[Tensor, "L T"]]
    """For each stack, the stream after so many blocks, at one position."""


@torch.no_grad()
def keep(model: Transformer, given: Input) -> Kept:
    """Run the model in evaluation mode and return the outputs of every head and block."""
    kept = Kept()

    def note(call: Attended) -> None:
        kept.heads[place(call.name)] = call.output[0]

    streams: dict[str, list[Tensor]] = {side: [] for side in stacks(model)}
    with Evaluation(model), watch_attention(model, note), ExitStack() as recording:
        for side, stack in stacks(model).items():
            recording.enter_context(recorded_stream(stack, streams[side]))
        model(given.tokens, source=given.source)
    kept.streams |= {(side, depth): x[0] for side, found in streams.items() for depth, x in enumerate(found)}
    return kept


@contextmanager
def patched(
    model: Transformer, kept: Kept, *, heads: Iterable[Head] = (), streams: Iterable[tuple[str, int, int | None]] = ()
) -> Generator[None]:
    """Replace these heads' outputs and these stream vectors by the kept ones, for the length of the `with`.

    A stream is given as a stack, how many blocks have written (0: the input), and a position, or None for all. Patching
    the inputs of all stacks at all positions reproduces the kept run. Errors: `ConfigError` for a head, and `DataError`
    for a stream, that the model does not have.
    """
    by_where = dict(by_attention(model, heads).values())
    requested: dict[Where, list[int | None]] = {}
    for side, depth, at in streams:
        if (side, depth) not in kept.streams:
            there = ", ".join(f"{name} {n}" for name, n in kept.streams)
            raise DataError(
                f"A stream is (stack, number of blocks before it, position); got {(side, depth)} first, which this "
                f"model does not have. It has {there}."
            )
        requested.setdefault((side, depth), []).append(at)

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
        {where: of_stream(where, places) for where, places in requested.items()},
    ):
        yield


@torch.no_grad()
def patch(
    model: Transformer,
    one: Input,
    other: Input,
    answer_ids: Sequence[int | None],
    *,
    poll: Callable[[], None] = nothing,
) -> Patching:
    """Measure the effect of patching each head, and each stream vector, of the first input into a run of the second.

    `answer_ids` is the answer to the first, by position of `tokens`; None where no token is predicted. Each effect is
    (p - b) / (a - b), where p is the answer's log-probability in the patched run, and a and b are those for the two
    inputs. `poll` is called before each of the many forward passes; if it raises, they end.
    Errors: `DataError` if the inputs differ in length or give the answer the same probability.
    """
    refuse_unlike(one, other)
    at_once = max(1, min(MOST_ROWS, MOST_PLACES // max(each.shape[1] for each in other if each is not None)))
    kept = keep(model, one)
    a, b = (float(scores(model, each, answer_ids, 1)[0]) for each in (one, other))
    if abs(a - b) < 1e-9:
        raise DataError(
            "Patching compares two inputs that give the answer different probabilities; these give the same. "
            "Choose other inputs."
        )
    heads: dict[Where, Tensor] = {}
    streams: dict[str, list[Tensor]] = {}

    def share(rows: int, of: Callable[[slice], tuple[Mapping[Where, Replace], Mapping[Where, Replace]]]) -> Tensor:
        found: list[Tensor] = []
        for begin in range(0, rows, at_once):
            poll()
            part = slice(begin, min(begin + at_once, rows))
            with replaced(model, *of(part)):
                found.append(scores(model, other, answer_ids, part.stop - part.start))
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
    """Return a function that replaces, in row i of a batch, entry i of `part` along the second axis."""

    def replace(x: Tensor) -> Tensor:
        rows, entries = torch.arange(len(x)), torch.arange(part.start, part.stop)
        x = x.clone()
        x[rows, entries] = given[entries].to(x)
        return x

    return replace


def scores(model: Transformer, given: Input, answer_ids: Sequence[int | None], rows: int) -> Float[Tensor, " N"]:
    """Return the log-probability (nats) of an answer in each of `rows` rows that get the same input."""
    source = None if given.source is None else given.source.expand(rows, -1)
    places = [t for t, token in enumerate(answer_ids) if token is not None]
    tokens = [token for token in answer_ids if token is not None]
    with Evaluation(model):
        hidden = model.hidden(given.tokens.expand(rows, -1), source=source)
        log_p = model.head(hidden[:, places]).cpu().double().log_softmax(-1)
    return log_p[:, range(len(places)), tokens].sum(-1)


def refuse_unlike(one: Input, other: Input) -> None:
    """Raise `ConfigError` for what is no `Input`, and `DataError` if the inputs differ in length."""
    for each in (one, other):
        expect(each, Input, "What patch() compares", "Give two: Input(tokens) and Input(other_tokens).")
    for first, second in zip(one, other, strict=True):
        if first is not None and second is not None and first.shape != second.shape:
            raise DataError(
                "Inputs are patched position by position, so both must have the same number of tokens; "
                f"got {first.shape[1]} and {second.shape[1]}. Replace tokens instead of adding or removing them."
            )


def stacks(model: Transformer) -> dict[str, Stack]:
    """Return the model's stacks by side."""
    sides = {"encoder": model.encoder, "decoder": model.decoder}
    return {side: stack for side, stack in sides.items() if stack is not None}


@contextmanager
def replaced(model: Transformer, heads: Mapping[Where, Replace], streams: Mapping[Where, Replace]) -> Generator[None]:
    """Pass head outputs (before the output projection) and streams through these functions, while the `with` runs."""
    there = by_place(model)
    with ExitStack() as undo:
        undo.enter_context(through({there[where]: replace for where, replace in heads.items()}))
        for (side, depth), replace in streams.items():
            undo.callback(_between(stacks(model)[side], depth, replace).remove)
        yield


def _between(stack: Stack, depth: int, replace: Replace) -> RemovableHandle:
    """Replace the stream that the first `depth` blocks have written."""
    if depth == 0:
        return stack.blocks[0].register_forward_pre_hook(lambda _, given: (replace(given[0]), *given[1:]))

    def after(block: nn.Module, given: object, x: Tensor) -> Tensor:
        return replace(x)

    return stack.blocks[depth - 1].register_forward_hook(after)
