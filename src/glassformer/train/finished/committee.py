"""Runs that answer together, as an ensemble: classifiers that each read the texts, or models that write as one."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from pathlib import Path

from glassformer.base.errors import ConfigError, DataError
from glassformer.data.dataset import Tokenizers, encode_pairs
from glassformer.decode.committee import Member, shared_labels
from glassformer.nn.ensemble import Ensemble, members_of
from glassformer.nn.transformer import Transformer
from glassformer.store.checkpoint import Loaded
from glassformer.train.finished.loading import load_run, placed_like
from glassformer.train.recipe import Recipe, load_recipe
from glassformer.train.sample_lengths import LENGTHS, joined
from glassformer.train.score.labels import evaluate_committee
from glassformer.train.sources.pairs_data import PairsSplit, check_lengths, read_pairs_split
from glassformer.train.sources.run_data import Scored
from glassformer.train.tasks import task_of


def recipes_of(run: Path, recipe: Recipe, others: Sequence[Path]) -> list[tuple[Path, Recipe]]:
    """Each run with its recipe: `recipe` for the first, for the others their own with its device.

    Errors: `ConfigError` for runs that answer in different ways, and for several that act.
    """
    usual = task_of(load_recipe(run / "recipe.toml").data).manner if others else {}
    recipes = [(run, recipe), *((each, placed_like(load_recipe(each / "recipe.toml"), recipe)) for each in others)]
    if others and not task_of(recipe.data).joins:
        raise ConfigError(
            f"The members of a committee (an ensemble) write answers or give labels; {run} "
            f"{task_of(recipe.data).does}. Score each run by itself."
        )
    for other, its in recipes[1:]:
        for name, first in usual.items():
            if (second := task_of(its.data).manner.get(name)) != first:
                raise ConfigError(
                    f"The members of a committee (an ensemble) must have the same `data.{name}`; {other} has "
                    f"{second!r}, {run} has {first!r}. Give runs of the same kind."
                )
    return recipes


def load_runs(run: Path, recipe: Recipe, others: Sequence[Path] = (), average: int | None = None) -> Loaded:
    """Load the model of one run, or of several that write as one (`Ensemble`), with the tokenizers of the first.

    Errors: those of `load_run`; `ConfigError` for runs with different tokens, or that otherwise cannot write together.
    """
    if not others:
        return load_run(run, recipe, average)
    recipes = recipes_of(run, recipe, others)
    first, *more = [load_run(*each, average) for each in recipes]
    for (other, _), each in zip(recipes[1:], more, strict=True):
        for side, its, own in zip(Tokenizers._fields, each.tokenizers, first.tokenizers, strict=True):
            if its.to_json() != own.to_json():
                raise ConfigError(
                    f"The members of a committee (an ensemble) must have the same vocabularies; the {side} vocabulary "
                    f"of {other} differs from that of {run}. Train both on the same text with the same [tokenizer]."
                )
    lengths = reduce(joined, (each.state.get(LENGTHS, {}) for each in (first, *more)))
    return replace(
        first, model=Ensemble([first.model, *(each.model for each in more)]), state=first.state | {LENGTHS: lengths}
    )


def as_long(recipe: Recipe, model: Transformer) -> Recipe:
    """The recipe with the shortest `max_len` of a committee's members; for one model unchanged."""
    if not isinstance(model, Ensemble):
        return recipe
    stacks = (model.config.encoder, model.config.decoder)
    limits = [stack.max_len for stack in stacks if stack is not None and stack.max_len is not None]
    return replace(recipe, model=replace(recipe.model, max_len=min(limits, default=None)))


def shortest_of(model: Transformer, runs: Sequence[Path]) -> str | None:
    """The run whose `max_len` limits the committee; None for a single run, or if no run has a limit."""
    longest = [each.config.stack.max_len or math.inf for each in members_of(model)]
    shortest = min(longest)
    return None if len(runs) == 1 or shortest == math.inf else str(runs[longest.index(shortest)])


def load_members(recipes: Sequence[tuple[Path, Recipe]], average: int | None) -> list[Member]:
    """Load the best checkpoint of each run, or the mean of its `average` newest. Errors: those of `load_run`."""
    loaded = [load_run(run, recipe, average) for run, recipe in recipes]
    return [
        Member(str(run), each.model, each.tokenizers, each.state)
        for (run, _), each in zip(recipes, loaded, strict=True)
    ]


def score_committee(
    run: Path,
    recipe: Recipe,
    others: Sequence[Path],
    split: str,
    average: int | None,
    ready: Callable[[], None],
) -> tuple[PairsSplit, Scored]:
    """Return a split of the first run, and the scores of the mean of all members on it.

    `ready` is called once everything is read, before scoring. Errors: `ConfigError` for a run of another kind or with
    other labels; `DataError` for a text that is longer than a member takes, naming both.
    """
    recipes = recipes_of(run, recipe, others)
    members = load_members(recipes, average)
    shared_labels(members)  # before reading the texts, whose lengths are checked first
    data = read_pairs_split(recipe, members[0].tokenizers, split)
    encoded = [data.encoded, *(encode_pairs(data.pairs, each.tokenizers) for each in members[1:])]
    for member, own, (_, its) in zip(members, encoded, recipes, strict=True):
        with naming(member.name):
            check_lengths(own, its, split, data.origin)
    ready()
    scores = evaluate_committee(members, encoded, batch_size=recipe.decode.batch_size)
    return data, Scored(scores.metrics, [], scores.details)


@contextmanager
def naming(run: str | None, kind: type[DataError] = DataError) -> Generator[None]:
    """Prefix errors about texts that cannot be read with the run that cannot read them; None: there is only one."""
    try:
        yield
    except kind as error:
        raise error if run is None else kind(f"{run}: {error}") from None
