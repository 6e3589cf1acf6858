"""The `[model]` section of a recipe: a flat list of settings, used for both stacks of a model."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from glassformer.base.errors import ConfigError
from glassformer.base.order import RelativeConfig, RotaryConfig
from glassformer.base.typed import check_types
from glassformer.nn.config import ModelConfig, StackConfig
from glassformer.nn.outputs import Classify, Lm, Output, Regress, Tag, check_dropout

LOOK_BACK = ("sinks", "stride", "block", "summary")
"""Settings of causal attention; in an encoder-decoder only the decoder uses them."""
DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(StackConfig)}
SOME = 8
"""A number of tokens that stands for any."""
READ_TOKENS = ("encoder-decoder", "decoder", "encoder", "masked", "label")
READ_BY = {
    "encoder_layers": ("encoder-decoder", "encoder", "masked", "label"),
    "decoder_layers": ("encoder-decoder", "decoder", "actions"),
    "pooling": ("label",),
    "head_dropout": ("label", "actions"),
    **dict.fromkeys(("head_transform", "tie_embeddings", "scale_embeddings"), READ_TOKENS),
    "silent": ("encoder-decoder", "decoder", "encoder", "masked"),
}
"""Settings that only some layouts use, and those layouts."""


def unread(layout: str) -> list[str]:
    """The settings that a layout does not use."""
    return [name for name, layouts in READ_BY.items() if layout not in layouts]


@dataclass(frozen=True)
class ModelRecipe:
    """Settings of `[model]`. Both stacks get the same, except the number of layers and causal attention patterns."""

    d_model: int = 256
    """Width of the residual stream (hidden size)."""
    n_heads: int = 4
    """Attention heads; must divide d_model."""
    n_kv_heads: int | None = None
    """Key/value heads (grouped-query attention; 1: multi-query); unset: n_heads."""
    d_head: int | None = None
    """Width of a head; unset: d_model / n_heads."""
    n_layers: int = 3
    """Blocks (layers) in each stack."""
    encoder_layers: int | None = None
    """Blocks in the encoder; unset: n_layers."""
    decoder_layers: int | None = None
    """Blocks in the decoder; unset: n_layers."""
    d_ff: int = 1024
    """Hidden width of the feed-forward branch."""
    dropout: float = 0.1
    """Dropout probability, for the embedding and the output of each branch."""
    attention_dropout: float = 0.0
    """Dropout probability of attention weights; above 0 no fused kernel for CPUs can be used."""
    feed_forward_dropout: float = 0.0
    """Dropout probability between the two linear maps of the feed-forward; the paper has none there."""
    token_dropout: float = 0.0
    """Word dropout: probability that the embedding at a place is zeroed, each place by itself."""
    norm: str = "layer"
    """Normalisation: layer (LayerNorm), rms (RMSNorm) or none."""
    norm_eps: float = 1e-5
    """What a norm adds to the variance before its square root."""
    norm_placement: str = "pre"
    """Norm placement: pre (before the branch), post (after the sum), output (after the branch) or sandwich (pre and
    output)."""
    qk_norm: str = "none"
    """QK-norm of a head's queries and keys: none, rms or layer."""
    bias: bool = True
    """Biases in the linear maps of attention and feed-forward; Llama and T5 have none."""
    parallel_branches: bool = False
    """Attention and feed-forward of a block both read its input, as in GPT-J and GPT-NeoX, not one after another."""
    residual_scale: float = 1.0
    """Factor of x in the residual sum x + branch(x); deepnorm uses its own."""
    deepnorm: bool = False
    """DeepNorm: an enlarged residual and smaller initial weights, for deep post-norm stacks."""
    stochastic_depth: float = 0.0
    """Stochastic depth: chance that a sequence skips a branch of the last block, falling linearly towards the first."""
    convolution: int = 1
    """Short causal convolution before attention and feed-forward: tokens that it reads, the own included; 1: none."""
    activation: str = "relu"
    """Activation of the feed-forward: relu, gelu, gelu_tanh, silu, relu_squared, sigmoid or identity."""
    feed_forward: str = "plain"
    """Feed-forward: plain, gated (GLU; with silu: SwiGLU) or experts (mixture of experts, MoE)."""
    n_experts: int | None = None
    """MoE: experts in each feed-forward branch, each d_ff wide."""
    experts_per_token: int = 2
    """MoE: experts that each token is routed to (top-k)."""
    expert: str = "plain"
    """MoE: whether an expert is plain or gated."""
    balance_loss: float = 0.01
    """MoE: weight of the load-balancing loss."""
    router_z_loss: float = 0.0
    """MoE: weight of the z-loss, which keeps its logits small."""
    positions: str = "sinusoidal"
    """Position encoding: sinusoidal, sinusoidal_halves (sines first), learned, rotary (RoPE), alibi, t5, shaw, none."""
    embedding_norm: bool = False
    """Norm after the embedding and its positions, before the first block, as in BERT and BART."""
    rotary_base: float = 10000.0
    """RoPE: base (theta); pair i rotates by base^(-2i/width) a token."""
    rotary_share: float = 1.0
    """RoPE: part of a head that is rotated, from its first number on; GPT-NeoX rotates a quarter."""
    rotary_scaling: str = "none"
    """RoPE: scaling to contexts longer than trained on: none, linear, ntk, yarn or llama3."""
    rotary_factor: float | None = None
    """RoPE: context growth factor, needed by every rotary scaling."""
    rotary_original_max_len: int | None = None
    """RoPE: context length before scaling, in tokens; needed by yarn and llama3."""
    relative_clip_distance: int = 16
    """Shaw's relative positions: maximum distance; tokens farther away count as this far."""
    max_len: int | None = None
    """Longest sequence accepted, in tokens; unset: no limit (learned positions need one)."""
    tie_embeddings: bool = True
    """Weight tying: the head uses the target embedding matrix."""
    share_embeddings: bool = True
    """One embedding matrix for source and target, where they share a vocabulary."""
    scale_embeddings: bool = True
    """Multiply embeddings by sqrt(d_model), as in the paper."""
    scale_head: bool = False
    """Divide the inputs of a tied head by sqrt(d_model), as in T5."""
    silent: str = ""
    """Token ids that the head never predicts, with commas: the special tokens that an imported model lacks."""
    head_transform: str | None = None
    """Put a dense layer with this activation, and a norm, before a head over tokens, as in BERT; unset: none."""
    pooling: str = "mean"
    """How a classifier pools a text into one vector: first (that of <bos>), mean or attention."""
    head_dropout: float = 0.0
    """Dropout probability of what a head that is not over tokens reads, such as a classifier's pooled vector."""
    init: str = "xavier"
    """Weight initialisation: xavier, normal (GPT-2's), or zero: normal, but each branch adds nothing at first."""
    attention_rule: str = "softmax"
    """What attention computes: softmax, softmax_plus_one (1 more in the denominator), sigmoid, softcap or linear."""
    attention: str = "auto"
    """Attention backend: auto, reference, matmul, sdpa, sparse or flex; linear has auto, reference and sums."""
    attention_scale: float | None = None
    """Factor of the attention scores; unset: 1/sqrt(head width). T5 has 1.0."""
    softcap: float = 50.0
    """Bound on the scores of attention_rule softcap, by tanh."""
    window: int | None = None
    """Sliding-window attention: a query reads itself and the window - 1 keys before it, in an encoder also after it;
    unset: all."""
    dilation: int = 1
    """Dilated window: distance between its keys, in positions."""
    global_tokens: int = 0
    """Global attention (Longformer): first tokens that read all and are read by all, besides a window."""
    sinks: int = 0
    """Attention sinks: first keys that stay readable besides a decoder's window."""
    stride: int | None = None
    """Strided sparse attention: a decoder's query reads this many last keys and every stride-th before; unset: all."""
    block: int | None = None
    """Fixed sparse attention: block length; a decoder's query reads its block and the summary of earlier ones; unset:
    all."""
    summary: int = 1
    """Last keys of each block, which later blocks read."""

    def __post_init__(self) -> None:
        check_types(self, "model")
        check_dropout(self.head_dropout, "model.head_dropout")
        for name in ("encoder_layers", "decoder_layers"):
            if self._layers(name) < 1 and getattr(self, name) is not None:
                raise ConfigError(
                    f"model.{name} must be at least 1; got {getattr(self, name)}. Remove it to get model.n_layers, "
                    f"or try model.{name}=1."
                )

    def build(
        self,
        layout: str,
        vocab_size: int | None,
        source_vocab_size: int | None = None,
        n_labels: int | None = None,
        *,
        n_features: int | None = None,
        n_numbers: int | None = None,
    ) -> ModelConfig:
        """Make the model's config for a data layout, its vocabularies and its labels.

        "decoder" gives one causal stack; "encoder", "masked" and "label" give one that reads both ways. "actions" gives
        a causal stack that reads `n_features` numbers at each place, and scores `n_labels` actions there, or tells
        the `n_numbers` numbers of one.
        """
        self._check_use(layout)
        acts = layout == "actions"
        shared_names = {each.name for each in fields(self)} & {each.name for each in fields(StackConfig)} - {"n_layers"}
        both: dict[str, Any] = {name: getattr(self, name) for name in shared_names} | self._order()
        both |= {"n_features": n_features}
        two, writes = layout == "encoder-decoder", layout in ("encoder-decoder", "decoder", "actions")
        of_encoder = both | {name: DEFAULTS[name] for name in LOOK_BACK} if two else both
        encoder = StackConfig(n_layers=self._layers("encoder_layers"), **of_encoder) if two or not writes else None
        decoder = StackConfig(n_layers=self._layers("decoder_layers"), causal=True, **both) if writes else None
        return ModelConfig(
            vocab_size=vocab_size,
            encoder=encoder,
            decoder=decoder,
            source_vocab_size=source_vocab_size,
            tie_embeddings=self.tie_embeddings and not acts,
            share_embeddings=self.share_embeddings,
            scale_embeddings=self.scale_embeddings,
            scale_head=self.scale_head,
            silent=self.silent,
            init=self.init,
            deepnorm=self.deepnorm,
            head=self._action_head(n_labels, n_numbers) if acts else self._head(n_labels),
        )

    def sketch(self, layout: str) -> ModelConfig:
        """Make a config for made-up data of a layout, to refuse what is impossible before the data are read.

        A vocabulary's size and the number of labels do not matter to that.
        """
        acts = layout == "actions"
        return self.build(
            layout,
            None if acts else SOME,
            n_labels=2 if acts or layout == "label" else None,
            n_features=1 if acts else None,
        )

    def _check_use(self, layout: str) -> None:
        """Refuse settings of a stack or head that the layout does not have, instead of ignoring them silently."""
        for name in unread(layout):
            if getattr(self, name) != getattr(type(self), name):
                layouts = " or ".join(map(repr, READ_BY[name]))
                raise ConfigError(
                    f"model.{name} belongs to data.layout={layouts}; got model.{name}={getattr(self, name)!r} with "
                    f"data.layout={layout!r}, which does not use it. Remove model.{name}."
                )

    def _head(self, n_labels: int | None) -> Lm | Classify:
        if n_labels is None:
            return Lm(self.head_transform)
        if self.head_transform is not None:
            raise ConfigError(
                "model.head_transform belongs to a head over tokens, which a classifier does not have; got "
                f"{self.head_transform!r}. Remove model.head_transform."
            )
        return Classify(n_labels, self.pooling, self.head_dropout)

    def _action_head(self, n_actions: int | None, n_numbers: int | None) -> Output:
        if n_actions is not None:
            return Tag(n_actions, self.head_dropout)
        assert n_numbers is not None
        return Regress(n_numbers, "none", self.head_dropout)

    def _layers(self, name: str) -> int:
        """The number of blocks that the setting `name` gives, or else `n_layers`."""
        own: int | None = getattr(self, name)
        return self.n_layers if own is None else own

    def _order(self) -> dict[str, RotaryConfig | RelativeConfig]:
        """The settings of position schemes, in the config classes that a stack uses."""
        rotary = RotaryConfig(
            base=self.rotary_base,
            share=self.rotary_share,
            scaling=self.rotary_scaling,
            factor=self.rotary_factor,
            original_max_len=self.rotary_original_max_len,
        )
        return {"rotary": rotary, "relative": RelativeConfig(clip_distance=self.relative_clip_distance)}
