"""Use a run: score it, let it answer."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from glassformer.base.errors import ConfigError, DataError, RowError, TooLongError
from glassformer.base.runtime import Threads, choose_threads, threads_kept
from glassformer.decode.answer import (
    MODELS,
    REQUESTED,
    USUAL,
    Answer,
    Link,
    Member,
    answers,
    limit_of,
    nothing,
    read_back,
    shared_labels,
)
from glassformer.decode.beam import length_penalty
from glassformer.decode.constraints import NO_CONSTRAINTS, Constraints
from glassformer.decode.filters import unwritten
from glassformer.decode.prepare import prepared
from glassformer.nn.transformer import Transformer
from glassformer.store.checkpoint import Loaded, load
from glassformer.train.evaluate import BY_LENGTH, Scoring
from glassformer.train.finished.loading import (
    as_long,
    dev_split,
    load_members,
    load_runs,
    naming,
    recipes_of,
    refuse_unscorable,
    score_ensemble,
    shortest_of,
    tell_decoding,
    with_report,
)
from glassformer.train.recipe import Recipe, load_recipe
from glassformer.train.records import Metric
from glassformer.train.run.beginning import objective_of, prepare_split, refuse_changed
from glassformer.train.sample_lengths import Untrained, untrained
from glassformer.train.tasks import task_of
from glassformer.train.tasks.task import TRANSLATE, LineAnswer, ReadLine


class Requested(NamedTuple):
    """What is asked for with the answers to each line."""

    n_best: int = 1
    scores: bool = False
    alignments: bool = False


class Ranked(NamedTuple):
    """One of the answers to a line."""

    text: str
    log_probability: float | None
    score: float | None
    complete: bool
    tokens: list[str]
    links: list[Link]


def ranked(
    loaded: Loaded,
    sources: Sequence[Sequence[int]],
    answers: Sequence[Sequence[Answer]],
    requested: Requested,
    alpha: float,
    batch_size: int,
) -> list[list[Ranked]]:
    """The answers to each source, with what was asked for.

    A beam's scores are its own. Without a beam the log-probability is the model's, and the score is that divided by the
    length penalty with `alpha`. Errors: `ConfigError` if the model cannot give them.
    """
    flat = [(source, each) for source, found in zip(sources, answers, strict=True) for each in found]
    unscored = requested.scores and any(each.score is None for _, each in flat)
    again = None
    if requested.alignments or unscored:
        of, written = [source for source, _ in flat], [each for _, each in flat]
        again = read_back(loaded.model, of, written, batch_size=batch_size, linked=requested.alignments)
    penalty, target = length_penalty(alpha), loaded.tokenizers.target
    ranked: list[Ranked] = []
    for place, (_, each) in enumerate(flat):
        total, score = each.log_probability, each.score
        if again is not None and total is None:
            chances = again[place].log_probabilities
            total = sum(chances)
            score = total / penalty(len(chances))
        links = [] if again is None else again[place].links
        ranked.append(Ranked(target.decode(each.ids), total, score, each.complete, target.names(each.ids), links))
    rest = iter(ranked)
    return [[next(rest) for _ in found] for found in answers]


Line = TypeVar("Line")
Written = TypeVar("Written")


class Translated(NamedTuple):
    """One answer, and what may be wrong with it."""

    text: str
    cut: str | None
    """The limit that it reached before its end, if it did."""
    unknown: Sequence[str]
    """The parts of the source that the vocabulary lacks; the model read <unk> instead."""
    best: Sequence[Ranked] = ()
    """All answers that were asked for, best first, with their scores; empty if none were."""
    source: Sequence[str] = ()
    """The tokens of the source, if scores were asked for."""
    untrained: Untrained | None = None
    """Set if the source is shorter or longer than every one in training."""


AHEAD = 8
"""So many batches of lines are read before the first is answered, so that lines of like length share a batch."""
Figures = dict[str, Metric | dict[str, dict[str, Metric]]]


@threads_kept()
def evaluate(
    run: Path,
    recipe: Recipe,
    split: str = "test",
    *,
    by_length: bool = False,
    average: int | None = None,
    others: Sequence[Path] = (),
    ready: Callable[[], None] = nothing,
) -> Figures:
    """Score the run's best checkpoint on a split; `recipe` is the run's own, with other data or decoding.

    `average`: score the mean of the weights of that many newest checkpoints instead. Errors: `ConfigError` for data
    that the model cannot answer; `CheckpointError` for a recipe whose model was changed, and for a dev split that is
    the end of another training text.

    For a classifier also `labels` and `confusion`, by label. For answers, if asked for, also `by_length`: exact match
    and number of the pairs for each length of the source in tokens. `others`: runs that answer with this one, as a
    ensemble (`score_ensemble`, `load_runs`), on the split that this one's `recipe` names. `ready` is called once
    model and data are read and fit, before scoring.
    """
    task = task_of(recipe.data)
    if by_length and not task.decoded:
        raise ConfigError(f"--by-length needs answers; {run} {task.does}. Remove --by-length.")
    refuse_unscorable(load_recipe(run / "recipe.toml").data, recipe.data)
    recipe = replace(recipe, training=replace(recipe.training, samples=0))
    _, threads = choose_threads(recipe.decode.threads)
    if others and task.averages:
        data, scores = score_ensemble(run, recipe, others, split, average, ready)
    else:
        loaded = load_runs(run, recipe, others, average)
        longer = as_long(recipe, loaded.model)
        with naming(shortest_of(loaded.model, [run, *others]), TooLongError):
            held_out = split == "dev"
            data = dev_split(run, longer, loaded) if held_out else prepare_split(longer, loaded.tokenizers, split)
        ready()
        if task.decoded:
            tell_decoding(loaded.model, recipe.decode, threads)
        scores = data.score(Scoring(loaded.model, recipe, loaded.tokenizers, objective_of(loaded.model, recipe)))
    skipped: Figures = {"skipped": data.skipped} if recipe.data.skip_empty else {}
    tables = {name: each for name, each in scores.details.items() if by_length or name != BY_LENGTH}
    return {**scores.metrics, **skipped, **tables}


def translate(
    run: Path,
    lines: Iterable[tuple[int, str]],
    batch_size: int,
    recipe: Recipe | None = None,
    average: int | None = None,
    requested: Requested | None = None,
    constraints: Constraints = NO_CONSTRAINTS,
    others: Sequence[Path] = (),
) -> Iterator[Translated]:
    """Answer each (number, line) with a run's best checkpoint, in order, in batches of `batch_size` like lines.

    Lines are read as `read_ahead` has it. `recipe` is the run's own, with other decoding; None: unchanged. A sampled
    answer depends on its place among the lines. `requested`: several answers per line, and their scores. `constraints`
    apply to all answers. `others`: runs that write with this one, as an ensemble (`load_runs`). Errors,
    which name a line and come after the answers to those before it: `DataError` if it is longer than the model takes,
    `ConfigError` if no answer fits these settings.
    """
    recipe = recipe or load_recipe(run / "recipe.toml")
    threads = Threads(recipe.decode.threads)

    def translated() -> Generator[Translated]:
        task = task_of(recipe.data)
        task.refuse_unfit(run, TRANSLATE)
        writes = task.layout.decoder
        loaded = load_runs(run, recipe, others, average)
        decode = recipe.decode
        model = prepared(loaded.model, decode.precision, decode.cache, compile=decode.compile)
        most, answered, target = decode.max_new_tokens if writes else None, 0, loaded.tokenizers.target
        filters, forced, begun = constraints.filters(target), constraints.held(target), constraints.begun(target)
        if writes:
            constraints.check_room(target, limit_of(model, (), most, begun))
        shortest = shortest_of(loaded.model, [run, *others])

        def write(group: Sequence[ReadLine], place: int) -> list[tuple[list[Answer], Sequence[Ranked]]]:
            sources = [each.ids for each in group]
            found = answers(
                model,
                sources,
                n_best=requested.n_best if requested else 1,
                max_new_tokens=most,
                batch_size=batch_size,
                sampling=decode,
                numbers=range(place, place + len(sources)),
                search=decode,
                filters=filters,
                never=unwritten(writes, recipe.data.objective),
                begun=begun,
                forced=forced,
            )
            if requested is None:
                return [(each, ()) for each in found]
            best = ranked(loaded, sources, found, requested, decode.length_penalty, batch_size)
            return [*zip(found, best, strict=True)]

        for group in groups(_read(loaded, lines, recipe, shortest), read_ahead(batch_size)):
            if not answered:
                tell_decoding(loaded.model, decode, threads.reason)
            for source, ((first, *_), best) in in_order(group, answered, write):
                cut = None if first.complete else _limit_in_words(first.limit, recipe, loaded, shortest)
                read = loaded.tokenizers.source.names(source.ids) if best else ()
                text = target.decode(first.ids)
                yield Translated(text, cut, source.unknown, best, read, source.untrained)
            answered += len(group)

    yield from threads.through(translated())


def answer_lines(
    run: Path,
    lines: Iterable[tuple[int, str]],
    batch_size: int,
    average: int | None = None,
    others: Sequence[Path] = (),
) -> Iterator[LineAnswer]:
    """What the run's task says of each (number, line), in order, in batches of `batch_size` like lines.

    Lines are read as `read_ahead` has it. `others`: runs that answer with this one, as an ensemble. Errors: `DataError`
    naming a line that is longer than the model takes, or that it cannot read, after the answers to those before it.
    """
    recipes = recipes_of(run, load_recipe(run / "recipe.toml"), others)
    own = recipes[0][1]
    task = task_of(own.data)

    def answered() -> Generator[LineAnswer]:
        if task.line_verb is None:
            raise ConfigError(f"{run} {task.does} and answers no lines by itself. Use glassformer {task.verb} {run}.")
        for member, its in recipes:
            task_of(its.data).refuse_unfit(member, task.line_verb)
        members = load_members(recipes, average)
        if others:
            shared_labels(members)  # before a line is read
        for group in groups(_read_by_all(members, lines, [its for _, its in recipes]), read_ahead(batch_size)):
            yield from task.answer(members, group, batch_size)

    yield from Threads(own.decode.threads).through(answered())


def best_model(run: Path) -> Transformer:
    """Load the model of the best checkpoint."""
    loaded = with_report(load(run))
    refuse_changed(run, loaded, load_recipe(run / "recipe.toml"))
    return loaded.model


def in_order(
    group: Sequence[ReadLine], place: int, write: Callable[[Sequence[ReadLine], int], Sequence[Written]]
) -> Iterator[tuple[ReadLine, Written]]:
    """Yield each line of a group with what `write` gives for it; `place` is that of the first among all lines.

    If a line cannot be written, those before it come first. Errors: that of the line, which it names by its number.
    """
    try:
        written = write(group, place)
    except RowError as error:
        before = error.row - place
        if before:
            yield from in_order(group[:before], place, write)
        raise error.named(f"line {group[before].number}") from None
    yield from zip(group, written, strict=True)


def read_ahead(batch_size: int) -> int:
    """How many lines are read before their answers are written; of single lines one, as a dialogue needs it."""
    return 1 if batch_size == 1 else AHEAD * batch_size


def groups(lines: Iterable[Line], size: int) -> Iterator[list[Line]]:
    """Group lines by `size`; the last group may be smaller. Lines before one that cannot be read come first."""
    group: list[Line] = []
    broken: DataError | None = None
    try:
        for line in lines:
            group.append(line)
            if len(group) == size:
                yield group
                group = []
    except DataError as error:
        broken = error
    if group:
        yield group
    if broken is not None:
        raise broken


def _read(
    loaded: Loaded | Member, lines: Iterable[tuple[int, str]], recipe: Recipe, run: str | None = None
) -> Iterator[ReadLine]:
    """What a model reads of each (number, line).

    Errors: `TooLongError` for a line that is too long with its special tokens; `run` names whose limit that is.
    `DataError` for one that the task cannot read.
    """
    of_model = loaded.model.config
    limit, task = (of_model.encoder or of_model.stack).max_len, task_of(recipe.data)
    for number, line in lines:
        try:
            found = task.read_line(line, loaded.tokenizers)
        except DataError as error:
            raise DataError(f"line {number}: {error}") from None
        length = task.read_length(len(found.ids))
        if limit is not None and length > limit:
            whose = "" if run is None else f"{run}: "
            raise TooLongError(
                f"{whose}A line may have at most max_len={limit} tokens, {task.marks} included; line {number} has "
                f"{length}: {line[:40]!r}. Shorten it, or train with a larger model.max_len."
            )
        yield found._replace(number=number, untrained=untrained(len(found.ids), loaded.state))


def _read_by_all(
    members: Sequence[Member], lines: Iterable[tuple[int, str]], recipes: Sequence[Recipe]
) -> Iterator[list[ReadLine]]:
    """Each line as each member reads it. Errors: those of `_read`, naming the member if there are several."""
    for line in lines:
        text: list[ReadLine] = []
        for member, recipe in zip(members, recipes, strict=True):
            text += _read(member, [line], recipe, member.name if len(members) > 1 else None)
        yield text


def _limit_in_words(limit: str, recipe: Recipe, loaded: Loaded, shortest: str | None) -> str:
    """What cut an answer short, with its number and the setting."""
    if limit == MODELS:
        return f"model.max_len={loaded.model.config.stack.max_len}, the most that {shortest or 'the model'} reads"
    if limit == REQUESTED:
        return f"decode.max_new_tokens={recipe.decode.max_new_tokens}"
    return f"{USUAL}, as decode.max_new_tokens is not set"
