"""What surrounds training, and instruments, as learners write them, in two styles, with mistakes planted in each."""

from __future__ import annotations

from proof.parts import Part, ours

STEP = """
import torch
from torch import nn

def train_step(model, inputs, targets, optimizer, clip=1.0):
    model.train()
    optimizer.zero_grad()
    logs = model(inputs).log_softmax(-1)
    real = targets != 0
    loss = -(logs.gather(-1, targets[..., None])[..., 0] * real).sum() / real.sum()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return loss.item()
"""
BACK, CUT, MOVE = (
    "    loss.backward()\n",
    "    nn.utils.clip_grad_norm_(model.parameters(), clip)\n",
    "    optimizer.step()\n",
)
FORGET = "    optimizer.zero_grad()\n"
STEP_BY_HAND = """
import torch.nn.functional as F

def train_step(net, x, y, opt, max_norm=1.0):
    net.train(True)
    for p in net.parameters():
        p.grad = None
    value = F.cross_entropy(net(x).transpose(1, 2), y, ignore_index=0)
    value.backward()
    norm = sum(p.grad.square().sum() for p in net.parameters()).sqrt()
    for p in net.parameters():
        p.grad *= min(1.0, max_norm / norm)
    opt.step()
    return value.item()
"""
SCALE = "    for p in net.parameters():\n        p.grad *= min(1.0, max_norm / norm)\n"

SCORE = """
import torch

@torch.no_grad()
def evaluate(model, batches):
    was = model.training
    model.eval()
    loss = right = tokens = exact = rows = 0
    for inputs, targets in batches:
        logits = model(inputs)
        real = targets != 0
        hits = logits.argmax(-1) == targets
        loss -= (logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0] * real).sum().item()
        right += (hits & real).sum().item()
        exact += (hits | ~real).all(-1).sum().item()
        tokens += real.sum().item()
        rows += len(targets)
    model.train(was)
    return {"loss": loss / tokens, "accuracy": right / tokens, "exact_match": exact / rows}
"""
EACH = "    for inputs, targets in batches:\n"
RESULT = '{"loss": loss / tokens, "accuracy": right / tokens, "exact_match": exact / rows}'
ANEW = f"{EACH}        loss = right = tokens = exact = rows = 0\n"
MEANS = '{"loss": loss / n, "accuracy": right / n, "exact_match": exact / n}'
SCORE_BY_LISTS = """
import torch
import torch.nn.functional as F

def evaluate(net, loader):
    training, losses, hits, whole = net.training, [], [], []
    net.eval()
    with torch.inference_mode():
        for x, y in loader:
            logits = net(x)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none")
            losses.append(loss[y.flatten() != 0])
            hits.append((logits.argmax(-1) == y)[y != 0])
            whole.append(((logits.argmax(-1) == y) | (y == 0)).all(1))
    net.train(training)
    loss, hits, whole = (torch.cat(each).double().mean() for each in (losses, hits, whole))
    return {"loss": loss, "acc": hits, "exact": whole}
"""

INIT = """
import torch
from torch import nn

@torch.no_grad()
def init_weights(model):
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim ** -0.5)
"""
INIT_ALL = """
from torch import nn

def init_weights(model):
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.xavier_uniform_(p)
"""

COUNT = """
def predict_parameters(vocab_size, d_model, n_layers, d_ff):
    D, F = d_model, d_ff
    attention = 4 * (D * D + D)
    feed_forward = D * F + F + F * D + D
    norm = 2 * D
    return vocab_size * D + n_layers * (attention + feed_forward + 2 * norm) + norm
"""
COUNT_BY_MAPS = """
def linear(inside, outside):
    return (inside + 1) * outside

def predict_parameters(V, D, L, F):
    block = sum(linear(D, D) for _ in range(4)) + linear(D, F) + linear(F, D) + 2 * (D + D)
    return V * D + L * block + D + D
"""

GAP_BACK = """
import torch

def order_gap(net, x, permutation):
    training = net.training
    net.train(False)
    with torch.no_grad():
        first, second = net(x), net(x.index_select(1, permutation))
    net.train(training)
    back = torch.argsort(permutation)
    return torch.linalg.vector_norm(second[:, back] - first, ord=float("inf"))
"""

TABLE = """
import torch

@torch.no_grad()
def influence(model, x):
    was = model.training
    model.eval()
    base, T = model(x), x.size(1)
    noticed = torch.zeros(T, T, dtype=torch.bool)
    for s in range(T):
        moved = x.clone()
        moved[:, s] += 1
        noticed[:, s] = (model(moved) - base).abs().amax((0, 2)) > 1e-9
    model.train(was)
    return noticed
"""
TABLE_BY_ROWS = """
import torch

def influence(model, x):
    mode = model.training
    model.eval()
    T, columns = x.shape[1], []
    with torch.no_grad():
        for s in range(T):
            noise = torch.zeros_like(x)
            noise[:, s] = 0.5
            columns.append(~torch.isclose(model(x + noise), model(x)).all(-1).all(0))
    model.train(mode)
    return torch.stack(columns, dim=1)
"""

HAND = """
import torch

def reversing_head(n):
    q = torch.eye(n) * 20 * n ** 0.5
    return q, torch.eye(n).flip(0)
"""
HAND_BY_ANGLES = """
import math
import torch

def reversing_head(n):
    angle = 2 * math.pi * torch.arange(n) / 64
    point = torch.stack([angle.cos(), angle.sin()], 1).double()
    return 4000 * point, point.flip(0)
"""

MAPS_BY_CLASS = """
import torch
from torch import nn

class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.weights = None

def attention_maps(model, ids, mask=None):
    maps, training = [], model.training
    model.eval()
    with torch.no_grad():
        model(ids) if mask is None else model(ids, mask)
    for part in model.modules():
        if isinstance(part, MultiHeadAttention):
            maps.append(part.weights.clone())
    model.train(training)
    return maps
"""
LOOK = '[each.weights for each in model.modules() if torch.is_tensor(getattr(each, "weights", None))]'

HEAD = """
def head_score(weights, keys):
    rows = (keys >= 0).nonzero()[:, 0]
    on_keys = weights[..., rows, keys[rows]].mean((0, 2))
    chance = 1 / weights.size(-1)
    return (on_keys - chance) / (1 - chance)
"""
HEAD_BY_MASK = """
import torch

def head_score(attention, predicted):
    S = attention.shape[-1]
    known = predicted >= 0
    wanted = torch.nn.functional.one_hot(predicted.clamp(min=0), S) * known[:, None]
    on_keys = (attention * wanted).sum((-2, -1)).mean(0) / known.sum()
    return (S * on_keys - 1) / (S - 1)
"""

PARTS = [
    Part("train_step", "six verbs", STEP, [
        ("old gradients are kept", FORGET, ""),
        ("the gradient is erased before the step", FORGET, "", BACK, BACK + FORGET),
        ("the gradient is erased before the step", FORGET, "", MOVE, FORGET + MOVE),
        ("clipping comes before the gradient", CUT, "", BACK, CUT + BACK),
        ("the gradient is not clipped", CUT, ""),
        ("the weights do not move", MOVE, ""),
        ("the loss keeps the graph", "loss.item()", "loss"),
        ("the model is trained in evaluation mode", "model.train()", "model.eval()"),
        ("the loss is that after the update", "return loss.item()",
         "logs = model(inputs).log_softmax(-1)\n"
         "    return (-(logs.gather(-1, targets[..., None])[..., 0] * real).sum() / real.sum()).item()"),
        ("no gradient reaches the model", "model(inputs)", "model(inputs).detach()"),
        ("no gradient reaches the model", BACK, "", CUT, ""),
        ("padding is counted", "* real).sum() / real.sum()", ").mean()"),
        ("padding is counted in the divisor", "/ real.sum()", "/ real.numel()"),
        ("the sum is given instead of the mean", " / real.sum()", ""),
        ("the update is not the documented one", MOVE, MOVE + MOVE),
        ("the result is not the documented one", "return loss.item()", "return None"),
    ]),
    Part("train_step", "by hand, torch's loss", STEP_BY_HAND, [
        ("old gradients are kept", "p.grad = None", "pass"),
        ("the gradient is not clipped", SCALE, ""),
        ("the weights do not move", "    opt.step()\n", ""),
        ("the model is trained in evaluation mode", "net.train(True)", "net.train(False)"),
        ("padding is counted", ", ignore_index=0", ""),
        ("the loss keeps the graph", "value.item()", "value"),
        ("no gradient reaches the model", "net(x)", "net(x).data"),
        ("the gradient is erased before the step", "    opt.step()", "    opt.zero_grad()\n    opt.step()",
         "    for p in net.parameters():\n        p.grad = None\n", ""),
    ]),
    Part("evaluate", "sums", SCORE, [
        ("dropout is active in evaluation", "    model.eval()\n", ""),
        ("the model stays in evaluation mode", "    model.train(was)\n", ""),
        ("the model is left in training mode", "model.train(was)", "model.train()"),
        ("batches weigh the same", "tokens += real.sum().item()", "n = rows = rows + 1",
         "        rows += len(targets)\n", "",
         "real).sum().item()", "real).sum().item() / real.sum().item()",
         "all(-1).sum().item()", "all(-1).double().mean().item()", RESULT, MEANS),
        ("gradients are recorded", "@torch.no_grad()\n", ""),
        ("only the last batch is counted", EACH, ANEW),
        ("padding is counted", "real = targets != 0", "real = targets == targets"),
        ("only a list of batches is read", "was = model.training", "was, count = model.training, len(batches)"),
        ("only a list of batches is read", EACH, "    any(True for _ in batches)\n" + EACH),
        ("no batches give figures", "return {", "tokens, rows = max(tokens, 1), max(rows, 1)\n    return {"),
        ("the result is not the documented one", f"return {RESULT}", "return loss / tokens"),
    ]),
    Part("evaluate", "lists, torch's loss", SCORE_BY_LISTS, [
        ("dropout is active in evaluation", "    net.eval()\n", ""),
        ("the model stays in evaluation mode", "    net.train(training)\n", ""),
        ("only the last batch is counted", "torch.cat(each)", "each[-1]"),
        ("gradients are recorded", "torch.inference_mode()", "torch.enable_grad()"),
        ("padding is counted", "loss[y.flatten() != 0]", "loss", "[y != 0])", ")", " | (y == 0)", ""),
        ("batches weigh the same", "loss[y.flatten() != 0]", "loss[y.flatten() != 0].mean()[None]",
         "[y != 0])", "[y != 0].double().mean()[None])", "(y == 0)).all(1)", "(y == 0)).all(1).double().mean()[None]"),
    ]),
    Part("init_weights", "by kind of module", INIT, [
        ("nothing is changed", "nn.init.xavier_uniform_(module.weight)", "torch.randn_like(module.weight)"),
        ("matrices start identical", "            nn.init.xav",
         "            torch.manual_seed(0)\n            nn.init.xav"),
        ("matrices start identical", "    for module", "    torch.manual_seed(0)\n    for module"),
        ("the embedding starts too large", "module.embedding_dim ** -0.5", "1.0"),
        ("the head starts too large", "nn.init.xavier_uniform_(module.weight)", "nn.init.xavier_uniform_(module.weight)"
         "\n            if module.out_features == 50:\n                nn.init.normal_(module.weight)"),
        ("biases are drawn too", "nn.init.zeros_(module.bias)", "nn.init.uniform_(module.bias)"),
        ("norms are drawn too", "        if isinstance(module, nn.Emb",
         "        if isinstance(module, nn.LayerNorm):\n            nn.init.uniform_(module.weight)\n"
         "        if isinstance(module, nn.Emb"),
        ("the numbers are not drawn as Xavier draws them", "xavier_uniform_", "kaiming_uniform_"),
        ("the numbers are not drawn as Xavier draws them", "xavier_uniform_", "xavier_normal_"),
        ("some matrices are left as they were", "model.modules()", "model.children()"),
    ]),
    Part("init_weights", "by number of axes", INIT_ALL, [
        ("norms are drawn too", "        if p.dim() > 1:\n            nn.init.xavier_uniform_(p)",
         "        nn.init.uniform_(p, -0.1, 0.1)"),
        ("norms are drawn too", "        if p.dim() > 1:\n            nn.init.x", "        nn.init.x"),
        ("nothing is changed", "nn.init.xavier_uniform_(p)", "p = nn.init.xavier_uniform_(p.clone())"),
        ("the numbers are not drawn as Xavier draws them", "nn.init.xavier_uniform_(p)",
         "nn.init.normal_(p, std=0.02)"),
        ("matrices start identical", "            nn.init.x",
         "            __import__('torch').manual_seed(1)\n            nn.init.x"),
    ]),
    Part("predict_parameters", "by parts", COUNT, [
        ("one of the four maps of attention is missing", "4 * (D", "3 * (D"),
        ("biases are left out", "4 * (D * D + D)", "4 * D * D", "D * F + F + F * D + D", "2 * D * F"),
        ("norms are left out", " + 2 * norm) + norm", ")"),
        ("norms are left out", ") + norm", ")"),
        ("heads are counted as if each had the whole width", "4 * (D", "8 * 4 * (D"),
        ("the count of layers is off by one", "n_layers * (", "(n_layers - 1) * ("),
        ("buffers are counted", "return ", "return 512 * D + "),
        ("a model is built to count it", "    return ", "    import torch\n    torch.nn.Linear(D, F)\n    return "),
        ("the result is not the documented one", "return ", "return 1 + "),
    ]),
    Part("predict_parameters", "by maps", COUNT_BY_MAPS, [
        ("one of the four maps of attention is missing", "range(4)", "range(3)"),
        ("biases are left out", "(inside + 1)", "inside"),
        ("norms are left out", "L * block + D + D", "L * block"),
        ("the count of layers is off by one", "L * block", "(L + 1) * block"),
        ("buffers are counted", "V * D", "(V + 1000) * D"),
    ]),
    Part("order_gap", "run both", ours("3.2"), [
        ("the output is not put back in order", "model(x)[:, order]", "model(x)"),
        ("the batch is reordered", "model(x[:, order]) - model(x)[:, order]", "model(x[order]) - model(x)[order]"),
        ("differences cancel", ".abs().max()", ".mean()"),
        ("differences cancel", ".abs().max()", ".mean().abs()"),
        ("the gap is measured with dropout", "    model.eval()\n", ""),
        ("the model stays in evaluation mode", "    model.train(was)\n", ""),
        ("the input is changed", "    model.train(was)\n", "    model.train(was)\n    x.copy_(x[:, order])\n"),
        ("the result is not the documented one", ".abs().max()", ".abs().sum()"),
    ]),
    Part("order_gap", "put back", GAP_BACK, [
        ("the output is not put back in order", "second[:, back]", "second"),
        ("the gap is measured with dropout", "net.train(False)", "pass"),
        ("the model stays in evaluation mode", "    net.train(training)\n", ""),
        ("differences cancel", 'torch.linalg.vector_norm(second[:, back] - first, ord=float("inf"))',
         "abs((second[:, back] - first).mean())"),
    ]),
    Part("influence", "one position at a time", TABLE, [
        ("rows and columns are exchanged", "noticed[:, s]", "noticed[s]"),
        ("the input is changed", "x.clone()", "x", "base, T = model(x), ", "base, T = model(x).clone(), "),
        ("more than one position is moved", "moved[:, s] += 1", "moved += 1"),
        ("dropout hides the answer", "    model.eval()\n", ""),
        ("only the last position is watched", "(model(moved) - base).abs().amax((0, 2))",
         "(model(moved) - base)[:, -1:].abs().amax((0, 2))"),
        ("the model stays in evaluation mode", "    model.train(was)\n", ""),
        ("the result is not the documented one", "> 1e-9", "< 1e-9"),
    ]),
    Part("influence", "columns", TABLE_BY_ROWS, [
        ("rows and columns are exchanged", "dim=1)", "dim=0)"),
        ("the input is changed", "return torch", "x += 1\n    return torch"),
        ("more than one position is moved", "noise[:, s] = 0.5", "noise[:] = 0.5"),
        ("dropout hides the answer", "model.eval()", "pass"),
        ("the model is left in training mode", "model.train(mode)", "model.train()"),
    ]),
    Part("reversing_head", "one-hot rows", HAND, [
        ("it copies instead of reversing", ".flip(0)", ""),
        ("off by one: it reads a neighbour", ".flip(0)", ".flip(0).roll(1, 0)"),
        ("the weights are not sharp", " * 20 * n ** 0.5", ""),
        ("it works for one length only", "torch.eye(n)", "torch.eye(6)"),
        ("it works for one length only", "    return", "    assert n == 8\n    return"),
        ("the result is not the documented one", "return q, ", "return q @ "),
    ]),
    Part("reversing_head", "points on a circle", HAND_BY_ANGLES, [
        ("it copies instead of reversing", "point.flip(0)", "point"),
        ("off by one: it reads a neighbour", "point.flip(0)", "point.flip(0).roll(-1, 0)"),
        ("the weights are not sharp", "4000 * ", ""),
        ("it works for one length only", "torch.arange(n)", "torch.arange(8)"),
    ]),
    Part("attention_maps", "any part with weights", ours("4.7"), [
        ("only one layer is seen", "None))]", "None))][-1:]"),
        ("layers stand in another order", "None))]", "None))][::-1]"),
        ("weights are dropped ones", "    model.eval()\n", ""),
        ("heads are averaged", "[each.weights for", "[each.weights.mean(1) for"),
        ("the weights returned are not those used", "[each.weights for", "[each.weights.log() for"),
        ("all maps are the same one", LOOK, f"[{LOOK}[0]] * 3"),
        ("the model stays in evaluation mode", "    model.train(was)\n", ""),
        ("gradients are recorded", "@torch.no_grad()\n", ""),
    ]),
    Part("attention_maps", "by the learner's own class", MAPS_BY_CLASS, [
        ("weights are dropped ones", "model.eval()", "pass"),
        ("layers stand in another order", "return maps", "return maps[::-1]"),
        ("all maps are the same one", "return maps", "return maps[:1] * 3"),
        ("only one layer is seen", "maps.append(part.weights.clone())", "maps = [part.weights]"),
        ("the model is left in training mode", "model.train(training)", "model.train()"),
    ]),
    Part("head_score", "by index", HEAD, [
        ("chance is not subtracted", "return (on_keys - chance) / (1 - chance)", "return on_keys"),
        ("the score does not reach 1", " / (1 - chance)", ""),
        ("rows and columns are exchanged", "rows, keys[rows]]", "keys[rows], rows]"),
        ("queries without a prediction are counted", "(keys >= 0).nonzero()[:, 0]", "list(range(len(keys)))"),
        ("hits are counted instead of weight", "weights[..., rows, keys[rows]]",
         "(weights.argmax(-1)[..., rows] == keys[rows]).double()"),
        ("the result is not the documented one", "mean((0, 2))", "mean(2)"),
    ]),
    Part("head_score", "by a table of ones", HEAD_BY_MASK, [
        ("chance is not subtracted", "(S * on_keys - 1) / (S - 1)", "on_keys"),
        ("the score does not reach 1", "(S * on_keys - 1) / (S - 1)", "on_keys - 1 / S"),
        ("rows and columns are exchanged", "attention * wanted", "attention.mT * wanted"),
    ]),
]  # fmt: skip
