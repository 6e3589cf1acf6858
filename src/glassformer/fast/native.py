"""Our C++ (fast/cpp): what it gets of a model, and how it is called.

The structures here have the fields of those in C++, in the same order. An address is valid as long as
its tensor is; so `NativeBlocks` keeps each tensor that it names.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, cast
from weakref import ref

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.module import _has_any_global_hook  # pyright: ignore[reportPrivateUsage]
from torch.utils.hooks import RemovableHandle

from glassformer.base.errors import ConfigError, DataError, ResourceError
from glassformer.base.runtime import has_bfloat16
from glassformer.base.shapes import Float, Int, Num, Tensor
from glassformer.base.tracing import followed
from glassformer.fast.compiler import library
from glassformer.nn.attention import LayerCache
from glassformer.nn.cache import Growing
from glassformer.nn.compact_cache import Rolling, Rounded, Slotted, rounded
from glassformer.nn.lowered import lower
from glassformer.nn.mask import Mask

CPP = Path(__file__).with_name("cpp") / "stack.cpp"
LACKS = "There is no memory to run a model's blocks. Give fewer texts at once, or free some memory."
GROUP, BYTES, FILLED = 16, 4, 8
"""How tiles.h reads a matrix: sixteen rows together, four bytes of each at a time, and a multiple of eight columns."""
NUMBERS = {torch.float32: 0, torch.float64: 0, torch.bfloat16: 1, torch.int8: 2}
"""`Kind` of tiles.h: weights in the numbers of the input, in bfloat16, or in 8 bits."""

NAMES = {torch.float32: "float", torch.float64: "double", torch.bfloat16: "bfloat16"}
"""What our C++ for training calls the numbers of a tensor, in the names of its functions."""

LAYOUTS = ("half", "interleaved")
"""Pairs of numbers that C++ can rotate, of `ROTARY_LAYOUTS`."""


class CMap(ctypes.Structure):
    """`Map` of tiles.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("kind", "in", "out")),
        *((name, ctypes.c_void_p) for name in ("weight", "step", "bias")),
    )


class CNorm(ctypes.Structure):
    """`Norm` of rows.h; all zeros for no norm."""

    _fields_ = (
        ("kind", ctypes.c_int64),
        ("eps", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("weight", "bias")),
    )


class CRotation(ctypes.Structure):
    """`Rotation` of rows.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("pairs", "interleaved", "row")),
        *((name, ctypes.c_void_p) for name in ("cos", "sin")),
    )


@cache
def has_cpp(source: Path = CPP) -> bool:
    """Whether our C++ can be used here: there is a compiler, or was, and the cache folder can be used. Asked once."""
    with suppress(ConfigError, ResourceError):
        return bool(library(source))
    return False


def may_read(*tensors: Tensor | None) -> bool:
    """Whether our C++ may read these from where they lie: on a CPU, and nobody wants to see each operation on them."""
    given = [each for each in tensors if each is not None]
    plain = all(type(each) in (Tensor, nn.Parameter) and not each.is_neg() for each in given)
    return plain and not followed() and all(each.device.type == "cpu" for each in given)


def in_pieces(weight: Num[Tensor, "N D"]) -> Num[Tensor, "groups pieces 16 columns"]:
    """Lay out a matrix in the order in which our C++ reads it, filled up with zeros.

    In 8 bits each group begins with one piece more, which C++ writes: a whole number for each row that belongs to the
    way in which this processor multiplies (quads.h). Errors: `ValueError` for 8 bits that are not on a CPU.
    """
    N, D = weight.shape
    columns = BYTES // weight.element_size()
    filled = F.pad(weight, (0, -D % FILLED, 0, -N % GROUP))
    pieces = filled.view(-1, GROUP, filled.shape[1] // columns, columns).transpose(1, 2)
    if weight.dtype != torch.int8:
        return pieces.contiguous()
    if weight.device.type != "cpu":
        raise ValueError(f"Our C++ multiplies 8 bits on a CPU; got a weight on {weight.device}.")
    whole = F.pad(pieces, (0, 0, 0, 0, 1, 0)).contiguous()
    write_heads(whole)
    return whole


def write_heads(whole: Num[Tensor, "groups pieces 16 columns"]) -> None:
    """Write what a weight in 8 bits, laid out by `in_pieces`, has for the way in which this processor multiplies."""
    columns = (whole.shape[1] - 1) * whole.shape[3]
    declared("write_heads", ctypes.c_void_p, *[ctypes.c_int64] * 2)(whole.data_ptr(), len(whole), columns)


def c_map(weight: Num[Tensor, "..."], step: Tensor | None, bias: Tensor | None, D: int, N: int) -> CMap:
    """Tell C++ of a map from D numbers to N.

    `weight` is [N, D], or in bfloat16 and in 8 bits laid out by `in_pieces`; in 8 bits with a `step` [N]. Errors:
    `ValueError` for tensors of other sizes, or that lie in memory otherwise.
    """
    kind = NUMBERS.get(weight.dtype)
    columns = max(1, BYTES // weight.element_size())
    pieces = (-(-N // GROUP), -(-D // FILLED) * FILLED // columns + (weight.dtype == torch.int8), GROUP, columns)
    fits = weight.shape == ((N, D) if kind == 0 else pieces) and (step is not None) == (weight.dtype == torch.int8)
    whole = all(each is None or each.is_contiguous() for each in (weight, step, bias))
    numbers = weight.dtype if kind == 0 else torch.float32
    beside = all(each is None or (each.shape == (N,) and each.dtype == numbers) for each in (step, bias))
    if not (kind is not None and D and N and fits and whole and beside):
        raise ValueError(
            f"A map from {D} numbers to {N} needs a contiguous weight of that size, {N} steps if it is in 8 bits, and "
            f"steps and bias in {numbers}; got a weight of {[*weight.shape]} in {weight.dtype}."
        )
    return CMap(kind, D, N, *map(address, (weight, step, bias)))


def product(
    x: Float[Tensor, "M D"], weight: Num[Tensor, "..."], step: Tensor | None, bias: Tensor | None, N: int
) -> Float[Tensor, "M N"]:
    """x W^T + b in float32, as `c_map` has it, without gradients. Errors: as `float_map` and `multiply`."""
    return multiply(x, float_map(weight, step, bias, x.shape[1], N))


def float_map(weight: Num[Tensor, "..."], step: Tensor | None, bias: Tensor | None, D: int, N: int) -> CMap:
    """`c_map` of a map of float32. Errors: `ValueError` as there, and for weights that are not on a CPU, or float64."""
    if weight.device.type != "cpu" or weight.dtype == torch.float64:
        raise ValueError(f"Our C++ multiplies float32 on a CPU; got a weight in {weight.dtype} on {weight.device}.")
    return c_map(weight, step, bias, D, N)


def multiply(x: Float[Tensor, "*where D"], c_map: CMap) -> Float[Tensor, "*where N"]:
    """The map at each position. Errors: `ValueError` for other numbers than float32 on a CPU."""
    if x.device.type != "cpu" or x.dtype != torch.float32:
        raise ValueError(f"Our C++ reads float32 on a CPU; got {x.dtype} on {x.device}.")
    x = x.contiguous()
    where = x.shape[:-1]
    y = x.new_empty(*where, c_map.out)
    linear_map = declared("linear_map", *[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_int)
    linear_map(ctypes.byref(c_map), x.data_ptr(), y.data_ptr(), where.numel(), torch.get_num_threads())
    return y


@cache
def declared(name: str, *arguments: Any, source: Path = CPP, lacks: str = LACKS) -> Callable[..., None]:
    """A function of our C++. Errors: `ResourceError` if there is no memory for what it computes, as `lacks` tells."""

    def check(enough: bool, function: Any, arguments: Any) -> None:
        if not enough:
            raise ResourceError(lacks)

    found = getattr(library(source), name)
    found.argtypes, found.restype, found.errcheck = arguments, ctypes.c_bool, check
    return found


def address(tensor: Tensor | None) -> int | None:
    """Where a tensor lies, if there is one."""
    return None if tensor is None else tensor.data_ptr()


def forward_or_backward(source: Path, name: str, lacks: str = LACKS) -> Callable[..., None]:
    """A function of our C++ for training, called with a structure, whether it goes backward, and the threads."""
    return declared(name, ctypes.c_void_p, ctypes.c_bool, ctypes.c_int, source=source, lacks=lacks)


# Where the keys and values of a cache lie, and which may be read, as our C++ gets it (`Keys` of keys.h).


class CKeys(ctypes.Structure):
    """`Keys` of keys.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("length", "causal", "fresh")),
        *((name, ctypes.c_int64 * 3) for name in ("keys", "values", "key_steps", "value_steps")),
        *(("added", ctypes.c_void_p), ("added_at", ctypes.c_int64 * 3)),
        *(("blind", ctypes.c_void_p), ("blind_at", ctypes.c_int64 * 3)),
        *((name, ctypes.c_void_p) for name in ("at", "k", "v", "k_step", "v_step", "memory", "indirection")),
        ("known", ctypes.c_int64),
    )


class CNearby(ctypes.Structure):
    """`Nearby` of keys.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "first")),
        *((name, ctypes.c_void_p) for name in ("columns", "at", "layers", "indirection")),
        ("known", ctypes.c_int64),
        ("lie", ctypes.c_int64 * 3),
    )


def numbers_of(layer: LayerCache) -> LayerCache:
    """The layer cache that holds a layer's keys and values as numbers; in 8 bits, their steps lie in another."""
    return layer.numbers if isinstance(layer, Rounded) else layer


def can_lie_in_buffers(layers: Sequence[LayerCache]) -> bool:
    """Whether C++ can read these layers where they are, and write new keys there.

    They are of one kind, and what convolutions keep lies in buffers if they do: `new_cache` and `new_slots` see to it.
    """
    return type(numbers_of(layers[0])) in (Growing, Rolling, Slotted)


def may_go_on(layers: Sequence[LayerCache]) -> bool:
    """Whether each text has begun: whether there are keys in buffers."""
    first = cast(Any, layers[0])
    return can_lie_in_buffers(layers) and first.buffers is not None


class Places:
    """Where all layers of a cache keep their keys and values: found once, as long as no layer moves."""

    def __init__(self, layers: Sequence[LayerCache], dtype: torch.dtype) -> None:
        """Errors: `ValueError` for layers that do not lie alike in memory."""
        held = cast(list[Any], layers)
        buffers: list[tuple[Tensor, Tensor]] = [layer.buffers for layer in held]
        self._keys = [ref(keys) for keys, _ in buffers]  # a layer that moves must not keep its old room
        self._room = (buffers[0][0].shape[0], buffers[0][0].shape[2])
        self._spare = isinstance(numbers_of(layers[0]), Slotted)  # rows for texts to come
        self.keys = CKeys()
        self._addresses: list[Any] = []
        rounds = isinstance(held[0], Rounded)
        self._fill(buffers, torch.int8 if rounds else dtype, ("keys", "values"), ("k", "v"))
        if rounds:
            steps = [layer.steps.buffers for layer in held]
            self._fill(steps, torch.float32, ("key_steps", "value_steps"), ("k_step", "v_step"))

    def _fill(
        self, pairs: list[tuple[Tensor, Tensor]], dtype: torch.dtype, lie: tuple[str, str], at: tuple[str, str]
    ) -> None:
        for tensors, of, pointers in zip(zip(*pairs, strict=True), lie, at, strict=True):
            strides, shape = tensors[0].stride(), tensors[0].shape
            same = all(each.stride() == strides and each.shape == shape and each.dtype == dtype for each in tensors)
            if not (same and (strides[3] == 1 or shape[3] == 1)):
                raise ValueError(f"All layers of a cache must lie alike in memory, in {dtype}; got {[*shape]}.")
            addresses = (ctypes.c_void_p * len(tensors))(*(each.data_ptr() for each in tensors))
            setattr(self.keys, of, strides[:3])
            setattr(self.keys, pointers, ctypes.addressof(addresses))
            self._addresses.append(addresses)

    def are_those_of(self, layers: Sequence[LayerCache]) -> bool:
        """Whether each layer is still where it was."""
        return all(layer.buffers[0] is keys() for layer, keys in zip(cast(list[Any], layers), self._keys, strict=True))

    def reading(
        self, layers: Sequence[LayerCache], mask: Mask, x: Float[Tensor, "B T D"], heads: int, held: list[Any]
    ) -> CKeys:
        """These places for the next call, which reads all columns. `held` gets what must outlive the call.

        Errors: as `indirection`.
        """
        self.keys.indirection, self.keys.known = self.indirection(layers, len(x), held)
        return reading(self.keys, cast(Any, layers[0]).width, mask, x, heads, held)

    def indirection(self, layers: Sequence[LayerCache], B: int, held: list[Any]) -> tuple[int | None, int]:
        """Where it stands in which rows the first columns lie, and how many; the others lie in their own rows.

        Errors: `ValueError` for fewer rows or columns than are read, more rows, or layers that lie otherwise.
        """
        (rows, columns), length = self._room, cast(Any, layers[0]).width
        indirections = [each.stay() for each in layers if isinstance(each, Growing | Rounded)]
        indirection = indirections[0] if indirections else None
        if any((each is None) != (indirection is None) for each in indirections):
            raise ValueError("All layers of a cache must lie alike in memory; modules have read some of them only.")
        if indirection is None:
            fits = rows == B or (rows > B and self._spare)
        else:
            fits = len(indirection) == B and (rows >= B or indirection.shape[1] == length)
        if columns < length or not fits:
            raise ValueError(
                f"A cache must hold a row for each of {B} texts, of {length} columns; got one of {rows} by {columns}."
            )
        if indirection is None:
            return None, 0
        held.append(indirection)
        return indirection.data_ptr(), indirection.shape[1]


def reading(keys: CKeys, length: int, mask: Mask, x: Float[Tensor, "B T D"], heads: int, held: list[Any]) -> CKeys:
    """Fill in which keys each token may read. `held` gets what must outlive the call."""
    B, T, _ = x.shape
    causal = mask.only_causal
    keys.length, keys.causal, keys.added, keys.blind, keys.memory = length, causal, None, None, None
    if causal:  # no numbers for pairs of tokens are needed
        return keys
    lowered = lower(mask, T, length, x)
    if lowered.added is not None:
        added = lowered.added.expand(B, heads, T, length)
        held.append(added := added if added.stride(-1) == 1 else added.contiguous())
        keys.added, keys.added_at = added.data_ptr(), added.stride()[:3]
    if lowered.blind is not None:
        held.append(blind := lowered.blind.expand(B, heads, T, 1))
        keys.blind, keys.blind_at = blind.data_ptr(), blind.stride()[:3]
    return keys


# Whether modules have hooks, asked at every step of decoding.


class Hooks:
    """The forward hooks of some modules, and those of all modules.

    torch numbers hooks as they are registered. So where there were none, there are none as long as no number was given,
    and most steps need not look at each module, whose tables the weights have driven out of the processor's cache.
    """

    def __init__(self) -> None:
        self._attributes: list[dict[str, Any]] = []  # of modules, as their tables of hooks may be exchanged
        self._none_until: int | None = None

    def watch(self, module: nn.Module) -> None:
        """Adds a module."""
        self._attributes.append(vars(module))
        self._none_until = None

    @property
    def any(self) -> bool:
        """Whether there is one now."""
        if self._none_until == RemovableHandle.next_id:
            return False
        found = bool(_has_any_global_hook()) or any(
            each["_forward_hooks"] or each["_forward_pre_hooks"] for each in self._attributes
        )
        self._none_until = None if found else RemovableHandle.next_id
        return found


# Linear maps for decoding on a CPU: by our C++, by oneDNN with packed weights, and in 8 bits.

FEW = 32
"""Beyond this many positions, bfloat16 is multiplied by oneDNN where the processor has instructions for it."""

OURS = torch.library.Library("glassformer", "DEF")
OURS.define("native_product(Tensor x, Tensor weight, Tensor? step, Tensor? bias, int N) -> Tensor")
OURS.define("packed_product(Tensor x, Tensor packed, Tensor? bias, int width) -> Tensor")

native_product = torch.ops.glassformer.native_product.default
"""The whole map in one call: `product` of native.py."""
packed_product = torch.ops.glassformer.packed_product.default
"""x W^T + b, with `width` numbers per position; `packed` by `_reorder_linear_weight`."""


def _packed(x: Tensor, packed: Tensor, bias: Tensor | None, width: int) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")


def _like_native(x: Tensor, weight: Tensor, step: Tensor | None, bias: Tensor | None, N: int) -> Tensor:
    return x.new_empty(x.shape[0], N)  # len() would fix the number of rows


def _like_packed(x: Tensor, packed: Tensor, bias: Tensor | None, width: int) -> Tensor:
    return x.new_empty(*x.shape[:-1], width)


for key in ("CPU", "MkldnnCPU"):  # inputs are dense tensors, weights are in oneDNN's layout
    OURS.impl("packed_product", _packed, key)
OURS.impl("native_product", product, "CPU")
torch.library.register_fake("glassformer::native_product", _like_native, lib=OURS)  # only shapes, for the compiler
torch.library.register_fake("glassformer::packed_product", _like_packed, lib=OURS)


class NativeMap:
    """`product` at each position, from D numbers to N, in float32; also while steps are compiled.

    The module that has this map has its tensors. If they move, or become others, C++ gets them anew.
    """

    def __init__(self, D: int, N: int) -> None:
        self._sizes = (D, N)
        self._made: tuple[list[Any], CMap] | None = None

    def __reduce__(self) -> tuple[type[NativeMap], tuple[int, int]]:
        """Copied tensors lie elsewhere, so a copy knows nothing yet."""
        return NativeMap, self._sizes

    def __call__(
        self, x: Float[Tensor, "*where D"], weight: Num[Tensor, "..."], step: Tensor | None, bias: Tensor | None
    ) -> Float[Tensor, "*where N"]:
        """Errors: `ValueError` as `product`, and for an x of another width."""
        D, N = self._sizes
        if x.shape[-1] != D:  # the pieces of a weight may have room for some more
            raise ValueError(f"A map from {D} numbers to {N} got {x.shape[-1]} numbers at each position.")
        if torch.compiler.is_compiling():
            return native_product(x.reshape(-1, D).float(), weight, step, bias, N).view(*x.shape[:-1], N)
        return multiply(x.float(), self._map_of(weight, step, bias))

    def _map_of(self, weight: Tensor, step: Tensor | None, bias: Tensor | None) -> CMap:
        of = [place_of(weight), place_of(step), place_of(bias)]
        made = self._made
        if made is None or made[0] != of:
            made = self._made = (of, float_map(weight, step, bias, *self._sizes))
        return made[1]


def place_of(tensor: Tensor | None) -> Any:
    """Where a tensor lies in memory, and how."""
    return None if tensor is None else (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())


def can_pack(device: torch.device) -> bool:
    """Whether oneDNN multiplies matrices on this device."""
    return device.type == "cpu" and torch.backends.mkldnn.is_available()


class PackedLinear(nn.Module):
    """y = x W^T + b in the dtype of W, float32 or bfloat16, with W packed for oneDNN once.

    torch's own linear map reads W as it lies, or packs it at each call, which takes longer for a few rows. It has no
    parameters. For bfloat16 it needs a CPU with bfloat16 instructions (`has_bfloat16`).
    """

    def __init__(self, weight: Float[Tensor, "N D"], bias: Float[Tensor, " N"] | None = None) -> None:
        super().__init__()
        self.width, self.dtype = len(weight), weight.dtype
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), None)
        self.bias = None if bias is None else bias.detach()

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where N"]:
        """The map at each position; under autocast, x may come in another dtype."""
        return packed_product(x.to(self.dtype), self.packed, self.bias, self.width)


class NativeLinear(nn.Module):
    """y = x W^T + b in float32, by our C++ (maps.h), with W in float32, or in bfloat16 if so given.

    In float32 the weights are those of the model, not copied, and torch multiplies where gradients are wanted.
    bfloat16 halves the bytes to be read; its numbers are widened when they are used, so that sums are as exact as in
    float32, and no instructions for bfloat16 are needed. Where there are such instructions, many positions are
    multiplied by `PackedLinear`, which rounds x and y to bfloat16 too; for this, weights are in memory twice.
    """

    def __init__(self, weight: Float[Tensor, "N D"], bias: Float[Tensor, " N"] | None = None) -> None:
        super().__init__()
        (self.n_outputs, self.n_inputs), self.bias = weight.shape, bias
        self._map = NativeMap(self.n_inputs, self.n_outputs)
        narrow, device = weight.dtype == torch.bfloat16, weight.device
        self.weight: Num[Tensor, "..."] = in_pieces(weight.detach()) if narrow else weight.contiguous()
        hardware = narrow and has_bfloat16(device) and can_pack(device)
        self.packed = PackedLinear(weight, None if bias is None else bias.bfloat16()) if hardware else None

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where N"]:
        """The map at each position; under autocast, x may come in another dtype."""
        many = x.numel() > FEW * self.n_inputs
        if self.packed is not None and many and not torch.compiler.is_compiling():
            return self.packed(x).float()
        wanted = torch.is_grad_enabled() and (x.requires_grad or self.weight.requires_grad)
        if wanted and self.weight.dtype == torch.float32:
            return F.linear(x.float(), self.weight, self.bias)
        return self._map(x, self.weight, None, self.bias)


class Int8Linear(nn.Module):
    """y = (P Q^T) * step(x) * step(W) + b, where P * step(x) is the input and Q * step(W) the weight, to half a step.

    Each row of W and each position of x has its own step (`rounded`). Sums of products of whole numbers are exact, so
    the result of one position does not depend on the others, nor on the machine. Weights take a quarter of the bytes of
    float32 and are laid out once for our C++ (whole.h), which is compiled before, if need be. It has no parameters and
    passes no gradient.
    """

    def __init__(self, weight: Float[Tensor, "N D"], bias: Float[Tensor, " N"] | None = None) -> None:
        """Quantises the weights of a linear map. Errors: `DataError` for weights that are not finite."""
        super().__init__()
        whole, step = rounded(weight.detach().float())
        if not bool(step.isfinite().all()):
            raise DataError(
                "Only finite weights can be stored in 8 bits; got NaN or infinity. The checkpoint may be damaged: use "
                "another one."
            )
        self.n_outputs, self.n_inputs = weight.shape
        self._map = NativeMap(self.n_inputs, self.n_outputs)
        self.weight, self.step = in_pieces(whole), step[:, 0].contiguous()
        self.bias = None if bias is None else bias.detach().float().contiguous()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A model may have been pickled on another processor."""
        super().__setstate__(state)
        write_heads(self.weight)

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where N"]:
        """Apply the map at each position; the result has the dtype of x."""
        return self._map(x, self.weight, self.step, self.bias).to(x.dtype)


# Sums over a vocabulary and its most likely tokens in our C++ (fast/cpp/likely.cpp): each reads the logits once.

SOURCE = CPP.with_name("likely.cpp")
MOST = 256
"""Of more than so many tokens torch finds the most likely ones sooner: here each is put in its place one by one."""


def can_look_at(logits: Float[Tensor, "rows V"], k: int = 1) -> bool:
    """Whether C++ can do it here: for rows of float32 on a CPU, without gradients, and a few of their tokens."""
    plain = logits.dtype == torch.float32 and logits.ndim == 2 and logits.stride(-1) == 1
    wanted = 1 <= k <= MOST and logits.numel() > 0 and not (logits.requires_grad and torch.is_grad_enabled())
    return plain and wanted and may_read(logits) and has_cpp(SOURCE)


def log_sums(logits: Float[Tensor, "rows V"]) -> Float[Tensor, "rows 1"]:
    """As torch.logsumexp, in float64 where it ends; e^z is that of float32. NaN for a row with NaN or +inf."""
    sums = torch.empty(len(logits), 1, dtype=torch.float64, device="cpu")
    function("log_sums", 1)(*lies(logits), sums.data_ptr(), torch.get_num_threads())
    return sums


def largest(logits: Float[Tensor, "rows V"], k: int) -> tuple[Float[Tensor, "rows k"], Int[Tensor, "rows k"]]:
    """As torch.topk with k <= V: values in float64, and ids; among equals the lowest id comes first."""
    values = torch.empty(len(logits), k, dtype=torch.float64, device="cpu")
    ids = torch.empty(len(logits), k, dtype=torch.int64, device="cpu")
    function("most_likely", 2)(*lies(logits), k, ids.data_ptr(), values.data_ptr(), torch.get_num_threads())
    return values, ids


def lies(logits: Tensor) -> tuple[int, int, int, int]:
    """Where logits lie, how many rows there are, how far apart, and of what size."""
    return logits.data_ptr(), len(logits), logits.stride(0), logits.shape[1]


def function(name: str, found: int) -> Callable[..., None]:
    """A function of likely.cpp that writes into `found` tensors."""
    sizes = [ctypes.c_int64] * (2 + found)
    return declared(name, ctypes.c_void_p, *sizes, *[ctypes.c_void_p] * found, ctypes.c_int, source=SOURCE)
