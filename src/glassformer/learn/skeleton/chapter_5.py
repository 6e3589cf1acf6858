import torch
from torch import nn


# 5.1 A batch
def pad_batch(rows, pad_id=0):
    """Lists of ids to (ids [B, T], lengths [B])."""
    raise NotImplementedError("exercise 5.1")


# 5.2 Teacher forcing
def shift_right(labels, start_id):
    """labels [B, T] to what the decoder reads, [B, T]."""
    raise NotImplementedError("exercise 5.2")


# 5.3 The transformer
class Transformer(nn.Module):
    """source [B, S], target [B, T] to logits [B, T, target_vocab]."""

    def __init__(self, source_vocab, target_vocab, d_model, n_heads, n_layers, d_ff, max_len, dropout=0.0):
        super().__init__()

    def encode(self, source, source_keep=None):
        raise NotImplementedError("exercise 5.3")

    def decode(self, target, memory, source_keep=None):
        raise NotImplementedError("exercise 5.3")

    def forward(self, source, target, source_keep=None):
        raise NotImplementedError("exercise 5.3")


# 5.4 Padding changes nothing
class Transformer(nn.Module):
    """source [B, S], target [B, T] to logits [B, T, target_vocab]."""

    def __init__(self, source_vocab, target_vocab, d_model, n_heads, n_layers, d_ff, max_len, dropout=0.0):
        super().__init__()

    def encode(self, source, source_keep=None):
        raise NotImplementedError("exercise 5.4")

    def decode(self, target, memory, source_keep=None):
        raise NotImplementedError("exercise 5.4")

    def forward(self, source, target, source_keep=None):
        raise NotImplementedError("exercise 5.4")


# 5.5 A good start
def init_weights(model):
    """Draws the start values of all matrices, in place."""
    raise NotImplementedError("exercise 5.5")


# 5.6 Write
def greedy_translate(model, source, bos_id, eos_id, max_new_tokens):
    """source [1, S] to what was written, [1, n], bos_id first."""
    raise NotImplementedError("exercise 5.6")
