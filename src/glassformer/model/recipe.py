"""The `[model]` section of a recipe: a few flat settings that make both stacks of a model alike."""

from __future__ import annotations

from dataclasses import dataclass, fields

from glassformer.foundation.order import RelativeConfig, RotaryConfig
from glassformer.model.config import ModelConfig, StackConfig


@dataclass(frozen=True)
class ModelRecipe:
    """Settings of `[model]`; both stacks get the same, but for the number of layers."""

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
    norm: str = "layer"
    """Normalisation: layer."""
    norm_placement: str = "pre"
    """Where the norm stands: pre (before the branch) or post (after the sum)."""
    activation: str = "relu"
    """Of the feed-forward branch: relu, gelu or gelu_tanh."""
    positions: str = "sinusoidal"
    """How order enters: sinusoidal, learned, rotary, alibi, t5, shaw or none."""
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
    init: str = "xavier"
    """Initialisation table: xavier or normal."""
    attention: str = "auto"
    """Attention backend: auto, reference, matmul or sdpa."""

    def build(self, layout: str, vocab_size: int, source_vocab_size: int | None = None) -> ModelConfig:
        """The model for a data layout ("encoder-decoder" or "encoder") and its vocabularies."""
        shared_names = {each.name for each in fields(self)} & {each.name for each in fields(StackConfig)} - {"n_layers"}
        both = {name: getattr(self, name) for name in shared_names} | self._order()
        encoder = StackConfig(n_layers=self.encoder_layers or self.n_layers, **both)
        decoder = StackConfig(n_layers=self.decoder_layers or self.n_layers, causal=True, **both)
        return ModelConfig(
            vocab_size=vocab_size,
            encoder=encoder,
            decoder=decoder if layout == "encoder-decoder" else None,
            source_vocab_size=source_vocab_size,
            tie_embeddings=self.tie_embeddings,
            share_embeddings=self.share_embeddings,
            scale_embeddings=self.scale_embeddings,
            init=self.init,
        )

    def _order(self) -> dict[str, RotaryConfig | RelativeConfig]:
        """Settings of the position schemes, which stacks hold in values of their own."""
        rotary = RotaryConfig(
            base=self.rotary_base,
            scaling=self.rotary_scaling,
            factor=self.rotary_factor,
            original_max_len=self.rotary_original_max_len,
        )
        return {"rotary": rotary, "relative": RelativeConfig(clip_distance=self.relative_clip_distance)}
