"""How large the largest tensor is that a computation makes: what memory is spent on, without a clock."""

from collections.abc import Callable

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Largest(TorchDispatchMode):
    """Sees every operation, also of the backward."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, operation, types, given=(), named=None):
        made = operation(*given, **(named or {}))
        sizes = [each.numel() for each in tree_leaves(made) if isinstance(each, torch.Tensor)]
        self.numbers = max([self.numbers, *sizes])
        return made


def largest(call: Callable[[], torch.Tensor]) -> int:
    """Numbers in the largest tensor of a forward and its backward."""
    with Largest() as seen:
        call().sum().backward()
    return seen.numbers
