"""Sparse attention whose cost follows its pattern: each block of queries meets only the keys that it may read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import ceil
from typing import NamedTuple

import torch
import torch.nn.functional as F

from glassformer.base.part import explained
from glassformer.base.schemes import Pattern
from glassformer.base.shapes import Float, Int, Keys, Queries, Tensor, Values
from glassformer.nn.backends import Normalise, matmul, refuse, softmax
from glassformer.nn.lowered import Lowered, combine
from glassformer.nn.mask import Mask

ROWS = 256
"""Queries per chunk where all keys must be met, because the rules cannot be applied to columns."""
BLOCKS = (16, 128)
"""The least and most queries in a block: fewer make small products, more compute many unread scores."""
LEAST, SHARE = 256, 0.25
"""From this many keys, and up to this share of the scores, blocks beat the fused kernel (`make bench ARGS=sparse`)."""


@explained
def sparse(
    q: Queries, k: Keys, v: Values, mask: Mask, *, scale: float, dropout: float = 0.0, normalise: Normalise = softmax
) -> Queries:
    """The result of `reference` under the mask's pattern, without holding the T x S scores.

    Where columns are positions (T = S, no positions given), blocks of queries meet only keys within the pattern.
    Otherwise, or without a pattern, `ROWS` queries at a time meet all keys. Errors: `ConfigError` for a value bias.
    """
    refuse(mask.value_bias, "sparse")
    whole = partial(matmul, scale=scale, dropout=dropout, normalise=normalise)
    S, pattern = k.shape[2], mask.sparse
    if pattern is None or mask.placed or mask.table is not None or q.shape[2] != S:
        return by_rows(whole, q, k, v, mask)
    parts = parts_of(pattern, S, causal=mask.causal)
    found = [part.scores(q * scale, k) for part in parts]
    scores = found[0] if len(found) == 1 else torch.cat(found, dim=-1)
    lowered = _lowered(mask, parts, scores)
    weights = F.dropout(normalise(scores, lowered).to(v.dtype), dropout)
    shares = weights.split([part.met for part in parts], dim=-1)
    mixed = [part.mix(share, v) for part, share in zip(parts, shares, strict=True)]
    output = lowered.zero_blind(mixed[0] if len(mixed) == 1 else mixed[0] + mixed[1])
    n = 0 if mask.causal else min(pattern.global_tokens, S)
    if n == 0:
        return output
    first = whole(q[:, :, :n], k, v, mask.of_queries(0, n, S, S, q.device))
    return torch.cat([first, output[:, :, n:]], dim=2)


def by_rows(attend: Callable[..., Queries], q: Queries, k: Keys, v: Values, mask: Mask) -> Queries:
    """Attention over `ROWS` queries at a time, so that not all scores are held at once."""
    T, S = q.shape[2], k.shape[2]
    if T <= ROWS:
        return attend(q, k, v, mask)
    masks = (mask.of_queries(first, min(first + ROWS, T), T, S, q.device) for first in range(0, T, ROWS))
    return torch.cat([attend(some, k, v, own) for some, own in zip(q.split(ROWS, dim=2), masks, strict=True)], dim=2)


FEW = "on {device}: the pattern reads few of {T} x {S} scores, and blocks compute no others"
"""The reason that `pick` gives for choosing blocks."""


def pays(mask: Mask, T: int, S: int) -> bool:
    """Whether blocks beat full matrix products: a pattern over columns, long enough and sparse enough."""
    pattern = mask.sparse
    if pattern is None or mask.placed or T != S or S < LEAST:
        return False
    if any(each is not None for each in (mask.bias, mask.value_bias, mask.table)):
        return False
    return sum(part.met for part in parts_of(pattern, S, causal=mask.causal)) <= SHARE * S


class Part(NamedTuple):
    """One part of a pattern: queries in blocks, and the keys that each block meets.

    Block (r, m) holds the positions (m * size + c) * step + r for c = 0 .. size - 1. It meets the keys of blocks
    m - back .. m + ahead of the same r. Where `shared` is given, every query meets those columns instead.
    """

    step: int
    size: int
    back: int
    ahead: int
    shared: Tensor | None
    reads: Callable[[Tensor, Tensor], Tensor]
    """Whether this part lets a query position read a key position; each pair belongs to at most one part."""

    @property
    def met(self) -> int:
        """How many keys each query meets (R)."""
        return (self.back + 1 + self.ahead) * self.size if self.shared is None else len(self.shared)

    def columns(self, S: int, device: torch.device) -> Int[Tensor, "S R"]:
        """The columns of the keys that each query meets; -1 where there is no key."""
        if self.shared is not None:
            return self.shared.to(device).expand(S, -1)
        places = self.arrange(torch.arange(S, device=device)[:, None], S, fill=-1)  # [step, M, size, 1]
        keys = self.beside(places, fill=-1).mT.expand(-1, -1, self.size, -1)  # each query of a block meets the same
        return self.restore(keys, S)

    def scores(self, q: Float[Tensor, "B H S K"], k: Keys) -> Float[Tensor, "B H S R"]:
        """q k^T over the keys that each query meets."""
        if self.shared is not None:
            keys = k.index_select(2, self.shared.to(k.device))
            return (_grouped(q, k.shape[1]) @ keys.mT).view(*q.shape[:3], -1)
        blocks = self.arrange(q.unflatten(1, (k.shape[1], -1)).flatten(0, 1), q.shape[2])  # [B G, r, step, M, size, K]
        blocks = blocks.movedim(1, 3).flatten(3, 4)
        products = blocks @ self.neighbours(k).mT
        return self.restore(products.unflatten(3, (-1, self.size)).movedim(3, 1), q.shape[2]).reshape(*q.shape[:3], -1)

    def mix(self, weights: Float[Tensor, "B H S R"], v: Values) -> Float[Tensor, "B H S K"]:
        """weights v over the keys that each query meets."""
        B, H, S, _ = weights.shape
        if self.shared is not None:
            return (_grouped(weights, v.shape[1]) @ v.index_select(2, self.shared.to(v.device))).view(B, H, S, -1)
        blocks = self.arrange(weights.unflatten(1, (v.shape[1], -1)).flatten(0, 1), S).movedim(1, 3).flatten(3, 4)
        mixed = (blocks @ self.neighbours(v)).unflatten(3, (-1, self.size)).movedim(3, 1)
        return self.restore(mixed, S).reshape(B, H, S, -1)

    def arrange(self, x: Tensor, S: int, fill: int = 0) -> Tensor:
        """Reshape [..., S, K] to [..., step, M, size, K], padded with `fill` to whole blocks."""
        whole = self.step * self.size
        x = F.pad(x, (0, 0, 0, -S % whole), value=fill)
        return x.unflatten(-2, (-1, self.size, self.step)).movedim(-2, -4)

    def restore(self, x: Tensor, S: int) -> Tensor:
        """The inverse of `arrange`."""
        return x.movedim(-4, -2).flatten(-4, -2)[..., :S, :]

    def neighbours(self, x: Keys) -> Float[Tensor, "BG step M R K"]:
        """Join each block of keys with the `back` blocks before and `ahead` blocks after it."""
        return self.beside(self.arrange(x.flatten(0, 1), x.shape[2]))

    def beside(self, blocks: Tensor, fill: int = 0) -> Tensor:
        """As `neighbours`, for blocks already arranged: [..., M, size, K] to [..., M, (back + 1 + ahead) * size, K]."""
        if self.back + self.ahead == 0:
            return blocks
        M = blocks.shape[-3]
        wide = F.pad(blocks, (0, 0, 0, 0, self.back, self.ahead), value=fill)
        return torch.cat([wide.narrow(-3, j, M) for j in range(self.back + 1 + self.ahead)], dim=-2)


def _grouped(x: Tensor, G: int) -> Tensor:
    return x.reshape(x.shape[0], G, -1, x.shape[-1])  # the heads of a group become further queries of one head


def parts_of(pattern: Pattern, S: int, *, causal: bool) -> list[Part]:
    """Split the pattern into one or two parts that share no pair of query and key."""
    if pattern.window is not None:
        return _window(pattern, pattern.window, S, causal)
    if pattern.stride is not None:
        return _strided(pattern.stride, S)
    assert pattern.block is not None
    return _fixed(pattern.block, pattern.summary, S)


def _window(pattern: Pattern, window: int, S: int, causal: bool) -> list[Part]:
    first, reach = min(pattern.global_tokens + pattern.sinks, S), window * pattern.dilation
    step = min(pattern.dilation, S)  # a step above S would isolate each token just the same, with more padding
    size = min(max(window, BLOCKS[0]), BLOCKS[1], ceil(S / step))
    back = min(ceil((window - 1) / size), ceil(S / (step * size)) - 1)

    def near(q: Tensor, s: Tensor) -> Tensor:
        return ((q - s).abs() < reach) & (s >= first)

    local = Part(step, size, back, 0 if causal else back, None, near)
    return [local, Part(1, 1, 0, 0, torch.arange(first), _all)] if first else [local]


def _strided(stride: int, S: int) -> list[Part]:
    size = min(max(stride, BLOCKS[0]), BLOCKS[1])

    def near(q: Tensor, s: Tensor) -> Tensor:
        return q - s < stride

    def far(q: Tensor, s: Tensor) -> Tensor:
        return q - s >= stride

    last = Part(1, size, min(ceil((stride - 1) / size), ceil(S / size) - 1), 0, None, near)
    return [last, Part(stride, ceil(S / stride), 0, 0, None, far)]


def _fixed(block: int, summary: int, S: int) -> list[Part]:
    columns = torch.arange(S)
    summaries = columns[columns % block >= block - summary]

    def elsewhere(q: Tensor, s: Tensor) -> Tensor:
        return q // block != s // block

    own = Part(1, min(block, S), 0, 0, None, _all)
    return [own, Part(1, 1, 0, 0, summaries, elsewhere)] if len(summaries) else [own]


def _all(q: Tensor, s: Tensor) -> Tensor:
    return (s >= 0).expand(torch.broadcast_shapes(q.shape, s.shape))


def _lowered(mask: Mask, parts: list[Part], scores: Float[Tensor, "B H S R"]) -> Lowered:
    """Lower the mask for the columns that each query meets; cached for all layers, as in `lower`."""

    def build() -> Lowered:
        S, device = scores.shape[2], scores.device
        queries, columns = torch.arange(S, device=device)[:, None], [part.columns(S, device) for part in parts]
        tables = [(keys >= 0) & part.reads(queries, keys) for part, keys in zip(parts, columns, strict=True)]
        keys = torch.cat(columns, dim=-1).clamp(min=0)
        allowed = torch.cat(tables, dim=-1)[None]
        if mask.causal:
            allowed = allowed & (keys <= queries)
        if mask.keep is not None:
            allowed = allowed & mask.keep[:, keys]
        if mask.documents is not None:
            documents = torch.atleast_2d(mask.documents)
            own = documents if mask.query_documents is None else torch.atleast_2d(mask.query_documents)
            allowed = allowed & (documents[:, keys] == own[:, :, None])
        bias = None
        if mask.bias is not None:
            bias = mask.bias.to(scores.dtype).gather(-1, keys.expand(*mask.bias.shape[:-1], -1))
        return combine(allowed[:, None], bias, scores)

    return mask.once(("sparse", scores.shape[2], scores.dtype, scores.device), build)
