"""Checks which settings cannot be combined in a run on trajectories. Imports no torch."""

from __future__ import annotations

from dataclasses import fields

from glassformer.base.errors import ConfigError
from glassformer.data.config import TRAJECTORIES, DataConfig, TokenizerConfig
from glassformer.data.trajectories.settings import PLACES
from glassformer.nn.recipe import ModelRecipe
from glassformer.train.settings import TrainingConfig


def check_trajectories(
    data: DataConfig, tokenizer: TokenizerConfig, model: ModelRecipe, training: TrainingConfig
) -> None:
    """Refuse settings that do not fit trajectories. Errors: `ConfigError` naming the setting and the way out."""
    least = PLACES * data.window
    for each in fields(TokenizerConfig):
        if (value := getattr(tokenizer, each.name)) != each.default:
            raise ConfigError(
                f"Episodes are numbers and have no tokens; got tokenizer.{each.name}={value!r} with "
                f"data.task={TRAJECTORIES!r}, which does not use it. Remove tokenizer.{each.name}."
            )
    if training.metric != "loss":
        raise ConfigError(
            f"With data.task={TRAJECTORIES!r}, training.metric must be loss; got {training.metric!r}. Try "
            "training.metric='loss'."
        )
    if training.pool is not None or training.growth.length_steps:
        name, value = (
            ("pool", training.pool) if training.pool is not None else ("length_warmup", training.length_warmup)
        )
        raise ConfigError(
            f"Windows of episodes are drawn one by one, whatever their length; got training.{name}={value}. Remove "
            f"training.{name}."
        )
    if training.batch_tokens < least:
        raise ConfigError(
            f"A batch must have room for one window, which takes {least} places with data.window={data.window} (each "
            f"step takes {PLACES}: return-to-go, observation and action); got training.batch_tokens="
            f"{training.batch_tokens}. Set it to at least {least}, or use a shorter window."
        )
    if model.max_len is not None and model.max_len < least:
        raise ConfigError(
            f"A model must be able to read a whole window, which takes {least} places with data.window={data.window}; "
            f"got model.max_len={model.max_len}. Set model.max_len to at least {least}, or use a shorter window."
        )
