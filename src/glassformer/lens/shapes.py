"""The shapes that pass through any module: what goes into each part, what comes out, its parameters and its purpose."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from glassformer.base.shapes import Tensor

COMPONENTS = {
    "attention": r"attention|attn|cross|mha|heads|qkv",
    "feed-forward": r"feed|ffn|mlp|ff\b",
    "norms": r"norm",
    "embedding": r"embed|token|table",
    "output": r"output|head|logits|unembed",
}
"""A component, and what the name or class of a module must contain; the first that fits, from the outside in."""
PURPOSES = {
    "attention": "fetch from other places",
    "feed-forward": "compute at each place",
    "norms": "keep numbers in range",
    "embedding": "ids become vectors",
    "output": "vectors become scores of words",
    "positions": "make order visible",
    "block": "fetch, then compute",
    "dropout": "drop numbers in training",
}


@dataclass(frozen=True)
class Part:
    """One module that was called: its name, class, shapes, number of parameters, and what it is for."""

    name: str
    kind: str
    given: tuple[int, ...]
    gave: tuple[int, ...]
    parameters: int
    purpose: str


@dataclass(frozen=True)
class Shapes:
    """The parts of a module in the order in which they were called, and its parameters by component."""

    parts: tuple[Part, ...]
    components: dict[str, int]
    total: int

    def table(self) -> list[tuple[str, ...]]:
        """Return a row of texts for each part, below a header."""
        head = ("module", "class", "in", "out", "parameters", "purpose")
        rows = [(e.name, e.kind, str([*e.given]), str([*e.gave]), f"{e.parameters:,}", e.purpose) for e in self.parts]
        return [head, *rows]

    def __repr__(self) -> str:
        """Return the table as text, and the shares of the components."""
        rows = self.table()
        widths = [max(len(row[column]) for row in rows) for column in range(6)]
        lines = ["  ".join(f"{text:{width}}" for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([*lines, self.shares()])

    def shares(self) -> str:
        """Say how many parameters each component has."""
        shown = [f"{name} {n:,} ({n / max(self.total, 1):.1%})" for name, n in self.components.items() if n]
        return f"{self.total:,} parameters: {', '.join(shown)}"

    def _repr_html_(self) -> str:
        head, *rows = self.table()
        cells = "".join(f'<th scope="col">{html.escape(each)}</th>' for each in head)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(each)}</td>' for each in row)}</tr>" for row in rows)
        caption = f"<caption>{html.escape(self.shares())}</caption>"
        return f"<table>{caption}<thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def component_of(module: nn.Module, name: str) -> str | None:
    """Return the component that a module belongs to, by the names and classes on the way to it; None without one."""
    steps = name.split(".")
    way = [(".".join(steps[: n + 1]), step) for n, step in enumerate(steps)]
    for path, step in way:
        text = f"{step} {type(module.get_submodule(path)).__name__}".lower()
        if re.search(r"block|layer(?!norm)|stack|coder\b", text) and not re.search("norm", text):
            continue
        for component, pattern in COMPONENTS.items():
            if re.search(pattern, text):
                return component
    return None


def components_of(module: nn.Module) -> dict[str, int]:
    """Return how many parameters each component has; what fits none is "other". A shared tensor counts once."""
    found = {**dict.fromkeys(COMPONENTS, 0), "other": 0}
    for name, parameter in module.named_parameters():
        found[component_of(module, name.rpartition(".")[0]) or "other" if "." in name else "other"] += parameter.numel()
    return found


def purpose_of(module: nn.Module, name: str) -> str:
    """Say what a part is for, as far as its name or class tells."""
    part = module.get_submodule(name)
    text = f"{name.rpartition('.')[2]} {type(part).__name__}".lower()
    for pattern, purpose in (("drop", "dropout"), ("posit", "positions"), ("block|layer(?!norm)", "block")):
        if re.search(pattern, text):
            return PURPOSES[purpose]
    direct = next((each for each, pattern in COMPONENTS.items() if re.search(pattern, text)), "")
    return PURPOSES.get(direct, "") if direct == component_of(module, name) else ""


def shapes_of(module: nn.Module, *inputs: Any) -> Shapes:
    """Run the module once, in evaluation mode and without gradients, and return the shapes that passed.

    `inputs` are those of its forward. The module stays as it was.
    """
    parts: list[Part] = []
    hooks = [each.register_forward_hook(hook(module, name, parts)) for name, each in module.named_modules() if name]
    was = {each: each.training for each in module.modules()}
    try:
        module.eval()
        with torch.no_grad():
            gave = module(*inputs)
    finally:
        for each in hooks:
            each.remove()
        for each, mode in was.items():
            each.training = mode
    total = sum(each.numel() for each in module.parameters())
    whole = Part("", type(module).__name__, shape_of(inputs), shape_of(gave), total, "the whole")
    return Shapes((*parts, whole), components_of(module), total)


def hook(module: nn.Module, name: str, parts: list[Part]) -> Any:
    """Return a forward hook that adds a part to the list."""

    def note(part: nn.Module, inputs: tuple[Any, ...], gave: Any) -> None:
        numbers = sum(each.numel() for each in part.parameters())
        parts.append(
            Part(name, type(part).__name__, shape_of(inputs), shape_of(gave), numbers, purpose_of(module, name))
        )

    return note


def shape_of(value: Any) -> tuple[int, ...]:
    """Return the shape of the first tensor in a value; () without one."""
    return next((tuple(each.shape) for each in tensors(value)), ())


def tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in a value, also within tuples and lists."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from tensors(each)
