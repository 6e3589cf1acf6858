"""The classic settings: those of Vaswani et al. 2017, in place of what a recipe has from later papers.

Every setting of [model] has its default, except sizes, dropout and what a task needs (`KEPT`), and so has every setting
of [optimizer] and what the learning rate depends on. That is: sinusoidal positions, LayerNorm, ReLU, embeddings that
are tied and scaled, Xavier's initial weights, Adam, and a learning rate that falls with the inverse square root of the
step. One thing is as in later models: the norm is before the branch (Xiong et al. 2020). Imports no torch.
"""

from __future__ import annotations

from dataclasses import fields

from glassformer.nn.recipe import ModelRecipe
from glassformer.train.optim.optimizer_config import OptimizerConfig
from glassformer.train.recipe import Recipe, override
from glassformer.train.settings import TrainingConfig

KEPT = (
    *("d_model", "n_heads", "d_head", "n_layers", "encoder_layers", "decoder_layers", "d_ff", "max_len"),
    *("dropout", "attention_dropout", "feed_forward_dropout", "token_dropout", "head_dropout"),
    *("pooling", "silent", "share_embeddings", "attention"),
)
"""Settings of [model] that a classic recipe keeps."""
RATE = ("learning_rate", "schedule", "warmup", "min_learning_rate", "cooldown")
"""Settings of [training] that a classic recipe does not keep."""


def classic(recipe: Recipe) -> Recipe:
    """The recipe with the classic settings; its data, sizes, steps, dropout and decoding stay."""
    usual = {
        **{f"model.{each.name}": each.default for each in fields(ModelRecipe) if each.name not in KEPT},
        **{f"training.{each.name}": each.default for each in fields(TrainingConfig) if each.name in RATE},
        **{f"optimizer.{each.name}": each.default for each in fields(OptimizerConfig)},
    }
    return override(recipe, usual)
