"""Helpers for the tensors of a sharded model: whether one is sharded, this process's part, the whole."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor, nn


def is_sharded(tensor: Tensor) -> bool:
    """Whether a tensor is a DTensor. Recognised by a method, because importing that class takes a second."""
    return hasattr(tensor, "full_tensor")


def local(tensor: Tensor) -> Tensor:
    """This process's part of a tensor."""
    return cast(Any, tensor).to_local() if is_sharded(tensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """The whole of a sharded tensor; all processes must call this together."""
    return cast(Any, tensor).full_tensor() if is_sharded(tensor) else tensor


def put_back(model: nn.Module) -> None:
    """Drop the gathered weights after a forward pass without a backward, as in an evaluation."""
    from torch.distributed.fsdp import FSDPModule  # here: only sharded runs need it

    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
