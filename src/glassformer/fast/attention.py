"""Attention and its gradients in our C++ (fast/cpp/attention.cpp), as training on a CPU computes them.

In one call per layer it does what lies between the maps of `Attention`: it normalises and rotates queries and keys, and
attends. Nothing of the size T x S is kept, and hidden keys behind the last one that is read are not multiplied.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.module import _has_any_global_hook  # pyright: ignore[reportPrivateUsage]

from glassformer.base.shapes import Float, Keys, Queries, Tensor, Values, Weights
from glassformer.base.tracing import differentiated, followed
from glassformer.fast.native import CPP, LAYOUTS, NAMES, CNorm, CRotation, forward_or_backward
from glassformer.nn.attention import Attention, LayerCache
from glassformer.nn.lowered import Lowered, lower
from glassformer.nn.mask import Mask
from glassformer.nn.norm import LayerNorm, RMSNorm
from glassformer.nn.positions import Rotation, rotate
from glassformer.nn.rules import ATTEND

SOURCE = CPP.with_name("attention.cpp")
AUTO = ATTEND["softmax"]["auto"]
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""Where a module has its hooks."""
LACKS = "There is no memory for attention. Give fewer or shorter texts at once, or free some memory."


class FastAttention(Attention):
    """`Attention` that trains in C++, if it is left to choose how it computes, and drops or adds nothing.

    Only in training: elsewhere every step is taken on its own, and watching one changes no bit.
    """

    exchanges = Attention

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        mask: Mask | Tensor | None = None,
        source: Float[Tensor, "B S D"] | None = None,
        rotation: Rotation | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T D"]:
        """As `Attention.forward`."""
        of = x if source is None else source
        if not (self.training and cache is None and self.attend is AUTO and len(of) == len(x)):
            return super().forward(x, mask=mask, source=source, rotation=rotation, cache=cache)
        q, k, v = (self.heads(each) for each in (self.query(x), self.key(of), self.value(of)))
        rules = Mask.of(mask, q, k)
        if serves(q, k, v, rules, norms := (self.query_norm, self.key_norm), rotation):
            mixed = attend(q, k, v, rules, norms, rotation, scale=self.scale)
        else:
            q, k = (rotate(norm(each), rotation) for norm, each in zip(norms, (q, k), strict=True))
            mixed = self.attend(q, k, v, rules, scale=self.scale, dropout=0.0)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def backend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> tuple[str, str] | None:
        """The name of what computes such inputs in training, and the reason; None if it is left to torch."""
        if not knows(q, k, v, mask):
            return None
        needed = -(-torch.get_num_threads() // k.shape[1])
        few = f"; a batch of fewer than {needed} texts is left to torch" if needed > 1 else ""
        return "our C++", f"on a CPU: it keeps no scores{few}"


def plain(module: Attention) -> bool:
    """Whether it chooses how it computes, and drops or adds nothing."""
    return module.attend is AUTO and module.relation is None and module.dropout == 0


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


class Options(NamedTuple):
    """What attention is asked for, besides tensors."""

    causal: bool
    scale: float
    eps: tuple[float, float]
    """Of the norms of queries and of keys."""
    layout: str


def serves(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, norms: tuple[nn.Module, nn.Module], rotation: Rotation | None
) -> bool:
    """Whether our C++ computes this: gradients are asked for, nobody looks into it, and each thread has work.

    C++ gets addresses and strides, so whatever the modules would broadcast, convert or refuse is left to them.
    """
    if not (torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)):
        return False
    if followed() or _has_any_global_hook():
        return False
    if not knows(q, k, v, mask) or len(k) * k.shape[1] < torch.get_num_threads():
        return False
    if not (all(fits(norm, q) for norm in norms) and (rotation is None or rotates(rotation, q, k))):
        return False
    lowered = lowered_of(mask, q, k)
    sizes = (*q.shape[:3], k.shape[2])
    return lowered is None or lowered.added is None or broadcasts(lowered.added.shape, sizes)


def knows(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> bool:
    """Whether our C++ has these numbers, on a CPU, and what the mask says; it has no patterns and no learned biases."""
    plain = all(type(each) is Tensor and each.dtype == q.dtype and each.device.type == "cpu" for each in (q, k, v))
    if not (plain and q.dtype in NAMES and q.ndim == k.ndim == 4 and k.shape == v.shape and q.numel() and k.numel()):
        return False
    if k.shape[::3] != q.shape[::3] or q.shape[1] % k.shape[1]:
        return False
    biased = mask.value_bias is not None or (mask.bias is not None and mask.bias.requires_grad)
    return not biased and mask.sparse is None


def fits(norm: nn.Module, x: Tensor) -> bool:
    """Whether a norm keeps the dtype and the shape of its input, and no hook sees or changes what passes."""
    own, known = vars(norm), (nn.Identity, LayerNorm, RMSNorm)
    if type(norm) not in known or "forward" in own or any(own[kind] for kind in HOOKS):
        return False
    return all(each.dtype == widened(x.dtype) and each.shape == x.shape[-1:] for each in norm.parameters())


def rotates(rotation: Rotation, q: Tensor, k: Tensor) -> bool:
    """Whether these are fixed angles for each token: one row of them for all texts, or one for each."""
    cos, sin = rotation.cos, rotation.sin
    dtype = widened(q.dtype)
    fixed = all(type(each) is Tensor and each.dtype == dtype and not each.requires_grad for each in (cos, sin))
    if not (fixed and rotation.layout in LAYOUTS and cos.shape == sin.shape and cos.device.type == "cpu"):
        return False
    *texts, T, pairs = cos.shape
    return q.shape[2] == k.shape[2] == T and 2 * pairs <= q.shape[3] and texts in ([], [1], [len(q)])


def broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    """Whether a tensor of this shape can be expanded to the other."""
    pairs = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(here in (1, there) for here, there in pairs)


def widened(dtype: torch.dtype) -> torch.dtype:
    """What C++ computes vectors of this dtype in: it widens bfloat16 when it reads, and rounds when it writes."""
    return torch.float32 if dtype == torch.bfloat16 else dtype


def lowered_of(mask: Mask, q: Tensor, k: Tensor) -> Lowered | None:
    """The mask as tensors; None if it says no more than the causal rule, which C++ knows."""
    if mask.only_causal or mask.hides_nothing:
        return None
    return lower(mask, q.shape[2], k.shape[2], q.new_empty(0, dtype=widened(q.dtype)))


def attend(
    q: Queries,
    k: Keys,
    v: Values,
    mask: Mask,
    norms: tuple[nn.Module, nn.Module],
    rotation: Rotation | None,
    *,
    scale: float,
) -> Queries:
    """Attention of the normalised and rotated queries and keys. Errors: `ResourceError` without memory."""
    (q, of_q, q_eps), (k, of_k, k_eps) = (with_norm(norm, x) for norm, x in zip(norms, (q, k), strict=True))
    lowered, in_columns = lowered_of(mask, q, k), not mask.placed and mask.prefix is None
    added = None if lowered is None or lowered.added is None else expanded(lowered.added, (*q.shape[:3], k.shape[2]))
    cos, sin, layout = rotation or (None, None, LAYOUTS[0])
    options = Options(mask.causal and in_columns, scale, (q_eps, k_eps), layout)
    vectors = (last_together(each) for each in (q, k, v))
    out = _Attention.apply(*vectors, of_q, of_k, added, whole(cos), whole(sin), options)
    return out if lowered is None else lowered.zero_blind(out)


def with_norm(norm: nn.Module, x: Queries) -> tuple[Queries, Tensor | None, float]:
    """The input of C++, the weight of the norm that it is to compute, and eps; other norms are computed here."""
    if isinstance(norm, RMSNorm):
        return x, norm.weight.contiguous(), norm.eps
    return norm(x).to(x.dtype), None, 0.0  # under autocast a layer norm rounds float64, too


def last_together(x: Float[Tensor, "*rows K"]) -> Float[Tensor, "*rows K"]:
    """The tensor, or a copy, whose vectors' numbers lie together."""
    x = x.resolve_neg()
    return x if x.stride(-1) == 1 else x.contiguous()


def expanded(added: Float[Tensor, "*#rows S"], sizes: tuple[int, ...]) -> Weights:
    """What a mask adds, for each text and head, with the numbers of a query together."""
    return last_together(added.expand(*added.shape[:-1], sizes[-1])).expand(sizes)


def whole(angles: Float[Tensor, "*batch T pairs"] | None) -> Float[Tensor, "*batch T pairs"] | None:
    """The angles, row after row."""
    return None if angles is None else angles.contiguous()


class _Attention(torch.autograd.Function):
    """What C++ computes, and its gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        of_q: Tensor | None,
        of_k: Tensor | None,
        added: Tensor | None,
        cos: Tensor | None,
        sin: Tensor | None,
        options: Options,
    ) -> Tensor:
        """Attend; keep the inputs and a number for each query."""
        out, logs = beside(q), q.new_empty(q.shape[:3], dtype=widened(q.dtype))
        inputs = (q, k, v, of_q, of_k, added, cos, sin)
        native(q)(ctypes.byref(call_of(inputs, options, logs, out)), False, torch.get_num_threads())
        ctx.save_for_backward(*inputs, logs)
        ctx.options = options
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The gradients; if they will themselves be differentiated, or many are asked for, by differentiable steps."""
        (*inputs, logs), options = ctx.saved_tensors, ctx.options
        if differentiated(grads[0]):
            return (*by_steps(ctx.needs_input_grad[:5], inputs, grads[0], options), None, None, None, None)
        q, k, v, of_q, of_k, *_ = inputs
        of_out, of_inputs = last_together(grads[0]), tuple(beside(each) for each in (q, k, v))
        of_norms = [None if each is None else each.new_zeros(len(k), k.shape[1], len(each)) for each in (of_q, of_k)]
        call = call_of(inputs, options, logs, of_out=of_out, of_inputs=of_inputs, of_weights=of_norms)
        native(q)(ctypes.byref(call), True, torch.get_num_threads())
        of_weights = (None if each is None else each.sum((0, 1)) for each in of_norms)
        return (*of_inputs, *of_weights, None, None, None, None)


def by_steps(
    needed: Sequence[bool], inputs: Sequence[Tensor | None], of_out: Tensor, options: Options
) -> list[Tensor | None]:
    """The gradients of the inputs that need one, by the modules' equations."""
    with torch.enable_grad():
        # Views of their own, so that a tensor that was given twice gets the gradient of each place.
        views = [None if each is None else each.view_as(each) for each in inputs]
        *vectors, of_q, of_k, added, cos, sin = cast(list[Any], views)
        q, k, v = (each.to(widened(each.dtype)) for each in vectors)
        rotation = None if cos is None else Rotation(cos, sin, options.layout)
        turned_q, turned_k = (
            rotate(x if weight is None else F.rms_norm(x, weight.shape, weight, eps), rotation)
            for x, weight, eps in zip((q, k), (of_q, of_k), options.eps, strict=True)
        )
        mask = Mask(causal=options.causal, bias=added)
        out = ATTEND["softmax"]["matmul"](turned_q, turned_k, v, mask, scale=options.scale).to(of_out.dtype)
        wanted = [need and each is not None for need, each in zip(needed, views, strict=False)]
        chosen = [each for each, want in zip(views, wanted, strict=False) if want and each is not None]
        found = iter(torch.autograd.grad(out, chosen, of_out, create_graph=True))
    return [next(found) if want else None for want in wanted]


def beside(x: Queries) -> Queries:
    """A new tensor of the same shape, in which a token's heads lie side by side, as maps read and write them."""
    B, H, T, K = x.shape
    return x.new_empty(B, T, H, K).transpose(1, 2)


def call_of(
    inputs: Sequence[Tensor | None],
    options: Options,
    logs: Tensor,
    out: Tensor | None = None,
    of_out: Tensor | None = None,
    of_inputs: tuple[Tensor | None, ...] = (None, None, None),
    of_weights: Sequence[Tensor | None] = (None, None),
) -> CCall:
    """A call as C++ reads it. The addresses are valid as long as the tensors are."""
    q, k, v, of_q, of_k, added, cos, sin = cast(list[Any], inputs)
    (B, H, T, K), (_, G, S, _) = q.shape, k.shape
    angles = [
        CTurn(
            CNorm() if weight is None else CNorm(2, eps, weight.data_ptr(), None),
            *(*turning(cos, sin, options.layout), None if of_weight is None else of_weight.data_ptr()),
        )
        for weight, eps, of_weight in zip((of_q, of_k), options.eps, of_weights, strict=True)
    ]
    lie, after = (places(each) for each in (q, k, v, added, out)), map(places, (of_out, *of_inputs))
    return CCall(B, H, G, T, S, K, options.causal, options.scale, *angles, *lie, logs.data_ptr(), *after)


def turning(cos: Tensor | None, sin: Tensor | None, layout: str) -> tuple[CRotation, int]:
    """The angles of each token, and how many rows of them lie between two texts; 0 if texts share them."""
    if cos is None or sin is None:
        return CRotation(), 0
    *texts, T, pairs = cos.shape
    with_norm = CRotation(pairs, LAYOUTS.index(layout), pairs, cos.data_ptr(), sin.data_ptr())
    return with_norm, T if texts and texts[0] > 1 else 0


def native(q: Tensor) -> Callable[..., None]:
    """The function of attention.cpp for these numbers."""
    return forward_or_backward(SOURCE, f"attention_{NAMES[q.dtype]}", LACKS)


def places(x: Queries | None) -> CPlaces:
    """Where vectors lie."""
    return CPlaces() if x is None else CPlaces(x.data_ptr(), *x.stride()[:3])
