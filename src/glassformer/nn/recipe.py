"""The `[model]` section of a recipe: a flat list of settings, used for both stacks of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

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
ACTING = "act"


class Layout(NamedTuple):
    """How samples are laid out for a model: the stacks that read and write them, what is read, and what is given."""

    encoder: bool = False
    decoder: bool = False
    head: str = "lm"
    """The kind of head; `ACTING`: numbered actions or the numbers of one, at each place."""
    tokens: bool = True
    """Whether tokens are read; otherwise vectors of numbers are."""
    blanks: bool = False
    """Whether places of what is read are filled in."""


READ_BY: dict[str, Callable[[Layout], bool]] = {
    "encoder_layers": lambda layout: layout.encoder,
    "decoder_layers": lambda layout: layout.decoder,
    "pooling": lambda layout: layout.head in POOLED,
    "head_dropout": lambda layout: layout.head != Lm.kind,
    **dict.fromkeys(("head_transform", "tie_embeddings", "scale_embeddings"), lambda layout: layout.tokens),
    "silent": lambda layout: layout.head == Lm.kind,
}
"""Settings that only some layouts use, and whether one of them does."""
POOLED = (Classify.kind, Regress.kind)
"""Heads that answer once for a sequence."""


def unread(layout: Layout) -> list[str]:
    """The settings that a layout does not use."""
    return [name for name, reads in READ_BY.items() if not reads(layout)]


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
        layout: Layout,
        vocab_size: int | None,
        source_vocab_size: int | None = None,
        n_labels: int | None = None,
        *,
        n_features: int | None = None,
        n_numbers: int | None = None,
    ) -> ModelConfig:
        """Make the model's config for a data layout, its vocabularies and its labels.

        An encoder reads both ways, a decoder is causal. Where no tokens are read, each place has `n_features` numbers.
        The head scores `n_labels` labels or actions, or gives `n_numbers` numbers.
        """
        shared_names = {each.name for each in fields(self)} & {each.name for each in fields(StackConfig)} - {"n_layers"}
        both: dict[str, Any] = {name: getattr(self, name) for name in shared_names} | self._order()
        both |= {"n_features": n_features}
        of_encoder = both | {name: DEFAULTS[name] for name in LOOK_BACK} if layout.decoder else both
        encoder = StackConfig(n_layers=self._layers("encoder_layers"), **of_encoder) if layout.encoder else None
        decoder = StackConfig(n_layers=self._layers("decoder_layers"), causal=True, **both) if layout.decoder else None
        return ModelConfig(
            vocab_size=vocab_size,
            encoder=encoder,
            decoder=decoder,
            source_vocab_size=source_vocab_size,
            tie_embeddings=self.tie_embeddings and layout.tokens,
            share_embeddings=self.share_embeddings,
            scale_embeddings=self.scale_embeddings,
            scale_head=self.scale_head,
            silent=self.silent,
            init=self.init,
            deepnorm=self.deepnorm,
            head=self._head(layout.head, n_labels, n_numbers),
        )

    def sketch(self, layout: Layout) -> ModelConfig:
        """Make a config for made-up data of a layout, to refuse what is impossible before the data are read.

        The sizes of a vocabulary and of a head do not matter to that.
        """
        vocabulary, n_features = (SOME, None) if layout.tokens else (None, 1)
        return self.build(layout, vocabulary, n_labels=2, n_features=n_features, n_numbers=1)

    def refuse_unread(self, name: str, layouts: Mapping[str, Layout]) -> None:
        """Refuse settings that the layout `name` does not use, in place of ignoring them; `layouts`: all there are."""
        for setting in unread(layouts[name]):
            if getattr(self, setting) != getattr(type(self), setting):
                users = " or ".join(repr(other) for other, each in layouts.items() if READ_BY[setting](each))
                raise ConfigError(
                    f"model.{setting} belongs to data.layout={users}; got model.{setting}={getattr(self, setting)!r} "
                    f"with data.layout={name!r}, which does not use it. Remove model.{setting}."
                )

    def _head(self, kind: str, n_labels: int | None, n_numbers: int | None) -> Output:
        if kind == Lm.kind:
            return Lm(self.head_transform)
        if self.head_transform is not None:
            raise ConfigError(
                "model.head_transform belongs to a head over tokens, which a classifier does not have; got "
                f"{self.head_transform!r}. Remove model.head_transform."
            )
        if kind == Classify.kind:
            return Classify(n_labels or 0, self.pooling, self.head_dropout)
        if n_labels is not None and kind != Regress.kind:
            return Tag(n_labels, self.head_dropout)
        return Regress(n_numbers or 0, "none" if kind == ACTING else self.pooling, self.head_dropout)

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
