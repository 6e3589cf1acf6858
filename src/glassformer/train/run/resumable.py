"""Check whether a run can resume from a checkpoint: the recipe must now say what the run was made with."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.base.errors import CheckpointError
from glassformer.nn.config import ModelConfig
from glassformer.store.folders import step_number
from glassformer.train.record.events import Metric
from glassformer.train.sample_lengths import LENGTHS, SampleLengths

LOSS_SCALE = {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker", "skipped", "in_a_row"}
"""The keys of a `LossScale` state; all values are numbers."""


class Best(NamedTuple):
    """The best evaluation so far, and the number of evaluations since."""

    step: int | None = None
    metrics: dict[str, Metric] = {}  # noqa: RUF012  (never changed)
    since: int = 0
    constant: tuple[str, ...] = ()
    """The metrics that have been the same at each of several evaluations."""


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
"""The entries that an older state may lack, and their types; so may it `constant`."""


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
    return Standing(step, Best(best, metrics, since, tuple(state.get("constant", ()))), data, **later)


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
    for name, kind in {**LATER, "constant": list}.items():
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


def refuse_other_model(run: Path, built: ModelConfig, asked: ModelConfig) -> None:
    """Refuse a recipe whose model differs from the checkpoint's, naming each setting that differs."""
    ours, theirs = flat(built.to_dict()), flat(asked.to_dict())
    names = [*ours, *(name for name in theirs if name not in ours)]
    differing = [name for name in names if ours.get(name) != theirs.get(name) and name.split(".")[-1] not in UNASKED]
    if differing and {*differing} <= SIZES:
        told = "; ".join(f"{name} is {ours[name]}, but it has {theirs[name]} tokens" for name in differing)
        raise CheckpointError(
            f"{run}: the vocabulary of the checkpoint is not the one that its model was trained with: {told}. Restore "
            "its tokenizer.json, or use another checkpoint."
        )
    if differing:
        told = "; ".join(f"{name} is {ours.get(name)!r}, and {theirs.get(name)!r} is asked for" for name in differing)
        raise CheckpointError(
            f"A run keeps the model that it began with, but {run / 'recipe.toml'} or the command line asks for "
            f"another: {told}. Undo that change, or train the new model in another folder with --out."
        )


def flat(values: Mapping[str, Any], within: str = "") -> dict[str, Any]:
    """Nested settings by their full names, such as encoder.d_model."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= flat(value, f"{within}{name}.") if isinstance(value, dict) else {f"{within}{name}": value}
    return found
