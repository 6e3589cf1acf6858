"""Beam search: extend the most likely hypotheses together, and stop only when none can beat the answers found.

With groups it is diverse beam search (Vijayakumar et al. 2018): each group avoids what earlier groups chose.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import accumulate, zip_longest
from typing import NamedTuple

import torch

from glassformer.base.errors import ConfigError, RowError
from glassformer.base.shapes import Float, Int, Tensor
from glassformer.data.tokens.vocabulary import EOS
from glassformer.decode.choose import filtered, names_of, refuse_searched
from glassformer.decode.filters import Context, Filter, check_numbers, counts, forbid
from glassformer.decode.prepare import PLAIN_TORCH, Kernels, kernels_of
from glassformer.decode.rows import Rows, Run, begin_rows, check_writes, forward, read_first
from glassformer.decode.settings import BeamSettings
from glassformer.nn.ensemble import members_of
from glassformer.nn.observe import Attended, Evaluation, attentions, watch_attention
from glassformer.nn.transformer import Transformer


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


def scored(logits: Float[Tensor, "rows V"], never: Sequence[int] = (), kernels: Kernels = PLAIN_TORCH) -> Scores:
    """Sum over the vocabulary, then forbid the ids of `never`.

    In this order, a log-probability is the model's own: what the model gives to a token that is never written is lost,
    as it is where a given text is scored (`read_back`).
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    whole = kernels.log_sums(wide)
    return Scores(forbid(wide, never) if never else wide, whole)


def check_summed(scores: Scores, logits: Float[Tensor, "rows V"], context: Context) -> None:
    """`check_numbers` for logits that were summed: their sum tells whether all of them need looking at."""
    if bool((scores.whole.isnan() | scores.whole.isposinf()).any()):
        check_numbers(logits, context)


def likeliest(scores: Scores, k: int, kernels: Kernels = PLAIN_TORCH) -> Candidates:
    """Return the `k` most likely tokens of each row, or all if there are fewer."""
    values, ids = kernels.largest(scores.logits, min(k, scores.logits.shape[-1]))
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
    active: list[Beginning]
    found: list[Hypothesis] = field(default_factory=list[Hypothesis])
    closed: bool = False
    """Whether the search is done and runs on only to keep later groups of its row from its tokens."""


def open_rows(searches: Sequence[Search], groups: int) -> list[Search]:
    """The unfinished searches. All groups of a row end together, so none depends on when another's bound was met."""
    rows = {each.row // groups for each in searches if not each.closed}
    return [each for each in searches if each.active and each.row // groups in rows]


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
    if not search.active or (stop_at is not None and len(search.found) >= stop_at):
        return True
    if len(search.found) < n_best:
        return False
    highest = max(each.log_probability for each in search.active)
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


@dataclass
class Reading:
    """The attention weights of each of several models in their last forward pass; see `reading`."""

    of: list[Float[Tensor, "B T S"] | None]
    """Averaged over heads; None for a model that has run none yet."""

    @property
    def weights(self) -> Float[Tensor, "B T S"] | None:
        """The mean over the models; None until each has run a forward pass."""
        noted = [each for each in self.of if each is not None]
        return torch.stack(noted).mean(0) if len(noted) == len(self.of) else None


def reading_layer(model: Transformer) -> str:
    """The name of the cross-attention used for alignments: that of the layer before the last, or of the only layer.

    Its mean over heads aligns better than that of the last layer (Garg et al. 2019, section 3.1). Errors:
    `ConfigError` for a model that is not an encoder-decoder.
    """
    names = [name for name in attentions(model) if name.endswith("cross_attention")]
    if not names:
        raise ConfigError(
            "Alignments and coverage_penalty need the cross-attention of an encoder-decoder; this model has one stack. "
            "Remove them."
        )
    return names[max(0, len(names) - 2)]


@contextmanager
def reading(model: Transformer) -> Generator[Reading]:
    """Inside the `with`, collect the weights of `reading_layer`; for an ensemble, the mean over its members.

    The model's results are equal bit by bit to those without it.
    """
    models = members_of(model)
    seen = Reading([None] * len(models))

    def noting(place: int, layer: str) -> Callable[[Attended], None]:
        def note(call: Attended) -> None:
            if call.name == layer:
                seen.of[place] = call.attention.weigh(call.q, call.k, call.mask, scale=call.scale).mean(1)

        return note

    with ExitStack() as watches:
        for place, each in enumerate(models):
            watches.enter_context(watch_attention(each, noting(place, reading_layer(each))))
        yield seen


class Coverage:
    """cp(X; Y) = beta * sum_i log(min(sum_j p_ij, 1)) (Wu et al. 2016, equation 14).

    p_ij is the attention of answer token j to source token i, where <eos> does not count. The penalty is 0 if each
    source token got a total attention of at least 1, else below 0. Sums are at least the smallest float, to avoid
    log(0).
    """

    def __init__(self, beta: float, sources: Sequence[Sequence[int]], seen: Reading) -> None:
        self.beta, self.seen = beta, seen
        lengths = torch.tensor([len(source) for source in sources])
        self._real = torch.arange(int(lengths.max()) + 1) < lengths[:, None]
        self._sums = torch.zeros(self._real.shape, dtype=torch.float64)

    def penalties(self, shared: list[int] | None = None) -> list[float]:
        """Add the last step's weights to the sums; return the penalty of each row for an answer that ends now.

        `shared`: which row of the step each row reads, if not its own.
        """
        assert self.seen.weights is not None, "a step was done before"
        weights = self.seen.weights[:, -1].to(self._sums)
        self._sums = self._sums + (weights if shared is None else weights[shared])
        shares = self._sums.clamp(torch.finfo(self._sums.dtype).tiny, 1.0)
        return (self.beta * torch.where(self._real, shares.log(), 0.0).sum(-1)).tolist()

    def follow(self, rows: Sequence[int]) -> None:
        """Keep the given rows, in the order given."""
        at = torch.tensor(rows, device=self._sums.device)
        self._real, self._sums = self._real[at], self._sums[at]


def length_penalty(alpha: float) -> Lengths:
    """lp(Y) = ((5 + |Y|) / 6)^alpha (Wu et al. 2016, equation 14); 0 changes nothing, above 0 favours long answers."""
    return lambda length: ((5 + length) / 6) ** alpha


def beam_search(
    model: Transformer,
    settings: BeamSettings,
    *,
    sources: Sequence[Sequence[int]] | None = None,
    prompts: Sequence[Sequence[int]] | None = None,
    max_new_tokens: int | Sequence[int],
    n_best: int = 1,
    filters: Sequence[Filter] = (),
    never: Sequence[int] = (),
    forced: Forced | None = None,
    eos: int = EOS,
    numbers: Sequence[int] | None = None,
    prefix: bool = False,
    stop: Cut | None = None,
    poll: Callable[[], None] | None = None,
) -> list[list[Hypothesis]]:
    """Find the `n_best` answers to each row, best first, by log-probability / `length_penalty`.

    Each step looks at the 2 * beam most likely continuations: an `eos` among the first `beam` ends an answer, and
    `beam` others are extended. A `stop`, which may end more of them, is shown 2 * beam of each hypothesis until `beam`
    go on; what it stops at is part of the ids. A row is done when no hypothesis can beat its answers any more:
    log-probabilities only fall, so the bound is the present one over the most favourable length. With `early_stop`, it
    is done once it has `beam` answers, as with beam=1, which is greedy. A hypothesis that reaches `max_new_tokens` is
    an answer too, but not complete. Rows, `numbers` and `prefix` are as in `generate`.

    `coverage_penalty` is the beta of `Coverage`, added to an answer's score. `beam_groups` cuts the beam into that many
    parts, which search in turn at each step; a token loses `diversity` for each hypothesis of an earlier group that
    just chose it (Vijayakumar et al. 2018, section 4, Hamming diversity). This affects choices, not scores. An answer
    found by several groups counts once. Each answer contains the `forced` texts and no id of `never`. Log-probabilities
    are those after `filters`, but before `never` (`scored`). Errors: `ConfigError`, `DataError`.
    """
    check_writes(model)
    check_search(settings, n_best, forced)
    groups, ranking, kernels = settings.beam_groups, length_penalty(settings.length_penalty), kernels_of(model)
    width = settings.beam // groups
    with torch.no_grad(), Evaluation(model), reading(model) if settings.coverage_penalty else nullcontext() as seen:
        rows = spread(begin_rows(model, max_new_tokens, sources, prompts, numbers, prefix), groups)
        run = read_first(model, rows)
        covered = None if seen is None else Coverage(settings.coverage_penalty, rows.sources or (), seen)
        searches = [Search(row, limit, [Beginning([], 0.0, row)]) for row, limit in enumerate(rows.limits)]
        active = searches
        ends: Cut | None = None if stop is None else lambda search, ids: stop(search // groups, ids)
        for step in range(1, max(rows.limits) + 1):
            if poll is not None:
                poll()
            shared = run.shared
            run, hidden = forward(model, run)
            written = [each.ids for search in active for each in search.active]
            owners = [search.row for search in active for _ in search.active]
            context = rows.context(owners)._replace(written=written, searched=True)
            logits = model.head(hidden[:, -1])
            scores = scored(filtered(filters, logits, context) if filters else logits, never, kernels)
            check_summed(scores, logits, context)
            penalties = [0.0] * len(owners) if covered is None else covered.penalties(shared)
            rule = Rule(width, eos, step, ranking, penalties, forced, ends, kernels)
            extend_groups(active, scores, rule, groups, settings.diversity)
            stop_at = width if settings.early_stop or width == 1 else None
            for each in active:
                each.closed = each.closed or done(each, step, min(n_best, width), ranking, stop_at)
            active = open_rows(active, groups)
            if not active:
                break
            run = follow(run, active, covered)
    found = [best(each, n_best) for each in together(searches, groups, width)]
    if [] in found:
        empty = found.index([])
        number, limit = rows.numbers[empty * groups], rows.limits[empty * groups]
        if forced is None:
            why = refuse_searched(filters, number)
        else:
            why = forced.refuse(number, limit, names_of(filters), stops=stop is not None)
        raise UnansweredError(why, found[:empty])
    return found


def spread(rows: Rows, groups: int) -> Rows:
    """Repeat each row once for each group of its beam."""
    which = [row for row in range(len(rows.prompts)) for _ in range(groups)]
    return rows._replace(
        sources=None if rows.sources is None else [rows.sources[row] for row in which],
        prompts=[rows.prompts[row] for row in which],
        limits=[rows.limits[row] for row in which],
        numbers=[rows.numbers[row] for row in which],
        written=[[] for _ in which],
        done=[False] * len(which),
    )


class Rule(NamedTuple):
    """How one step chooses tokens and scores the answers that end with it."""

    beam: int
    eos: int
    step: int
    lengths: Lengths
    penalties: Sequence[float]
    """Added to the score of an answer that extends each row of the step; 0 or below."""
    forced: Forced | None = None
    """Texts that each answer must contain."""
    stop: Cut | None = None
    """Called with the row of a search."""
    kernels: Kernels = PLAIN_TORCH


def extend_groups(searches: Sequence[Search], scores: Scores, rule: Rule, groups: int, diversity: float) -> None:
    """Extend each search by one token, group after group; `scores` have a row per hypothesis, in order.

    There are enough candidates for each group to find 2 * width tokens that no other group made less likely.
    """
    likely = likeliest(scores, rule.beam * (2 if groups == 1 else 2 + groups), rule.kernels)
    if rule.forced is not None:
        likely = rule.forced.beside(likely, scores, [begun.ids for each in searches for begun in each.active])
    firsts = [0, *accumulate(len(each.active) for each in searches)][: len(searches)]
    taken: dict[int, list[int]] = {}
    for group in range(groups):
        places = [i for i, search in enumerate(searches) if search.row % groups == group]
        if not places:
            continue
        part = [searches[i] for i in places]
        less = None
        if group:
            before = [taken.get(each.row // groups, []) for each in part]
            less = diversity * counts(before, scores.logits[: len(part)]).cpu()
        extend(part, [firsts[i] for i in places], likely, rule, less)
        for each in part:
            taken.setdefault(each.row // groups, []).extend(begun.ids[-1] for begun in each.active)


def extend(
    searches: Sequence[Search],
    firsts: Sequence[int],
    likely: Candidates,
    rule: Rule,
    less: Float[Tensor, "B V"] | None = None,
) -> None:
    """Extend each search by one token. Its hypotheses are consecutive rows of `likely`, from its entry in `firsts` on.

    `less` is subtracted from log-probabilities for choosing tokens, but not from their scores.
    """
    forced, stop = rule.forced, rule.stop
    k, most = likely.log_p.shape[-1], max(len(each.active) for each in searches)
    rows, sums = list[list[int]](), list[list[float]]()
    for search, first in zip(searches, firsts, strict=True):
        lacks = most - len(search.active)  # stands for what cannot be extended
        rows.append([first + i for i in range(len(search.active))] + [first] * lacks)
        sums.append([each.log_probability for each in search.active] + [-torch.inf] * lacks)
    at = likely.ids.new_tensor(rows)
    totals, tokens = likely.log_p[at] + likely.log_p.new_tensor(sums)[:, :, None], likely.ids[at]
    totals, tokens = totals.flatten(1), tokens.flatten(1)
    many = totals.shape[1] if stop is not None else min(2 * rule.beam, totals.shape[1])
    ranks = totals if less is None else totals - less.gather(1, tokens)
    if forced is None:
        places_of = ranks.topk(many, sorted=True).indices
        found = (each.gather(1, places_of).tolist() for each in (totals, tokens))
        taken = [[*zip(*each, strict=True)] for each in zip(*found, places_of.tolist(), strict=True)]
    else:
        stops = (None if stop is None else partial(stop, each.row) for each in searches)
        texts = ([begun.ids for begun in each.active] for each in searches)
        last = (rule.step >= each.limit for each in searches)
        options = zip(totals.tolist(), tokens.tolist(), texts, last, stops, strict=True)
        taken = [forced.share(*each, k=k, eos=rule.eos)[:many] for each in options]
    for search, first, options in zip(searches, firsts, taken, strict=True):
        go_on(search, first, options, rule, k)


def go_on(search: Search, first: int, options: Sequence[Option], rule: Rule, k: int) -> None:
    """Extend a search by the best of its `options`, of which there are `k` for each hypothesis, from row `first` on."""
    begun, search.active = search.active, []
    for rank, (value, token, place) in enumerate(options):
        if value == -torch.inf or len(search.active) == rule.beam:
            break
        parent = place // k
        ids = [*begun[parent].ids, token]
        stopped = token != rule.eos and rule.stop is not None and rule.stop(search.row, ids) is not None
        complete = token == rule.eos or stopped
        if not complete and rule.step < search.limit:
            search.active.append(Beginning(ids, value, first + parent))
        elif rank < rule.beam and not search.closed:
            score = value / rule.lengths(rule.step) + rule.penalties[first + parent]
            search.found.append(Hypothesis(ids[:-1] if token == rule.eos else ids, value, score, complete, stopped))


def follow(run: Run, searches: Sequence[Search], covered: Coverage | None) -> Run:
    """Prepare the next step: one row per hypothesis, with the cache rows of those they extend."""
    begun = [each for search in searches for each in search.active]
    rows = [each.row for each in begun]
    if covered is not None:
        covered.follow(rows)
    run = run.select(rows)
    tokens = torch.tensor([[each.ids[-1]] for each in begun], device=run.tokens.device)
    return run._replace(tokens=tokens, keep=None, prefix=None)


def check_search(settings: BeamSettings, n_best: int = 1, forced: Forced | None = None) -> None:
    """Refuse more answers than the beam has, and forced texts without a beam in one group. Errors: `ConfigError`."""
    beam, groups = settings.beam, settings.beam_groups
    if not 1 <= n_best <= beam:
        raise ConfigError(
            f"n_best must be from 1 to beam={beam}; got n_best={n_best}. Try beam={max(n_best, 1)}, or n_best=1."
        )
    if forced is not None and (beam == 1 or groups > 1):
        raise ConfigError(
            f"Forced texts need a beam of at least 2 in one group; got beam={beam} and beam_groups={groups}. "
            "Try beam=5 with beam_groups=1."
        )
