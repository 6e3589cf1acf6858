"""The way to write that the settings describe: token by token, or looking ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from glassformer.decode.choose.context import Filter
from glassformer.decode.choose.draw import chooser, filters_of
from glassformer.decode.choose.sampling import Sampling
from glassformer.decode.contrastive import contrastive
from glassformer.decode.generate import Emitted, generate

Method = Callable[..., Iterator[Emitted]]
"""`generate`, or what takes its place: all its arguments but `choose`, and yields what it yields."""

USUAL_K = 4
"""Tokens that contrastive search chooses among where top_k does not say."""


def method_of(sampling: Sampling, first: Sequence[Filter] = ()) -> Method:
    """The method of the settings; the filters of `first` come before all others."""
    if sampling.contrastive_alpha:
        filters = [*first, *filters_of(sampling)]
        return partial(contrastive, alpha=sampling.contrastive_alpha, k=sampling.top_k or USUAL_K, filters=filters)
    return partial(generate, choose=chooser(sampling, first))
