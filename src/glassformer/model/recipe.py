"""The `[model]` section of a recipe: a few flat settings that make both stacks of a model alike."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from glassformer.foundation.errors import ConfigError
from glassformer.foundation.order import RelativeConfig, RotaryConfig
from glassformer.foundation.typed import check_types
from glassformer.model.config import ModelConfig, StackConfig
from glassformer.model.outputs import Classify, Lm, check_dropout

LOOK_BACK = ("sinks", "stride", "block", "summary")
"""Settings of causal attention, which the encoder of an encoder-decoder leaves to the decoder."""
DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(StackConfig)}
READ_BY = {
    "encoder_layers": ("encoder-decoder", "encoder", "masked", "label"),
    "decoder_layers": ("encoder-decoder", "decoder"),
    "pooling": ("label",),
    "head_dropout": ("label",),
}
"""Settings that not every layout reads, and those that do."""


def unread(layout: str) -> list[str]:
    """The settings that a layout has no use for."""
    return [name for name, layouts in READ_BY.items() if layout not in layouts]


@dataclass(frozen=True)
class ModelRecipe:
    """Settings of `[model]`; both stacks get the same, but for the number of layers and for patterns that look back."""

    d_model: int = 256
    """Width of the residual stream."""
    n_heads: int = 4
    """Attention heads; d_model must be a multiple."""
    n_kv_heads: int | None = None
    """Key/value heads (grouped-query attention); none: as many as n_heads."""
    n_layers: int = 3
    """Blocks in each stack."""
    encoder_layers: int | None = None
    """Blocks in the encoder, where it is to differ from n_layers."""
    decoder_layers: int | None = None
    """Blocks in the decoder, where it is to differ from n_layers."""
    d_ff: int = 1024
    """Inner width of the feed-forward branch."""
    dropout: float = 0.1
    """Chance to drop a number of the embedding and of the output of each branch."""
    attention_dropout: float = 0.0
    """Chance to drop an attention weight; above 0 it leaves the fused kernel."""
    feed_forward_dropout: float = 0.0
    """Chance to drop a number between the two maps of the feed-forward; the paper has none there."""
    token_dropout: float = 0.0
    """Chance to drop a whole token, whose embedding is then zero."""
    norm: str = "layer"
    """Normalisation: layer, rms or none."""
    norm_placement: str = "pre"
    """Where the norm stands: pre (before the branch), post (after the sum), output (after the branch) or sandwich."""
    qk_norm: str = "none"
    """Norm of each head's queries and keys: none, rms or layer."""
    residual_scale: float = 1.0
    """What multiplies x where a branch is added to it; deepnorm has its own."""
    deepnorm: bool = False
    """DeepNorm: a scaled residual and smaller first weights, for deep post-norm stacks."""
    stochastic_depth: float = 0.0
    """Chance that a sequence skips a branch of the last block; falls linearly to the first."""
    activation: str = "relu"
    """Of the feed-forward branch: relu, gelu, gelu_tanh, silu, relu_squared, sigmoid or identity."""
    feed_forward: str = "plain"
    """The feed-forward branch: plain, gated (SwiGLU with silu) or experts."""
    n_experts: int | None = None
    """Experts in each branch of feed_forward experts, each d_ff wide."""
    experts_per_token: int = 2
    """Experts that each token is sent to."""
    expert: str = "plain"
    """What one expert is: plain or gated."""
    balance_loss: float = 0.01
    """Weight of the loss that keeps experts evenly loaded."""
    router_z_loss: float = 0.0
    """Weight of the loss that keeps the router's logits small."""
    positions: str = "sinusoidal"
    """How order enters: sinusoidal, sinusoidal_halves, learned, rotary, alibi, t5, shaw or none."""
    embedding_norm: bool = False
    """A norm behind the embedding and its positions, before the first block, as in BERT and BART."""
    rotary_base: float = 10000.0
    """Rotary positions: pair i turns by base^(-2i/width) a token."""
    rotary_scaling: str = "none"
    """Rotary positions for longer texts than trained on: none, linear, ntk, yarn or llama3."""
    rotary_factor: float | None = None
    """How many times longer; every rotary scaling needs it."""
    rotary_original_max_len: int | None = None
    """Length of the training before, in tokens; yarn and llama3 need it."""
    relative_clip_distance: int = 16
    """Shaw's relative positions: tokens farther away count as this far."""
    max_len: int | None = None
    """Longest sequence accepted, in tokens; none: any (learned positions need a number)."""
    tie_embeddings: bool = True
    """One matrix for the target embedding and the head."""
    share_embeddings: bool = True
    """One matrix for both embeddings, where source and target share a vocabulary."""
    scale_embeddings: bool = True
    """Embeddings times sqrt(d_model), as in the paper."""
    scale_head: bool = False
    """A tied head reads its vectors over sqrt(d_model), as in T5."""
    head_transform: str | None = None
    """Activation of a dense map and a norm before a head over tokens, as in BERT; none: no such map."""
    pooling: str = "mean"
    """How a classifier makes one vector of a text: first (that of the token <bos>), mean or attention."""
    head_dropout: float = 0.0
    """Chance to drop a number of that vector."""
    init: str = "xavier"
    """Initialisation table: xavier or normal."""
    attention_rule: str = "softmax"
    """What attention computes: softmax, softmax_plus_one, sigmoid, softcap or linear."""
    attention: str = "auto"
    """Attention backend: auto, reference, matmul, sdpa, sparse or flex; linear has auto, reference and sums."""
    attention_scale: float | None = None
    """What multiplies the scores; none: 1/sqrt(head width). T5 has 1.0."""
    softcap: float = 50.0
    """What scores are kept within under attention_rule softcap."""
    window: int | None = None
    """Keys that a query reads up to its own, and as many after it in an encoder; none: all."""
    dilation: int = 1
    """Positions from one key of the window to the next."""
    global_tokens: int = 0
    """First tokens that read everything and are read by all, beside a window."""
    sinks: int = 0
    """First keys that stay readable beside the window of a decoder."""
    stride: int | None = None
    """Keys that a decoder's query reads, and before them each stride-th; none: all."""
    block: int | None = None
    """Length of the blocks a decoder's query reads one of, and the summary of the others; none: all."""
    summary: int = 1
    """Last keys of a block that later blocks read."""

    def __post_init__(self) -> None:
        check_types(self, "model")
        check_dropout(self.head_dropout, "model.head_dropout")
        for name in ("encoder_layers", "decoder_layers"):
            if self._layers(name) < 1 and getattr(self, name) is not None:
                raise ConfigError(
                    f"model.{name} must be at least 1; got {getattr(self, name)}. Leave it out for as many as "
                    f"model.n_layers, or try model.{name}=1."
                )

    def build(
        self, layout: str, vocab_size: int, source_vocab_size: int | None = None, n_labels: int | None = None
    ) -> ModelConfig:
        """The model for a data layout, its vocabularies and its labels.

        "decoder" is a causal stack alone; "encoder", "masked" and "label" are one that reads both ways.
        """
        self._check_use(layout)
        shared_names = {each.name for each in fields(self)} & {each.name for each in fields(StackConfig)} - {"n_layers"}
        both: dict[str, Any] = {name: getattr(self, name) for name in shared_names} | self._order()
        two, writes = layout == "encoder-decoder", layout in ("encoder-decoder", "decoder")
        of_encoder = both | {name: DEFAULTS[name] for name in LOOK_BACK} if two else both
        encoder = StackConfig(n_layers=self._layers("encoder_layers"), **of_encoder) if two or not writes else None
        decoder = StackConfig(n_layers=self._layers("decoder_layers"), causal=True, **both) if writes else None
        return ModelConfig(
            vocab_size=vocab_size,
            encoder=encoder,
            decoder=decoder,
            source_vocab_size=source_vocab_size,
            tie_embeddings=self.tie_embeddings,
            share_embeddings=self.share_embeddings,
            scale_embeddings=self.scale_embeddings,
            scale_head=self.scale_head,
            init=self.init,
            deepnorm=self.deepnorm,
            head=self._head(n_labels),
        )

    def _check_use(self, layout: str) -> None:
        """A setting of a stack or a head that the layout does not have would be ignored in silence."""
        for name in unread(layout):
            if getattr(self, name) != getattr(type(self), name):
                layouts = " or ".join(map(repr, READ_BY[name]))
                raise ConfigError(
                    f"model.{name} belongs to data.layout={layouts}; got model.{name}={getattr(self, name)!r} with "
                    f"data.layout={layout!r}, which has no use for it. Leave it out."
                )

    def _head(self, n_labels: int | None) -> Lm | Classify:
        if n_labels is None:
            return Lm(self.head_transform)
        if self.head_transform is not None:
            raise ConfigError(
                f"model.head_transform belongs to a head over tokens; a classifier pools its vectors. Got "
                f"{self.head_transform!r}. Leave it out."
            )
        return Classify(n_labels, self.pooling, self.head_dropout)

    def _layers(self, name: str) -> int:
        """Blocks of the stack that has a number of its own by that name."""
        own: int | None = getattr(self, name)
        return self.n_layers if own is None else own

    def _order(self) -> dict[str, RotaryConfig | RelativeConfig]:
        """Settings of the position schemes, which stacks hold in values of their own."""
        rotary = RotaryConfig(
            base=self.rotary_base,
            scaling=self.rotary_scaling,
            factor=self.rotary_factor,
            original_max_len=self.rotary_original_max_len,
        )
        return {"rotary": rotary, "relative": RelativeConfig(clip_distance=self.relative_clip_distance)}
