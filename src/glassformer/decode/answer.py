"""Whole answers for many sources: sort them by length, decode in batches, return the answers in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch

from glassformer.base.errors import ConfigError, DataError
from glassformer.base.shapes import Float, Tensor
from glassformer.base.typed import expect
from glassformer.data.batch import pad
from glassformer.data.dataset import Tokenizers
from glassformer.data.tokens.vocabulary import BLANK, BOS, EOS, SEP
from glassformer.decode.beam import Forced, Hypothesis, beam_search, check_search, reading
from glassformer.decode.choose import chooser
from glassformer.decode.contrastive import contrastive
from glassformer.decode.filters import Context, Filter, check_numbers, filters_of, forbid, without
from glassformer.decode.generate import generate
from glassformer.decode.rows import Emitted, check_sources, check_writes
from glassformer.decode.settings import GREEDY, ONE_BEAM, BeamSettings, Sampling
from glassformer.nn.observe import Evaluation
from glassformer.nn.outputs import Classify
from glassformer.nn.transformer import Transformer


@torch.no_grad()
def fill_blanks(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    lengths: Sequence[int],
    never: Sequence[int] = (),
    numbers: Sequence[int] | None = None,
) -> list[list[int]]:
    """Answers of an encoder-only model: row i reads [source, <sep>, blanks] and fills its `lengths[i]` blanks at once.

    No blank gets an id of `never`. `numbers` name the rows in errors (None: their places in the call). Errors:
    `DataError`, also if a logit is NaN or +inf.
    """
    check_writes(model)
    check_sources(model, sources)
    device = next(model.parameters()).device
    rows = [[*source, SEP, *[BLANK] * length] for source, length in zip(sources, lengths, strict=True)]
    tokens, keep = pad(rows, device)
    with Evaluation(model):
        logits = model(tokens, keep=keep)
    ids = forbid(logits, never).argmax(-1)
    highest = logits.gather(-1, ids[..., None])[..., 0]
    check_numbers(highest, Context(numbers or range(len(rows)), sources, []))
    filled = zip(ids.tolist(), rows, lengths, strict=True)
    return [each[len(row) - length : len(row)] for each, row, length in filled]


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


class Answer(NamedTuple):
    """Token ids without <eos>; `complete` is False if the limit came before <eos>."""

    ids: list[int]
    complete: bool
    limit: str = ""
    """The limit that cut an incomplete answer: max_new_tokens, max_len, or the length of its source."""
    log_probability: float | None = None
    """With a beam: of all tokens, <eos> included, in nats, as computed by the search."""
    score: float | None = None
    """With a beam: the score by which the search ranked it."""


class Limit(NamedTuple):
    """The most tokens that an answer may have, and the name of what limits it."""

    tokens: int
    name: str


REQUESTED, MODELS, USUAL = "max_new_tokens", "max_len", "twice the source length plus ten"
CONTEXTS = "what the prompt leaves of the context"


def nothing() -> None:
    """The default for `poll`: do nothing between steps."""


def answer(model: Transformer, sources: Sequence[Sequence[int]], **settings: Any) -> list[Answer]:
    """Return the answer to each source, in order: the best one of `answers`, whose keyword arguments it takes.

    >>> import torch
    >>> from glassformer import ModelConfig, StackConfig, Transformer, answer
    >>> stack = StackConfig(d_model=8, n_heads=2, n_layers=1, d_ff=8)
    >>> model = Transformer(ModelConfig(vocab_size=9, encoder=stack, decoder=stack))
    >>> [first, second] = answer(model, [[5, 6], [7]], max_new_tokens=4)
    >>> len(first.ids) <= 4
    True
    """
    return [best for (best, *_) in answers(model, sources, **settings)]


def answers(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    *,
    n_best: int = 1,
    max_new_tokens: int | None = None,
    batch_size: int = 128,
    lengths: Sequence[int] | None = None,
    sampling: Sampling = GREEDY,
    numbers: Sequence[int] | None = None,
    search: BeamSettings = ONE_BEAM,
    filters: Sequence[Filter] = (),
    never: Sequence[int] = (),
    begun: int = 0,
    forced: Forced | None = None,
    poll: Callable[[], None] = nothing,
) -> list[list[Answer]]:
    """Return the answers to each source, in order: greedy, drawn as `sampling` says, or found by a beam search.

    `search` describes the beam. It also applies the penalties in `sampling`. `filters` come before all others. A beam
    gives up to `n_best` answers, best first, and each contains the `forced` texts. No answer has an id of `never`.

    Drawn answers depend on (sampling.seed, number of the source) and not on the batches; the number is the source's
    place unless `numbers` gives it. Without `max_new_tokens`, the limit is twice the source's length plus ten, plus
    `begun`, the number of tokens with which a filter begins every answer. An encoder-only model fills `lengths[i]`
    blanks (None: as many as the source has tokens), each with its most likely token; only it takes `lengths`, and it
    takes no `max_new_tokens`. `poll` is called before each batch and at each step; an exception from it ends decoding.
    Errors: `ConfigError` and `DataError` for invalid arguments, and for a source longer than the model takes.
    """
    check_writes(model)
    if max_new_tokens is not None:
        expect(max_new_tokens, int, "max_new_tokens", "Try max_new_tokens=64.")
    expect(batch_size, int, "batch_size", "Try batch_size=128.")
    if batch_size < 1:
        raise ConfigError(f"batch_size must be at least 1; got {batch_size}. Try batch_size=128.")
    if lengths is not None and (len(lengths) != len(sources) or min(lengths, default=0) < 0):
        raise DataError(
            f"lengths needs one number of at least 0 for each source; got {len(lengths)} for {len(sources)} sources, "
            f"the smallest {min(lengths, default=0)}. Without lengths, answers are as long as their sources."
        )
    check_sources(model, sources)  # before sorting, so that errors name the caller's row
    check_lengths(model, max_new_tokens, lengths)
    check_choice(model, sampling, search, filters)
    check_search(search, n_best, forced)
    if lengths is None and not model.config.stack.causal:
        lengths = [len(source) for source in sources]
    first = [without(never), *filters] if never else filters
    found: list[list[Answer]] = [[] for _ in sources]
    order = sorted(range(len(sources)), key=lambda row: len(sources[row]))
    method, requested = method_of(sampling, first), [*filters, *filters_of(sampling)]
    find = partial(beam_search, n_best=n_best, filters=requested, never=never, forced=forced, poll=poll)
    for start in range(0, len(order), batch_size):
        poll()
        rows = order[start : start + batch_size]
        batch = [sources[row] for row in rows]
        which = [row if numbers is None else numbers[row] for row in rows]
        limits = [limit_of(model, source, max_new_tokens, begun) for source in batch]
        if lengths is not None:
            filled = fill_blanks(model, batch, [lengths[row] for row in rows], never, which)
            these = [[Answer(ids, True)] for ids in filled]
        elif search.beam > 1:
            most = [limit.tokens for limit in limits]
            best = find(model, search, sources=batch, max_new_tokens=most, numbers=which)
            these = [[of_search(each, limit) for each in some] for some, limit in zip(best, limits, strict=True)]
        else:
            these = [[each] for each in _write(model, batch, limits, method, which, poll)]
        for row, each in zip(rows, these, strict=True):
            found[row] = each
    return found


def check_lengths(model: Transformer, max_new_tokens: int | None, lengths: Sequence[int] | None) -> None:
    """Refuse `lengths` or `max_new_tokens` where the model does not use it. Errors: `ConfigError`."""
    if model.config.stack.causal and lengths is not None:
        raise ConfigError(
            "Only an encoder takes lengths, the numbers of blanks to fill; this model writes until <eos>. Remove "
            "lengths; max_new_tokens limits the length of an answer."
        )
    if not model.config.stack.causal and max_new_tokens is not None:
        raise ConfigError(
            "Only a model that writes token by token takes max_new_tokens; an encoder fills all blanks at once; got "
            f"max_new_tokens={max_new_tokens}. Remove it; lengths sets how many blanks there are."
        )


def check_choice(model: Transformer, sampling: Sampling, search: BeamSettings, filters: Sequence[Filter] = ()) -> None:
    """Refuse decoding settings that contradict each other or that the model cannot use. Errors: `ConfigError`."""
    if search.beam > 1 and sampling.contrastive_alpha:
        raise ConfigError(
            f"Beam search cannot be combined with contrastive search; got beam={search.beam} with "
            f"contrastive_alpha={sampling.contrastive_alpha}. Set beam=1 or contrastive_alpha=0.0."
        )
    if search.beam > 1 and sampling.temperature:
        raise ConfigError(
            f"Beam search does not sample; got beam={search.beam} with temperature={sampling.temperature}. Set beam=1 "
            "or temperature=0.0."
        )
    chosen = search.beam > 1 or sampling.temperature or sampling.contrastive_alpha or filters or filters_of(sampling)
    if not model.config.stack.causal and chosen:
        raise ConfigError(
            "An encoder fills all blanks at once, each with the most likely token: without beam search, sampling, "
            "penalties or constraints. Remove their settings."
        )


def limit_of(model: Transformer, source: Sequence[int], requested: int | None, begun: int = 0) -> Limit:
    """The limit of an answer: what was asked for, or else `begun` plus twice the source's length plus ten.

    Never more than the model takes.
    """
    limit = Limit(begun + 2 * len(source) + 10, USUAL) if requested is None else Limit(requested, REQUESTED)
    longest = model.config.stack.max_len
    return limit if longest is None or limit.tokens <= longest else Limit(longest, MODELS)


def _write(
    model: Transformer,
    sources: list[Sequence[int]],
    limits: list[Limit],
    method: Method,
    numbers: list[int],
    poll: Callable[[], None],
) -> list[Answer]:
    written: list[list[int]] = [[] for _ in sources]
    most = [limit.tokens for limit in limits]
    for step in method(model, sources=sources, max_new_tokens=most, numbers=numbers):
        poll()
        for row, token in zip(step.rows, step.tokens, strict=True):
            written[row].append(token)
    return [
        Answer(ids[:-1], True) if ids and ids[-1] == EOS else Answer(ids, False, limit.name)
        for ids, limit in zip(written, limits, strict=True)
    ]


def of_search(found: Hypothesis, limit: Limit) -> Answer:
    """The answer that a beam search found."""
    return Answer(found.ids, found.complete, "" if found.complete else limit.name, found.log_probability, found.score)


# Probabilities of labels: those of one classifier for many texts, and the mean over an ensemble of several.


@torch.no_grad()
def label_probabilities(
    model: Transformer, texts: Sequence[Sequence[int]], *, batch_size: int = 128, poll: Callable[[], None] = nothing
) -> Float[Tensor, "N L"]:
    """Return the probability of each label for each text, in order.

    Batches do not affect the result. `poll` is called before each batch; an exception from it ends the work. Errors:
    `ConfigError` for a model without a classify head, `DataError` for a text longer than the model takes.
    """
    if not isinstance(model.config.head, Classify):
        raise ConfigError(
            f"Labels need a model with a classification head; this one has head {model.config.head.kind!r}. "
            "Train one with head=Classify(n_labels)."
        )
    device, evaluation = next(model.parameters()).device, Evaluation(model)
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    found = torch.zeros(len(texts), model.config.head.n_labels)
    for first in range(0, len(order), batch_size):
        poll()
        rows = order[first : first + batch_size]
        tokens, keep = pad([[BOS, *texts[row]] for row in rows], device)
        with evaluation:
            scores = model(tokens, keep=keep)
        found[rows] = scores.float().softmax(-1).cpu()
    return found


# An ensemble of classifiers, trained separately, whose probabilities are averaged.

Read = Sequence[Sequence[int]]
"""One text as ids, once per member."""


class Member(NamedTuple):
    """One classifier of an ensemble."""

    name: str
    """The member's name in errors."""
    model: Transformer
    tokenizers: Tokenizers
    state: Mapping[str, Any] = {}
    """Its checkpoint's state."""


def shared_labels(members: Sequence[Member]) -> list[str]:
    """The members' common labels, in the order of the first. Errors: `ConfigError` naming a label that one lacks."""
    (first, labels), *others = ((each.name, each.tokenizers.labels) for each in members)
    for name, own in others:
        for one, some, two, all_of_two in ((first, labels, name, {*own}), (name, own, first, {*labels})):
            if missing := [label for label in some if label not in all_of_two]:
                raise ConfigError(
                    f"The members of an ensemble must have the same labels; {two} lacks "
                    f"{missing[0][:40]!r}, which {one} has. Remove one of them, or train both on texts with "
                    "the same labels."
                )
    return labels


def ensemble_probabilities(
    members: Sequence[Member], texts: Sequence[Read], *, batch_size: int = 128
) -> Float[Tensor, "N L"]:
    """Return the mean probability of each of `shared_labels` for each text, in float64.

    Errors: `ConfigError` for members with different labels, `DataError` for a member whose probabilities are not
    finite, and those of `label_probabilities`.
    """
    labels = shared_labels(members)
    tables = [
        label_probabilities(member.model, [text[place] for text in texts], batch_size=batch_size)
        for place, member in enumerate(members)
    ]
    for member, table in zip(members, tables, strict=True):
        if not bool(table.isfinite().all()):
            raise DataError(
                f"The probabilities of labels must be finite numbers; those of {member.name} are not. Its training "
                "diverged: use an earlier checkpoint, or remove it from the ensemble."
            )
    return mean_by_name(tables, [member.tokenizers.labels for member in members], labels)


def mean_by_name(
    tables: Sequence[Float[Tensor, "N L"]], columns: Sequence[Sequence[str]], labels: Sequence[str]
) -> Float[Tensor, "N L"]:
    """Average tables with named columns, in float64; the columns of the result are `labels`."""
    aligned = [
        table.double()[:, [names.index(label) for label in labels]]
        for table, names in zip(tables, columns, strict=True)
    ]
    return torch.stack(aligned).mean(0)


# Scoring given answers in one forward pass: each token's log-probability, and its alignment to the source.

Link = tuple[int, int]
"""(token of the source, token of the answer), both counted from 0."""


class ReadBack(NamedTuple):
    """The model's own scores of an answer, before temperature, penalties and filters."""

    log_probabilities: list[float]
    """Of each token, in nats; the last one is that of <eos> if the answer is complete."""
    links: list[Link]
    """The source token that each answer token attends to most, in order; no link if that is the source's <eos>."""


@torch.no_grad()
def read_back(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    answers: Sequence[Answer],
    *,
    batch_size: int = 128,
    linked: bool = True,
) -> list[ReadBack]:
    """Score each answer to its source; with `linked`, also align it by the attention weights of `reading_layer`.

    A token is aligned by the weights of the position that predicts it, which is one before its own. Errors:
    `ConfigError` for a model that is not an encoder-decoder.
    """
    if model.encoder is None or model.decoder is None:
        raise ConfigError(
            "Scores of answers and alignments need an encoder-decoder; this model has one stack. Remove them."
        )
    found: list[ReadBack] = []
    device = next(model.parameters()).device
    for first in range(0, len(sources), batch_size):
        batch = sources[first : first + batch_size]
        written = [[*each.ids, *([EOS] if each.complete else [])] for each in answers[first : first + batch_size]]
        source, source_keep = pad([[*each, EOS] for each in batch], device)
        tokens, keep = pad([[BOS, *ids[:-1]] for ids in written], device)
        with Evaluation(model), reading(model) if linked else nullcontext() as seen:
            logits = model(tokens, keep=keep, source=source, source_keep=source_keep)
        log_p = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
        for row, ids in enumerate(written):
            chances = log_p[row, : len(ids)].gather(-1, torch.tensor(ids, device=device)[:, None])[:, 0].tolist()
            links: list[Link] = []
            if seen is not None and seen.weights is not None:
                most = seen.weights[row].argmax(-1).tolist()
                links = [(most[j], j) for j, id in enumerate(ids) if id != EOS and most[j] < len(batch[row])]
            found.append(ReadBack(chances, links))
    return found


def pharaoh(links: Sequence[Link]) -> str:
    """Format links as "0-0 1-2 2-1", source token first (Pharaoh format)."""
    return " ".join(f"{i}-{j}" for i, j in links)
