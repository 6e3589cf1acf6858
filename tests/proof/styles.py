"""Right code in many styles, which no check may blame: those of notebooks, of known repositories, of torch.nn."""

from __future__ import annotations

from proof.parts import Part

HEADER = "import math\nimport torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
EINSUM = """
def attention(q, k, v, mask=None):
    scores = torch.einsum("...td,...sd->...ts", q, k) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores + torch.zeros_like(scores).masked_fill(~mask, float("-inf"))
    shifted = scores - scores.amax(-1, keepdim=True).nan_to_num(neginf=0.0)
    weights = shifted.exp()
    weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-30)
    return torch.einsum("...ts,...sd->...td", weights, v)
"""
SCALED_QUERY = """
def scaled_dot_product_attention(query, key, value, attn_mask=None):
    query = query * query.size(-1) ** -0.5
    logits = query @ key.mT
    if attn_mask is not None:
        logits = torch.where(attn_mask, logits, torch.finfo(logits.dtype).min)
    p = (logits - logits.logsumexp(-1, keepdim=True)).exp()
    if attn_mask is not None:
        p = p * attn_mask
    return p @ value, p
"""
PARAMETERS = """
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.h = n_heads
        self.Wq, self.Wk, self.Wv, self.Wo = (
            nn.Parameter(torch.randn(d_model, d_model) / d_model**0.5) for _ in range(4)
        )

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        B, T, D = x.shape
        q, k, v = ((x @ w).view(B, T, self.h, D // self.h).transpose(1, 2) for w in (self.Wq, self.Wk, self.Wv))
        scores = (q @ k.transpose(2, 3)) / math.sqrt(D // self.h)
        if mask is not None:
            scores = scores.masked_fill(mask.logical_not(), -float("inf"))
        return (scores.softmax(3) @ v).transpose(1, 2).reshape(B, T, D) @ self.Wo
"""
LOOP_OF_HEADS = """
class Head(nn.Module):
    def __init__(self, d_model, head_size):
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(d_model, head_size, bias=False) for _ in range(3))

    def forward(self, x, mask=None):
        k, q = self.key(x), self.query(x)
        wei = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
        if mask is not None:
            wei = wei.masked_fill(mask == 0, float("-inf"))
        return F.softmax(wei, dim=-1) @ self.value(x)

class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.heads = nn.ModuleList([Head(d_model, d_model // num_heads) for _ in range(num_heads)])
        self.proj = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x, mask=None):
        return self.dropout(self.proj(torch.cat([h(x, mask) for h in self.heads], dim=-1)))
"""
ANNOTATED = """
import copy

def clones(module, N):
    return nn.ModuleList([copy.deepcopy(module) for _ in range(N)])

def attention(query, key, value, mask=None, dropout=None):
    d_k = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)
    p_attn = scores.softmax(dim=-1)
    if dropout is not None:
        p_attn = dropout(p_attn)
    return torch.matmul(p_attn, value), p_attn

class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        self.d_k, self.h = d_model // h, h
        self.linears = clones(nn.Linear(d_model, d_model), 4)
        self.attn, self.dropout = None, nn.Dropout(p=dropout)

    def forward(self, query, key, value, mask=None):
        if mask is not None and mask.dim() == 3:
            mask = mask.unsqueeze(1)
        nbatches = query.size(0)
        query, key, value = [
            lin(x).view(nbatches, -1, self.h, self.d_k).transpose(1, 2)
            for lin, x in zip(self.linears, (query, key, value))
        ]
        x, self.attn = attention(query, key, value, mask=mask, dropout=self.dropout)
        self.attn = self.attn.detach()
        x = x.transpose(1, 2).contiguous().view(nbatches, -1, self.h * self.d_k)
        return self.linears[-1](x)
"""
NANO = """
class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.n_head, self.n_embd, self.dropout = config.n_head, config.n_embd, config.dropout

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        q, k, v = (y.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))

class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, config.d_ff, bias=config.bias)
        self.gelu = nn.GELU()
        self.c_proj = nn.Linear(config.d_ff, config.n_embd, bias=config.bias)

    def forward(self, x):
        return self.c_proj(self.gelu(self.c_fc(x)))

class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(config.n_embd), CausalSelfAttention(config)
        self.ln_2, self.mlp = nn.LayerNorm(config.n_embd), MLP(config)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))
"""
RMS_BLOCK = """
class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.scale, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.scale

class EncoderBlock(nn.Module):
    def __init__(self, dim, n_heads, hidden_dim):
        super().__init__()
        self.n_heads = n_heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.gate, self.up, self.down = (
            nn.Linear(dim, hidden_dim, bias=False),
            nn.Linear(dim, hidden_dim, bias=False),
            nn.Linear(hidden_dim, dim, bias=False),
        )
        self.attention_norm, self.ffn_norm = RMSNorm(dim), RMSNorm(dim)

    def attend(self, x, mask):
        q, k, v = (w(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        bias = None if mask is None else torch.zeros(mask.shape, dtype=q.dtype).masked_fill(~mask, float("-inf"))
        return self.wo(F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).flatten(2))

    def forward(self, x, mask=None):
        h = x + self.attend(self.attention_norm(x), mask)
        y = self.ffn_norm(h)
        return h + self.down(F.silu(self.gate(y)) * self.up(y))
"""
TORCH_DECODER = """
class DecoderLayer(nn.Module):
    def __init__(self, d_model, nhead, dim_feedforward, dropout=0.1):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d_model, nhead, dropout=dropout, batch_first=True)
        self.multihead_attn = nn.MultiheadAttention(d_model, nhead, dropout=dropout, batch_first=True)
        self.linear1, self.linear2 = nn.Linear(d_model, dim_feedforward), nn.Linear(dim_feedforward, d_model)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def forward(self, tgt, memory, tgt_mask=None, memory_mask=None):
        own = None if tgt_mask is None else ~tgt_mask
        other = None if memory_mask is None else ~memory_mask
        x = self.norm1(tgt + self.dropout(self.self_attn(tgt, tgt, tgt, attn_mask=own, need_weights=False)[0]))
        y = self.multihead_attn(x, memory, memory, attn_mask=other, need_weights=False)[0]
        x = self.norm2(x + self.dropout(y))
        return self.norm3(x + self.dropout(self.linear2(F.relu(self.linear1(x)))))
"""
TORCH_WHOLE = """
class Seq2Seq(nn.Module):
    def __init__(self, src_vocab_size, tgt_vocab_size, emb_size, nhead, num_layers, dim_feedforward, max_len):
        super().__init__()
        self.src, self.tgt = nn.Embedding(src_vocab_size, emb_size), nn.Embedding(tgt_vocab_size, emb_size)
        self.place = nn.Embedding(max_len, emb_size)
        self.transformer = nn.Transformer(
            emb_size, nhead, num_layers, num_layers, dim_feedforward, dropout=0.1, batch_first=True
        )
        self.generator = nn.Linear(emb_size, tgt_vocab_size)

    def embed(self, table, ids):
        return table(ids) + self.place(torch.arange(ids.size(1), device=ids.device))

    def forward(self, source, target, source_keep=None):
        T = target.size(1)
        hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
        pads = None if source_keep is None else ~source_keep
        out = self.transformer(
            self.embed(self.src, source), self.embed(self.tgt, target), tgt_mask=hidden,
            src_key_padding_mask=pads, memory_key_padding_mask=pads,
        )
        return self.generator(out)
"""
OWN_PADDING = """
class Transformer(nn.Module):
    def __init__(self, src_vocab_size, tgt_vocab_size, d_model, num_heads, num_layers, d_ff, max_seq_length, dropout):
        super().__init__()
        self.src, self.tgt = nn.Embedding(src_vocab_size, d_model), nn.Embedding(tgt_vocab_size, d_model)
        self.place = nn.Embedding(max_seq_length, d_model)
        self.transformer = nn.Transformer(
            d_model, num_heads, num_layers, num_layers, d_ff, dropout=dropout, batch_first=True
        )
        self.fc, self.num_heads = nn.Linear(d_model, tgt_vocab_size), num_heads

    def embed(self, table, ids):
        return table(ids) + self.place(torch.arange(ids.size(1)))

    def forward(self, src, tgt):
        T = tgt.size(1)
        readable = torch.ones(T, T, dtype=torch.bool).tril() & (tgt != 0)[:, :, None]
        hidden = torch.zeros(readable.shape, dtype=self.fc.weight.dtype).masked_fill(~readable, -1e9)
        hidden = hidden.repeat_interleave(self.num_heads, 0)
        out = self.transformer(
            self.embed(self.src, src), self.embed(self.tgt, tgt), tgt_mask=hidden,
            src_key_padding_mask=src == 0, memory_key_padding_mask=src == 0,
        )
        return self.fc(out)
"""
TORCH_ENCODER = """
class TransformerEncoder(nn.Module):
    def __init__(self, vocab_size, d_model, nhead, num_layers, dim_feedforward, max_len=32):
        super().__init__()
        self.embedding, self.d_model = nn.Embedding(vocab_size, d_model), d_model
        self.layers = nn.ModuleList()
        for _ in range(num_layers):
            layer = nn.TransformerEncoderLayer(d_model, nhead, dim_feedforward, dropout=0.1, batch_first=True)
            self.layers.append(layer)

    def forward(self, ids, keep=None):
        x = self.embedding(ids) * math.sqrt(self.d_model)
        place = torch.arange(ids.size(1), dtype=x.dtype)[:, None]
        rate = torch.exp(torch.arange(0, self.d_model, 2, dtype=x.dtype) * -(math.log(10000.0) / self.d_model))
        x = x + torch.cat([(place * rate).sin(), (place * rate).cos()], -1)
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=None if keep is None else ~keep)
        return x
"""
CONFIG = """
from dataclasses import dataclass

@dataclass
class Config:
    n_embd: int = 768
    n_head: int = 12
    block_size: int = 1024
    attn_pdrop: float = 0.1
    flash: bool = False

class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(config.n_embd, 3 * config.n_embd), nn.Linear(config.n_embd, config.n_embd)
        self.drop, self.n_head, self.flash = nn.Dropout(config.attn_pdrop), config.n_head, config.flash
        self.register_buffer("bias", torch.ones(config.block_size, config.block_size).tril()[None, None])

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (y.view(B, T, self.n_head, -1).transpose(1, 2) for y in self.c_attn(x).split(C, dim=2))
        att = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        y = self.drop(att.softmax(-1)) @ v
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))

class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x)))
"""
LAYERS = """
class MultiHeadAttentionLayer(nn.Module):
    def __init__(self, hid_dim, n_heads, dropout, device):
        super().__init__()
        self.hid_dim, self.n_heads, self.dropout = hid_dim, n_heads, nn.Dropout(dropout)
        self.fc_q, self.fc_k, self.fc_v, self.fc_o = (nn.Linear(hid_dim, hid_dim) for _ in range(4))
        self.scale = torch.tensor(hid_dim // n_heads, device=device).double().sqrt().item()

    def forward(self, query, key, value, mask):
        B = query.shape[0]
        q, k, v = (
            f(x).view(B, -1, self.n_heads, self.hid_dim // self.n_heads).permute(0, 2, 1, 3)
            for f, x in ((self.fc_q, query), (self.fc_k, key), (self.fc_v, value))
        )
        energy = q @ k.permute(0, 1, 3, 2) / self.scale
        if mask is not None:
            energy = energy.masked_fill(mask == 0, float("-inf"))
        x = self.dropout(energy.softmax(-1)) @ v
        return self.fc_o(x.permute(0, 2, 1, 3).reshape(B, -1, self.hid_dim))

class PositionwiseFeedforwardLayer(nn.Module):
    def __init__(self, hid_dim, pf_dim, dropout):
        super().__init__()
        self.fc_1, self.fc_2, self.dropout = nn.Linear(hid_dim, pf_dim), nn.Linear(pf_dim, hid_dim), nn.Dropout(dropout)

    def forward(self, x):
        return self.fc_2(self.dropout(torch.relu(self.fc_1(x))))

class EncoderLayer(nn.Module):
    def __init__(self, hid_dim, n_heads, pf_dim, dropout, device):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(hid_dim), nn.LayerNorm(hid_dim)
        self.attention = MultiHeadAttentionLayer(hid_dim, n_heads, dropout, device)
        self.feed_forward = PositionwiseFeedforwardLayer(hid_dim, pf_dim, dropout)

    def forward(self, src, src_mask):
        src = self.norm_1(src + self.attention(src, src, src, src_mask))
        return self.norm_2(src + self.feed_forward(src))
"""
QUERY_LAST = """
class SelfAttention(nn.Module):
    def __init__(self, embed_size, heads):
        super().__init__()
        self.heads = heads
        self.values, self.keys, self.queries, self.fc_out = (nn.Linear(embed_size, embed_size) for _ in range(4))

    def forward(self, values, keys, query, mask):
        v, k, q = (
            f(x).unflatten(-1, (self.heads, -1))
            for f, x in ((self.values, values), (self.keys, keys), (self.queries, query))
        )
        energy = torch.einsum("nqhd,nkhd->nhqk", q, k) / q.shape[-1] ** 0.5
        if mask is not None:
            energy = energy.masked_fill(mask == 0, float("-inf"))
        return self.fc_out(torch.einsum("nhql,nlhd->nqhd", energy.softmax(-1), v).flatten(2))
"""
EXPANDED = """
class FeedFoward(nn.Module):
    def __init__(self, n_embd):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.ReLU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        return self.net(x)
"""
NDIM = """
class LayerNorm(nn.Module):
    def __init__(self, ndim, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(ndim))
        self.bias = nn.Parameter(torch.zeros(ndim)) if bias else None

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-6)
"""
DROPOUT_SECOND = """
class PositionalEncoding(nn.Module):
    def __init__(self, emb, dropout, maxlen=5000):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        table = torch.zeros(maxlen, emb)
        angle = torch.arange(maxlen)[:, None] * torch.exp(torch.arange(0, emb, 2) * -(math.log(10000.0) / emb))
        table[:, 0::2], table[:, 1::2] = angle.sin(), angle.cos()[:, : emb // 2]
        self.register_buffer("table", table[None])

    def forward(self, x):
        return self.dropout(x + self.table[:, : x.size(1)])
"""
BOOK = """
GPT_CONFIG = {"vocab_size": 50257, "context_length": 1024, "emb_dim": 768, "n_heads": 12, "drop_rate": 0.1}
GPT_CONFIG |= {"n_layers": 12, "qkv_bias": False}

class MultiHeadAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        self.num_heads, self.dropout, self.out_proj = num_heads, nn.Dropout(dropout), nn.Linear(d_out, d_out)
        self.W_query, self.W_key, self.W_value = (nn.Linear(d_in, d_out, bias=qkv_bias) for _ in range(3))
        self.register_buffer("mask", torch.ones(context_length, context_length).triu(diagonal=1).bool())

    def forward(self, x):
        b, n, d = x.shape
        maps = self.W_query, self.W_key, self.W_value
        q, k, v = (each(x).view(b, n, self.num_heads, -1).transpose(1, 2) for each in maps)
        scores = (q @ k.mT).masked_fill_(self.mask[:n, :n], -torch.inf)
        weights = self.dropout(torch.softmax(scores / k.shape[-1] ** 0.5, dim=-1, dtype=torch.float32).to(q))
        return self.out_proj((weights @ v).transpose(1, 2).reshape(b, n, d))

class FeedForward(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        inner = cfg.get("d_ff", 4 * cfg["emb_dim"])
        self.layers = nn.Sequential(nn.Linear(cfg["emb_dim"], inner), nn.GELU(), nn.Linear(inner, cfg["emb_dim"]))

    def forward(self, x):
        return self.layers(x)

class TransformerBlock(nn.Module):
    def __init__(self, layer_idx, cfg):
        super().__init__()
        self.att = MultiHeadAttention(
            d_in=cfg["emb_dim"], d_out=cfg["emb_dim"], context_length=cfg["context_length"],
            num_heads=cfg["n_heads"], dropout=cfg["drop_rate"], qkv_bias=cfg["qkv_bias"],
        )
        self.ff, self.drop = FeedForward(cfg), nn.Dropout(cfg["drop_rate"])
        self.norm1, self.norm2 = nn.LayerNorm(cfg["emb_dim"]), nn.LayerNorm(cfg["emb_dim"])

    def forward(self, x):
        x = x + self.drop(self.att(self.norm1(x)))
        return x + self.drop(self.ff(self.norm2(x)))
"""
HEADS_IN_A_BLOCK = """
class AttentionHead(nn.Module):
    def __init__(self, embed_dim, head_dim):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(embed_dim, head_dim) for _ in range(3))

    def forward(self, x):
        scores = self.q(x) @ self.k(x).mT / math.sqrt(self.k.out_features)
        return scores.softmax(-1) @ self.v(x)

class EncoderLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        e, h = config.hidden_size, config.num_attention_heads
        self.heads, self.output = nn.ModuleList([AttentionHead(e, e // h) for _ in range(h)]), nn.Linear(e, e)
        self.norm_1, self.norm_2 = nn.LayerNorm(e), nn.LayerNorm(e)
        self.linear_1, self.linear_2 = nn.Linear(e, config.intermediate_size), nn.Linear(config.intermediate_size, e)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, x):
        y = self.norm_1(x)
        x = x + self.output(torch.cat([head(y) for head in self.heads], dim=-1))
        return x + self.dropout(self.linear_2(F.gelu(self.linear_1(self.norm_2(x)))))
"""
CONVOLUTION = """
class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.inner, self.outer = nn.Conv1d(d_model, d_ff, 1), nn.Conv1d(d_ff, d_model, 1)

    def forward(self, x):
        return self.outer(F.relu(self.inner(x.transpose(1, 2)))).transpose(1, 2)
"""
EXPONENTIALS = """
def positional_encoding(length, d_model):
    rates = torch.exp(-math.log(10000.0) * torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates
    turned = torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flip(-1).flatten(1)[:, :d_model]
"""
IN_FORWARD = """
class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout=0.1, max_len=5000):
        super().__init__()
        self.dropout, self.d_model, self.max_len = nn.Dropout(dropout), d_model, max_len

    def forward(self, x):
        if x.shape[1] > self.max_len:
            raise ValueError("too long")
        rate = 10000 ** (-torch.arange(0, self.d_model, 2) / self.d_model)
        angle = torch.arange(x.shape[1])[:, None] * rate
        table = torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[:, : self.d_model]
        return self.dropout(x + table.to(x))
"""
WRITTEN_OUT = """
from dataclasses import dataclass

@dataclass
class Groessen:
    breite: int
    koepfe: int

class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.groessen = Groessen(d_model, n_heads)
        self.frage, self.schluessel, self.wert = (nn.Linear(d_model, d_model) for _ in range(3))
        self.ausgabe = nn.Linear(d_model, d_model)

    def forward(self, eingabe, maske=None):
        zeilen, laenge, breite = eingabe.shape
        koepfe = self.groessen.koepfe
        f, s, w = (
            teil(eingabe).view(zeilen, laenge, koepfe, breite // koepfe).permute(0, 2, 1, 3)
            for teil in (self.frage, self.schluessel, self.wert)
        )
        punkte = f @ s.transpose(-1, -2) * (breite // koepfe) ** -0.5
        if maske is not None:
            punkte = punkte.masked_fill(~maske, float("-inf"))
        return self.ausgabe((punkte.softmax(-1) @ w).permute(0, 2, 1, 3).flatten(2))
"""

PARTS = [
    Part("attention", "einsum, exponentials by hand", HEADER + EINSUM),
    Part("attention", "the root in the query, logsumexp", HEADER + SCALED_QUERY),
    Part("MultiHeadAttention", "bare parameters", HEADER + PARAMETERS),
    Part("MultiHeadAttention", "a loop over small heads", HEADER + LOOP_OF_HEADS),
    Part("MultiHeadAttention", "four clones", HEADER + ANNOTATED),
    Part("MultiHeadAttention", "other language", HEADER + WRITTEN_OUT),
    Part("MultiHeadAttention", "causal inside", HEADER + NANO.split("class MLP")[0]),
    Part("FeedForward", "from a config", HEADER + NANO.split("class Block")[0]),
    Part("MultiHeadAttention", "a config with defaults, causal by a buffer", HEADER + CONFIG.split("class MLP")[0], [
        ("queries read the future", 'att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))', "pass"),
    ]),
    Part("MultiHeadAttention", "a mask and a device that must be given", HEADER + LAYERS.split("class Pos")[0]),
    Part("MultiHeadAttention", "the query last, many heads in SelfAttention", HEADER + QUERY_LAST),
    Part("MultiHeadAttention", "two widths, softmax in float32", HEADER + BOOK.split("class Feed")[0]),
    Part("FeedForward", "a dictionary of settings", HEADER + BOOK.split("class Trans")[0]),
    Part("TransformerBlock", "a dictionary of settings and a number", HEADER + BOOK),
    Part("TransformerBlock", "small heads", HEADER + HEADS_IN_A_BLOCK, [
        ("the residual around the attention is missing", "x = x + self.output", "x = self.output"),
    ]),
    Part("FeedForward", "a config without d_ff", HEADER + CONFIG),
    Part("FeedForward", "four times as wide", HEADER + EXPANDED),
    Part("FeedForward", "dropout must be given", HEADER + LAYERS.split("class Enc")[0]),
    Part("TransformerBlock", "a mask, dropout and a device that must be given", HEADER + LAYERS),
    Part("LayerNorm", "a bias that must be given, another eps", HEADER + NDIM, [
        ("eps stands outside the root", "F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-6)",
         "(x - x.mean(-1, True)) / (x.std(-1, correction=0, keepdim=True) + 1e-6) * self.weight + self.bias"),
    ]),
    Part("PositionalEncoding", "dropout must be given, before max_len", HEADER + DROPOUT_SECOND),
    Part("TransformerBlock", "from a config, causal inside", HEADER + NANO),
    Part("TransformerBlock", "RMS norms, gated", HEADER + RMS_BLOCK),
    Part("DecoderBlock", "torch's attention", HEADER + TORCH_DECODER),
    Part("Transformer", "torch's transformer", HEADER + TORCH_WHOLE),
    Part("Transformer", "hides its own padding", HEADER + OWN_PADDING),
    Part("TokenEncoder", "torch's layers, table in forward", HEADER + TORCH_ENCODER),
    Part("FeedForward", "convolutions of width 1", HEADER + CONVOLUTION),
    Part("positional_encoding", "complex exponentials", HEADER + EXPONENTIALS),
    Part("PositionalEncoding", "made in forward", HEADER + IN_FORWARD),
    Part("causal_mask", "two ranges", HEADER + "def causal_mask(n):\n    i = torch.arange(n)\n"
         "    return (i[None] <= i[:, None])[None, None]\n"),
    Part("padding_mask", "by lists", HEADER + "def padding_mask(lengths, n):\n"
         "    return torch.tensor([[i < length for i in range(n)] for length in lengths.tolist()])\n"),
    Part("cross_entropy", "torch's own", HEADER + "def cross_entropy(logits, targets, pad_id):\n"
         "    return F.cross_entropy(logits.transpose(1, 2), targets, ignore_index=pad_id)\n"),
    Part("accuracy", "a selection", HEADER + "def accuracy(logits, targets, pad_id):\n"
         "    real = targets.ne(pad_id)\n    return logits[real].argmax(-1).eq(targets[real]).float().mean().item()\n"),
    Part("greedy_decode", "a list of ids", HEADER + "@torch.no_grad()\ndef greedy_decode(model, prompt, eos_id, n):\n"
         "    ids = prompt[0].tolist()\n    for _ in range(n):\n"
         "        ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))\n"
         "        if ids[-1] == eos_id:\n            break\n    return ids\n"),
    Part("shift_right", "in place on a copy", HEADER + "def shift_right(labels, start_id):\n"
         "    out = labels.new_zeros(labels.shape)\n    out[:, 1:] = labels[:, :-1].clone()\n"
         "    out[:, 0] = start_id\n    return out\n"),
    Part("softmax", "float16 kept, max with values", HEADER + "def softmax(scores, dim=-1):\n"
         "    top, _ = torch.max(scores, dim=dim, keepdim=True)\n    e = torch.exp(scores - top)\n"
         "    return torch.div(e, torch.sum(e, dim=dim, keepdim=True))\n"),
    Part("LayerNorm", "moments", HEADER + "class LayerNorm(nn.Module):\n    def __init__(self, features, eps=1e-5):\n"
         "        super().__init__()\n        self.gamma = nn.Parameter(torch.ones(features))\n"
         "        self.beta = nn.Parameter(torch.zeros(features))\n        self.eps = eps\n\n"
         "    def forward(self, x):\n        mean = x.mean(-1, keepdim=True)\n"
         "        var = (x * x).mean(-1, keepdim=True) - mean * mean\n"
         "        return self.gamma * (x - mean) * torch.rsqrt(var + self.eps) + self.beta\n"),
]  # fmt: skip
