"""Where a model's parameters are, as a picture: modules side by side as wide as they are large, parts below."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.foundation.figures import matplotlib
from glassformer.model.count import Row
from glassformer.store.pictures import save_figure

WIDTH, HEIGHT = 12.0, 0.55
"""Of all, and of a level, in inches."""
LETTER = 0.065
"""Inches of a letter in a box."""
MAPS = {"query": "q", "key": "k", "value": "v", "output": "o"}
SHORT = {**MAPS, "self_attention": "self", "cross_attention": "cross", "feed_forward": "feed", "embedding": "emb"}


class Box(NamedTuple):
    """One module."""

    name: str
    path: str
    level: int
    left: int
    """Parameters that stand before it."""
    width: int


def plot_parameters(rows: Sequence[Row], *, title: str = "", file: Path | str | None = None) -> Any:
    """An icicle of the tensors of `count_parameters`: what a module is made of stands below it.

    A tensor used twice has its place once. `file` is .png, .svg or .pdf. Gives a matplotlib figure.
    """
    found = boxes(rows)
    levels = 1 + max(box.level for box in found)
    figure = matplotlib("figure").Figure(figsize=(WIDTH, HEIGHT * levels + 0.9), layout="constrained")
    axes = figure.subplots()
    total = max(sum(row.numbers for row in rows), 1)
    tops = list(dict.fromkeys(box.path.split(".")[0] for box in found))
    rectangle = matplotlib("patches").Rectangle
    for box in found:
        color = f"C{tops.index(box.path.split('.')[0]) % 10}"
        place = (box.left, levels - 1 - box.level)
        shade = max(0.25, 0.75 - 0.15 * box.level)
        axes.add_patch(
            rectangle(place, box.width, 0.94, facecolor=color, alpha=shade, edgecolor="white", linewidth=0.8)
        )
        middle = (box.left + box.width / 2, place[1] + 0.47)
        text = fitting(box, total, box.width / total * WIDTH / LETTER)
        axes.text(*middle, text, ha="center", va="center", fontsize=7.5)
    axes.set_xlim(0, total)
    axes.set_ylim(0, levels)
    axes.set_yticks([])
    axes.set_xlabel("parameters")
    axes.xaxis.set_major_formatter(matplotlib("ticker").EngFormatter())
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    if title:
        axes.set_title(title, fontsize=11)
    if file is not None:
        save_figure(figure, file)
    return figure


def fitting(box: Box, total: int, letters: float) -> str:
    """The name and share of a box, or less where it is narrow."""
    short = SHORT.get(box.name, box.name.removeprefix("block "))
    names = [short] if box.name in MAPS else [box.name, short]  # the four maps alike
    texts = (f"{box.name} {box.width / total:.0%}", *names, "")
    return next(text for text in texts if len(text) + 1 <= letters or not text)


def boxes(rows: Sequence[Row]) -> list[Box]:
    """A box for each module that holds parameters, level by level, in the order of the rows."""
    found: dict[str, Box] = {}
    left = 0
    for row in rows:
        if not row.numbers:
            continue
        parts = pieces(row.name)
        for level, name in enumerate(parts):
            path = ".".join(parts[: level + 1])
            before = found.get(path, Box(name, path, level, left, 0))
            found[path] = before._replace(width=before.width + row.numbers)
        left += row.numbers
    return list(found.values())


def pieces(name: str) -> list[str]:
    """The modules on the way to a tensor; a block and its number are one, and so are a residual and its branch.

    Weight and bias are those of the module.
    """
    short = re.sub(r"\bblocks\.(\d+)", r"block \1", name).replace(".branch.", ".")
    return re.sub(r"(?<=.)\.(weight|bias)$", "", short).split(".")
