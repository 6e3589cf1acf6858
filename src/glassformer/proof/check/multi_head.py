"""Tests a learner's `MultiHeadAttention(d_model, n_heads)`."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.proof.check.attention import accepts, first
from glassformer.proof.check.heads import D, Heads, dropout_place, equation, repeatable, rows, shape
from glassformer.proof.check.listen import listening, scramble
from glassformer.proof.check.mask import BATCH, HEADS, T, mask_properties
from glassformer.proof.check.reading import aspect, distance
from glassformer.proof.check.table import (
    CrashError,
    Fault,
    Mistake,
    NotTestedError,
    Property,
    SignatureError,
    Subject,
    ask,
    crash_of,
)

NO_OUTPUT = Mistake(
    "the output map is missing",
    "The heads are concatenated and returned as they are; W_O of the paper's section 3.2.2 is not applied.",
    "Count the linear maps that the paper names, and those that your forward calls.",
)
ADDS = Mistake(
    "the residual stands inside the attention",
    "The module adds its own input to its output; a block that does the same then adds it twice.",
    "Whose task is the residual connection: the attention's, or the block's?",
)
AFTER = Mistake(
    "the output is changed after the output map",
    "The module does not return what its output map returned.",
    "What stands between your last linear map and the return?",
)
CROSS = Mistake(
    "keys or values are not made from their own input",
    "With another sequence to read (cross-attention), a projection receives the wrong one of the three inputs.",
    "For each of the three projections: which argument of forward goes into it?",
)
CROSS_LENGTH = Mistake(
    "it needs equal numbers of queries and keys",
    "It fails when the sequence that is read has another length, as in cross-attention.",
    "Which of your sizes do you take from the query although they belong to the key?",
)


def constructed(kind: Any, *sizes: int) -> nn.Module:
    """Return an instance in float64 and evaluation mode, with random parameters. Errors: `SignatureError`."""
    if not accepts(kind, *map(str, sizes)):
        raise SignatureError(f"{inspect.signature(kind)}")
    module = ask(kind, *sizes)
    if not isinstance(module, nn.Module):
        raise SignatureError("a class that is not an nn.Module")
    return scramble(module)


class MultiHead(Heads):
    """The learner's module, called with one input or with three."""

    def __init__(self, kind: Any) -> None:
        module = constructed(kind, D, HEADS)
        self.three = accepts(module.forward, "query", "key", "value")
        required = [
            each
            for each in inspect.signature(module.forward).parameters.values()
            if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
        ]
        self.three = self.three and len(required) != 1
        if not self.three and not accepts(module.forward, "x"):
            raise SignatureError(f"forward{inspect.signature(module.forward)}")
        inputs = ("query", "key", "value") if self.three else ("x",)
        super().__init__(module, self.call, accepts(module.forward, *inputs, "mask"))

    def call(self, x: Tensor, mask: Tensor | None) -> Any:
        """Run self-attention on x."""
        inputs = [x, x, x] if self.three else [x]
        return self.module(*inputs, mask) if mask is not None else self.module(*inputs)


def output_map(learner: MultiHead) -> Fault | None:
    """Check that the module returns the output of its output map."""
    if learner.maps is None:
        raise NotTestedError("its linear maps (query, key, value, output) could not be told apart")
    if learner.maps.output is None:
        calls = len(learner.maps.projections)
        return Fault(
            NO_OUTPUT,
            f"{calls} linear {'map is' if calls == 1 else 'maps are'} called, and none after the heads are merged.",
        )
    gave = learner.maps.output.gave
    gap = distance(learner.seen, gave)
    if gap <= 1e-9:
        return None
    adds = distance(learner.seen, gave + learner.x) <= 1e-9
    return Fault(
        ADDS if adds else AFTER,
        f"The module's output differs from that of its output map by {gap:.2g}"
        + (", which is exactly its input." if adds else "."),
    )


def cross(learner: MultiHead) -> Fault | None:
    """Check that keys and values can come from another sequence, of another length."""
    if not learner.three:
        raise NotTestedError("it takes one input, x")
    draw = torch.Generator().manual_seed(4)
    key, value = (torch.randn(BATCH, T + 1, D, generator=draw, dtype=torch.float64) for _ in range(2))
    with listening(learner.module) as heard, torch.no_grad():
        try:
            answer = first(ask(learner.module, learner.x, key, value))
        except CrashError as crash:
            return Fault(CROSS_LENGTH, f"With {T} queries and {T + 1} keys: {crash_of(crash)}")
    if not isinstance(answer, Tensor) or answer.shape != learner.x.shape:
        return Fault(CROSS_LENGTH, f"With {T} queries and {T + 1} keys the output is {tuple(answer.shape)}.")
    if learner.maps is None or len(learner.maps.projections) != 3:
        raise NotTestedError("its linear maps could not be told apart")
    given = {each.name: each.given for each in heard}
    wanted = {"query": learner.x, "key": key, "value": value}
    order = str(learner.reading.value("order")) if learner.reading else "qkv"
    for letter, each in zip(order, learner.maps.projections, strict=True):
        name = {"q": "query", "k": "key", "v": "value"}[letter]
        if (gap := distance(given.get(each.name, wanted[name]), wanted[name])) > 0:
            other = next((n for n, x in wanted.items() if distance(given[each.name], x) == 0), "something else")
            return Fault(
                CROSS, f"The {name} map `{each.name}` receives {other}, which differs from the {name} by {gap:.2g}."
            )
    return None


def heads_properties() -> list[Property]:
    """Return the properties of heads, in a module of their own or in a block."""
    return [
        Property("equation", "Each head gives softmax(q kᵀ / √d_head) v.", equation, ("shape", "repeatable")),
        Property("order", "Each projection is used as its name says.", aspect("order"), ("equation",)),
        Property("split", "A head gets its own slice of each position.", aspect("split"), ("equation",)),
        Property("softmax", "The weights of a query sum to 1 over the keys.", aspect("softmax"), ("equation",)),
        Property("rows", "No row of a batch affects another.", rows, ("softmax",)),
        Property("scale", "Scores are divided by √d_head.", aspect("scale"), ("equation",)),
        Property("merge", "Each position gets its own heads back.", aspect("merge"), ("equation",)),
        *mask_properties(),
        Property("dropout", "Dropout drops weights, not scores.", dropout_place, ("equation",)),
    ]


MULTI_HEAD = Subject(
    MultiHead,
    (
        Property("shape", "There is one vector of width d_model for each position.", shape),
        Property("repeatable", "In evaluation mode the same input gives the same output.", repeatable, ("shape",)),
        *heads_properties(),
        Property("output", "The output map comes last.", output_map, ("shape", "repeatable")),
        Property(
            "cross",
            "Keys and values may come from another sequence.",
            cross,
            ("shape", "equation", "order", "softmax", "split", "merge", "scale"),
        ),
    ),
)
