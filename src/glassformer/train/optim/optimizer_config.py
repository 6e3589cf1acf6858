"""The settings of the optimizer: a frozen value, checked when made. Imports no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from glassformer.base.bounds import at_least
from glassformer.base.errors import ConfigError
from glassformer.base.registry import lookup
from glassformer.base.typed import check_types

ADAMW = frozenset({"beta1", "beta2", "epsilon"})
MOST_SCALE = 1e6
"""The largest multiple of a learning rate."""
USES = {"adamw": ADAMW, "muon": ADAMW | {"momentum", "adamw_scale"}, "adafactor": frozenset[str]()}
"""The optimizers by name, and the settings that not all of them read."""
OWN = frozenset[str]().union(*USES.values())
LEAST_FLOAT32 = 1.1754943508222875e-38


@dataclass(frozen=True)
class OptimizerConfig:
    """Settings of `[optimizer]`: how a gradient becomes a change of the weights."""

    name: str = "adamw"
    """adamw; muon (for hidden matrices, of blocks and of a head's dense layer; AdamW for the rest); adafactor (little
    memory)."""
    beta1: float = 0.9
    """AdamW, also within muon: decay rate of the mean gradient."""
    beta2: float = 0.98
    """AdamW, also within muon: decay rate of the mean squared gradient."""
    epsilon: float = 1e-9
    """AdamW, also within muon: added to the denominator."""
    momentum: float = 0.95
    """Muon: momentum, the decay rate of the average gradient."""
    adamw_scale: float = 1.0
    """Muon: learning rate of the weights that it leaves to AdamW (embeddings, scores, norms, biases, convolutions), as
    a multiple of training.learning_rate."""
    weight_decay: float = 0.0
    """Decoupled weight decay, of hidden matrices only (of the blocks, and a head's dense layer), times the learning
    rate."""
    layer_decay: float = 1.0
    """Layer-wise learning rate decay: rate of a block as a share of the rate of the block above it; the head has the
    full rate."""
    average: float = 0.0
    """Exponential moving average (EMA) of the weights, with this decay (try 0.99), evaluated and saved; 0: off."""

    def __post_init__(self) -> None:
        check_types(self, "optimizer")
        at_least(self, "optimizer", 0, "weight_decay")
        if 0.0 < self.epsilon < LEAST_FLOAT32:
            raise ConfigError(
                f"optimizer.epsilon must be at least {LEAST_FLOAT32}, as float32 rounds a smaller one to 0; got "
                f"{self.epsilon}. Try epsilon=1e-9."
            )
        if not 0.0 < self.epsilon < math.inf:
            raise ConfigError(f"optimizer.epsilon must be above 0 and finite; got {self.epsilon}. Try 1e-9.")
        for name in ("beta1", "beta2", "momentum", "average"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ConfigError(
                    f"optimizer.{name} must be at least 0 and below 1; got {getattr(self, name)}. Try 0.9."
                )
        if not 0.0 < self.adamw_scale <= MOST_SCALE:
            raise ConfigError(
                f"optimizer.adamw_scale must be above 0 and at most {MOST_SCALE:g}; got {self.adamw_scale}. "
                "Try 1, which gives all weights the same rate."
            )
        if not 0.0 < self.layer_decay <= 1.0:
            raise ConfigError(
                "optimizer.layer_decay must be above 0 and at most 1, which gives all layers the same rate; got "
                f"{self.layer_decay}. Try layer_decay=0.8."
            )
        lookup(USES, self.name, "optimizer.name")
        for name in sorted(OWN - USES[self.name]):
            if getattr(self, name) != getattr(type(self), name):
                users = " and ".join(each for each, settings in USES.items() if name in settings)
                raise ConfigError(
                    f"optimizer.{name} belongs to {users}; got {getattr(self, name)} with "
                    f"optimizer.name={self.name!r}, which does not use it. Remove optimizer.{name}."
                )
