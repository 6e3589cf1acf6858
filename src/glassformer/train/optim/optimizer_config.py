"""The settings of the optimizer: a frozen value, checked when made. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from glassformer.base.contradictions import OPTIMIZER, refuse
from glassformer.base.settings import check, setting

OPTIMIZERS = ("adamw", "muon", "adafactor")
"""The optimizers by name."""
LEAST_FLOAT32 = 1.1754943508222875e-38


@dataclass(frozen=True)
class OptimizerConfig:
    """Settings of `[optimizer]`: how a gradient becomes a change of the weights."""

    name: str = setting("adamw", known=OPTIMIZERS)
    """adamw; muon (for hidden matrices, of blocks and of a head's dense layer; AdamW for the rest); adafactor (little
    memory)."""
    beta1: float = setting(0.9, 0, below=1, advice="0.9")
    """AdamW, also within muon: decay rate of the mean gradient."""
    beta2: float = setting(0.98, 0, below=1, advice="0.98")
    """AdamW, also within muon: decay rate of the mean squared gradient."""
    epsilon: float = setting(1e-9, LEAST_FLOAT32, why=", as float32 rounds a smaller one to 0", advice="1e-9")
    """AdamW, also within muon: added to the denominator."""
    momentum: float = setting(0.95, 0, below=1, advice="0.95")
    """Muon: momentum, the decay rate of the average gradient."""
    adamw_scale: float = setting(1.0, above=0, most=10**6, advice="1, which gives all weights the same rate")
    """Muon: learning rate of the weights that it leaves to AdamW (embeddings, scores, norms, biases, convolutions), as
    a multiple of training.learning_rate."""
    weight_decay: float = setting(0.0, 0)
    """Decoupled weight decay, of hidden matrices only (of the blocks, and a head's dense layer), times the learning
    rate."""
    layer_decay: float = setting(1.0, above=0, most=1, why=", which gives all layers the same rate", advice="0.8")
    """Layer-wise learning rate decay: rate of a block as a share of the rate of the block above it; the head has the
    full rate."""
    average: float = setting(0.0, 0, below=1, advice="0.99")
    """Exponential moving average (EMA) of the weights, with this decay (try 0.99), evaluated and saved; 0: off."""

    def __post_init__(self) -> None:
        check(self, "optimizer")
        refuse(self, OPTIMIZER, "optimizer")
