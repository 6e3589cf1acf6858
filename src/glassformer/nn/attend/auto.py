"""Choosing the fastest backend of softmax attention, from measured crossover points."""

from __future__ import annotations

from glassformer.base.shapes import Float, Tensor
from glassformer.nn.attend.flex import flex, obstacle
from glassformer.nn.attend.flex import pays as skipping_pays
from glassformer.nn.attend.mask import Mask
from glassformer.nn.attend.matmul import matmul
from glassformer.nn.attend.sdpa import sdpa
from glassformer.nn.attend.sparse import FEW, pays, sparse

MATMUL_UP_TO = 256 * 256
"""Up to this many scores (T x S) of one head, two matrix products beat the fused kernel on a CPU (`make bench`)."""


def pick(
    device: str, T: int, S: int, mask: Mask | None = None, *, flexible: bool = True, dropout: float = 0.0
) -> tuple[str, str]:
    """Choose a backend for a device type, the numbers of queries and keys, and a mask; return its name and the reason.

    `flexible`: FlexAttention supports this head width, dtype and dropout (`obstacle`).
    """
    name, reason = choice(device, T, S, mask, flexible=flexible, dropout=dropout)
    return name, reason.format(device=device, T=T, S=S)


def choice(
    device: str, T: int, S: int, mask: Mask | None, *, flexible: bool, dropout: float, narrow: bool = False
) -> tuple[str, str]:
    """As `pick`, with placeholders in the reason: lengths written into it would be part of what is compiled.

    `narrow`: the dtype is bfloat16 or float16.
    """
    if mask is not None and mask.value_bias is not None:
        return "matmul", "a value bias needs the attention weights, which the fused kernel does not store"
    if flexible and device == "cuda" and mask is not None and skipping_pays(mask, T, S):
        return "flex", "on {device}: packed documents leave most blocks of {T} x {S} scores unread, and it skips them"
    if mask is not None and pays(mask, T, S):
        return "sparse", FEW
    if device != "cpu":
        return "sdpa", "the fused kernel is fastest on {device}"
    if narrow and T == 1:
        return "sdpa", "one query of 16-bit numbers on a CPU: the fused kernel is several times as fast as two products"
    if T * S <= MATMUL_UP_TO:
        return "matmul", "{T} x {S} scores on a CPU: two products beat the fused kernel"
    if dropout:
        return "matmul", "on a CPU no fused kernel has dropout, so all {T} x {S} scores exist"
    if mask is not None and mask.bias is not None and mask.bias.requires_grad:
        return "matmul", "on a CPU no fused kernel learns a bias, so all {T} x {S} scores exist"
    return "sdpa", "{T} x {S} scores on a CPU: the fused kernel never holds them whole"


def auto(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B G S K"],
    v: Float[Tensor, "B G S K"],
    mask: Mask,
    *,
    scale: float,
    dropout: float = 0.0,
) -> Float[Tensor, "B H T K"]:
    """Attention by the backend that `pick` names for these inputs."""
    flexible = obstacle(q.device.type, q.shape[-1], q.dtype, learns=False, dropout=dropout) is None
    narrow = q.dtype.itemsize < 4
    name, _ = choice(q.device.type, q.shape[-2], k.shape[-2], mask, flexible=flexible, dropout=dropout, narrow=narrow)
    backend = {"matmul": matmul, "sparse": sparse, "sdpa": sdpa, "flex": flex}[name]
    return backend(q, k, v, mask, scale=scale, dropout=dropout)
