"""Tests a learner's `TransformerBlock(d_model, n_heads, d_ff)`: how it is assembled, and its attention."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.proof.check.attention import accepts
from glassformer.proof.check.heads import D, Heads, repeatable, shape
from glassformer.proof.check.listen import Heard, is_norm
from glassformer.proof.check.mask import HEADS
from glassformer.proof.check.multi_head import constructed, heads_properties
from glassformer.proof.check.reading import distance
from glassformer.proof.check.structure import Branch, Structure, structure_of
from glassformer.proof.check.table import Fault, Mistake, NotTestedError, Property, SignatureError, Subject

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
        module = constructed(kind, D, HEADS, F)
        if not accepts(module.forward, "x"):
            raise SignatureError(f"forward{inspect.signature(module.forward)}")
        super().__init__(module, self.call, accepts(module.forward, "x", "mask"))
        self.structure = self._structure()

    def call(self, x: Tensor, mask: Tensor | None) -> Any:
        """Run the block."""
        return self.module(x) if mask is None else self.module(x, mask)

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
