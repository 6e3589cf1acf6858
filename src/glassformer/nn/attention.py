"""Attention: its equation, which specifies what faster backends must compute, and its heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import nn

from glassformer.base.errors import ArgumentError, ConfigError
from glassformer.base.part import Part, explained, same_width
from glassformer.base.shapes import Float, Keys, Queries, Tensor, Values, Weights
from glassformer.nn.mask import Mask
from glassformer.nn.positions import Relation, Rotation, rotate


@runtime_checkable
class Attend(Protocol):
    """attend(q, k, v, mask, *, scale, dropout): [B, H, T, K] from q [B, H, T, K], k and v [B, G, S, K]."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, *, scale: float, dropout: float = 0.0) -> Tensor:
        """The attended values."""
        ...


@runtime_checkable
class Weigh(Protocol):
    """weigh(q, k, mask, *, scale): the weights [B, H, T, S] that the rule gives to the values, before dropout."""

    def __call__(self, q: Tensor, k: Tensor, mask: Mask, *, scale: float) -> Tensor:
        """The weights."""
        ...


def attention_weights(q: Queries, k: Keys, mask: Mask, *, scale: float) -> Weights:
    """softmax(q k^T * scale + bias) over the keys that may be read (Vaswani et al. 2017, equation 1).

    Each row sums to 1, or to 0 where no key may be read. Computed in float32 or wider.
    """
    return softmax_over_readable(dot_products(q, k, scale=scale), mask)


def dot_products(q: Queries, k: Keys, *, scale: float) -> Weights:
    """The scores q k^T * scale, in float32 or wider."""
    wide = torch.promote_types(q.dtype, torch.float32)
    q, k = q.to(wide), share_among_heads(k, q.shape[1]).to(wide)
    return q @ k.mT * scale


def softmax_over_readable(scores: Weights, mask: Mask) -> Weights:
    """exp(score + bias), divided by its sum over the keys that may be read."""
    if mask.bias is not None:
        scores = scores + mask.bias
    allowed = mask.allowed(scores.shape[-2], scores.shape[-1], scores.device)
    if allowed is None:
        return scores.softmax(-1)
    reads_something = allowed.any(-1, keepdim=True)
    scores = scores.masked_fill(~allowed & reads_something, float("-inf"))
    return scores.softmax(-1).masked_fill(~allowed, 0.0)


@explained
def reference(q: Queries, k: Keys, v: Values, mask: Mask, *, scale: float, dropout: float = 0.0) -> Queries:
    """attention(q, k, v) = weights (v + value_bias), with dropout applied to the weights."""
    weights = softmax_over_readable(dot_products(q, k, scale=scale), mask)
    return weighted_sum(F.dropout(weights, dropout), v, mask).to(q.dtype)


def weighted_sum(weights: Weights, v: Values, mask: Mask) -> Queries:
    """weights (v + value_bias), where each head uses the values of its group."""
    output = weights @ share_among_heads(v, weights.shape[1]).to(weights.dtype)
    return output if mask.value_bias is None else output + mask.value_bias.read(weights)


def share_among_heads(x: Keys, n_heads: int) -> Float[Tensor, "B H S K"]:
    """Repeat key/value head g for the H/G query heads from g*H/G on (grouped-query attention, Ainslie et al. 2023)."""
    return x if x.shape[1] == n_heads else x.repeat_interleave(n_heads // x.shape[1], dim=1)


@runtime_checkable
class LayerCache(Protocol):
    """What attention needs from the cache of one layer."""

    @property
    def complete(self) -> bool:
        """Whether all keys are already held, so that none need projecting."""
        ...

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Adds the keys and values of new tokens [B, G, T, K]; returns all keys and values that may be read."""
        ...

    def read(self) -> tuple[Tensor, Tensor]:
        """Returns all keys and values."""
        ...

    def select(self, rows: Tensor) -> None:
        """Keeps the given rows of the batch, in the order given."""
        ...


class Attention(Part):
    """Concat(head_1, ..., head_H) W_output with head_i = attention(x W_query_i, source W_key_i, source W_value_i).

    Vaswani et al. 2017, section 3.2.2. With fewer key/value heads G than heads H, each key/value head serves H/G heads
    (Ainslie et al. 2023). The options:

    - `attend` computes attention from the projections; replace it to watch a model. `weigh` gives its weights.
    - `qk_norm` makes norms of a head's width for queries and for keys, applied before rotation, so that no score grows
      without bound (Henry et al. 2020, section 3; with a norm's own weights, Dehghani et al. 2023, section 2.1).
    - `relation` is what a position scheme adds in this layer only.
    - `scale` multiplies the scores, 1/sqrt(K) by default. T5 uses 1 and puts the scale into the initial weights (Raffel
      et al. 2020, the code of its models).

    >>> import torch
    >>> from glassformer import ATTEND, Attention, Mask
    >>> attention = Attention(d_model=8, n_heads=2, attend=ATTEND["softmax"]["reference"])
    >>> attention(torch.zeros(1, 3, 8), mask=Mask(causal=True)).shape
    torch.Size([1, 3, 8])
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        attend: Attend,
        *,
        weigh: Weigh = attention_weights,
        n_kv_heads: int | None = None,
        d_head: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        qk_norm: Callable[[int], nn.Module] = nn.Identity,
        relation: Relation | None = None,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        if d_head is None and d_model % n_heads:
            raise ConfigError(
                f"d_model of Attention must be a multiple of n_heads; got d_model={d_model} and n_heads={n_heads}. "
                "Change one of them, or give d_head=, the width of a head."
            )
        if n_heads % (n_kv_heads or n_heads):
            raise ConfigError(
                f"n_heads of Attention must be a multiple of n_kv_heads; got {n_heads} and {n_kv_heads}. Change one."
            )
        self.d_model = d_model
        self.d_head = d_head if d_head is not None else d_model // n_heads
        self.scale = self.d_head**-0.5 if scale is None else scale
        self.dropout = dropout
        self.attend = attend
        self.weigh = weigh
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads or n_heads
        inner, shared = n_heads * self.d_head, self.n_kv_heads * self.d_head
        self.query = nn.Linear(d_model, inner, bias=bias)
        self.key = nn.Linear(d_model, shared, bias=bias)
        self.value = nn.Linear(d_model, shared, bias=bias)
        self.output = nn.Linear(inner, d_model, bias=bias)
        self.query_norm, self.key_norm = qk_norm(self.d_head), qk_norm(self.d_head)
        same_width("Attention", "qk_norm", self.query_norm, self.d_head)
        self.relation = relation
        if relation is not None:
            same_width("Attention", "relation", relation, self.d_head)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        mask: Mask | Tensor | None = None,
        source: Float[Tensor, "B S D"] | None = None,
        rotation: Rotation | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Attend from each position of x to `source`, or else to x itself; without a `mask`, to every position there.

        `mask` may be a tensor, as `Mask.of` reads it. A `cache` takes in the keys and values of new tokens, or already
        holds all those of a source.
        """
        B, T, _ = x.shape
        if T == 0 or (source is not None and source.shape[0] != B):
            raise ArgumentError(f"x needs at least one position, and source as many rows; got {T} and {source}.")
        q, k, v = self.projections(x, x if source is None else source, rotation, cache)
        rules = Mask.of(mask, q, k)
        if self.relation is not None:
            rules = self.relation(q, k, rules, scale=self.scale)
        mixed = self.attend(q, k, v, rules, scale=self.scale, dropout=self.dropout if self.training else 0.0)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def projections(
        self,
        x: Float[Tensor, "B T D"],
        source: Float[Tensor, "B M D"],
        rotation: Rotation | None,
        cache: LayerCache | None,
    ) -> tuple[Queries, Keys, Values]:
        """By head, the queries of x, and the keys and values that they read: the source's, or all in the cache."""
        q = rotate(self.query_norm(self.heads(self.query(x))), rotation)
        if cache is not None and cache.complete:
            return q, *cache.read()
        k, v = rotate(self.key_norm(self.heads(self.key(source))), rotation), self.heads(self.value(source))
        return (q, k, v) if cache is None else (q, *cache.append(k, v))

    def heads(self, x: Float[Tensor, "B T HK"]) -> Queries:
        """Split the vector of each position into one vector per head."""
        return x.unflatten(-1, (-1, self.d_head)).transpose(1, 2)

    @property
    def writers(self) -> list[nn.Linear]:
        """The linear maps that write to the residual stream."""
        return [self.output]
