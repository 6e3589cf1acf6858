"""Decoder blocks as learners write them, in two styles, with the mistakes planted in each."""

from __future__ import annotations

from proof.learners import HEADS
from proof.parts import Part

BRANCHES = (
    HEADS
    + """
class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, norm_first=False, activation="relu", dropout=0.1):
        super().__init__()
        self.attention, self.cross = MultiHeadAttention(d_model, n_heads), MultiHeadAttention(d_model, n_heads)
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))
        self.activation = {"relu": torch.relu, "gelu": torch.nn.functional.gelu}[activation]
        self.norm_first, self.dropout = norm_first, nn.Dropout(dropout)

    def feed(self, x):
        return self.down(self.activation(self.up(x)))

    def forward(self, x, memory, mask=None, memory_mask=None):
        drop = self.dropout
        if self.norm_first:
            y = self.norm1(x)
            x = x + drop(self.attention(y, y, y, mask))
            x = x + drop(self.cross(self.norm2(x), memory, memory, memory_mask))
            return x + drop(self.feed(self.norm3(x)))
        x = self.norm1(x + drop(self.attention(x, x, x, mask)))
        x = self.norm2(x + drop(self.cross(x, memory, memory, memory_mask)))
        return self.norm3(x + drop(self.feed(x)))
"""
)
OWN = "self.norm1(x + drop(self.attention(x, x, x, mask)))"
CROSS = "self.cross(x, memory, memory, memory_mask)"
SECOND = f"x = self.norm2(x + drop({CROSS}))"
FIRST = f"x = {OWN}"
READY = "        super().__init__()\n        self.attention, self.cross ="
PRE = "self.norm1(x)\n            x = x + drop(self.attention(y, y, y, mask))"

LAYER = """
import torch
from torch import nn

class DecoderLayer(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1):
        super().__init__()
        self.n_heads = n_heads
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.query, self.pair = nn.Linear(d_model, d_model), nn.Linear(d_model, 2 * d_model)
        self.joined = nn.Linear(d_model, d_model)
        self.ffn = nn.Sequential(nn.Linear(d_model, d_ff), nn.GELU(), nn.Linear(d_ff, d_model), nn.Dropout(dropout))
        self.ln_1, self.ln_2, self.ln_3 = nn.LayerNorm(d_model), nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def attend(self, q, k, v, keep, out):
        q, k, v = (x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for x in (q, k, v))
        scores = torch.einsum("bhtk,bhsk->bhts", q, k) * q.size(-1) ** -0.5
        if keep is not None:
            scores = torch.where(keep, scores, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1)
        if keep is not None:
            weights = weights.masked_fill(~keep.any(-1, keepdim=True), 0.0)
        return out(torch.einsum("bhts,bhsk->bthk", weights, v).flatten(2))

    def forward(self, tgt, memory, tgt_mask=None, memory_mask=None):
        h = self.ln_1(tgt)
        tgt = tgt + self.attend(*self.qkv(h).chunk(3, -1), tgt_mask, self.out)
        h = self.ln_2(tgt)
        tgt = tgt + self.attend(self.query(h), *self.pair(memory).chunk(2, -1), memory_mask, self.joined)
        return tgt + self.ffn(self.ln_3(tgt))
"""
READS = "self.attend(self.query(h), *self.pair(memory).chunk(2, -1), memory_mask, self.joined)"
LINES = """        h = self.ln_1(tgt)
        tgt = tgt + self.attend(*self.qkv(h).chunk(3, -1), tgt_mask, self.out)
"""
LATER = f"""        h = self.ln_2(tgt)
        tgt = tgt + {READS}
"""

PARTS = [
    Part("DecoderBlock", "three inputs, post-norm", BRANCHES, [
        ("the memory is not read", CROSS, "self.cross(x, x, x, memory_mask)"),
        ("query and memory are exchanged", CROSS, "self.cross(memory, x, x, memory_mask)"),
        ("keys or values are not made from their own input", CROSS, "self.cross(x, memory, x, memory_mask)"),
        ("the residual around the cross-attention is missing", SECOND, f"x = self.norm2(drop({CROSS}))"),
        ("the residual around the self-attention is missing", OWN, "self.norm1(self.attention(x, x, x, mask))"),
        ("one attention stands in two places", CROSS, "self.attention(x, memory, memory, memory_mask)"),
        ("the causal mask reaches the memory", CROSS,
         "self.cross(x, memory, memory, memory_mask if mask is None else mask)"),
        ("the memory's mask is ignored", CROSS, "self.cross(x, memory, memory)"),
        ("the mask is inverted", CROSS,
         "self.cross(x, memory, memory, None if memory_mask is None else ~memory_mask)"),
        ("the two masks are exchanged", CROSS, "self.cross(x, memory, memory, mask)", "(x, x, x, mask)",
         "(x, x, x, memory_mask)"),
        ("the branches stand in another order", f"{FIRST}\n        {SECOND}", f"{SECOND}\n        {FIRST}"),
        ("queries read the future", "(x, x, x, mask)", "(x, x, x)"),
        ("the mask is inverted", "(x, x, x, mask)", "(x, x, x, None if mask is None else ~mask)"),
        ("one norm stands in two places", "self.norm2(x + drop", "self.norm1(x + drop"),
        ("the norm of the cross-attention is missing", SECOND, f"x = x + drop({CROSS})"),
        ("the feed-forward has no activation", "self.activation(self.up(x))", "self.up(x)"),
        ("the scale is missing", " / math.sqrt(self.d_head)", ""),
        ("dropout is active in evaluation", "nn.Dropout(dropout)", "lambda x: torch.nn.functional.dropout(x, 0.1)"),
        ("it needs equal numbers of queries and keys", "x.view(x.size(0), x.size(1)", "x.view(x.size(0), 6"),
        ("rows of the batch are mixed", CROSS, "self.cross(x, memory[:1].expand(memory.shape), memory, memory_mask)"),
        ("the block is not put together as documented", "return self.norm3(x + ", "return 2 * self.norm3(x + "),
        ("norm_first changes nothing", "if self.norm_first:", "if False:"),
        ("norm_first means the opposite", "if self.norm_first:", "if not self.norm_first:"),
        ("the residual starts from the normalised stream", PRE,
         "x = self.norm1(x)\n            x = x + drop(self.attention(y, y, y, mask))"),
        ("pre-norm and post-norm are mixed", "return x + drop(self.feed(self.norm3(x)))",
         "return self.norm3(x + drop(self.feed(x)))"),
        ("the norm stands before the sum", "return x + drop(self.feed(self.norm3(x)))",
         "return x + self.norm3(drop(self.feed(x)))"),
        ("the activation by name is ignored", "[activation]", '["relu"]'),
    ]),
    Part("DecoderBlock", "fused maps, pre-norm", LAYER, [
        ("the memory is not read", "self.pair(memory)", "self.pair(h)"),
        ("the residual around the cross-attention is missing", f"tgt = tgt + {READS}", f"tgt = {READS}"),
        ("the causal mask reaches the memory", "memory_mask, self.joined", "tgt_mask, self.joined"),
        ("the memory's mask is ignored", "memory_mask, self.joined", "None, self.joined"),
        ("the two masks are exchanged", "memory_mask, self.joined", "tgt_mask, self.joined", "tgt_mask, self.out",
         "memory_mask, self.out"),
        ("the branches stand in another order", LINES + LATER, LATER + LINES),
        ("queries read the future", "tgt_mask, self.out", "None, self.out"),
        ("one norm stands in two places", "self.ln_2(tgt)", "self.ln_1(tgt)"),
        ("the norm of the self-attention is missing", "h = self.ln_1(tgt)", "h = tgt"),
        ("the mask is inverted", "torch.where(keep,", "torch.where(~keep,"),
        ("heads are mixed: they are merged without a transpose", "bthk", "bhtk", ".flatten(2)", ".reshape(tgt_shape)",
         "def attend(self, q, k, v, keep, out):",
         "def attend(self, q, k, v, keep, out):\n        tgt_shape = q.shape"),
        ("the norm of the feed-forward is missing", "self.ffn(self.ln_3(tgt))", "self.ffn(tgt)"),
    ]),
]  # fmt: skip
