"""Check whether a run's model can be scored on other data than the run's own. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glassformer.data.config import EQUAL_LENGTHS, PAIRS, TEXT, DataConfig
from glassformer.foundation.errors import CheckpointError, ConfigError


def refuse_unscorable(own: DataConfig, asked: DataConfig) -> None:
    """Refuse data that a model of a run with data `own` cannot answer; files may replace a task's pairs.

    Lengths, sizes, windows and files may differ. Errors: `ConfigError` for another layout, task or objective, and for
    more symbols.
    """
    if asked.layout != own.layout:
        raise ConfigError(
            f"A model answers only in the layout that it was trained with, data.layout={own.layout!r}; got "
            f"{asked.layout!r}. Remove data.layout."
        )
    known = (own.task,) if TEXT in (own.task, asked.task) else (own.task, PAIRS)
    if asked.task not in known:
        raise ConfigError(
            f"A model can be scored only on what it was trained to do, data.task={own.task!r}; got {asked.task!r}. "
            f"Remove data.task, or train on {asked.task!r}."
        )
    if asked.objective != own.objective:
        raise ConfigError(
            f"A model can be scored only on what it was trained to do, data.objective={own.objective!r}; got "
            f"{asked.objective!r}. Remove data.objective."
        )
    if own.task == asked.task and own.task in EQUAL_LENGTHS and asked.symbols > own.symbols:
        raise ConfigError(
            f"This model was trained with data.symbols={own.symbols}; got {asked.symbols}, and it would read the "
            f"additional symbols as <unk>. Remove data.symbols, or give at most {own.symbols}."
        )


def refuse_other_cut(run: Path, asked: DataConfig, state: Mapping[str, Any], dev: str) -> None:
    """Refuse a dev split, with digest `dev`, that is not the one held out when the checkpoint of `state` was trained.

    What is held out now may be what the model has learned from. Errors: `CheckpointError`.
    """
    before = state.get("data", {}).get("dev", dev)  # weights from elsewhere have none
    if asked.task != TEXT or asked.dev_text is not None or before == dev:
        return
    changed = [
        f"data.{name} is {getattr(asked, name)} and was {was}"
        for name in ("dev_share", "dev_text", "field", "skip_empty")
        if (was := state.get("recipe", {}).get(f"data.{name}", getattr(asked, name))) != getattr(asked, name)
    ]
    why = "; ".join(changed) or f"the contents of {asked.text or 'the text that ships with Python'} have changed"
    back = "Use the settings of the training" if changed else "Restore the old file"
    raise CheckpointError(
        f"The dev split of {run} is the end of its training text, and must be the part that was held out in training; "
        f"{why}, so that the model may have been trained on it. {back}, or score another text: glassformer evaluate "
        f"{run} --data.text FILE."
    )
