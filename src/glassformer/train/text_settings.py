"""Checks which settings cannot be combined in a run on running text. Imports no torch."""

from __future__ import annotations

import math

from glassformer.base.errors import ConfigError
from glassformer.data.config import TEXT, DataConfig, TokenizerConfig
from glassformer.data.corrupt.lengths import longest
from glassformer.nn.recipe import ModelRecipe
from glassformer.train.settings import TrainingConfig


def check_text(data: DataConfig, tokenizer: TokenizerConfig, model: ModelRecipe, training: TrainingConfig) -> None:
    """Refuse settings that do not fit running text. Errors: `ConfigError` naming the setting and the way out."""
    metrics = ("loss", "token_accuracy") if data.objective == "masked" else ("loss",)
    if training.metric not in metrics:
        raise ConfigError(
            f"With data.task={TEXT!r} and data.objective={data.objective!r}, training.metric must be "
            f"{' or '.join(metrics)}; got {training.metric!r}. Try training.metric='loss'."
        )
    if not tokenizer.shared or tokenizer.source_kind is not None:
        name, value = ("shared", "False") if not tokenizer.shared else ("source_kind", repr(tokenizer.source_kind))
        raise ConfigError(
            f"Running text needs only one vocabulary; got tokenizer.{name}={value}. Remove tokenizer.{name}."
        )
    if training.pool is not None:
        raise ConfigError(
            "training.pool sorts samples by length, but all windows of running text are equally long; got "
            f"{training.pool}. Remove training.pool."
        )
    if data.order == "sequential" and training.growth.steps:
        raise ConfigError(
            "data.order='sequential' reads each token once per epoch, but a warm-up of batch or length would skip "
            f"some; got {training.growth.steps} steps of it. Set data.order='random', or both warm-ups to 0."
        )
    if data.stride is not None and data.objective != "next_token":
        raise ConfigError(
            "data.stride belongs to data.objective='next_token', whose evaluation scores every token; got "
            f"data.stride={data.stride} with data.objective={data.objective!r}. Remove data.stride."
        )
    if training.batch_tokens < (least := places(data)):
        raise ConfigError(
            f"A batch must have room for one window, which takes {least} places with data.window={data.window} and "
            f"data.objective={data.objective!r}; got training.batch_tokens={training.batch_tokens}. Set it to at least "
            f"{least}, or use a shorter window."
        )
    check_length(data, model)


def check_length(data: DataConfig, model: ModelRecipe, specials: int = 0) -> None:
    """Refuse a model whose `max_len` is below the longest window, of whose tokens up to `specials` are special."""
    most = longest(data.objective, data.window, data.mask_share, data.mean_span, specials)
    if model.max_len is not None and model.max_len < most:
        makes = f", which data.objective={data.objective!r} can turn into {most}" if most > data.window else ""
        raise ConfigError(
            f"A model must be able to read a whole window, but model.max_len={model.max_len}; got "
            f"data.window={data.window}{makes}. Set model.max_len to at least {most}, or use a shorter window."
        )


def places(data: DataConfig) -> int:
    """About how many tokens a window takes up in a batch, source and target together."""
    if data.layout != "encoder-decoder":
        return data.window
    spans = math.ceil(data.mask_share * data.window / data.mean_span)
    hidden = round(data.mask_share * data.window)
    target = data.window if data.objective == "noise" else hidden + spans
    return data.window - hidden + spans + 1 + target + 2
