import torch
from torch import nn


# 2.1 The mask
def attention(q, k, v, mask=None):
    """q [..., T, K], k and v [..., S, K] to (output [..., T, K], weights [..., T, S])."""
    raise NotImplementedError("exercise 2.1")


class MultiHeadAttention(nn.Module):
    """x [B, T, D] to [B, T, D]; self.weights keeps the last weights, [B, H, T, S]."""

    def __init__(self, d_model, n_heads):
        super().__init__()

    def forward(self, x, mask=None):
        raise NotImplementedError("exercise 2.1")


# 2.2 Padding mask
def padding_mask(lengths, n):
    """lengths [B] to [B, 1, 1, n], boolean, True at the first `length` places."""
    raise NotImplementedError("exercise 2.2")


# 2.3 Nothing to read
def attention(q, k, v, mask=None):
    """q [..., T, K], k and v [..., S, K] to (output [..., T, K], weights [..., T, S])."""
    raise NotImplementedError("exercise 2.3")


# 2.4 Layer norm
class LayerNorm(nn.Module):
    """x [..., D] to [..., D]: mean 0 and variance 1 at each position, then weight and bias."""

    def __init__(self, d_model, eps=1e-05):
        super().__init__()

    def forward(self, x):
        raise NotImplementedError("exercise 2.4")


# 2.5 Embedding
class TokenEmbedding(nn.Module):
    """ids [B, T] to [B, T, D]: rows of a learned table, times the root of D."""

    def __init__(self, vocab_size, d_model):
        super().__init__()

    def forward(self, ids):
        raise NotImplementedError("exercise 2.5")


# 2.6 Sinusoids
def positional_encoding(length, d_model):
    """[length, D]: sines in even columns, cosines in odd ones."""
    raise NotImplementedError("exercise 2.6")


# 2.7 Positions as a module
class PositionalEncoding(nn.Module):
    """x [B, T, D] plus the first T rows of the table."""

    def __init__(self, d_model, max_len, dropout=0.0):
        super().__init__()

    def forward(self, x):
        raise NotImplementedError("exercise 2.7")


# 2.8 The encoder
class TokenEncoder(nn.Module):
    """ids [B, T] to [B, T, D], or to [B, T, n_outputs]."""

    def __init__(self, vocab_size, d_model, n_heads, n_layers, d_ff, max_len, n_outputs=None, dropout=0.0):
        super().__init__()

    def forward(self, ids, mask=None):
        raise NotImplementedError("exercise 2.8")


# 2.9 Count them
def predict_parameters(vocab_size, d_model, n_layers, d_ff):
    """The number of parameters of my TokenEncoder, by arithmetic."""
    raise NotImplementedError("exercise 2.9")
