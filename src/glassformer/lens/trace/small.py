"""Small summaries of a head, shown before its weights are loaded: a thumbnail, confidence and entropy."""

from __future__ import annotations

import numpy as np

from glassformer.lens.trace.quantise import Array

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
