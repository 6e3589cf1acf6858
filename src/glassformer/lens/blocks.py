"""The place of a head (the kind of its block, its layer, its number) and its short name."""

from __future__ import annotations

from glassformer.base.errors import ConfigError

LETTERS = {"encoder": "e", "decoder": "d", "cross": "x"}
"""The kinds of attention, and the letters with which their heads' short names begin."""


def place(name: str) -> tuple[str, int]:
    """Return kind ("encoder", "decoder" or "cross") and layer, from 0, of an attention by its name in `observe`.

    Errors: `ConfigError` for a name that no attention can have.

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
                f"An attention has the name that observe() gives it; got {name!r}. "
                "Try 'decoder.blocks.0.cross_attention'."
            )


def head_id(block: str, layer: int, head: int) -> str:
    """Return the short name of a head: e.L.H (encoder), d.L.H (decoder) or x.L.H (cross), all counted from 0.

    >>> head_id("cross", 1, 3)
    'x.1.3'
    """
    return f"{LETTERS[block]}.{layer}.{head}"
