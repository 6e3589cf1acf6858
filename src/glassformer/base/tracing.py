"""Whether torch itself wants to see each operation."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor  # pyright: ignore[reportMissingModuleSource]
from torch.autograd import forward_ad
from torch.utils._python_dispatch import is_in_torch_dispatch_mode


def traced() -> bool:
    """Whether a compiler, a function of torch.func or forward-mode differentiation follows what is computed.

    They know torch's own operations, and nothing of functions with gradients of their own.
    """
    if torch.compiler.is_compiling():
        return True
    mapped = torch._C._are_functorch_transforms_active()  # pyright: ignore[reportPrivateUsage]
    return mapped or forward_ad._current_level >= 0  # pyright: ignore[reportPrivateUsage]


def followed() -> bool:
    """Whether torch or one of its modes wants to see each operation; then nothing may be left to our C++."""
    return traced() or is_in_torch_dispatch_mode()


def differentiated(gradient: Tensor) -> bool:
    """Whether the way back must take steps that torch knows: they will be differentiated, too, or many are asked for.

    The latter is `torch.autograd.grad(..., is_grads_batched=True)`, as the Hessians of torch use it.
    """
    return torch.is_grad_enabled() or is_legacy_batchedtensor(gradient)
