"""How a block is put together, found by trying every place for residuals and norms until the output comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import torch

from glassformer.foundation.shapes import Tensor
from glassformer.proof.check.listen import Heard
from glassformer.proof.check.reading import distance

EXACT = 1e-9


class Branch(NamedTuple):
    """Attention or feed-forward as heard: when, what it was given, what it gave."""

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
        """The norms in it."""
        return [each for each in (self.before, self.output, self.after) if each is not None]


@dataclass(frozen=True)
class Structure:
    """The branches in the order in which they run, and the way of each; no ways: the block does not add up."""

    branches: list[Branch]
    ways: list[Way]
    feed_first: bool

    def pairs(self) -> Iterator[tuple[Way, Branch]]:
        """Each branch with its way."""
        return zip(self.ways, self.branches, strict=True)


def structure_of(x: Tensor, seen: Tensor, parts: list[Branch], heard: list[Heard]) -> Structure:
    """The structure that gives `seen` for the input x; norms are used as they are, as functions."""
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
    """How many mistakes a block of these ways has: of two that give the same numbers, the plainer was meant."""
    mistakes = float(any(way.base == "normed" for way in ways))
    mistakes += sum(way.base == "nothing" for way in ways)
    mistakes += sum(way.before is None and way.after is None for way in ways)
    mistakes += len({way.before is None for way in ways}) > 1
    return mistakes + 0.1 * sum(len(way.norms()) for way in ways)


def candidates(x: Tensor, branch: Branch, norms: dict[str, Callable[[Tensor], Tensor]]) -> Iterator[tuple[Way, Tensor]]:
    """Every way in which the branch was given what it was, with the stream after it."""
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
