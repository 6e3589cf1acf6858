"""A learner's code, right; the mistakes planted in it stand in planted.py."""

from __future__ import annotations

from proof import small_parts
from proof.learners_models import SOURCES as MODELS

ATTENTION = """
import math
import torch
import torch.nn.functional as F

def attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
        scores = torch.where(mask.any(-1, keepdim=True), scores, torch.zeros_like(scores))
    weights = torch.softmax(scores, dim=-1)
    if mask is not None:
        weights = weights * mask.any(-1, keepdim=True)
    output = weights @ v
    return output, weights
"""

HEADS = """
import math
import torch
from torch import nn

class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads, p=0.1):
        super().__init__()
        self.n_heads, self.d_head, self.d_model = n_heads, d_model // n_heads, d_model
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)
        self.drop = nn.Dropout(p)

    def split(self, x):
        return x.view(x.size(0), x.size(1), self.n_heads, self.d_head).transpose(1, 2)

    def forward(self, query, key, value, mask=None):
        B, T, _ = query.shape
        q = self.split(self.w_q(query))
        k = self.split(self.w_k(key))
        v = self.split(self.w_v(value))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_head)
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
            scores = torch.where(mask.any(-1, keepdim=True), scores, torch.zeros_like(scores))
        weights = self.drop(torch.softmax(scores, dim=-1))
        if mask is not None:
            weights = weights * mask.any(-1, keepdim=True)
        self.weights = weights.detach()
        context = weights @ v
        context = context.transpose(1, 2).contiguous().view(B, T, self.d_model)
        return self.w_o(context)
"""

BLOCK = (
    HEADS
    + """
class TransformerBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(0.1)

    def attend(self, x, mask):
        return self.dropout(self.attention(x, x, x, mask))

    def feed(self, x):
        return self.dropout(self.down(torch.relu(self.up(x))))

    def forward(self, x, mask=None):
        x = x + self.attend(self.norm1(x), mask)
        x = x + self.feed(self.norm2(x))
        return x
"""
)

STACK = (
    BLOCK
    + """
import copy

class TransformerEncoder(nn.Module):
    def __init__(self, n_layers, d_model, n_heads, d_ff):
        super().__init__()
        self.layers = nn.ModuleList([TransformerBlock(d_model, n_heads, d_ff) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x, mask=None):
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)
"""
)

TABLE = """
import math
import torch

def positional_encoding(length, d_model):
    position = torch.arange(length).float().unsqueeze(1)
    div = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
    pe = torch.zeros(length, d_model)
    pe[:, 0::2] = torch.sin(position * div)
    pe[:, 1::2] = torch.cos(position * div[: d_model // 2])
    return pe
"""

ENCODING = (
    TABLE
    + """
from torch import nn

class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len):
        super().__init__()
        self.max_len = max_len
        self.d_model = d_model
        self.dropout = nn.Dropout(0.1)
        self.register_buffer("pe", positional_encoding(max_len, d_model).unsqueeze(0))

    def forward(self, x):
        if x.size(1) > self.max_len:
            raise ValueError(f"{x.size(1)} positions, but max_len is {self.max_len}")
        return self.dropout(x + self.pe[:, : x.size(1)])
"""
)

CAUSAL = """
import torch

def causal_mask(n):
    return torch.tril(torch.ones(n, n)).bool()
"""

PADDING = """
import torch

def padding_mask(lengths, n):
    return (torch.arange(n) < lengths.unsqueeze(1)).unsqueeze(1).unsqueeze(1)
"""

SHIFT = """
def shift_labels(tokens):
    return tokens[:, :-1], tokens[:, 1:]
"""

LOSS = """
import torch
import torch.nn.functional as F

def cross_entropy(logits, targets, pad_id):
    keep = targets != pad_id
    logs = logits.log_softmax(-1)
    losses = -logs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return (losses * keep).sum() / keep.sum()
"""

ACCURACY = """
def accuracy(logits, targets, pad_id):
    keep = targets != pad_id
    hits = logits.argmax(-1) == targets
    return (hits & keep).sum() / keep.sum()
"""

POOL = """
def mean_pool(x, keep):
    keep = keep.unsqueeze(-1).to(x.dtype)
    return (x * keep).sum(1) / keep.sum(1)
"""

GREEDY = """
import torch

def greedy_decode(model, prompt, eos_id, max_new_tokens):
    ids = prompt
    for _ in range(max_new_tokens):
        following = model(ids)[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, following], dim=1)
        if following.item() == eos_id:
            break
    return ids
"""

SOURCES = {
    "attention": ATTENTION, "MultiHeadAttention": HEADS, "TransformerBlock": BLOCK, "TransformerEncoder": STACK,
    "positional_encoding": TABLE, "PositionalEncoding": ENCODING, "causal_mask": CAUSAL, "padding_mask": PADDING,
    "shift_labels": SHIFT, "cross_entropy": LOSS, "accuracy": ACCURACY, "mean_pool": POOL, "greedy_decode": GREEDY,
    **MODELS, **small_parts.SOURCES,
}  # fmt: skip
