"""Whether the model of a run can be scored on other data than the run's own. Imports no torch."""

from __future__ import annotations

from glassformer.data.config import EQUAL_LENGTHS, PAIRS, TEXT, DataConfig
from glassformer.foundation.errors import ConfigError


def refuse_unscorable(own: DataConfig, asked: DataConfig) -> None:
    """Refuse data that a model of a run with the data `own` cannot answer; files in place of a task's pairs it may.

    Lengths, sizes, windows and files may differ. Errors: `ConfigError` for another layout, another task or objective,
    and more symbols.
    """
    if asked.layout != own.layout:
        raise ConfigError(
            f"A model reads and answers in the layout that it was trained in, data.layout={own.layout!r}; got "
            f"{asked.layout!r}. Leave data.layout out."
        )
    known = (own.task,) if TEXT in (own.task, asked.task) else (own.task, PAIRS)
    if asked.task not in known:
        raise ConfigError(
            f"A model is scored on what it was trained to do, data.task={own.task!r}; got {asked.task!r}, to which it "
            f"knows no answer. Leave data.task out, or train on {asked.task!r}."
        )
    if asked.objective != own.objective:
        raise ConfigError(
            f"A model is scored on what it was trained to do, data.objective={own.objective!r}; got "
            f"{asked.objective!r}. Leave data.objective out."
        )
    if own.task == asked.task and own.task in EQUAL_LENGTHS and asked.symbols > own.symbols:
        raise ConfigError(
            f"The vocabulary of this model has the data.symbols={own.symbols} that it was trained with; got "
            f"{asked.symbols}, of which it would read <unk>. Leave data.symbols out, or give {own.symbols} at most."
        )
