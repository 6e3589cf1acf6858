"""Initialisation of all weights, by the role of each; the whole scheme is in this table.

    role                            xavier                          normal
    ------------------------------  ------------------------------  -----------------------------------
    embedding, learned positions,   N(0, 1/sqrt(D))                 N(0, 0.02)
    segments
    map of I input features         N(0, 1/sqrt(I))                 N(0, 1/sqrt(I))
    T5's buckets                    N(0, 1/sqrt(D))                 N(0, 0.02)
    query key                       uniform, variance 2/(in + out)  N(0, 0.02)
    query with an attention_scale   the same, times 1/(attention_scale sqrt(K)), at most 1
    Shaw's keys and values          uniform, variance 2/(in + out)  N(0, 0.02)
    dense layer of a head           uniform, variance 2/(in + out)  N(0, 0.02)
    value up gate                   the same, times beta            N(0, 0.02)
    output down                     the same, times beta            N(0, 0.02/sqrt(branches in stack))
    router                          N(0, 0.1/sqrt(D))               N(0, 0.1/sqrt(D))
    untied head                     N(0, 0.1/sqrt(D))               N(0, 0.1/sqrt(D))
    biases, query of a pooling,     0                               0
    convolution
    norms                           weight 1, bias 0                weight 1, bias 0
    the norm that a tied head       weight 1/(D sd), at most 1,     weight 1/(D sd), at most 1,
    reads                           where sd is the embedding's     where sd is the embedding's
                                    times the head's scale          times the head's scale
    head (or embedding tied to it)  N(0, 0.1/sqrt(D branches)), at  N(0, 0.1/sqrt(D branches)), at
    that reads no norm              most the first row's            most the first row's

N(mean, standard deviation) is a normal distribution. The xavier column follows Glorot and Bengio 2010, equation 16; the
normal column follows Radford et al. 2019, section 2.3. A third column, zero, is the normal one but for output and down,
which are 0: at first no branch adds anything to the stream (Zhang, Dauphin and Ma 2019, section 3). What is inside a
branch then learns from the second step on; in an encoder that a decoder reads, from the third. beta is DeepNorm's gain
(`nn/config.py`), or 1 without DeepNorm. In a stack without norms, the xavier column too divides output and down by
sqrt(branches); otherwise its stream would grow with each branch. The router starts small, so that all experts are about
equally likely (Fedus et al. 2022, section 2.4).

The rows for heads, and for the norm that a tied head reads, keep the initial loss at ln V. A tied head scores the token
just read against itself, and after a norm of weight 1 that score alone would be of the order of sqrt(D). Without a
norm, every branch of the stack adds to what the head reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from glassformer.base.registry import lookup
from glassformer.nn.block import Block
from glassformer.nn.config import ModelConfig
from glassformer.nn.embedding import FeatureMap
from glassformer.nn.heads import AnyHead, Head
from glassformer.nn.outputs import Lm
from glassformer.nn.positions import Relation
from glassformer.nn.stack import Stack


@dataclass(frozen=True)
class Laws:
    """One column of the table."""

    embedding: Callable[[int], float]
    """Standard deviation, from d_model."""
    linear: Callable[[Tensor], object]
    """Fills the weight of a linear map."""
    writer: Callable[[Tensor, int, bool], object]
    """Fills the weight of a map that writes to the residual stream; takes the number of branches in the stack and
    whether the stack has norms."""


HEAD = 0.1
"""Standard deviation of the initial logits of a head or router that reads normalised vectors."""


NORMAL = Laws(
    embedding=lambda d_model: 0.02,
    linear=lambda weight: nn.init.normal_(weight, std=0.02),
    writer=lambda weight, branches, normed: nn.init.normal_(weight, std=0.02 / branches**0.5),
)


INITS: dict[str, Laws] = {
    "xavier": Laws(
        embedding=lambda d_model: d_model**-0.5,
        linear=nn.init.xavier_uniform_,
        writer=lambda weight, branches, normed: nn.init.xavier_uniform_(weight, 1.0 if normed else branches**-0.5),
    ),
    "normal": NORMAL,
    "zero": Laws(
        embedding=NORMAL.embedding,
        linear=NORMAL.linear,
        writer=lambda weight, branches, normed: nn.init.zeros_(weight),
    ),
}


def initialize(encoder: Stack | None, decoder: Stack | None, head: AnyHead, config: ModelConfig) -> None:
    """Initialise every parameter of a new model by the column `config.init` of the table.

    On the device `meta` there is nothing to fill, and torch would take a second to find out how.
    """
    laws = lookup(INITS, config.init, "init")
    if head.weight.is_meta:
        return
    for stack, constants in zip((encoder, decoder), config.deepnorm_constants, strict=True):
        if stack is not None:
            _fill_stack(stack, laws, constants.beta if config.deepnorm else 1.0)
    D, reader = config.stack.d_model, decoder if decoder is not None else encoder
    assert reader is not None
    scale, transform = (head.scale, head.transform) if isinstance(head, Head) else (1.0, None)
    if transform is not None:
        laws.linear(transform.dense.weight)
        nn.init.zeros_(transform.dense.bias)
    read = getattr(reader.last_norm if transform is None else transform.norm, "weight", None)
    if read is None:
        nn.init.normal_(head.weight, std=min(laws.embedding(D), HEAD / (D * reader.n_branches) ** 0.5))
    elif not (config.tie_embeddings and isinstance(config.head, Lm)):
        nn.init.normal_(head.weight, std=HEAD / D**0.5)
    else:
        nn.init.constant_(read, min(1.0, 1.0 / (D * laws.embedding(D) * scale)))


def _fill_stack(stack: Stack, laws: Laws, beta: float) -> None:
    config = stack.config
    sd = laws.embedding(config.d_model)
    features = isinstance(stack.embedding, FeatureMap)  # its initial outputs have the variance of its inputs
    nn.init.normal_(stack.embedding.weight, std=stack.embedding.weight.shape[1] ** -0.5 if features else sd)
    for table in (
        *(each for scheme in stack.schemes for each in scheme.parameters()),
        *([] if stack.segments is None else stack.segments.parameters()),
    ):
        nn.init.normal_(table, std=sd)
    for block in stack.blocks:
        assert isinstance(block, Block)
        writers = {id(writer) for writer in block.writers}
        for name, module in block.named_modules():
            if isinstance(module, Relation):
                for parameter in module.parameters():
                    laws.linear(parameter)
            if not isinstance(module, nn.Linear):
                continue
            role = name.rpartition(".")[2]
            if role == "router":
                nn.init.normal_(module.weight, std=HEAD / config.d_model**0.5)
            elif id(module) in writers:
                laws.writer(module.weight, stack.n_branches, config.norm != "none")
            else:
                laws.linear(module.weight)
            if role == "query" and config.attention_scale is not None:
                module.weight.data.mul_(min(1.0, config.head_width**-0.5 / config.attention_scale))
            if role not in ("query", "key", "router"):
                module.weight.data.mul_(beta)
            if (bias := getattr(module, "bias", None)) is not None:
                nn.init.zeros_(bias)
