"""Tests other kinds of attention (biased, windowed, linear, in blocks) and what acting needs, by their values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from glassformer.base.shapes import Tensor
from glassformer.proof.check.calling import called
from glassformer.proof.check.language_model import FUTURE
from glassformer.proof.check.mask import INVERTED
from glassformer.proof.check.mask_makers import NUMBERS
from glassformer.proof.check.reading import Choice, Reading, aspect, read
from glassformer.proof.check.small_parts import EQUATION, drawn
from glassformer.proof.check.table import Fault, Mistake, Property, Subject

B, H, T, K, BLOCK, WINDOW = 2, 4, 7, 5, 3, 3
QKV = drawn(3, B, H, T, K)


class Squares(TorchFunctionMode):
    """While the context lasts, counts results that have an axis of `length` twice: whole tables of scores."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length, self.count = length, 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call the function and look at its result."""
        answer = func(*args, **(kwargs or {}))
        if isinstance(answer, Tensor) and [*answer.shape].count(self.length) > 1:
            self.count += 1
        return answer


class Computed:
    """A learner's function of tensors, called once; `squares` counts the whole tables that it made."""

    def __init__(self, call: Callable[[], Any], ways: list[Choice], made: Callable[[str], Tensor]) -> None:
        with Squares(T) as squares:
            self.seen = call()
        self.squares = squares.count
        self.wanted = made("right")
        self.reading: Reading | None = None
        if isinstance(self.seen, Tensor):
            self.seen = self.seen.reshape(self.wanted.shape) if self.seen.numel() == self.wanted.numel() else self.seen
            self.reading = read(self.seen, {"way": ways}, made, 1e-6)


# --- biases and windows

FAR = Mistake(
    "far keys are favoured",
    "The bias grows with the distance, so the furthest key gets the largest weight.",
    "Which key should a query read more easily: the one beside it, or the first one?",
)
LINEAR_SLOPES = Mistake(
    "the slopes are not a geometric series",
    "From head to head the slope changes by the same difference and not by the same factor.",
    "What do you multiply the slope of one head by, to get that of the next?",
)
ONE_MORE = Mistake(
    "off by one: the window has one key too many",
    "A query reads window keys before itself, and itself as well.",
    "With a window of 1, which keys may be read?",
)
LOWER = torch.ones(T, T).tril().double()


def alibi(way: str) -> Tensor:
    """Return the bias at keys that a causal mask leaves, under a reading."""
    heads = torch.arange(1, H + 1).double()
    slopes = {"linear": heads / H, "falling": (H + 1 - heads) / H, "linear, small": heads * 2 ** (-8 / H)}.get(
        way, 2 ** (-8 * heads / H)
    )
    away = (torch.arange(T)[None] - torch.arange(T)[:, None]).double()
    bias = slopes[:, None, None] * away * LOWER
    return -bias if way == "sign" else bias


ALIBI = Subject(
    lambda function: Computed(
        lambda: called(function, {"n_heads": H, "length": T}).double() * LOWER,
        [
            Choice("right"),
            Choice("sign", "the other sign", FAR),
            Choice("linear", "slopes 1/H, 2/H, ...", LINEAR_SLOPES),
            Choice("falling", "slopes 1, 1 - 1/H, ...", LINEAR_SLOPES),
            Choice("linear, small", "slopes in even steps", LINEAR_SLOPES),
        ],
        alibi,
    ),
    (EQUATION, Property("bias", "Head h loses 2^(-8h/H) a step of distance.", aspect("way"), ("equation",))),
)


def window(way: str) -> Tensor:
    """Return the mask [T, T] under a reading, as numbers."""
    back = torch.arange(T)[:, None] - torch.arange(T)[None]
    mask = {
        "one more": (back >= 0) & (back <= WINDOW),
        "both": back.abs() < WINDOW,
        "both, one more": back.abs() <= WINDOW,
        "no window": back >= 0,
    }.get(way, (back >= 0) & (back < WINDOW))
    return (~mask if way == "inverted" else mask).double()


class Windowed(Computed):
    """The learner's `window_mask`, compared as numbers."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.raw: Any = None

        def asked() -> Any:
            self.raw = called(function, {"length": T, "window": WINDOW})
            return self.raw.double() if isinstance(self.raw, Tensor) else self.raw

        ways = [
            Choice("right"),
            Choice("one more", "window + 1 keys", ONE_MORE),
            Choice("both", "keys on both sides", FUTURE),
            Choice("both, one more", "keys on both sides", FUTURE),
            Choice("inverted", "True as 'hide'", INVERTED),
        ]
        super().__init__(asked, ways, window)


def boolean(learner: Windowed) -> Fault | None:
    """Check that the mask holds True and False."""
    return None if learner.raw.dtype == torch.bool else Fault(NUMBERS, f"It is {learner.raw.dtype}.")


WINDOW_MASK = Subject(
    Windowed,
    (
        EQUATION,
        Property("boolean", "It holds True and False.", boolean, ("equation",)),
        Property("window", "A query reads itself and the window - 1 keys before it.", aspect("way"), ("equation",)),
    ),
)


# --- linear attention

NOT_ONE = Mistake(
    "the weights do not sum to 1",
    "The sum over keys is not divided by the sum of their weights.",
    "What did the softmax divide by, and what takes its place here?",
)
WHOLE_TABLE = Mistake(
    "it computes the whole table",
    "Scores of each query with each key are made, so time and memory grow with the square of the length.",
    "Which product can be summed up along the sequence before any query is known?",
)
OTHER_FEATURES = Mistake(
    "the feature map is another one",
    "Queries and keys go through another function than elu(x) + 1, or only one of them does.",
    "Which function makes the features positive, and to what is it applied?",
)


def linear(way: str) -> Tensor:
    """Return the output under a reading."""
    q, k, v = QKV
    features: dict[str, Callable[[Tensor], Tensor]] = {
        "exp": torch.exp,
        "elu": torch.nn.functional.elu,
        "right": lambda x: torch.nn.functional.elu(x) + 1,
    }
    feature = features.get(way, features["right"])
    q = q if way == "keys only" else feature(q)
    weights = q @ feature(k).mT
    weights = weights if way == "all" else weights * LOWER
    return (weights if way == "bare" else weights / weights.sum(-1, keepdim=True)) @ v


def no_table(learner: Computed) -> Fault | None:
    """Check that no tensor has the length twice."""
    told = f"{learner.squares} tensors of {T} queries by {T} keys are made."
    return Fault(WHOLE_TABLE, told) if learner.squares else None


LINEAR_ATTENTION = Subject(
    lambda function: Computed(
        partial(called, function, dict(zip("qkv", QKV.clone(), strict=True))),
        [
            Choice("right"),
            Choice("bare", "no division", NOT_ONE),
            Choice("all", "a sum over all keys", FUTURE),
            *(Choice(each, f"other features ({each})", OTHER_FEATURES) for each in ("exp", "elu", "keys only")),
        ],
        linear,
    ),
    (
        EQUATION,
        Property("linear", "Causal, with the features elu(x) + 1.", aspect("way"), ("equation",)),
        Property("table", "No table of scores is made.", no_table, ("equation",)),
    ),
)


# --- attention in blocks

NOT_RESCALED = Mistake(
    "old blocks are not rescaled",
    "When a later block has a larger score, what was added up before it still counts by the old maximum.",
    "By what must the sums so far be multiplied when the maximum grows from a to b?",
)
SUM_NOT_RESCALED = Mistake(
    "the sum is not rescaled",
    "The values are multiplied when the maximum grows, but the sum of weights is not.",
    "Which two sums are carried from block to block?",
)
MADE_WHOLE = Mistake(
    "the whole table is made",
    "Scores of all queries with all keys stand in memory at once.",
    "How many keys may be looked at in one round?",
)
LAST_LOST = Mistake(
    "the last block is lost",
    "The keys behind the last full block are never read.",
    "How many rounds do 7 keys need in blocks of 3?",
)


def blocks(way: str) -> Tensor:
    """Return the output of blockwise attention under a reading."""
    q, k, v = QKV
    scores = q @ k.mT * K**-0.5
    most = torch.full((B, H, T, 1), float("-inf"), dtype=torch.float64)
    total, summed = torch.zeros(B, H, T, 1, dtype=torch.float64), torch.zeros(B, H, T, K, dtype=torch.float64)
    for begin in range(0, T - (T % BLOCK if way == "last" else 0), BLOCK):
        part = scores[..., begin : begin + BLOCK]
        own = part.amax(-1, keepdim=True)
        new = own if way == "own maximum" else torch.maximum(most, own)
        shrink = (most - new).exp()
        weights = (part - new).exp()
        total = total * (1 if way in ("sum", "neither", "own maximum") else shrink) + weights.sum(-1, keepdim=True)
        summed = (
            summed * (1 if way in ("values", "neither", "own maximum") else shrink)
            + weights @ v[..., begin : begin + BLOCK, :]
        )
        most = new
    return summed / total


def small_tables(learner: Computed) -> Fault | None:
    """Check that no table of all queries by all keys is made."""
    told = f"{learner.squares} tensors of {T} queries by {T} keys are made; with blocks of {BLOCK}, none must be."
    return Fault(MADE_WHOLE, told) if learner.squares else None


BLOCKWISE_ATTENTION = Subject(
    lambda function: Computed(
        partial(called, function, {**dict(zip("qkv", QKV.clone(), strict=True)), "block": BLOCK}),
        [
            Choice("right"),
            Choice("neither", "sums kept as they were", NOT_RESCALED),
            Choice("own maximum", "each block's own maximum", NOT_RESCALED),
            Choice("values", "the sum of weights alone rescaled", NOT_RESCALED),
            Choice("sum", "the values alone rescaled", SUM_NOT_RESCALED),
            Choice("last", "full blocks alone", LAST_LOST),
        ],
        blocks,
    ),
    (
        EQUATION,
        Property("blocks", "It equals attention over all keys.", aspect("way"), ("equation",)),
        Property("table", "No table is wider than a block.", small_tables, ("equation",)),
    ),
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
EARLY = Mistake(
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


def returns(way: str) -> Tensor:
    """Return the returns-to-go under a reading."""
    if way == "together":
        return REWARDS.flip(0).cumsum(0).flip(0)
    if way == "start, together":
        return REWARDS.cumsum(0)
    halves = [each.cumsum(0) if way == "start" else each.flip(0).cumsum(0).flip(0) for each in REWARDS.split(3)]
    if way == "without now":
        return torch.cat(halves) - REWARDS
    if way == "end excluded":
        return torch.tensor([3.0, 2.0, 28.0, 24.0, 16.0, 32.0], dtype=torch.float64)
    return torch.cat(halves)


RETURNS_TO_GO = Subject(
    lambda function: Computed(
        partial(called, function, {"rewards": REWARDS.clone(), "ends": ENDS.clone()}),
        [
            Choice("right"),
            Choice("start", "sums from the start", FROM_START),
            Choice("start, together", "sums from the start", FROM_START),
            Choice("together", "one sum over both episodes", RUN_TOGETHER),
            Choice("end excluded", "the last step of an episode in the next one", RUN_TOGETHER),
        ],
        returns,
    ),
    (EQUATION, Property("returns", "Rewards from this step to the episode's end.", aspect("way"), ("equation",))),
)

STEPS = drawn(3, B, T, K)


def interleaved(way: str) -> Tensor:
    """Return the three sequences as one under a reading."""
    r, s, a = STEPS
    order = {"early": (r, a, s), "first": (a, r, s)}.get(way, (r, s, a))
    return torch.cat(order, 1) if way == "blocks" else torch.stack(order, 2).flatten(1, 2)


INTERLEAVE = Subject(
    lambda function: Computed(
        partial(called, function, dict(zip(("returns", "states", "actions"), STEPS.clone(), strict=True))),
        [
            Choice("right"),
            Choice("early", "return, action, state", EARLY),
            Choice("first", "action, return, state", EARLY),
            Choice("blocks", "one after another", IN_BLOCKS),
        ],
        interleaved,
    ),
    (EQUATION, Property("steps", "Return, state, action; then those of the next step.", aspect("way"), ("equation",))),
)
