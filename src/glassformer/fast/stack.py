"""Stacks in C++: one call for all blocks, in place of about twenty operations of torch in each.

Between two products of a decoding step lie a dozen small operations, which take longer to begin than to do; in a prompt
each of them reads and writes all numbers once more. fast/cpp/stack.cpp does them all; this module tells it of the
blocks, and where their keys and values lie.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar, cast

import torch
from torch import nn

from glassformer.base.errors import ResourceError
from glassformer.base.shapes import Float, Int, Tensor
from glassformer.fast.native import (
    FEW,
    LAYOUTS,
    CKeys,
    CMap,
    CNearby,
    CNorm,
    CRotation,
    Hooks,
    Int8Linear,
    NativeLinear,
    Places,
    address,
    c_map,
    can_lie_in_buffers,
    declared,
    has_cpp,
    may_go_on,
    reading,
)
from glassformer.nn.attention import Attention, LayerCache
from glassformer.nn.block import Block, Nearby, Residual, StochasticDepth
from glassformer.nn.cache import Cache
from glassformer.nn.convolution import ShortConvolution
from glassformer.nn.feed_forward import ACTIVATIONS, FeedForward, GatedFeedForward
from glassformer.nn.mask import Mask
from glassformer.nn.norm import LayerNorm, RMSNorm
from glassformer.nn.positions import Rotation
from glassformer.nn.rules import ATTEND
from glassformer.nn.stack import Context, Stack
from glassformer.nn.step import steps_back
from glassformer.nn.transformer import Transformer

# Blocks as our C++ reads them (fast/cpp/stack.cpp): sizes, settings and the addresses of their weights.

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
class NativeBlocks:
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
    def still_valid(self) -> bool:
        """Whether modules still compute what C++ does: softmax attention that nobody watches, and no hooks."""
        return not self.hooks.any and all(each.attend in SOFTMAX for each in self.attentions)


def describe(blocks: Iterable[nn.Module], last: nn.Module) -> NativeBlocks | None:
    """Describe the blocks of a stack and its last norm; None if stack.cpp does not do what one of their parts does."""
    parts = _Parts()
    try:
        found = [parts.block(cast(Block, each)) for each in blocks]
        norm = parts.norm(last)
    except _Unknown:
        return None
    crosses, reach = any(each.crosses for each in found), reaches(found)
    if parts.dtype is None or not of_same_sizes(parts.attentions, found, crosses=crosses) or len(reach) != 1:
        return None
    blocks_in_c = (CBlock * len(found))(*found)
    rest = (parts.attentions, crosses, reach.pop(), parts.most, parts.held, norm, parts.hooks)
    return NativeBlocks(blocks_in_c, parts.dtype, *rest)


def of_same_sizes(attentions: list[Attention], blocks: list[CBlock], *, crosses: bool) -> bool:
    """Whether all blocks have keys of the same sizes, as their caches are made for one size."""
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
class _Parts:
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
        if residual.depth is not None:
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
        joined = getattr(attention, "joined", None)
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


# Running the blocks: whether C++ can, and where keys and values lie.

LONG = 256 * 256
"""Up to this many pairs of a text's tokens and keys, C++ is the faster way: it reads all keys for each token."""


class StackInCpp(Stack):
    """A stack that runs its blocks in C++, be it one token per text or many.

    What C++ does not do is left to `Stack.run`: gradients, a model that is watched (`watch_attention`), modules with
    hooks, and a decoder that reads a memory without a cache. So are texts that begin while a dropout is in training;
    where one comes to be so later, the text goes on without it.
    """

    running: Running | None

    def run(
        self, x: Float[Tensor, "B T D"], contexts: Sequence[Context], cache: Cache | None = None
    ) -> Float[Tensor, "B T D"]:
        """As `Stack.run`."""
        if torch.compiler.is_compiling():
            return super().run(x, contexts, cache)
        if cache is None or not may_go_on(cache.layers):
            self.running = None
        context = contexts[0]  # of all blocks: a stack with `layers` is not run here
        if not may_begin(self, x, context, cache):
            return super().run(x, contexts, cache)
        if (running := self.running) is None:
            running = self.running = Running(describe(self.blocks, self.norm))
        if running.blocks is None or not may_run(running.blocks, x, context, cache):
            return super().run(x, contexts, cache)
        return run(running, running.blocks, x, context, cache)


@dataclass
class Running:
    """The blocks as C++ has them, and where the last cache lay.

    It ends when a text begins, in C++ or not, as weights may have been exchanged since, or dropouts be in training.
    """

    blocks: NativeBlocks | None
    own: Places | None = None
    cross: Places | None = None
    near: Places | None = None

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Copied weights lie elsewhere, so a copy of the stack knows nothing yet."""
        return type(None), ()


def may_begin(stack: Stack, x: Float[Tensor, "B T D"], context: Context, cache: Cache | None) -> bool:
    """Whether C++ may run this call, if it knows the blocks."""
    if torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or stack.training:
        return False
    if x.device.type != "cpu" or not x.numel() or context.mask.value_bias is not None:
        return False
    if cache is not None and not can_lie_in_buffers(cache.layers):
        return False
    T = x.shape[1]
    memory = 0 if context.memory is None else context.memory.shape[1]
    return T == 1 or T * max(T if cache is None else cache.length, memory) <= LONG


def may_run(blocks: NativeBlocks, x: Float[Tensor, "B T D"], context: Context, cache: Cache | None) -> bool:
    """Whether C++ can run this call with these blocks."""
    rotation: Rotation | None = context.rotation
    if rotation is not None and (rotation.layout not in LAYOUTS or rotation.cos.dtype != x.dtype):
        return False
    if x.dtype != blocks.dtype or not blocks.still_valid:
        return False
    new = len(x) * x.shape[1]
    if not blocks.crosses:
        return blocks.most is None or new <= blocks.most
    memory = context.memory
    if memory is None or cache is None:
        return False
    if not cache.cross[0].complete:  # its keys are to be made in C++
        width = getattr(blocks.blocks[0].cross.source[0], "in")
        if memory.dtype != x.dtype or memory.device != x.device or memory.shape[::2] != (len(x), width):
            return False
        new = max(new, len(x) * memory.shape[1])
    return blocks.most is None or new <= blocks.most


def run(
    running: Running, blocks: NativeBlocks, x: Float[Tensor, "B T D"], context: Context, cache: Cache | None
) -> Float[Tensor, "B T D"]:
    """All tokens through all blocks and the last norm; their keys and values are added to the cache.

    While C++ computes, another thread may run a call with another cache: what this one reads is kept by its own names.
    """
    B, T, D = x.shape
    attention, held = blocks.attentions[0], list[Any]()
    if cache is None:
        own = reading(CKeys(fresh=True), T, context.mask, x, attention.n_heads, held)
    else:
        layers = cast(list[Any], cache.layers)
        for layer in layers:
            layer.claim((B, attention.n_kv_heads, T, attention.d_head), x.dtype)
        running.own = mine = places(running.own, layers, x.dtype)
        held += [mine, at := layers[0].newest(B, T)]
        own = mine.reading(layers, context.mask, x, attention.n_heads, held)
        own.fresh, own.at = True, address(at)
    cross = CKeys()
    if blocks.crosses:
        assert cache is not None, "asked before"
        cross = among_those_of_memory(running, cast(list[Any], cache.cross), x, context, blocks.attentions[1], held)
    rotation = rotation_of(context.rotation, B, T, held)
    y = x.clone(memory_format=torch.contiguous_format)
    nearby = CNearby()
    if blocks.near:
        nearby = read_nearby(running, blocks.near, context.nearby, x, None if cache is None else cache.convolved, held)
    last, *references = (ctypes.byref(each) for each in (blocks.last, rotation, own, cross, nearby))
    sizes, threads = (B * T, T, D), torch.get_num_threads()
    try:
        function(blocks.dtype)(blocks.blocks, len(blocks.blocks), last, y.data_ptr(), *sizes, *references, threads)
    except ResourceError:
        if cross.memory:  # its keys are not there, though there is room for them
            for layer in cast(Cache, cache).cross:
                cast(Any, layer).clear()
        raise
    return y


def among_those_of_memory(
    running: Running,
    layers: list[Any],
    x: Float[Tensor, "B T D"],
    context: Context,
    attention: Attention,
    held: list[Any],
) -> CKeys:
    """The keys of the encoder's memory, with room for them when a text begins."""
    memory = None if layers[0].complete or context.memory is None else context.memory.contiguous()
    if memory is not None:
        for layer in layers:
            layer.claim((len(x), attention.n_kv_heads, memory.shape[1], attention.d_head), x.dtype)
    running.cross = read = places(running.cross, layers, x.dtype)
    held += [read, memory]
    cross = read.reading(layers, context.memory_mask or Mask(), x, attention.n_heads, held)
    cross.memory = None if memory is None else memory.data_ptr()
    return cross


def read_nearby(
    running: Running, count: int, nearby: Nearby | None, x: Float[Tensor, "B T D"], cache: Cache | None, held: list[Any]
) -> CNearby:
    """The tokens that convolutions read before each, with room for the new ones."""
    B, T, D = x.shape
    columns = columns_of(nearby, count, T).expand(count, B, T).contiguous()
    held.append(columns)
    made = CNearby(rows=B * T, columns=columns.data_ptr())
    if cache is None:
        return made
    layers = cast(list[Any], cache.layers)
    for layer in layers:
        layer.claim((B, 1, T, D), x.dtype, values=False)
    running.near = mine = places(running.near, layers, x.dtype)
    made.indirection, made.known = mine.indirection(layers, B, held)
    held += [mine, at := layers[0].newest(B, T)]
    made.first, made.at = layers[0].width - T, address(at)
    made.layers, made.lie = mine.keys.k, mine.keys.keys
    return made


def columns_of(nearby: Nearby | None, count: int, T: int) -> Int[Tensor, "N #B T"]:
    """The columns of the `count` tokens before each of T, wherever `nearby` says that they are; -1 for none."""
    if nearby is not None and nearby.columns is not None:
        return nearby.columns if nearby.columns.ndim == 3 else nearby.columns[:, None]
    places = torch.arange(T)[None]
    columns = (places - steps_back(count, places)).clamp(min=-1)
    return columns if nearby is None or nearby.real is None else torch.where(nearby.real, columns, -1)


def places(before: Places | None, layers: Sequence[LayerCache], dtype: torch.dtype) -> Places:
    """Those of the last call, if no layer has moved."""
    return before if before is not None and before.are_those_of(layers) else Places(layers, dtype)


def rotation_of(rotation: Rotation | None, B: int, T: int, held: list[Any]) -> CRotation:
    """The angles of each token."""
    if rotation is None:
        return CRotation()
    pairs = rotation.cos.shape[-1]
    cos, sin = (each.expand(B, T, pairs).contiguous() for each in (rotation.cos, rotation.sin))
    held += [cos, sin]
    return CRotation(pairs, LAYOUTS.index(rotation.layout), pairs, cos.data_ptr(), sin.data_ptr())


@cache
def function(dtype: torch.dtype) -> Any:
    """The function of stack.cpp for numbers of this dtype."""
    name = {torch.float32: "stack_float", torch.float64: "stack_double"}[dtype]
    pointer = ctypes.c_void_p
    sizes = (ctypes.c_int64, pointer, pointer, *[ctypes.c_int64] * 3)
    return declared(name, ctypes.POINTER(CBlock), *sizes, *[pointer] * 4, ctypes.c_int)


def can_run(stack: Stack) -> bool:
    """Whether a stack can run in C++ here.

    One whose layers read windows keeps its cache of bounded size instead, whose columns move; one whose blocks differ
    (`layers`) runs in torch.
    """
    if stack.config.pattern is not None or stack.config.layers:
        return False
    if not has_cpp() or next(stack.parameters()).device.type != "cpu":
        return False
    return (blocks := describe(stack.blocks, stack.norm)) is not None and blocks.still_valid


def with_native_stacks(model: Transformer) -> Transformer:
    """Make the stacks of a model run in C++ where they can, and return it."""
    for stack in (model.encoder, model.decoder):
        if stack is not None and can_run(stack):
            stack.__class__ = StackInCpp
            cast(StackInCpp, stack).running = None
    return model
