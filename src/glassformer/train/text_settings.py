"""Checks which settings cannot be combined in a run on running text. Imports no torch."""

from __future__ import annotations

import math

from glassformer.data.config import TEXT, DataConfig, TokenizerConfig
from glassformer.data.corrupt.lengths import longest
from glassformer.foundation.errors import ConfigError
from glassformer.model.recipe import ModelRecipe
from glassformer.train.settings import TrainingConfig


def check_text(data: DataConfig, tokenizer: TokenizerConfig, model: ModelRecipe, training: TrainingConfig) -> None:
    """Refuse settings that do not fit running text. Errors: `ConfigError` naming the setting and the way out."""
    metrics = ("loss", "token_accuracy") if data.objective == "masked" else ("loss",)
    if training.metric not in metrics:
        raise ConfigError(
            f"Of data.task={TEXT!r} with data.objective={data.objective!r} the best checkpoint is best by "
            f"{' or '.join(metrics)}; got training.metric={training.metric!r}. Try training.metric='loss'."
        )
    if not tokenizer.shared or tokenizer.source_kind is not None:
        name, value = ("shared", "False") if not tokenizer.shared else ("source_kind", repr(tokenizer.source_kind))
        raise ConfigError(
            f"Running text has one side and so one vocabulary; got tokenizer.{name}={value}. Leave it out."
        )
    if training.pool is not None:
        raise ConfigError(
            f"training.pool sorts samples by length, and windows have one length; got {training.pool}. Leave it out."
        )
    if data.order == "sequential" and training.growth.steps:
        raise ConfigError(
            "data.order='sequential' reads each token once an epoch, and a warm-up of batch or length would leave some "
            f"out; got {training.growth.steps} steps of it. Take data.order='random', or leave the warm-up out."
        )
    if data.stride is not None and data.objective != "next_token":
        raise ConfigError(
            f"data.stride belongs to data.objective='next_token', whose evaluation scores every token; got "
            f"data.stride={data.stride} with data.objective={data.objective!r}. Leave it out."
        )
    if training.batch_tokens < (least := places(data)):
        raise ConfigError(
            f"A batch holds at least one window of data.window={data.window} tokens, {least} places with all that "
            f"data.objective={data.objective!r} makes of it; got training.batch_tokens={training.batch_tokens}. Set "
            f"it to at least {least}, or take a shorter window."
        )
    check_length(data, model)


def check_length(data: DataConfig, model: ModelRecipe, specials: int = 0) -> None:
    """Refuse a model whose `max_len` is below the longest window, of whose tokens up to `specials` are special."""
    most = longest(data.objective, data.window, data.mask_share, data.mean_span, specials)
    if model.max_len is not None and model.max_len < most:
        makes = f", of which data.objective={data.objective!r} makes up to {most}" if most > data.window else ""
        raise ConfigError(
            f"A window is read at once, and the model takes model.max_len={model.max_len} tokens; got data.window="
            f"{data.window}{makes}. Set model.max_len to at least {most}, or take a shorter window."
        )


def places(data: DataConfig) -> int:
    """About how many tokens a window takes up in a batch, source and target together."""
    if data.layout != "encoder-decoder":
        return data.window
    spans = math.ceil(data.mask_share * data.window / data.mean_span)
    hidden = round(data.mask_share * data.window)
    target = data.window if data.objective == "noise" else hidden + spans
    return data.window - hidden + spans + 1 + target + 2
