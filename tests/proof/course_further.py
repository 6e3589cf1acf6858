"""Code for the further pages as learners write it, in two styles, with mistakes planted in each."""

from __future__ import annotations

from proof.parts import Part, ours

ALIBI_BY_LIST = """
import torch

def alibi_bias(H, T):
    ratio = 2.0 ** (-8.0 / H)
    away = torch.tensor([[abs(s - t) for s in range(T)] for t in range(T)])
    return torch.stack([-(ratio ** (h + 1)) * away for h in range(H)])
"""
WINDOW_BY_TRIANGLES = """
import torch

def window_mask(n, window):
    full = torch.ones(n, n, dtype=torch.bool)
    return full.tril() & full.triu(1 - window)
"""
LINEAR_BY_STEPS = """
import torch

def feature(x):
    return torch.where(x > 0, x + 1, x.exp())

def linear_attention(q, k, v):
    state, norm, out = 0, 0, []
    for t in range(q.size(-2)):
        a, b = feature(q[..., t, :]), feature(k[..., t, :])
        state = state + b[..., :, None] * v[..., t, None, :]
        norm = norm + b
        out.append((a[..., None, :] @ state)[..., 0, :] / (a * norm).sum(-1, keepdim=True))
    return torch.stack(out, -2)
"""
BLOCKS_BY_LOGS = """
import torch

def blockwise_attention(q, k, v, block):
    outs, logs = [], []
    for keys, values in zip(k.split(block, -2), v.split(block, -2)):
        scores = q @ keys.transpose(-2, -1) / q.size(-1) ** 0.5
        outs.append(scores.softmax(-1) @ values)
        logs.append(scores.logsumexp(-1, keepdim=True))
    shares = torch.stack(logs).softmax(0)
    return (torch.stack(outs) * shares).sum(0)
"""
RETURNS_BY_SUMS = """
import torch

def returns_to_go(rewards, ends):
    episode = (ends.long().cumsum(0) - ends.long())
    same = (episode[:, None] == episode) & torch.ones(len(rewards), len(rewards)).triu().bool()
    return (same * rewards).sum(1)
"""
WOVEN_BY_STEPS = """
import torch

def interleave(r, s, a):
    out = r.new_empty(r.size(0), 3 * r.size(1), r.size(2))
    out[:, 0::3], out[:, 1::3], out[:, 2::3] = r, s, a
    return out
"""
AGAIN = """
from torch.utils.checkpoint import checkpoint

def recomputed(block, x):
    return checkpoint(block, x, use_reentrant=False)
"""
LABELS_BY_FILL = """
import torch
from torch import nn

class SequenceClassifier(nn.Module):
    def __init__(self, encoder, num_classes):
        super().__init__()
        self.encoder = encoder
        self.classify = nn.Sequential(nn.Linear(encoder.d_model, 16), nn.Tanh(), nn.Linear(16, num_classes))

    def forward(self, ids, lengths):
        places = torch.arange(ids.shape[1])[None]
        x = self.encoder(ids, places < lengths[:, None])
        x = x.masked_fill((places >= lengths[:, None])[..., None], 0.0)
        return self.classify(x.sum(dim=1) / lengths[:, None].to(x.dtype))
"""
STATES_BY_EPS = """
import torch
from torch import nn

class StateEncoder(nn.Module):
    def __init__(self, n_features, d_model):
        super().__init__()
        self.proj = nn.Linear(n_features, d_model)

    def fit(self, mean, std):
        self.mean, self.scale = mean, 1 / std.clamp(min=1e-6)

    def forward(self, x):
        return self.proj((x - self.mean) * self.scale)
"""
SILENT = """
from contextlib import contextmanager

@contextmanager
def ablated(model, layer, head):
    part = [each for each in model.modules() if hasattr(each, "n_heads")][layer]
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
"""
SILENT_BY_WEIGHTS = """
import torch
from torch import nn

class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h, self.w_qkv, self.w_o = n_heads, nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, q, k, v, mask=None):
        B, T, D = q.shape
        q, k, v = self.w_qkv(q).reshape(B, T, 3, self.h, D // self.h).permute(2, 0, 3, 1, 4)
        weights = (q @ k.mT / (D // self.h) ** 0.5).softmax(-1)
        return self.w_o((weights @ v).transpose(1, 2).reshape(B, T, D)), weights

class ablated:
    def __init__(self, model, layer, head):
        every = [each for each in model.modules() if isinstance(each, MultiHeadAttention)]
        self.weight, self.h, self.head = every[layer].w_o.weight, every[layer].h, head

    def __enter__(self):
        self.kept = self.weight.detach().clone()
        with torch.no_grad():
            self.weight.unflatten(1, (self.h, -1))[:, self.head] = 0

    def __exit__(self, *error):
        with torch.no_grad():
            self.weight.copy_(self.kept)
"""
SILENT_BY_VALUES = """
from contextlib import contextmanager

@contextmanager
def ablated(model, layer, head):
    every = [each for each in model.modules() if hasattr(each, "value")]
    K = every[layer].value.out_features // every[layer].n_heads

    def quiet(part, given, values):
        values = values.clone()
        values[:, :, head * K : head * K + K] = 0
        return values

    hook = every[layer].value.register_forward_hook(quiet)
    try:
        yield model
    finally:
        hook.remove()
"""

PARTS = [
    Part("alibi_bias", "clamped", ours("F3.2"), [
        ("far keys are favoured", "-slopes", "slopes"),
        ("the slopes are not a geometric series", "2 ** (-8 * torch.arange(1, n_heads + 1) / n_heads)",
         "torch.arange(1, n_heads + 1) / n_heads"),
        ("the result is not the documented one", "return -", "return 2 * -"),
    ]),
    Part("alibi_bias", "symmetric, by lists", ALIBI_BY_LIST, [
        ("far keys are favoured", "-(ratio", "(ratio"),
        ("the slopes are not a geometric series", "(ratio ** (h + 1))", "((h + 1) / H)"),
        ("the slopes are not a geometric series", "(ratio ** (h + 1))", "(ratio * (h + 1))"),
    ]),
    Part("window_mask", "distances", ours("F4.1"), [
        ("off by one: the window has one key too many", "back < window", "back <= window"),
        ("queries read the future", "(back >= 0) & (back < window)", "back.abs() < window"),
        ("the mask is inverted", "return (back >= 0) & (back < window)", "return ~((back >= 0) & (back < window))"),
        ("the mask holds numbers instead of True and False", "< window)", "< window).float()",
         "(back >= 0) & ", "(back >= 0).float() * "),
        ("the result is not the documented one", " & (back < window)", ""),
    ]),
    Part("window_mask", "triangles", WINDOW_BY_TRIANGLES, [
        ("off by one: the window has one key too many", "1 - window", "-window"),
        ("queries read the future", "full.tril()", "full.tril(window - 1)"),
    ]),
    Part("linear_attention", "sums along the sequence", ours("F4.2"), [
        ("the weights do not sum to 1", " / (q * k.cumsum(2)).sum(-1, keepdim=True)", ""),
        ("queries read the future", ".cumsum(2)\n", ".sum(2, keepdim=True).expand(-1, -1, q.size(2), -1, -1)\n",
         "k.cumsum(2)", "k.sum(2, keepdim=True)"),
        ("it computes the whole table", "    memory = ", "    (q @ k.mT).tril()\n    memory = "),
        ("the feature map is another one", "nn.functional.elu(each) + 1", "each.exp()"),
        ("the result is not the documented one", "return answer", "return 2 * answer"),
    ]),
    Part("linear_attention", "step by step", LINEAR_BY_STEPS, [
        ("the weights do not sum to 1", " / (a * norm).sum(-1, keepdim=True)", ""),
        ("the feature map is another one", "torch.where(x > 0, x + 1, x.exp())", "x.exp()"),
        ("it computes the whole table", "state, norm, out", "table = q @ k.mT\n    state, norm, out"),
    ]),
    Part("blockwise_attention", "one maximum", ours("F5.1"), [
        ("old blocks are not rescaled", "total * shrink", "total", "summed * shrink", "summed"),
        ("old blocks are not rescaled", "summed * shrink", "summed"),
        ("the sum is not rescaled", "total * shrink", "total"),
        ("the whole table is made", "    for begin", "    q @ k.mT\n    for begin"),
        ("the last block is lost", "range(0, k.size(-2), block)", "range(0, k.size(-2) // block * block, block)"),
        ("the result is not the documented one", " / math.sqrt(q.size(-1))", ""),
    ]),
    Part("blockwise_attention", "shares of blocks", BLOCKS_BY_LOGS, [
        ("the last block is lost", "outs, logs = [], []",
         "outs, logs, n = [], [], k.size(-2) // block * block\n    k, v = k[..., :n, :], v[..., :n, :]"),
        ("the whole table is made", "outs, logs = [], []", "outs, logs = [], []\n    (q @ k.mT).softmax(-1)"),
    ]),
    Part("returns_to_go", "backwards", ours("F9.1"), [
        ("returns are summed from the start", "reversed(range(len(rewards)))", "range(len(rewards))",
         "(0.0 if ends[t] else ahead)", "(0.0 if t and ends[t - 1] else ahead)"),
        ("episodes run into each other", "(0.0 if ends[t] else ahead)", "ahead"),
        ("the result is not the documented one", "found[t] = ahead", "found[t] = 2 * ahead"),
    ]),
    Part("returns_to_go", "a table", RETURNS_BY_SUMS, [
        ("returns are summed from the start", ".triu()", ".tril()"),
        ("episodes run into each other", "episode[:, None] == episode", "episode[:, None] >= 0"),
        ("episodes run into each other", " - ends.long()", ""),
    ]),
    Part("interleave", "stacked", ours("F9.2"), [
        ("the action is read before it is taken", "[returns, states, actions]", "[returns, actions, states]"),
        ("the three stand in blocks", "dim=2", "dim=1"),
        ("the result is not the documented one", "[returns, states, actions]", "[states, states, actions]"),
    ]),
    Part("interleave", "strided", WOVEN_BY_STEPS, [
        ("the action is read before it is taken", "= r, s, a", "= r, a, s"),
        ("the three stand in blocks", "    out = r", "    return torch.cat([r, s, a], 1)\n    out = r"),
    ]),
    Part("recomputed", "torch's own", AGAIN, [
        ("nothing is recomputed", "checkpoint(block, x, use_reentrant=False)", "block(x)"),
        ("the second forward drops other units", "False)", "False, preserve_rng_state=False)"),
        ("the gradient is lost at the block", "return checkpoint", "return checkpoint",
         "checkpoint(block, x, use_reentrant=False)", "block(x).detach()"),
        ("the result is not the documented one", "return ", "return 2 * "),
    ]),
    Part("recomputed", "by hand", ours("F6.1"), [
        ("the second forward drops other units", "torch.set_rng_state(ctx.state)", "pass"),
        ("the gradient is lost at the block", "x, *block.parameters())", "x)",
         "return None, *torch", "return None, torch", "(x, *ctx.weights), slope)", "x, slope)[0]"),
    ]),
    Part("train_step_bf16", "autocast", ours("F6.2"), [
        ("nothing runs in bfloat16", "torch.autocast(inputs.device.type, dtype=torch.bfloat16)", "torch.enable_grad()"),
        ("the weights themselves are rounded", "    optimizer.step()",
         "    optimizer.step()\n    with torch.no_grad():\n        for p in model.parameters():\n"
         "            p.copy_(p.bfloat16())"),
        ("the loss is computed in half precision", "logits.float()", "logits"),
        ("the weights do not move", "    optimizer.step()\n", ""),
    ]),
    Part("Classifier", "division by the lengths", ours("F7.1", "F7.2"), [
        ("padding is counted", "(x * keep[..., None]).sum(1) / keep.sum(1, keepdim=True)", "x.mean(1)"),
        ("padding is counted in the divisor", "/ keep.sum(1, keepdim=True)", "/ x.size(1)"),
        ("padding is read in the encoder", "self.encoder(ids, keep[:, None, None])", "self.encoder(ids)"),
        ("the softmax is applied twice", ", keep))\n", ", keep)).softmax(-1)\n"),
        ("the result is not the documented one", "mean_pool(self.encoder(ids, keep[:, None, None]), keep)",
         "self.encoder(ids, keep[:, None, None])[:, -1]"),
    ]),
    Part("Classifier", "filled, two maps", LABELS_BY_FILL, [
        ("padding is read in the encoder", "self.encoder(ids, places < lengths[:, None])", "self.encoder(ids)"),
        ("padding is counted", "x.sum(dim=1) / lengths[:, None].to(x.dtype)", "x.mean(1)",
         "        x = x.masked_fill((places >= lengths[:, None])[..., None], 0.0)\n", ""),
        ("the softmax is applied twice", "x.dtype))\n", "x.dtype)).log_softmax(-1)\n"),
    ]),
    Part("StateEncoder", "buffers", ours("F8.1"), [
        ("the scale comes from other data", "(states - self.mean) / self.std",
         "(states - states.mean((0, 1))) / states.std((0, 1))"),
        ("a constant feature gives NaN", "torch.where(std > 0, std, 1.0)", "std",
         "(states - self.mean) / self.std", "(states - self.mean) / self.std * (self.std > 0)"),
        ("the states are not scaled", "(states - self.mean) / self.std", "states"),
        ("the result is not the documented one", "(states - self.mean) / self.std", "(states + self.mean) / self.std"),
    ]),
    Part("StateEncoder", "a smallest deviation", STATES_BY_EPS, [
        ("the states are not scaled", "(x - self.mean) * self.scale", "x"),
        ("the scale comes from other data", "(x - self.mean) * self.scale",
         "(x - x.mean((0, 1))) / x.std((0, 1), correction=0)"),
        ("a constant feature gives NaN", "std.clamp(min=1e-6)", "std"),
    ]),
    Part("ablated", "what enters the last map", SILENT, [
        ("the head stays silent", "        hook.remove()", "        pass"),
        ("the head stays silent", "    try:\n        yield\n    finally:\n        hook.remove()",
         "    yield\n    hook.remove()"),
        ("more than one head is silent", "x[..., head * width : (head + 1) * width] = 0", "x[:] = 0"),
        ("more than one head is silent", "hook = part.output.register_forward_pre_hook(hush)",
         'every = [each for each in model.modules() if hasattr(each, "n_heads")]\n'
         "    hooks = [each.output.register_forward_pre_hook(hush) for each in every]",
         "hook.remove()", "[each.remove() for each in hooks]"),
        ("another head is silent", "head * width : (head + 1) * width", "(head - 1) * width : head * width"),
        ("another head is silent", "][layer]", "][layer - 1]"),
        ("no head is silent", "return (x,)", "return None"),
        ("it is no context manager", "@contextmanager\n", ""),
        ("the result is not the documented one", "] = 0", "] = 1"),
    ]),
    Part("ablated", "the learner's own weights", SILENT_BY_WEIGHTS, [
        ("the head stays silent", "self.weight.copy_(self.kept)", "pass"),
        ("more than one head is silent", "[:, self.head] = 0", "[:] = 0"),
        ("no head is silent", "self.weight.unflatten", "self.weight.clone().unflatten"),
    ]),
    Part("ablated", "the values of the head", SILENT_BY_VALUES, [
        ("more than one head is silent", "head * K : head * K + K", "0 :"),
        ("another head is silent", "every[layer].value.register", "every[-1].value.register"),
        ("the head stays silent", "    finally:\n        hook.remove()", "    finally:\n        del hook"),
    ]),
]  # fmt: skip
