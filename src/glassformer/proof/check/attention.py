"""Tests a learner's `attention(q, k, v, mask=None)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from glassformer.base.shapes import Tensor
from glassformer.proof.check.equation import PARTS, SOFTMAX, Masking, mixed, scales
from glassformer.proof.check.mask import BATCH, HEADS, WIDTH, Attending, T, mask_properties
from glassformer.proof.check.reading import Reading, aspect, distance, read
from glassformer.proof.check.table import (
    CrashError,
    Fault,
    Mistake,
    NotTestedError,
    Property,
    SignatureError,
    Subject,
    ask,
    crash_of,
)

SHAPE = Mistake(
    "the output has the wrong shape",
    "There must be one vector of the values' width for each query.",
    "Write the shape beside each line, for sizes that all differ.",
)
RANDOM = Mistake(
    "dropout is active in evaluation",
    "Two calls with the same input give different output: something random runs although nothing is trained.",
    "Who tells your dropout whether the model is training?",
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


def accepts(function: Callable[..., Any], *names: str) -> bool:
    """Whether `function` can be called with this many positional arguments."""
    try:
        inspect.signature(function).bind(*names)
    except TypeError:
        return False
    return True


def first(answer: Any) -> Any:
    """Return the output from an answer that may be (output, weights)."""
    return answer[0] if isinstance(answer, tuple | list) and len(answer) else answer  # pyright: ignore[reportUnknownVariableType]


class Function(Attending):
    """The learner's function with fixed inputs, which have a heads axis unless the function takes only three axes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        if not accepts(function, "q", "k", "v"):
            raise SignatureError(str(inspect.signature(function)))
        self.function = function
        self.takes_mask = accepts(function, "q", "k", "v", "mask")
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
        inputs = [*qkv.values()]
        if mask is not None:
            inputs.append(mask[:, 0] if mask.ndim == 4 and inputs[0].ndim == 3 else mask)
        return first(ask(self.function, *inputs))

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
        return [
            *torch.autograd.grad(self.call(leaves, mask).square().sum(), [*leaves.values()], materialize_grads=True)
        ]

    def in_half(self, mask: Tensor) -> Tensor:
        """Return the output in float16."""
        return self.call({each: x.half() for each, x in self.qkv.items()}, mask)


def shape(learner: Function) -> Fault | None:
    """Check that there is one vector for each query."""
    wanted = tuple(learner.qkv["q"].shape)
    if not isinstance(learner.seen, Tensor):
        return Fault(SHAPE, f"It returns {type(learner.seen).__name__}, not a tensor of shape {wanted}.")
    got = tuple(learner.seen.shape)
    return None if got == wanted else Fault(SHAPE, f"It is {got} and must be {wanted}, for q, k and v of that shape.")


def repeatable(learner: Function) -> Fault | None:
    """Check that the same input gives the same output."""
    gap = max(distance(learner.answer(None), learner.seen) for _ in range(4))
    return Fault(RANDOM, f"Five calls with the same input differ by up to {gap:.2g}.") if gap > 0 else None


def equation(learner: Function) -> Fault | None:
    """Check that the output is that of the equation, or of a known mistake."""
    if learner.reading is not None:
        return None
    gap = distance(learner.seen, learner.mixed(learner.qkv, scale=WIDTH**-0.5))
    return Fault(UNKNOWN, f"The largest difference is {gap:.2g}.")


def lengths(learner: Function) -> Fault | None:
    """Check that there may be fewer queries than keys."""
    fewer = {**learner.qkv, "q": learner.qkv["q"][..., :4, :]}
    try:
        seen = learner.call(fewer)
    except CrashError as crash:
        return Fault(LENGTHS, f"With 4 queries and {T} keys: {crash_of(crash)}")
    gap = distance(seen, learner.mixed(fewer, scale=WIDTH**-0.5))
    return Fault(LENGTHS, f"With 4 queries and {T} keys the output is {gap:.2g} off.") if gap > 1e-7 else None


def returned(learner: Function) -> Fault | None:
    """Check that the returned weights are those that produced the output."""
    answer = ask(learner.function, *learner.qkv.values())
    weights: Any = answer[1] if isinstance(answer, tuple | list) and len(answer) > 1 else None
    if not isinstance(weights, Tensor):
        raise NotTestedError("it returns no weights")
    try:
        gap = distance(weights @ learner.qkv["v"], learner.seen)
    except RuntimeError:
        gap = float("inf")
    return Fault(WEIGHTS, f"Weights times values differ from the output by {gap:.2g}.") if gap > 1e-7 else None


ATTENTION = Subject(
    Function,
    (
        Property("shape", "There is one vector for each query.", shape),
        Property("repeatable", "The same input gives the same output.", repeatable, ("shape",)),
        Property("equation", "The output is softmax(q kᵀ / √d_head) v.", equation, ("shape", "repeatable")),
        Property("parts", "Queries are compared with keys, values are averaged.", aspect("parts"), ("equation",)),
        Property("softmax", "The weights of a query sum to 1 over the keys.", aspect("softmax"), ("equation",)),
        Property("scale", "Scores are divided by √d_head.", aspect("scale"), ("equation",)),
        Property("lengths", "There may be more keys than queries.", lengths, ("parts", "softmax", "scale")),
        Property("weights", "The weights returned are those used.", returned, ("parts",)),
        *mask_properties(),
    ),
)
