"""Attention and its gradients in our C++ (parts/cpp/attention.cpp), as training on a CPU computes them.

In one call per layer it does what lies between the maps of `Attention`: it normalises and rotates queries and keys, and
attends. Nothing of the size T x S is kept, and hidden keys behind the last one that is read are not multiplied.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules.module import _has_any_global_hook  # pyright: ignore[reportPrivateUsage]
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from glassformer.attend import ATTEND, Mask
from glassformer.foundation.shapes import Float, Tensor
from glassformer.parts.native import CPP, LAYOUTS, CNorm, CRotation, declared, has_cpp
from glassformer.parts.norm import RMSNorm, rms_norm
from glassformer.parts.positions import Rotation, rotate

SOURCE = CPP.with_name("attention.cpp")
NATIVE = {torch.float32: "attention_float", torch.float64: "attention_double"}
"""The functions of our C++, by what they compute in."""
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""Where a module has its hooks; one with any is called itself."""
LACKS = "There is no memory for attention. Give fewer or shorter texts at once, or free some memory."


class CPlaces(ctypes.Structure):
    """`Places` of attention.cpp."""

    _fields_ = (("first", ctypes.c_void_p), *((name, ctypes.c_int64) for name in ("text", "head", "token")))


class CTurn(ctypes.Structure):
    """`Turn` of attention.cpp."""

    _fields_ = (
        *(("norm", CNorm), ("rotation", CRotation)),
        *(("texts_apart", ctypes.c_int64), ("of_weight", ctypes.c_void_p)),
    )


class CCall(ctypes.Structure):
    """`Call` of attention.cpp."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("B", "H", "G", "T", "S", "K", "causal")),
        ("scale", ctypes.c_double),
        *((name, CTurn) for name in ("of_queries", "of_keys")),
        *((name, CPlaces) for name in ("q", "k", "v", "added", "out")),
        ("logs", ctypes.c_void_p),
        *((name, CPlaces) for name in ("of_out", "of_q", "of_k", "of_v")),
    )


class Asked(NamedTuple):
    """What attention is asked for, besides tensors with gradients."""

    mask: Mask
    added: Float[Tensor, "B H T S"] | None
    """What the mask adds to scores, expanded; None: nothing but the causal rule."""
    causal: bool
    rotation: Rotation | None
    scale: float
    eps: tuple[float, float]
    """Of the norms of queries and of keys."""


def serves(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B G S K"],
    v: Float[Tensor, "B G S K"],
    mask: Mask,
    rotation: Rotation | None,
) -> bool:
    """Whether our C++ computes this: gradients are asked for, nobody looks into it, and each thread has work."""
    if not (torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)):
        return False
    if torch.compiler.is_compiling() or is_in_torch_dispatch_mode() or torch._C._are_functorch_transforms_active():  # pyright: ignore[reportPrivateUsage]
        return False
    if rotation is not None and (rotation.layout not in LAYOUTS or rotation.cos.dtype != q.dtype):
        return False
    return len(k) * k.shape[1] >= torch.get_num_threads() and knows(q, k, v, mask)


def knows(q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S K"], v: Float[Tensor, "B G S K"], mask: Mask) -> bool:
    """Whether our C++ has these numbers, on a CPU, and what the mask says; it has no patterns and no learned biases."""
    alike = all(type(each) is Tensor and each.dtype == q.dtype and each.shape[-1] == q.shape[-1] for each in (q, k, v))
    if not (alike and q.device.type == "cpu" and q.dtype in NATIVE and q.numel() and k.numel()):
        return False
    biased = mask.value_bias is not None or (mask.bias is not None and mask.bias.requires_grad)
    return not biased and mask.sparse is None and has_cpp(SOURCE)


def attend(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B G S K"],
    v: Float[Tensor, "B G S K"],
    mask: Mask,
    norms: tuple[nn.Module, nn.Module],
    rotation: Rotation | None,
    *,
    scale: float,
) -> Float[Tensor, "B H T K"]:
    """Attention of the normalised and rotated queries and keys. Errors: `ResourceError` without memory."""
    (q, of_q, q_eps), (k, of_k, k_eps) = (told(norm, x) for norm, x in zip(norms, (q, k), strict=True))
    T, S = q.shape[2], k.shape[2]
    plain, in_columns = mask.only_causal or mask.hides_nothing, not mask.placed and mask.prefix is None
    lowered = None if plain else mask.lower(T, S, q)
    added = None if lowered is None or lowered.added is None else lowered.added.expand(len(q), q.shape[1], T, S)
    if rotation is not None:
        rotation = rotation._replace(cos=rotation.cos.contiguous(), sin=rotation.sin.contiguous())
    asked = Asked(mask, added, mask.causal and in_columns, rotation, scale, (q_eps, k_eps))
    out = _Attention.apply(*(last_together(each) for each in (q, k, v)), of_q, of_k, asked)
    return out if lowered is None else lowered.zero_blind(out)


def told(norm: nn.Module, x: Float[Tensor, "B H T K"]) -> tuple[Float[Tensor, "B H T K"], Tensor | None, float]:
    """The input of C++, the weight of the norm that it is to compute, and eps; other norms are computed here."""
    own = vars(norm)
    watched = "forward" in own or _has_any_global_hook() or any(own[kind] for kind in HOOKS)
    if type(norm) is RMSNorm and not watched and norm.weight.dtype == x.dtype:
        return x, norm.weight, norm.eps
    return norm(x), None, 0.0


def last_together(x: Float[Tensor, "B H T K"]) -> Float[Tensor, "B H T K"]:
    """The tensor, or a copy, whose vectors' numbers lie together."""
    return x if x.stride(-1) == 1 else x.contiguous()


class _Attention(torch.autograd.Function):
    """What C++ computes, and its gradients."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, of_q: Tensor | None, of_k: Tensor | None, asked: Asked
    ) -> Tensor:
        """Attend; keep the inputs, the result and a number for each query."""
        out, logs = beside(q), q.new_empty(q.shape[:3])
        call = described(q, k, v, (of_q, of_k), asked, out, logs)
        native(NATIVE[q.dtype])(ctypes.byref(call), False, torch.get_num_threads())
        ctx.save_for_backward(q, k, v, of_q, of_k, out, logs)
        ctx.asked = asked
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The gradients; if they will themselves be differentiated, by differentiable steps."""
        (q, k, v, of_q, of_k, out, logs), asked = ctx.saved_tensors, ctx.asked
        if torch.is_grad_enabled():
            return (*by_steps(ctx.needs_input_grad, (q, k, v, of_q, of_k), grads[0], asked), None)
        of_out, of_inputs = last_together(grads[0]), tuple(beside(each) for each in (q, k, v))
        of_norms = [None if each is None else q.new_zeros(len(k), k.shape[1], len(each)) for each in (of_q, of_k)]
        call = described(q, k, v, (of_q, of_k), asked, out, logs, of_out, of_inputs, of_norms)
        native(NATIVE[q.dtype])(ctypes.byref(call), True, torch.get_num_threads())
        return (*of_inputs, *(None if each is None else each.sum((0, 1)) for each in of_norms), None)


def by_steps(
    needed: tuple[bool, ...], inputs: tuple[Tensor | None, ...], of_out: Tensor, asked: Asked
) -> list[Tensor | None]:
    """The gradients of the inputs that need one, by the modules' equations."""
    q, k, v, of_q, of_k = inputs
    assert q is not None
    assert k is not None
    assert v is not None
    turned = [
        rotate(x if weight is None else rms_norm(x, weight, eps), asked.rotation)
        for x, weight, eps in zip((q, k), (of_q, of_k), asked.eps, strict=True)
    ]
    out = ATTEND["softmax"]["matmul"](turned[0], turned[1], v, asked.mask, scale=asked.scale)
    asked_for = [each for each, wanted in zip(inputs, needed, strict=False) if wanted and each is not None]
    found = iter(torch.autograd.grad(out, asked_for, of_out, create_graph=True))
    return [next(found) if wanted and each is not None else None for each, wanted in zip(inputs, needed, strict=False)]


def beside(x: Float[Tensor, "B H T K"]) -> Float[Tensor, "B H T K"]:
    """A new tensor of the same shape, in which a token's heads lie side by side, as maps read and write them."""
    B, H, T, K = x.shape
    return x.new_empty(B, T, H, K).transpose(1, 2)


def described(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    weights: tuple[Tensor | None, Tensor | None],
    asked: Asked,
    out: Tensor,
    logs: Tensor,
    of_out: Tensor | None = None,
    of_inputs: tuple[Tensor | None, ...] = (None, None, None),
    of_weights: list[Tensor | None] | tuple[None, None] = (None, None),
) -> CCall:
    """A call as C++ reads it. The addresses are valid as long as the tensors are."""
    (B, H, T, K), (_, G, S, _) = q.shape, k.shape
    turns = [
        CTurn(
            CNorm() if weight is None else CNorm(2, eps, weight.data_ptr(), None),
            *(*turning(asked.rotation), None if of_weight is None else of_weight.data_ptr()),
        )
        for weight, eps, of_weight in zip(weights, asked.eps, of_weights, strict=True)
    ]
    inputs, after = (places(each) for each in (q, k, v, asked.added, out)), map(places, (of_out, *of_inputs))
    return CCall(B, H, G, T, S, K, asked.causal, asked.scale, *turns, *inputs, logs.data_ptr(), *after)


def turning(rotation: Rotation | None) -> tuple[CRotation, int]:
    """The angles of each token, and how many rows of them lie between two texts; 0 if texts share them."""
    if rotation is None:
        return CRotation(), 0
    *texts, T, pairs = rotation.cos.shape
    told = CRotation(pairs, LAYOUTS.index(rotation.layout), pairs, rotation.cos.data_ptr(), rotation.sin.data_ptr())
    return told, T if texts and texts[0] > 1 else 0


def places(x: Float[Tensor, "B H T K"] | None) -> CPlaces:
    """Where vectors lie."""
    return CPlaces() if x is None else CPlaces(x.data_ptr(), *x.stride()[:3])


@cache
def native(name: str) -> Callable[..., None]:
    """A function of attention.cpp."""
    return declared(name, ctypes.c_void_p, ctypes.c_bool, ctypes.c_int, source=SOURCE, lacks=LACKS)
