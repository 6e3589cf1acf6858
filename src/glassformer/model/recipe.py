"""The `[model]` section of a recipe: a few flat settings that make both stacks of a model alike."""

from __future__ import annotations

from dataclasses import dataclass, fields

from glassformer.model.config import ModelConfig, StackConfig
from glassformer.model.outputs import Classify, Lm


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
    token_dropout: float = 0.0
    """Chance to drop a whole token, whose embedding is then zero."""
    norm: str = "layer"
    """Normalisation: layer."""
    norm_placement: str = "pre"
    """Where the norm stands: pre (before the branch) or post (after the sum)."""
    activation: str = "relu"
    """Of the feed-forward branch: relu, gelu or gelu_tanh."""
    positions: str = "sinusoidal"
    """How order enters: sinusoidal, learned or none."""
    max_len: int | None = None
    """Longest sequence accepted, in tokens; none: any (learned positions need a number)."""
    tie_embeddings: bool = True
    """One matrix for the target embedding and the head."""
    share_embeddings: bool = True
    """One matrix for both embeddings, where source and target share a vocabulary."""
    scale_embeddings: bool = True
    """Embeddings times sqrt(d_model), as in the paper."""
    pooling: str = "mean"
    """How a classifier makes one vector of a text: first (that of the token <bos>), mean or attention."""
    head_dropout: float = 0.0
    """Chance to drop a number of that vector."""
    init: str = "xavier"
    """Initialisation table: xavier or normal."""
    attention: str = "auto"
    """Attention backend: auto, reference, matmul or sdpa."""

    def build(
        self, layout: str, vocab_size: int, source_vocab_size: int | None = None, n_labels: int | None = None
    ) -> ModelConfig:
        """The model for a data layout ("encoder-decoder", "encoder" or "label"), its vocabularies and its labels."""
        shared_names = {each.name for each in fields(self)} & {each.name for each in fields(StackConfig)} - {"n_layers"}
        both = {name: getattr(self, name) for name in shared_names}
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
            head=Lm() if n_labels is None else Classify(n_labels, self.pooling, self.head_dropout),
        )
