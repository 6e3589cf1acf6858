"""The arms of a study: each combination of the varied values, or each change by itself, for each seed.

Imports no torch.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import product

import torch

from glassformer.base.errors import ConfigError
from glassformer.base.runtime import choose_device
from glassformer.nn.transformer import Transformer
from glassformer.train.recipe import Recipe, anchored, override
from glassformer.train.tasks import task_of

Axes = Mapping[str, Sequence[object]]
"""Setting -> the values it takes in turn."""

Variant = tuple[dict[str, object], Mapping[str, object]]
"""How an arm is told from the others, and all settings that it changes."""
CHANGE, UNCHANGED = "change", "none"
"""In a study of single changes: what its arms differ in, and the arm of the recipe as it is."""
LONGEST_NAME = 120
"""The most characters of a folder's name; some systems allow no more than 143."""


@dataclass(frozen=True)
class Arm:
    """One run of a study."""

    values: dict[str, object]
    """The varied settings and their values in this arm."""
    seed: int
    recipe: Recipe

    @property
    def label(self) -> str:
        """The arm's name in messages."""
        return f"{combination(self.values)}, seed {self.seed}"

    @property
    def folder(self) -> str:
        """The name of its files, whatever the order of the settings; only plain characters, and of bounded length."""
        parts = [f"{name}={shown(value)}" for name, value in sorted(self.values.items())]
        whole = ",".join([*parts, f"seed={self.seed}"])
        plain = re.sub(r"[^A-Za-z0-9._=,-]", "_", whole)
        if plain == whole and len(plain) <= LONGEST_NAME:
            return plain
        return f"{plain[:LONGEST_NAME]}-{blake2b(whole.encode('utf-8', 'surrogateescape'), digest_size=4).hexdigest()}"


def combination(values: Mapping[str, object]) -> str:
    """Return settings and their values as text."""
    return ", ".join(f"{name}={shown(value)}" for name, value in values.items())


def shown(value: object) -> str:
    """Return a value as a user types it."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def arms(recipe: Recipe, changes: Mapping[str, object], axes: Axes, seeds: int) -> list[Arm]:
    """Return every combination, the last axis fastest, each for `seeds` seeds.

    Errors: `ConfigError` for invalid axes, and as `repeated`.
    """
    check_axes(axes, changes)
    chosen = (dict(zip(axes, values, strict=True)) for values in product(*axes.values()))
    return repeated(recipe, [(values, {**changes, **values}) for values in chosen], seeds)


def single_changes(
    recipe: Recipe, changes: Mapping[str, object], apart: Sequence[Mapping[str, object]], seeds: int
) -> list[Arm]:
    """Return the recipe with `changes`, and with each of those `apart` as well, each for `seeds` seeds.

    Errors: `ConfigError` for one that is given twice, that changes nothing or what no study may, and as `repeated`.
    """
    override(recipe, changes)  # what is wrong with all arms is told of none
    variants: list[Variant] = [({CHANGE: UNCHANGED}, changes)]
    for each in apart:
        refuse_unvaried(each)
        told: dict[str, object] = {CHANGE: combination(dict(sorted(each.items())))}
        if told in (before for before, _ in variants):
            raise ConfigError(f"--change {told[CHANGE]} is given twice. Give it once.")
        variants.append((told, {**changes, **each}))
    found = repeated(recipe, variants, seeds)
    for arm in found[seeds:]:
        if arm.recipe == found[arm.seed - found[0].seed].recipe:
            raise ConfigError(
                f"--change {arm.values[CHANGE]} changes nothing: the recipe has it so. Give another value, or remove "
                "it."
            )
    return found


def repeated(recipe: Recipe, variants: Sequence[Variant], seeds: int) -> list[Arm]:
    """Return the arms of each variant, for each seed from `training.seed` upwards.

    Where the recipe leaves precision and threads to the machine, all arms get the same ones (`settled`), as a choice by
    measured speed could differ between arms. Errors: `ConfigError` for a variant that contradicts itself, which it
    names.
    """
    found: list[Arm] = []
    refused: list[str] = []
    for told, values in variants:
        try:
            whole = settled(anchored(override(recipe, values)))
            first = whole.training.seed
            for seed in range(first, first + seeds):
                found.append(Arm(told, seed, replace(whole, training=replace(whole.training, seed=seed))))
        except ConfigError as error:
            refused.append(f"{combination(told)}: {error}")
    if refused:
        more = f" ({len(refused) - 1} more of them have errors.)" if len(refused) > 1 else ""
        raise ConfigError(f"{refused[0]}{more} Nothing was trained.")
    return found


def settled(recipe: Recipe) -> Recipe:
    """Fix what a run would choose by itself: float32 for "auto", one thread for 0."""
    training = recipe.training
    precision = "float32" if training.precision == "auto" else training.precision
    return replace(recipe, training=replace(training, precision=precision, threads=training.threads or 1))


def check_axes(axes: Axes, changes: Mapping[str, object]) -> None:
    """Raise `ConfigError` for invalid axes: none, a repeated value, the seed, the metric, or a setting also set."""
    if not axes:
        raise ConfigError(
            "A study needs a setting to vary; got none. Give --vary SETTING=VALUE,VALUE, as in --vary "
            "model.n_layers=1,2; or --change SETTING=VALUE, once for each change that is tried by itself."
        )
    refuse_unvaried(axes)
    for name, values in axes.items():
        if name in changes:
            raise ConfigError(
                f"A setting is either varied or set; {name} is both. Remove it from --vary, or remove the setting."
            )
        twice = [value for value in values if values.count(value) > 1]
        if twice:
            raise ConfigError(f"--vary {name} has the value {shown(twice[0])} twice. Write each value once.")


def refuse_unvaried(names: Collection[str]) -> None:
    """Raise `ConfigError` for the settings that all arms of a study have in common."""
    if "training.seed" in names:
        raise ConfigError(
            "training.seed cannot be varied, as a study repeats every combination with several seeds. Use --seeds "
            "N, which counts from --training.seed upwards."
        )
    if "training.metric" in names:
        raise ConfigError(
            "training.metric cannot be varied, as one metric compares all runs of a study. Set it for all: "
            "--training.metric NAME."
        )


# Checking that the model of each arm can be built, before the first arm is trained.


def refuse_impossible_models(arms: Sequence[Arm]) -> None:
    """Build the model of each combination without allocating memory. Errors: `ConfigError` naming the combination."""
    for arm in {combination(arm.values): arm for arm in arms}.values():
        try:
            with torch.device("meta"):
                Transformer(task_of(arm.recipe.data).sketch(arm.recipe))
        except ConfigError as error:
            raise ConfigError(f"{combination(arm.values)}: {error} Nothing was trained.") from None


def on_accelerator(arms: Sequence[Arm]) -> bool:
    """Whether any arm would be trained on an accelerator, which parallel arms would share."""
    return any(choose_device(each)[0].type != "cpu" for each in {arm.recipe.training.device for arm in arms})
