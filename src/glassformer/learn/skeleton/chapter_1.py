"""A transformer of my own."""

import math

import torch
from torch import nn


# 1.1 Softmax
def softmax(scores, dim=-1):
    """Weights of the shape of scores, which are positive and sum to 1 along dim."""
    raise NotImplementedError("exercise 1.1")


# 1.2 Attention
def attention(q, k, v):
    """q [..., T, K], k and v [..., S, K] to (output [..., T, K], weights [..., T, S])."""
    raise NotImplementedError("exercise 1.2")


# 1.3 A head by hand
def reversing_head(n):
    """(q, k), each [n, K]: attention makes position i read position n-1-i."""
    raise NotImplementedError("exercise 1.3")


# 1.4 Self-attention
class SelfAttention(nn.Module):
    """x [B, T, D] to [B, T, D]: query, key and value are maps of the same x."""

    def __init__(self, d_model):
        super().__init__()

    def forward(self, x):
        raise NotImplementedError("exercise 1.4")


# 1.5 Split and merge
def split_heads(x, n_heads):
    """x [B, T, D] to [B, H, T, K]: head h gets columns hK to (h+1)K."""
    raise NotImplementedError("exercise 1.5")


def merge_heads(x):
    """x [B, H, T, K] to [B, T, D], which undoes split_heads."""
    raise NotImplementedError("exercise 1.5")


# 1.6 Several heads
class MultiHeadAttention(nn.Module):
    """x [B, T, D] to [B, T, D]; self.weights keeps the last weights, [B, H, T, S]."""

    def __init__(self, d_model, n_heads):
        super().__init__()

    def forward(self, x):
        raise NotImplementedError("exercise 1.6")


# 1.7 Feed-forward
class FeedForward(nn.Module):
    """x [B, T, D] to [B, T, D], the same at every position."""

    def __init__(self, d_model, d_ff):
        super().__init__()

    def forward(self, x):
        raise NotImplementedError("exercise 1.7")


# 1.8 The block
class EncoderBlock(nn.Module):
    """x [B, T, D] to [B, T, D]: attention, then feed-forward, each with residual and norm."""

    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()

    def forward(self, x):
        raise NotImplementedError("exercise 1.8")
