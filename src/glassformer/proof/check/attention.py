"""Tests a learner's attention: the function of q, k, v and mask; biased, windowed, linear and in blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from glassformer.base.shapes import Tensor
from glassformer.nn.attention import attention_weights
from glassformer.nn.mask import Mask
from glassformer.proof.check.calling import (
    FUTURE,
    TOLERANCE,
    Choice,
    Computed,
    Reading,
    aspect,
    called,
    distance,
    drawn,
    itself,
    mask_argument,
    one_of,
    read,
    refuse_unlike,
    repeated,
    shaped,
)
from glassformer.proof.check.mask import BATCH, HEADS, INVERTED, MASKING, NUMBERS, WIDTH, Attending, Masking, T
from glassformer.proof.check.property import (
    CrashError,
    Fault,
    Mistake,
    NotTestedError,
    Property,
    Subject,
    ask,
    crash_of,
    law,
)

NO_SCALE = Mistake(
    "the scale is missing",
    "The scores go into the softmax undivided, so the wider a head is, the sharper its softmax.",
    "Look at the denominator in equation 1 of Vaswani et al. 2017.",
)
MODEL_SCALE = Mistake(
    "the scale uses d_model instead of d_head",
    "The scores are divided by the root of the whole width, though each is a sum over the width of one head.",
    "How many products are added up to make one score?",
)
TWICE = Mistake(
    "the scale is applied twice",
    "The scores are divided by d_head, not by its root: two divisions by the root, or a forgotten root.",
    "Search for every place that divides, and for the root.",
)
MULTIPLIED = Mistake(
    "the scores are multiplied by the scale instead of divided",
    "The root of d_head stands on the wrong side of the fraction.",
    "Should wider heads make the scores larger or smaller?",
)
OTHER_SCALE = Mistake(
    "the scale is the root of another length",
    "The scores are divided by the root of a size that is not the width of a head.",
    "Print the number that you divide by, for inputs whose sizes all differ.",
)


def scales(K: int, others: dict[str, int], set_to: float | None = None) -> list[Choice]:
    """Return the factors that scores may have.

    `others` are sizes that may be mistaken for K; 1/√K is right unless set.
    """
    usual = Choice(K**-0.5, f"scores times {K**-0.5:.4g} = 1/√{K}")
    right = usual if set_to is None else Choice(set_to, f"scores times {set_to:.4g}, as set")
    wrong = [
        (1.0, "scores times 1", NO_SCALE),
        (1.0 / K, f"scores times {1 / K:.4g} = 1/{K}", TWICE),
        (K**0.5, f"scores times {K**0.5:.4g} = √{K}", MULTIPLIED),
        (float(K), f"scores times {K}", MULTIPLIED),
    ]
    for name, size in others.items():
        mistake = MODEL_SCALE if name == "d_model" else OTHER_SCALE
        wrong.append((size**-0.5, f"scores times {size**-0.5:.4g} = 1/√{size} ({name})", mistake))
        wrong.append((1.0 / size, f"scores times {1 / size:.4g} = 1/{size} ({name})", mistake))
    return [right, *(Choice(*each) for each in wrong)]


def wrong_axis(over: str) -> Mistake:
    """Return the mistake that the softmax runs over another axis than the keys."""
    return Mistake(
        f"the softmax runs over the {over}",
        f"The weights sum to 1 over the {over}, not over the keys that one query reads.",
        "Which axis of the scores must sum to 1 for one query? Check the axis that softmax is given.",
    )


NO_SOFTMAX = Mistake(
    "the softmax is missing",
    "The scores themselves are used as weights; they may be negative, and no row sums to 1.",
    "What turns scores into weights that sum to 1?",
)
SIGMOID = Mistake(
    "a sigmoid stands in place of the softmax",
    "Each score is squashed on its own, so the weights of a query do not sum to 1.",
    "What turns scores into weights that sum to 1?",
)

SOFTMAX = [
    Choice(-1, "the softmax over keys"),
    Choice(-2, "the softmax over queries", wrong_axis("queries")),
    Choice(-3, "the softmax over heads", wrong_axis("heads")),
    Choice(-4, "the softmax over the batch", wrong_axis("batch")),
    Choice("none", "scores as weights", NO_SOFTMAX),
    Choice("sigmoid", "sigmoid(score) as weight", SIGMOID),
]

SWAPPED = Mistake(
    "query and key are swapped",
    "Scores are taken from the key's side: row t of the weights belongs to key t, not to query t.",
    "In the matrix of scores, which of the two must the rows stand for?",
)
NO_VALUES = Mistake(
    "the values are not used",
    "The weights are applied to another tensor than the values.",
    "Follow each of the three inputs from the top to the bottom: is each used, once?",
)
NO_KEYS = Mistake(
    "the keys are not compared with the queries",
    "The scores are made of one of the two alone.",
    "Follow each of the three inputs from the top to the bottom: is each used, once?",
)

PARTS = [
    Choice("qkv"),
    Choice("kqv", "query and key swapped", SWAPPED),
    Choice("qkk", "the keys in place of the values", NO_VALUES),
    Choice("qkq", "the queries in place of the values", NO_VALUES),
    Choice("qvk", "key and value swapped", NO_VALUES),
    Choice("vkq", "query and value swapped", NO_VALUES),
    Choice("qqv", "scores of queries with queries", NO_KEYS),
    Choice("kkv", "scores of keys with keys", NO_KEYS),
]
"""Which tensors are compared, and which one is averaged."""


def normalise(scores: Tensor, how: int | str) -> Tensor:
    """Turn scores into weights."""
    if how == "sigmoid":
        return scores.sigmoid()
    return scores if isinstance(how, str) else scores.softmax(how)


def mixed(
    qkv: dict[str, Tensor],
    *,
    parts: str = "qkv",
    scale: float,
    softmax: int | str = -1,
    mask: Tensor | None = None,
    masking: Masking | None = None,
) -> Tensor:
    """Return the output [B, H, T, K] under a reading. For the documented reading it uses our reference."""
    q, k, v = (qkv[each] for each in parts)
    if mask is None and softmax == -1:
        return attention_weights(q, k, Mask(), scale=scale) @ v
    scores = q @ k.mT * scale
    if mask is None or masking is None:
        return normalise(scores, softmax) @ v
    return masking(scores, mask, lambda masked: normalise(masked, softmax)) @ v


SHAPE = Mistake(
    "the output has the wrong shape",
    "There must be one vector of the values' width for each query.",
    "Write the shape beside each line, for sizes that all differ.",
)
UNKNOWN = Mistake(
    "the output is not that of the equation",
    "The numbers differ, and no mistake known here explains them.",
    "Compute scores, weights and output for two tokens by hand, and print each step of yours beside them.",
)
LENGTHS = Mistake(
    "it needs equal numbers of queries and keys",
    "It fails or differs when there are more keys than queries, as in cross-attention and in cached decoding.",
    "Which of your sizes do you take from q although they belong to k?",
)
WEIGHTS = Mistake(
    "the weights returned are not those used",
    "The second value returned, applied to v, does not give the output.",
    "At which step is the tensor that you return: before the softmax, or after it?",
)


def first(answer: Any) -> Any:
    """Return the output from an answer that may be (output, weights)."""
    return answer[0] if isinstance(answer, tuple | list) and len(answer) else answer  # pyright: ignore[reportUnknownVariableType]


class Function(Attending):
    """The learner's function with fixed inputs, which have a heads axis unless the function takes only three axes."""

    laws = "shape repeatable equation parts softmax scale lengths weights " + MASKING

    def __init__(self, function: Callable[..., Any]) -> None:
        refuse_unlike(function, "q", "k", "v")
        self.function = function
        self.mask = mask_argument(function, 3)
        self.takes_mask = self.mask is not None
        draw = torch.Generator().manual_seed(1)
        self.qkv = {each: torch.randn(BATCH, HEADS, T, WIDTH, generator=draw, dtype=torch.float64) for each in "qkv"}
        try:
            ask(function, *self.qkv.values())
        except CrashError:
            self.qkv = {each: x[:, 0] for each, x in self.qkv.items()}
        self.seen: Any = self.call(self.qkv)
        self.reading = self._read()

    def call(self, qkv: dict[str, Tensor], mask: Tensor | None = None) -> Any:
        """Return the learner's output."""
        if mask is None or self.mask is None:
            return first(ask(self.function, *qkv.values()))
        flat = mask.ndim == 4 and qkv["q"].ndim == 3
        named = {self.mask: mask[:, 0] if flat else mask}
        return first(ask(lambda: self.function(*qkv.values(), **named)))

    def _read(self) -> Reading | None:
        if not isinstance(self.seen, Tensor):
            return None
        sizes = {"length": T, "heads": HEADS, "batch": BATCH}
        if self.qkv["q"].ndim == 4:
            sizes = {"d_model": HEADS * WIDTH, **sizes}
        axes = [each for each in SOFTMAX if each.value != -4 or self.qkv["q"].ndim == 4]
        if self.qkv["q"].ndim == 3:
            axes = [each for each in axes if each.value != -3]
        aspects = {"parts": PARTS, "softmax": axes, "scale": scales(WIDTH, sizes)}
        return read(self.seen, aspects, partial(self.mixed, self.qkv))

    def mixed(self, qkv: dict[str, Tensor], **chosen: Any) -> Tensor:
        """Like the module's `mixed`, but also for inputs with three axes."""
        flat = qkv["q"].ndim == 3
        mask = chosen.get("mask")
        if flat and mask is not None and mask.ndim == 4:
            chosen["mask"] = mask[:, 0]
        if flat and "mask" not in chosen and chosen.get("softmax", -1) == -1:
            return mixed({each: x[:, None] for each, x in qkv.items()}, **chosen)[:, 0]
        return mixed(qkv, **chosen)

    def answer(self, mask: Tensor | None) -> Tensor:
        """Return the output for the fixed inputs."""
        return self.call(self.qkv, mask)

    def predicted(self, mask: Tensor, masking: Masking) -> Tensor:
        """Return the output predicted by the reading."""
        chosen = {name: each.value for name, each in self.reading.choices.items()} if self.reading else {}
        return self.mixed(self.qkv, **chosen, mask=mask, masking=masking)

    def leak(self, level: float) -> float:
        """Return the output for queries aligned with the hidden keys and opposed to key 1, the only allowed one.

        The values are 1 at hidden keys and 0 at key 1, so the output is the weight on hidden keys.
        """
        shape = self.qkv["q"].shape
        size = (level * WIDTH**-0.5) ** 0.5
        ones = torch.full(shape, size, dtype=torch.float64)
        k, v = ones.clone(), torch.ones_like(ones)
        k[..., 1, :], v[..., 1, :] = -size, 0.0
        mask = torch.zeros(T, T, dtype=torch.bool)
        mask[:, 1] = True
        return self.call({"q": ones, "k": k, "v": v}, mask).abs().max().item()

    def slopes(self, mask: Tensor) -> list[Tensor]:
        """Return the gradients with respect to q, k and v."""
        leaves = {each: x.clone().requires_grad_() for each, x in self.qkv.items()}
        loss = self.call(leaves, mask).square().sum()
        return [*torch.autograd.grad(loss, [*leaves.values()], materialize_grads=True)]

    def in_half(self, mask: Tensor) -> Tensor:
        """Return the output in float16."""
        return self.call({each: x.half() for each, x in self.qkv.items()}, mask)

    @law("There is one vector for each query.")
    def shape(self) -> Fault | None:
        return shaped(self.seen, (*self.qkv["q"].shape,), SHAPE, ", for q, k and v of that shape")

    repeatable = replace(repeated(lambda learner: learner.answer(None)), law="The same input gives the same output.")

    @law("The output is softmax(q kᵀ / √d_head) v.", "shape", "repeatable")
    def equation(self) -> Fault | None:
        if self.reading is not None:
            return None
        gap = distance(self.seen, self.mixed(self.qkv, scale=WIDTH**-0.5))
        return Fault(UNKNOWN, f"The largest difference is {gap:.2g}.")

    parts = aspect("parts", "Queries are compared with keys, values are averaged.")
    softmax = aspect("softmax", "The weights of a query sum to 1 over the keys.")
    scale = aspect("scale", "Scores are divided by √d_head.")

    @law("There may be more keys than queries.", "parts", "softmax", "scale")
    def lengths(self) -> Fault | None:
        fewer = {**self.qkv, "q": self.qkv["q"][..., :4, :]}
        try:
            seen = self.call(fewer)
        except CrashError as crash:
            return Fault(LENGTHS, f"With 4 queries and {T} keys: {crash_of(crash)}")
        gap = distance(seen, self.mixed(fewer, scale=WIDTH**-0.5))
        return Fault(LENGTHS, f"With 4 queries and {T} keys the output is {gap:.2g} off.") if gap > TOLERANCE else None

    @law("The weights returned are those used.", "parts")
    def weights(self) -> Fault | None:
        answer = ask(self.function, *self.qkv.values())
        weights: Any = answer[1] if isinstance(answer, tuple | list) and len(answer) > 1 else None
        if not isinstance(weights, Tensor):
            raise NotTestedError("it returns no weights")
        try:
            gap = distance(weights @ self.qkv["v"], self.seen)
        except RuntimeError:
            gap = float("inf")
        return Fault(WEIGHTS, f"Weights times values differ from the output by {gap:.2g}.") if gap > TOLERANCE else None


# --- biases and windows

B, H, N, K, BLOCK, WINDOW = 2, 4, 7, 5, 3, 3
QKV = drawn(3, B, H, N, K)


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
LOWER = torch.ones(N, N).tril().double()


def alibi(slopes: Tensor) -> Tensor:
    """Return the bias that these slopes give at keys that a causal mask leaves."""
    away = (torch.arange(N)[None] - torch.arange(N)[:, None]).double()
    return slopes[:, None, None] * away * LOWER


HEAD = torch.arange(1, H + 1).double()
BIASES = [
    Choice(alibi(2 ** (-8 * HEAD / H))),
    Choice(alibi(-(2 ** (-8 * HEAD / H))), "the other sign", FAR),
    Choice(alibi(HEAD / H), "slopes 1/H, 2/H, ...", LINEAR_SLOPES),
    Choice(alibi((H + 1 - HEAD) / H), "slopes 1, 1 - 1/H, ...", LINEAR_SLOPES),
    Choice(alibi(HEAD * 2 ** (-8 / H)), "slopes in even steps", LINEAR_SLOPES),
]
ALIBI = one_of(
    "bias",
    "Head h loses 2^(-8h/H) a step of distance.",
    lambda function: called(function, {"n_heads": H, "length": N}).double() * LOWER,
    BIASES,
    loose=True,
)


BACK = torch.arange(N)[:, None] - torch.arange(N)[None]
WINDOWS = [
    Choice(((BACK >= 0) & (BACK < WINDOW)).double()),
    Choice(((BACK >= 0) & (BACK <= WINDOW)).double(), "window + 1 keys", ONE_MORE),
    Choice((BACK.abs() < WINDOW).double(), "keys on both sides", FUTURE),
    Choice((BACK.abs() <= WINDOW).double(), "keys on both sides", FUTURE),
    Choice(((BACK < 0) | (BACK >= WINDOW)).double(), "True as 'hide'", INVERTED),
]


class Windowed(Computed):
    """The learner's `window_mask`, compared as numbers."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.raw = called(function, {"length": N, "window": WINDOW})
        seen = self.raw.double() if isinstance(self.raw, Tensor) else self.raw
        super().__init__(seen, {"way": WINDOWS}, itself, loose=True)

    @law("It holds True and False.", "equation")
    def boolean(self) -> Fault | None:
        return None if self.raw.dtype == torch.bool else Fault(NUMBERS, f"It is {self.raw.dtype}.")

    window = aspect("way", "A query reads itself and the window - 1 keys before it.", name="window")


# --- linear attention


class Squares(TorchFunctionMode):
    """Counts the whole tables of scores, with the axis of length N twice, that torch makes while the context lasts."""

    found = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call the function, and count its result."""
        answer = func(*args, **(kwargs or {}))
        self.found += isinstance(answer, Tensor) and [*answer.shape].count(N) > 1
        return answer


class Tabled(Computed):
    """A learner's function of q, k and v, called once while whole tables of scores are counted."""

    def __init__(self, function: Callable[..., Any], ways: list[Choice], **more: int) -> None:
        with Squares() as squares:
            seen = called(function, {**dict(zip("qkv", QKV.clone(), strict=True)), **more})
        self.squares = squares.found
        super().__init__(seen, {"way": ways}, itself, loose=True)


def no_table(law: str, mistake: Mistake) -> Property:
    """Return the property that no tensor has the length twice."""
    evidence = f"tensors of {N} queries by {N} keys are made."

    def probe(learner: Tabled) -> Fault | None:
        return Fault(mistake, f"{learner.squares} {evidence}") if learner.squares else None

    return Property("table", law, probe, ("equation",))


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


def linear(q: Tensor, k: Tensor, kept: Tensor = LOWER, divided: bool = True) -> Tensor:
    """Return the output for these features of queries and keys; each query reads the keys that are kept."""
    weights = q @ k.mT * kept
    return (weights / weights.sum(-1, keepdim=True) if divided else weights) @ QKV[2]


Q, K_, _ = QKV
ELU = torch.nn.functional.elu
LINEAR = [
    Choice(linear(ELU(Q) + 1, ELU(K_) + 1)),
    Choice(linear(ELU(Q) + 1, ELU(K_) + 1, divided=False), "no division", NOT_ONE),
    Choice(linear(ELU(Q) + 1, ELU(K_) + 1, torch.ones(N, N).double()), "a sum over all keys", FUTURE),
    Choice(linear(Q.exp(), K_.exp()), "other features (exp)", OTHER_FEATURES),
    Choice(linear(ELU(Q), ELU(K_)), "other features (elu)", OTHER_FEATURES),
    Choice(linear(Q, ELU(K_) + 1), "other features (keys only)", OTHER_FEATURES),
]
LINEAR_ATTENTION = Subject(
    lambda function: Tabled(function, LINEAR),
    (
        Computed.equation,
        aspect("way", "Causal, with the features elu(x) + 1.", name="linear"),
        no_table("No table of scores is made.", WHOLE_TABLE),
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


def blocks(values: bool = True, weights: bool = True, own: bool = False, keys: int = N) -> Tensor:
    """Return the output in blocks over so many keys, where the old values and sum of weights are rescaled or not.

    `own`: a block subtracts its own maximum, not the largest so far.
    """
    q, k, v = QKV
    scores = q @ k.mT * K**-0.5
    most = torch.full((B, H, N, 1), float("-inf"), dtype=torch.float64)
    total, summed = torch.zeros(B, H, N, 1, dtype=torch.float64), torch.zeros(B, H, N, K, dtype=torch.float64)
    for begin in range(0, keys, BLOCK):
        part = scores[..., begin : begin + BLOCK]
        new = part.amax(-1, keepdim=True) if own else torch.maximum(most, part.amax(-1, keepdim=True))
        shrink, now = (most - new).exp(), (part - new).exp()
        total = total * (shrink if weights else 1) + now.sum(-1, keepdim=True)
        summed = summed * (shrink if values else 1) + now @ v[..., begin : begin + BLOCK, :]
        most = new
    return summed / total


BLOCKS = [
    Choice(blocks()),
    Choice(blocks(values=False, weights=False), "sums kept as they were", NOT_RESCALED),
    Choice(blocks(values=False, weights=False, own=True), "each block's own maximum", NOT_RESCALED),
    Choice(blocks(values=False), "the sum of weights alone rescaled", NOT_RESCALED),
    Choice(blocks(weights=False), "the values alone rescaled", SUM_NOT_RESCALED),
    Choice(blocks(keys=N - N % BLOCK), "full blocks alone", LAST_LOST),
]
BLOCKWISE_ATTENTION = Subject(
    lambda function: Tabled(function, BLOCKS, block=BLOCK),
    (
        Computed.equation,
        aspect("way", "It equals attention over all keys.", name="blocks"),
        no_table("No table is wider than a block.", MADE_WHOLE),
    ),
)
