"""Whether each arm of a study has a model that can be made, seen before the first of them is trained."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from glassformer.data.config import LABEL
from glassformer.foundation.errors import ConfigError
from glassformer.foundation.runtime import choose_device
from glassformer.model.transformer import Transformer
from glassformer.study.grid import Arm, combination

ANY_VOCABULARY = 8
"""Its size is known once the data are read, and decides nothing here."""


def refuse_impossible_models(arms: Sequence[Arm]) -> None:
    """Make the model of each combination, in shapes alone. Errors: `ConfigError` naming the combination."""
    for arm in {combination(arm.values): arm for arm in arms}.values():
        layout = arm.recipe.data.layout
        try:
            config = arm.recipe.model.build(layout, ANY_VOCABULARY, n_labels=2 if layout == LABEL else None)
            with torch.device("meta"):
                Transformer(config)
        except ConfigError as error:
            raise ConfigError(f"{combination(arm.values)}: {error} Nothing was trained.") from None


def on_accelerator(arms: Sequence[Arm]) -> bool:
    """Whether some of them would be trained on an accelerator, which side by side they would share."""
    return any(choose_device(each)[0].type != "cpu" for each in {arm.recipe.training.device for arm in arms})
