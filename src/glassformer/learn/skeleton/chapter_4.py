import torch
from torch import nn


# 4.1 Norm first
class EncoderBlock(nn.Module):
    """x [B, T, D] to [B, T, D]: attention, then feed-forward, each with residual and norm."""

    def __init__(self, d_model, n_heads, d_ff, norm_first=False, activation="relu", dropout=0.0):
        super().__init__()

    def forward(self, x, mask=None):
        raise NotImplementedError("exercise 4.1")


class DecoderBlock(nn.Module):
    """x [B, T, D], memory [B, S, D] to [B, T, D]."""

    def __init__(self, d_model, n_heads, d_ff, norm_first=False, activation="relu", dropout=0.0):
        super().__init__()

    def forward(self, x, memory, mask=None, memory_mask=None):
        raise NotImplementedError("exercise 4.1")


# 4.2 A task
def make_example(symbols, task):
    """ids [n] to (inputs, targets), each [2n + 1]; task: copy, reverse or sort."""
    raise NotImplementedError("exercise 4.2")


# 4.3 The loss
def cross_entropy(logits, targets, pad_id):
    """logits [B, T, V], targets [B, T] to the mean over real targets, in nats."""
    raise NotImplementedError("exercise 4.3")


# 4.4 Scores
def accuracy(logits, targets, pad_id):
    """logits [B, T, V], targets [B, T] to the share of real targets that are right."""
    raise NotImplementedError("exercise 4.4")


def exact_match(logits, targets, pad_id):
    """logits [B, T, V], targets [B, T] to the share of rows that are right everywhere."""
    raise NotImplementedError("exercise 4.4")


# 4.5 One update
def train_step(model, inputs, targets, optimizer, clip=1.0):
    """One update; gives the loss before it, a float. pad_id is 0."""
    raise NotImplementedError("exercise 4.5")


# 4.6 Evaluate
def evaluate(model, batches):
    """{"loss", "accuracy", "exact_match"} over batches of (inputs, targets)."""
    raise NotImplementedError("exercise 4.6")


# 4.7 Look inside
def attention_maps(model, ids, mask=None):
    """A list of weights [B, H, T, S], one for each layer."""
    raise NotImplementedError("exercise 4.7")


# 4.8 What does a head do?
def head_score(weights, keys):
    """weights [B, H, T, S], keys [T] (-1: no prediction) to [H]."""
    raise NotImplementedError("exercise 4.8")
