"""Sums over a vocabulary and its most likely tokens in our C++ (fast/cpp/likely.cpp): each reads the logits once."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import torch

from glassformer.base.shapes import Float, Int, Tensor
from glassformer.fast.native import CPP, declared, has_cpp, may_read

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


@cache
def function(name: str, found: int) -> Callable[..., None]:
    """A function of likely.cpp that writes into `found` tensors."""
    sizes = [ctypes.c_int64] * (2 + found)
    return declared(name, ctypes.c_void_p, *sizes, *[ctypes.c_void_p] * found, ctypes.c_int, source=SOURCE)
