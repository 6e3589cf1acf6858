"""Records what the linear maps and norms of a learner's module receive and return, and identifies the maps."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import nn

from glassformer.base.shapes import Tensor


class Heard(NamedTuple):
    """One call of a submodule of the learner's module."""

    name: str
    module: nn.Module
    given: Tensor
    gave: Tensor

    @property
    def widths(self) -> tuple[int, int]:
        """The widths of input and output."""
        return self.given.shape[-1], self.gave.shape[-1]


def is_norm(module: nn.Module) -> bool:
    """Whether a module is a norm, judging by the name of its class."""
    return "norm" in type(module).__name__.lower() and not any(
        "norm" in type(m).__name__.lower() for m in module.children()
    )


@contextmanager
def listening(module: nn.Module) -> Generator[list[Heard]]:
    """Record, while the context lasts, every call of a linear map, a norm or torch's own attention, in order."""
    heard: list[Heard] = []
    hooks: list[Any] = []

    def hook(name: str) -> Any:
        def note(part: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], answer: Any) -> None:
            given = next((x for x in (*inputs, *named.values()) if isinstance(x, Tensor)), None)
            gave = answer[0] if isinstance(answer, tuple) else answer
            if given is not None and isinstance(gave, Tensor):
                heard.append(Heard(name, part, given.clone(), gave.clone()))  # later code may write in place

        return note

    for name, part in module.named_modules():
        if isinstance(part, nn.Linear | nn.MultiheadAttention) or is_norm(part):
            hooks.append(part.register_forward_hook(hook(name), with_kwargs=True))
    try:
        yield heard
    finally:
        for each in hooks:
            each.remove()


FILLER = re.compile(r"proj(ection)?s?|linear|lin|layer|dense|weights?|heads?|map|net|attn|fc|to_|_|\d|^w|w$")
ROLES = {
    "q": "q", "query": "q", "queries": "q",
    "k": "k", "key": "k", "keys": "k",
    "v": "v", "value": "v", "values": "v", "val": "v",
    "o": "o", "out": "o", "output": "o",
}  # fmt: skip


def role_of(name: str) -> str | None:
    """Return the role of a map by its name: `W_q`, `query`, `q_proj` and `to_q` are q.

    None if the name says nothing.
    """
    return ROLES.get(FILLER.sub("", name.rpartition(".")[2].lower()))


class Maps(NamedTuple):
    """The recorded linear maps of one attention."""

    projections: tuple[Heard, ...]
    """The maps for q, k and v, or one map for all three."""
    output: Heard | None
    named: bool
    """Whether q, k and v are known from names, and not just guessed from the order of the calls."""


def maps_of(heard: list[Heard], width: int) -> Maps | None:
    """Identify the calls. None if they are not those of one attention with q, k, v and output."""
    linear = [each for each in heard if isinstance(each.module, nn.Linear) and each.widths[0] == width]
    fused = [each for each in linear if each.widths[1] == 3 * width]
    square = [each for each in linear if each.widths[1] == width]
    if len(fused) == 1 and len(square) <= 1 and len(linear) == 1 + len(square):
        return Maps((fused[0],), square[0] if square else None, False)
    if fused or len(linear) != len(square) or len(square) not in (3, 4):
        return None
    by_role = {role_of(each.name): each for each in square}
    if all(role in by_role for role in "qkv"):
        return Maps(tuple(by_role[role] for role in "qkv"), by_role.get("o", rest(square, by_role)), True)
    return Maps(tuple(square[:3]), square[3] if len(square) == 4 else None, False)


def rest(square: list[Heard], by_role: dict[str | None, Heard]) -> Heard | None:
    """Return the first map that is not q, k or v, if there is one."""
    others = [each for each in square if all(each is not by_role[role] for role in "qkv")]
    return others[0] if others else None
