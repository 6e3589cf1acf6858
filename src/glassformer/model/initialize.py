"""Initialisation: a table of laws by role, on one screen.

    role                            xavier                          normal
    ------------------------------  ------------------------------  -----------------------------------
    embedding, learned positions    N(0, 1/sqrt(D))                 N(0, 0.02)
    map of features, of I numbers   N(0, 1/sqrt(I))                 N(0, 1/sqrt(I))
    query key value up              uniform, variance 2/(in + out)  N(0, 0.02)
    output down                     uniform, variance 2/(in + out)  N(0, 0.02/sqrt(branches in stack))
    head of its own                 N(0, 0.1/sqrt(D))               N(0, 0.1/sqrt(D))
    biases, query of a pooling      0                               0
    norms                           weight 1, bias 0                weight 1, bias 0
    the norm that a tied head       weight 1/(D sd), at most 1,     weight 1/(D sd), at most 1,
    reads                           where sd is the embedding's     where sd is the embedding's

Written N(mean, standard deviation). The xavier column follows Glorot and Bengio 2010, equation 16, the normal one
Radford et al. 2019, section 2.3. The last row and the head's keep the first loss at ln V: a tied head scores the
token just read against itself, and under a norm of weight 1 that score alone would be of the order of sqrt(D).
Where the head reads no norm at all (pre-norm with `final_norm=False`), nothing does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from glassformer.foundation.registry import lookup
from glassformer.model.config import ModelConfig
from glassformer.model.heads import AnyHead
from glassformer.model.outputs import Lm
from glassformer.model.stack import Stack
from glassformer.parts import Block, FeatureMap


@dataclass(frozen=True)
class Laws:
    """One column of the table."""

    embedding: Callable[[int], float]
    """Standard deviation from d_model."""
    linear: Callable[[Tensor], object]
    """Fills the weight of a linear map."""
    writer: Callable[[Tensor, int], object]
    """Fills the weight of a map that writes to the residual stream, given the number of branches in the stack."""


INITS: dict[str, Laws] = {
    "xavier": Laws(
        embedding=lambda d_model: d_model**-0.5,
        linear=nn.init.xavier_uniform_,
        writer=lambda weight, branches: nn.init.xavier_uniform_(weight),
    ),
    "normal": Laws(
        embedding=lambda d_model: 0.02,
        linear=lambda weight: nn.init.normal_(weight, std=0.02),
        writer=lambda weight, branches: nn.init.normal_(weight, std=0.02 / branches**0.5),
    ),
}


def initialize(encoder: Stack | None, decoder: Stack | None, head: AnyHead, config: ModelConfig) -> None:
    """Fills every parameter of a new model by the table's column `config.init`."""
    laws = lookup(INITS, config.init, "init")
    for stack in (encoder, decoder):
        if stack is not None:
            _fill_stack(stack, laws)
    D = config.stack.d_model
    if not (config.tie_embeddings and isinstance(config.head, Lm)):
        nn.init.normal_(head.weight, std=0.1 / D**0.5)
        return
    reader = decoder if decoder is not None else encoder
    weight = None if reader is None else getattr(reader.last_norm, "weight", None)
    if weight is not None:
        nn.init.constant_(weight, min(1.0, 1.0 / (D * laws.embedding(D))))


def _fill_stack(stack: Stack, laws: Laws) -> None:
    sd = laws.embedding(stack.config.d_model)
    features = isinstance(stack.embedding, FeatureMap)  # whose vectors begin with the variance of what is read
    nn.init.normal_(stack.embedding.weight, std=stack.embedding.weight.shape[1] ** -0.5 if features else sd)
    for parameter in stack.positions.parameters():
        nn.init.normal_(parameter, std=sd)
    for block in stack.blocks:
        assert isinstance(block, Block)
        writers = block.writers
        for module in block.modules():
            if isinstance(module, nn.Linear):
                if any(module is writer for writer in writers):
                    laws.writer(module.weight, len(writers) * len(stack.blocks))
                else:
                    laws.linear(module.weight)
                if (bias := getattr(module, "bias", None)) is not None:
                    nn.init.zeros_(bias)
