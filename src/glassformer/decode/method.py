"""Choosing the decoding method from the settings: `generate`, or contrastive search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from glassformer.decode.choose.context import Filter
from glassformer.decode.choose.draw import chooser, filters_of
from glassformer.decode.choose.sampling import Sampling
from glassformer.decode.contrastive import contrastive
from glassformer.decode.generate import generate
from glassformer.decode.rows import Emitted

Method = Callable[..., Iterator[Emitted]]
"""`generate` or a replacement for it: takes all its arguments except `choose`, and yields the same."""

USUAL_K = 4
"""How many tokens contrastive search chooses among if top_k is not set."""


def method_of(sampling: Sampling, first: Sequence[Filter] = ()) -> Method:
    """Return the method that the settings describe; the filters in `first` apply before all others."""
    if sampling.contrastive_alpha:
        filters = [*first, *filters_of(sampling)]
        return partial(contrastive, alpha=sampling.contrastive_alpha, k=sampling.top_k or USUAL_K, filters=filters)
    return partial(generate, choose=chooser(sampling, first))
