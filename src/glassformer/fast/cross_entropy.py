"""The rows of a cross-entropy in our C++ (fast/cpp/cross_entropy.cpp): their sums, and their gradients."""

from __future__ import annotations

import ctypes

import torch

from glassformer.base.shapes import Float, Int, Tensor
from glassformer.fast.native import CPP, NAMES, address, forward_or_backward, may_read
from glassformer.train.cross_entropy import PLAIN, Kernel

SOURCE = CPP.with_name("cross_entropy.cpp")


class CRows(ctypes.Structure):
    """`Rows` of cross_entropy.cpp."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("N", "V")),
        *((name, ctypes.c_void_p) for name in ("logits", "prior", "log_sum", "mean", "ids")),
        ("smoothing", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("scale", "gradient")),
    )


def serves(logits: Tensor, prior: Tensor | None) -> bool:
    """Whether our C++ may read these, and has such numbers."""
    fits = logits.dtype in NAMES and logits.is_contiguous() and logits.numel() > 0
    fits = fits and (prior is None or prior.shape == logits.shape[1:])
    return fits and may_read(logits, prior)


def sums(
    logits: Float[Tensor, "N V"], prior: Float[Tensor, " V"] | None, *, with_means: bool
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"] | None]:
    """log sum exp of each row and, if asked for, its mean, weighed by `prior`; in float32 or wider."""
    if not serves(logits, prior):
        return PLAIN.sums(logits, prior, with_means=with_means)
    wide = torch.promote_types(logits.dtype, torch.float32)
    log_sum = logits.new_empty(len(logits), dtype=wide)
    mean = torch.empty_like(log_sum) if with_means else None
    prior = None if prior is None else prior.to(wide).contiguous()
    rows = CRows(*logits.shape, logits.data_ptr(), address(prior), log_sum.data_ptr(), address(mean))
    call(rows, logits, False)
    return log_sum, mean


def slopes(
    logits: Float[Tensor, "N V"],
    ids: Int[Tensor, " N"],
    log_sum: Float[Tensor, " N"],
    smoothing: float,
    prior: Float[Tensor, " V"] | None,
    scale: Float[Tensor, ""],
    gradient: Float[Tensor, "N V"],
) -> None:
    """Write scale * d/dlogits into `gradient`, which may be `logits` itself. The ids must be below V."""
    if not (serves(logits, prior) and gradient.is_contiguous()):
        PLAIN.slopes(logits, ids, log_sum, smoothing, prior, scale, gradient)
        return
    prior = None if prior is None else prior.to(log_sum.dtype).contiguous()
    scale = scale.to(log_sum.dtype)
    ids = ids.long().contiguous()
    inputs = (logits.data_ptr(), address(prior), log_sum.data_ptr(), None, ids.data_ptr())
    rows = CRows(*logits.shape, *inputs, smoothing, scale.data_ptr(), gradient.data_ptr())
    call(rows, logits, True)


def call(rows: CRows, logits: Tensor, back: bool) -> None:
    """Call the function of cross_entropy.cpp for such logits."""
    name = f"cross_entropy_{NAMES[logits.dtype]}"
    forward_or_backward(SOURCE, name)(ctypes.byref(rows), back, torch.get_num_threads())


KERNEL = Kernel(sums, slopes, whole=1 << 25, chunk=1 << 24)
"""Chunks from 2^25 logits on are about as fast as one piece, and need a fraction of the memory (`make bench
ARGS=cross_entropy`)."""
