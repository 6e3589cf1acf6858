"""Tests attention modules with several heads, or with one as wide as the model: their maps, output and weights."""

from __future__ import annotations

import inspect
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.proof.check.attention import SOFTMAX, WEIGHTS, first, mixed, normalise, scales
from glassformer.proof.check.calling import (
    NO_MASK,
    TOLERANCE,
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
from glassformer.proof.check.heads import D, Heads, joined, order_choices, split, unfuse
from glassformer.proof.check.mask import BATCH, FAILS, HEADS, RIGHT, TRANSPOSED, T, masked
from glassformer.proof.check.property import CrashError, Fault, Mistake, NotTestedError, Subject, ask, crash_of, law

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


READ = ("equation", "order", "softmax", "split", "merge", "scale")


class MultiHead(Heads):
    """The learner's module, called with one input or with three."""

    laws = f"{Heads.laws} output cross cross-mask weights"

    sizes = {"d_model": D, "n_heads": HEADS}  # noqa: RUF012

    def __init__(self, kind: Any) -> None:
        module = constructed(kind, self.sizes)
        self.called_causal = "causal" in getattr(kind, "__name__", "").lower()
        self.three = accepts(module.forward, "query", "key", "value")
        names = [*inspect.signature(module.forward).parameters]
        self.three = (
            self.three and names[1] not in NO_MASK and (len(required(module.forward)) != 1 or names[1][0] == "k")
        )
        inputs = ("query", "key", "value") if self.three else ("x",)
        roles = "".join(role_of(name) or "-" for name in names[:3])
        self.inputs = roles if sorted(roles) == sorted("qkv") else "qkv"
        super().__init__(module, self.call, mask_argument(forward_of(module, *inputs), len(inputs)))

    def call(self, x: Tensor, mask: Tensor | None) -> Any:
        """Run self-attention on x."""
        inputs = [x, x, x] if self.three else [x]
        return self.module(*inputs) if mask is None else self.module(*inputs, **self.named(mask))

    def across(self, query: Tensor, key: Tensor, value: Tensor, **named: Tensor) -> Any:
        """Run attention to other positions; the three stand where their names say, as some put the query last."""
        given = {"q": query, "k": key, "v": value}
        return self.module(*(given[role] for role in self.inputs), **named)

    def predicted_weights(self) -> Tensor:
        """Return the weights [B, H, T, S] that the reading predicts."""
        assert self.reading is not None
        assert self.maps is not None
        chosen = {name: each.value for name, each in self.reading.choices.items()}
        given = [each.gave for each in self.maps.projections]
        given = unfuse(given[0], chosen["layout"]) if len(given) == 1 else given
        qkv = {name: split(x, chosen["split"]) for name, x in zip(chosen["order"], given, strict=True)}
        return normalise(qkv["q"] @ qkv["k"].mT * chosen["scale"], chosen["softmax"])

    @law("The output map comes last.", "shape", "repeatable")
    def output(self) -> Fault | None:
        if self.maps is None:
            raise NotTestedError("its linear maps (query, key, value, output) could not be told apart")
        if self.maps.output is None:
            calls = len(self.maps.projections)
            evidence = f"{calls} linear {'map is' if calls == 1 else 'maps are'} called"
            return Fault(NO_OUTPUT, f"{evidence}, and none after the heads are merged.")
        gave = self.maps.output.gave
        gap = distance(self.seen, gave)
        if gap <= 1e-9:
            return None
        evidence = f"The module's output differs from that of its output map by {gap:.2g}"
        adds = distance(self.seen, gave + self.x) <= 1e-9
        return Fault(ADDS, f"{evidence}, which is exactly its input.") if adds else Fault(AFTER, f"{evidence}.")

    @law("Keys and values may come from another sequence.", "shape", *READ)
    def cross(self) -> Fault | None:
        if not self.three:
            raise NotTestedError("it takes one input, x")
        draw = torch.Generator().manual_seed(4)
        key, value = (torch.randn(BATCH, T + 1, D, generator=draw, dtype=torch.float64) for _ in range(2))
        with listening(self.module) as heard, torch.no_grad():
            try:
                answer = first(ask(self.across, self.x, key, value))
            except CrashError as crash:
                return Fault(CROSS_LENGTH, f"With {T} queries and {T + 1} keys: {crash_of(crash)}")
        if not isinstance(answer, Tensor) or answer.shape != self.x.shape:
            return Fault(CROSS_LENGTH, f"With {T} queries and {T + 1} keys the output is {tuple(answer.shape)}.")
        if self.maps is None or len(self.maps.projections) != 3:
            raise NotTestedError("its linear maps could not be told apart")
        given = {each.name: each.given for each in heard}
        wanted = {"query": self.x, "key": key, "value": value}
        order = str(self.reading.value("order")) if self.reading else "qkv"
        for letter, each in zip(order, self.maps.projections, strict=True):
            name = {"q": "query", "k": "key", "v": "value"}[letter]
            if (gap := distance(given.get(each.name, wanted[name]), wanted[name])) > 0:
                other = next((n for n, x in wanted.items() if distance(given[each.name], x) == 0), "something else")
                return Fault(
                    CROSS, f"The {name} map `{each.name}` receives {other}, which differs from the {name} by {gap:.2g}."
                )
        return None

    @law("A mask [T, S] fits keys of another length.", "mask", "cross")
    @masked
    def cross_mask(self) -> Fault | None:
        if not self.three or self.reading is None:
            raise NotTestedError("it takes one input, x, or its computation was not recognised")
        draw = torch.Generator().manual_seed(5)
        memory = torch.randn(BATCH, T + 1, D, generator=draw, dtype=torch.float64)
        mask = torch.ones(T, T + 1, dtype=torch.bool).tril(1)
        chosen = {name: each.value for name, each in self.reading.choices.items()}

        def gap(given: Tensor) -> float:
            given = given if self.forms is None else self.forms(given)
            with listening(self.module) as heard, torch.no_grad():
                answer = first(ask(lambda: self.across(self.x, memory, memory, **self.named(given))))
            maps = self.attention(heard)
            return distance(joined(answer, maps), self.context(maps, **chosen, mask=mask, masking=RIGHT))

        evidence = f"With {T} queries, {T + 1} keys and a mask of shape [{T}, {T + 1}]"
        try:
            off = gap(mask)
        except CrashError as crash:
            transposed = False
            with suppress(CrashError):
                transposed = gap(mask.mT) < TOLERANCE
            return Fault(TRANSPOSED if transposed else FAILS, f"{evidence}: {crash_of(crash)}")
        evidence = f"With {T} queries and {T + 1} keys, a mask gives an output {off:.2g} off."
        return Fault(FAILS, evidence) if off > TOLERANCE else None

    @law("The weights returned or kept are those used.", "equation", "softmax")
    def weights(self) -> Fault | None:
        if self.reading is None or self.maps is None:
            raise NotTestedError("the computation was not recognised; see `equation`")
        answer = ask(self.run, self.x, None)
        given = [each for each in answer[1:] if isinstance(each, Tensor)] if isinstance(answer, tuple | list) else []
        owners = [vars(each) | each._buffers for each in self.module.modules()]  # pyright: ignore[reportPrivateUsage]
        kept = [
            each for own in owners for name, each in own.items() if isinstance(each, Tensor) and is_weights(name, each)
        ]
        if not given and not kept:
            raise NotTestedError("it neither returns nor keeps its weights")
        wanted = self.predicted_weights()
        for each in (*given, *kept):
            gap = distance(each, wanted.mean(1) if each.ndim == 3 else wanted)
            if gap > TOLERANCE:
                return Fault(WEIGHTS, f"They differ from the weights that give the output by {gap:.2g}.")
        return Fault(GRAPH, "They require a gradient.") if any(each.requires_grad for each in kept) else None


GRAPH = Mistake(
    "the kept weights hold the graph",
    "The weights that the module keeps are still part of the computation, so all of it stays in memory until the next "
    "call.",
    "What must be cut off a tensor that is kept only to be looked at?",
)


def is_weights(name: str, value: Tensor) -> bool:
    """Whether an attribute of a module holds attention weights, judging by its name and axes."""
    tells = any(word in name.lower() for word in ("weight", "attn", "attention", "prob"))
    return tells and value.ndim in (3, 4) and value.shape[-2:] == (T, T)


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
        if self.maps is None or not self.repeats():
            return None
        aspects = {
            "order": order_choices(self.maps.named),
            "softmax": [each for each in SOFTMAX if each.value != -3],
            "scale": scales(D, {"length": T, "batch": BATCH}),
        }
        return read(joined(self.seen, self.maps), aspects, partial(self.context, self.maps))

    def context(self, maps: Maps | None, **chosen: Any) -> Tensor:
        """Return the input of the output map under a reading."""
        assert maps is not None
        order = chosen.pop("order")
        given = [each.gave for each in maps.projections]
        given = unfuse(given[0], "") if len(given) == 1 else given
        qkv = {name: x[:, None] for name, x in zip(order, given, strict=True)}
        named = {name: each for name, each in chosen.items() if name in ("softmax", "scale", "mask", "masking")}
        return mixed(qkv, **named)[:, 0]

    @law("Its maps are parameters.")
    def parameters(self) -> Fault | None:
        return None if [*self.module.parameters()] else Fault(UNREGISTERED, "It has no parameter at all.")

    @law("Query, key and value have a map each.", "repeatable")
    def own_maps(self) -> Fault | None:
        names = [each.name for each in self.heard if isinstance(each.module, nn.Linear) and each.widths == (D, D)]
        roles = {role_of(name) for name in names}
        if len({*names}) == len(names) and not ("o" in roles and len(roles & {*"qkv"}) == 2):
            return None
        return Fault(ONE_MAP, f"The maps that are called are {', '.join(names)}.")


LATER = [each for each in (*Heads.laws.split()[2:], "output") if each not in ("split", "merge")]
SELF_ATTENTION = Subject(
    Single,
    (
        Single.parameters,
        replace(Single.shape, needs=("parameters",)),
        Single.repeatable,
        Single.own_maps,
        *(
            replace(each, needs=(*each.needs, "own-maps"))
            for each in Subject.of(MultiHead).properties
            if each.name in LATER
        ),
    ),
)
