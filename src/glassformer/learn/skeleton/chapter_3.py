import torch
from torch import nn


# 3.1 The stack
class TransformerEncoder(nn.Module):
    """x [B, T, D] to [B, T, D]: the blocks in turn, and a norm at the end."""

    def __init__(self, n_layers, d_model, n_heads, d_ff):
        super().__init__()

    def forward(self, x, mask=None):
        raise NotImplementedError("exercise 3.1")


# 3.2 Does it see order?
def order_gap(model, x, order):
    """The largest difference between reorder-then-run and run-then-reorder; x [B, T, ...], order [T]."""
    raise NotImplementedError("exercise 3.2")


# 3.3 The causal mask
def causal_mask(n):
    """[n, n], boolean, True where query (row) may read key (column)."""
    raise NotImplementedError("exercise 3.3")


# 3.4 Reading another sequence
class MultiHeadAttention(nn.Module):
    """x [B, T, D] to [B, T, D]; self.weights keeps the last weights, [B, H, T, S]."""

    def __init__(self, d_model, n_heads):
        super().__init__()

    def forward(self, query, key=None, value=None, mask=None):
        raise NotImplementedError("exercise 3.4")


# 3.5 The decoder block
class DecoderBlock(nn.Module):
    """x [B, T, D], memory [B, S, D] to [B, T, D]."""

    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()

    def forward(self, x, memory, mask=None, memory_mask=None):
        raise NotImplementedError("exercise 3.5")


# 3.6 Who notices?
def influence(model, x):
    """[T, T], boolean: entry (t, s) is True if moving position s changes output t; x [B, T, D]."""
    raise NotImplementedError("exercise 3.6")
