"""Filters that depend on the text so far: penalties for repetition, and forbidden tokens.

Each function makes a filter from its setting. The filter maps logits [B, V] to logits [B, V], with -inf for forbidden
tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from glassformer.base.errors import ConfigError, RowError
from glassformer.base.shapes import Bool, Float, Int, Tensor
from glassformer.data.tokens.vocabulary import EOS
from glassformer.decode.choose.context import Context, Filter
from glassformer.decode.choose.finite import unbounded
from glassformer.decode.choose.repeats import ends_alike


def repetition_penalty(penalty: float) -> Filter:
    """For tokens in prompt or answer: z / penalty if z > 0, else z * penalty.

    Keskar et al. 2019, section 4.1. Multiplying negative logits, which their code added, makes a token less likely
    under any penalty above 1. 1 changes nothing. Errors: `ConfigError` unless 0 < penalty < inf.
    """
    if not 0 < penalty < math.inf:
        raise ConfigError(f"repetition_penalty must be above 0 and finite; got {penalty}. Try 1.2; 1 turns it off.")

    def discouraged(logits: Float[Tensor, "B V"], context: Context) -> Float[Tensor, "B V"]:
        seen = counts(context.read, logits) > 0
        changed = torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)
        return bounded(changed, context, "repetition_penalty", penalty)

    return discouraged


def frequency_penalty(penalty: float) -> Filter:
    """z - penalty * c, where c is how often the token was written (OpenAI's API reference); 0 changes nothing."""
    check_finite("frequency_penalty", penalty)

    def discouraged(logits: Float[Tensor, "B V"], context: Context) -> Float[Tensor, "B V"]:
        changed = logits - penalty * counts(context.written, logits).to(logits.dtype)
        return bounded(changed, context, "frequency_penalty", penalty)

    return discouraged


def presence_penalty(penalty: float) -> Filter:
    """z - penalty if the token was already written (OpenAI's API reference); 0 changes nothing."""
    check_finite("presence_penalty", penalty)

    def discouraged(logits: Float[Tensor, "B V"], context: Context) -> Float[Tensor, "B V"]:
        changed = logits - penalty * (counts(context.written, logits) > 0).to(logits.dtype)
        return bounded(changed, context, "presence_penalty", penalty)

    return discouraged


def no_repeat_ngram(n: int) -> Filter:
    """Forbid repeating any n-gram, the prompt's included (Paulus et al. 2018, section 2.5). Errors: `ConfigError`."""
    if n < 1:
        raise ConfigError(f"no_repeat_ngram must be at least 1; got {n}. Try 3, or remove the filter.")

    def unrepeated(logits: Float[Tensor, "B V"], context: Context) -> Float[Tensor, "B V"]:
        return forbidden(logits, [enders(ids, n) for ids in context.read])

    return unrepeated


def enders(ids: Sequence[int], n: int) -> list[int]:
    """The tokens that would complete an n-gram which `ids` already contains."""
    return [ids[-back] for back, alike in enumerate(ends_alike(ids)) if back and alike >= n - 1]


def logit_bias(biases: Mapping[int, float]) -> Filter:
    """z + bias for some tokens; -inf forbids one (OpenAI's API reference). Errors: `ConfigError` for NaN and inf."""
    for id, bias in biases.items():
        if math.isnan(bias) or bias == math.inf:
            raise ConfigError(f"A logit_bias is a finite number, or -inf to forbid a token; got {bias} for id {id}.")

    def biased(logits: Float[Tensor, "B V"], context: Context) -> Float[Tensor, "B V"]:
        check_known([*biases], logits, "logit_bias")
        row = logits.new_zeros(logits.shape[-1])
        row[[*biases]] = logits.new_tensor([*biases.values()])
        return bounded(logits + row, context, "logit_bias", max(biases.values(), default=0.0))

    return biased


def banned(sequences: Sequence[Sequence[int]]) -> Filter:
    """Forbid these sequences of ids: the last id of one may not follow its others. Errors: `ConfigError`."""
    if any(len(each) == 0 for each in sequences):
        raise ConfigError("A banned sequence must have at least one token; got an empty one. Remove it.")

    def without(logits: Float[Tensor, "B V"], context: Context) -> Float[Tensor, "B V"]:
        check_known([each[-1] for each in sequences], logits, "banned")
        ends = [[each[-1] for each in sequences if ends_with(ids, each[:-1])] for ids in context.read]
        return forbidden(logits, ends)

    return without


def ends_with(ids: Sequence[int], tail: Sequence[int]) -> bool:
    """Whether `ids` end with `tail`; always True for an empty tail."""
    return len(ids) >= len(tail) and [*ids[len(ids) - len(tail) :]] == [*tail]


def min_new_tokens(least: int, eos: int = EOS) -> Filter:
    """Forbid `eos` until `least` other tokens are written; 0 changes nothing. Errors: `ConfigError` below 0."""
    if least < 0:
        raise ConfigError(f"min_new_tokens must be at least 0; got {least}. Try min_new_tokens=10.")

    def later(logits: Float[Tensor, "B V"], context: Context) -> Float[Tensor, "B V"]:
        return forbidden(logits, [[eos] if len(ids) < least else [] for ids in context.written])

    return later


def counts(rows: Sequence[Sequence[int]], logits: Float[Tensor, "B V"]) -> Int[Tensor, "B V"]:
    """How often each token of the vocabulary occurs in each row."""
    found = torch.zeros(logits.shape, dtype=torch.long, device=logits.device)
    ids = torch.tensor([id for row in rows for id in row], dtype=torch.long, device=logits.device)
    owner = torch.tensor([i for i, row in enumerate(rows) for _ in row], dtype=torch.long, device=logits.device)
    return found.index_put((owner, ids), torch.ones_like(ids), accumulate=True)


def bounded(logits: Float[Tensor, "B V"], context: Context, name: str, value: float) -> Float[Tensor, "B V"]:
    """Check logits that a setting changed. Errors: `ConfigError` naming setting and row if one is NaN or +inf."""
    if (place := unbounded(logits)) is not None:
        raise RowError(
            f"{name} must leave logits that {str(logits.dtype).removeprefix('torch.')} can hold; with {name}={value} "
            "one is NaN or +inf in ",
            context.numbers[place],
            ". Take a less extreme value.",
        )
    return logits


def forbidden(logits: Float[Tensor, "B V"], ids: Sequence[Sequence[int]]) -> Float[Tensor, "B V"]:
    """Set the logits of the given ids of each row to -inf."""
    if not any(map(len, ids)):
        return logits
    hit: Bool[Tensor, "B V"] = counts(ids, logits) > 0
    return logits.masked_fill(hit, -math.inf)


def check_finite(name: str, value: float) -> None:
    """Refuse a value that is not finite. Errors: `ConfigError`."""
    if not math.isfinite(value):
        raise ConfigError(f"{name} must be a finite number; got {value}. Try 0.5; 0 turns it off.")


def check_known(ids: Sequence[int], logits: Float[Tensor, "B V"], name: str) -> None:
    """Refuse ids outside the vocabulary. Errors: `ConfigError`."""
    size = logits.shape[-1]
    if wrong := [id for id in ids if not 0 <= id < size]:
        raise ConfigError(
            f"Ids of {name} must be from 0 to {size - 1}; got {wrong[0]}. Encode with the model's own tokenizer."
        )
