"""Renaming our weights to those of another family of models, and changing their layout to match."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from glassformer.store.rename import Table, join_projections, rename


class Family(NamedTuple):
    """The table from our names to a family's names, and how its layout differs."""

    names: Table
    joined: str | None = None
    """The family's name for query, key and value if they are one matrix."""
    turned: str | None = None
    """A pattern for the names of matrices that the family stores as [in, out]; ours are [out, in]."""
    unread: tuple[str, int] | None = None
    """A pattern for the names of position tables that begin with rows that no token reads, and the number of rows."""

    def export(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return our tensors (weights or their gradients) under the family's names and in its layout."""
        joined = join_projections(tensors, self.joined) if self.joined else tensors
        renamed = rename(joined, self.names)
        return {name: self._laid_out(name, each) for name, each in renamed.items()}

    def _laid_out(self, name: str, tensor: Tensor) -> Tensor:
        if self.turned is not None and re.search(self.turned, name):
            return tensor.t()
        if self.unread is not None and re.search(self.unread[0], name):
            return torch.cat([tensor.new_zeros(self.unread[1], tensor.shape[1]), tensor])
        return tensor
