"""Check whether a run can resume from a checkpoint: what its state holds, and what of the recipe may have changed."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.base.errors import CheckpointError, ConfigError
from glassformer.data.config import SPLITS
from glassformer.data.kinds import TEXTS
from glassformer.nn.config import ModelConfig
from glassformer.store.folders import step_number
from glassformer.train.ranks.distributed import Ranks
from glassformer.train.recipe import Recipe, settings_of, written
from glassformer.train.records import Metric
from glassformer.train.run_data import RunData
from glassformer.train.sample_lengths import LENGTHS, SampleLengths
from glassformer.train.settings import Settings

LOSS_SCALE = {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker", "skipped", "in_a_row"}
"""The keys of a `LossScale` state; all values are numbers."""


class Best(NamedTuple):
    """The best evaluation so far, and the number of evaluations since."""

    step: int | None = None
    metrics: dict[str, Metric] = {}  # noqa: RUF012  (never changed)
    since: int = 0
    constant: tuple[str, ...] = ()
    """The metrics that have been the same at each of several evaluations."""
    evaluations: int = 0
    """How many there were; those before this was counted are not in it."""


class Standing(NamedTuple):
    """How far a run has come, as its checkpoint's state records it."""

    step: int
    best: Best
    data: dict[str, str]
    """Digests of the run's data, by split; see `RunData.fingerprints`."""
    sides: dict[str, str] = {}  # noqa: RUF012  (never changed)
    """Digests by split and side; see `RunData.sides`. Empty in a checkpoint of an older version, as is `recipe`."""
    recipe: dict[str, Any] = {}  # noqa: RUF012
    """The run's settings, by their full names; see `settings_by_name`."""
    skipped: int = 0
    """Updates skipped so far, because they would not have been finite."""
    evaluation_due: bool = False
    """Whether the evaluation of this step is still to come, because the run was stopped during it."""
    loss_scale: dict[str, float] | None = None
    """The state of `LossScale`, in float16."""
    lengths: SampleLengths = {}  # noqa: RUF012
    """Of all samples so far, those of a run that this one started from included; empty if unknown."""

    @property
    def updates(self) -> int:
        """The number of steps so far whose update was made, not skipped."""
        return self.step - self.skipped - int((self.loss_scale or {}).get("skipped", 0))

    def to_state(self) -> dict[str, Any]:
        """Plain values, for `save`."""
        scaled = {} if self.loss_scale is None else {"loss_scale": self.loss_scale}
        return scaled | {
            "step": self.step,
            "best": self.best.step,
            "best_metrics": self.best.metrics,
            "since_best": self.best.since,
            "constant": [*self.best.constant],
            "evaluations": self.best.evaluations,
            "data": self.data,
            "sides": self.sides,
            "recipe": self.recipe,
            "skipped": self.skipped,
            "evaluation_due": self.evaluation_due,
            LENGTHS: self.lengths,
        }


IMPORTED = "imported"
"""The entry of an imported model's state, which says of which family it is, and the only one that it has."""
LATER: dict[str, type] = {
    "sides": dict,
    "recipe": dict,
    "skipped": int,
    "evaluation_due": bool,
    "loss_scale": dict,
    LENGTHS: dict,
}
"""The entries that an older state may lack, and their types; so may it those of `COUNTED`."""
COUNTED = {"constant": list, "evaluations": int}
"""Those about all evaluations; see `Best`."""


def standing(state: Mapping[str, Any], folder: Path, metric: str) -> Standing:
    """Restore what `to_state` returned. Errors: `CheckpointError` for a state that training did not save.

    `metric`: the figure that evaluations are compared by; the figures of the best one must include it.
    """
    match state:
        case {
            "step": int(step),
            "best": int() | None as best,
            "best_metrics": dict(metrics),
            "since_best": int(since),
            "data": {"train": str(), "dev": str()} as data,
        }:
            reason = contradiction(state, folder, metric)
        case {"imported": str(family)}:  # `IMPORTED`
            raise CheckpointError(
                f"{folder} holds imported weights ({family}) and no training that could go on. Start a run from them: "
                f"glassformer train lm --data.text FILE --training.start-from {shlex.quote(str(folder.parents[1]))}"
            )
        case _:
            raise CheckpointError(
                f"Training resumes only from a checkpoint that it saved itself; the state of {folder} must have step, "
                f"best, best_metrics, since_best and data by split, but has {', '.join(state) or 'nothing'}. Move that "
                "folder out of the run, or train a new run with --out."
            )
    if reason:
        raise CheckpointError(
            f"Training resumes only from a checkpoint that it saved itself; in the state of {folder} {reason}. Move "
            "that folder out of the run, or train a new run with --out."
        )
    later = {name: state[name] for name in LATER if name in state}
    counted = tuple(state.get("constant", ())), state.get("evaluations", 0)
    return Standing(step, Best(best, metrics, since, *counted), data, **later)


def contradiction(state: Mapping[str, Any], folder: Path, metric: str) -> str | None:
    """What is impossible in a state that has the right entries, in words; None if nothing is."""
    step, best, since, metrics = (state[name] for name in ("step", "best", "since_best", "best_metrics"))
    named = step_number(folder)
    if isinstance(step, bool) or step < 0 or (named is not None and step != named):
        return f"step is {step!r}, which differs from that in the folder's name"
    if isinstance(best, bool) or (best is not None and not 0 <= best <= step):
        return f"best is {best!r}, but must be a step up to {step}"
    if isinstance(since, bool) or not 0 <= since <= step:
        return f"since_best is {since!r}, but must be a number of evaluations up to {step}"
    for name, kind in {**LATER, **COUNTED}.items():
        if name in state and type(state[name]) is not kind:
            return f"{name} is {state[name]!r:.60}, but must be of type {kind.__name__}"
    for name in () if best is None else ("loss", metric):
        if type(metrics.get(name)) not in (int, float):
            return f"best_metrics has no number for {name!r}, by which the next evaluation is compared with the best"
    scale = state.get("loss_scale", dict.fromkeys(LOSS_SCALE, 0))
    if scale.keys() != LOSS_SCALE or {*map(type, scale.values())} - {int, float}:
        return f"loss_scale is {scale!r:.60}, but must have a number for each of {', '.join(sorted(LOSS_SCALE))}"
    strange = [name for name, each in metrics.items() if type(each) not in (int, float, str)]
    return f"best_metrics holds {strange[0]!r:.60}, which is neither a number nor text" if strange else None


SIZES = {"vocab_size", "source_vocab_size"}
"""Settings of a model that no recipe has: the vocabularies of its checkpoint decide them."""


UNASKED = ("final_norm", "head_bias")
"""Model settings that a recipe does not have, so that it cannot ask for other ones: a learner's run may have them."""


def refuse_other_model(run: Path, built: ModelConfig, requested: ModelConfig) -> None:
    """Refuse a recipe whose model differs from the checkpoint's, naming each setting that differs."""
    ours, theirs = flat(built.to_dict()), flat(requested.to_dict())
    names = [*ours, *(name for name in theirs if name not in ours)]
    differing = [name for name in names if ours.get(name) != theirs.get(name) and name.split(".")[-1] not in UNASKED]
    if differing and {*differing} <= SIZES:
        differences = "; ".join(f"{name} is {ours[name]}, but it has {theirs[name]} tokens" for name in differing)
        raise CheckpointError(
            f"{run}: the vocabulary of the checkpoint is not the one that its model was trained with: {differences}. "
            "Restore its tokenizer.json, or use another checkpoint."
        )
    if differing:
        differences = "; ".join(
            f"{name} is {ours.get(name)!r}, and {theirs.get(name)!r} is asked for" for name in differing
        )
        raise CheckpointError(
            f"A run keeps the model that it began with, but {run / 'recipe.toml'} or the command line asks for "
            f"another: {differences}. Undo that change, or train the new model in another folder with --out."
        )


def flat(values: Mapping[str, Any], within: str = "") -> dict[str, Any]:
    """Nested settings by their full names, such as encoder.d_model."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= flat(value, f"{within}{name}.") if isinstance(value, dict) else {f"{within}{name}": value}
    return found


# What may differ when a run is resumed: only what was allowed by name; and what never may.

FILES = (
    *(f"data.{split}{side}" for split in SPLITS for side in ("", "_source", "_target")),
    *(f"data.{name}" for name in TEXTS.values()),
)
"""Settings that name a file. Its path does not matter as long as its content is the same."""
FREE = ("checkpoint.", "distributed.")
"""Sections that do not influence what is learned."""
SAME_BITS = ("training.recompute", "training.track", "decode.threads")
"""Settings that change how a run is computed or tracked, but no bit of its result."""
AVERAGE = "optimizer.average"
"""The memory of the average of the weights."""
DATA = ("data.", "training.seed")
"""Settings that determine the content of the data, if no file holds it."""
SCORED = ("data.bleu_tokenizer", "data.bleu_order")
"""Settings of the data that change how answers are scored, but not what is read."""


class Change(NamedTuple):
    """A setting that differs from the run so far."""

    name: str
    old: object
    new: object

    def __str__(self) -> str:
        old, new = ("none" if value is None else written(value) for value in (self.old, self.new))
        return f"{self.name} {old} -> {new}"


def settings_by_name(recipe: Settings) -> dict[str, Any]:
    """Each setting that a run depends on, by its full name, such as `training.steps`: all but those in `FREE`."""
    places = (name.split(".") for name in settings_of(recipe) if not name.startswith(FREE))
    return {f"{section}.{key}": getattr(getattr(recipe, section), key) for section, key in places}


def changes(before: Mapping[str, Any], recipe: Recipe) -> list[Change]:
    """What differs from the run so far; a setting that the run did not know counts as its default."""
    if not before:  # saved by a version that stored no recipe
        return []
    defaults = settings_by_name(Recipe("defaults"))
    now = settings_by_name(recipe).items()
    found = (Change(name, before.get(name, defaults[name]), value) for name, value in now)
    return [each for each in found if each.old != each.new]


def refuse_other_recipe(recipe: Recipe, ranks: Ranks) -> None:
    """Refuse processes of one run that were given different settings, naming the section.

    Call it before anything that depends on the recipe: the processes match their messages to each other by order, which
    follows from its evaluations and saves.
    """
    sections: dict[str, list[str]] = {}
    for name in settings_of(recipe):
        section, key = name.split(".")
        if name not in FILES:  # the contents of files are compared instead
            sections.setdefault(section, []).append(f"{key} = {getattr(getattr(recipe, section), key)!r}")
    for section, settings in sections.items():
        digest = hashlib.blake2b("\n".join(settings).encode(), digest_size=6).digest()
        ranks.refuse_difference(f"[{section}] of the recipe", int.from_bytes(digest, "little"))


def refuse_unknown(allowed: Iterable[str], recipe: Recipe) -> None:
    """Refuse a name that is not a setting. Errors: `ConfigError` with the nearest one."""
    known = settings_of(recipe)
    for name in allowed:
        if name not in known:
            nearest = get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"Did you mean {nearest[0]!r}?" if nearest else "See glassformer resume --help."
            raise ConfigError(f"--allow-change {name}: there is no such setting. {hint}")


def refuse_undecided(recipe: Recipe, requested: Collection[str]) -> None:
    """Refuse values that are only decided when a run starts, and then recorded. Errors: `ConfigError`."""
    settings = recipe.training
    if settings.precision == "auto":
        raise ConfigError(
            "A resumed run needs the precision that was chosen when it began; got training.precision='auto'. Set it to "
            "bfloat16, float16 or float32."
        )
    if settings.threads == 0 and "training.threads" in requested:
        raise ConfigError("A resumed run needs a fixed number of threads; got training.threads=0. Give a number.")


def refuse_other_vocabulary(run: Path, found: Iterable[Change]) -> None:
    """Refuse another tokenizer, which nothing can allow. Errors: `CheckpointError`."""
    never = [str(each) for each in found if each.name.startswith("tokenizer.")]
    if never:
        raise CheckpointError(
            f"A run keeps the vocabulary that its weights were trained with, but {run / 'recipe.toml'} or the command "
            f"line asks for another: {'; '.join(never)}. Undo that change, or train a new run with --out."
        )


def refuse_changes(
    run: Path, found: Iterable[Change], allowed: Collection[str], requested: Collection[str] = ()
) -> None:
    """Refuse settings that differ without permission, showing both values of each. Errors: `CheckpointError`.

    `requested`: the settings that came from the command line, which are in no file.
    """
    for each in found:
        if each.name == AVERAGE:
            raise CheckpointError(
                f"optimizer.average cannot change during a run, as the average so far depends on it; got {each}. Undo "
                "that change, or train a new run with --out and --training.start-from."
            )
    differing = [each for each in found if each.name not in (*FILES, *SAME_BITS)]
    refused = [each for each in differing if each.name not in allowed]
    if refused:
        typed = [
            (each.name, "none" if each.new is None else str(each.new)) for each in differing if each.name in requested
        ]
        words = " ".join(
            [f"--allow-change {each.name}" for each in differing]
            + [f"--{name.replace('_', '-')} {shlex.quote(value)}" for name, value in typed]
        )
        raise CheckpointError(
            f"{run} was trained with other settings than {run / 'recipe.toml'} or the command line has now: "
            f"{'; '.join(map(str, refused))}. Undo the changes; or, to make them on purpose, allow them by name: "
            f"glassformer resume {shlex.quote(str(run))} {words}."
        )


def refuse_useless(allowed: Iterable[str], found: Iterable[Change], others: Collection[str]) -> None:
    """Refuse to allow what does not change: the user believes that something does. Errors: `ConfigError`."""
    needed = {each.name for each in found} | (set(FILES) if others else set())
    for name in allowed:
        if name not in needed:
            raise ConfigError(
                f"--allow-change {name}: its value is the same as in the run so far. Remove the flag, or give the new "
                "value too."
            )


def refuse_fewer_steps(run: Path, recipe: Recipe, step: int) -> None:
    """Refuse a number of steps that the run has passed already. Errors: `ConfigError`."""
    if recipe.training.steps < step:
        raise ConfigError(
            f"training.steps must be at least the steps that {run} has taken, {step}; got {recipe.training.steps}. "
            f"Give at least {step}, or evaluate the run as it is: glassformer evaluate {shlex.quote(str(run))}."
        )


def other_data(
    run: Path, before: Standing, now: Standing, data: RunData, changed: Iterable[Change], allowed: Collection[str]
) -> list[str]:
    """Refuse data that differ from the run so far, naming the files; return what differs if it is allowed.

    It is allowed if the setting that names the file is, or if the data follow from settings that were `changed`, all of
    which are allowed. Errors: `CheckpointError`.
    """
    follows = any(each.name.startswith(DATA) and each.name not in (*FILES, *SCORED) for each in changed)
    kinds: list[str] = []
    for split in (each for each in now.data if before.data[each] != now.data[each]):
        what, names = data.differing(split, before.sides, now.sides), data.settings(split)
        if not follows and not set(names) & set(allowed):
            named = [name for name in names if now.recipe[name] is not None]
            hint = f"; or, to use them on purpose, add --allow-change {named[0]}" if named else ""
            raise CheckpointError(
                f"{run} was trained on other data than its recipe now names: {what} have changed since. Restore the "
                f"old files{hint}; or train a new run with --out."
            )
        kinds.append(what)
    return kinds
