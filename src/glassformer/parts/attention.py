"""Multi-head attention: queries from x, keys and values from x itself or from a source."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from glassformer.attend import Attend, Mask, Weigh, attention_weights
from glassformer.foundation.shapes import Float, Tensor
from glassformer.parts.cache import LayerCache
from glassformer.parts.positions import Relation, Rotation, rotate


class Attention(nn.Module):
    """Concat(head_1, ..., head_H) W_output with head_i = attention(x W_query_i, source W_key_i, source W_value_i).

    Vaswani et al. 2017, section 3.2.2. With fewer key/value heads G than heads H, each serves H/G heads (Ainslie et
    al. 2023). `attend` is the one seam between projections and arithmetic; whoever wants to watch replaces it.
    `weigh` says which weights it uses. `qk_norm` makes a norm of a head's width for queries and one for keys, before
    they are turned, so that no score grows without bound (Henry et al. 2020, section 3; with a norm's own weights,
    Dehghani et al. 2023, section 2.1). `relation` is what a position scheme adds in this layer alone.
    `joined` is one map that gives query, key and value of self-attention, where decoding has put it in their place,
    `arithmetic` the dtype in which queries, keys and values are kept and multiplied where it is not that of x.
    `scale` multiplies the scores, by default with 1/sqrt(K); T5 leaves it to the first weights and takes 1 (Raffel et
    al. 2020, the code of its models).
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
        self.joined: nn.Module | None = None
        self.arithmetic: torch.dtype | None = None
        self.query_norm, self.key_norm = qk_norm(self.d_head), qk_norm(self.d_head)
        self.relation = relation

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        mask: Mask,
        source: Float[Tensor, "B S D"] | None = None,
        rotation: Rotation | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T D"]:
        """What each position of x reads. A cache may already hold all keys (of a source) or take the new ones in."""
        if cache is not None and cache.complete:
            q = rotate(self.query_norm(self.heads(self.query(x))), rotation)
            k, v = cache.read()
        else:
            q, k, v = (self.heads(each) for each in self.projected(x, source))
            q, k = rotate(self.query_norm(q), rotation), rotate(self.key_norm(k), rotation)
            if self.arithmetic is not None:
                k, v = k.to(self.arithmetic), v.to(self.arithmetic)
            if cache is not None:
                k, v = cache.append(k, v)
        if self.arithmetic is not None:
            q = q.to(self.arithmetic)
        if self.relation is not None:
            mask = self.relation(q, k, mask, scale=self.scale)
        mixed = self.attend(q, k, v, mask, scale=self.scale, dropout=self.dropout if self.training else 0.0)
        mixed = mixed.transpose(1, 2).flatten(2)
        return self.output(mixed if self.arithmetic is None else mixed.to(x.dtype))

    def projected(self, x: Float[Tensor, "B T D"], source: Float[Tensor, "B S D"] | None) -> tuple[Tensor, ...]:
        """Query, key and value of all heads side by side; without a source by one product, where maps were joined."""
        if self.joined is not None:
            assert source is None, "the maps of self-attention are joined"
            inner, shared = self.n_heads * self.d_head, self.n_kv_heads * self.d_head
            return self.joined(x).split([inner, shared, shared], dim=-1)
        source = x if source is None else source
        return self.query(x), self.key(source), self.value(source)

    def heads(self, x: Float[Tensor, "B T HK"]) -> Float[Tensor, "B H T K"]:
        """One vector a position cut into one a head."""
        return x.unflatten(-1, (-1, self.d_head)).transpose(1, 2)

    @property
    def writers(self) -> list[nn.Linear]:
        """The maps that write to the residual stream."""
        return [self.output]
