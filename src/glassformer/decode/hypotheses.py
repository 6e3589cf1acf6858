"""What a beam search keeps: candidates for the next token, hypotheses, and texts that answers must contain.

Texts that must be there are lexically constrained decoding (Hokamp and Liu 2017). The beam is divided among hypotheses
by how much of these texts they contain (Post and Vilar 2018, dynamic beam allocation), so that those which took a less
likely token to make progress are not pushed out by the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import zip_longest
from typing import NamedTuple

import torch

from glassformer.base.errors import ConfigError, RowError
from glassformer.base.shapes import Float, Int, Tensor
from glassformer.decode.filters import Context, check_numbers, forbid
from glassformer.decode.generate import Kernels


class Scores(NamedTuple):
    """The logits of a step, in float32 or wider, and the number to subtract for log-probabilities, in nats."""

    logits: Float[Tensor, "rows V"]
    whole: Float[Tensor, "rows 1"]
    """The logarithm of the sum of e^z over the whole vocabulary; on the CPU, which always has float64."""


class Candidates(NamedTuple):
    """Tokens of each row, most likely first; on the CPU, where the search uses them."""

    ids: Int[Tensor, "rows k"]
    log_p: Float[Tensor, "rows k"]
    """In nats, normalised as by `scored`; -inf for forbidden tokens."""


def scored(logits: Float[Tensor, "rows V"], never: Sequence[int] = (), kernels: Kernels | None = None) -> Scores:
    """Sum over the vocabulary, then forbid the ids of `never`.

    In this order, a log-probability is the model's own: what the model gives to a token that is never written is lost,
    as it is where a given text is scored (`read_back`).
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    whole = None if kernels is None else kernels.log_sums(wide)
    if whole is None:
        whole = wide.logsumexp(-1, keepdim=True).cpu().double()
    return Scores(forbid(wide, never) if never else wide, whole)


def check_summed(scores: Scores, logits: Float[Tensor, "rows V"], context: Context) -> None:
    """`check_numbers` for logits that were summed: their sum tells whether all of them need looking at."""
    if bool((scores.whole.isnan() | scores.whole.isposinf()).any()):
        check_numbers(logits, context)


def likeliest(scores: Scores, k: int, kernels: Kernels | None = None) -> Candidates:
    """Return the `k` most likely tokens of each row, or all if there are fewer."""
    k = min(k, scores.logits.shape[-1])
    found = None if kernels is None else kernels.largest(scores.logits, k)
    if found is None:
        values, ids = scores.logits.topk(k)
        found = values.cpu().double(), ids.cpu()
    values, ids = found
    return Candidates(ids, (values - scores.whole).masked_fill(values.isneginf(), -torch.inf))


Lengths = Callable[[int], float]
"""From the number of tokens written (with <eos>) to the divisor of a log-probability; monotone and above 0."""


class Hypothesis(NamedTuple):
    """One finished answer: its ids without <eos>, its scores, and whether <eos> or a `stop` completed it."""

    ids: list[int]
    log_probability: float
    """Of all tokens written, <eos> included, in nats."""
    score: float
    complete: bool
    stopped: bool = False
    """Whether a `stop` ended it, and no <eos>."""


class Beginning(NamedTuple):
    """An unfinished hypothesis: its ids so far, their log-probability, and the row of the last step it extends."""

    ids: list[int]
    log_probability: float
    row: int


class UnansweredError(RowError):
    """The error for the first row of a call without an answer; it has what was found for the rows before."""

    def __init__(self, why: RowError, found: list[list[Hypothesis]]) -> None:
        super().__init__(why.before, why.row, why.after)
        self.found = found


@dataclass
class Search:
    """The beam of one row of the call, or one group of that beam."""

    row: int
    limit: int
    going: list[Beginning]
    found: list[Hypothesis] = field(default_factory=list[Hypothesis])
    closed: bool = False
    """Whether the search is done and runs on only to keep later groups of its row from its tokens."""


def open_rows(searches: Sequence[Search], groups: int) -> list[Search]:
    """The unfinished searches. All groups of a row end together, so none depends on when another's bound was met."""
    rows = {each.row // groups for each in searches if not each.closed}
    return [each for each in searches if each.going and each.row // groups in rows]


def together(searches: Sequence[Search], groups: int, width: int) -> list[list[Hypothesis]]:
    """Join what the groups of each row found: the best of each group, without duplicates."""
    found: list[list[Hypothesis]] = []
    for first in range(0, len(searches), groups):
        once: dict[tuple[int, ...], Hypothesis] = {}
        for search in searches[first : first + groups]:
            for each in best(search.found, width):
                once.setdefault((each.complete, *each.ids), each)
        found.append([*once.values()])
    return found


def done(search: Search, step: int, n_best: int, lengths: Lengths, stop_at: int | None) -> bool:
    """Whether no hypothesis can still become one of the `n_best`, or `stop_at` answers were found.

    A coverage penalty is never above 0, so the bound holds with one too.
    """
    if not search.going or (stop_at is not None and len(search.found) >= stop_at):
        return True
    if len(search.found) < n_best:
        return False
    highest = max(each.log_probability for each in search.going)
    bound = max(highest / lengths(length) for length in (step + 1, search.limit))
    return best(search.found, n_best)[-1].score >= bound


def best(found: Sequence[Hypothesis], n_best: int) -> list[Hypothesis]:
    """The best answers found, best first; among equals, the one found first comes first."""
    return sorted(found, key=lambda each: -each.score)[:n_best]


Held = tuple[int, ...]
"""How many bytes of each forced text are there: all once it is contained, else the part with which the answer ends."""


Option = tuple[float, int, int]
"""Log-probability, token, and index among the options of a step."""


class Forced:
    """Texts that each answer must contain, however they are split into tokens, possibly inside a longer word.

    `spelled` gives the bytes that an answer shows of each id, as from `shown_of`.
    """

    def __init__(self, spelled: Sequence[bytes], texts: Sequence[str]) -> None:
        self.texts, self.spelled, self.words = texts, spelled, [text.encode() for text in texts]
        self.whole: Held = tuple(map(len, self.words))
        self._after, self._nearer = lru_cache(2**18)(self._read_on), lru_cache(2**12)(self._tokens_on)

    def held(self, ids: Sequence[int]) -> Held:
        """How much of each forced text these ids contain."""
        now = (0,) * len(self.words)
        for id in ids:
            now = self._after(now, id)
        return now

    def _read_on(self, held: Held, id: int) -> Held:
        more = self.spelled[id]
        return tuple(prefix_at_end(word, word[:n] + more) for word, n in zip(self.words, held, strict=True))

    def _tokens_on(self, held: Held) -> list[int]:
        """The tokens that add to what is held of the forced texts."""
        ids = range(len(self.spelled))
        return [id for id in ids if self.spelled[id] and sum(self._after(held, id)) > sum(held)]

    def beside(self, likely: Candidates, scores: Scores, begun: Sequence[Sequence[int]]) -> Candidates:
        """Add to the most likely tokens of each row all others that make progress on a forced text."""
        nearer = [self._nearer(self.held(ids)) for ids in begun]
        most = max(map(len, nearer))
        if most == 0:
            return likely
        ids = torch.tensor([[*each, *[-1] * (most - len(each))] for each in nearer], device=scores.logits.device)
        log_p = scores.logits.gather(1, ids.clamp(min=0)).cpu().double() - scores.whole
        ids = ids.cpu()
        there = (ids[:, :, None] == likely.ids[:, None]).any(-1) | (ids < 0)
        log_p = log_p.masked_fill(there, -torch.inf)
        return Candidates(torch.cat([likely.ids, ids.clamp(min=0)], 1), torch.cat([likely.log_p, log_p], 1))

    def share(
        self,
        totals: Sequence[float],
        tokens: Sequence[int],
        begun: Sequence[Sequence[int]],
        last: bool,
        stop: Callable[[Sequence[int]], str | None] | None,
        *,
        k: int,
        eos: int,
    ) -> list[Option]:
        """Order the options (`k` per hypothesis) for the beam: grouped by bytes held, the best of each group in turn.

        The group that holds most comes first. An option that ends an answer, by `eos`, at a `stop` or because this is
        the `last` step, is left out unless the answer contains all forced texts; at a `stop` it is the text before it.
        """
        banks: dict[int, list[Option]] = {}
        held = [self.held(ids) for ids in begun]
        for place in sorted(range(len(held) * k), key=lambda place: -totals[place]):
            if totals[place] == -torch.inf:  # nor can one that comes after it be chosen, and a stop takes time
                break
            before, token = held[place // k], tokens[place]
            now = before if token == eos else self._after(before, token)
            text = None if token == eos or stop is None else stop([*begun[place // k], token])
            if text is not None:
                fits = all(each in text for each in self.texts)
            else:
                fits = now == self.whole or not (last or token == eos)
            if fits:
                banks.setdefault(sum(now), []).append((totals[place], token, place))
        turns = zip_longest(*(banks[count] for count in sorted(banks, reverse=True)))
        return [option for turn in turns for option in turn if option is not None]

    def refuse(self, row: int, limit: int, others: Sequence[str] = (), *, stops: bool = False) -> RowError:
        """The error for a row without an answer.

        `others` are the names of settings that forbid tokens; `stops` says whether something stops answers.
        """
        change = ", or stop at fewer" if stops else ""
        change += f", or change or remove {' or '.join(others)}" if others else ""
        return RowError(
            f"An answer must contain all forced texts, {', '.join(map(repr, self.texts)):.80}; none of ",
            row,
            f" did within its {limit} tokens. Raise max_new_tokens or beam, or force fewer texts{change}.",
        )


def check_forced(forced: Forced | None, beam: int, groups: int) -> None:
    """Refuse forced texts without a beam search in one group. Errors: `ConfigError`."""
    if forced is not None and (beam == 1 or groups > 1):
        raise ConfigError(
            f"Forced texts need a beam of at least 2 in one group; got beam={beam} and beam_groups={groups}. "
            "Try beam=5 with beam_groups=1."
        )


def prefix_at_end(word: bytes, text: bytes) -> int:
    """The length of `word` if `text` contains it, else of its longest prefix with which `text` ends."""
    if word in text:
        return len(word)
    return next(n for n in range(min(len(word), len(text)), -1, -1) if text.endswith(word[:n]))


Cut = Callable[[int, Sequence[int]], str | None]
"""A stop of a search. Called with a row's place in the call and the ids of a text in it; returns the text before the
stop if these ids end there, else None."""


def stop_in(text: str, stops: Sequence[str]) -> int | None:
    """Where the stop text begins that is complete first, so that it does not matter how the text comes; or None."""
    found = [(at + len(each), at) for each in stops if (at := text.find(each)) >= 0]
    return min(found)[1] if found else None
