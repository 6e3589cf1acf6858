"""Splitting vectors into heads and merging them back: right, and with mistakes that mix heads or positions."""

from __future__ import annotations

from itertools import permutations

from glassformer.base.shapes import Tensor
from glassformer.proof.check.mask import HEADS, WIDTH
from glassformer.proof.check.reading import Choice
from glassformer.proof.check.table import Mistake

SPLIT = Mistake(
    "heads are mixed: they are split without a transpose",
    "[B, T, D] is reshaped straight to [B, H, T, K], so that a head holds pieces of different positions.",
    "A reshape never moves numbers in memory. Which axis must a position's numbers be cut along?",
)
ACROSS = Mistake(
    "attention runs across the heads instead of the positions",
    "The heads stand where the positions should, so each position attends among its own heads.",
    "What is the size of your scores? It should grow with the length of the sequence.",
)
MERGE = Mistake(
    "heads are mixed: they are merged without a transpose",
    "[B, H, T, K] is reshaped straight to [B, T, D], so that a position gets pieces of other positions.",
    "A reshape never moves numbers in memory. What must happen first so that one position's heads are neighbours?",
)
ROLES = Mistake(
    "query, key and value are confused",
    "The maps are not used as they are called: what the query map gives is not used as the query.",
    "Follow each projection by its name, from the map to the place where it is used.",
)


def split(x: Tensor, how: str) -> Tensor:
    """Reshape [B, T, D] to [B, H, T, K]."""
    B, T, _ = x.shape
    if how == "reshaped":
        return x.reshape(B, HEADS, T, WIDTH)
    if how == "across":
        return x.reshape(B, T, HEADS, WIDTH)
    if how == "strided":
        return x.reshape(B, T, WIDTH, HEADS).permute(0, 3, 1, 2)
    return x.reshape(B, T, HEADS, WIDTH).transpose(1, 2)


def merge(x: Tensor, how: str, T: int) -> Tensor:
    """Reshape [B, H, T, K] to [B, T, D]."""
    if how == "reshaped":
        return x.reshape(x.shape[0], T, HEADS * WIDTH)
    if how == "strided":
        return x.permute(0, 2, 3, 1).reshape(x.shape[0], T, HEADS * WIDTH)
    return x.transpose(1, 2).reshape(x.shape[0], T, HEADS * WIDTH)


def unfuse(x: Tensor, layout: str) -> list[Tensor]:
    """Split the output of a fused projection into query, key and value, each [B, T, D]. Any layout is right."""
    B, T, D = x.shape
    if layout == "by head":  # each head holds its query, key and value
        return [each.reshape(B, T, D // 3) for each in x.reshape(B, T, HEADS, 3 * WIDTH).chunk(3, -1)]
    if layout == "by number":
        return [each.reshape(B, T, D // 3) for each in x.reshape(B, T, HEADS, WIDTH, 3).unbind(-1)]
    return [*x.chunk(3, -1)]


def split_choices() -> list[Choice]:
    """Return ways to split heads.

    "strided" takes every H-th number: a fixed reordering of the map's rows, so it is right too.
    """
    return [
        Choice("right", "heads split as documented"),
        Choice("strided", "heads of every H-th number"),
        Choice("reshaped", "a reshape to [B, H, T, K]", SPLIT),
        Choice("across", "scores between heads", ACROSS),
    ]


def merge_choices() -> list[Choice]:
    """Return ways to merge."""
    return [
        Choice("right", "heads merged as documented"),
        Choice("strided", "heads of every H-th number"),
        Choice("reshaped", "a reshape from [B, H, T, K]", MERGE),
    ]


def order_choices(named: bool) -> list[Choice]:
    """Return which projection may be q, k and v. Any order is right if no names say otherwise."""
    orders = ["".join(each) for each in permutations("qkv")]
    wrong = ROLES if named else None
    return [Choice(each, f"the maps in the order {each}", None if each == "qkv" else wrong) for each in orders]


def layout_choices(fused: bool) -> list[Choice]:
    """Return the ways to split a fused projection."""
    return [Choice(each) for each in (("thirds", "by head", "by number") if fused else ("none",))]
