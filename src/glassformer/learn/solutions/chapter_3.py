import torch
from torch import nn


# 3.1 The stack
class TransformerEncoder(nn.Module):
    """x [B, T, D] to [B, T, D]: the blocks in turn, and a norm at the end."""

    def __init__(self, n_layers, d_model, n_heads, d_ff):
        super().__init__()
        self.layers = nn.ModuleList([EncoderBlock(d_model, n_heads, d_ff) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x, mask=None):
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


# 3.2 Does it see order?
@torch.no_grad()
def order_gap(model, x, order):
    """The largest difference between reorder-then-run and run-then-reorder; x [B, T, ...], order [T]."""
    was = model.training
    model.eval()
    gap = (model(x[:, order]) - model(x)[:, order]).abs().max().item()
    model.train(was)
    return gap


# 3.3 The causal mask
def causal_mask(n):
    """[n, n], boolean, True where query (row) may read key (column)."""
    return torch.ones(n, n, dtype=torch.bool).tril()


# 3.4 Reading another sequence
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.query, self.key, self.value, self.output = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        mapped = self.query(query), self.key(key), self.value(key if value is None else value)
        q, k, v = (split_heads(each, self.n_heads) for each in mapped)
        mixed, weights = attention(q, k, v, mask)
        self.weights = weights.detach()
        return self.output(merge_heads(mixed))


class EncoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x, mask=None):
        x = self.norm1(x + self.attention(x, x, x, mask))
        return self.norm2(x + self.feed_forward(x))


# 3.5 The decoder block
class DecoderBlock(nn.Module):
    """x [B, T, D], memory [B, S, D] to [B, T, D]."""

    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.cross = MultiHeadAttention(d_model, n_heads)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))

    def forward(self, x, memory, mask=None, memory_mask=None):
        x = self.norm1(x + self.attention(x, x, x, mask))
        x = self.norm2(x + self.cross(x, memory, memory, memory_mask))
        return self.norm3(x + self.feed_forward(x))


# 3.6 Who notices?
@torch.no_grad()
def influence(model, x):
    """[T, T], boolean: entry (t, s) is True if moving position s changes output t; x [B, T, D]."""
    was = model.training
    model.eval()
    base, T = model(x), x.size(1)
    noticed = torch.zeros(T, T, dtype=torch.bool)
    for s in range(T):
        moved = x.clone()
        moved[:, s] += 1
        noticed[:, s] = (model(moved) - base).abs().amax((0, 2)) > 1e-9
    model.train(was)
    return noticed
