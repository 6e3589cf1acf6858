"""The classic settings: those of Vaswani et al. 2017, in place of what recipes have from later papers.

They are what each setting is by default: sinusoidal positions, layer norm, ReLU, embeddings that are tied and scaled,
Xavier's initial weights, AdamW, and a learning rate that falls with the inverse square root of the step. One thing is
as in later models: the norm is before the branch (Xiong et al. 2020), as every recipe has it. Imports no torch.
"""

from __future__ import annotations

from glassformer.model.recipe import ModelRecipe
from glassformer.train.optim.optimizer_config import OptimizerConfig
from glassformer.train.recipe import Recipe, override
from glassformer.train.settings import TrainingConfig

CLASSIC: dict[str, tuple[object, tuple[str, ...]]] = {
    "model": (
        ModelRecipe(),
        ("norm", "qk_norm", "activation", "positions", "convolution", "init", "tie_embeddings", "scale_embeddings"),
    ),
    "training": (TrainingConfig(), ("learning_rate", "schedule", "warmup")),
    "optimizer": (OptimizerConfig(), ("name", "momentum", "weight_decay", "average")),
}
"""By section: its default values, and the settings that take them."""


def classic(recipe: Recipe) -> Recipe:
    """The recipe with the classic settings; its data, sizes, steps, dropout and decoding stay."""
    return override(
        recipe,
        {f"{section}.{name}": getattr(usual, name) for section, (usual, names) in CLASSIC.items() for name in names},
    )
