"""Load a finished run's model as its recipe says, refuse data that it cannot be scored on, and export it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any, cast

from glassformer.base.errors import CheckpointError, ConfigError, DataError
from glassformer.base.runtime import choose_device
from glassformer.data.config import DataConfig
from glassformer.data.dataset import Tokenizers, encode_pairs
from glassformer.decode.answer import Member, shared_labels
from glassformer.decode.filters import unwritten
from glassformer.decode.prepare import chosen_precision, device_of
from glassformer.nn.ensemble import Ensemble, members_of
from glassformer.nn.transformer import Transformer
from glassformer.store.checkpoint import Loaded, load, load_mean
from glassformer.store.export import Exported, Text, refuse_used, write_pretrained
from glassformer.train.evaluate import evaluate_ensemble
from glassformer.train.recipe import Recipe, load_recipe
from glassformer.train.run.beginning import as_recipe, prepare_split, refuse_changed
from glassformer.train.run_data import Scored, Split
from glassformer.train.sample_lengths import LENGTHS, joined
from glassformer.train.settings import DecodeConfig
from glassformer.train.tasks import task_of
from glassformer.train.tasks.labels import Labels
from glassformer.train.tasks.pairs import PairsSplit

LOG = logging.getLogger(__name__)


def load_run(run: Path, recipe: Recipe, average: int | None = None) -> Loaded:
    """Load the best checkpoint of a run, or the mean of its `average` newest, on the recipe's device.

    Its threads are not those of training, but `decode.threads`: who computes with it chooses them.
    """
    device, _ = choose_device(recipe.training.device)
    loaded = with_report(load(run, device=device) if average is None else load_mean(run, average, device=device))
    refuse_changed(run, loaded, recipe)
    as_recipe(loaded.model, recipe)
    return loaded


def tell_decoding(model: Transformer, decode: DecodeConfig, threads: str) -> None:
    """Log with which precision a loaded model is going to write and why, its `threads` in words, and a long wait."""
    _, precision = chosen_precision(decode.precision, device_of(model))
    cache = "; keys and values in 8 bits" if decode.cache == "int8" else ""
    compiles = "; TorchInductor compiles the first steps, for up to a minute" if decode.compile else ""
    LOG.info(f"decoding: {precision}{cache}; {threads}{compiles}")


def placed_like(other: Recipe, recipe: Recipe) -> Recipe:
    """The recipe of another run, which works with that of `recipe`: on its device."""
    return replace(other, training=replace(other.training, device=recipe.training.device))


def dev_split(run: Path, recipe: Recipe, loaded: Loaded) -> Split:
    """The dev split of a run, which the loaded model was not trained on.

    Errors: those of reading, and `CheckpointError` if it is cut from another training text, or at another place.
    """
    split = prepare_split(recipe, loaded.tokenizers, "dev")
    refuse_other_cut(run, recipe.data, loaded.state, split.digest())
    return split


def with_report(loaded: Loaded) -> Loaded:
    """Return what was loaded, after printing to standard error which checkpoints were skipped for it, and why."""
    if loaded.skipped:
        from glassformer.train.report import Screen  # here, because importing rich takes time

        screen = Screen()
        for each in loaded.skipped:
            screen.print(f"skipped: {each.reason}", markup=False, highlight=False, soft_wrap=True)
        screen.print(f"used instead: {loaded.folder}", markup=False, highlight=False, soft_wrap=True)
    return loaded


def refuse_unscorable(own: DataConfig, requested: DataConfig) -> None:
    """Refuse data that a model of a run with data `own` cannot answer; files may replace a task's pairs.

    Lengths, sizes, windows and files may differ. Errors: `ConfigError` for another layout, task, objective, discount or
    environment, and for more symbols.
    """
    if requested.layout != own.layout:
        raise ConfigError(
            f"A model answers only in the layout that it was trained with, data.layout={own.layout!r}; got "
            f"{requested.layout!r}. Remove data.layout."
        )
    if not task_of(own).scores(requested):
        raise ConfigError(
            f"A model can be scored only on what it was trained to do, data.task={own.task!r}; got {requested.task!r}. "
            f"Remove data.task, or train on {requested.task!r}."
        )
    for name in ("objective", "discount", "environment"):
        before, now = getattr(own, name), getattr(requested, name)
        if now != before:
            raise ConfigError(
                f"A model can be scored only on what it was trained to do, data.{name}={before!r}; got {now!r}. "
                f"Remove data.{name}."
            )
    if own.task == requested.task and requested.symbols > own.symbols:
        raise ConfigError(
            f"This model was trained with data.symbols={own.symbols}; got {requested.symbols}, and it would read the "
            f"additional symbols as <unk>. Remove data.symbols, or give at most {own.symbols}."
        )


def refuse_other_cut(run: Path, requested: DataConfig, state: Mapping[str, Any], dev: str) -> None:
    """Refuse a dev split, with digest `dev`, that is not the one held out when the checkpoint of `state` was trained.

    What is held out now may be what the model has learned from. Errors: `CheckpointError`.
    """
    before = state.get("data", {}).get("dev", dev)  # weights from elsewhere have none
    cut = task_of(requested).cut
    if cut is None or getattr(requested, cut.dev) is not None or before == dev:
        return
    whole: str | None = getattr(requested, cut.whole)
    if whole is None and cut.made is None:
        return
    changed = [
        f"data.{name} is {getattr(requested, name)} and was {was}"
        for name in cut.settings
        if (was := state.get("recipe", {}).get(f"data.{name}", getattr(requested, name))) != getattr(requested, name)
    ]
    why = "; ".join(changed) or f"the contents of {whole or cut.made} have changed"
    back = "Use the settings of the training" if changed else "Restore the old file"
    raise CheckpointError(
        f"The dev split of {run} is the end of its training {cut.what}, and must be the part that was held out in "
        f"training; {why}, so that the model may have been trained on it. {back}, or score another {cut.what}: "
        f"glassformer evaluate {run} --data.{cut.other} FILE."
    )


def export_run(run: Path, folder: Path, average: int | None = None) -> Exported:
    """Write the best checkpoint of a run, or the mean of its `average` newest, as a Hugging Face folder.

    Errors: `ConfigError` for a run that computes what no family of models there does; those of loading and writing.
    """
    recipe = load_recipe(run / "recipe.toml")
    refuse_used(folder)
    if recipe.training.broken:
        raise ConfigError(
            f"{run} makes a mistake on purpose (training.broken={recipe.training.broken!r}), which no exported model "
            "would make. Export a run without it."
        )
    if recipe.data.objective == "prefix":
        raise ConfigError(
            f"{run} reads each prompt in both directions (data.objective='prefix'), which no exported model does. "
            "Export a run with data.objective='next_token'."
        )
    loaded = load_run(run, recipe, average)
    data = recipe.data
    begins = data.documents is not False
    never = unwritten(task_of(data).layout.decoder, data.objective, ends=begins)
    return write_pretrained(folder, loaded.model, loaded.tokenizers.target, Text(begins, never, data.window), named=run)


# Runs that answer together, as an ensemble: classifiers that each read the texts, or models that write as one.


def recipes_of(run: Path, recipe: Recipe, others: Sequence[Path]) -> list[tuple[Path, Recipe]]:
    """Each run with its recipe: `recipe` for the first, for the others their own with its device.

    Errors: `ConfigError` for runs that answer in different ways, and for several that act.
    """
    usual = task_of(load_recipe(run / "recipe.toml").data).manner if others else {}
    recipes = [(run, recipe), *((each, placed_like(load_recipe(each / "recipe.toml"), recipe)) for each in others)]
    if others and not task_of(recipe.data).joins:
        raise ConfigError(
            f"The members of an ensemble write answers or give labels; {run} "
            f"{task_of(recipe.data).does}. Score each run by itself."
        )
    for other, its in recipes[1:]:
        for name, first in usual.items():
            if (second := task_of(its.data).manner.get(name)) != first:
                raise ConfigError(
                    f"The members of an ensemble must have the same `data.{name}`; {other} has "
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
                    f"The members of an ensemble must have the same vocabularies; the {side} vocabulary "
                    f"of {other} differs from that of {run}. Train both on the same text with the same [tokenizer]."
                )
    lengths = reduce(joined, (each.state.get(LENGTHS, {}) for each in (first, *more)))
    return replace(
        first, model=Ensemble([first.model, *(each.model for each in more)]), state=first.state | {LENGTHS: lengths}
    )


def as_long(recipe: Recipe, model: Transformer) -> Recipe:
    """The recipe with the shortest `max_len` of an ensemble's members; for one model unchanged."""
    if not isinstance(model, Ensemble):
        return recipe
    stacks = (model.config.encoder, model.config.decoder)
    limits = [stack.max_len for stack in stacks if stack is not None and stack.max_len is not None]
    return replace(recipe, model=replace(recipe.model, max_len=min(limits, default=None)))


def shortest_of(model: Transformer, runs: Sequence[Path]) -> str | None:
    """The run whose `max_len` limits the ensemble; None for a single run, or if no run has a limit."""
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


def score_ensemble(
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
    task = cast("Labels", task_of(recipe.data))  # others have no labels to share
    data = task.read(recipe, members[0].tokenizers, split)
    encoded = [data.encoded, *(encode_pairs(data.pairs, each.tokenizers) for each in members[1:])]
    for member, own, (_, its) in zip(members, encoded, recipes, strict=True):
        with naming(member.name):
            task.check_lengths(own, its, split, data.origin)
    ready()
    scores = evaluate_ensemble(members, encoded, batch_size=recipe.decode.batch_size)
    return data, Scored(scores.metrics, [], scores.details)


@contextmanager
def naming(run: str | None, kind: type[DataError] = DataError) -> Generator[None]:
    """Prefix errors about texts that cannot be read with the run that cannot read them; None: there is only one."""
    try:
        yield
    except kind as error:
        raise error if run is None else kind(f"{run}: {error}") from None
