"""Attention, blocks and whole models equal torch.nn's in outputs and in every gradient."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.nn.attention import Attention
from glassformer.nn.build import build_block
from glassformer.nn.mask import Mask
from glassformer.nn.rules import ATTEND
from glassformer.proof.laws.law import (
    Law,
    Setting,
    apart,
    gradients,
    model,
    normal,
    padded,
    same_gradients,
    scramble,
    stack,
    tokens,
)
from glassformer.store.families import as_torch

B, T, S, D, H, F = 3, 6, 5, 16, 4, 24
CHOICES = list(itertools.product(("pre", "post"), ("relu", "gelu")))


def attention(setting: Setting) -> Iterator[float]:
    """Against nn.MultiheadAttention: self- and cross-attention, causal or not, with padding."""
    backends = [each for name, each in ATTEND["softmax"].items() if name != "flex"]  # it has no gradients on a CPU
    for backend, crossing, causal in itertools.product(backends, (False, True), (False, True)):
        if crossing and causal:
            continue  # with fewer keys than queries, torch aligns to the first key and we to the last
        ours = scramble(Attention(D, H, backend), setting)
        theirs = nn.MultiheadAttention(D, H, batch_first=True, device=setting.device, dtype=setting.dtype)
        theirs.load_state_dict(as_torch(dict(ours.named_parameters())))
        x, source = normal(setting, B, T, D), normal(setting, B, S, D) if crossing else None
        read = x if source is None else source
        keep = torch.rand(B, read.shape[1], device=setting.device) < 0.7
        keep[:, 0] = True  # torch divides by zero if a query reads nothing
        hidden = later(setting, T) if causal else None
        expected, _ = theirs(x, read, read, key_padding_mask=~keep, attn_mask=hidden, need_weights=False)
        yield compared((ours(x, mask=Mask(causal=causal, keep=keep), source=source), ours), (expected, theirs))


def encoder_layer(setting: Setting) -> Iterator[float]:
    """Against nn.TransformerEncoderLayer, with both norm placements."""
    for placement, activation in CHOICES:
        mine, torchs = settings(setting, placement, activation)
        ours = scramble(build_block(stack(**mine), reads_memory=False), setting)
        theirs = nn.TransformerEncoderLayer(**torchs)
        theirs.load_state_dict(as_torch(dict(ours.named_parameters())))
        x, (_, keep) = normal(setting, B, T, D), rows(setting, T)
        answer = ours(x, mask=Mask(causal=True, keep=keep))
        yield compared((answer, ours), (theirs(x, later(setting, T), ~keep), theirs))


def decoder_layer(setting: Setting) -> Iterator[float]:
    """Against nn.TransformerDecoderLayer, with padding in the memory."""
    for placement, activation in CHOICES:
        mine, torchs = settings(setting, placement, activation)
        ours = scramble(build_block(stack(**mine), reads_memory=True), setting)
        theirs = nn.TransformerDecoderLayer(**torchs)
        theirs.load_state_dict(as_torch(dict(ours.named_parameters())))
        x, memory, (_, keep) = normal(setting, B, T, D), normal(setting, B, S, D), rows(setting, S)
        answer = ours(x, mask=Mask(causal=True), memory=memory, memory_mask=Mask(keep=keep))
        expected = theirs(x, memory, later(setting, T), memory_key_padding_mask=~keep)
        yield compared((answer, ours), (expected, theirs))


def transformer(setting: Setting) -> Iterator[float]:
    """Against nn.Transformer, between our embeddings and our head, with padding on both sides."""
    for placement, activation in CHOICES:
        mine, torchs = settings(setting, placement, activation)
        own = {"tie_embeddings": False, "share_embeddings": False, "scale_embeddings": False}
        ours = model(setting, "encoder-decoder", own=own, final_norm=True, **mine)
        theirs = nn.Transformer(num_encoder_layers=2, num_decoder_layers=2, **torchs)
        theirs.load_state_dict(as_torch(dict(ours.named_parameters())))
        (ids, keep), (source, source_keep) = rows(setting, T), rows(setting, S)
        assert ours.encoder is not None
        assert ours.decoder is not None
        expected = theirs(
            ours.encoder.embedding(source),
            ours.decoder.embedding(ids),
            tgt_mask=later(setting, T),
            src_key_padding_mask=~source_keep,
            tgt_key_padding_mask=~keep,
            memory_key_padding_mask=~source_keep,
        )[keep]
        answer = ours.hidden(ids, keep=keep, source=source, source_keep=source_keep)[keep]
        yield max(compared((answer, ours), (expected, theirs)), apart(ours.head(answer), ours.head(expected)))


def compared(ours: tuple[Tensor, nn.Module], theirs: tuple[Tensor, nn.Module]) -> float:
    """Return the larger of the errors of outputs and gradients, matched by torch's names."""
    return max(apart(ours[0], theirs[0]), same_gradients(as_torch(gradients(*ours)), gradients(*theirs)))


def settings(setting: Setting, placement: str, activation: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return our settings and torch's for one choice. No dropout, so the modules can stay in training mode.

    In training mode, torch does not take its fused fast path.
    """
    warnings.filterwarnings("ignore", message="enable_nested_tensor is True")
    theirs = {"d_model": D, "nhead": H, "dim_feedforward": F, "dropout": 0.0, "activation": activation}
    place = {"batch_first": True, "device": setting.device, "dtype": setting.dtype}
    return (
        {"norm_placement": placement, "activation": activation, "positions": "none"},
        {**theirs, **place, "norm_first": placement == "pre"},
    )


def rows(setting: Setting, width: int) -> tuple[Tensor, Tensor]:
    """Return ids and their keep mask, padded on the right: torch gives NaN for a query that reads nothing."""
    return padded(setting, [tokens(setting, width - i) for i in range(B)], width, "right")


def later(setting: Setting, width: int) -> Tensor:
    """Return torch's causal mask, where True means hidden."""
    return torch.ones(width, width, dtype=torch.bool, device=setting.device).triu(1)


LAWS = [
    Law("torch.nn", "Attention = MultiheadAttention", attention),
    Law("torch.nn", "Block = TransformerEncoderLayer", encoder_layer),
    Law("torch.nn", "Block with memory = TransformerDecoderLayer", decoder_layer),
    Law("torch.nn", "Transformer = Transformer", transformer),
]
