"""One teacher-forced pass that records attention weights, attention masks and the residual stream after each block."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from glassformer.base.shapes import Bool, Float, Int, Tensor
from glassformer.lens.ablate import columns_of, place, recorded_stream
from glassformer.lens.roles.roles import value_sizes
from glassformer.lens.trace.file import Array
from glassformer.nn.attention import attention_weights, dot_products
from glassformer.nn.observe import Attended, Evaluation, watch_attention
from glassformer.nn.transformer import Transformer

Place = tuple[str, int]


@dataclass
class Sight:
    """The recording of one sequence. Attention is by (block, layer)."""

    weights: dict[Place, Float[Tensor, "H T S"]] = field(default_factory=dict)
    allowed: dict[Place, Bool[Tensor, "T S"]] = field(default_factory=dict)
    """True where a query may read a key."""
    sizes: dict[Place, Float[Tensor, "H S"]] = field(default_factory=dict)
    """How much each key contributes to a head that attends to it; see `value_sizes`."""
    log_sums: dict[Place, Float[Tensor, "H T"]] = field(default_factory=dict)
    """ln of each softmax's denominator, so that score = ln(weight) + this; for the softmax rule only."""
    streams: list[Float[Tensor, "T D"]] = field(default_factory=list)
    """The stream of the stack that the head reads: before its first block and after each."""
    logits: Float[Tensor, "..."] = field(default_factory=lambda: torch.empty(0))
    """[T, V], or [N] for a head that answers once per sequence."""


@torch.no_grad()
def look(model: Transformer, tokens: Int[Tensor, "1 T"], source: Int[Tensor, "1 S"] | None = None) -> Sight:
    """Run the model in evaluation mode on one sequence without padding and record it; recording changes no result."""
    seen = Sight()

    def note(call: Attended) -> None:
        where, (T, S) = place(call.name), (call.q.shape[-2], call.k.shape[-2])
        weights = call.attention.weigh(call.q, call.k, call.mask, scale=call.scale)
        seen.weights[where] = weights[0].float().cpu()
        if call.attention.weigh is attention_weights:
            seen.log_sums[where] = log_sums(call, weights)[0].float().cpu()
        seen.sizes[where] = value_sizes(call.v, columns_of(call.attention))[0].float().cpu()
        allowed = call.mask.allowed(T, S, call.q.device)
        seen.allowed[where] = (
            torch.ones(T, S, dtype=torch.bool) if allowed is None else allowed[0, 0].expand(T, S).cpu()
        )

    streams: list[Tensor] = []
    with Evaluation(model), watch_attention(model, note), recorded_stream(model.reader, streams):
        seen.logits = model(tokens, source=source)[0].float().cpu()
    seen.streams = [each[0] for each in streams]
    return seen


def log_sums(call: Attended, weights: Float[Tensor, "B H T S"]) -> Float[Tensor, "B H T"]:
    """Return the logsumexp of each query's scores, derived from its largest weight; infinite if all keys are masked."""
    scores = dot_products(call.q, call.k, scale=call.scale)
    if call.mask.bias is not None:
        scores = scores + call.mask.bias
    best = weights.argmax(-1, keepdim=True)
    return (scores.gather(-1, best) - weights.gather(-1, best).log()).squeeze(-1)


# Small summaries of a head, shown before its weights are loaded: a thumbnail, confidence and entropy.

SIDE = 64
"""The most cells on a side of a thumbnail; a larger map is shown as a thumbnail before it is loaded."""


def shrunk(weights: Array) -> Array:
    """Shrink maps [..., query, key] to at most `SIDE` cells a side, each the largest weight of the cells it covers.

    The largest, not the mean, so that thin lines remain visible.
    """
    for axis in (-2, -1):
        length = weights.shape[axis]
        if length > SIDE:
            weights = np.maximum.reduceat(weights, np.arange(SIDE) * length // SIDE, axis=axis)
    return weights


def decided(weights: Array) -> dict[str, list[list[float]]]:
    """Return confidence and entropy (nats) by layer and head, means over queries, of weights [layer, head, query, key].

    Confidence is a query's largest weight (Voita et al. 2019, section 4); entropy is that of its normalised row.
    """
    confidence: list[list[float]] = []
    entropy: list[list[float]] = []
    for layer in weights:
        sums = layer.sum(-1, keepdims=True)
        shares = layer / np.where(sums > 0, sums, 1)
        logs = np.log(np.where(shares > 0, shares, 1))
        confidence.append([float(f"{each:.6g}") for each in layer.max(-1).mean(-1)])
        entropy.append([float(f"{-each:.6g}") for each in (shares * logs).sum(-1).mean(-1)])
    return {"confidence": confidence, "entropy": entropy}
