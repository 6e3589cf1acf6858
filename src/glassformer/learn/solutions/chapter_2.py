import math

import torch
from torch import nn


# 2.1 The mask
def attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = softmax(scores, dim=-1)
    return weights @ v, weights


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.query, self.key, self.value, self.output = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, mask=None):
        q = split_heads(self.query(x), self.n_heads)
        k = split_heads(self.key(x), self.n_heads)
        v = split_heads(self.value(x), self.n_heads)
        mixed, weights = attention(q, k, v, mask)
        self.weights = weights.detach()
        return self.output(merge_heads(mixed))


# 2.2 Padding mask
def padding_mask(lengths, n):
    """lengths [B] to [B, 1, 1, n], boolean, True at the first `length` places."""
    return (torch.arange(n, device=lengths.device) < lengths[:, None])[:, None, None, :]


# 2.3 Nothing to read
def attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is None:
        mask = torch.ones_like(scores, dtype=torch.bool)
    empty = ~mask.any(-1, keepdim=True)
    weights = softmax(scores.masked_fill(~mask & ~empty, float("-inf")), dim=-1)
    weights = weights.masked_fill(empty, 0.0)
    return weights @ v, weights


# 2.4 Layer norm
class LayerNorm(nn.Module):
    """x [..., D] to [..., D]: mean 0 and variance 1 at each position, then weight and bias."""

    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x):
        mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, correction=0)
        return (x - mean) / (variance + self.eps).sqrt() * self.weight + self.bias


# 2.5 Embedding
class TokenEmbedding(nn.Module):
    """ids [B, T] to [B, T, D]: rows of a learned table, times the root of D."""

    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.table = nn.Embedding(vocab_size, d_model)
        nn.init.normal_(self.table.weight, std=d_model**-0.5)
        self.factor = math.sqrt(d_model)

    def forward(self, ids):
        return self.table(ids) * self.factor


# 2.6 Sinusoids
def positional_encoding(length, d_model):
    """[length, D]: sines in even columns, cosines in odd ones."""
    rates = 10000 ** (-torch.arange(0, d_model, 2) / d_model)
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :d_model]


# 2.7 Positions as a module
class PositionalEncoding(nn.Module):
    """x [B, T, D] plus the first T rows of the table."""

    def __init__(self, d_model, max_len, dropout=0.0):
        super().__init__()
        self.register_buffer("table", positional_encoding(max_len, d_model), persistent=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        if x.size(1) > len(self.table):
            raise ValueError(f"a sequence of {x.size(1)} is longer than max_len, {len(self.table)}")
        return self.dropout(x + self.table[: x.size(1)])


# 2.8 The encoder
class TokenEncoder(nn.Module):
    """ids [B, T] to [B, T, D], or to [B, T, n_outputs]."""

    def __init__(self, vocab_size, d_model, n_heads, n_layers, d_ff, max_len, n_outputs=None, dropout=0.0):
        super().__init__()
        self.embedding = TokenEmbedding(vocab_size, d_model)
        self.positions = PositionalEncoding(d_model, max_len, dropout)
        self.blocks = nn.ModuleList([EncoderBlock(d_model, n_heads, d_ff) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(d_model)
        self.output = nn.Identity() if n_outputs is None else nn.Linear(d_model, n_outputs)

    def forward(self, ids, mask=None):
        x = self.positions(self.embedding(ids))
        for block in self.blocks:
            x = block(x, mask)
        return self.output(self.norm(x))


class EncoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x, mask=None):
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.feed_forward(x))


# 2.9 Count them
def predict_parameters(vocab_size, d_model, n_layers, d_ff):
    """The number of parameters of my TokenEncoder, by arithmetic."""
    D, F = d_model, d_ff
    attention, feed_forward, norm = 4 * (D * D + D), D * F + F + F * D + D, 2 * D
    return vocab_size * D + n_layers * (attention + feed_forward + 2 * norm) + norm
