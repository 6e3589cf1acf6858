"""Choosing the decoding method from the settings: `generate`, contrastive search, or a beam search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from glassformer.decode.beam import beam_search, length_penalty
from glassformer.decode.beam_settings import BeamSettings
from glassformer.decode.choose.context import Filter
from glassformer.decode.choose.draw import chooser, filters_of
from glassformer.decode.choose.sampling import Sampling
from glassformer.decode.contrastive import contrastive
from glassformer.decode.generate import generate
from glassformer.decode.hypotheses import Hypothesis
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


def search_of(search: BeamSettings) -> Callable[..., list[list[Hypothesis]]]:
    """Return the `beam_search` that the settings describe."""
    return partial(
        beam_search,
        beam=search.beam,
        lengths=length_penalty(search.length_penalty),
        coverage=search.coverage_penalty,
        groups=search.beam_groups,
        diversity=search.diversity,
        early_stop=search.early_stop,
    )
