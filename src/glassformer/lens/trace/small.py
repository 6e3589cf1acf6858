"""What is known of a head before its weights are: a small picture of it, and how decidedly it reads."""

from __future__ import annotations

import numpy as np

from glassformer.lens.trace.quantise import Array

SIDE = 64
"""Of a picture, in cells: a map with more of them is shown small before it is read."""


def shrunk(weights: Array) -> Array:
    """Maps [..., query, key] of `SIDE` cells a side at most, each the largest weight of those it stands for.

    The largest and not the mean, so that a line of single cells is not lost.
    """
    for axis in (-2, -1):
        length = weights.shape[axis]
        if length > SIDE:
            weights = np.maximum.reduceat(weights, np.arange(SIDE) * length // SIDE, axis=axis)
    return weights


def decided(weights: Array) -> dict[str, list[list[float]]]:
    """Of weights [layer, head, query, key], by layer and head: confidence and entropy (nats), means over the queries.

    Confidence is a query's largest weight (Voita et al. 2019, section 4); entropy is that of its row as shares of 1.
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
