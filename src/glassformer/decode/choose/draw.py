"""From settings to tokens: filters in their order, then a draw by random numbers that belong to the row alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np
import torch

from glassformer.decode.choose import filters, penalties
from glassformer.decode.choose.context import Choose, Context, Filter
from glassformer.decode.choose.penalties import unbounded
from glassformer.decode.choose.sampling import Sampling
from glassformer.decode.generate import greedy
from glassformer.foundation.errors import ConfigError, DataError
from glassformer.foundation.shapes import Float, Int, Tensor
from glassformer.foundation.wide import in_float64

Uniforms = Callable[[Context], Sequence[float]]
"""A number from [0, 1) for each row of a step."""

AT_ONCE = 256
"""Numbers of a row that are made together."""


def chooser(sampling: Sampling, first: Sequence[Filter] = (), uniforms: Uniforms | None = None) -> Choose:
    """The choice that the settings describe, for `generate(choose=)`. The filters of `first` come before all others.

    `uniforms` replaces the random numbers, which else are a pure function of (seed, number of the row, tokens
    written): a row gets the same text in any batch. Errors while choosing: `ConfigError` where everything is
    forbidden or a filter leaves no numbers, `DataError` for logits of the model that are none.
    """
    applied = partial(apply, [*first, *filters_of(sampling)])
    given = uniforms or partial(own_uniforms, sampling.seed)

    def choose(logits: Float[Tensor, "B V"], context: Context) -> Int[Tensor, " B"]:
        logits = applied(logits, context)
        return greedy(logits, context) if sampling.temperature == 0 else draw(logits, given(context))

    return choose


def shares(sampling: Sampling, first: Sequence[Filter] = ()) -> Callable[[Tensor, Context], Tensor]:
    """The probabilities, in float64, that the choice of `chooser` has; all on one token where none is drawn."""
    applied = partial(apply, [*first, *filters_of(sampling)])

    def mass(logits: Float[Tensor, "B V"], context: Context) -> Float[Tensor, "B V"]:
        logits = applied(logits, context)
        if sampling.temperature == 0:
            return in_float64(torch.nn.functional.one_hot(greedy(logits, context), logits.shape[-1]).float())
        return in_float64(logits).softmax(-1)

    return mass


def apply(steps: Sequence[Filter], logits: Float[Tensor, "B V"], context: Context) -> Float[Tensor, "B V"]:
    """The logits behind all filters, in float32 or wider. Errors: as those of `chooser`."""
    logits = filtered(steps, logits, context)
    check_possible(logits, context)
    return logits


def filtered(steps: Sequence[Filter], logits: Float[Tensor, "B V"], context: Context) -> Float[Tensor, "B V"]:
    """The same, where a row may be left without any token, as in a beam others go on. Errors: for no numbers."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    check_numbers(logits, context)
    for each in steps:
        logits = each(logits, context)
    if steps:
        check_kept(logits, context)
    return logits


def filters_of(sampling: Sampling) -> list[Filter]:
    """The filters that the settings ask for, in the order that they apply, without those that change nothing."""
    s = sampling
    asked: list[tuple[bool, Callable[[], Filter]]] = [
        (s.min_new_tokens > 0, lambda: penalties.min_new_tokens(s.min_new_tokens)),
        (s.repetition_penalty != 1, lambda: penalties.repetition_penalty(s.repetition_penalty)),
        (s.frequency_penalty != 0, lambda: penalties.frequency_penalty(s.frequency_penalty)),
        (s.presence_penalty != 0, lambda: penalties.presence_penalty(s.presence_penalty)),
        (s.no_repeat_ngram is not None, lambda: penalties.no_repeat_ngram(s.no_repeat_ngram or 0)),
        (s.temperature not in (0, 1), lambda: filters.temperature(s.temperature)),
        (s.top_k is not None and not s.contrastive_alpha, lambda: filters.top_k(s.top_k or 0)),
        (s.top_p != 1, lambda: filters.top_p(s.top_p)),
        (s.typical_p != 1, lambda: filters.typical(s.typical_p)),
        (s.min_p != 0, lambda: filters.min_p(s.min_p)),
    ]
    return [make() for wanted, make in asked if wanted]


def draw(logits: Float[Tensor, "B V"], uniforms: Sequence[float]) -> Int[Tensor, " B"]:
    """The first token, by id, at which the cumulative probability exceeds the row's number: inverse of the CDF.

    In float64, so that a token of probability 1e-12 still comes once in 1e12 draws. One of probability 0 never comes.
    """
    return pick(in_float64(logits).softmax(-1), uniforms)


def pick(shares: Float[Tensor, "B V"], uniforms: Sequence[float]) -> Int[Tensor, " B"]:
    """As `draw`, from shares of any sum above 0."""
    mass = in_float64(shares).cumsum(-1)
    at = torch.tensor(uniforms, dtype=torch.float64, device=mass.device)[:, None]
    return torch.searchsorted(mass / mass[:, -1:], at, right=True)[:, 0]


def own_uniforms(seed: int, context: Context, lane: int = 0) -> list[float]:
    """The number of each row at this step: a pure function of (seed, number of the row, tokens it has written, lane).

    A row's own seed, where the context has one, stands in place of `seed`. Each lane has numbers of its own.
    """
    places = (divmod(len(ids), AT_ONCE) for ids in context.written)
    keys = zip(context.seeds or [seed] * len(context.numbers), context.numbers, places, strict=True)
    return [numbers(each, row, block, lane)[i] for each, row, (block, i) in keys]


@lru_cache(maxsize=4096)
def numbers(seed: int, row: int, block: int, lane: int = 0) -> list[float]:
    """Numbers from [0, 1) with 53 bits, by Philox (Salmon et al. 2011) keyed with seed and row, counted by block."""
    key = np.array([seed, row], np.uint64)
    raw = np.random.Philox(key=key, counter=[0, block, lane, 0]).random_raw(AT_ONCE)
    return ((raw >> np.uint64(11)) * 2.0**-53).tolist()


def check_numbers(logits: Float[Tensor, "B V"], context: Context) -> None:
    """Refuse logits that are NaN or infinite: nothing can be drawn. Errors: `DataError` naming the row."""
    if (place := unbounded(logits)) is not None:
        what = "infinite" if bool(logits[place].amax().isposinf()) else "no numbers (NaN)"
        row = context.numbers[place]
        raise DataError(f"The model's logits are {what} in row {row} (counted from 0). Are its weights finite?")


def check_kept(logits: Float[Tensor, "B V"], context: Context) -> None:
    """Refuse what filters made NaN or infinite. Errors: `ConfigError` naming the row."""
    if (place := unbounded(logits)) is not None:
        raise ConfigError(
            f"A filter must leave numbers, or -inf where a token may not come; of row {context.numbers[place]} "
            "(counted from 0) one left NaN or +inf. Are all that were added or multiplied finite?"
        )


def check_possible(logits: Float[Tensor, "B V"], context: Context) -> None:
    """Refuse a row whose every token is forbidden. Errors: `ConfigError` naming the row and how far it had come."""
    best = logits.max(-1).values
    if bool((stuck := best.isneginf()).any()):
        i = int(stuck.int().argmax())
        raise ConfigError(
            f"Each step needs a token that may come; after {len(context.written[i])} tokens of row "
            f"{context.numbers[i]} (counted from 0) all are forbidden. Ban fewer, or raise no_repeat_ngram."
        )
