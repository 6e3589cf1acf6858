"""Checking that the model of each arm can be built, before the first arm is trained."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from glassformer.base.errors import ConfigError
from glassformer.base.runtime import choose_device
from glassformer.nn.transformer import Transformer
from glassformer.study.grid import Arm, combination
from glassformer.train.tasks import task_of


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
