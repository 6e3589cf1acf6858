"""Plots for the tutorial notebooks, one call each: attention maps, position vectors, a model's parts, who notices whom.

Each returns a matplotlib figure, which a notebook shows, and also writes it if a file is given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from glassformer.base.errors import CheckpointError, ConfigError, DataError
from glassformer.base.figures import as_label, matplotlib
from glassformer.base.registry import lookup
from glassformer.base.shapes import Float, Tensor
from glassformer.lens.ablate import head_id
from glassformer.lens.ablate import place as where
from glassformer.lens.picture import answered, maps_of, sharpest_head, words_of
from glassformer.lens.shapes import COMPONENTS, Row, level, shapes_of, short_name
from glassformer.nn.count import Row as Parameters
from glassformer.nn.positions import POSITIONS, Sizes
from glassformer.store.checkpoint import load
from glassformer.store.folders import checkpoints
from glassformer.store.pictures import finished

MOST_LABELS = 40
"""The most tokens to write beside an axis; with more, the axis shows their numbers."""
CELL, LEAST = 0.22, 1.9
"""The size of a token and the least size of a map, in inches."""
MOST_ACROSS = 8
MOST_LETTERS = 16
"""The most letters of a token beside an axis."""
LETTER = 0.09
"""The width of a letter of a title, in inches."""
COLORS = {
    "attention": "#fde0c5",
    "feed-forward": "#cfe3f5",
    "norm": "#f4f0b6",
    "embedding": "#f6d3dd",
    "positions": "#e3d8f0",
    "output": "#d3ecd6",
}
SILENT = ("Identity", "Dropout")
"""Classes that change no shape and hold no parameters: left out."""
BOX, GAP, HEADER = 0.34, 0.3, 0.3
"""Heights of a box, of the arrow below it and of the title of a group, in inches."""
WIDTH = 5.2
"""The width of the outermost boxes, in inches."""


def plot_attention(
    weights: Float[Tensor, "*heads T S"] | Mapping[str, Float[Tensor, "B H T S"]],
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    *,
    row: int = 0,
    head: int | None = None,
    title: str | None = None,
    file: Path | str | None = None,
) -> Any:
    """Draw a map for each head: a line per query, a column per key; white is 0 and dark is 1 in all maps.

    `weights` are those of one map, of the heads of one attention, of a batch (shown is `row`), or what `observe`
    collected: then there is a row of maps for each attention, with names like x.1.3. `head` picks one head. `queries`
    and `keys` are the tokens; keys None: the queries' tokens, if their number fits. `file` is .png, .svg or .pdf.
    Errors: `DataError` if the number of tokens differs from that of rows or columns; `ConfigError` without matplotlib.

    >>> import torch
    >>> from glassformer import plot_attention
    >>> figure = plot_attention(torch.eye(3), ["a", "b", "c"], title="each reads itself")
    """
    named = dict(weights) if isinstance(weights, Mapping) else {title or "": weights}
    if not named:
        raise DataError("There is nothing to draw: no attention was observed. Run the model inside the `with observe`.")
    rows = [
        [(f"head {i}" if len(named) == 1 else head_id(*where(name), i), maps) for i, maps in of_one.items()]
        for name, of_one in ((name, heads_of(each, row, head)) for name, each in named.items())
    ]
    return plot_maps(rows, queries, keys, "Blues", title, file)


def plot_maps(
    rows: Sequence[Sequence[tuple[str, Tensor]]],
    queries: Sequence[str] | None,
    keys: Sequence[str] | None,
    colors: str,
    title: str | None,
    file: Path | str | None,
) -> Any:
    """Draw rows of maps [T, S], each with its title; a long row goes on in the next line."""
    across = min(max(map(len, rows)), MOST_ACROSS)
    lines = [line for row in rows for line in (row[at : at + across] for at in range(0, len(row), across))]
    T, S = lines[0][0][1].shape
    width, height = max(LEAST, CELL * S), max(LEAST, CELL * T)
    figure = matplotlib("figure").Figure(
        figsize=(width * across + 1.2, (height + 0.5) * len(lines) + 0.4), layout="constrained"
    )
    places = figure.subplots(len(lines), across, squeeze=False)
    image = None
    for line, maps in zip(places, lines, strict=True):
        for axes, (name, each) in zip(line, maps, strict=False):
            weights = each.detach().cpu().float().numpy()
            image = axes.imshow(weights, cmap=colors, vmin=0, vmax=1, aspect="auto")
            axes.set_title(name, fontsize=8)
            label(axes, each, queries, keys, first=axes is line[0])
        for axes in line[len(maps) :]:
            axes.remove()
    figure.colorbar(image, ax=places, shrink=0.6, label="weight")
    if title:
        figure.suptitle(as_label(title, int(figure.get_figwidth() / LETTER)), fontsize=11)
    return finished(figure, file)


def heads_of(weights: Float[Tensor, "*heads T S"], row: int, head: int | None) -> dict[int, Float[Tensor, "T S"]]:
    """Return the maps of one attention by head number. Errors: `DataError`."""
    if weights.ndim == 4:
        check_index("row", row, len(weights))
        weights = weights[row]
    if weights.ndim not in (2, 3):
        raise DataError(f"Weights must have the shape [T, S], [H, T, S] or [B, H, T, S]; got {list(weights.shape)}.")
    maps = weights[None] if weights.ndim == 2 else weights
    if head is None:
        return dict(enumerate(maps))
    check_index("head", head, len(maps))
    return {head: maps[head]}


def check_index(name: str, index: int, n: int) -> None:
    """Raise `DataError` for an index out of range."""
    if not 0 <= index < n:
        raise DataError(f"{name} must be from 0 to {n - 1} here; got {index}.")


def label(
    axes: Any, weights: Float[Tensor, "T S"], queries: Sequence[str] | None, keys: Sequence[str] | None, *, first: bool
) -> None:
    """Write the tokens beside the axes; the queries only beside the first map of a line."""
    T, S = weights.shape
    keys = queries if keys is None and queries is not None and len(queries) == S else keys
    for what, tokens, size in (("queries", queries, T), ("keys", keys, S)):
        if tokens is not None and len(tokens) != size:
            raise DataError(f"Each of the {size} {what} needs one token; got {len(tokens)}. Give {size} tokens.")
    shown = {"fontsize": 7, "fontfamily": "monospace"}
    if queries is not None and T <= MOST_LABELS:
        axes.set_yticks(range(T), [as_label(each, MOST_LETTERS) for each in queries] if first else [""] * T, **shown)
    if keys is not None and S <= MOST_LABELS:
        turned = 0 if max(map(len, keys)) <= 2 else 90
        axes.set_xticks(range(S), [as_label(each, MOST_LETTERS) for each in keys], rotation=turned, **shown)
    axes.tick_params(length=2, labelsize=7)
    if first:
        axes.set_ylabel("query", fontsize=8)
    axes.set_xlabel("key", fontsize=8)


def plot_positions(
    positions: str = "sinusoidal",
    *,
    length: int = 100,
    d_model: int = 64,
    vectors: Float[Tensor, "L D"] | None = None,
    title: str | None = None,
    file: Path | str | None = None,
) -> Any:
    """Draw the vectors that are added to the embedding at each position: a column per position, a line per dimension.

    `positions` is one of `POSITIONS` that adds vectors: sinusoidal or sinusoidal_halves. Or give `vectors`, such as the
    learned ones of a model, `model.encoder.positions.weight`. `file` is .png, .svg or .pdf.
    Errors: `ConfigError` for a scheme that adds no vectors or learns them.

    >>> from glassformer import plot_positions
    >>> figure = plot_positions(length=20, d_model=8)
    """
    if length < 1:
        raise ConfigError(f"length must be at least 1; got {length}. Try length=100.")
    if vectors is None:
        vectors = added(positions, length, d_model)
    if vectors.ndim != 2:
        raise DataError(f"Position vectors must have the shape [positions, dimensions]; got {list(vectors.shape)}.")
    figure = matplotlib("figure").Figure(figsize=(9, 3.4), layout="constrained")
    axes = figure.subplots()
    most = float(vectors.detach().abs().max())
    image = axes.imshow(vectors.detach().cpu().float().T.numpy(), cmap="RdBu", vmin=-most, vmax=most, aspect="auto")
    axes.set(xlabel="position", ylabel="dimension", title=as_label(title) if title else f"{positions} positions")
    figure.colorbar(image, ax=axes)
    return finished(figure, file)


def added(positions: str, length: int, d_model: int) -> Float[Tensor, "L D"]:
    """Return the vectors that a scheme adds at positions 0 to length - 1. Errors: `ConfigError`."""
    made = lookup(POSITIONS, positions, "positions")(Sizes(d_model, 1, d_model, length, causal=False))
    if list(made.parameters()):
        raise ConfigError(
            f"positions={positions!r} has no vectors before a model learns them. Give those of a trained one: "
            "vectors=model.encoder.positions.weight."
        )
    vectors = made.embedding(torch.arange(length), torch.zeros(1, length, d_model))
    if vectors is None:
        raise ConfigError(
            f"positions={positions!r} adds no vectors to the embeddings, so there are none to draw. "
            "Try positions='sinusoidal'."
        )
    return vectors.reshape(length, d_model)


def plot_architecture(
    module: nn.Module,
    *inputs: Any,
    levels: int = 3,
    title: str | None = None,
    file: Path | str | None = None,
    **named: Any,
) -> Any:
    """Draw a model as boxes in the order in which they run, with the shapes that pass on the arrows between them.

    `levels` says how deep: 1 draws the parts of the model, 2 also theirs. What has one purpose, such as an attention or
    a norm, is one box. An arrow on the right shows an output that is read again further down, such as the memory. Any
    module of torch; it runs once. `file` is .png, .svg or .pdf. Returns a matplotlib figure.
    """
    found = [row for row in shapes_of(module, *inputs, **named).rows if level(row.name) <= levels]
    single = [f"{row.name}." for row in found if row.component in COMPONENTS]
    rows = [row for row in found if row.kind not in SILENT and not row.name.startswith(tuple(single))]
    groups = {row.name for row in rows if row.name and any(other.name.startswith(f"{row.name}.") for other in rows)}
    rows = rows[1:] if len(rows) > 1 else rows
    tops: dict[str, float] = {}
    y = 0.0
    for row in rows:
        tops[row.name] = y
        y += HEADER if row.name in groups else BOX + GAP
    total = max(tops.values()) + BOX + 0.5
    figure = matplotlib("figure").Figure(figsize=(WIDTH + 1.6, total + 0.4), layout="constrained")
    axes = figure.subplots()
    boxes = [row for row in rows if row.name not in groups]
    for row in rows:
        draw(axes, row, tops, [each for each in boxes if each.name.startswith(f"{row.name}.")])
    previous: Row | None = None
    for row in boxes:
        connect(axes, previous, row, tops, {each.name for each in boxes})
        previous = row
    if previous is not None:
        bottom = tops[previous.name] + BOX
        axes.annotate("", (WIDTH / 2, bottom + GAP), (WIDTH / 2, bottom), arrowprops={"arrowstyle": "->"})
        axes.text(
            WIDTH / 2 + 0.1,
            bottom + GAP / 2,
            "  ".join(str([*shape]) for shape in previous.gave),
            va="center",
            fontsize=7,
        )
    axes.set(xlim=(-0.1, WIDTH + 1.5), ylim=(total, -GAP))
    axes.axis("off")
    parameters = sum(each.numel() for each in module.parameters())
    axes.set_title(as_label(title or f"{type(module).__name__}: {parameters:,} parameters"), fontsize=10)
    return finished(figure, file)


def draw(axes: Any, row: Row, tops: dict[str, float], inner: list[Row]) -> None:
    """Draw one box, or a group around the boxes `inner`."""
    inset, top = inset_of(row.name), tops[row.name]
    height = tops[inner[-1].name] + BOX + 0.08 - top if inner else BOX
    face = "none" if inner else COLORS.get(row.component, "white")
    rectangle = matplotlib("patches").Rectangle
    axes.add_patch(rectangle((inset, top), WIDTH - 2 * inset, height, facecolor=face, edgecolor="#555", linewidth=0.8))
    words = f"{short_name(row.name)} ({row.kind})"
    middle = top + (HEADER if inner else BOX) / 2
    axes.text(inset + 0.08, middle, words, va="center", fontsize=8)
    axes.text(WIDTH - inset - 0.08, middle, f"{row.parameters:,}", va="center", ha="right", fontsize=7)


def connect(axes: Any, previous: Row | None, row: Row, tops: dict[str, float], drawn: set[str]) -> None:
    """Draw what goes into a box: from the box above it, from outside, or on the right from further above."""
    top, middle = tops[row.name], WIDTH / 2
    begins = previous is None or row.component == "embedding"
    start = top - GAP * (0.6 if begins else 1)
    axes.annotate("", (middle, top), (middle, start), arrowprops={"arrowstyle": "->"})
    words = (str([*row.given[0]]) if row.given else "") + (" ids" if row.component == "embedding" else "")
    axes.text(middle + 0.1, top - GAP / 2, words, va="center", fontsize=7)
    for source in row.sources:
        if source in drawn and previous is not None and source != previous.name:
            above, here, side = tops[source] + BOX / 2, top + BOX / 2, WIDTH + 0.3
            axes.plot([WIDTH - inset_of(source), side, side], [above, above, here], color="C1", linewidth=1)
            far = {"arrowstyle": "->", "color": "C1", "shrinkA": 0}
            axes.annotate("", (WIDTH - inset_of(row.name), here), (side, here), arrowprops=far)


def inset_of(name: str) -> float:
    """Return how far a box lies inside the outermost ones, in inches."""
    return 0.25 * (level(name) - 1)


def plot_maps_over_training(run: Path | str, source: str, *, file: Path | str | None = None) -> Any:
    """Draw one head at every checkpoint of an encoder-decoder's run: how its cross-attention to `source` arose.

    It is the head that is sharpest at the last checkpoint; all maps are those of the last checkpoint's answer. A line
    per written token, a column per token of the source. `file` is .png, .svg or .pdf. Returns a matplotlib figure.
    Errors: `CheckpointError` for a folder without checkpoints, `ConfigError` for a model of one stack.
    """
    found = checkpoints(Path(run))
    if not found:
        raise CheckpointError(f"{run} has no checkpoint. Train first, or give another folder.")
    last = load(found[max(found)])
    if last.model.encoder is None or last.model.decoder is None:
        raise ConfigError(f"{run} has a model of one stack, without cross-attention. Give an encoder-decoder's run.")
    batch = answered(last.model, last.tokenizers, source)
    name, head = sharpest_head(maps_of(last.model, batch), "cross_attention")
    rows, columns = words_of(last.tokenizers, batch)
    maps = {step: maps_of(load(folder).model, batch)[name][0, head] for step, folder in sorted(found.items())}
    titled = [(f"step {step:,}", weights) for step, weights in maps.items()]
    return plot_maps([titled], rows, columns, "viridis", f"{name}, head {head}", file)


# Plotting where a model's parameters are: modules side by side, as wide as they are large, their parts below them.

ROW, HEIGHT = 12.0, 0.55
"""The width of the figure and the height of a level, in inches."""
SMALL_LETTER = 0.065
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


def plot_parameters(rows: Sequence[Parameters], *, title: str = "", file: Path | str | None = None) -> Any:
    """Draw an icicle plot of the rows of `count_parameters`: below each module are its parts.

    A tensor that is used twice appears once. `file` is .png, .svg or .pdf. Returns a matplotlib figure.
    """
    found = boxes(rows)
    levels = 1 + max(box.level for box in found)
    figure = matplotlib("figure").Figure(figsize=(ROW, HEIGHT * levels + 0.9), layout="constrained")
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
        text = fitting(box, total, box.width / total * ROW / SMALL_LETTER)
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


def boxes(rows: Sequence[Parameters]) -> list[Box]:
    """Return a box for each module with parameters, in the order of the rows."""
    found: dict[str, Box] = {}
    left = 0
    for row in rows:
        if not row.numbers:
            continue
        parts = pieces(row.name)
        for depth, name in enumerate(parts):
            path = ".".join(parts[: depth + 1])
            before = found.get(path, Box(name, path, depth, left, 0))
            found[path] = before._replace(width=before.width + row.numbers)
        left += row.numbers
    return list(found.values())


def pieces(name: str) -> list[str]:
    """Return the names of the modules that contain a tensor, outermost first.

    A block and its number are one name, as are a residual and its branch; weight and bias belong to their module.
    """
    short = re.sub(r"\bblocks\.(\d+)", r"block \1", name).replace(".branch.", ".")
    return re.sub(r"(?<=.)\.(weight|bias)$", "", short).split(".")
