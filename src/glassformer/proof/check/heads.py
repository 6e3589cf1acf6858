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
    RANDOM,
    Choice,
    Heard,
    Maps,
    Reading,
    aspect,
    distance,
    listening,
    maps_of,
    read,
)
from glassformer.proof.check.mask import BATCH, HEADS, RIGHT, WIDTH, Attending, Masking, T, mask_properties
from glassformer.proof.check.property import (
    CrashError,
    Fault,
    Mistake,
    NotTestedError,
    Property,
    ask,
)

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


def split_choices() -> list[Choice]:
    """Return ways to split heads.

    "strided" takes every H-th number: a fixed reordering of the map's rows, so it is right too.
    """
    return [
        Choice("right", "heads split as documented"),
        Choice("strided", "heads of every H-th number"),
        Choice("reshaped", "a reshape to [B, H, T, K]", SPLIT),
        Choice("across", "scores between heads", ACROSS),
    ]


def merge_choices() -> list[Choice]:
    """Return ways to merge."""
    return [
        Choice("right", "heads merged as documented"),
        Choice("strided", "heads of every H-th number"),
        Choice("reshaped", "a reshape from [B, H, T, K]", MERGE),
    ]


def order_choices(named: bool) -> list[Choice]:
    """Return which projection may be q, k and v. Any order is right if no names say otherwise."""
    orders = ["".join(each) for each in permutations("qkv")]
    wrong = ROLES if named else None
    return [Choice(each, f"the maps in the order {each}", None if each == "qkv" else wrong) for each in orders]


def layout_choices(fused: bool) -> list[Choice]:
    """Return the ways to split a fused projection."""
    return [Choice(each) for each in (("thirds", "by head", "by number") if fused else ("none",))]


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


class Heads(Attending):
    """A module that attends, with a fixed input. Comparisons use the input of its output map."""

    def __init__(self, module: nn.Module, call: Callable[..., Any], mask: str | None) -> None:
        """Run the module once by `call(x, mask)`, where None means no mask. `mask` is the name of that argument."""
        self.module, self.run, self.mask, self.takes_mask = module, call, mask, mask is not None
        draw = torch.Generator().manual_seed(3)
        self.x = torch.randn(BATCH, T, D, generator=draw, dtype=torch.float64)
        self.forms: Callable[[Tensor], Tensor] | None = None
        with listening(module) as heard, torch.no_grad():
            self.seen = first(ask(call, self.x, None))
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
        if self.maps is None or not repeats(self):
            return None
        seen = self.seen if self.maps.output is None else self.maps.output.given
        sizes = {"d_model": D, "length": T, "heads": HEADS, "batch": BATCH}
        aspects = {
            "layout": layout_choices(len(self.maps.projections) == 1),
            "order": order_choices(self.maps.named),
            "split": split_choices(),
            "merge": merge_choices(),
            "softmax": SOFTMAX,
            "scale": scales(WIDTH, sizes),
        }
        compute = partial(self.context, self.maps)
        if not self.takes_mask and self.causal():  # a decoder's attention that brings its own mask
            compute = partial(compute, mask=CAUSAL, masking=RIGHT)
        return read(seen, aspects, compute)

    def causal(self) -> bool:
        """Whether the first position changes the last output, and the last position no output before it."""
        if not isinstance(self.seen, Tensor) or self.seen.shape != self.x.shape:
            return False
        moves: list[Tensor] = []
        for place in (0, T - 1):
            x = self.x.clone()
            x[:, place] *= -1.5  # a norm would undo a sum
            with torch.no_grad():
                output = first(ask(self.run, x, None))
            moves.append((output - self.seen).abs().amax((0, 2)) > 1e-9)
        return bool(moves[0][-1]) and not bool(moves[1][:-1].any())

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
        crash: CrashError | None = None
        for form in FORMS:
            try:
                output, maps = self._hear(x, form(mask))
            except CrashError as error:
                crash = crash or error
                continue
            if isinstance(output, Tensor) and output.shape == x.shape:
                self.forms = form
                return output, maps
        raise crash or CrashError("no known form of a mask is accepted")

    def _hear(self, x: Tensor, mask: Tensor | None) -> tuple[Any, Maps | None]:
        with listening(self.module) as heard:
            output = first(ask(self.run, x, mask))
        return output, self.attention(heard)

    def answer(self, mask: Tensor | None) -> Tensor:
        """Return the input of the output map, for the fixed input."""
        with torch.no_grad():
            output, maps = self.heard_with(self.x, mask)
        return output if maps is None or maps.output is None else maps.output.given

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
            output, maps = self.heard_with(self.x, mask)
        given = output if maps is None or maps.output is None else maps.output.given
        return (given[:, 0] / size + 1).abs().max().item() / 2

    def slopes(self, mask: Tensor) -> list[Tensor]:
        """Return the gradient with respect to the input, through the input of the output map."""
        x = self.x.clone().requires_grad_()
        output, maps = self.heard_with(x, mask)
        seen = output if maps is None or maps.output is None else maps.output.given
        return [*torch.autograd.grad(seen.square().sum(), [x], materialize_grads=True)]

    def influence(self, mask: Tensor) -> Tensor:
        """Move one position at a time, and return which outputs change."""
        moved = torch.zeros(T, T, dtype=torch.bool)
        with torch.no_grad():
            before = self.heard_with(self.x, mask)[0]
            for place in range(T):
                x = self.x.clone()
                x[:, place] *= -1.5  # a norm would undo a sum
                moved[:, place] = ((self.heard_with(x, mask)[0] - before).abs() > 1e-9).any(-1).any(0)
        return moved

    def in_half(self, mask: Tensor) -> Tensor:
        """Run the module in float16, and restore it."""
        before = {name: each.clone() for name, each in self.module.state_dict().items()}
        self.module.half()
        try:
            with torch.no_grad():
                return self.heard_with(self.x.half(), mask)[0]
        finally:
            self.module.double().load_state_dict(before)


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


def repeats(learner: Heads) -> bool:
    """Whether five runs give bitwise equal outputs."""
    with torch.no_grad():
        return all(torch.equal(first(ask(learner.run, learner.x, None)), learner.seen) for _ in range(4))


def shape(learner: Heads) -> Fault | None:
    """Check that there is one vector for each position."""
    wanted = tuple(learner.x.shape)
    got = tuple(learner.seen.shape) if isinstance(learner.seen, Tensor) else type(learner.seen).__name__
    return None if got == wanted else Fault(SHAPE, f"It is {got} and must be {wanted}, for an input of that shape.")


def repeatable(learner: Heads) -> Fault | None:
    """Check that the same input gives the same output in evaluation mode."""
    with torch.no_grad():
        gap = max(distance(first(ask(learner.run, learner.x, None)), learner.seen) for _ in range(4))
    return Fault(RANDOM, f"Five calls in evaluation mode differ by up to {gap:.2g}.") if gap > 0 else None


def rows(learner: Heads) -> Fault | None:
    """Check that the output of row 0 does not depend on row 1."""
    other = learner.x.clone()
    other[1] *= -1.5
    with torch.no_grad():
        gap = distance(first(ask(learner.run, other, None))[0], learner.seen[0])
    return Fault(ROWS, f"Changing row 1 of the input changes row 0 of the output by {gap:.2g}.") if gap > 0 else None


def equation(learner: Heads) -> Fault | None:
    """Check that the heads compute the equation, or a known mistake."""
    if learner.reading is not None:
        return None
    if (mixed_rows := rows(learner)) is not None:
        return mixed_rows
    if learner.maps is None:
        if (mixed := alike(learner)) is not None:
            return mixed
        raise NotTestedError("its linear maps could not be told apart")
    chosen: dict[str, Any] = {
        "layout": "thirds",
        "order": "qkv",
        "split": "right",
        "merge": "right",
        "scale": WIDTH**-0.5,
    }
    seen = learner.seen if learner.maps.output is None else learner.maps.output.given
    gap = distance(seen, learner.context(learner.maps, **chosen))
    return Fault(UNKNOWN, f"Before the output map the largest difference is {gap:.2g}.")


def alike(learner: Heads) -> Fault | None:
    """For code whose maps could not be identified, check that permuted positions give the same output, permuted."""
    order = torch.arange(T - 1, -1, -1)
    with torch.no_grad():
        gap = distance(first(ask(learner.run, learner.x[:, order], None))[:, order], learner.seen)
    return Fault(MIXED, f"With the positions in reverse order the output is {gap:.2g} off.") if gap > 1e-9 else None


def dropout_place(learner: Heads) -> Fault | None:
    """Check that dropout acts on weights and not on scores.

    With all values 1, dropped weights change the output and dropped scores do not.
    """
    drops = [each for each in learner.module.modules() if isinstance(each, nn.Dropout)]
    if not drops:
        raise NotTestedError("it has no nn.Dropout")
    maps = learner.maps
    if maps is None or maps.output is None or not maps.named:
        raise NotTestedError("its value map could not be told apart")
    before = [each.p for each in drops]
    for each in drops:
        each.p = 0.5
    learner.module.train()
    try:
        acts = distance(trained(learner), maps.output.given) > 0
        with giving([maps.projections[2].module], torch.ones_like):
            plain = trained(learner)
    finally:
        learner.module.eval()
        for each, p in zip(drops, before, strict=True):
            each.p = p
    gap = (plain - 1).abs().max().item()
    if not acts or gap > 1e-7:
        return None
    return Fault(
        SCORES, f"With dropout 0.5 and all values 1, each query still gets 1 (to {gap:.0e}): no weight is dropped."
    )


def trained(learner: Heads) -> Tensor:
    """Return the input of the output map in training mode."""
    torch.manual_seed(0)
    with torch.no_grad():
        output, maps = learner.heard_with(learner.x, None)
    return output if maps is None or maps.output is None else maps.output.given


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
