"""What lies beyond the chapters, on my own parts."""

import math
from contextlib import contextmanager

import torch
from torch import nn


# F1.1 Shift the labels
def shift_labels(tokens):
    """tokens [B, T] to (inputs, labels), each [B, T-1]."""
    return tokens[:, :-1], tokens[:, 1:]


# F1.2 The language model
class LanguageModel(nn.Module):
    """ids [B, T] to logits [B, T, vocab_size]."""

    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_len, dropout=0.0):
        super().__init__()
        self.embedding = TokenEmbedding(vocab_size, d_model)
        self.positions = PositionalEncoding(d_model, max_len, dropout)
        self.blocks = nn.ModuleList([EncoderBlock(d_model, n_heads, 4 * d_model) for _ in range(n_layers)])
        self.norm, self.output = nn.LayerNorm(d_model), nn.Linear(d_model, vocab_size)
        nn.init.normal_(self.output.weight, std=0.02)

    def forward(self, tokens):
        x = self.positions(self.embedding(tokens))
        mask = causal_mask(tokens.size(1)).to(tokens.device)
        for block in self.blocks:
            x = block(x, mask)
        return self.output(self.norm(x))


# F1.3 Let it write
@torch.no_grad()
def greedy_decode(model, prompt, eos_id, max_new_tokens):
    """prompt [1, T] to the prompt and what follows, [1, n]."""
    was = model.training
    model.eval()
    tokens = prompt
    for _ in range(max_new_tokens):
        following = model(tokens)[:, -1].argmax(-1, keepdim=True)
        tokens = torch.cat([tokens, following], dim=1)
        if following.item() == eos_id:
            break
    model.train(was)
    return tokens


# F2.1 The cache
class CachedBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.n_heads = n_heads
        self.query, self.key, self.value, self.output = (nn.Linear(d_model, d_model) for _ in range(4))
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x, mask, past):
        y = self.norm1(x)
        q, k, v = (split_heads(each(y), self.n_heads) for each in (self.query, self.key, self.value))
        if past is not None:
            k, v = (torch.cat(pair, dim=2) for pair in zip(past, (k, v), strict=True))
        mixed, _ = attention(q, k, v, mask)
        x = x + self.output(merge_heads(mixed))
        return x + self.feed_forward(self.norm2(x)), (k, v)


class CachedLanguageModel(nn.Module):
    """ids [B, T], and a cache of those before, to (logits [B, T, vocab_size], cache)."""

    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_len, dropout=0.0):
        super().__init__()
        self.embedding = TokenEmbedding(vocab_size, d_model)
        self.register_buffer("table", positional_encoding(max_len, d_model), persistent=False)
        self.blocks = nn.ModuleList([CachedBlock(d_model, n_heads, 4 * d_model) for _ in range(n_layers)])
        self.norm, self.output = nn.LayerNorm(d_model), nn.Linear(d_model, vocab_size)
        nn.init.normal_(self.output.weight, std=0.02)

    def forward(self, tokens, cache=None):
        start = cache[0][0].size(2) if cache else 0
        end = start + tokens.size(1)
        if end > len(self.table):
            raise ValueError(f"a text of {end} tokens is longer than max_len, {len(self.table)}")
        x = self.embedding(tokens) + self.table[start:end]
        mask = torch.arange(end) <= torch.arange(start, end)[:, None]
        kept = []
        for block, past in zip(self.blocks, cache or [None] * len(self.blocks), strict=True):
            x, pair = block(x, mask.to(x.device), past)
            kept.append(pair)
        return self.output(self.norm(x)), kept


# F3.1 Rotate
def apply_rotary(x, positions):
    """x [B, H, T, K], positions [T] to x rotated by its positions."""
    K = x.size(-1)
    rates = 10000 ** (-torch.arange(0, K, 2, dtype=x.dtype, device=x.device) / K)
    angles = positions[:, None] * rates
    a, b = x[..., 0::2], x[..., 1::2]
    turned = a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()
    return torch.stack(turned, dim=-1).flatten(-2)


# F3.2 A bias for distance
def alibi_bias(n_heads, length):
    """What is added to the scores, [H, T, T]."""
    slopes = 2 ** (-8 * torch.arange(1, n_heads + 1) / n_heads)
    back = torch.arange(length)[:, None] - torch.arange(length)
    return -slopes[:, None, None] * back.clamp(min=0)


# F4.1 A window
def window_mask(n, window):
    """Boolean [n, n], True where a query may read."""
    back = torch.arange(n)[:, None] - torch.arange(n)
    return (back >= 0) & (back < window)


# F4.2 Linear attention
def linear_attention(q, k, v):
    """q, k, v [B, H, T, K] to [B, H, T, K], causal, without a table of T by T."""
    q, k = (nn.functional.elu(each) + 1 for each in (q, k))
    memory = torch.einsum("bhtk,bhtv->bhtkv", k, v).cumsum(2)
    answer = torch.einsum("bhtk,bhtkv->bhtv", q, memory)
    return answer / (q * k.cumsum(2)).sum(-1, keepdim=True)


# F5.1 In blocks
def blockwise_attention(q, k, v, block):
    """q, k, v [B, H, T, K] to [B, H, T, K], with tables of at most `block` keys."""
    most = torch.full_like(q[..., :1], float("-inf"))
    total, summed = torch.zeros_like(most), torch.zeros_like(q)
    for begin in range(0, k.size(-2), block):
        keys, values = k[..., begin : begin + block, :], v[..., begin : begin + block, :]
        scores = q @ keys.transpose(-2, -1) / math.sqrt(q.size(-1))
        new = torch.maximum(most, scores.amax(-1, keepdim=True))
        shrink, weights = (most - new).exp(), (scores - new).exp()
        total = total * shrink + weights.sum(-1, keepdim=True)
        summed = summed * shrink + weights @ values
        most = new
    return summed / total


# F6.1 Recompute
class Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx, block, x, *weights):
        ctx.block, ctx.state, ctx.weights = block, torch.get_rng_state(), weights
        ctx.save_for_backward(x)
        return block(x)

    @staticmethod
    def backward(ctx, slope):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.set_rng_state(ctx.state)
            y = ctx.block(x)
        return None, *torch.autograd.grad(y, (x, *ctx.weights), slope)


def recomputed(block, x):
    """block(x); what the block makes inside is made again in the backward pass."""
    return Again.apply(block, x, *block.parameters())


# F6.2 Half of the bits
def train_step_bf16(model, inputs, targets, optimizer):
    """One update whose maps run in bfloat16; gives the loss, a float. pad_id is 0."""
    model.train()
    optimizer.zero_grad()
    with torch.autocast(inputs.device.type, dtype=torch.bfloat16):
        logits = model(inputs)
    loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=0)
    loss.backward()
    optimizer.step()
    return loss.item()


# F7.1 The mean of a text
def mean_pool(x, keep):
    """x [B, T, D], keep [B, T] to the mean over real tokens, [B, D]."""
    return (x * keep[..., None]).sum(1) / keep.sum(1, keepdim=True)


# F7.2 A classifier
class Classifier(nn.Module):
    """ids [B, T], lengths [B] to logits [B, n_labels]; encoder(ids, mask) gives [B, T, encoder.d_model]."""

    def __init__(self, encoder, n_labels):
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(encoder.d_model, n_labels)

    def forward(self, ids, lengths):
        keep = torch.arange(ids.size(1), device=ids.device) < lengths[:, None]
        return self.head(mean_pool(self.encoder(ids, keep[:, None, None]), keep))


# F8.1 States
class StateEncoder(nn.Module):
    """states [B, T, n_features] to [B, T, d_model]."""

    def __init__(self, n_features, d_model):
        super().__init__()
        self.map = nn.Linear(n_features, d_model)
        self.register_buffer("mean", torch.zeros(n_features))
        self.register_buffer("std", torch.ones(n_features))

    def fit(self, mean, std):
        """Keep the scale of the training data, [n_features] each."""
        """Keep the scale of the training data, [n_features] each."""
        self.mean.copy_(mean)
        self.std.copy_(torch.where(std > 0, std, 1.0))

    def forward(self, states):
        return self.map((states - self.mean) / self.std)


# F9.1 What is still to come
def returns_to_go(rewards, ends):
    """rewards [T], ends [T] (True at an episode's last step) to the rewards still to come, [T]."""
    ahead, found = 0.0, torch.zeros_like(rewards)
    for t in reversed(range(len(rewards))):
        ahead = rewards[t] + (0.0 if ends[t] else ahead)
        found[t] = ahead
    return found


# F9.2 Three in a row
def interleave(returns, states, actions):
    """[B, T, D] each to [B, 3T, D]: return, state, action, step by step."""
    return torch.stack([returns, states, actions], dim=2).flatten(1, 2)


# F11.1 Which place is it?
def position_ids(keep):
    """keep [B, T] boolean, True at real tokens, to their positions [B, T]."""
    return (keep.long().cumsum(-1) - 1).clamp(min=0)


# F11.2 Several texts in a row
def document_mask(documents):
    """documents [B, n] to a boolean mask [B, n, n], True where a query may read."""
    n = documents.size(1)
    causal = torch.ones(n, n, dtype=torch.bool, device=documents.device).tril()
    return (documents[:, :, None] == documents[:, None, :]) & causal


# F13.1 Without one head
@contextmanager
def ablated(model, layer, head):
    """A context in which head `head` of the attention number `layer` adds nothing."""
    part = [each for each in model.modules() if type(each).__name__ == "MultiHeadAttention"][layer]
    width = part.output.in_features // part.n_heads

    def hush(module, inputs):
        x = inputs[0].clone()
        x[..., head * width : (head + 1) * width] = 0
        return (x,)

    hook = part.output.register_forward_pre_hook(hush)
    try:
        yield
    finally:
        hook.remove()
