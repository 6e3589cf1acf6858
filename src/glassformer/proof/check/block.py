"""Tests a learner's block and stack of blocks: how they are assembled, and the attention inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, NamedTuple, cast

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.proof.check.attention import first
from glassformer.proof.check.calling import built, constructed, forward_of, mask_argument, scramble
from glassformer.proof.check.heads import D, Heads, heads_properties, repeatable, rows, shape
from glassformer.proof.check.listen import Heard, is_norm
from glassformer.proof.check.mask import HEADS, masked, polarity
from glassformer.proof.check.reading import distance
from glassformer.proof.check.table import Fault, Mistake, NotTestedError, Property, Subject, ask

EXACT = 1e-9


class Branch(NamedTuple):
    """A recorded attention or feed-forward: the index of its first call, its input and its output."""

    name: str
    place: int
    given: Tensor
    gave: Tensor


class Way(NamedTuple):
    """after(base + output(branch(before(x)))), each norm by name or None; base: "stream", "normed" or "nothing"."""

    before: str | None
    output: str | None
    after: str | None
    base: str

    def norms(self) -> list[str]:
        """Return the norms in it."""
        return [each for each in (self.before, self.output, self.after) if each is not None]


@dataclass(frozen=True)
class Structure:
    """The branches in the order in which they run, and the way of each. Without ways, the block does not add up."""

    branches: list[Branch]
    ways: list[Way]
    feed_first: bool

    def pairs(self) -> Iterator[tuple[Way, Branch]]:
        """Return each branch with its way."""
        return zip(self.ways, self.branches, strict=True)


def structure_of(x: Tensor, seen: Tensor, parts: list[Branch], heard: list[Heard]) -> Structure:
    """Return the structure that gives `seen` for the input x, using the learner's norms as functions."""
    first, second = ordered = sorted(parts, key=lambda each: each.place)
    apply = {each.name: each.module for each in heard}
    found = [
        [way, other]
        for way, stream in candidates(x, first, apply)
        for other, end in candidates(stream, second, apply)
        if distance(end, seen) <= EXACT
    ]
    return Structure(ordered, min(found, key=oddity) if found else [], first.name == "feed-forward")


def oddity(ways: list[Way]) -> float:
    """Count the mistakes in these ways. Of two that give the same numbers, the one with fewer was probably meant."""
    mistakes = float(any(way.base == "normed" for way in ways))
    mistakes += sum(way.base == "nothing" for way in ways)
    mistakes += sum(way.before is None and way.after is None for way in ways)
    mistakes += len({way.before is None for way in ways}) > 1
    return mistakes + 0.1 * sum(len(way.norms()) for way in ways)


def candidates(x: Tensor, branch: Branch, norms: dict[str, Callable[[Tensor], Tensor]]) -> Iterator[tuple[Way, Tensor]]:
    """Yield every way that explains the branch's input, with the stream after it."""
    names = [None, *norms]

    def normed(name: str | None, value: Tensor) -> Tensor:
        with torch.no_grad():
            return value if name is None else norms[name](value)

    befores = [name for name in names if distance(normed(name, x), branch.given) <= EXACT]
    for way in (Way(*each) for each in product(befores, names, names, ("stream", "normed", "nothing"))):
        if way.base == "normed" and way.before is None:
            continue
        base = {"stream": x, "normed": normed(way.before, x), "nothing": torch.zeros_like(x)}[way.base]
        yield way, normed(way.after, base + normed(way.output, branch.gave))


F = 20


def no_residual(where: str) -> Mistake:
    """Return the mistake that a branch's output replaces the stream."""
    return Mistake(
        f"the residual around the {where} is missing",
        f"What comes out of the {where} replaces the stream instead of being added to it.",
        "In figure 1 of the paper, which arrow goes round the branch?",
    )


def no_norm(where: str) -> Mistake:
    """Return the mistake that a branch has no norm."""
    return Mistake(
        f"the norm of the {where} is missing",
        f"Neither the input of the {where} nor the sum after it is normalised.",
        "Count the norms in figure 1 of the paper, and those that your forward calls.",
    )


NORMED = Mistake(
    "the residual starts from the normalised stream",
    "The branch is added to the norm's output, so the stream itself is cut at every norm.",
    "In a pre-norm block, is there one path from input to output without any norm?",
)
BEFORE_SUM = Mistake(
    "the norm stands before the sum",
    "The branch alone is normalised; in a post-norm block it is the sum that is.",
    "Put brackets into LayerNorm(x + Sublayer(x)) as you wrote it, and as the paper has it.",
)
MIXED_NORMS = Mistake(
    "pre-norm and post-norm are mixed",
    "One branch is normalised before, the other after its sum.",
    "Decide on one of the two figures, and draw your block beside it.",
)
SHARED = Mistake(
    "one norm stands in two places",
    "The same module, with the same weights, normalises at both places.",
    "How many norms does your constructor make, and how many does the figure have?",
)
ORDER = Mistake(
    "the feed-forward comes before the attention",
    "The branches run in the wrong order.",
    "Read figure 1 of the paper from the bottom up.",
)
LINEAR = Mistake(
    "the feed-forward has no activation",
    "What leaves the first map goes into the second unchanged, and two linear maps in a row are one.",
    "What stands between the two maps in equation 2 of the paper?",
)
UNKNOWN = Mistake(
    "the block is not put together as documented",
    "Input, branches and output do not add up, and no mistake known here explains it.",
    "Write down each line of your forward as an equation, and use every result.",
)


class Block(Heads):
    """The learner's block, with the recorded calls of its attention, feed-forward and norms."""

    def __init__(self, kind: Any) -> None:
        module = constructed(kind, {"d_model": D, "n_heads": HEADS}, {"d_ff": F})
        super().__init__(module, self.call, mask_argument(forward_of(module, "x"), 1))
        self.structure = self._structure()

    def call(self, x: Tensor, mask: Tensor | None) -> Any:
        """Run the block."""
        return self.module(x) if mask is None else self.module(x, **self.named(mask))

    def norm_count(self) -> int:
        """Return how many times norms are called in one forward pass."""
        return sum(is_norm(each.module) for each in self.heard)

    def _structure(self) -> Structure | None:
        attention, feed = branches(self.heard)
        if attention is None or feed is None or {attention.gave.shape, feed.gave.shape} != {self.x.shape}:
            return None
        norms = [each for each in self.heard if is_norm(each.module)]
        return structure_of(self.x, self.seen, [attention, feed], norms)


def branches(heard: list[Heard]) -> tuple[Branch | None, Branch | None]:
    """Return the inputs and outputs of attention and feed-forward. The maps of the latter have the width d_ff."""
    maps = [(place, each) for place, each in enumerate(heard) if not is_norm(each.module)]
    feed = [each for each in maps if F in each[1].widths or 2 * F in each[1].widths]
    rest = [each for each in maps if each not in feed and {*each[1].widths} <= {D, 2 * D, 3 * D}]

    def branch(name: str, calls: list[tuple[int, Heard]]) -> Branch | None:
        if not calls or calls[-1][1].widths[1] != D:
            return None
        return Branch(name, calls[0][0], calls[0][1].given, calls[-1][1].gave)

    return branch("attention", rest), branch("feed-forward", feed)


def structured(learner: Block) -> Structure:
    """Return the block's structure. Errors: `NotTestedError` if its parts were not found or do not add up."""
    if learner.structure is None:
        raise NotTestedError("its attention and feed-forward could not be told apart")
    if not learner.structure.ways:
        raise NotTestedError("its parts do not add up; see `structure`")
    return learner.structure


def structure(learner: Block) -> Fault | None:
    """Check that input, branches and norms add up to the output."""
    if learner.structure is None:
        raise NotTestedError("its attention and feed-forward (nn.Linear to d_ff and back) could not be told apart")
    if learner.structure.ways:
        return None
    attention, feed = learner.structure.branches
    total = distance(learner.seen, learner.x + attention.gave + feed.gave)
    return Fault(UNKNOWN, f"The sum of input and branches differs from the output by {total:.2g}.")


def order(learner: Block) -> Fault | None:
    """Check that attention comes first."""
    found = structured(learner)
    return (
        Fault(ORDER, "The first linear map that is called belongs to the feed-forward.") if found.feed_first else None
    )


def residual(learner: Block) -> Fault | None:
    """Check that each branch is added to the stream."""
    for way, branch in structured(learner).pairs():
        if way.base == "nothing":
            size = branch.gave.abs().max().item()
            return Fault(
                no_residual(branch.name),
                f"The stream continues as the branch alone (numbers up to {size:.2g}), without x.",
            )
        if way.base == "normed":
            return Fault(NORMED, f"The {branch.name} is added to the output of norm `{way.before}`.")
    return None


def norms(learner: Block) -> Fault | None:
    """Check that each branch has a norm, and both at the same place: before it or after its sum."""
    places: list[str] = []
    for way, branch in structured(learner).pairs():
        if way.before is None and way.after is None:
            if way.output is None:
                return Fault(
                    no_norm(branch.name),
                    f"None of the {learner.norm_count()} norms called produces its input or receives its sum.",
                )
            return Fault(BEFORE_SUM, f"Norm `{way.output}` receives the {branch.name}'s output without x.")
        places.append("before" if way.before is not None else "after")
    if len({*places}) > 1:
        return Fault(
            MIXED_NORMS, f"Of 2 branches, attention has its norm {places[0]}, the feed-forward {places[1]} the sum."
        )
    return None


def own_norms(learner: Block) -> Fault | None:
    """Check that no norm is used twice."""
    used = [name for way, _ in structured(learner).pairs() for name in way.norms()]
    twice = next((name for name in used if used.count(name) > 1), None)
    return (
        Fault(SHARED, f"`{twice}` is called {used.count(twice)} times in one forward.") if twice is not None else None
    )


def bends(learner: Block) -> Fault | None:
    """Check that something nonlinear is between the two maps of the feed-forward."""
    feed = [each for each in learner.heard if isinstance(each.module, nn.Linear) and F in each.widths]
    if len(feed) != 2:
        raise NotTestedError("its feed-forward is not two linear maps")
    gap = distance(feed[0].gave, feed[1].given)
    return Fault(LINEAR, f"Output of the first map and input of the second differ by {gap:.0g}.") if gap == 0 else None


BLOCK = Subject(
    Block,
    (
        Property("shape", "There is one vector of width d_model for each position.", shape),
        Property("repeatable", "In evaluation mode the same input gives the same output.", repeatable, ("shape",)),
        *heads_properties(),
        Property(
            "structure", "Input, branches and norms add up to the output.", structure, ("shape", "repeatable", "rows")
        ),
        Property("branches", "Attention comes first, then the feed-forward.", order, ("structure",)),
        Property("residual", "Each branch is added to the stream.", residual, ("structure",)),
        Property("norm", "Each branch has a norm, before it or after its sum.", norms, ("structure",)),
        Property("own-norm", "Each norm has weights of its own.", own_norms, ("structure",)),
        Property("activation", "The feed-forward is not linear.", bends, ("structure",)),
    ),
)


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


class Stack(Heads):
    """The learner's stack, with its initial parameters."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
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
        return built(self.kind, {"n_layers": layers, "d_model": D, "n_heads": HEADS}, {"d_ff": F})

    def call(self, x: Tensor, mask: Tensor | None) -> Any:
        """Run the stack."""
        return self.module(x) if mask is None else self.module(x, **self.named(mask))


def numbers(module: nn.Module) -> int:
    """Return the number of parameters of a module."""
    return sum(each.numel() for each in module.parameters())


def grows(learner: Stack) -> Fault | None:
    """Check that each layer adds parameters of its own."""
    counts = [numbers(learner.made(layers)) for layers in (1, 2, LAYERS)]
    if all(more > fewer for fewer, more in pairwise(counts)):
        return None
    return Fault(SAME_LAYERS, f"1, 2 and {LAYERS} layers have {', '.join(f'{each:,}' for each in counts)} parameters.")


def differ(learner: Stack) -> Fault | None:
    """Check that no two matrices are equal at the start, except constant ones, such as output maps that start at 0."""
    matrices = [(name, each) for name, each in learner.start.items() if each.ndim == 2 and (each != each[0, 0]).any()]
    for place, (name, one) in enumerate(matrices):
        for other, two in matrices[place + 1 :]:
            if one.shape == two.shape and torch.equal(one, two):
                return Fault(EQUAL_LAYERS, f"`{name}` and `{other}` hold the same {one.numel()} numbers at the start.")
    return None


def all_run(learner: Stack) -> Fault | None:
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
        Property("shape", "There is one vector of width d_model for each position.", shape),
        Property("repeatable", "In evaluation mode the same input gives the same output.", repeatable, ("shape",)),
        Property("rows", "No row of a batch affects another.", rows, ("repeatable",)),
        Property("own-layers", "Each layer has parameters of its own.", grows),
        Property("fresh-layers", "Layers start different.", differ, ("own-layers",)),
        Property("used-layers", "Every layer is run.", all_run, ("shape", "repeatable")),
        Property("mask", "The mask reaches the attention of a layer.", one_mask, ("shape", "repeatable", "rows")),
    ),
)
