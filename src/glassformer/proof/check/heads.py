"""Reads attention inside a learner's module, from the inputs and outputs of its linear maps."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import permutations
from typing import Any

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.proof.check.attention import SOFTMAX, UNKNOWN, first, mixed, scales
from glassformer.proof.check.calling import (
    FUTURE,
    Choice,
    Heard,
    Maps,
    Reading,
    aspect,
    distance,
    in_some_form,
    listening,
    maps_of,
    read,
    repeated,
    shaped,
)
from glassformer.proof.check.mask import BATCH, HEADS, MASKING, RIGHT, WIDTH, Attending, Masking, T
from glassformer.proof.check.property import Fault, Mistake, NotTestedError, ask, law

SPLIT = Mistake(
    "heads are mixed: they are split without a transpose",
    "[B, T, D] is reshaped straight to [B, H, T, K], so that a head holds pieces of different positions.",
    "A reshape never moves numbers in memory. Which axis must a position's numbers be cut along?",
)
ACROSS = Mistake(
    "attention runs across the heads instead of the positions",
    "The heads stand where the positions should, so each position attends among its own heads.",
    "What is the size of your scores? It should grow with the length of the sequence.",
)
MERGE = Mistake(
    "heads are mixed: they are merged without a transpose",
    "[B, H, T, K] is reshaped straight to [B, T, D], so that a position gets pieces of other positions.",
    "A reshape never moves numbers in memory. What must happen first so that one position's heads are neighbours?",
)
ROLES = Mistake(
    "query, key and value are confused",
    "The maps are not used as they are called: what the query map gives is not used as the query.",
    "Follow each projection by its name, from the map to the place where it is used.",
)


def split(x: Tensor, how: str) -> Tensor:
    """Reshape [B, T, D] to [B, H, T, K]."""
    B, T, _ = x.shape
    if how == "reshaped":
        return x.reshape(B, HEADS, T, WIDTH)
    if how == "across":
        return x.reshape(B, T, HEADS, WIDTH)
    if how == "strided":
        return x.reshape(B, T, WIDTH, HEADS).permute(0, 3, 1, 2)
    return x.reshape(B, T, HEADS, WIDTH).transpose(1, 2)


def merge(x: Tensor, how: str, T: int) -> Tensor:
    """Reshape [B, H, T, K] to [B, T, D]."""
    if how == "reshaped":
        return x.reshape(x.shape[0], T, HEADS * WIDTH)
    if how == "strided":
        return x.permute(0, 2, 3, 1).reshape(x.shape[0], T, HEADS * WIDTH)
    return x.transpose(1, 2).reshape(x.shape[0], T, HEADS * WIDTH)


def unfuse(x: Tensor, layout: str) -> list[Tensor]:
    """Split the output of a fused projection into query, key and value, each [B, T, D]. Any layout is right."""
    B, T, D = x.shape
    if layout == "by head":  # each head holds its query, key and value
        return [each.reshape(B, T, D // 3) for each in x.reshape(B, T, HEADS, 3 * WIDTH).chunk(3, -1)]
    if layout == "by number":
        return [each.reshape(B, T, D // 3) for each in x.reshape(B, T, HEADS, WIDTH, 3).unbind(-1)]
    return [*x.chunk(3, -1)]


SPLITS = [
    Choice("right", "heads split as documented"),
    Choice("strided", "heads of every H-th number"),
    Choice("reshaped", "a reshape to [B, H, T, K]", SPLIT),
    Choice("across", "scores between heads", ACROSS),
]
"""Ways to split heads. "strided" takes every H-th number: a fixed reordering of the map's rows, so it is right too."""
MERGES = [
    Choice("right", "heads merged as documented"),
    Choice("strided", "heads of every H-th number"),
    Choice("reshaped", "a reshape from [B, H, T, K]", MERGE),
]


def order_choices(named: bool) -> list[Choice]:
    """Return which projection may be q, k and v. Any order is right if no names say otherwise."""
    orders = ["".join(each) for each in permutations("qkv")]
    wrong = ROLES if named else None
    return [Choice(each, f"the maps in the order {each}", None if each == "qkv" else wrong) for each in orders]


D = HEADS * WIDTH
CAUSAL = torch.ones(T, T, dtype=torch.bool).tril()

SHAPE = Mistake(
    "the output has the wrong shape",
    "There must be one vector of width d_model for each position of each row.",
    "Write the shape beside each line, for sizes that all differ.",
)
SCORES = Mistake(
    "dropout acts on the scores, before the softmax",
    "Dropped scores become 0, which is an ordinary score: the dropped key keeps weight and none is dropped.",
    "What should be 0 for a dropped key: its score, or its weight?",
)
ROWS = Mistake(
    "rows of the batch are mixed",
    "The output for one sequence depends on the others in its batch: batch and positions are confused.",
    "Is each axis what you think it is? The batch comes first.",
)

MIXED = Mistake(
    "heads are mixed: positions are not treated alike",
    "Without a mask attention knows no order, yet the same positions in another order give another output.",
    "Where do you reshape? A reshape never moves numbers in memory.",
)


def joined(output: Any, maps: Maps | None) -> Any:
    """Return what the output map receives, which is all heads beside each other; without such a map, the output."""
    return output if maps is None or maps.output is None else maps.output.given


def moved(x: Tensor, place: int) -> Tensor:
    """Return x with other numbers at one position: a multiple, as a norm would undo a sum."""
    x = x.clone()
    x[:, place] *= -1.5
    return x


class Heads(Attending):
    """A module that attends, with a fixed input. Comparisons use the input of its output map."""

    laws = f"shape repeatable equation order split softmax rows scale merge {MASKING} dropout"
    called_causal = False

    def __init__(self, module: nn.Module, call: Callable[..., Any], mask: str | None) -> None:
        """Run the module once by `call(x, mask)`, where None means no mask. `mask` is the name of that argument."""
        self.module, self.run, self.mask, self.takes_mask = module, call, mask, mask is not None
        draw = torch.Generator().manual_seed(3)
        self.x = torch.randn(BATCH, T, D, generator=draw, dtype=torch.float64)
        self.forms: Callable[[Tensor], Tensor] | None = None
        with listening(module) as heard:
            self.seen = self.gives(self.x)
        self.heard = list(heard)
        self.maps = self.attention(self.heard)
        self.reading = self._read()

    def attention(self, heard: list[Heard]) -> Maps | None:
        """Identify the maps of the attention that is tested among the recorded calls."""
        return maps_of([each for each in heard if {*each.widths} <= {D, 3 * D}], D)

    def named(self, mask: Tensor) -> dict[str, Tensor]:
        """Return the mask as an argument by name."""
        return {} if self.mask is None else {self.mask: mask}

    def _read(self) -> Reading | None:
        if self.maps is None or not self.repeats():
            return None
        sizes = {"d_model": D, "length": T, "heads": HEADS, "batch": BATCH}
        aspects = {
            "layout": [
                *map(Choice, ("thirds", "by head", "by number") if len(self.maps.projections) == 1 else ("none",))
            ],
            "order": order_choices(self.maps.named),
            "split": SPLITS,
            "merge": MERGES,
            "softmax": SOFTMAX,
            "scale": scales(WIDTH, sizes),
        }
        compute = partial(self.context, self.maps)
        if not self.takes_mask and self.causal():  # a decoder's attention that brings its own mask
            compute = partial(compute, mask=CAUSAL, masking=RIGHT)
        return read(joined(self.seen, self.maps), aspects, compute)

    def gives(self, x: Tensor) -> Any:
        """Return the output without a mask and without a graph."""
        with torch.no_grad():
            return first(ask(self.run, x, None))

    def repeats(self) -> bool:
        """Whether five runs give bitwise equal outputs."""
        return all(torch.equal(self.gives(self.x), self.seen) for _ in range(4))

    def causal(self) -> bool:
        """Whether the first position changes the last output, and the last position no output before it."""
        if not isinstance(self.seen, Tensor) or self.seen.shape != self.x.shape:
            return False
        first_moves, last_moves = (
            (self.gives(moved(self.x, place)) - self.seen).abs().amax((0, 2)) > 1e-9 for place in (0, T - 1)
        )
        return bool(first_moves[-1]) and not bool(last_moves[:-1].any())

    def context(self, maps: Maps | None, **chosen: Any) -> Tensor:
        """Return the input of the output map under a reading."""
        assert maps is not None
        layout, order, way, back = (chosen.pop(name) for name in ("layout", "order", "split", "merge"))
        given = [each.gave for each in maps.projections]
        if len(given) == 1:
            given = unfuse(given[0], layout)
        qkv = {name: split(x, way) for name, x in zip(order, given, strict=True)}
        return merge(mixed(qkv, **chosen), back, given[0].shape[1])

    def heard_with(self, x: Tensor, mask: Tensor | None) -> tuple[Any, Maps | None]:
        """Return the output and the calls for an input. The mask is given in the first form that the module accepts."""
        if mask is None:
            return self._hear(x, None)
        if self.forms is not None:
            return self._hear(x, self.forms(mask))

        def tried(form: Callable[[Tensor], Tensor]) -> tuple[Any, Maps | None]:
            output, maps = self._hear(x, form(mask))
            if not isinstance(output, Tensor) or output.shape != x.shape:
                raise RuntimeError
            self.forms = form
            return output, maps

        return in_some_form(FORMS, tried)

    def _hear(self, x: Tensor, mask: Tensor | None) -> tuple[Any, Maps | None]:
        with listening(self.module) as heard:
            output = first(ask(self.run, x, mask))
        return output, self.attention(heard)

    def answer(self, mask: Tensor | None) -> Tensor:
        """Return the input of the output map, for the fixed input."""
        with torch.no_grad():
            return joined(*self.heard_with(self.x, mask))

    def predicted(self, mask: Tensor, masking: Masking) -> Tensor:
        """Return what the reading predicts for `answer`."""
        assert self.reading is not None
        chosen = {name: each.value for name, each in self.reading.choices.items()}
        return self.context(self.maps, **chosen, mask=mask, masking=masking)

    def leak(self, level: float) -> float:
        """Return the weight of query 0 on hidden keys, with the projections' outputs replaced by known vectors.

        Query 0 is aligned with the hidden keys and opposed to the allowed key.
        """
        if self.maps is None or self.maps.output is None:
            raise NotTestedError("its linear maps could not be told apart")
        size = (level * WIDTH**-0.5) ** 0.5
        sign = torch.ones(T, 1, dtype=torch.float64)
        sign[1] = -1.0
        mask = torch.zeros(T, T, dtype=torch.bool)
        mask[:, 1] = True
        with (
            giving([each.module for each in self.maps.projections], lambda gave: torch.ones_like(gave) * sign * size),
            torch.no_grad(),
        ):
            given = joined(*self.heard_with(self.x, mask))
        return (given[:, 0] / size + 1).abs().max().item() / 2

    def slopes(self, mask: Tensor) -> list[Tensor]:
        """Return the gradient with respect to the input, through the input of the output map."""
        x = self.x.clone().requires_grad_()
        loss = joined(*self.heard_with(x, mask)).square().sum()
        return [*torch.autograd.grad(loss, [x], materialize_grads=True)]

    def influence(self, mask: Tensor) -> Tensor:
        """Move one position at a time, and return which outputs change."""
        with torch.no_grad():
            before = self.heard_with(self.x, mask)[0]
            after = [self.heard_with(moved(self.x, place), mask)[0] for place in range(T)]
        return torch.stack([((each - before).abs() > 1e-9).any(-1).any(0) for each in after], 1)

    def in_half(self, mask: Tensor) -> Tensor:
        """Run the module in float16, and restore it."""
        before = {name: each.clone() for name, each in self.module.state_dict().items()}
        self.module.half()
        try:
            with torch.no_grad():
                return self.heard_with(self.x.half(), mask)[0]
        finally:
            self.module.double().load_state_dict(before)

    @law("There is one vector of width d_model for each position.")
    def shape(self) -> Fault | None:
        return shaped(self.seen, (*self.x.shape,), SHAPE, ", for an input of that shape")

    repeatable = repeated(lambda learner: learner.gives(learner.x))

    @law("Each head gives softmax(q kᵀ / √d_head) v.", "shape", "repeatable")
    def equation(self) -> Fault | None:
        if self.reading is not None:
            if self.called_causal and not self.takes_mask and not self.causal():
                return Fault(FUTURE, "Its name says causal and it takes no mask, but later positions change an output.")
            return None
        if (mixed_rows := self.mixed_rows()) is not None:
            return mixed_rows
        if self.maps is None:
            order = torch.arange(T - 1, -1, -1)  # permuted positions must give the same output, permuted
            gap = distance(self.gives(self.x[:, order])[:, order], self.seen)
            if gap > 1e-9:
                return Fault(MIXED, f"With the positions in reverse order the output is {gap:.2g} off.")
            raise NotTestedError("its linear maps could not be told apart")
        documented = {"layout": "thirds", "order": "qkv", "split": "right", "merge": "right", "scale": WIDTH**-0.5}
        gap = distance(joined(self.seen, self.maps), self.context(self.maps, **documented))
        return Fault(UNKNOWN, f"Before the output map the largest difference is {gap:.2g}.")

    order = aspect("order", "Each projection is used as its name says.")
    split = aspect("split", "A head gets its own slice of each position.")
    softmax = aspect("softmax", "The weights of a query sum to 1 over the keys.")

    @law("No row of a batch affects another.", "softmax")
    def rows(self) -> Fault | None:
        return self.mixed_rows()

    def mixed_rows(self) -> Fault | None:
        """Check that the output of row 0 does not depend on row 1."""
        other = self.x.clone()
        other[1] *= -1.5
        gap = distance(self.gives(other)[0], self.seen[0])
        return Fault(ROWS, f"Changing row 1 of the input changes row 0 of the output by {gap:.2g}.") if gap else None

    scale = aspect("scale", "Scores are divided by √d_head.")
    merge = aspect("merge", "Each position gets its own heads back.")

    @law("Dropout drops weights, not scores.", "equation")
    def dropout(self) -> Fault | None:
        drops = [each for each in self.module.modules() if isinstance(each, nn.Dropout)]
        if not drops:
            raise NotTestedError("it has no nn.Dropout")
        maps = self.maps
        if maps is None or maps.output is None or not maps.named:
            raise NotTestedError("its value map could not be told apart")
        before = [each.p for each in drops]
        for each in drops:
            each.p = 0.5
        self.module.train()
        try:  # with all values 1, dropped weights change the output and dropped scores do not
            torch.manual_seed(0)
            acts = distance(self.answer(None), maps.output.given) > 0
            torch.manual_seed(0)
            with giving([maps.projections[2].module], torch.ones_like):
                plain = self.answer(None)
        finally:
            self.module.eval()
            for each, p in zip(drops, before, strict=True):
                each.p = p
        gap = (plain - 1).abs().max().item()
        evidence = f"With dropout 0.5 and all values 1, each query still gets 1 (to {gap:.0e}): no weight is dropped."
        return Fault(SCORES, evidence) if acts and gap <= 1e-7 else None


FORMS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda mask: mask,
    lambda mask: mask.expand(BATCH, *mask.shape[-2:]) if mask.ndim == 2 else mask[:, 0],
    lambda mask: mask.expand(BATCH, 1, *mask.shape[-2:]),
)
"""The forms in which a mask [T, T] or [B, 1, 1, T] is tried: as it is, as [B, T, T] and as [B, 1, T, T]."""


@contextmanager
def giving(modules: Iterable[nn.Module], number: Callable[[Tensor], Tensor]) -> Generator[None]:
    """While the context lasts, replace the output of these modules by what `number` returns for it."""

    def instead(module: nn.Module, given: Any, gave: Tensor) -> Tensor:
        del module, given
        return number(gave)

    with ExitStack() as hooks:
        for each in modules:
            hooks.enter_context(each.register_forward_hook(instead))
        yield
