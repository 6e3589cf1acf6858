"""Where a head stands: the kind of its block, its layer, its number; and its short name."""

from __future__ import annotations

from glassformer.foundation.errors import ConfigError

LETTERS = {"encoder": "e", "decoder": "d", "cross": "x"}
"""The kinds of attention that there are, and how a head's name begins."""


def place(name: str) -> tuple[str, int]:
    """Kind ("encoder", "decoder" or "cross") and layer, from 0, of an attention that `observe` names.

    Errors: `ConfigError` for a name that no attention of a model has.

    >>> place("decoder.blocks.1.cross_attention")
    ('cross', 1)
    """
    match name.split("."):
        case [("encoder" | "decoder") as stack, "blocks", layer, "self_attention"] if layer.isdecimal():
            return stack, int(layer)
        case ["decoder", "blocks", layer, "cross_attention"] if layer.isdecimal():
            return "cross", int(layer)
        case _:
            raise ConfigError(
                f"An attention is named as observe() does it; got {name!r}. Try 'decoder.blocks.0.cross_attention'."
            )


def head_id(block: str, layer: int, head: int) -> str:
    """The short name of a head, all counted from 0: e.L.H of an encoder, d.L.H of a decoder, x.L.H across.

    >>> head_id("cross", 1, 3)
    'x.1.3'
    """
    return f"{LETTERS[block]}.{layer}.{head}"
