"""Attention weights as text: a heat map whose shades show what each position attends to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from glassformer.base.errors import DataError
from glassformer.base.shapes import Float, Tensor
from glassformer.base.typed import expect
from glassformer.data.batch import Batch
from glassformer.data.dataset import Tokenizers
from glassformer.decode.answer import answer
from glassformer.lens.ablate import observe
from glassformer.nn.observe import Evaluation
from glassformer.nn.transformer import Transformer

SHADES = " ░▒▓█"


class Picture(NamedTuple):
    """A heat map of one head."""

    head: str
    """Its name, like "decoder.blocks.1.cross_attention, head 3"."""
    text: str


def cross_attention_picture(model: Transformer, tokenizers: Tokenizers, source: str) -> Picture:
    """Draw where an encoder-decoder attends while it answers `source`: a line for each written token, <eos> last.

    The picture shows the head with the sharpest attention.
    """
    batch = answered(model, tokenizers, source)
    seen = maps_of(model, batch)
    name, head = sharpest_head(seen, "cross_attention")
    rows, columns = words_of(tokenizers, batch)
    return Picture(f"{name}, head {head}", heat_map(seen[name][0, head], rows, columns))


def answered(model: Transformer, tokenizers: Tokenizers, source: str) -> Batch:
    """Return a batch of one source text and the model's own answer."""
    ids = tokenizers.source.encode(source)
    (given,) = answer(model, [ids])
    return Batch.pairs([ids], [given.ids]).to(next(model.parameters()).device)


def maps_of(model: Transformer, batch: Batch) -> dict[str, Float[Tensor, "B H T S"]]:
    """Return what `observe` collects while an encoder-decoder reads a batch of pairs."""
    assert batch.source is not None
    with torch.no_grad(), Evaluation(model), observe(model) as seen:
        model(batch.tokens[:, :-1], source=batch.source)  # the row that reads token t writes token t + 1
    return seen


def words_of(tokenizers: Tokenizers, batch: Batch) -> tuple[list[str], list[str]]:
    """Return the tokens beside the rows and the columns of a map: those that are written, and those of the source."""
    assert batch.source is not None
    return tokenizers.target.tokens(batch.tokens[0, 1:].tolist()), tokenizers.source.tokens(batch.source[0].tolist())


def sharpest_head(seen: Mapping[str, Float[Tensor, "B H T S"]], kind: str) -> tuple[str, int]:
    """Return the module of this kind ("cross_attention", "self_attention") and its head with the sharpest attention.

    That is the head with the highest mean, over queries, of the largest weight. `seen` is what `observe` collected.

    >>> import torch
    >>> from glassformer import sharpest_head
    >>> even, sharp = torch.full((3, 3), 1 / 3), torch.eye(3)
    >>> sharpest_head({"encoder.blocks.0.self_attention": torch.stack([even, sharp])[None]}, "self_attention")
    ('encoder.blocks.0.self_attention', 1)
    """
    best = {name: weights.amax(-1).mean((0, 2)) for name, weights in seen.items() if name.endswith(kind)}
    if not best:
        raise DataError(
            f"Attention of the kind {kind!r} was not seen, but {', '.join(seen) or 'none at all'}. Give another kind, "
            "or run the model inside `with observe(model) as seen`."
        )
    name = max(best, key=lambda each: float(best[each].max()))
    return name, int(best[name].argmax())


def heat_map(weights: Float[Tensor, "T S"], rows: Sequence[str], columns: Sequence[str]) -> str:
    """Draw one line per query: its label, and a shade for each key, from blank (below 1/8) to full (from 7/8).

    >>> import torch
    >>> from glassformer import heat_map
    >>> weights = torch.tensor([[0.0, 1.0], [0.5, 0.5]])
    >>> print(heat_map(weights, ["new", "old"], ["old", "new"]))  # doctest: +NORMALIZE_WHITESPACE
         old new
    new      ███
    old  ▒▒▒ ▒▒▒
    """
    expect(weights, Tensor, "weights of heat_map", "Give one head's, as seen[name][0, head].")
    if tuple(weights.shape) != (len(rows), len(columns)):
        raise DataError(
            f"A heat map is of weights [T, S], with a label for each row and column; got {list(weights.shape)} with "
            f"{len(rows)} and {len(columns)} labels. Give one head's weights, as seen[name][0, head]."
        )
    margin, width = max(map(len, rows)), max(map(len, columns))
    levels = torch.clamp(weights * (len(SHADES) - 1) + 0.5, 0, len(SHADES) - 1).int().tolist()
    lines = [" " * margin + "  " + " ".join(f"{label:^{width}}" for label in columns)]
    for label, row in zip(rows, levels, strict=True):
        lines.append(f"{label:>{margin}}  " + " ".join(SHADES[level] * width for level in row))
    return "\n".join(lines)
