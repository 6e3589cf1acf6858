"""torch.nn.Transformer with what it leaves to its user (embeddings, positions, masks, a head) and with our weights."""

from __future__ import annotations

import math
import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer import Batch, Block, Transformer
from glassformer.nn.attention import Attention


class Peer(nn.Module):
    """The same encoder-decoder as a model of ours, built from torch.nn: pre-norm, one tied embedding."""

    def __init__(self, ours: Transformer) -> None:
        super().__init__()
        config = ours.config.stack
        self.scale = math.sqrt(config.d_model)
        self.embedding = nn.Embedding(ours.config.vocab_size, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        sizes = (config.d_model, config.n_heads, config.n_layers, config.n_layers, config.d_ff)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="enable_nested_tensor")  # a fast path that norm_first lacks
            self.transformer = nn.Transformer(
                *sizes, config.dropout, config.activation, norm_first=True, batch_first=True
            )
        self.register_buffer("positions", sinusoids(1024, config.d_model), persistent=False)
        self.take_weights(ours)

    def forward(self, source: Tensor, tokens: Tensor) -> Tensor:
        """Return the logits of every target position."""
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        vectors = self.transformer(self.embed(source), self.embed(tokens), tgt_mask=mask, tgt_is_causal=True)
        return F.linear(vectors, self.embedding.weight)

    def embed(self, tokens: Tensor) -> Tensor:
        """Return scaled embeddings plus positions."""
        positions = self.positions[: tokens.shape[1]]
        assert isinstance(positions, Tensor)
        return self.dropout(self.embedding(tokens) * self.scale + positions)

    def loss(self, batch: Batch, smoothing: float) -> Tensor:
        """Return the mean cross-entropy per target, for a batch without padding."""
        assert batch.source is not None
        assert batch.keep is None
        assert batch.source_keep is None
        logits = self(batch.source, batch.tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), batch.tokens[:, 1:].flatten(), label_smoothing=smoothing)

    @torch.no_grad()
    def take_weights(self, ours: Transformer) -> None:
        """Copy all weights of our model."""
        assert ours.encoder is not None
        assert ours.decoder is not None
        self.embedding.weight.copy_(ours.decoder.embedding.weight)
        for stack, torchs in ((ours.encoder, self.transformer.encoder), (ours.decoder, self.transformer.decoder)):
            torchs.norm.load_state_dict(stack.norm.state_dict())
            for block, layer in zip(stack.blocks, torchs.layers, strict=True):
                assert isinstance(block, Block)
                take_block(layer, block)


def take_block(layer: nn.Module, block: Block) -> None:
    """Copy one block's weights. torch stacks query, key and value in one matrix."""
    branches = [(block.self_attention, layer.self_attn)]
    if block.cross_attention is not None:
        branches.append((block.cross_attention, layer.multihead_attn))
    for residual, attention in branches:
        assert isinstance(residual.branch, Attention)
        inputs = (residual.branch.query, residual.branch.key, residual.branch.value)
        attention.in_proj_weight.copy_(torch.cat([each.weight for each in inputs]))
        attention.in_proj_bias.copy_(torch.cat([each.bias for each in inputs]))
        attention.out_proj.load_state_dict(residual.branch.output.state_dict())
    layer.linear1.load_state_dict(block.feed_forward.branch.up.state_dict())
    layer.linear2.load_state_dict(block.feed_forward.branch.down.state_dict())
    residuals = [each for each, _ in branches] + [block.feed_forward]
    for number, residual in enumerate(residuals, start=1):
        getattr(layer, f"norm{number}").load_state_dict(residual.norm_in.state_dict())


def sinusoids(length: int, d_model: int) -> Tensor:
    """Return the table of Vaswani et al. 2017, section 3.5, computed as in torch's tutorials."""
    position = torch.arange(length)[:, None]
    rate = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10_000.0) / d_model))
    table = torch.zeros(length, d_model)
    table[:, 0::2] = torch.sin(position * rate)
    table[:, 1::2] = torch.cos(position * rate)
    return table
