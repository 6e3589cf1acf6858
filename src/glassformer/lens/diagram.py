"""A drawing of any module, from the parts that were called and the shapes that passed between them."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

from torch import nn

from glassformer.lens.shapes import Part, shapes_of

WIDE, LINE, GAP = 460, 20, 26


@dataclass(frozen=True)
class Diagram:
    """A drawing: SVG in a notebook, text elsewhere. `boxes` are the parts that are drawn, with what is inside each."""

    title: str
    boxes: tuple[tuple[Part, tuple[Part, ...]], ...]

    def __repr__(self) -> str:
        """Return the drawing as text."""
        lines = [self.title]
        for part, inner in self.boxes:
            lines.append(f"  {[*part.given]}")
            lines.append(f"  +- {label(part)}")
            lines += [f"  |    {label(each)}" for each in inner]
        return "\n".join([*lines, f"  {[*self.boxes[-1][0].gave]}" if self.boxes else ""])

    def svg(self) -> str:
        """Return the drawing as SVG, with colours that follow the reader's light or dark page."""
        y, shapes = 30, [f'<text x="8" y="18" font-weight="bold">{html.escape(self.title)}</text>']
        for part, inner in self.boxes:
            shapes.append(arrow(y, str([*part.given])))
            y += GAP
            tall = LINE * (1 + len(inner)) + 10
            shapes.append(f'<rect x="8" y="{y}" width="{WIDE - 16}" height="{tall}" rx="4" fill="none"/>')
            shapes.append(f'<text x="16" y="{y + 18}">{html.escape(label(part))}</text>')
            for number, each in enumerate(inner, 1):
                shapes.append(f'<text x="36" y="{y + 18 + LINE * number}">{html.escape(label(each))}</text>')
            y += tall
        if self.boxes:
            shapes.append(arrow(y, str([*self.boxes[-1][0].gave])))
        alt = f"{self.title}: " + ", then ".join(label(part) for part, _ in self.boxes)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {WIDE} {y + GAP + 4}" width="{WIDE}" '
            f'style="font: 13px sans-serif; stroke: currentColor; max-width: 100%"><title>{html.escape(alt)}</title>'
            f'<g style="stroke-width: 1">{"".join(shapes).replace("<text ", TEXT)}</g></svg>'
        )

    def _repr_html_(self) -> str:
        return self.svg()


TEXT = '<text fill="currentColor" stroke="none" '


def arrow(y: int, text: str) -> str:
    """Return an arrow downwards from y, with the shape that passes beside it."""
    x, end = WIDE // 2, y + GAP
    return f'<path d="M{x} {y} V{end} m-4 -6 l4 6 l4 -6" fill="none"/><text x="{x + 10}" y="{y + 17}">{text}</text>'


def label(part: Part) -> str:
    """Return what is written in a box."""
    count = f", {part.parameters:,} parameters" if part.parameters else ""
    return f"{part.name} ({part.kind}{count})" + (f": {part.purpose}" if part.purpose else "")


def diagram_of(module: nn.Module, *inputs: Any) -> Diagram:
    """Run a module once and draw its parts: those on top, items of a list each by itself, and one level inside."""
    parts = shapes_of(module, *inputs).parts
    names = {each.name for each in parts if each.name}

    def owner(name: str) -> str:
        """The nearest part around a part that was called itself."""
        while "." in name:
            name = name.rpartition(".")[0]
            if name in names:
                return name
        return ""

    tops = [each for each in parts if each.name and not owner(each.name)]
    boxes = tuple((top, tuple(each for each in parts if each.name and owner(each.name) == top.name)) for top in tops)
    return Diagram(type(module).__name__, boxes)
