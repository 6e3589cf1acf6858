"""A model that is cut over processes, and its tensors: whether it is, what is this process's own, what it is whole."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor, nn


def is_sharded(tensor: Tensor) -> bool:
    """Whether a tensor is a DTensor, known by its method: to import that class takes a second."""
    return hasattr(tensor, "full_tensor")


def local(tensor: Tensor) -> Tensor:
    """What this process has of a tensor."""
    return cast(Any, tensor).to_local() if is_sharded(tensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor that the processes have parts of; they all ask for it together."""
    return cast(Any, tensor).full_tensor() if is_sharded(tensor) else tensor


def put_back(model: nn.Module) -> None:
    """After a forward without a backward, as of an evaluation: each process has its parts alone again."""
    from torch.distributed.fsdp import FSDPModule  # here, as a run that is not cut needs none of it

    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
