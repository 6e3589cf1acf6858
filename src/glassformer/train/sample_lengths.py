"""How long the samples of a run's training were, and which inputs are shorter or longer than all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

SampleLengths = Mapping[str, Sequence[int]]
"""For each side ("source" and "target", or "text") the fewest and the most tokens of a sample, without special ones.

Empty where samples are windows of a text, which have no length of their own, and where it isn't known."""
LENGTHS = "lengths"
"""The entry of a checkpoint's state that has them."""


class Untrained(NamedTuple):
    """An input that is shorter or longer than every one in training: its tokens, and the fewest and most there."""

    tokens: int
    shortest: int
    longest: int
    side: str


def joined(one: SampleLengths, other: SampleLengths) -> SampleLengths:
    """The lengths of a model that was trained on both; empty where they are not of the same sides."""
    if one.keys() != other.keys():
        return {}
    return {side: [min(one[side][0], other[side][0]), max(one[side][1], other[side][1])] for side in one}


def untrained(tokens: int, state: Mapping[str, Any]) -> Untrained | None:
    """An input of so many tokens, if a model whose checkpoint has this `state` was trained on none as short or long.

    None also where the lengths are not known, as in a checkpoint of an older version.
    """
    lengths: SampleLengths = state.get(LENGTHS, {})
    for side in ("source", "text"):
        if side in lengths:
            shortest, longest = lengths[side]
            return None if shortest <= tokens <= longest else Untrained(tokens, shortest, longest, side)
    return None


def compared(found: Sequence[Untrained]) -> str:
    """What such inputs of one model are: shorter or longer, and than what."""
    _, shortest, longest, side = found[0]
    how = ["shorter"] if any(each.tokens < shortest for each in found) else []
    how += ["longer"] if any(each.tokens > longest for each in found) else []
    trained = f"{shortest} to {longest} tokens" if shortest < longest else f"{longest} tokens each"
    return f"{' or '.join(how)} than every {side} in training ({trained})"


def in_words(found: Sequence[Untrained]) -> str:
    """The warning on such inputs, for a user of a command."""
    return f"{compared(found)}, so {'the answer is' if len(found) == 1 else 'the answers are'} less reliable"


def untrained_field(found: Untrained | None) -> dict[str, object]:
    """The field of an answer in JSON, if there is something to say."""
    if found is None:
        return {}
    return {"untrained_length": {"tokens": found.tokens, "shortest": found.shortest, "longest": found.longest}}
