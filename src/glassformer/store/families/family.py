"""Renaming our weights to those of another family of models and back, and changing their layout to match."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from glassformer.store.families.shape import Shape
from glassformer.store.rename import PROJECTIONS, Table, join_projections, part_of, rename, renamed


class Family(NamedTuple):
    """The table from our names to a family's names, and how its layout differs."""

    names: Table
    joined: str | None = None
    """The family's name for query, key and value if they are one matrix."""
    by_head: bool = False
    """Whether that matrix has query, key and value of the first head, then those of the second, and so on."""
    turned: str | None = None
    """A pattern for the names of matrices that the family stores as [in, out]; ours are [out, in]."""
    unread: tuple[str, int] | None = None
    """A pattern for the names of position tables that begin with rows that no token reads, and the number of rows."""
    architecture: str = ""
    """The class of the models that can be imported and exported, as config.json names it; empty if none can."""
    shape: Shape | None = None
    """The settings of those models, read and written; None if none can."""
    base: str = ""
    """How their names begin, except the head's; files of the model without its head leave it out."""
    computed: str | None = None
    """A pattern for the names of tensors that hold nothing learned, such as masks; they are skipped on purpose."""

    def export(self, tensors: Mapping[str, Tensor], n_heads: int) -> dict[str, Tensor]:
        """Return our tensors (weights or their gradients) under the family's names and in its layout."""
        joined = join_projections(tensors, self.joined, n_heads if self.by_head else 1) if self.joined else tensors
        renamed = rename(joined, self.names)
        return {name: self._laid_out(name, each) for name, each in renamed.items()}

    def load(self, tensors: Mapping[str, Tensor], names: Mapping[str, Tensor], n_heads: int) -> dict[str, Tensor]:
        """The inverse of `export`: the family's tensors under each of our `names`, and in our layout."""
        found: dict[str, Tensor] = {}
        for name in names:
            part = re.search(PROJECTIONS, name) if self.joined else None
            theirs = renamed(name.replace(f"{part[1]}.", self.joined) if part and self.joined else name, self.names)
            tensor = self._as_ours(theirs, tensors[theirs])
            found[name] = part_of(tensor, part[1], n_heads if self.by_head else 1) if part else tensor
        return found

    def is_computed(self, name: str) -> bool:
        """Whether one of their tensors holds nothing learned."""
        return self.computed is not None and re.search(self.computed, name) is not None

    def _laid_out(self, name: str, tensor: Tensor) -> Tensor:
        if self.turned is not None and re.search(self.turned, name):
            return tensor.t()
        if self.unread is not None and re.search(self.unread[0], name):
            return torch.cat([tensor.new_zeros(self.unread[1], tensor.shape[1]), tensor])
        return tensor

    def _as_ours(self, name: str, tensor: Tensor) -> Tensor:
        if self.turned is not None and re.search(self.turned, name):
            return tensor.t()
        if self.unread is not None and re.search(self.unread[0], name):
            return tensor[self.unread[1] :]
        return tensor
