"""How a family of models names and lays out what we have too."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from glassformer.store.rename import Table, join_projections, rename


class Family(NamedTuple):
    """One table, from our names to theirs."""

    names: Table
    joined: str | None = None
    """What query, key and value are called where they are one matrix."""
    turned: str | None = None
    """A pattern for their names of matrices [in, out], where ours are [out, in]."""

    def export(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Our tensors (weights, or their gradients) by their names and in their layout."""
        joined = join_projections(tensors, self.joined) if self.joined else tensors
        renamed = rename(joined, self.names)
        if self.turned is None:
            return renamed
        return {name: each.t() if re.search(self.turned, name) else each for name, each in renamed.items()}
