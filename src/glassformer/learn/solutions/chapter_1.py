"""A transformer of my own."""

import math

import torch
from torch import nn


# 1.1 Softmax
def softmax(scores, dim=-1):
    """Weights of the shape of scores, which are positive and sum to 1 along dim."""
    e = (scores - scores.amax(dim, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)


# 1.2 Attention
def attention(q, k, v):
    """q [..., T, K], k and v [..., S, K] to (output [..., T, K], weights [..., T, S])."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    weights = softmax(scores, dim=-1)
    return weights @ v, weights


# 1.3 A head by hand
def reversing_head(n):
    """(q, k), each [n, K]: attention makes position i read position n-1-i."""
    places = torch.eye(n)
    return 20 * math.sqrt(n) * places.flip(0), places


# 1.4 Self-attention
class SelfAttention(nn.Module):
    """x [B, T, D] to [B, T, D]: query, key and value are maps of the same x."""

    def __init__(self, d_model):
        super().__init__()
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.output = nn.Linear(d_model, d_model)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        mixed, _ = attention(q, k, v)
        return self.output(mixed)


# 1.5 Split and merge
def split_heads(x, n_heads):
    """x [B, T, D] to [B, H, T, K]: head h gets columns hK to (h+1)K."""
    B, T, D = x.shape
    if D % n_heads:
        raise ValueError(f"a width of {D} cannot be cut into {n_heads} equal heads")
    return x.reshape(B, T, n_heads, D // n_heads).transpose(1, 2)


def merge_heads(x):
    """x [B, H, T, K] to [B, T, D], which undoes split_heads."""
    B, H, T, K = x.shape
    return x.transpose(1, 2).reshape(B, T, H * K)


# 1.6 Several heads
class MultiHeadAttention(nn.Module):
    """x [B, T, D] to [B, T, D]; self.weights keeps the last weights, [B, H, T, S]."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.query, self.key, self.value, self.output = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x):
        q = split_heads(self.query(x), self.n_heads)
        k = split_heads(self.key(x), self.n_heads)
        v = split_heads(self.value(x), self.n_heads)
        mixed, weights = attention(q, k, v)
        self.weights = weights.detach()
        return self.output(merge_heads(mixed))


# 1.7 Feed-forward
class FeedForward(nn.Module):
    """x [B, T, D] to [B, T, D], the same at every position."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


# 1.8 The block
class EncoderBlock(nn.Module):
    """x [B, T, D] to [B, T, D]: attention, then feed-forward, each with residual and norm."""

    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x):
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.feed_forward(x))
