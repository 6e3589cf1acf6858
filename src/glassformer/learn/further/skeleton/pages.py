"""What lies beyond the chapters, on my own parts."""

import math
from contextlib import contextmanager

import torch
from torch import nn


# F1.1 Shift the labels
def shift_labels(tokens):
    """tokens [B, T] to (inputs, labels), each [B, T-1]."""
    raise NotImplementedError("exercise F1.1")


# F1.2 The language model
class LanguageModel(nn.Module):
    """ids [B, T] to logits [B, T, vocab_size]."""

    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_len, dropout=0.0):
        super().__init__()

    def forward(self, tokens):
        raise NotImplementedError("exercise F1.2")


# F1.3 Let it write
def greedy_decode(model, prompt, eos_id, max_new_tokens):
    """prompt [1, T] to the prompt and what follows, [1, n]."""
    raise NotImplementedError("exercise F1.3")


# F2.1 The cache
class CachedLanguageModel(nn.Module):
    """ids [B, T], and a cache of those before, to (logits [B, T, vocab_size], cache)."""

    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_len, dropout=0.0):
        super().__init__()

    def forward(self, tokens, cache=None):
        raise NotImplementedError("exercise F2.1")


# F3.1 Rotate
def apply_rotary(x, positions):
    """x [B, H, T, K], positions [T] to x rotated by its positions."""
    raise NotImplementedError("exercise F3.1")


# F3.2 A bias for distance
def alibi_bias(n_heads, length):
    """What is added to the scores, [H, T, T]."""
    raise NotImplementedError("exercise F3.2")


# F4.1 A window
def window_mask(n, window):
    """Boolean [n, n], True where a query may read."""
    raise NotImplementedError("exercise F4.1")


# F4.2 Linear attention
def linear_attention(q, k, v):
    """q, k, v [B, H, T, K] to [B, H, T, K], causal, without a table of T by T."""
    raise NotImplementedError("exercise F4.2")


# F5.1 In blocks
def blockwise_attention(q, k, v, block):
    """q, k, v [B, H, T, K] to [B, H, T, K], with tables of at most `block` keys."""
    raise NotImplementedError("exercise F5.1")


# F6.1 Recompute
def recomputed(block, x):
    """block(x); what the block makes inside is made again in the backward pass."""
    raise NotImplementedError("exercise F6.1")


# F6.2 Half of the bits
def train_step_bf16(model, inputs, targets, optimizer):
    """One update whose maps run in bfloat16; gives the loss, a float. pad_id is 0."""
    raise NotImplementedError("exercise F6.2")


# F7.1 The mean of a text
def mean_pool(x, keep):
    """x [B, T, D], keep [B, T] to the mean over real tokens, [B, D]."""
    raise NotImplementedError("exercise F7.1")


# F7.2 A classifier
class Classifier(nn.Module):
    """ids [B, T], lengths [B] to logits [B, n_labels]; encoder(ids, mask) gives [B, T, encoder.d_model]."""

    def __init__(self, encoder, n_labels):
        super().__init__()

    def forward(self, ids, lengths):
        raise NotImplementedError("exercise F7.2")


# F8.1 States
class StateEncoder(nn.Module):
    """states [B, T, n_features] to [B, T, d_model]."""

    def __init__(self, n_features, d_model):
        super().__init__()

    def fit(self, mean, std):
        """Keep the scale of the training data, [n_features] each."""
        raise NotImplementedError("exercise F8.1")

    def forward(self, states):
        raise NotImplementedError("exercise F8.1")


# F9.1 What is still to come
def returns_to_go(rewards, ends):
    """rewards [T], ends [T] (True at an episode's last step) to the rewards still to come, [T]."""
    raise NotImplementedError("exercise F9.1")


# F9.2 Three in a row
def interleave(returns, states, actions):
    """[B, T, D] each to [B, 3T, D]: return, state, action, step by step."""
    raise NotImplementedError("exercise F9.2")


# F11.1 Which place is it?
def position_ids(keep):
    """keep [B, T] boolean, True at real tokens, to their positions [B, T]."""
    raise NotImplementedError("exercise F11.1")


# F11.2 Several texts in a row
def document_mask(documents):
    """documents [B, n] to a boolean mask [B, n, n], True where a query may read."""
    raise NotImplementedError("exercise F11.2")


# F13.1 Without one head
@contextmanager
def ablated(model, layer, head):
    """A context in which head `head` of the attention number `layer` adds nothing."""
    raise NotImplementedError("exercise F13.1")
