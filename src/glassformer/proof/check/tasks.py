"""Tests what surrounds a model: examples of a task, batches, the share of whole answers, an episode's steps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch

from glassformer.base.shapes import Tensor
from glassformer.proof.check.calling import TOLERANCE, Choice, Computed, aspect, called, drawn, one_of
from glassformer.proof.check.property import Fault, Mistake, law

BETWEEN = -7
"""A number that no id has, between results that are compared side by side."""


class Answers(Computed):
    """A learner's function, called on several inputs; the results are compared side by side."""

    def __init__(
        self,
        function: Callable[..., Any],
        names: Sequence[str],
        inputs: Sequence[tuple[Any, ...]],
        ways: Sequence[Choice],
        made: Callable[..., Any],
    ) -> None:
        def under(way: str) -> Any:
            return flat([made(way, *each) for each in inputs])

        self.given = copy.deepcopy(inputs)  # the function may change them
        self.raw = [called(function, dict(zip(names, each, strict=True))) for each in self.given]
        super().__init__(flat(self.raw), {"way": ways}, under, TOLERANCE)


def flat(results: Sequence[Any]) -> Any:
    """Return all tensors and numbers in the results as one tensor, with marks between; other things as they are."""
    pieces: list[Tensor] = []
    for each in results:
        for value in each if isinstance(each, tuple | list) else [each]:
            if not isinstance(value, Tensor | int | float):
                return value
            tensor = torch.as_tensor(value).detach().double()
            pieces += [torch.tensor([BETWEEN, *tensor.shape], dtype=torch.float64), tensor.flatten()]
    return torch.cat(pieces)


NOT_IDS = Mistake(
    "ids are not whole numbers",
    "An embedding looks rows up by whole numbers and refuses others.",
    "Which dtype must a tensor have that an embedding reads?",
)


# --- examples of a task

EARLY = Mistake(
    "the answer stands one place early",
    "The first symbol of the answer stands at the separator's place or before it.",
    "At which place does the model begin to write: at the separator, or after it?",
)
CONTAINS = Mistake(
    "the inputs contain the answer",
    "The places at which the answer must be written hold it already.",
    "What may the model read at the places where it must write?",
)
NO_SEPARATOR = Mistake(
    "the separator is missing",
    "Nothing marks where the symbols end.",
    "How does a model know that it is to write now?",
)
SOURCE_TOO = Mistake(
    "the source is a target too",
    "The symbols stand in the targets, so the loss counts what the model can read.",
    "Which places of the targets must be blank?",
)
OTHER_ORDER = Mistake(
    "the order is reversed",
    "Sorting goes from large to small.",
    "Which symbol comes first in the answer of `sort`?",
)
LOST_TWINS = Mistake(
    "repeated symbols are lost",
    "A symbol that occurs twice is written once.",
    "How many symbols has the answer for 5 5 2?",
)
CHANGED = Mistake(
    "the symbols are changed",
    "The function sorts or reverses the tensor that it was given.",
    "Which methods of a tensor change it, and which give a new one?",
)
WORDS = (
    (torch.tensor([5, 9, 5, 2]), "copy"),
    (torch.tensor([4, 8]), "reverse"),
    (torch.tensor([9, 3, 9, 7, 2]), "sort"),
)


def example(way: str, symbols: Tensor, task: str) -> tuple[Tensor, Tensor]:
    """Return inputs and targets under a reading."""
    blank, separator = torch.zeros(len(symbols), dtype=torch.long), torch.tensor([1])
    ordered = symbols.sort(descending=way == "falling")[0]
    if way == "twins":
        ordered = symbols.unique()
    answer = {"copy": symbols, "reverse": symbols.flip(0), "sort": ordered}[task]
    inputs = torch.cat([symbols, separator * (way != "no separator"), answer if way == "contains" else blank])
    targets = torch.cat([blank, torch.tensor([0]), answer])
    if way == "early":
        targets = torch.cat([blank, answer, torch.tensor([0])])
    if way == "source":
        targets = torch.cat([symbols, torch.tensor([0]), answer])
    if way == "short":
        inputs = torch.cat([symbols, blank])
    return inputs, targets


EXAMPLES = [
    Choice("right"),
    Choice("early", "the answer after n blanks", EARLY),
    Choice("contains", "the answer in the inputs", CONTAINS),
    Choice("no separator", "0 in place of the separator", NO_SEPARATOR),
    Choice("short", "no separator", NO_SEPARATOR),
    Choice("source", "the symbols in the targets", SOURCE_TOO),
    Choice("falling", "large symbols first", OTHER_ORDER),
    Choice("twins", "each symbol once", LOST_TWINS),
]


class Example(Answers):
    """The learner's `make_example`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function, ("symbols", "task"), WORDS, EXAMPLES, example)

    example = aspect("way", "Symbols, separator, blanks; blanks, then the answer.", name="example")

    @law("The symbols stay as they are.")
    def input(self) -> Fault | None:
        changed = [task for (own, task), (x, _) in zip(self.given, WORDS, strict=True) if not torch.equal(own, x)]
        return Fault(CHANGED, f"They are others after `{changed[0]}`.") if changed else None


# --- batches

IN_FRONT = Mistake(
    "padding is expected on the left",
    "Padding stands in front of the shorter rows.",
    "Where do the real tokens of a row stand?",
)
CUT = Mistake("rows are cut", "Longer rows lose their last ids.", "How wide must the tensor be for the longest row?")
FIRST_ROW = Mistake(
    "the first row's length is used",
    "The tensor is as wide as the first row, so longer rows lose their last ids.",
    "How wide must the tensor be for the longest row?",
)
GUESSED = Mistake(
    "lengths are guessed from the ids",
    "The ids that differ from pad_id are counted, so a row that holds pad_id itself gets another length.",
    "Where is a row's length known for sure?",
)
ROWS = (([[5, 0, 3], [7], [], [4, 2, 9, 6]], 0), ([[8]], 3))


def padded(way: str, rows: list[list[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Return ids and lengths under a reading."""
    widths = [len(row) for row in rows]
    width = {"shortest": min(widths), "first": widths[0]}.get(way, max(widths))
    ids = torch.full((len(rows), width), pad)
    for number, row in enumerate(rows):
        cut = row[:width]
        if cut:
            place = slice(width - len(cut), None) if way == "left" else slice(0, len(cut))
            ids[number, place] = torch.tensor(cut)
    lengths = (ids != pad).sum(1) if way == "guessed" else torch.tensor(widths)
    return ids, lengths.clamp(max=width) if way in ("shortest", "first") else lengths


BATCHES = [
    Choice("right"),
    Choice("left", "padding in front", IN_FRONT),
    Choice("shortest", "the width of the shortest row", CUT),
    Choice("first", "the width of the first row", FIRST_ROW),
    Choice("guessed", "lengths counted from the ids", GUESSED),
]


class Batch(Answers):
    """The learner's `pad_batch`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function, ("rows", "pad_id"), ROWS, BATCHES, padded)

    ids = aspect("way", "Rows stand at the left, padding behind; lengths are the rows'.", name="ids")

    @law("Ids are whole numbers.", "equation")
    def whole_numbers(self) -> Fault | None:
        ids = self.raw[0][0]
        return Fault(NOT_IDS, f"They are {ids.dtype}.") if ids.is_floating_point() else None


# --- whole answers

WITH_PADDING = Mistake(
    "padding must be right too",
    "A row counts only if the model also predicts the padding behind its answer.",
    "Which places of a row must be right?",
)
TOKENS = Mistake(
    "tokens are counted instead of rows",
    "The share of right tokens is given, which is far above that of whole answers.",
    "What is 0.9 to the eighth?",
)
ANY = Mistake(
    "one right token is enough", "A row counts as soon as one of its tokens is right.", "When is an answer whole?"
)
TARGETS = torch.tensor([[5, 1, 2, 6], [3, 1, 0, 0], [4, 4, 2, 0], [2, 6, 1, 0]])
BEST = torch.tensor([[5, 1, 2, 6], [3, 1, 5, 0], [4, 3, 2, 0], [2, 6, 1, 4]])
LOGITS = torch.nn.functional.one_hot(BEST, 8).double() * 5


HITS, REAL = BEST == TARGETS, TARGETS != 0
WHOLE = [
    Choice((HITS | ~REAL).all(-1).double().mean()),
    Choice(HITS.all(-1).double().mean(), "padding counted too", WITH_PADDING),
    Choice(HITS[REAL].double().mean(), "the share of tokens", TOKENS),
    Choice(HITS.double().mean(), "the share of all places", TOKENS),
    Choice((HITS & REAL).any(-1).double().mean(), "one right token", ANY),
]
EXACT = one_of(
    "rows",
    "A row counts if all its real targets are right.",
    lambda function: called(function, {"logits": LOGITS.clone(), "targets": TARGETS.clone(), "pad_id": 0}),
    WHOLE,
)


# --- returns and steps of an episode

FROM_START = Mistake(
    "returns are summed from the start",
    "At each step the rewards so far are added up, not those that are still to come.",
    "What does a policy want to know: what it has got, or what it will get?",
)
RUN_TOGETHER = Mistake(
    "episodes run into each other",
    "The rewards of the next episode are added to those of this one.",
    "At which step must the sum begin anew?",
)
ACTION_EARLY = Mistake(
    "the action is read before it is taken",
    "The action stands before the state in which it is chosen.",
    "In which order do the three become known?",
)
IN_BLOCKS = Mistake(
    "the three stand in blocks",
    "All returns stand first, then all states, then all actions: a step's three are far apart.",
    "Which three vectors belong to step 0, and where do they stand?",
)
REWARDS = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], dtype=torch.float64)
ENDS = torch.tensor([False, False, True, False, False, True])


def to_go(rewards: Tensor) -> Tensor:
    """Return for each step the sum of the rewards from it on."""
    return rewards.flip(0).cumsum(0).flip(0)


RETURNS = [
    Choice(torch.cat([to_go(each) for each in REWARDS.split(3)])),
    Choice(torch.cat([each.cumsum(0) for each in REWARDS.split(3)]), "sums from the start", FROM_START),
    Choice(REWARDS.cumsum(0), "sums from the start", FROM_START),
    Choice(to_go(REWARDS), "one sum over both episodes", RUN_TOGETHER),
    Choice(
        torch.cat([to_go(each) for each in REWARDS.split([2, 3, 1])]),
        "the last step of an episode in the next one",
        RUN_TOGETHER,
    ),
]
RETURNS_TO_GO = one_of(
    "returns",
    "Rewards from this step to the episode's end.",
    lambda function: called(function, {"rewards": REWARDS.clone(), "ends": ENDS.clone()}),
    RETURNS,
    loose=True,
)

STEPS = drawn(3, 2, 7, 5)


R, S, A = STEPS
ORDERS = [
    Choice(torch.stack([R, S, A], 2).flatten(1, 2)),
    Choice(torch.stack([R, A, S], 2).flatten(1, 2), "return, action, state", ACTION_EARLY),
    Choice(torch.stack([A, R, S], 2).flatten(1, 2), "action, return, state", ACTION_EARLY),
    Choice(torch.cat([R, S, A], 1), "one after another", IN_BLOCKS),
]
INTERLEAVE = one_of(
    "steps",
    "Return, state, action; then those of the next step.",
    lambda function: called(function, dict(zip(("returns", "states", "actions"), STEPS.clone(), strict=True))),
    ORDERS,
    loose=True,
)
