"""Choosing tokens as the settings say: apply the filters in order, then draw with each row's own random numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
import torch

from glassformer.base.errors import ConfigError, RowError, all_of
from glassformer.base.shapes import Float, Int, Tensor
from glassformer.base.tensors import in_float64
from glassformer.data.tokens.vocabulary import EOS
from glassformer.decode.filters import Context, Filter, Named, check_numbers, filters_of, unbounded
from glassformer.decode.settings import Sampling


def names_of(steps: Sequence[Filter]) -> list[str]:
    """Return the names of the settings that asked for these filters, each once; filters without one have no name."""
    return [*dict.fromkeys(each.name for each in steps if isinstance(each, Named))]


def refuse_stuck(steps: Sequence[Filter], logits: Float[Tensor, "B V"], context: Context, row: int) -> RowError:
    """Make the error for a row of a step in which the filters forbid every token. It names those that do so.

    `logits` are those before any filter.
    """
    seeds = None if context.seeds is None else [context.seeds[row]]
    alone = Context([context.numbers[row]], [context.prompts[row]], [context.written[row]], seeds, context.searched)
    guilty = needed(steps, logits[row : row + 1], alone)
    names = names_of(guilty) or ["the filters" if guilty else "the model, whose logits are all -inf"]
    advice = f"Change or remove {'it' if len(names) == 1 else 'one of them'}." if guilty else "Check its weights."
    return RowError(
        f"Each step needs at least one allowed token; after {len(context.written[row])} tokens of ",
        context.numbers[row],
        f" all are forbidden by {all_of(names)}. {advice}",
    )


def refuse_searched(steps: Sequence[Filter], row: int) -> RowError:
    """Make the error for a row of a beam of which no hypothesis has a next token. It names what forbids tokens."""
    names = names_of(steps) or ["the filters"]
    change = "it" if len(names) == 1 else "one of them"
    return RowError(
        "Each step needs at least one allowed token; in ",
        row,
        f" all hypotheses came to a step without one, as {all_of(names)} "
        f"{'forbids' if len(names) == 1 else 'forbid'} them. Raise beam, or change or remove {change}.",
    )


def needed(steps: Sequence[Filter], logits: Float[Tensor, "1 V"], context: Context) -> list[Filter]:
    """Return filters that together forbid every token, all of `steps` doing so; without any of them a token is left."""
    kept = [*steps]
    for place in reversed(range(len(steps))):
        fewer = kept[:place] + kept[place + 1 :]
        if not bool(allowed(fewer, logits, context).any()):
            kept = fewer
    return kept


def allowed(steps: Sequence[Filter], logits: Float[Tensor, "1 V"], context: Context) -> Tensor:
    """Return which tokens of a row the filters leave, [V]."""
    for each in steps:
        logits = each(logits, context)
    return ~logits[0].isneginf()


def refuse_certain(steps: Sequence[Filter], size: int, prompt: Sequence[int], most: int) -> None:
    """Refuse settings that leave a text without a next token, if that is certain whatever a model writes.

    It follows a text of up to `most` tokens for as long as its next token is the only one allowed. `size` is the number
    of tokens; `steps` must not depend on the logits. Errors: `ConfigError`, as for a step in which all are forbidden.
    """
    ids, logits = list[int](), torch.zeros(1, size)
    while len(ids) < most:
        context = Context([0], [prompt], [ids])
        left = allowed(steps, logits, context).nonzero()[:, 0].tolist()
        if not left:
            raise refuse_stuck(steps, logits, context, 0)
        if len(left) > 1 or left[0] == EOS:
            return
        ids = [*ids, left[0]]


def greedy(logits: Float[Tensor, "B V"], context: Context) -> Int[Tensor, " B"]:
    """Choose the most likely token; among equals, the one with the lowest id.

    Errors: `DataError` if a logit is NaN or +inf. Only the chosen logits are looked at, because argmax takes a NaN
    if there is one.
    """
    logits = logits.detach()
    if logits.device.type == "cpu":  # in NumPy, several times as fast as torch
        values = (logits.float() if logits.dtype == torch.bfloat16 else logits).numpy()  # which has no bfloat16
        best = values.argmax(-1)
        ids, sound = torch.from_numpy(best), (values[np.arange(len(best)), best] < math.inf).all()
    else:
        ids = logits.argmax(-1)
        sound = (logits.gather(-1, ids[:, None]) < math.inf).all()
    if not sound:  # NaN is not below inf
        check_numbers(logits, context)
    return ids


AT_ONCE = 256
"""How many random numbers of a row are made at a time."""


def chooser(sampling: Sampling, first: Sequence[Filter] = ()) -> Chooser:
    """Make the `choose` of `generate` that the settings describe. The filters in `first` apply before all others.

    Random numbers are a pure function of (seed, number of the row, tokens written), so that a row gets the same text in
    any batch. Errors while choosing: `ConfigError` if every token is
    forbidden or a filter returns NaN or +inf, `DataError` if the model's logits are NaN or +inf.
    """
    return Chooser(sampling, [*first, *filters_of(sampling)])


@final
@dataclass(frozen=True, eq=False)
class Chooser:
    """What `chooser` makes: a `Choose` of these settings."""

    sampling: Sampling
    steps: Sequence[Filter]

    def __call__(self, logits: Float[Tensor, "B V"], context: Context) -> Int[Tensor, " B"]:
        """Choose a token for each row."""
        logits = apply(self.steps, logits, context)
        if self.sampling.temperature == 0:
            return greedy(logits, context)
        return draw(logits, own_uniforms(self.sampling.seed, context))

    def probabilities(self, logits: Float[Tensor, "B V"], context: Context) -> Float[Tensor, "B V"]:
        """Those with which it chooses, in float64; one-hot at temperature 0."""
        logits = apply(self.steps, logits, context)
        if self.sampling.temperature == 0:
            return in_float64(torch.nn.functional.one_hot(greedy(logits, context), logits.shape[-1]).float())
        return in_float64(logits).softmax(-1)


def apply(steps: Sequence[Filter], logits: Float[Tensor, "B V"], context: Context) -> Float[Tensor, "B V"]:
    """Apply all filters to the logits, in float32 or wider. Errors: as for `chooser`."""
    kept = filtered(steps, logits, context)
    if bool((stuck := kept.amax(-1).isneginf()).any()):
        raise refuse_stuck(steps, logits.to(kept.dtype), context, int(stuck.int().argmax()))
    return kept


def filtered(steps: Sequence[Filter], logits: Float[Tensor, "B V"], context: Context) -> Float[Tensor, "B V"]:
    """As `apply`, but a row may end up without any allowed token, as in a beam. Errors: for NaN and +inf."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    check_numbers(logits, context)
    for each in steps:
        logits = each(logits, context)
    if steps and (place := unbounded(logits)) is not None:
        raise ConfigError(
            f"A filter must return finite logits, or -inf for a forbidden token; in row {context.numbers[place]} "
            "(counted from 0) one returned NaN or +inf. Check that what it adds or multiplies is finite."
        )
    return logits


def draw(logits: Float[Tensor, "B V"], uniforms: Sequence[float] | Float[Tensor, " B"]) -> Int[Tensor, " B"]:
    """Sample by the inverse CDF: the first token, by id, at which the cumulative probability exceeds the row's number.

    In float64, so that a token of probability 1e-12 is still drawn once in 1e12 draws. Probability 0 is never drawn.
    """
    return pick(in_float64(logits).softmax(-1), uniforms)


def pick(shares: Float[Tensor, "B V"], uniforms: Sequence[float] | Float[Tensor, " B"]) -> Int[Tensor, " B"]:
    """As `draw`, from unnormalised probabilities with any sum above 0."""
    mass = in_float64(shares).cumsum(-1)
    at = torch.as_tensor(uniforms, dtype=torch.float64, device=mass.device)[:, None]
    return torch.searchsorted(mass / mass[:, -1:], at, right=True)[:, 0]


def own_uniforms(seed: int, context: Context, lane: int = 0) -> list[float]:
    """Each row's random number at this step: a pure function of (seed, number of the row, tokens written, lane).

    If the context has a seed per row, it replaces `seed`. Each lane has its own sequence of numbers.
    """
    places = (divmod(len(ids), AT_ONCE) for ids in context.written)
    keys = zip(context.seeds or [seed] * len(context.numbers), context.numbers, places, strict=True)
    return [numbers(each, row, block, lane)[i] for each, row, (block, i) in keys]


@lru_cache(maxsize=4096)
def numbers(seed: int, row: int, block: int, lane: int = 0) -> list[float]:
    """Random numbers from [0, 1) with 53 bits: Philox (Salmon et al. 2011) with key (seed, row) and counter block."""
    key = np.array([seed, row], np.uint64)
    raw = np.random.Philox(key=key, counter=[0, block, lane, 0]).random_raw(AT_ONCE)
    return ((raw >> np.uint64(11)) * 2.0**-53).tolist()
