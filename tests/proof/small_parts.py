"""Small parts as a learner writes them, right and in other styles, and the mistakes planted in them."""

from __future__ import annotations

SOFTMAX = """
def softmax(scores, dim=-1):
    e = (scores - scores.amax(dim, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)
"""
SPLIT = """
def split_heads(x, n_heads):
    B, T, D = x.shape
    return x.view(B, T, n_heads, D // n_heads).transpose(1, 2)
"""
MERGE = """
def merge_heads(x):
    B, H, T, K = x.shape
    return x.transpose(1, 2).reshape(B, T, H * K)
"""
FEED = """
import torch
from torch import nn

class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.down(self.drop(torch.relu(self.up(x))))
"""
NORM = """
import torch
from torch import nn

class LayerNorm(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        var = (x - mean).square().mean(-1, keepdim=True)
        return (x - mean) / (var + self.eps).sqrt() * self.weight + self.bias
"""
EMBEDDING = """
import math
import torch
from torch import nn

class TokenEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.table = nn.Embedding(vocab_size, d_model)
        self.d_model = d_model

    def forward(self, ids):
        return self.table(ids) * math.sqrt(self.d_model)
"""
EXAMPLE = """
import torch

def make_example(symbols, task):
    answer = {"copy": symbols, "reverse": symbols.flip(0), "sort": symbols.sort()[0]}[task]
    blank, separator, zero = torch.zeros_like(symbols), symbols.new_ones(1), symbols.new_zeros(1)
    inputs = torch.cat([symbols, separator, blank])
    targets = torch.cat([blank, zero, answer])
    return inputs, targets
"""
BATCH = """
import torch

def pad_batch(rows, pad_id=0):
    lengths = [len(row) for row in rows]
    T = max(lengths)
    ids = torch.full((len(rows), T), pad_id)
    for i, row in enumerate(rows):
        row = row[:T]
        ids[i, :len(row)] = torch.tensor(row, dtype=torch.long)
    return ids, torch.tensor(lengths)
"""
EXACT = """
def exact_match(logits, targets, pad_id):
    right = logits.argmax(-1) == targets
    return (right | (targets == pad_id)).all(-1).double().mean()
"""
SELF = """
import math
import torch
from torch import nn

class SelfAttention(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.d_model = d_model
        self.query, self.key, self.value = (nn.Linear(d_model, d_model) for _ in range(3))
        self.out = nn.Linear(d_model, d_model)
        self.drop = nn.Dropout(0.1)

    def forward(self, x, mask=None):
        q, k, v = self.query(x), self.key(x), self.value(x)
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_model)
        if mask is not None:
            mask = mask[:, 0] if mask.ndim == 4 else mask
            scores = scores.masked_fill(~mask, float("-inf"))
            scores = torch.where(mask.any(-1, keepdim=True), scores, 0.0)
        weights = self.drop(torch.softmax(scores, dim=-1))
        if mask is not None:
            weights = weights * mask.any(-1, keepdim=True)
        return self.out(weights @ v)
"""
SOURCES = {
    "SelfAttention": SELF, "make_example": EXAMPLE, "pad_batch": BATCH, "exact_match": EXACT, "softmax": SOFTMAX,
    "split_heads": SPLIT, "merge_heads": MERGE, "FeedForward": FEED, "LayerNorm": NORM, "TokenEmbedding": EMBEDDING,
}  # fmt: skip

SHIFT, BY_MAX = "(scores - scores.amax(dim, keepdim=True)).exp()", "scores.amax(dim, keepdim=True)"
BETWEEN = "self.down(self.drop(torch.relu(self.up(x))))"
CENTRED = "(x - mean) / (var + self.eps).sqrt()"
SELF_MAPS = SELF.split("self.d_model = d_model\n")[1].split("        self.drop")[0]
ANEW = """        kept = [nn.Linear(d_model, d_model).double().eval() for _ in range(4)]
        self.query, self.key, self.value, self.out = (each.forward for each in kept)
"""
LAST_LINES = """
    def forward(self, ids):
        return self.table(ids) * math.sqrt(self.d_model)
"""
AT_START = """        nn.init.normal_(self.table.weight, std=math.sqrt(d_model))

    def forward(self, ids):
        return self.table(ids)
"""
VAR = "(x - mean).square().mean(-1, keepdim=True)"
MAPS = "self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)"
PLANTED = {
    "SelfAttention": [
        ("the output map is missing", "self.out(weights @ v)", "weights @ v"),
        ("the residual stands inside the attention", "return self.out", "return x + self.out"),
        ("one map serves twice", "self.value(x)", "self.key(x)"),
        ("one map serves twice", "self.value(x)\n", "None\n        v = k\n"),
        ("query, key and value are confused", "q, k, v =", "k, q, v ="),
        ("the softmax runs over the batch", "dim=-1)", "dim=0)"),
        ("the softmax runs over the queries", "dim=-1)", "dim=-2)"),
        ("the scale is missing", " / math.sqrt(self.d_model)", ""),
        ("the parameters are not registered", SELF_MAPS, ANEW),
        ("the mask is inverted", '~mask, float("-inf")', 'mask, float("-inf")'),
    ],
    "make_example": [
        ("the answer stands one place early", "[blank, zero, answer]", "[blank, answer, zero]"),
        ("the inputs contain the answer", "[symbols, separator, blank]", "[symbols, separator, answer]"),
        ("the separator is missing", "[symbols, separator, blank]", "[symbols, zero, blank]"),
        ("the separator is missing", "[symbols, separator, blank]", "[symbols, blank]"),
        ("the source is a target too", "[blank, zero, answer]", "[symbols, zero, answer]"),
        ("the order is reversed", "symbols.sort()", "symbols.sort(descending=True)"),
        ("repeated symbols are lost", "symbols.sort()[0]", "symbols.unique()"),
        ("the symbols are changed", "    return", "    symbols.copy_(symbols.sort()[0])\n    return"),
        ("the result is not the documented one", "return inputs, targets", "return targets, inputs"),
    ],
    "pad_batch": [
        ("padding is expected on the left", "ids[i, :len(row)]", "ids[i, T - len(row):]"),
        ("the first row's length is used", "max(lengths)", "lengths[0]; lengths = [min(n, T) for n in lengths]"),
        ("rows are cut", "max(lengths)", "min(lengths); lengths = [min(n, T) for n in lengths]"),
        ("lengths are guessed from the ids", "torch.tensor(lengths)", "(ids != pad_id).sum(1)"),
        ("ids are not whole numbers", "return ids,", "return ids.float(),"),
        ("the result is not the documented one", "torch.tensor(lengths)", "torch.tensor(lengths) + 1"),
    ],
    "exact_match": [
        ("padding must be right too", " | (targets == pad_id)", ""),
        ("tokens are counted instead of rows", ".all(-1).double().mean()", "[targets != pad_id].double().mean()"),
        ("tokens are counted instead of rows", "(right | (targets == pad_id)).all(-1)", "right"),
        ("one right token is enough", "(right | (targets == pad_id)).all(-1)", "(right & (targets != pad_id)).any(-1)"),
        ("the result is not the documented one", ".mean()", ".sum()"),
    ],
    "softmax": [
        ("the softmax runs over all entries", "e.sum(dim, keepdim=True)", "e.sum()"),
        ("the argument dim is ignored", SHIFT, "(scores - scores.amax(-1, keepdim=True)).exp(); dim = -1"),
        ("large scores overflow", SHIFT, "scores.exp()"),
        ("a row far below the others gives NaN", BY_MAX, "scores.amax()"),
        ("the base is 2 instead of e", SHIFT, "2 ** (scores - scores.amax(dim, keepdim=True))"),
        ("the weights are not exponentials", SHIFT, "scores.abs()"),
        ("the result is not the documented one", "return e", "return 2 * e"),
    ],
    "split_heads": [
        ("heads are mixed: they are split without a transpose", "view(B, T, n_heads, D // n_heads).transpose(1, 2)",
         "reshape(B, n_heads, T, D // n_heads)"),
        ("heads take every H-th number", "view(B, T, n_heads, D // n_heads).transpose(1, 2)",
         "view(B, T, D // n_heads, n_heads).permute(0, 3, 1, 2)"),
        ("attention runs across the heads instead of the positions", ".transpose(1, 2)", ""),
        ("it fails on a tensor that is not contiguous", "return x.view", "return x.view(-1).view"),
    ],
    "merge_heads": [
        ("heads are mixed: they are merged without a transpose", ".transpose(1, 2)", ""),
        ("heads take every H-th number", ".transpose(1, 2)", ".permute(0, 2, 3, 1)"),
        ("it fails on a tensor that is not contiguous", "reshape", "view"),
    ],
    "FeedForward": [
        ("the feed-forward has no activation", "torch.relu(self.up(x))", "self.up(x)"),
        ("the activation stands after the last map", BETWEEN, "torch.relu(self.down(self.drop(self.up(x))))"),
        ("an activation follows the last map", BETWEEN, f"torch.relu({BETWEEN})"),
        ("the inner width is not d_ff", MAPS, "d_ff = 4 * d_model; " + MAPS),
        ("positions are mixed", "return ", "x = x.cumsum(1); return "),
        ("the residual stands inside the feed-forward", BETWEEN, f"x + {BETWEEN}"),
        ("dropout is active in evaluation", "self.drop(", "nn.functional.dropout("),
        ("the output has the wrong shape", MAPS, "self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, 1)"),
    ],
    "LayerNorm": [
        ("the variance is unbiased", VAR, "x.var(-1, keepdim=True)"),
        ("eps stands outside the root", "(var + self.eps).sqrt()", "(var.sqrt() + self.eps)"),
        ("a constant row gives NaN", "(var + self.eps).sqrt()", "var.sqrt()"),
        ("the norm runs over the positions", "(-1, keepdim=True)", "(1, keepdim=True)"),
        ("the norm runs over the whole tensor", "(-1, keepdim=True)", "()"),
        ("the shift is missing", " + self.bias", ""),
        ("the weight starts at 0", "torch.ones", "torch.zeros"),
        ("the mean is not subtracted", CENTRED, "x / (var + self.eps).sqrt()"),
    ],
    "TokenEmbedding": [
        ("embeddings are not scaled", " * math.sqrt(self.d_model)", ""),
        ("the embedding is divided by the root", "* math", "/ math"),
        ("the factor is d_model instead of its root", "math.sqrt(self.d_model)", "self.d_model"),
        ("the table is not a parameter", "nn.Embedding(vocab_size, d_model)",
         "torch.randn(vocab_size, d_model, dtype=torch.float64).__getitem__"),
        ("the factor is only in the start values", LAST_LINES, AT_START),
    ],
}  # fmt: skip


def replaced(text: str, *pairs: tuple[str, str]) -> str:
    for before, after in pairs:
        assert before in text
        text = text.replace(before, after)
    return text


GATED = """
from torch import nn

class MLP(nn.Module):
    def __init__(self, dim, hidden_dim):
        super().__init__()
        self.gate, self.up = nn.Linear(dim, hidden_dim), nn.Linear(dim, hidden_dim)
        self.down = nn.Linear(hidden_dim, dim)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))
"""
CONFIG = """
from torch import nn

class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, config.d_ff, bias=config.bias)
        self.c_proj = nn.Linear(config.d_ff, config.n_embd, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x):
        return self.dropout(self.c_proj(nn.functional.gelu(self.c_fc(x))))
"""
SEQUENTIAL = """
from torch import nn

class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.1):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Dropout(dropout), nn.Linear(d_ff, d_model))

    def forward(self, x):
        return self.net(x)
"""
WITHOUT_SIZE = """
from torch import nn

class PositionwiseFeedForward(nn.Module):
    def __init__(self, d_model, d_ff=None, dropout=0.1):
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(d_model, d_ff or 4 * d_model), nn.Linear(d_ff or 4 * d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.w_2(self.dropout(self.w_1(x).relu()))
"""
RIGHT = [
    ("SelfAttention", replaced(SELF, ("self.query, self.key, self.value = (nn.Linear(d_model, d_model) "
                                      "for _ in range(3))",
                                      "self.qkv = nn.Linear(d_model, 3 * d_model)"),
                               ("self.query(x), self.key(x), self.value(x)", "self.qkv(x).chunk(3, -1)"))),
    ("SelfAttention", replaced(SELF, ("(d_model, d_model)", "(d_model, d_model, bias=False)"), ("query", "to_q"))),
    ("exact_match", "def exact_match(scores, labels, pad):\n"
                    "    wrong = (scores.argmax(-1) != labels) & (labels != pad)\n"
                    "    return float((wrong.sum(1) == 0).float().mean())\n"),
    ("pad_batch", "import torch\nfrom torch.nn.utils.rnn import pad_sequence\ndef pad_batch(sequences, pad_id=0):\n"
                  "    rows = [torch.tensor(s, dtype=torch.long) for s in sequences]\n"
                  "    lengths = torch.tensor([len(s) for s in rows])\n"
                  "    return pad_sequence(rows, batch_first=True, padding_value=pad_id), lengths\n"),
    ("make_example", "import torch\ndef make_example(symbols, task):\n    s = symbols.tolist()\n"
                     "    a = s[::-1] if task == 'reverse' else sorted(s) if task == 'sort' else s\n"
                     "    return torch.tensor(s + [1] + [0] * len(s)), torch.tensor([0] * (len(s) + 1) + a)\n"),
    ("softmax", "def softmax(scores, dim=-1):\n    return (scores - scores.logsumexp(dim, True)).exp()\n"),
    ("softmax", replaced(SOFTMAX, ("scores", "x"), ("amax(dim, keepdim=True)", "max(dim, keepdim=True)[0]"))),
    ("split_heads", "def split_heads(x, h):\n    return x.unflatten(-1, (h, -1)).transpose(1, 2)\n"),
    ("split_heads", "import torch\ndef split_heads(x, n_head):\n    return torch.stack(x.chunk(n_head, -1), 1)\n"),
    ("merge_heads", "def merge_heads(x):\n    return x.transpose(1, 2).contiguous().flatten(2)\n"),
    ("merge_heads", "import torch\ndef merge_heads(x):\n    return torch.cat(x.unbind(1), -1)\n"),
    ("FeedForward", GATED),
    ("FeedForward", CONFIG),
    ("FeedForward", SEQUENTIAL),
    ("FeedForward", WITHOUT_SIZE),
    ("LayerNorm", replaced(NORM, (VAR, "x.var(-1, keepdim=True, unbiased=False)"))),
    ("LayerNorm", replaced(NORM, ("d_model", "features"), ("weight", "a_2"), ("bias", "b_2"))),
    ("LayerNorm", replaced(NORM, ("d_model", "normalized_shape"), ("eps).sqrt()", "eps) ** 0.5"))),
    ("TokenEmbedding", replaced(EMBEDDING, ("vocab_size, d_model):", "d_model, vocab):"), ("(vocab_size", "(vocab"))),
    ("TokenEmbedding", replaced(EMBEDDING, ("nn.Embedding(vocab_size, d_model)", "nn.Parameter(torch.randn(vocab_size, "
                                            "d_model))"), ("self.table(ids)", "self.table[ids]"))),
]  # fmt: skip
