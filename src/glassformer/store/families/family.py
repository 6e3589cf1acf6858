"""How a family of models names and lays out what we have too."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from glassformer.store.rename import Table, join_projections, rename


class Family(NamedTuple):
    """One table, from our names to theirs."""

    names: Table
    joined: str | None = None
    """What query, key and value are called where they are one matrix."""
    turned: str | None = None
    """A pattern for their names of matrices [in, out], where ours are [out, in]."""
    unread: tuple[str, int] | None = None
    """A pattern for their names of tables of positions, and how many rows, which no token reads, precede ours there."""

    def export(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Our tensors (weights, or their gradients) by their names and in their layout."""
        joined = join_projections(tensors, self.joined) if self.joined else tensors
        renamed = rename(joined, self.names)
        return {name: self._laid_out(name, each) for name, each in renamed.items()}

    def _laid_out(self, name: str, tensor: Tensor) -> Tensor:
        if self.turned is not None and re.search(self.turned, name):
            return tensor.t()
        if self.unread is not None and re.search(self.unread[0], name):
            return torch.cat([tensor.new_zeros(self.unread[1], tensor.shape[1]), tensor])
        return tensor
