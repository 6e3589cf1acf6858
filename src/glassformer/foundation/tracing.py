"""Whether torch itself wants to see each operation."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad


def traced() -> bool:
    """Whether a compiler, a function of torch.func or forward-mode differentiation follows what is computed.

    They know torch's own operations, and nothing of functions with gradients of their own.
    """
    if torch.compiler.is_compiling():
        return True
    mapped = torch._C._are_functorch_transforms_active()  # pyright: ignore[reportPrivateUsage]
    return mapped or forward_ad._current_level >= 0  # pyright: ignore[reportPrivateUsage]
