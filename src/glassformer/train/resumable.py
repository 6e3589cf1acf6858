"""Whether a run can go on from a checkpoint: what the recipe now says must be what the run so far was made with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.foundation.errors import CheckpointError
from glassformer.model.config import ModelConfig
from glassformer.train.events import Metric


class Best(NamedTuple):
    """The best evaluation so far, and how many have come since."""

    step: int | None = None
    metrics: dict[str, Metric] = {}  # noqa: RUF012  (never changed)
    since: int = 0


class Standing(NamedTuple):
    """How far a run has come, as the state of its checkpoint says."""

    step: int
    best: Best
    data: dict[str, str]
    """Digests of its data, by split; see `Prepared.fingerprints`."""

    def to_state(self) -> dict[str, Any]:
        """Plain values, for `save`."""
        return {
            "step": self.step,
            "best": self.best.step,
            "best_metrics": self.best.metrics,
            "since_best": self.best.since,
            "data": self.data,
        }


def standing(state: Mapping[str, Any], folder: Path) -> Standing:
    """The inverse of `to_state`. Errors: `CheckpointError` for a state that no training saved, as from another hand."""
    match state:
        case {
            "step": int(step),
            "best": int() | None as best,
            "best_metrics": dict(metrics),
            "since_best": int(since),
            "data": {"train": str(), "dev": str()} as data,
        } if step >= 0:
            return Standing(step, Best(best, metrics, since), data)
        case _:
            raise CheckpointError(
                f"Training goes on from a checkpoint that it saved itself; the state of {folder} lacks what that holds "
                f"(step, best, best_metrics, since_best, data by split); it has: {', '.join(state) or 'nothing'}. "
                "Move that folder out of the run, or train anew with --out."
            )


def refuse_other_data(run: Path, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Refuse data that are not those of the run so far, whose figures would mean something else."""
    changed = [{"train": "training"}.get(split, split) for split in now if before[split] != now[split]]
    if changed:
        raise CheckpointError(
            f"{run} was trained on other data than its recipe now names: the {' and '.join(changed)} pairs have "
            "changed since. Put the old files back, or train anew with --out."
        )


def refuse_other_model(run: Path, built: ModelConfig, asked: ModelConfig) -> None:
    """Refuse a recipe that asks for another model than the checkpoint holds, naming each setting that differs."""
    ours, theirs = flat(built.to_dict()), flat(asked.to_dict())
    names = [*ours, *(name for name in theirs if name not in ours)]
    differing = [name for name in names if ours.get(name) != theirs.get(name)]
    if differing:
        told = "; ".join(f"{name} is {ours.get(name)!r}, the recipe says {theirs.get(name)!r}" for name in differing)
        raise CheckpointError(
            f"A run goes on with the model that it began with, but {run / 'recipe.toml'} was changed: {told}. "
            "Change it back, or train the new model in another folder with --out."
        )


def flat(values: Mapping[str, Any], within: str = "") -> dict[str, Any]:
    """Nested settings by their whole names, as encoder.d_model."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= flat(value, f"{within}{name}.") if isinstance(value, dict) else {f"{within}{name}": value}
    return found
