"""Evaluating sparse patterns: whether the query at one position may read the key at another."""

from __future__ import annotations

from glassformer.base.pattern import Pattern
from glassformer.base.shapes import Bool, Int, Tensor


def readable(
    pattern: Pattern, queries: Int[Tensor, "*#pairs"], keys: Int[Tensor, "*#pairs"]
) -> Bool[Tensor, "*#pairs"]:
    """True where the pattern lets the query at position t read the key at position s; `Mask` adds the causal rule.

    `queries` and `keys` are positions of any shapes that broadcast: one pair, as in a kernel, or all pairs at once.

    window:  |t - s| < window * dilation and (t - s) mod dilation = 0, or s < sinks, or s or t < global_tokens
    stride:  t - s < stride, or (t - s) mod stride = 0
    block:   t and s in one block, or s among the last `summary` of its block
    """
    back = queries - keys
    if pattern.window is not None:
        near = back.abs() < pattern.window * pattern.dilation
        if pattern.dilation > 1:
            near = near & (back % pattern.dilation == 0)
        if pattern.sinks:
            near = near | (keys < pattern.sinks)
        if pattern.global_tokens:
            near = near | (keys < pattern.global_tokens) | (queries < pattern.global_tokens)
        return near
    if pattern.stride is not None:
        return (back < pattern.stride) | (back % pattern.stride == 0)
    if pattern.block is not None:
        own = keys // pattern.block == queries // pattern.block
        return own | (keys % pattern.block >= pattern.block - pattern.summary)
    return back == back
