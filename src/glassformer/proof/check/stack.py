"""Tests a learner's stack of blocks: that its layers are its own, are all run, and are given the mask."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.proof.check.attention import first
from glassformer.proof.check.block import F
from glassformer.proof.check.calling import built, forward_of, mask_argument, scramble
from glassformer.proof.check.heads import D, Heads, repeatable, rows, shape
from glassformer.proof.check.listen import Heard, is_norm
from glassformer.proof.check.mask import HEADS, masked, polarity
from glassformer.proof.check.table import Fault, Mistake, NotTestedError, Property, Subject, ask

LAYERS = 3
SAME_LAYERS = Mistake(
    "the layers are the same module",
    "More layers bring no more parameters: the same module is run again and again.",
    "How many blocks does your constructor make, and how many does it put into the list?",
)
EQUAL_LAYERS = Mistake(
    "the layers start identical",
    "Each layer starts with the same numbers, as copies of one module do.",
    "Is each layer made anew, with random numbers of its own?",
)
IDLE_LAYERS = Mistake(
    "some layers are not run",
    "The parameters of some layers do not affect the output.",
    "Follow x through the loop: is each layer given what the one before it gave?",
)


UNREGISTERED = Mistake(
    "the layers are not registered",
    "They are kept in a plain list, which the module does not look into: no optimizer finds their parameters, and they "
    "stay behind when the module is moved or saved.",
    "Which kind of list does torch have for modules?",
)
NO_FINAL_NORM = Mistake(
    "the final norm is missing",
    "In a stack of norm-first blocks nothing normalises the sum of all branches at its end.",
    "Through which norm does the result of the last branch pass?",
)


@runtime_checkable
class Layered(Protocol):
    """What a stack, an encoder of ids and an encoder-decoder have in common."""

    start: dict[str, Tensor]
    unregistered: list[str]

    def made(self, layers: int) -> nn.Module:
        """Return an instance with this many layers, as its constructor leaves it."""
        ...


@runtime_checkable
class Runs(Protocol):
    """What has a fixed input, and records its maps and norms."""

    module: nn.Module
    x: Tensor
    heard: list[Heard]

    @property
    def run(self) -> Callable[..., Any]:
        """The call that runs it on an input and a mask."""
        ...


def adopt(module: nn.Module) -> list[str]:
    """Register modules that are kept in plain lists, so that the rest can be tested, and return the lists' names."""
    found: list[str] = []
    for part in [*module.modules()]:
        for name, value in [*vars(part).items()]:
            if isinstance(value, list) and value and all(isinstance(each, nn.Module) for each in value):  # pyright: ignore[reportUnknownVariableType]
                found.append(name)
                delattr(part, name)
                setattr(part, name, nn.ModuleList(value))  # pyright: ignore[reportUnknownArgumentType]
    return found


class Stack(Heads):
    """The learner's stack, with its initial parameters."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.unregistered: list[str] = []
        module = self.made(LAYERS)
        self.start = {name: each.detach().clone() for name, each in module.named_parameters()}
        super().__init__(scramble(module), self.call, mask_argument(forward_of(module, "x"), 1))

    def single(self) -> Heads:
        """Return a stack of one layer. Through several layers, information flows indirectly past a mask."""
        module = scramble(self.made(1))

        def call(x: Tensor, mask: Tensor | None) -> Any:
            return module(x) if mask is None else module(x, **self.named(mask))

        return Heads(module, call, self.mask)

    def made(self, layers: int) -> nn.Module:
        """Return an instance as its constructor leaves it."""
        module = built(self.kind, {"n_layers": layers, "d_model": D, "n_heads": HEADS}, {"d_ff": F})
        self.unregistered = adopt(module)
        return module

    def call(self, x: Tensor, mask: Tensor | None) -> Any:
        """Run the stack."""
        return self.module(x) if mask is None else self.module(x, **self.named(mask))


def keeps_lists(learner: Layered) -> Fault | None:
    """Check that no modules are kept in plain lists."""
    names = ", ".join(f"`{each}`" for each in learner.unregistered)
    return Fault(UNREGISTERED, f"A plain list holds modules: {names}.") if names else None


def final_norm(learner: Runs) -> Fault | None:
    """Check that no feed-forward's output leaves the stack without passing a norm."""
    last = max((place for place, each in enumerate(learner.heard) if is_norm(each.module)), default=None)
    if last is None:
        raise NotTestedError("it calls no norm")
    after = [each.name for each in learner.heard[last + 1 :] if F in each.widths]
    return (
        Fault(NO_FINAL_NORM, f"After the last norm, `{learner.heard[last].name}`, `{after[-1]}` is run.")
        if after
        else None
    )


def numbers(module: nn.Module) -> int:
    """Return the number of parameters of a module."""
    return sum(each.numel() for each in module.parameters())


def grows(learner: Layered) -> Fault | None:
    """Check that each layer adds parameters of its own."""
    counts = [numbers(learner.made(layers)) for layers in (1, 2, LAYERS)]
    if all(more > fewer for fewer, more in pairwise(counts)):
        return None
    return Fault(SAME_LAYERS, f"1, 2 and {LAYERS} layers have {', '.join(f'{each:,}' for each in counts)} parameters.")


def differ(learner: Layered) -> Fault | None:
    """Check that no two matrices are equal at the start, except constant ones, such as output maps that start at 0."""
    matrices = [(name, each) for name, each in learner.start.items() if each.ndim == 2 and (each != each[0, 0]).any()]
    for place, (name, one) in enumerate(matrices):
        for other, two in matrices[place + 1 :]:
            if one.shape == two.shape and torch.equal(one, two):
                return Fault(EQUAL_LAYERS, f"`{name}` and `{other}` hold the same {one.numel()} numbers at the start.")
    return None


def all_run(learner: Runs) -> Fault | None:
    """Check that every parameter affects the output."""
    named = dict(learner.module.named_parameters())
    output = first(ask(learner.run, learner.x, None))
    if not output.requires_grad:
        return Fault(IDLE_LAYERS, f"None of {len(named)} tensors has a gradient.")
    weights = torch.linspace(-1, 2, output.numel(), dtype=output.dtype).view_as(output)
    slopes = torch.autograd.grad((output * weights).sum(), [*named.values()], allow_unused=True)
    found = dict(zip(named, cast("tuple[Tensor | None, ...]", slopes), strict=True))
    idle = [name for name, slope in found.items() if slope is None]
    return (
        Fault(IDLE_LAYERS, f"{len(idle)} of {len(named)} tensors have no gradient, among them `{idle[0]}`.")
        if idle
        else None
    )


def one_mask(learner: Stack) -> Fault | None:
    """Check the mask in a stack of one layer."""
    return masked(polarity)(learner.single())


STACK = Subject(
    Stack,
    (
        Property("registered", "Its layers are parts of the module.", keeps_lists),
        Property("shape", "There is one vector of width d_model for each position.", shape),
        Property("repeatable", "In evaluation mode the same input gives the same output.", repeatable, ("shape",)),
        Property("rows", "No row of a batch affects another.", rows, ("repeatable",)),
        Property("own-layers", "Each layer has parameters of its own.", grows),
        Property("fresh-layers", "Layers start different.", differ, ("own-layers",)),
        Property("used-layers", "Every layer is run.", all_run, ("shape", "repeatable")),
        Property("mask", "The mask reaches the attention of a layer.", one_mask, ("shape", "repeatable", "rows")),
        Property("final-norm", "The last layer is followed by a norm.", final_norm, ("used-layers",)),
    ),
)
