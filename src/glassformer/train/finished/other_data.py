"""Check whether a run's model can be scored on other data than the run's own. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glassformer.base.errors import CheckpointError, ConfigError
from glassformer.data.config import DataConfig
from glassformer.train.tasks import task_of


def refuse_unscorable(own: DataConfig, asked: DataConfig) -> None:
    """Refuse data that a model of a run with data `own` cannot answer; files may replace a task's pairs.

    Lengths, sizes, windows and files may differ. Errors: `ConfigError` for another layout, task, objective, discount or
    environment, and for more symbols.
    """
    if asked.layout != own.layout:
        raise ConfigError(
            f"A model answers only in the layout that it was trained with, data.layout={own.layout!r}; got "
            f"{asked.layout!r}. Remove data.layout."
        )
    if not task_of(own).scores(asked):
        raise ConfigError(
            f"A model can be scored only on what it was trained to do, data.task={own.task!r}; got {asked.task!r}. "
            f"Remove data.task, or train on {asked.task!r}."
        )
    for name in ("objective", "discount", "environment"):
        before, now = getattr(own, name), getattr(asked, name)
        if now != before:
            raise ConfigError(
                f"A model can be scored only on what it was trained to do, data.{name}={before!r}; got {now!r}. "
                f"Remove data.{name}."
            )
    if own.task == asked.task and asked.symbols > own.symbols:
        raise ConfigError(
            f"This model was trained with data.symbols={own.symbols}; got {asked.symbols}, and it would read the "
            f"additional symbols as <unk>. Remove data.symbols, or give at most {own.symbols}."
        )


def refuse_other_cut(run: Path, asked: DataConfig, state: Mapping[str, Any], dev: str) -> None:
    """Refuse a dev split, with digest `dev`, that is not the one held out when the checkpoint of `state` was trained.

    What is held out now may be what the model has learned from. Errors: `CheckpointError`.
    """
    before = state.get("data", {}).get("dev", dev)  # weights from elsewhere have none
    cut = task_of(asked).cut
    if cut is None or getattr(asked, cut.dev) is not None or before == dev:
        return
    whole: str | None = getattr(asked, cut.whole)
    if whole is None and cut.made is None:
        return
    changed = [
        f"data.{name} is {getattr(asked, name)} and was {was}"
        for name in cut.settings
        if (was := state.get("recipe", {}).get(f"data.{name}", getattr(asked, name))) != getattr(asked, name)
    ]
    why = "; ".join(changed) or f"the contents of {whole or cut.made} have changed"
    back = "Use the settings of the training" if changed else "Restore the old file"
    raise CheckpointError(
        f"The dev split of {run} is the end of its training {cut.what}, and must be the part that was held out in "
        f"training; {why}, so that the model may have been trained on it. {back}, or score another {cut.what}: "
        f"glassformer evaluate {run} --data.{cut.other} FILE."
    )
