"""A learner's right code, continued: a whole language model, rotary positions, packed rows, what starts a decoder."""

from __future__ import annotations

MODEL = """
import math
import torch
from torch import nn

class Layer(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.up, self.down = nn.Linear(d_model, 2 * d_model), nn.Linear(2 * d_model, d_model)

    def forward(self, x, past):
        B, T, D = x.shape
        q, k, v = (y.view(B, T, self.n_heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1))
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        S = k.size(2)
        mask = torch.ones(T, S).tril(S - T).bool()
        weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(B, T, D))
        x = x + self.down(torch.relu(self.up(self.norm2(x))))
        return x, (k, v)

class LanguageModel(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_len):
        super().__init__()
        self.token = nn.Embedding(vocab_size, d_model)
        self.position = nn.Embedding(max_len, d_model)
        self.layers = nn.ModuleList([Layer(d_model, n_heads) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(d_model, vocab_size, bias=False)
        self.head.weight = self.token.weight
        nn.init.normal_(self.token.weight, std=0.02)

    def forward(self, tokens, cache=None):
        start = 0 if cache is None else cache[0][0].size(2)
        places = torch.arange(start, start + tokens.size(1))
        x = self.dropout(self.token(tokens) + self.position(places))
        kept = []
        for number, layer in enumerate(self.layers):
            x, new = layer(x, None if cache is None else cache[number])
            kept.append(new)
        return self.head(self.norm(x)), kept
"""

ROTARY = """
import torch

def apply_rotary(x, positions):
    speeds = 10000.0 ** (-torch.arange(0, x.size(-1), 2) / x.size(-1))
    angles = positions[:, None] * speeds
    sin, cos = angles.sin().repeat_interleave(2, -1), angles.cos().repeat_interleave(2, -1)
    first, second = x[..., 0::2], x[..., 1::2]
    other = torch.stack([-second, first], -1).flatten(-2)
    return x * cos + other * sin
"""

DOCUMENT_MASK = """
import torch

def document_mask(documents):
    n = documents.size(1)
    same = documents[:, :, None] == documents[:, None, :]
    return (same & torch.ones(n, n).tril().bool()).unsqueeze(1)
"""

POSITION_IDS = """
def position_ids(keep):
    return (keep.long().cumsum(1) - 1).clamp(min=0)
"""

SHIFT_RIGHT = """
import torch

def shift_right(labels, start_id):
    start = torch.full_like(labels[:, :1], start_id)
    return torch.cat([start, labels[:, :-1]], dim=1)
"""

TRANSLATE = """
import torch

def greedy_translate(model, source, bos_id, eos_id, max_new_tokens):
    was = model.training
    model.eval()
    target = torch.tensor([[bos_id]])
    for _ in range(max_new_tokens):
        following = model(source, target)[:, -1].argmax(-1, keepdim=True)
        target = torch.cat([target, following], dim=1)
        if following.item() == eos_id:
            break
    model.train(was)
    return target
"""

SOURCES = {
    "LanguageModel": MODEL, "apply_rotary": ROTARY, "document_mask": DOCUMENT_MASK, "position_ids": POSITION_IDS,
    "shift_right": SHIFT_RIGHT, "greedy_translate": TRANSLATE,
}  # fmt: skip
