"""Tests parts of the five tutorial notebooks on their own: attention and the feed-forward branch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn

from glassformer.base.shapes import Bool, Float
from glassformer.nn.attention import Attention
from glassformer.nn.block import Block
from glassformer.nn.mask import Mask
from glassformer.nn.rules import ATTEND
from glassformer.nn.stack import build_block
from glassformer.proof.laws.law import Law, Setting, apart
from glassformer.proof.laws.notebooks import B, D, F, H, S, T, carry_over, compared, notebook
from glassformer.proof.laws.specimens import normal, scramble, stack
from glassformer.store.rename import Table

SPLIT: Table = [(rf"^{ours}\b", f"W_{ours[0]}") for ours in ("query", "key", "value", "output")]
ATTENTIONS: dict[str, tuple[str, Table, str | None]] = {
    "000": ("MultiHeadSelfAttention", SPLIT, None),
    "001": ("MultiHeadAttention", [("^output", "out")], "qkv."),
    "002": ("MultiHeadAttention", SPLIT, None),
    "003": ("MultiHeadSelfAttention", [("^output", "out_proj")], "qkv_proj."),
    "004": ("MultiHeadAttention", SPLIT, None),
}
"""Class, parameter names, and the prefix of the fused projections (None if they are separate)."""
LINEAR: Table = [("^up", "linear1"), ("^down", "linear2")]
FEED_FORWARDS: dict[str, tuple[str, Table, str]] = {
    "000": ("PositionwiseFFN", [("^up", "fc1"), ("^down", "fc2")], "relu"),
    "001": ("FeedForward", [("^up", "net.0"), ("^down", "net.2")], "relu"),
    "002": ("FeedForward", LINEAR, "gelu"),
    "003": ("PositionwiseFeedForward", LINEAR, "relu"),
    "004": ("FeedForward", LINEAR, "relu"),
}
"""Class, parameter names and activation."""


def attentions(setting: Setting) -> Iterator[float]:
    """Separate and fused projections: unmasked, causal with padding, and reading a memory; also 001's single head."""
    x, memory = normal(setting, B, T, D), normal(setting, B, S, D)
    keep = torch.ones(B, T, dtype=torch.bool, device=setting.device)
    keep[1, 3:] = False
    readable = torch.ones(T, T, dtype=torch.bool, device=setting.device).tril() & keep[:, None, None, :]
    for number, (_, names, fused) in ATTENTIONS.items():
        ours, theirs = pair(setting, number)
        yield compared(ours(x, mask=Mask()), ours, read(number, theirs, x), theirs, names, fused)
        if number == "001":
            continue  # this attention takes no mask
        answer = ours(x, mask=Mask(causal=True, keep=keep))
        yield compared(answer, ours, read(number, theirs, x, readable), theirs, names, fused)
    ours, theirs = pair(setting, "004")
    expected = theirs(x, memory, memory, keep[:, None, None, :S])[0]
    answer = ours(x, mask=Mask(keep=keep[:, :S]), source=memory)
    yield compared(answer, ours, expected, theirs, SPLIT)
    yield from one_head(setting)


def one_head(setting: Setting) -> Iterator[float]:
    """001's attention function, and its single-head attention."""
    q, k, v = (normal(setting, B, T, D) for _ in range(3))
    equation = cast(Any, notebook(setting, "001")["scaled_dot_product_attention"])
    answer = ATTEND["softmax"]["reference"](q[:, None], k[:, None], v[:, None], Mask(), scale=D**-0.5)
    yield apart(answer[:, 0], equation(q, k, v))
    module = notebook(setting, "001")["SelfAttention"](D)
    ours = scramble(Attention(D, 1, ATTEND["softmax"]["auto"]), setting)
    names: Table = [("^output", "out")]
    carry_over(setting, ours, module, names, "qkv.")
    yield compared(ours(q, mask=Mask()), ours, module(q), module, names, "qkv.")


def pair(setting: Setting, number: str) -> tuple[Attention, nn.Module]:
    """Return our attention and a notebook's, with the same weights."""
    kind, names, fused = ATTENTIONS[number]
    ours = scramble(Attention(D, H, ATTEND["softmax"]["auto"]), setting)
    theirs = notebook(setting, number)[kind](D, H)
    carry_over(setting, ours, theirs, names, fused)
    return ours, theirs


def read(
    number: str, theirs: nn.Module, x: Float[Tensor, "B T D"], readable: Bool[Tensor, "B 1 #T T"] | None = None
) -> Float[Tensor, "B T D"]:
    """Return the output of a notebook's attention for x. 004's takes x three times and also returns its weights."""
    if number == "004":
        return theirs(x, x, x, readable)[0]
    return theirs(x) if readable is None else theirs(x, readable)


def feed_forwards(setting: Setting) -> Iterator[float]:
    """The feed-forward branch, with relu and with gelu."""
    for number, (kind, names, activation) in FEED_FORWARDS.items():
        theirs = notebook(setting, number)[kind](D, F)
        block = build_block(stack(activation=activation), reads_memory=False)
        assert isinstance(block, Block)
        ours = scramble(block.feed_forward.branch, setting)
        carry_over(setting, ours, theirs, names)
        x = normal(setting, B, T, D)
        yield compared(ours(x), ours, theirs(x), theirs, names)


LAWS = [
    Law("notebooks", "000-004: attention, split and fused projections", attentions),
    Law("notebooks", "000-004: the feed-forward branch", feed_forwards),
]
