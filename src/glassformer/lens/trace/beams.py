"""The tree of a beam search: every hypothesis that was extended at some step, and the answers that were found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from glassformer.base.shapes import Float, Tensor
from glassformer.data.tokens.vocabulary import EOS
from glassformer.decode.beam_settings import BeamSettings
from glassformer.decode.choose.context import Context
from glassformer.decode.hypotheses import Hypothesis
from glassformer.lens.trace.quantise import brief

Beginning = tuple[int, ...]


@dataclass
class Node:
    """A hypothesis: a prefix of an answer, or a complete one."""

    log_p: float
    """The log-probability of all its tokens, in nats."""
    score: float | None = None
    """For an answer, the score by which the search ranked it."""
    rank: int | None = None
    """For an answer, how many were better."""


class Tree:
    """A filter that changes no logits and records the search for one row.

    It sees the logits before later filters, which may remove tokens.
    """

    def __init__(self, search: BeamSettings) -> None:
        self.search = search
        self.nodes: dict[Beginning, Node] = {(): Node(0.0)}
        self.before: dict[Beginning, Float[Tensor, " V"]] = {}
        self.ends: dict[Beginning, float] = {}
        """The log-probability of <eos> after each hypothesis."""

    def __call__(self, logits: Float[Tensor, "B V"], context: Context) -> Float[Tensor, "B V"]:
        """Record a step and return the logits unchanged."""
        log_p = logits.cpu().double().log_softmax(-1)
        begun = [tuple(ids) for ids in context.written]
        for ids in filter(None, begun):
            self.nodes.setdefault(ids, self.behind(ids))
        self.before = dict(zip(begun, log_p, strict=True))
        self.ends |= dict(zip(begun, log_p[:, EOS].tolist(), strict=True))
        return logits

    def behind(self, ids: Beginning) -> Node:
        """Return the node of a hypothesis whose last token was chosen at the last step."""
        return Node(self.nodes[ids[:-1]].log_p + float(self.before[ids[:-1]][ids[-1]]))

    def end(self, found: Sequence[Hypothesis]) -> None:
        """Add the answers of the search, best first."""
        for rank, each in enumerate(found):
            ids = tuple(each.ids)
            if each.complete:
                log_p = self.nodes[ids].log_p + self.ends[ids]
                ids = (*ids, EOS)
            else:
                log_p = self.behind(ids).log_p
            self.nodes[ids] = Node(log_p, each.score, rank)
        self.before = {}

    def as_json(self) -> dict[str, Any]:
        """Return the header's `beams`: nodes level by level; `parent` is the parent's index, -1 for the root."""
        order = sorted((ids for ids in self.nodes if ids), key=lambda ids: (len(ids), -self.nodes[ids].log_p))
        places = {(): -1} | {ids: place for place, ids in enumerate(order)}
        nodes: list[dict[str, Any]] = []
        for ids in order:
            node, parent = self.nodes[ids], self.nodes[ids[:-1]]
            figures = {"p": brief(math.exp(min(0.0, node.log_p - parent.log_p))), "log_p": brief(node.log_p)}
            answer = {} if node.rank is None or node.score is None else {"score": brief(node.score), "rank": node.rank}
            nodes.append({"token": ids[-1], "parent": places[ids[:-1]], **figures, **answer})
        return {"width": self.search.beam, "length_penalty": self.search.length_penalty, "nodes": nodes}
