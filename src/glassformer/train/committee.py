"""Runs that answer together: their classifiers loaded as one committee, and the texts of a split read by each."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from glassformer.data.config import LABEL, TEXT
from glassformer.data.dataset import encode_pairs
from glassformer.decode.committee import Member, shared_labels
from glassformer.foundation.errors import ConfigError, DataError
from glassformer.train.labels import LabelScores, evaluate_committee
from glassformer.train.loading import load_run
from glassformer.train.pairs_data import PairsSplit, check_lengths, read_pairs_split
from glassformer.train.recipe import Recipe, load_recipe


def recipes_of(run: Path, recipe: Recipe, others: Sequence[Path]) -> list[tuple[Path, Recipe]]:
    """Each run and its recipe: `recipe` of the first, of the others their own with the threads of the first."""
    own = [(each, load_recipe(each / "recipe.toml")) for each in others]
    threads = recipe.training.threads
    return [(run, recipe)] + [
        (each, replace(its, training=replace(its.training, threads=threads))) for each, its in own
    ]


def refuse_no_labels(recipes: Sequence[tuple[Path, Recipe]], verb: str | None = None) -> None:
    """Refuse a run that is no classifier. `verb`: what takes it alone; None: what writes its answers."""
    for run, recipe in recipes:
        if recipe.data.layout != LABEL:
            usual = "generate" if recipe.data.task == TEXT else "translate"
            what = "A committee is made of classifiers; " if len(recipes) > 1 else ""
            raise ConfigError(f"{what}{run} writes answers and gives no labels. Use glassformer {verb or usual} {run}.")


def load_members(recipes: Sequence[tuple[Path, Recipe]], average: int | None) -> list[Member]:
    """The best checkpoint of each run, or the mean of its `average` newest. Errors: those of `load_run`."""
    loaded = [load_run(run, recipe, average) for run, recipe in recipes]
    return [Member(str(run), each.model, each.tokenizers) for (run, _), each in zip(recipes, loaded, strict=True)]


def score_committee(
    run: Path, recipe: Recipe, others: Sequence[Path], split: str, average: int | None
) -> tuple[PairsSplit, LabelScores]:
    """A split of the first run, and how good the mean of all is on it.

    Errors: `ConfigError` for a run that is no classifier, or has other labels; `DataError` for a text that is longer
    than a member takes, naming both.
    """
    recipes = recipes_of(run, recipe, others)
    refuse_no_labels(recipes, "evaluate")
    members = load_members(recipes, average)
    shared_labels(members)  # before the texts are read, whose lengths are checked first
    data = read_pairs_split(recipe, members[0].tokenizers, split)
    encoded = [data.encoded, *(encode_pairs(data.pairs, each.tokenizers) for each in members[1:])]
    for member, own, (_, its) in zip(members, encoded, recipes, strict=True):
        with naming(member.name):
            check_lengths(own, its, split, data.origin)
    return data, evaluate_committee(members, encoded, batch_size=recipe.decode.batch_size)


@contextmanager
def naming(run: str | None) -> Generator[None]:
    """Begin what is said of texts that cannot be read with the run that cannot read them; None: there is but one."""
    try:
        yield
    except DataError as error:
        raise error if run is None else DataError(f"{run}: {error}") from None
