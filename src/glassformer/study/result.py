"""What a study found: its folder, the score and result of each arm, and the table made of them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from itertools import pairwise, product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from glassformer.base.errors import CheckpointError, ConfigError
from glassformer.base.runtime import choose_device
from glassformer.nn.count import count_parameters
from glassformer.nn.transformer import Transformer
from glassformer.store.files import read_json, write_text_atomically
from glassformer.store.folders import newest, read_state
from glassformer.train.finished.use import best_model, evaluate
from glassformer.train.recipe import Recipe, anchored, load_recipe, override
from glassformer.train.run.resumable import flat
from glassformer.train.tasks import METRICS, task_of

Axes = Mapping[str, Sequence[object]]
"""Setting -> the values it takes in turn."""

Variant = tuple[dict[str, object], Mapping[str, object]]
"""How an arm differs from the others, and all settings that it changes."""
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
    override(recipe, changes)  # what is wrong with all arms is no fault of one
    variants: list[Variant] = [({CHANGE: UNCHANGED}, changes)]
    for each in apart:
        refuse_unvaried(each)
        changed: dict[str, object] = {CHANGE: combination(dict(sorted(each.items())))}
        if changed in (before for before, _ in variants):
            raise ConfigError(f"--change {changed[CHANGE]} is given twice. Give it once.")
        variants.append((changed, {**changes, **each}))
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
    for changed, values in variants:
        try:
            whole = settled(anchored(override(recipe, values)))
            first = whole.training.seed
            for seed in range(first, first + seeds):
                found.append(Arm(changed, seed, replace(whole, training=replace(whole.training, seed=seed))))
        except ConfigError as error:
            refused.append(f"{combination(changed)}: {error}")
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


# The folder of a study: where its arms are, how far each has come, and whether an arm fits the recipe asked for.

LOGS = "logs"
"""Created first, so that its presence marks a folder as a study."""
FILLED_IN = ("data.documents",)
"""Settings that a run determines from its text and writes into its recipe if they were left open."""


class StudyFolder:
    """`runs/` has a run folder for each arm, `scores/` its result once it is finished, `logs/` its standard error."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, arm: Arm) -> Path:
        """Return the arm's run folder."""
        return self.root / "runs" / arm.folder

    def scores(self, arm: Arm) -> Path:
        """Return the file of the arm's result."""
        return self.root / "scores" / f"{arm.folder}.json"

    def log(self, arm: Arm) -> Path:
        """Return the file of what the arm's process wrote to standard error."""
        return self.root / LOGS / f"{arm.folder}.txt"

    def result(self, arm: Arm, other: Mapping[str, object]) -> Result | None:
        """Return the arm's result if it is finished and was scored on these other data too, else None.

        Errors: `CheckpointError` for a file that holds no result.
        """
        path, recipe = self.scores(arm), self.run(arm) / "recipe.toml"
        if not path.is_file() or not recipe.is_file():
            return None
        found = result_from(read_json(path), str(path), task_of(load_recipe(recipe).data).held_out)
        return found if found.other_data == dict(other) else None

    def state(self, arm: Arm, other: Mapping[str, object]) -> str:
        """Return how far the arm has come: new, begun or finished.

        Errors: `CheckpointError` with the differences if its folder holds a run of another recipe.
        """
        kept = self.run(arm) / "recipe.toml"
        if not kept.is_file():
            return "new"
        differing = differences(load_recipe(kept), arm.recipe)
        if differing:
            raise CheckpointError(
                f"A run of a study keeps its settings; {self.run(arm)} was trained with others: "
                f"{'; '.join(differing)}. Use the same settings, or choose another folder with --out."
            )
        return "begun" if self.result(arm, other) is None else "finished"


def differences(kept: Recipe, requested: Recipe) -> list[str]:
    """List each setting that differs, with both values, except settings that were left open and filled in."""
    ours, theirs = flat(asdict(kept)), flat(asdict(requested))
    differing = [name for name in theirs if ours[name] != theirs[name]]
    return [
        f"{name} is {ours[name]!r} there and {theirs[name]!r} here"
        for name in differing
        if not (name in FILLED_IN and theirs[name] is None)
    ]


# Scoring a finished arm, in its own process: on its held-out split, and on the other data that the study asks for.


def score(run: Path, values: Mapping[str, Any], other_data: Mapping[str, Any]) -> Result:
    """Score the run's best checkpoint and collect the figures of its training.

    Errors: those of `evaluate`; `CheckpointError` if the run has no intact checkpoint.
    """
    recipe = load_recipe(run / "recipe.toml")
    last = newest(run).folder
    if last is None:
        raise CheckpointError(
            f"{run} has no intact checkpoint to score. Delete that folder; the study then trains the run again."
        )
    state = read_state(last)
    split = task_of(recipe.data).held_out
    by_length = task_of(recipe.data).decoded
    elsewhere = anchored(override(recipe, other_data))
    return Result(
        values=dict(values),
        seed=recipe.training.seed,
        metric=recipe.training.metric,
        split=split,
        test=evaluate(run, recipe, split, by_length=by_length),
        other_data=dict(other_data),
        other=evaluate(run, elsewhere, task_of(elsewhere.data).held_out, by_length=by_length) if other_data else None,
        curve=learning_curve(run, recipe.training.metric),
        parameters=count_parameters(best_model(run))[1],
        steps=state["step"],
        seconds=training_seconds(run),
        data=state["data"]["train"],
    )


# The result of a finished arm, from which table and plots are made: a line of results.jsonl.

SHARES = tuple(name for name, each in METRICS.items() if each.share)
"""Metrics from 0 to 1, for which it makes sense to ask when they reach 99 %."""
ENOUGH = 0.99

Figures = dict[str, Any]
"""What `glassformer evaluate --by-length --json` prints."""


@dataclass(frozen=True)
class Result:
    """The result of one arm."""

    values: dict[str, Any]
    """The varied settings and their values in this arm."""
    seed: int
    metric: str
    """The recipe's training.metric, which the table compares."""
    split: str
    """The split of `test`: "test", or "dev" if the data have no test split."""
    test: Figures
    """The best checkpoint on that split."""
    other_data: dict[str, Any]
    """The settings of --test; empty if there are none."""
    other: Figures | None
    """The best checkpoint on the held-out split of the data with those settings."""
    curve: list[tuple[int, float]]
    """(step, metric) of each evaluation on the dev split."""
    parameters: int
    steps: int
    """Updates of the weights."""
    seconds: float
    """From the first step to the last, including evaluations and checkpoints in between."""
    data: str
    """Digest of the training ids. Arms with equal digests saw the same data; only the seed decides the order."""

    def steps_to_enough(self) -> int | None:
        """Return the step of the first evaluation at or above 99 %, or None."""
        reached = [step for step, value in self.curve if value >= ENOUGH]
        return reached[0] if reached and self.metric in SHARES else None

    def as_json(self) -> str:
        """Return the result as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)


def splits(results: Sequence[Result]) -> str:
    """Return the name of the split that the results are of; several names if they differ."""
    return " or ".join(sorted({each.split for each in results}, reverse=True))


def write_results(results: Sequence[Result], path: Path) -> None:
    """Write one line for each result."""
    write_text_atomically(path, "".join(f"{each.as_json()}\n" for each in results))


def result_from(value: Any, place: str, split: str | None = None) -> Result:
    """Make a result from a value read from JSON; `split` is what one has that was scored before results held it.

    Errors: `CheckpointError` naming `place`.
    """
    if isinstance(value, dict) and split is not None:
        value = {"split": split, **value}
    match value:
        case {
            "values": dict(),
            "seed": int(),
            "metric": str(metric),
            "split": str(),
            "test": dict(test),
            "curve": list(curve),
        }:
            if value.keys() == Result.__dataclass_fields__.keys() and metric in test:
                whole: dict[str, Any] = {**value, "curve": [(step, figure) for step, figure in curve]}
                return Result(**whole)
        case _:
            pass
    raise CheckpointError(
        f"{place} is not the result of a run of this study. Delete the file and repeat the study's command, which "
        "makes it again."
    )


def training_seconds(run: Path) -> float:
    """Return how long the steps of a run took. The clock restarts at 0 when a run is resumed, so parts are summed."""
    lines = (run / "timing.jsonl").read_text("utf-8").splitlines()
    times = [float(json.loads(line)["seconds"]) for line in lines]
    ends = [before for before, after in pairwise(times) if after < before]
    return sum(ends) + times[-1]


def learning_curve(run: Path, metric: str) -> list[tuple[int, float]]:
    """Return (step, metric) of each evaluation on the dev split."""
    lines = (json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines())
    return [(line["step"], float(line[metric])) for line in lines if line["kind"] == "dev"]


# The table of a study: for each combination, the mean over its seeds with the lowest and the highest.

NONE = "-"


def table(results: Sequence[Result], combinations: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return a markdown table with a row for each combination, and notes on the seeds and samples.

    `combinations`: those that were asked for, so that one without any result gets a row too. Combinations that only
    `results` has follow them.
    """
    if not results:
        return "No arm is finished."
    wanted = {combination(each): each for each in (*combinations, *(result.values for result in results))}
    first = results[0]
    share = first.metric in SHARES
    head = [*short_names(first.values), first.metric]
    head += [f"{first.metric}, {short_combination(first.other_data)}"] if first.other_data else []
    head += [*(["steps to 99 %"] if share else []), "parameters", "seconds"]
    body: list[list[str]] = []
    for name, values in wanted.items():
        mine = [each for each in results if combination(each.values) == name]
        cells = [figure([each.test for each in mine], first.metric)]
        cells += [figure([each.other or {} for each in mine], first.metric)] if first.other_data else []
        cells += [steps_to_enough(mine)] if share else []
        parameters = " or ".join(f"{each:,}" for each in sorted({each.parameters for each in mine}))
        cells += [parameters or NONE, spread([each.seconds for each in mine], 0)]
        body.append([*map(shown, values.values()), *cells])
    return "\n".join([markdown(head, body), "", *notes(results)])


def notes(results: Sequence[Result]) -> list[str]:
    """Return notes that say what the figures are means of."""
    seeds = ", ".join(str(each) for each in sorted({each.seed for each in results}))
    pairs = " or ".join(f"{each:,}" for each in sorted({int(each.test["n"]) for each in results}))
    lines = [f"Mean (lowest–highest) of seeds {seeds}; {pairs} {splits(results)} samples each."]
    others = " or ".join(f"{each:,}" for each in sorted({int(each.other["n"]) for each in results if each.other}))
    if others not in ("", pairs):
        lines.append(f"Of {short_combination(results[0].other_data)}: {others} samples each.")
    if results[0].metric in SHARES:
        lines.append(f"Steps to 99 %: the first evaluation on dev at or above it{every(results)}; - where none was.")
    return lines


def every(results: Sequence[Result]) -> str:
    """Say how many steps apart evaluations are, if that is the same for all results."""
    gaps = {each.curve[0][0] for each in results if len(each.curve) > 1}
    return f", one every {gaps.pop()} steps" if len(gaps) == 1 else ""


def figure(figures: Sequence[Mapping[str, Any]], metric: str) -> str:
    """Return one metric over the seeds; shares in percent."""
    values = [float(each[metric]) for each in figures if metric in each]
    if metric in SHARES:
        return spread([100.0 * each for each in values], 2, " %")
    return spread(values, 4 if metric == "loss" else 2)


def steps_to_enough(results: Sequence[Result]) -> str:
    """Return the steps to 99 % over the seeds that reached it, and how many did if not all."""
    reached = [float(step) for step in (each.steps_to_enough() for each in results) if step is not None]
    some = f", {len(reached)} of {len(results)}" if 0 < len(reached) < len(results) else ""
    return spread(reached, 0) + some


def spread(values: Sequence[float], digits: int, unit: str = "") -> str:
    """Return mean, lowest and highest as text; for a single value, only the value."""
    if not values:
        return NONE
    low, mean, high = (f"{each:.{digits}f}" for each in (min(values), fmean(values), max(values)))
    return f"{mean}{unit} ({low}–{high})" if len(values) > 1 else f"{mean}{unit}"


def short_names(values: Mapping[str, Any]) -> list[str]:
    """Return the settings' names without their sections where that is unambiguous."""
    ends = [name.rpartition(".")[2] for name in values]
    return [end if ends.count(end) == 1 else name for name, end in zip(values, ends, strict=True)]


def short_combination(values: Mapping[str, Any]) -> str:
    """Return settings and values as text, without sections."""
    return combination(dict(zip(short_names(values), values.values(), strict=True)))


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return a markdown table whose columns are also aligned on a terminal."""
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    ruler = ["-" * width for width in widths]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in (head, ruler, *body)
    )
