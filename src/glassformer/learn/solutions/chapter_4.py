import torch
from torch import nn


# 4.1 Norm first
class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff, activation="relu"):
        super().__init__()
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.activation = {"relu": torch.relu, "gelu": nn.functional.gelu}[activation]

    def forward(self, x):
        return self.down(self.activation(self.up(x)))


class EncoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, norm_first=False, activation="relu", dropout=0.0):
        super().__init__()
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.feed_forward = FeedForward(d_model, d_ff, activation)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.dropout, self.norm_first = nn.Dropout(dropout), norm_first

    def forward(self, x, mask=None):
        if self.norm_first:
            x = x + self.dropout(self.attention(self.norm1(x), mask=mask))
            return x + self.dropout(self.feed_forward(self.norm2(x)))
        x = self.norm1(x + self.dropout(self.attention(x, x, x, mask)))
        return self.norm2(x + self.dropout(self.feed_forward(x)))


class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, norm_first=False, activation="relu", dropout=0.0):
        super().__init__()
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.cross = MultiHeadAttention(d_model, n_heads)
        self.feed_forward = FeedForward(d_model, d_ff, activation)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))
        self.dropout, self.norm_first = nn.Dropout(dropout), norm_first

    def forward(self, x, memory, mask=None, memory_mask=None):
        if self.norm_first:
            x = x + self.dropout(self.attention(self.norm1(x), mask=mask))
            x = x + self.dropout(self.cross(self.norm2(x), memory, memory, memory_mask))
            return x + self.dropout(self.feed_forward(self.norm3(x)))
        x = self.norm1(x + self.dropout(self.attention(x, x, x, mask)))
        x = self.norm2(x + self.dropout(self.cross(x, memory, memory, memory_mask)))
        return self.norm3(x + self.dropout(self.feed_forward(x)))


# 4.2 A task
def make_example(symbols, task):
    """ids [n] to (inputs, targets), each [2n + 1]; task: copy, reverse or sort."""
    answer = {"copy": symbols, "reverse": symbols.flip(0), "sort": symbols.sort().values}[task]
    blanks, blank, separator = torch.zeros_like(symbols), symbols.new_zeros(1), symbols.new_ones(1)
    return torch.cat([symbols, separator, blanks]), torch.cat([blanks, blank, answer])


# 4.3 The loss
def cross_entropy(logits, targets, pad_id):
    """logits [B, T, V], targets [B, T] to the mean over real targets, in nats."""
    logs = logits.log_softmax(-1)
    losses = -logs.gather(-1, targets[..., None])[..., 0]
    real = targets != pad_id
    return (losses * real).sum() / real.sum().clamp(min=1)


# 4.4 Scores
def accuracy(logits, targets, pad_id):
    """logits [B, T, V], targets [B, T] to the share of real targets that are right."""
    real = targets != pad_id
    return ((logits.argmax(-1) == targets) & real).sum() / real.sum().clamp(min=1)


def exact_match(logits, targets, pad_id):
    """logits [B, T, V], targets [B, T] to the share of rows that are right everywhere."""
    real = targets != pad_id
    right = ((logits.argmax(-1) == targets) | ~real).all(-1)
    rows = real.any(-1)
    return (right & rows).sum() / rows.sum().clamp(min=1)


# 4.5 One update
def train_step(model, inputs, targets, optimizer, clip=1.0):
    """One update; gives the loss before it, a float. pad_id is 0."""
    model.train()
    optimizer.zero_grad()
    loss = cross_entropy(model(inputs), targets, pad_id=0)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return loss.item()


# 4.6 Evaluate
@torch.no_grad()
def evaluate(model, batches):
    """{"loss", "accuracy", "exact_match"} over batches of (inputs, targets)."""
    was = model.training
    model.eval()
    loss = right = tokens = exact = rows = 0
    for inputs, targets in batches:
        logits, real = model(inputs), targets != 0
        n, m = real.sum().item(), real.any(-1).sum().item()
        loss += cross_entropy(logits, targets, pad_id=0).item() * n
        right += accuracy(logits, targets, pad_id=0).item() * n
        exact += exact_match(logits, targets, pad_id=0).item() * m
        tokens, rows = tokens + n, rows + m
    model.train(was)
    if not tokens:
        raise ValueError("there is no target to score")
    return {"loss": loss / tokens, "accuracy": right / tokens, "exact_match": exact / rows}


# 4.7 Look inside
@torch.no_grad()
def attention_maps(model, ids, mask=None):
    """A list of weights [B, H, T, S], one for each layer."""
    was = model.training
    model.eval()
    model(ids, mask)
    model.train(was)
    return [each.weights for each in model.modules() if torch.is_tensor(getattr(each, "weights", None))]


# 4.8 What does a head do?
def head_score(weights, keys):
    """weights [B, H, T, S], keys [T] (-1: no prediction) to [H]."""
    rows = (keys >= 0).nonzero()[:, 0]
    on_keys = weights[..., rows, keys[rows]].mean((0, 2))
    chance = 1 / weights.size(-1)
    return (on_keys - chance) / (1 - chance)
