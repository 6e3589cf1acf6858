"""Linear attention: a product of features replaces the exponential of softmax, so sums over keys can be kept."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F

from glassformer.base.errors import ConfigError
from glassformer.base.part import explained
from glassformer.base.shapes import Float, Keys, Queries, Tensor, Values, Weights
from glassformer.nn.attention import share_among_heads, weighted_sum
from glassformer.nn.backends import refuse
from glassformer.nn.mask import Mask
from glassformer.nn.sparse import by_rows

WRITTEN_OUT_UP_TO = 128 * 128
"""Up to this many weights (T x S) of one head, computing them all beats the sums on a CPU."""
CHUNK = 64
"""Positions per chunk of a causal row: weights are computed within a chunk, sums cover all chunks before it."""


def features(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """elu(x) + 1: x + 1 above 0, exp(x) below (Katharopoulos et al. 2020, equation 7); exact for small values."""
    return x.relu() + x.clamp(max=0).exp()


def from_features(y: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """The inverse of `features`: the x whose features are y, -inf where y is 0."""
    # The logarithm of 0 has no gradient, and would make NaN even where its value is not taken.
    log = torch.where(y > 0, y, 1.0).clamp(max=1).log()
    return torch.where(y > 1, y - 1, torch.where(y > 0, log, -torch.inf))


def linear_weights(q: Queries, k: Keys, mask: Mask, *, scale: float) -> Weights:
    """features(q) . features(k), divided by its sum over the readable keys (Katharopoulos et al. 2020, equation 4).

    `scale` is ignored, because scaling the products would not change these ratios. Each row sums to 1, or to 0 where no
    key may be read. Errors: `ConfigError` for a mask with a bias, a value bias or a pattern.
    """
    del scale
    check(mask)
    wide = torch.promote_types(q.dtype, torch.float32)
    shares = features(q.to(wide)) @ features(share_among_heads(k, q.shape[1]).to(wide)).mT
    allowed = mask.allowed(shares.shape[-2], shares.shape[-1], shares.device)
    if allowed is not None:
        shares = shares.masked_fill(~allowed, 0.0)
    return shares / nonzero(shares.sum(-1, keepdim=True))


@explained
def reference(q: Queries, k: Keys, v: Values, mask: Mask, *, scale: float, dropout: float = 0.0) -> Queries:
    """weights v, with all weights computed (`linear_weights`). Errors: as `check`."""
    check(mask, dropout)
    return weighted_sum(linear_weights(q, k, mask, scale=scale), v, mask).to(q.dtype)


@explained
def auto(q: Queries, k: Keys, v: Values, mask: Mask, *, scale: float, dropout: float = 0.0) -> Queries:
    """Linear attention by the backend that `pick` names for these inputs."""
    name, _ = pick(q.device.type, q.shape[2], k.shape[2], mask)
    chosen = reference if name == "reference" else sums
    return chosen(q, k, v, mask, scale=scale, dropout=dropout)


def pick(
    device: str, T: int, S: int, mask: Mask | None = None, *, flexible: bool = True, dropout: float = 0.0
) -> tuple[str, str]:
    """Choose `reference` for few weights and `sums` for many; return the name and the reason."""
    del device, mask, flexible, dropout
    if T * S <= WRITTEN_OUT_UP_TO:
        return "reference", "{T} x {S} weights on {device} are few enough to be written out"
    return "sums", "{T} x {S} weights on {device} would be many, and the sums of keys and values are not"


@explained
def sums(q: Queries, k: Keys, v: Values, mask: Mask, *, scale: float, dropout: float = 0.0) -> Queries:
    """features(q) (sum of features(k) v^T) divided by features(q) (sum of features(k)) (equations 5, 9 and 10).

    Time and memory grow with T + S. Causal sums run over columns; so a causal mask with positions, and any mask with
    documents or a prefix, computes the weights, some queries at a time (`by_rows`). Errors: as `check`.
    """
    check(mask, dropout)
    T, S = q.shape[2], k.shape[2]
    apart = any(each is not None for each in (mask.documents, mask.prefix, mask.table))
    if apart or (mask.causal and (mask.placed or T > S)):
        return by_rows(partial(reference, scale=scale), q, k, v, mask)
    wide = torch.promote_types(q.dtype, torch.float32)
    of_q, of_k = features(q.to(wide)).unflatten(1, (k.shape[1], -1)), features(k.to(wide))
    keep = mask.keep
    if mask.key_positions is not None:
        there = torch.atleast_2d(mask.key_positions >= 0)
        keep = there if keep is None else keep & there
    if keep is not None:
        of_k = of_k * keep[:, None, :, None]
    values = F.pad(v.to(wide), (0, 1), value=1.0)  # so that the last entry of each sum is the denominator
    mixed = causal_sums(of_q, of_k, values) if mask.causal else of_q @ (of_k.mT @ values)[:, :, None]
    return (mixed[..., :-1] / nonzero(mixed[..., -1:])).flatten(1, 2).to(q.dtype)


def causal_sums(
    of_q: Float[Tensor, "B G R T K"], of_k: Keys, values: Float[Tensor, "B G S W"]
) -> Float[Tensor, "B G R T W"]:
    """Each query's sum over keys up to its own position: by sums before its own chunk, by weights within it."""
    T, S = of_q.shape[3], of_k.shape[2]
    before = of_k[:, :, : S - T].mT @ values[:, :, : S - T]  # [B, G, K, W]
    fill = -T % min(CHUNK, T)
    q, k, w = (F.pad(x, (0, 0, 0, fill)) for x in (of_q, of_k[:, :, S - T :], values[:, :, S - T :]))
    q, k, w = (x.unflatten(-2, (-1, min(CHUNK, T))) for x in (q, k, w))  # [..., chunks, CHUNK, K]
    own = k.mT @ w
    before = before[:, :, None] + own.cumsum(2) - own
    k, w, before = (x[:, :, None] for x in (k, w, before))
    within = (q @ k.mT).tril()
    return (q @ before + within @ w).flatten(3, 4)[:, :, :, :T]


def nonzero(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Replace 0 by 1 in a denominator, so that a query that reads nothing gets 0."""
    return torch.where(x == 0, 1.0, x)


def check(mask: Mask, dropout: float = 0.0) -> None:
    """Raise `ConfigError` for what sums over keys cannot support: biases, patterns and attention dropout."""
    refuse(mask.value_bias, "linear")
    if mask.bias is not None:
        raise ConfigError(
            "A bias is added to attention scores, and linear attention has none; got bias=. "
            "Try positions='rotary', or attention_rule='softmax'."
        )
    if mask.sparse is not None:
        raise ConfigError(
            f"Linear attention reads all keys so far and cannot leave any out; got {mask.sparse}. "
            "Remove the pattern, or try attention_rule='softmax'."
        )
    if dropout:
        raise ConfigError(
            f"Linear attention never computes attention weights, so it cannot drop any; got dropout={dropout}. "
            "Set attention_dropout=0.0; dropout and feed_forward_dropout still work."
        )
