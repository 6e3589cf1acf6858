"""Tests attention modules with several heads, or with one as wide as the model: their maps, output and weights."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.proof.check.attention import SOFTMAX, WEIGHTS, first, mixed, normalise, scales
from glassformer.proof.check.calling import (
    Maps,
    Reading,
    accepts,
    constructed,
    distance,
    forward_of,
    listening,
    mask_argument,
    read,
    required,
    role_of,
)
from glassformer.proof.check.heads import (
    D,
    Heads,
    heads_properties,
    order_choices,
    repeatable,
    repeats,
    shape,
    split,
    unfuse,
)
from glassformer.proof.check.mask import BATCH, FAILS, HEADS, RIGHT, TRANSPOSED, T, masked
from glassformer.proof.check.property import (
    CrashError,
    Fault,
    Mistake,
    NotTestedError,
    Property,
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


class MultiHead(Heads):
    """The learner's module, called with one input or with three."""

    sizes = {"d_model": D, "n_heads": HEADS}  # noqa: RUF012

    def __init__(self, kind: Any) -> None:
        module = constructed(kind, self.sizes)
        self.three = accepts(module.forward, "query", "key", "value")
        names = [*inspect.signature(module.forward).parameters]
        self.three = self.three and (len(required(module.forward)) != 1 or names[1][0] == "k")
        inputs = ("query", "key", "value") if self.three else ("x",)
        super().__init__(module, self.call, mask_argument(forward_of(module, *inputs), len(inputs)))

    def call(self, x: Tensor, mask: Tensor | None) -> Any:
        """Run self-attention on x."""
        inputs = [x, x, x] if self.three else [x]
        return self.module(*inputs) if mask is None else self.module(*inputs, **self.named(mask))

    def weights(self) -> Tensor:
        """Return the weights [B, H, T, S] that the reading predicts."""
        assert self.reading is not None
        assert self.maps is not None
        chosen = {name: each.value for name, each in self.reading.choices.items()}
        given = [each.gave for each in self.maps.projections]
        given = unfuse(given[0], chosen["layout"]) if len(given) == 1 else given
        qkv = {name: split(x, chosen["split"]) for name, x in zip(chosen["order"], given, strict=True)}
        return normalise(qkv["q"] @ qkv["k"].mT * chosen["scale"], chosen["softmax"])


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


def masked_cross(learner: MultiHead) -> Fault | None:
    """Check a mask [T, S] for keys of another length than the queries."""
    if not learner.three or learner.reading is None:
        raise NotTestedError("it takes one input, x, or its computation was not recognised")
    draw = torch.Generator().manual_seed(5)
    memory = torch.randn(BATCH, T + 1, D, generator=draw, dtype=torch.float64)
    mask = torch.ones(T, T + 1, dtype=torch.bool).tril(1)
    chosen = {name: each.value for name, each in learner.reading.choices.items()}

    def gap(given: Tensor) -> float:
        with listening(learner.module) as heard, torch.no_grad():
            answer = first(ask(lambda: learner.module(learner.x, memory, memory, **learner.named(given))))
        maps = learner.attention(heard)
        seen = answer if maps is None or maps.output is None else maps.output.given
        return distance(seen, learner.context(maps, **chosen, mask=mask, masking=RIGHT))

    try:
        off = gap(mask)
    except CrashError as crash:
        try:
            transposed = gap(mask.mT) < 1e-7
        except CrashError:
            transposed = False
        told = f"With {T} queries, {T + 1} keys and a mask of shape [{T}, {T + 1}]: {crash_of(crash)}"
        return Fault(TRANSPOSED if transposed else FAILS, told)
    return (
        Fault(FAILS, f"With {T} queries and {T + 1} keys, a mask gives an output {off:.2g} off.")
        if off > 1e-7
        else None
    )


GRAPH = Mistake(
    "the kept weights hold the graph",
    "The weights that the module keeps are still part of the computation, so all of it stays in memory until the next "
    "call.",
    "What must be cut off a tensor that is kept only to be looked at?",
)


def kept_weights(learner: MultiHead) -> Fault | None:
    """Check that weights which are returned or kept are those used, and that kept ones hold no graph."""
    if learner.reading is None or learner.maps is None:
        raise NotTestedError("the computation was not recognised; see `equation`")
    answer = ask(learner.run, learner.x, None)
    given = [each for each in answer[1:] if isinstance(each, Tensor)] if isinstance(answer, tuple | list) else []
    owners = [vars(each) | each._buffers for each in learner.module.modules()]  # pyright: ignore[reportPrivateUsage]
    kept = [each for own in owners for name, each in own.items() if isinstance(each, Tensor) and is_weights(name, each)]
    if not given and not kept:
        raise NotTestedError("it neither returns nor keeps its weights")
    wanted = learner.weights()
    for each in (*given, *kept):
        gap = distance(each, wanted.mean(1) if each.ndim == 3 else wanted)
        if gap > 1e-7:
            return Fault(WEIGHTS, f"They differ from the weights that give the output by {gap:.2g}.")
    return Fault(GRAPH, "They require a gradient.") if any(each.requires_grad for each in kept) else None


def is_weights(name: str, value: Tensor) -> bool:
    """Whether an attribute of a module holds attention weights, judging by its name and axes."""
    tells = any(word in name.lower() for word in ("weight", "attn", "attention", "prob"))
    return tells and value.ndim in (3, 4) and value.shape[-2:] == (T, T)


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
        Property("cross-mask", "A mask [T, S] fits keys of another length.", masked(masked_cross), ("mask", "cross")),
        Property("weights", "The weights returned or kept are those used.", kept_weights, ("equation", "softmax")),
    ),
)


ONE_MAP = Mistake(
    "one map serves twice",
    "Keys and values (or queries) come from the same linear map, so what is offered is what is handed over.",
    "How many matrices does section 3.2.2 of the paper name, and how many do you apply?",
)
UNREGISTERED = Mistake(
    "the parameters are not registered",
    "The module has no parameters: its maps are made anew in each call, or kept where the module does not see them.",
    "Where must a map be made so that an optimizer finds it?",
)


class Single(MultiHead):
    """The learner's attention with one head as wide as the model."""

    sizes = {"d_model": D}  # noqa: RUF012

    def _read(self) -> Reading | None:
        if self.maps is None or not repeats(self):
            return None
        seen = self.seen if self.maps.output is None else self.maps.output.given
        aspects = {
            "order": order_choices(self.maps.named),
            "softmax": [each for each in SOFTMAX if each.value != -3],
            "scale": scales(D, {"length": T, "batch": BATCH}),
        }
        return read(seen, aspects, partial(self.context, self.maps))

    def context(self, maps: Maps | None, **chosen: Any) -> Tensor:
        """Return the input of the output map under a reading."""
        assert maps is not None
        order = chosen.pop("order")
        given = [each.gave for each in maps.projections]
        qkv = {
            name: x[:, None] for name, x in zip(order, unfuse(given[0], "") if len(given) == 1 else given, strict=True)
        }
        named = {name: each for name, each in chosen.items() if name in ("softmax", "scale", "mask", "masking")}
        return mixed(qkv, **named)[:, 0]


def registered(learner: Single) -> Fault | None:
    """Check that the module has parameters."""
    return None if [*learner.module.parameters()] else Fault(UNREGISTERED, "It has no parameter at all.")


def own_maps(learner: Single) -> Fault | None:
    """Check that queries, keys and values have a map each, where names or repeated calls tell."""
    names = [each.name for each in learner.heard if isinstance(each.module, nn.Linear) and each.widths == (D, D)]
    roles = {role_of(name) for name in names}
    if len({*names}) == len(names) and not ("o" in roles and len(roles & {*"qkv"}) == 2):
        return None
    return Fault(ONE_MAP, f"The maps that are called are {', '.join(names)}.")


SELF_ATTENTION = Subject(
    Single,
    (
        Property("parameters", "Its maps are parameters.", registered),
        Property("shape", "There is one vector of width d_model for each position.", shape, ("parameters",)),
        Property("repeatable", "In evaluation mode the same input gives the same output.", repeatable, ("shape",)),
        Property("own-maps", "Query, key and value have a map each.", own_maps, ("repeatable",)),
        *(
            Property(each.name, each.law, each.probe, (*each.needs, "own-maps"), each.optional)
            for each in heads_properties()
            if each.name not in ("split", "merge")
        ),
        Property("output", "The output map comes last.", output_map, ("shape", "repeatable", "own-maps")),
    ),
)
