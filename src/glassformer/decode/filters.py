"""Filters: what changes the logits [B, V] of a step before a token is chosen, with -inf where one is forbidden.

Each function makes a filter from its setting. Filters are pure and work in any order; those for sampling leave at least
one token. Of equal logits, the lower id counts as more likely, as in greedy decoding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch

from glassformer.base.errors import ConfigError, DataError, RowError
from glassformer.base.shapes import Bool, Float, Int, Tensor
from glassformer.base.tracing import constant
from glassformer.data.tokens.vocabulary import BLANK, BOS, EOS, PAD, SEP, SPECIALS, UNK
from glassformer.decode.settings import Sampling


class Context(NamedTuple):
    """The unfinished rows of one step, in the order of the logits."""

    numbers: Sequence[int]
    """The number of each row, the same in any batch; it determines the row's random numbers."""
    prompts: Sequence[Sequence[int]]
    """The ids that each row began with, including special ones."""
    written: Sequence[Sequence[int]]
    """The ids that each row has written so far."""
    seeds: Sequence[int] | None = None
    """The random seed of each row, if rows of several callers share a step; None: the seed of the settings."""
    searched: bool = False
    """Whether the rows are hypotheses of a beam, where one without an allowed token just ends and others continue."""

    @property
    def read(self) -> list[list[int]]:
        """The prompt and written ids of each row, joined."""
        return [[*prompt, *ids] for prompt, ids in zip(self.prompts, self.written, strict=True)]


Filter = Callable[[Tensor, Context], Tensor]
"""Maps logits [B, V] to logits [B, V], with -inf for forbidden tokens. Filters are pure and work in any order."""


@dataclass(frozen=True)
class Named:
    """A filter that forbids tokens, with the name of the setting that asked for it, which error messages give."""

    step: Filter
    name: str

    def __call__(self, logits: Tensor, context: Context) -> Tensor:
        """Apply the filter."""
        return self.step(logits, context)


@dataclass(frozen=True)
class ByLogits:
    """A filter that looks at nothing but logits, so that it can be applied before the last tokens are known."""

    step: Callable[[Tensor], Tensor]

    def __call__(self, logits: Tensor, context: Context) -> Tensor:
        """Apply the filter."""
        return self.step(logits)


Choose = Callable[[Tensor, Context], Tensor]
"""Maps logits [B, V] to the next tokens [B]."""


def unbounded(logits: Float[Tensor, "B V"]) -> int | None:
    """The index of the first row with a NaN or +inf logit; None if there is none. -inf only means a forbidden token."""
    best = logits.amax(-1)  # NaN if any logit is NaN
    found = best.isnan() | best.isposinf()
    return int(found.int().argmax()) if bool(found.any()) else None


def check_numbers(logits: Float[Tensor, "B V"], context: Context) -> None:
    """Refuse logits of the model that are NaN or +inf. Errors: `DataError` naming the row."""
    if (place := unbounded(logits)) is not None:
        what = "infinite" if bool(logits[place].amax().isposinf()) else "not numbers (NaN)"
        row = context.numbers[place]
        raise DataError(
            f"The model's logits are {what} in row {row} (counted from 0). Check that its weights are finite."
        )


def unwritten(left_to_right: bool = True, objective: str = "next_token", *, ends: bool = True) -> list[int]:
    """The ids that a model never writes, from left to right or in blanks, if it was trained with this objective.

    <pad> and <bos> surround texts but are in none, and <blank> stands only in what a model reads. <unk> stands for text
    that the vocabulary lacks: in an answer it says nothing, and no target ever equals it. <eos> ends a text, unless the
    model was trained on text without `ends`. <sep> stands between the hidden spans that T5's objective, "spans", asks
    for; no other target has it. An encoder fills each blank with a token of the text.
    """
    if not left_to_right:
        return [*range(len(SPECIALS))]
    never = [PAD, BOS, UNK, BLANK] if objective == "spans" else [PAD, BOS, UNK, SEP, BLANK]
    return never if ends else [*never, EOS]


def one_end(ids: Sequence[int]) -> Filter:
    """Make a filter that gives <eos> the probability of all tokens that end a text: its own, and that of `ids`."""

    def joined(logits: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        whole = logits[..., [EOS, *ids]].logsumexp(-1, keepdim=True)
        return forbid(logits, ids).index_copy(-1, constant([EOS], torch.long, logits.device), whole)

    return ByLogits(joined)


def without(ids: Sequence[int]) -> Filter:
    """Make a filter that forbids these ids."""
    return ByLogits(partial(forbid, ids=ids))


def forbid(logits: Float[Tensor, "*B V"], ids: Sequence[int]) -> Float[Tensor, "*B V"]:
    """Return the logits, with -inf for these ids."""
    return logits.index_fill(-1, constant(ids, torch.long, logits.device), -math.inf)


def temperature(value: float) -> Filter:
    """z / t (Ackley et al. 1985); t below 1 sharpens the distribution. Errors: `ConfigError` unless 0 < t < inf."""
    if not 0 < value < math.inf:
        raise ConfigError(f"temperature must be above 0 and finite, as logits are divided by it; got {value}. Try 0.8.")

    def scaled(logits: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        largest = logits.max(-1, keepdim=True).values.clamp(min=torch.finfo(logits.dtype).min)
        least = torch.finfo(logits.dtype).tiny  # a smaller t would be 0 in this dtype
        return (logits - largest) / max(value, least)  # no value is above 0, so a small t can overflow only to -inf

    return ByLogits(scaled)


def top_k(k: int) -> Filter:
    """Keep the k most likely tokens, or all if there are fewer (Fan et al. 2018, 5.1). Errors: `ConfigError`."""
    if k < 1:
        raise ConfigError(f"top_k must be at least 1; got {k}. Try top_k=50.")

    def kept(logits: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        if k >= logits.shape[-1]:
            return logits
        least = logits.topk(k).values[:, -1:]
        above, equal = logits > least, logits == least
        room = k - above.sum(-1, keepdim=True)
        return only(logits, above | (equal & (equal.cumsum(-1) <= room)))

    return ByLogits(kept)


def top_p(p: float) -> Filter:
    """Keep the nucleus: the fewest most likely tokens with total probability at least p (Holtzman et al. 2020, eq. 2).

    p = 1 keeps all. Errors: `ConfigError` unless 0 < p <= 1.
    """
    check_share("top_p", p)

    def nucleus(logits: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        return logits if p == 1 else only(logits, of_mass(logits.softmax(-1), -logits, p))

    return ByLogits(nucleus)


def min_p(share: float) -> Filter:
    """Keep tokens at least `share` times as likely as the most likely one (Nguyen et al. 2024, equation 2).

    0 keeps all. Errors: `ConfigError` unless 0 <= share <= 1.
    """
    if not 0 <= share <= 1:
        raise ConfigError(f"min_p must be from 0 to 1; got {share}. Try min_p=0.05.")
    floor = math.log(share) if share else -math.inf

    def kept(logits: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        return only(logits, logits >= logits.max(-1, keepdim=True).values + floor)

    return ByLogits(kept)


def typical(p: float) -> Filter:
    """Keep typical tokens: those whose surprise is nearest to the entropy, with total probability at least p.

    Tokens are taken in the order of | -log p(y) - H | (Meister et al. 2023, equation 10). p = 1 keeps all. Errors:
    `ConfigError`.
    """
    check_share("typical_p", p)

    def kept(logits: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        if p == 1:
            return logits
        log_p = logits.log_softmax(-1)
        probabilities = log_p.exp()
        entropy = -(probabilities * log_p.clamp(min=torch.finfo(log_p.dtype).min)).sum(-1, keepdim=True)
        return only(logits, of_mass(probabilities, (-log_p - entropy).abs(), p))

    return ByLogits(kept)


def of_mass(probabilities: Float[Tensor, "B V"], rank: Float[Tensor, "B V"], p: float) -> Bool[Tensor, "B V"]:
    """True at the fewest tokens with total probability at least p, in the order of `rank` (smallest first, then id)."""
    order = rank.argsort(dim=-1, stable=True)
    mass = probabilities.gather(-1, order).cumsum(-1)
    before = torch.nn.functional.pad(mass[:, :-1], (1, 0))  # a token stays if those before it do not suffice
    least = max(p, torch.finfo(probabilities.dtype).tiny)  # a smaller p would be 0 in this dtype and keep none
    return torch.zeros_like(probabilities, dtype=torch.bool).scatter(-1, order, before < least)


def only(logits: Float[Tensor, "B V"], keep: Bool[Tensor, "B V"]) -> Float[Tensor, "B V"]:
    """Set logits to -inf where `keep` is False."""
    return logits.masked_fill(~keep, -math.inf)


def check_share(name: str, p: float) -> None:
    """Refuse a probability mass that is not above 0 and at most 1. Errors: `ConfigError`."""
    if not 0 < p <= 1:
        raise ConfigError(
            f"{name} must be above 0 and at most 1, the share of the probability to keep; got {p}. Try 0.9."
        )


def suffix_lengths(ids: Sequence[int]) -> list[int]:
    """For each `back` from 0 to the length: how many ids before the place `back` from the end match the last ids.

    It is 0 at both ends: there is nothing before the first id, and the end is not compared with itself. It takes linear
    time: the Z algorithm (Gusfield 1997, section 1.4) on the reversed ids.
    """
    last = [*reversed(ids)]
    lengths = [0] * (len(last) + 1)
    begin = end = 0  # of the match with the start that reaches furthest so far
    for at in range(1, len(last)):
        n = min(lengths[at - begin], end - at) if at < end else 0
        if at + n >= end:
            while at + n < len(last) and last[n] == last[at + n]:
                n += 1
            begin, end = at, at + n
        lengths[at] = n
    return lengths


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
    return subtracted("frequency_penalty", penalty, once=False)


def presence_penalty(penalty: float) -> Filter:
    """z - penalty if the token was already written (OpenAI's API reference); 0 changes nothing."""
    return subtracted("presence_penalty", penalty, once=True)


def subtracted(name: str, penalty: float, *, once: bool) -> Filter:
    """z - penalty * c, where c is how often the token was written or, with `once`, whether. Errors: `ConfigError`."""
    if not math.isfinite(penalty):
        raise ConfigError(f"{name} must be a finite number; got {penalty}. Try 0.5; 0 turns it off.")

    def discouraged(logits: Float[Tensor, "B V"], context: Context) -> Float[Tensor, "B V"]:
        times = counts(context.written, logits)
        changed = logits - penalty * (times > 0 if once else times).to(logits.dtype)
        return bounded(changed, context, name, penalty)

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
    return [ids[-back] for back, length in enumerate(suffix_lengths(ids)) if back and length >= n - 1]


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


def min_new_tokens(least: int) -> Filter:
    """Forbid <eos> until `least` other tokens are written; 0 changes nothing. Errors: `ConfigError` below 0."""
    if least < 0:
        raise ConfigError(f"min_new_tokens must be at least 0; got {least}. Try min_new_tokens=10.")

    def later(logits: Float[Tensor, "B V"], context: Context) -> Float[Tensor, "B V"]:
        return forbidden(logits, [[EOS] if len(ids) < least else [] for ids in context.written])

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


def check_known(ids: Sequence[int], logits: Float[Tensor, "B V"], name: str) -> None:
    """Refuse ids outside the vocabulary. Errors: `ConfigError`."""
    size = logits.shape[-1]
    if wrong := [id for id in ids if not 0 <= id < size]:
        raise ConfigError(
            f"Ids of {name} must be from 0 to {size - 1}; got {wrong[0]}. Encode with the model's own tokenizer."
        )


def filters_of(sampling: Sampling) -> list[Filter]:
    """The filters that the settings ask for, in the order in which they apply, without those that change nothing."""
    s = sampling
    requested: list[tuple[bool, Callable[[], Filter]]] = [
        (s.min_new_tokens > 0, lambda: Named(min_new_tokens(s.min_new_tokens), "min_new_tokens")),
        (s.repetition_penalty != 1, lambda: repetition_penalty(s.repetition_penalty)),
        (s.frequency_penalty != 0, lambda: frequency_penalty(s.frequency_penalty)),
        (s.presence_penalty != 0, lambda: presence_penalty(s.presence_penalty)),
        (s.no_repeat_ngram is not None, lambda: Named(no_repeat_ngram(s.no_repeat_ngram or 0), "no_repeat_ngram")),
        (s.temperature not in (0, 1), lambda: temperature(s.temperature)),
        (s.top_k is not None and not s.contrastive_alpha, lambda: top_k(s.top_k or 0)),
        (s.top_p != 1, lambda: top_p(s.top_p)),
        (s.typical_p != 1, lambda: typical(s.typical_p)),
        (s.min_p != 0, lambda: min_p(s.min_p)),
    ]
    return [make() for wanted, make in requested if wanted]
