import torch
from torch import nn


# 5.1 A batch
def pad_batch(rows, pad_id=0):
    """Lists of ids to (ids [B, T], lengths [B])."""
    lengths = [len(row) for row in rows]
    ids = [[*row, *[pad_id] * (max(lengths) - len(row))] for row in rows]
    return torch.tensor(ids), torch.tensor(lengths)


# 5.2 Teacher forcing
def shift_right(labels, start_id):
    """labels [B, T] to what the decoder reads, [B, T]."""
    start = torch.full_like(labels[:, :1], start_id)
    return torch.cat([start, labels[:, :-1]], dim=1)


# 5.3 The transformer
class Transformer(nn.Module):
    """source [B, S], target [B, T] to logits [B, T, target_vocab]."""

    def __init__(self, source_vocab, target_vocab, d_model, n_heads, n_layers, d_ff, max_len, dropout=0.0):
        super().__init__()
        self.encoder = TokenEncoder(source_vocab, d_model, n_heads, n_layers, d_ff, max_len, dropout=dropout)
        self.embedding = TokenEmbedding(target_vocab, d_model)
        self.positions = PositionalEncoding(d_model, max_len, dropout)
        self.decoder = nn.ModuleList([DecoderBlock(d_model, n_heads, d_ff, dropout=dropout) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(d_model)
        self.output = nn.Linear(d_model, target_vocab)

    def encode(self, source, source_keep=None):
        return self.encoder(source)

    def decode(self, target, memory, source_keep=None):
        x = self.positions(self.embedding(target))
        mask = causal_mask(target.size(1)).to(target.device)
        for block in self.decoder:
            x = block(x, memory, mask)
        return self.output(self.norm(x))

    def forward(self, source, target, source_keep=None):
        return self.decode(target, self.encode(source, source_keep), source_keep)


# 5.4 Padding changes nothing
class Transformer(nn.Module):
    def __init__(self, source_vocab, target_vocab, d_model, n_heads, n_layers, d_ff, max_len, dropout=0.0):
        super().__init__()
        self.encoder = TokenEncoder(source_vocab, d_model, n_heads, n_layers, d_ff, max_len, dropout=dropout)
        self.embedding = TokenEmbedding(target_vocab, d_model)
        self.positions = PositionalEncoding(d_model, max_len, dropout)
        self.decoder = nn.ModuleList([DecoderBlock(d_model, n_heads, d_ff, dropout=dropout) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(d_model)
        self.output = nn.Linear(d_model, target_vocab)

    def encode(self, source, source_keep=None):
        return self.encoder(source, None if source_keep is None else source_keep[:, None, None])

    def decode(self, target, memory, source_keep=None):
        x = self.positions(self.embedding(target))
        mask = causal_mask(target.size(1)).to(target.device)
        keep = None if source_keep is None else source_keep[:, None, None]
        for block in self.decoder:
            x = block(x, memory, mask, keep)
        return self.output(self.norm(x))

    def forward(self, source, target, source_keep=None):
        return self.decode(target, self.encode(source, source_keep), source_keep)


# 5.5 A good start
def init_weights(model):
    """Draws the start values of all matrices, in place."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)


# 5.6 Write
@torch.no_grad()
def greedy_translate(model, source, bos_id, eos_id, max_new_tokens):
    """source [1, S] to what was written, [1, n], bos_id first."""
    was = model.training
    model.eval()
    target = torch.full((1, 1), bos_id)
    for _ in range(max_new_tokens):
        following = model(source, target)[:, -1].argmax(-1, keepdim=True)
        target = torch.cat([target, following], dim=1)
        if following.item() == eos_id:
            break
    model.train(was)
    return target
