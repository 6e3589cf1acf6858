"""What an attention is called: by the block that it stands in, and its heads by (block, layer, head)."""

from __future__ import annotations

BLOCKS = {"encoder": "e", "decoder": "d", "cross": "x"}
"""The three kinds of attention, and the letter that the ids of their heads begin with."""


def place(name: str) -> tuple[str, int]:
    """("encoder" | "decoder" | "cross", layer) of a module as `observe` names it; layers count from 0.

    >>> place("decoder.blocks.1.cross_attention")
    ('cross', 1)
    """
    stack, _, layer, kind = name.split(".")
    return "cross" if kind == "cross_attention" else stack, int(layer)


def head_id(block: str, layer: int, head: int) -> str:
    """The id of a head, as `x.1.3`; layers and heads count from 0."""
    return f"{BLOCKS[block]}.{layer}.{head}"
