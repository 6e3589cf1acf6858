"""How many tokens a corrupted window has at most: what is hidden, its spans, what a stack reads. Imports no torch."""

from __future__ import annotations

import math

from glassformer.base.errors import ConfigError
from glassformer.data.config import DataConfig

RARE = math.log(1e-12)
"""Log of the probability that a row is longer after all: the number of spans that are drawn has no upper bound."""


def n_hidden(n: int, share: float) -> int:
    """How many of n tokens are hidden: the share, and at least one."""
    return min(n, max(1, round(share * n)))


def n_spans(n: int, hidden: int, mean: float) -> int:
    """The number of spans for the hidden ones of n tokens, if it is not drawn."""
    return min(max(1, round(hidden / mean)), n - hidden + 1)


def most_noise_spans(hidden: int, mean: float) -> int:
    """The most spans of Poisson lengths, empty ones included, in a row of noise (except for 1e-12 of all rows)."""
    # k spans hold fewer than `hidden` tokens with the probability that Poisson(k * mean) is below it: Chernoff's bound
    below, most = hidden - 1, max(1, int(hidden / mean))
    while (sum_of := most * mean) <= below or below - sum_of + below * math.log(sum_of / max(below, 1)) > RARE:
        most += 1
    return most


def longest(objective: str, window: int, share: float, mean: float, specials: int = 0) -> int:
    """The most tokens that a stack reads of a window, with <bos> or <eos>; up to `specials` of its tokens are special.

    A special token is never hidden and splits a span in two, so that there may be one <blank> more for each.
    """
    if objective not in ("spans", "noise"):
        return window
    found = window + 1 if objective == "noise" else 0  # a decoder writes the whole text
    for special in range(min(specials, window) + 1):
        n = window - special
        if n == 0:
            return max(found, window + 1)
        hidden = n_hidden(n, share)
        if objective == "spans":
            blanks = min(n_spans(n, hidden, mean) + special, hidden)
            found = max(found, hidden + blanks)  # <bos>, what was hidden, and <sep> between
        else:
            blanks = min(most_noise_spans(hidden, mean), n - hidden + 1) + min(special, hidden)
        found = max(found, window - hidden + blanks + 1)
    return found


def check_length(data: DataConfig, max_len: int | None, specials: int = 0) -> None:
    """Refuse a model whose `max_len` is below the longest window, of whose tokens up to `specials` are special."""
    most = longest(data.objective, data.window, data.mask_share, data.mean_span, specials)
    if max_len is not None and max_len < most:
        makes = f", which data.objective={data.objective!r} can turn into {most}" if most > data.window else ""
        raise ConfigError(
            f"A model must be able to read a whole window, but model.max_len={max_len}; got "
            f"data.window={data.window}{makes}. Set model.max_len to at least {most}, or use a shorter window."
        )


def places(data: DataConfig) -> int:
    """About how many tokens a window takes up in a batch, source and target together."""
    if data.layout != "encoder-decoder":
        return data.window
    spans = math.ceil(data.mask_share * data.window / data.mean_span)
    hidden = round(data.mask_share * data.window)
    target = data.window if data.objective == "noise" else hidden + spans
    return data.window - hidden + spans + 1 + target + 2
