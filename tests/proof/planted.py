"""Mistakes planted in a learner's right code: (kind, the name that must be given, text, text instead)."""

from __future__ import annotations

from proof import small_parts
from proof.planted_models import PLANTED as MODELS

GUARD = "        scores = torch.where(mask.any(-1, keepdim=True), scores, torch.zeros_like(scores))\n"
GUARDED = (
    """~mask, float("-inf"))
"""
    + GUARD
)
IN_HEADS = GUARD.replace("        scores", "            scores")
GUARDED_HEADS = (
    """~mask, float("-inf"))
"""
    + IN_HEADS
)
FILL = 'scores.masked_fill(~mask, float("-inf"))'
ROOT = " / math.sqrt(q.size(-1))"
SOFT = "torch.softmax(scores, dim=-1)"
AFTER = "weights = weights * mask.any(-1, keepdim=True)"

# What both `attention` and the attention inside a module can have.
SHARED = [
    ("the mask is inverted", FILL, 'scores.masked_fill(mask, float("-inf"))'),
    ("the mask is ignored", FILL, "scores"),
    ("the mask is ignored", FILL, "scores; scores.masked_fill(~mask, -1e9)"),
    ("the mask is added as 0 and 1", FILL, "scores + mask"),
    ("the mask is added as 0 and 1", FILL, "scores + (1 - mask.to(scores.dtype))"),
    ("hidden scores are set to 0", FILL, "scores * mask"),
    ("hidden scores are set to 0", FILL, "scores.masked_fill(~mask, 1e-9)"),
    ("the mask is transposed", FILL, 'scores.masked_fill(~mask.transpose(-2, -1), float("-inf"))'),
    ("the mask is applied after the softmax", AFTER, "weights = weights * mask"),
    ("the fill of the mask is too small", FILL, "scores.masked_fill(~mask, -10.0)"),
    ("the fill of the mask is too small", FILL, "scores.masked_fill(~mask, -100.0)"),
    ("the fill of the mask is too small", FILL, "scores.masked_fill(~mask, -1e4)"),
    ("the fill of the mask is too small", FILL, "scores + (~mask) * -1e4"),
    ("the mask gives NaN", FILL, 'scores + (~mask) * float("-inf")'),
    ("the fill does not fit float16", FILL, "scores.masked_fill(~mask, -1e9)"),
    ("the softmax runs over the queries", SOFT, "torch.softmax(scores, dim=-2)"),
    ("the softmax runs over the heads", SOFT, "torch.softmax(scores, dim=1)"),
    ("the softmax runs over the batch", SOFT, "torch.softmax(scores, dim=0)"),
    ("the softmax is missing", SOFT, "scores"),
    ("a sigmoid stands in place of the softmax", SOFT, "torch.sigmoid(scores)"),
    ("a query that may read nothing reads hidden keys", AFTER, "pass"),
]

# Where the mask after the softmax is the mistake, the fill before it must go.
LATE = "the mask is applied after the softmax"

ATTENTION = [
    *SHARED,
    ("the scale is missing", ROOT, ""),
    ("the scale is applied twice", ROOT, " / q.size(-1)"),
    ("the scale is applied twice", ROOT, " / math.sqrt(q.size(-1)) / math.sqrt(q.size(-1))"),
    ("the scale uses d_model instead of d_head", ROOT, " / math.sqrt(q.size(1) * q.size(-1))"),
    ("the scores are multiplied by the scale instead of divided", ROOT, " * math.sqrt(q.size(-1))"),
    ("the scale is the root of another length", ROOT, " / math.sqrt(q.size(-2))"),
    ("query and key are swapped", "q @ k.transpose(-2, -1)", "k @ q.transpose(-2, -1)"),
    ("the values are not used", "weights @ v", "weights @ k"),
    ("the values are not used", "weights @ v", "weights @ q"),
    ("the keys are not compared with the queries", "k.transpose(-2, -1)", "q.transpose(-2, -1)"),
    ("the output has the wrong shape", "return output, weights", "return weights, output"),
    ("the output has the wrong shape", "return output, weights", "return output.mean(-1)"),
    ("the weights returned are not those used", "return output, weights", "return output, scores"),
    ("dropout is active in evaluation", SOFT, "F.dropout(torch.softmax(scores, dim=-1), 0.1)"),
    ("it needs equal numbers of queries and keys", "output = weights @ v", "output = (weights @ v).view(k.shape)"),
    ("the output is not that of the equation", "output = weights @ v", "output = (weights @ v).tanh()"),
    ("a query that may read nothing gives NaN", GUARDED, '~mask, float("-inf"))\n'),
    ("the gradient of an empty row is NaN", AFTER, "weights = torch.nan_to_num(weights)"),  # with an additive mask
]  # fmt: skip

HEADS = [
    *SHARED,
    ("heads are mixed: they are split without a transpose", "x.size(1), self.n_heads, self.d_head).transpose(1, 2)",
     "self.n_heads, x.size(1), self.d_head)"),
    ("heads are mixed: they are merged without a transpose", "context.transpose(1, 2).contiguous()", "context"),
    ("attention runs across the heads instead of the positions", "self.d_head).transpose(1, 2)", "self.d_head)"),
    ("the scale is missing", " / math.sqrt(self.d_head)", ""),
    ("the scale uses d_model instead of d_head", "math.sqrt(self.d_head)", "math.sqrt(self.d_model)"),
    ("the scale is applied twice", "math.sqrt(self.d_head)", "self.d_head"),
    ("the scores are multiplied by the scale instead of divided", "/ math.sqrt(self.d_head)", "* self.d_head ** 0.5"),
    ("keys or values are not made from their own input", "self.split(self.w_k(key))", "self.split(self.w_v(value))"),
    ("query, key and value are confused", "q @ k.transpose(-2, -1)", "k @ q.transpose(-2, -1)"),
    ("the output map is missing", "return self.w_o(context)", "return context"),
    ("the residual stands inside the attention", "return self.w_o(context)", "return query + self.w_o(context)"),
    ("the output is changed after the output map", "return self.w_o(context)", "return self.w_o(context).tanh()"),
    ("keys or values are not made from their own input", "self.w_v(value)", "self.w_v(key)"),
    ("it needs equal numbers of queries and keys", "x.view(x.size(0), x.size(1)", "x.view(x.size(0), 6"),
    ("the weights returned are not those used", "self.weights = weights.detach()", "self.weights = scores.detach()"),
    ("the kept weights hold the graph", "weights.detach()", "weights"),
    ("the output has the wrong shape", "return self.w_o(context)", "return self.w_o(context).transpose(0, 1)"),
    ("the output is not that of the equation", "context = weights @ v\n", "context = (weights @ v).tanh()\n"),
    ("dropout is active in evaluation", "self.drop(", "torch.nn.functional.dropout("),
    ("dropout is active in evaluation", "self.drop(", "nn.Dropout(0.1)("),
    ("dropout acts on the scores, before the softmax", "self.drop(torch.softmax(scores, dim=-1))",
     "torch.softmax(self.drop(scores), dim=-1)"),
    ("a query that may read nothing gives NaN", GUARDED_HEADS, '~mask, float("-inf"))\n'),
    ("the gradient of an empty row is NaN", AFTER, "weights = torch.nan_to_num(weights)"),  # with an additive mask
]  # fmt: skip

ATTEND, FEED = "x = x + self.attend(self.norm1(x), mask)", "x = x + self.feed(self.norm2(x))"
BLOCK = [
    ("the residual around the attention is missing", ATTEND, "x = self.attend(self.norm1(x), mask)"),
    ("the residual around the feed-forward is missing", FEED, "x = self.feed(self.norm2(x))"),
    ("the residual starts from the normalised stream", ATTEND, "x = self.norm1(x); x = x + self.attend(x, mask)"),
    ("the norm of the attention is missing", ATTEND, "x = x + self.attend(x, mask)"),
    ("the norm of the feed-forward is missing", FEED, "x = x + self.feed(x)"),
    ("the norm stands before the sum", ATTEND, "x = x + self.norm1(self.attend(x, mask))"),
    ("pre-norm and post-norm are mixed", FEED, "x = self.norm2(x + self.feed(x))"),
    ("one norm stands in two places", "self.feed(self.norm2(x))", "self.feed(self.norm1(x))"),
    ("the feed-forward comes before the attention", f"{ATTEND}\n        {FEED}", f"{FEED}\n        {ATTEND}"),
    ("the feed-forward has no activation", "torch.relu(self.up(x))", "self.up(x)"),
    ("the block is not put together as documented", "return x\n", "return x * 2\n"),
    ("the mask is ignored", "self.attention(x, x, x, mask)", "self.attention(x, x, x)"),
    ("the mask is inverted", "self.attention(x, x, x, mask)",
     "self.attention(x, x, x, None if mask is None else ~mask)"),
    ("the scale is missing", " / math.sqrt(self.d_head)", ""),
    ("heads are mixed: they are merged without a transpose", "context.transpose(1, 2).contiguous()", "context"),
    ("dropout is active in evaluation", "nn.Dropout(0.1)\n", "lambda x: torch.nn.functional.dropout(x, 0.1)\n"),
    ("rows of the batch are mixed", "self.attention(x, x, x, mask)",
     "self.attention(*[x.transpose(0, 1)] * 3).transpose(0, 1)"),
]  # fmt: skip

LAYERS = "[TransformerBlock(d_model, n_heads, d_ff) for _ in range(n_layers)]"
STACK = [
    ("the layers are the same module", LAYERS, "[TransformerBlock(d_model, n_heads, d_ff)] * n_layers"),
    ("the layers start identical", LAYERS,
     "[copy.deepcopy(layer) for layer in [TransformerBlock(d_model, n_heads, d_ff)] * n_layers]"),
    ("some layers are not run", "for layer in self.layers:", "for layer in self.layers[:1]:"),
    ("the layers are not registered", f"nn.ModuleList({LAYERS})", LAYERS),
    ("the mask is ignored", "layer(x, mask)", "layer(x)"),
    ("the mask is inverted", "layer(x, mask)", "layer(x, None if mask is None else ~mask)"),
]  # fmt: skip

SIN, COS = "torch.sin(position * div)", "torch.cos(position * div[: d_model // 2])"
TABLE = [
    ("sine and cosine are swapped", f"{SIN}\n    pe[:, 1::2] = {COS}",
     "torch.cos(position * div)\n    pe[:, 1::2] = torch.sin(position * div[: d_model // 2])"),
    ("sines and cosines stand in halves", "return pe", "return torch.cat([pe[:, 0::2], pe[:, 1::2]], 1)"),
    ("the exponent is wrong", "torch.arange(0, d_model, 2).float()", "torch.arange(0, d_model, 2).float() / 2"),
    ("the exponent is wrong", "torch.arange(0, d_model, 2).float()", "torch.arange(0, d_model, 2).float() * 2"),
    ("the exponent is wrong", "math.log(10000.0) / d_model", "math.log(10000.0)"),
    ("sine and cosine of a pair have different wavelengths", COS,
     "torch.cos(position * 10000 ** (-torch.arange(1, d_model, 2) / d_model))"),
    ("the base is not 10,000", "10000.0", "1000.0"),
    ("the angle is multiplied by the power instead of divided", "-math.log", "math.log"),
    ("positions are off by one", "torch.arange(length)", "torch.arange(1, length + 1)"),
    ("an odd d_model fails", "div[: d_model // 2]", "div"),
    ("the table has the wrong shape", "return pe", "return pe.T"),
    ("the table is not that of the paper", "return pe", "return pe * 0.1"),
]  # fmt: skip

ADD = "x + self.pe[:, : x.size(1)]"
ENCODING = [
    *TABLE[:1],
    ("positions run along the batch", ADD, "x + self.pe[0, : x.size(0)].unsqueeze(1)"),
    ("the input is lost", ADD, "0 * x + self.pe[:, : x.size(1)]"),
    ("the input is scaled here", ADD, "x * math.sqrt(self.d_model) + self.pe[:, : x.size(1)]"),
    ("the table is a plain tensor", 'self.register_buffer("pe", positional_encoding(max_len, d_model).unsqueeze(0))',
     "self.pe = positional_encoding(max_len, d_model).unsqueeze(0)"),
    ("the table is trained", 'self.register_buffer("pe", positional_encoding(max_len, d_model).unsqueeze(0))',
     "self.pe = nn.Parameter(positional_encoding(max_len, d_model).unsqueeze(0))"),
    ("a sequence past max_len is not refused", "if x.size(1) > self.max_len:", "if False:"),
    ("dropout is active in evaluation", "self.dropout(", "torch.nn.functional.dropout("),
    ("positions are off by one", ADD, "x + self.pe[:, 1 : x.size(1) + 1]"),
]  # fmt: skip

CAUSAL = [
    ("the mask is inverted", "torch.tril(torch.ones(n, n)).bool()", "torch.triu(torch.ones(n, n), 1).bool()"),
    ("off by one: a query may not read itself", "torch.ones(n, n))", "torch.ones(n, n), -1)"),
    ("off by one: a query may read the next token", "torch.ones(n, n))", "torch.ones(n, n), 1)"),
    ("the mask is transposed: queries read the future", "tril", "triu"),
    ("the mask hides nothing", "torch.tril(torch.ones(n, n))", "torch.ones(n, n)"),
    ("the mask holds numbers instead of True and False", ".bool()", ""),
    ("the mask has the wrong shape", "torch.ones(n, n)", "torch.ones(n, n + 1)"),
    ("the mask is not the documented one", "torch.tril(torch.ones(n, n))", "torch.eye(n)"),
]

PADDING = [
    ("the mask is inverted", "<", ">="),
    ("off by one: the first padding may be read", "<", "<="),
    ("off by one: the last token is hidden", "torch.arange(n)", "torch.arange(1, n + 1)"),
    ("padding is expected on the left", "torch.arange(n) <", "n - 1 - torch.arange(n) <"),
    ("the mask holds numbers instead of True and False", "(torch.arange(n) < lengths.unsqueeze(1))",
     "(torch.arange(n) < lengths.unsqueeze(1)).float()"),
]  # fmt: skip

SHIFT = [
    ("labels are not shifted", "tokens[:, 1:]", "tokens[:, :-1]"),
    ("labels are not shifted", "return tokens[:, :-1], tokens[:, 1:]", "return tokens"),
    ("labels are shifted twice", "tokens[:, :-1], tokens[:, 1:]", "tokens[:, :-2], tokens[:, 2:]"),
    ("labels are shifted the wrong way", "tokens[:, :-1], tokens[:, 1:]", "tokens[:, 1:], tokens[:, :-1]"),
    ("the inputs keep their last token", "tokens[:, :-1], tokens", "tokens, tokens"),
    ("the result is not the documented one", "tokens[:, 1:]", "tokens.flip(1)[:, 1:]"),
]

MEAN = "(losses * keep).sum() / keep.sum()"
LOSS = [
    ("padding is counted", MEAN, "losses.mean()"),
    ("padding is counted in the divisor", MEAN, "(losses * keep).mean()"),
    ("each sequence weighs the same", MEAN, "((losses * keep).sum(1) / keep.sum(1)).mean()"),
    ("the sum is given instead of the mean", MEAN, "(losses * keep).sum()"),
    ("only padding is counted", "targets != pad_id", "targets == pad_id"),
    ("labels are shifted twice", "keep = ", "logits, targets = logits[:, :-1], targets[:, 1:]; keep = "),
    ("the softmax is applied twice", "logits.log_softmax(-1)", "logits.softmax(-1).log_softmax(-1)"),
    ("the loss is in bits, not in nats", "logits.log_softmax(-1)", "logits.log_softmax(-1) / 0.6931471805599453"),
    ("the sign is wrong", "-logs", "logs"),
    ("large logits overflow", "logits.log_softmax(-1)", "(logits.exp() / logits.exp().sum(-1, keepdim=True)).log()"),
    ("the result is not the documented one", "-logs", "-logs.square()"),
]

HITS = "(hits & keep).sum() / keep.sum()"
ACCURACY = [
    ("padding is counted", HITS, "hits.float().mean()"),
    ("padding is counted in the divisor", HITS, "(hits & keep).float().mean()"),
    ("each sequence weighs the same", HITS, "((hits & keep).sum(1) / keep.sum(1)).mean()"),
    ("the sum is given instead of the mean", HITS, "(hits & keep).sum()"),
    ("only padding is counted", "!=", "=="),
]

POOL = [
    ("padding is counted", "(x * keep).sum(1) / keep.sum(1)", "x.mean(1)"),
    ("padding is counted in the divisor", "keep.sum(1)", "x.shape[1]"),
    ("only padding is counted", "keep.unsqueeze(-1)", "(~keep).unsqueeze(-1)"),
    ("only the first position is used", "(x * keep).sum(1) / keep.sum(1)", "x[:, 0]"),
]

GREEDY = [
    ("it does not stop at the end token", "break", "pass"),
    ("the limit is off by one", "range(max_new_tokens)", "range(max_new_tokens + 1)"),
    ("the limit counts the prompt", "range(max_new_tokens)", "range(max_new_tokens - ids.size(1))"),
    ("the model is given the last token alone", "model(ids)", "model(ids[:, -1:])"),
    ("the logits of the wrong position are used", "[:, -1].argmax", "[:, 0].argmax"),
    ("the prompt is missing from the result", "return ids", "return ids[:, prompt.size(1):]"),
    ("the tokens are not those of greedy decoding", "argmax", "argmin"),
]

PLANTED = [
    (kind, *row)
    for kind, rows in {
        "attention": ATTENTION,
        "MultiHeadAttention": HEADS,
        "TransformerBlock": BLOCK,
        "TransformerEncoder": STACK,
        "positional_encoding": TABLE,
        "PositionalEncoding": ENCODING,
        "causal_mask": CAUSAL,
        "padding_mask": PADDING,
        "shift_labels": SHIFT,
        "cross_entropy": LOSS,
        "accuracy": ACCURACY,
        "mean_pool": POOL,
        "greedy_decode": GREEDY,
        **MODELS,
        **small_parts.PLANTED,
    }.items()
    for row in rows
]
