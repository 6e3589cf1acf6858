"""Plotting where a model's parameters are: modules side by side, as wide as they are large, their parts below them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.base.figures import as_label, matplotlib
from glassformer.nn.count import Row
from glassformer.store.pictures import finished

WIDTH, HEIGHT = 12.0, 0.55
"""The width of the figure and the height of a level, in inches."""
LETTER = 0.065
"""The width of a letter in a box, in inches."""
MAPS = {"query": "q", "key": "k", "value": "v", "output": "o"}
SHORT = {**MAPS, "self_attention": "self", "cross_attention": "cross", "feed_forward": "feed", "embedding": "emb"}


class Box(NamedTuple):
    """One module in the picture."""

    name: str
    path: str
    level: int
    left: int
    """The number of parameters before it."""
    width: int


def plot_parameters(rows: Sequence[Row], *, title: str = "", file: Path | str | None = None) -> Any:
    """Draw an icicle plot of the rows of `count_parameters`: below each module are its parts.

    A tensor that is used twice appears once. `file` is .png, .svg or .pdf. Returns a matplotlib figure.
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
        axes.set_title(as_label(title), fontsize=11)
    return finished(figure, file)


def fitting(box: Box, total: int, letters: float) -> str:
    """Return the name and share of a box, or a shorter text if the box is narrow."""
    short = SHORT.get(box.name, box.name.removeprefix("block "))
    names = [short] if box.name in MAPS else [box.name, short]  # the four projections always have their short names
    texts = (f"{box.name} {box.width / total:.0%}", *names, "")
    return next(text for text in texts if len(text) + 1 <= letters or not text)


def boxes(rows: Sequence[Row]) -> list[Box]:
    """Return a box for each module with parameters, in the order of the rows."""
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
    """Return the names of the modules that contain a tensor, outermost first.

    A block and its number are one name, as are a residual and its branch; weight and bias belong to their module.
    """
    short = re.sub(r"\bblocks\.(\d+)", r"block \1", name).replace(".branch.", ".")
    return re.sub(r"(?<=.)\.(weight|bias)$", "", short).split(".")
