"""Tests the cache of a learner's language model: the same tokens with and without it must give the same logits."""

from __future__ import annotations

import torch

from glassformer.base.shapes import Tensor
from glassformer.proof.check.network import MAX_LEN, SAME, TOKENS, Network, changed
from glassformer.proof.check.reading import distance
from glassformer.proof.check.table import CrashError, Fault, Mistake, crash_of

PLACE = 3
"""The first token that is read by itself. Those before it are read at once."""
SINGLE, CHUNKS = (PLACE, 1, 1, 1, 1), (PLACE, 2, 2)

UNREAD = Mistake(
    "the cache is not read",
    "A cached step gives the same logits, whatever came before it.",
    "With which keys is the query of a single new token compared?",
)
TOP_LEFT = Mistake(
    "the mask of a cached step counts from the first key",
    "The queries belong to the last keys, but the mask treats them as the first, so it hides keys that may be read.",
    "With 3 keys in the cache and 1 new token, which row of the 4 x 4 mask is its row?",
)
RESTART = Mistake(
    "positions begin again at 0 in a cached step",
    "A new token gets the position that it has in its own short input, not the one that it has in the sequence.",
    "How does your model know how many tokens came before?",
)
OTHER = Mistake(
    "a cached step differs from one forward pass",
    "Part of a step depends on how many tokens are read at once: the order or shape of the cached keys and values, "
    "or a bias by distance.",
    "Print keys, values and scores of the same token in both ways of reading.",
)


def cached(learner: Network) -> Fault | None:
    """Check that reading part by part through the cache gives the logits of one forward pass."""
    try:
        gap = distance(learner.in_parts(SINGLE), learner.seen)
        if gap > SAME:
            told = f"Token by token after the first {PLACE}, logits are up to {gap:.2g} off."
            return Fault(mistake_of(learner), told)
        gap = distance(learner.in_parts(CHUNKS), learner.seen)
    except CrashError as crash:
        return Fault(OTHER, f"With a cache: {crash_of(crash)}")
    return Fault(TOP_LEFT, f"Two tokens at a time, logits are up to {gap:.2g} off.") if gap > SAME else None


def mistake_of(learner: Network) -> Mistake:
    """Return the mistake that explains what a single step reads."""
    step = learner.in_parts(SINGLE)[:, PLACE]

    def reads(*places: int) -> bool:
        return distance(learner.in_parts(SINGLE, changed(TOKENS, *places))[:, PLACE], step) > SAME

    before = range(PLACE)
    if not reads(*before):
        return UNREAD
    if not reads(*before[1:]):
        return TOP_LEFT
    return RESTART if skips_its_row(learner, step) else OTHER


def skips_its_row(learner: Network, step: Tensor) -> bool:
    """Whether the cached step reads another row of a position table than the forward pass does.

    If it does, changing the token's row of the table changes the forward pass but not the cached step.
    """
    tables = [each for each in (*learner.module.parameters(), *learner.module.buffers()) if MAX_LEN in each.shape]
    for table in tables:
        row = table.data.select(list(table.shape).index(MAX_LEN), PLACE)
        before = row.clone()
        row.add_(torch.linspace(0.5, 1.5, row.numel(), dtype=row.dtype).view_as(row))
        whole, again = learner.logits(TOKENS)[:, PLACE], learner.in_parts(SINGLE)[:, PLACE]
        row.copy_(before)
        if distance(whole, learner.seen[:, PLACE]) > SAME >= distance(again, step):
            return True
    return False
