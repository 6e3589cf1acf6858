"""Finds out how a block is assembled, by trying every place for residuals and norms until the output matches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import torch

from glassformer.base.shapes import Tensor
from glassformer.proof.check.listen import Heard
from glassformer.proof.check.reading import distance

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
