"""Blocks as our C++ reads them (fast/cpp/stack.cpp): sizes, settings and the addresses of their weights."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar, cast

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.fast.hooks import Hooks
from glassformer.fast.linear import FEW, Int8Linear, NativeLinear
from glassformer.fast.native import CMap, CNorm, c_map
from glassformer.nn.attention import Attention
from glassformer.nn.block import Block, Residual, ShortConvolution, StochasticDepth
from glassformer.nn.feed_forward import ACTIVATIONS, FeedForward, GatedFeedForward
from glassformer.nn.norm import LayerNorm, RMSNorm
from glassformer.nn.rules import ATTEND

SOFTMAX = frozenset(ATTEND["softmax"].values())
"""The rule of attention that stack.cpp computes."""
Part = TypeVar("Part", bound=nn.Module)
ORDER = tuple(
    ACTIVATIONS[name] for name in ("identity", "relu", "relu_squared", "sigmoid", "silu", "gelu", "gelu_tanh")
)
"""`Activates` of rows.h: the functions themselves, whatever is registered under these names later."""


class CResidual(ctypes.Structure):
    """`Residual` of blocks.h."""

    _fields_ = (
        *((name, CNorm) for name in ("in", "out", "sum")),
        *(("scale", ctypes.c_double), ("near", ctypes.c_int64), ("shares", ctypes.c_void_p)),
    )


class CAttention(ctypes.Structure):
    """`Attention` of blocks.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("heads", "kv_heads", "width")),
        ("scale", ctypes.c_double),
        *((name, CNorm) for name in ("query_norm", "key_norm")),
        ("inputs", CMap * 3),
        ("source", CMap * 2),
        ("output", CMap),
    )


class CFeedForward(ctypes.Structure):
    """`FeedForward` of blocks.h; a plain one has a `gate` of zeros."""

    _fields_ = (("activation", ctypes.c_int64), *((name, CMap) for name in ("up", "gate", "down")))


class CBlock(ctypes.Structure):
    """`Block` of blocks.h."""

    _fields_ = (
        ("parallel", ctypes.c_int64),
        ("around_own", CResidual),
        ("own", CAttention),
        ("crosses", ctypes.c_int64),
        ("around_cross", CResidual),
        ("cross", CAttention),
        ("around_forward", CResidual),
        ("forward", CFeedForward),
    )


@dataclass(frozen=True)
class Described:
    """Blocks for C++, and what must stay true while they are used."""

    blocks: ctypes.Array[CBlock]
    dtype: torch.dtype
    """Of the residual stream: float32 or float64."""
    attentions: list[Attention]
    crosses: bool
    near: int
    """How many earlier tokens convolutions read."""
    most: int | None
    """Rows up to which C++ is the faster way; None if it always is."""
    held: list[Tensor]
    """The tensors whose addresses the blocks have."""
    last: CNorm
    """After all blocks."""
    hooks: Hooks
    """Those of the blocks and all their parts."""

    @property
    def as_told(self) -> bool:
        """Whether modules still compute what C++ does: softmax attention that nobody watches, and no hooks."""
        return not self.hooks.any and all(each.attend in SOFTMAX for each in self.attentions)


def describe(blocks: Iterable[nn.Module], last: nn.Module) -> Described | None:
    """Describe the blocks of a stack and its last norm; None if stack.cpp does not do what one of their parts does."""
    told = _Telling()
    try:
        found = [told.block(cast(Block, each)) for each in blocks]
        norm = told.norm(last)
    except _Unknown:
        return None
    crosses, reach = any(each.crosses for each in found), reaches(found)
    if told.dtype is None or not alike(told.attentions, found, crosses=crosses) or len(reach) != 1:
        return None
    blocks_in_c = (CBlock * len(found))(*found)
    parts = (told.attentions, crosses, reach.pop(), told.most, told.held, norm, told.hooks)
    return Described(blocks_in_c, told.dtype, *parts)


def alike(attentions: list[Attention], blocks: list[CBlock], *, crosses: bool) -> bool:
    """Whether all blocks have keys of the same sizes, as their caches are made alike."""
    if not crosses:
        return one_size(attentions)
    widths = {getattr(each.cross.source[i], "in") for each in blocks for i in range(2)}
    return all(each.crosses for each in blocks) and one_size(attentions[::2], attentions[1::2]) and len(widths) == 1


def reaches(blocks: list[CBlock]) -> set[int]:
    """How far back convolutions read; more than one number if some read farther than others, or stand elsewhere."""
    elsewhere = {-each.around_cross.near for each in blocks if each.around_cross.near}
    return elsewhere | {around.near for each in blocks for around in (each.around_own, each.around_forward)}


def one_size(*kinds: list[Attention]) -> bool:
    """Whether all attentions of each kind have as many heads, of the same width."""
    return all(len({(each.n_heads, each.n_kv_heads, each.d_head) for each in kind}) == 1 for kind in kinds)


class _Unknown(Exception):
    """A part that stack.cpp does not have, or that drops something now."""


@dataclass
class _Telling:
    """Describes parts, one after another."""

    dtype: torch.dtype | None = None
    held: list[Tensor] = field(default_factory=list[Tensor])
    attentions: list[Attention] = field(default_factory=list[Attention])
    hooks: Hooks = field(default_factory=Hooks)
    most: int | None = None

    def block(self, block: nn.Module) -> CBlock:
        block = self.exactly(block, Block)
        cross = block.cross_attention
        return CBlock(
            block.parallel,
            self.residual(block.self_attention),
            self.attention(block.self_attention.branch, ("query", "key", "value")),
            cross is not None,
            CResidual() if cross is None else self.residual(cross),
            CAttention() if cross is None else self.attention(cross.branch, ("query",), ("key", "value")),
            self.residual(block.feed_forward),
            self.feed_forward(block.feed_forward.branch),
        )

    def exactly(self, module: nn.Module, kind: type[Part]) -> Part:
        """The module, if it is of this kind; a subclass, or a module with a `forward` of its own, may compute more."""
        if getattr(type(module), "exchanges", type(module)) is not kind or "forward" in vars(module):
            raise _Unknown
        self.hooks.watch(module)
        return cast(Part, module)

    def residual(self, residual: nn.Module) -> CResidual:
        residual = self.exactly(residual, Residual)
        self.drops(self.exactly(residual.dropout, nn.Dropout), residual.dropout.p)
        if residual.depth.p:
            self.drops(self.exactly(residual.depth, StochasticDepth), residual.depth.p)
        norms = (residual.norm_in, residual.norm_out, residual.norm_sum)
        near = None if residual.convolution is None else self.exactly(residual.convolution, ShortConvolution).weight
        convolution = (0, None) if near is None else (len(near), self.address(near))
        return CResidual(*(self.norm(each) for each in norms), residual.scale, *convolution)

    def drops(self, module: nn.Module, p: float) -> None:
        """Refuse what drops something now. Asked once a text: at each step, so many modules would have to be read."""
        if p and module.training:
            raise _Unknown

    def norm(self, norm: nn.Module) -> CNorm:
        if isinstance(norm, LayerNorm):
            norm = self.exactly(norm, LayerNorm)
            return CNorm(1, norm.eps, self.address(norm.weight), self.address(norm.bias))
        if isinstance(norm, RMSNorm):
            norm = self.exactly(norm, RMSNorm)
            return CNorm(2, norm.eps, self.address(norm.weight), None)
        self.exactly(norm, nn.Identity)
        return CNorm()

    def attention(self, attention: nn.Module, names: tuple[str, ...], of_source: tuple[str, ...] = ()) -> CAttention:
        attention = self.exactly(attention, Attention)
        if attention.relation is not None:
            raise _Unknown
        self.attentions.append(attention)
        self.drops(attention, attention.dropout)
        joined = attention.joined
        maps = [self.map(getattr(attention, name)) for name in names] if joined is None else [self.map(joined)]
        return CAttention(
            *(attention.n_heads, attention.n_kv_heads, attention.d_head, attention.scale),
            *(self.norm(each) for each in (attention.query_norm, attention.key_norm)),
            (CMap * 3)(*maps),
            (CMap * 2)(*(self.map(getattr(attention, name)) for name in of_source)),
            self.map(attention.output),
        )

    def feed_forward(self, branch: nn.Module) -> CFeedForward:
        gated = isinstance(branch, GatedFeedForward)
        branch = self.exactly(branch, GatedFeedForward) if gated else self.exactly(branch, FeedForward)
        self.drops(self.exactly(branch.dropout, nn.Dropout), branch.dropout.p)
        if branch.activation not in ORDER:
            raise _Unknown
        gate = self.map(branch.gate) if isinstance(branch, GatedFeedForward) else CMap()
        return CFeedForward(ORDER.index(branch.activation), self.map(branch.up), gate, self.map(branch.down))

    def map(self, linear: nn.Module) -> CMap:
        if isinstance(linear, Int8Linear):
            linear = self.exactly(linear, Int8Linear)
            weight, step, sizes = linear.weight, linear.step, (linear.n_inputs, linear.n_outputs)
        elif isinstance(linear, NativeLinear):
            linear = self.exactly(linear, NativeLinear)
            weight, step, sizes = linear.weight.detach(), None, (linear.n_inputs, linear.n_outputs)
            self.most = self.most if linear.packed is None else FEW
        else:
            linear = self.exactly(linear, nn.Linear)
            self.see(linear.weight.dtype)
            weight, step, sizes = linear.weight.detach(), None, (linear.in_features, linear.out_features)
        bias = None if linear.bias is None else linear.bias.detach()
        if not (weight.is_contiguous() and (bias is None or bias.is_contiguous())):
            raise _Unknown
        self.see(torch.float32 if weight.dtype in (torch.int8, torch.bfloat16) else weight.dtype)
        self.held += [each for each in (weight, step, bias) if each is not None]
        if bias is not None:
            self.see(bias.dtype)
        return c_map(weight, step, bias, *sizes)

    def address(self, tensor: Tensor) -> int:
        self.see(tensor.dtype)
        self.held.append(tensor.detach().contiguous())
        return self.held[-1].data_ptr()

    def see(self, dtype: torch.dtype) -> None:
        """All numbers that are computed have one dtype."""
        if self.dtype not in (None, dtype) or dtype not in (torch.float32, torch.float64):
            raise _Unknown
        self.dtype = dtype
