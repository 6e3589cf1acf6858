"""Plots for the tutorial notebooks, one call each: attention maps and position vectors.

Each returns a matplotlib figure, which a notebook shows, and also writes it if a file is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from glassformer.base.errors import ConfigError, DataError
from glassformer.base.figures import as_label, matplotlib
from glassformer.base.registry import lookup
from glassformer.base.shapes import Float, Tensor
from glassformer.lens.blocks import head_id
from glassformer.lens.blocks import place as where
from glassformer.nn.positions import POSITIONS, Room
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
    """
    named = dict(weights) if isinstance(weights, Mapping) else {title or "": weights}
    if not named:
        raise DataError("There is nothing to draw: no attention was observed. Run the model inside the `with observe`.")
    rows = {name: heads_of(each, row, head) for name, each in named.items()}
    across = min(max(map(len, rows.values())), MOST_ACROSS)
    panels = [(name, number, each) for name, maps in rows.items() for number, each in maps.items()]
    lines = sum(-(-len(maps) // across) for maps in rows.values())
    T, S = panels[0][2].shape
    width, height = max(LEAST, CELL * S), max(LEAST, CELL * T)
    figure = matplotlib("figure").Figure(
        figsize=(width * across + 1.2, (height + 0.5) * lines + 0.4), layout="constrained"
    )
    places = figure.subplots(lines, across, squeeze=False)
    line = 0
    image = None
    for name, maps in rows.items():
        for place, (number, each) in enumerate(maps.items()):
            axes = places[line + place // across][place % across]
            image = axes.imshow(each.detach().cpu().float().numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
            axes.set_title(f"head {number}" if len(named) == 1 else head_id(*where(name), number), fontsize=8)
            label(axes, each, queries, keys, first=place % across == 0)
        line += -(-len(maps) // across)
    blank(places, rows, across)
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


def blank(places: Any, rows: Mapping[str, Mapping[int, Tensor]], across: int) -> None:
    """Remove the axes that have no map."""
    line = 0
    for maps in rows.values():
        lines = -(-len(maps) // across)
        for place in range(len(maps), lines * across):
            places[line + place // across][place % across].remove()
        line += lines


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
    """
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
    made = lookup(POSITIONS, positions, "positions")(Room(d_model, 1, d_model, length, causal=False))
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
