"""Measuring all heads on a probe: the scores of roles, figures that need no role, and whether a head copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from glassformer.base.shapes import Bool, Float, Int, Tensor
from glassformer.data.batch import Batch
from glassformer.data.tokens.vocabulary import EOS
from glassformer.lens.ablate import Head
from glassformer.lens.observe import Map, maps
from glassformer.lens.roles.roles import (
    ROLES,
    Figures,
    Score,
    View,
    confidence,
    distance,
    entropy,
    largest_key,
    mean_over,
    several,
    sink,
    tallies,
    tally,
    value_weighted,
    views,
)
from glassformer.nn.embedding import Embedding
from glassformer.nn.heads import Head as TokenHead
from glassformer.nn.norm import LayerNorm
from glassformer.nn.transformer import Transformer
from glassformer.train.objective import Objective

# Whether a head copies, that is raises the logits of tokens it attends to: from its weights and from its output.

ROWS = 2048
"""How many tokens have their logits computed at once."""


class Circuit(NamedTuple):
    """The OV circuit of one head, from a token it reads to logits: W_E W_V W_output W_U (Elhage et al. 2021)."""

    read: Float[Tensor, "V K"]
    """W_E W_V."""
    written: Float[Tensor, "K V"]
    """W_output W_U."""

    def eigenvalue_score(self) -> float:
        """Return sum(lambda) / sum |lambda| over the eigenvalues, -1 to 1: near 1, tokens raise their own logits.

        The V x V product has the same nonzero eigenvalues as the K x K product in the reverse order.
        """
        values = torch.linalg.eigvals((self.written @ self.read).cpu().double())
        return float(values.sum().real) / max(float(values.abs().sum()), 1e-300)

    def diagonal_share(self) -> float:
        """Return the share of tokens whose own logit is the largest in their row."""
        hits = 0
        for first in range(0, len(self.read), ROWS):
            own = torch.arange(first, min(first + ROWS, len(self.read)), device=self.read.device)
            hits += int(((self.read[own] @ self.written).argmax(-1) == own).sum())
        return hits / len(self.read)


def circuit(model: Transformer, found: Map, head: int, ids: range) -> Circuit | None:
    """Return the circuit of a head over the tokens `ids`, or None if it does not read or write such tokens.

    Norms, positions and all other layers are ignored, as in the papers. An encoder below a decoder has no circuit: the
    output head does not read its vectors.
    """
    if not answers(model, found) or not isinstance(model.head, TokenHead):
        return None
    crossing = found.block == "cross"
    stack = model.encoder if crossing or found.block == "encoder" else model.decoder
    if stack is None or not isinstance(stack.embedding, Embedding):
        return None
    if crossing and not model.config.one_vocabulary:
        return None
    attention, K = found.attention, found.attention.d_head
    group = head * found.v.shape[1] // found.weights.shape[1]
    values = attention.value.weight[group * K : (group + 1) * K]
    embedded, unembedded = stack.embedding.weight[ids.start : ids.stop], model.head.weight[ids.start : ids.stop]
    with torch.no_grad():
        return Circuit(embedded @ values.T, found.columns[:, head].T @ unembedded.T)


def answers(model: Transformer, found: Map) -> bool:
    """Whether a head is in the stack whose vectors the output head reads."""
    return model.decoder is None or found.block != "encoder"


def written_share(model: Transformer, found: Map, view: View) -> Float[Tensor, " H"] | None:
    """Return the share of queries for which the token with the largest weight is the one that the head raises most.

    The head's output is mapped directly to logits, through the gain of the final norm (direct logit attribution, after
    Olsson et al. 2022); the norm's divisor does not change which token is raised most.
    """
    if not answers(model, found) or not isinstance(model.head, TokenHead):
        return None
    if found.block == "cross" and not model.config.one_vocabulary:
        return None
    asked = several(found.allowed, view.counted)
    if not bool(asked.any()):
        return None
    largest = largest_key(found.weights, found.allowed)
    read = view.keys[:, None, :].expand(*largest.shape[:2], -1).gather(-1, largest)
    real = view.real[:, None, :].expand(*largest.shape[:2], -1).gather(-1, largest) & asked[:, None]
    return torch.stack([_share(model, found, head, read[:, head], real[:, head]) for head in range(read.shape[1])])


def _share(
    model: Transformer, found: Map, head: int, read: Int[Tensor, "N T"], asked: Bool[Tensor, "N T"]
) -> Float[Tensor, ""]:
    if not bool(asked.any()):
        return torch.tensor(float("nan"))
    with torch.no_grad():
        given = found.output[:, head][asked] @ found.columns[:, head].T
        given = gained(model, given)
        assert isinstance(model.head, TokenHead)
        likeliest = torch.cat([(rows @ model.head.weight.T).argmax(-1) for rows in given.split(ROWS)])
    return (likeliest == read[asked]).cpu().double().mean()


def gained(model: Transformer, vectors: Float[Tensor, "M D"]) -> Float[Tensor, "M D"]:
    """Multiply stream vectors by the gain of the final norm; for a LayerNorm, subtract their mean first."""
    norm = model.reader.last_norm
    if isinstance(norm, LayerNorm):
        vectors = vectors - vectors.mean(-1, keepdim=True)
    gain = getattr(norm, "weight", None)
    return vectors if gain is None else vectors * gain


# Measuring all heads on a probe: the scores of roles, and figures that need no role.


@dataclass(frozen=True)
class Measured:
    """The figures of one head on a probe."""

    scores: Mapping[str, Figures]
    """By role."""
    more: Mapping[str, float]
    """entropy (nats), entropy_norm, confidence, sink; total, the sum of the rule's own weights of a query; for
    self-attention, distance and distance_signed."""
    by_value: Mapping[str, float]
    """Corrected score of each role, with weights multiplied by the norm of what they move."""


class Read(NamedTuple):
    """A batch as the heads of a model read it: attention maps and views."""

    maps: list[Map]
    views: dict[str, View]


def read(model: Transformer, batch: Batch, objective: Objective) -> Read:
    """Return the maps of a batch and what their rows and columns stand for, on the model's device."""
    batch = batch.to(next(model.parameters()).device)
    asked = objective(batch)
    return Read(maps(model, batch, asked), views(batch, asked))


def measure(own: Read, control: Read | None, between: Callable[[], None]) -> dict[Head, Measured]:
    """Measure every head.

    In `own`, no token repeats within a sequence, so that reading by position is not taken for reading by token; in
    `control`, tokens repeat. Roles that need repeats are scored on the control, all others on `own` and again on the
    control. `between` is called before each map.
    """
    found: dict[Head, Measured] = {}
    again = {(each.block, each.layer): each for each in control.maps} if control else {}
    for each in own.maps:
        between()
        view = own.views[each.block]
        scores = tallied(each, view, repeats=control is None)
        other: dict[str, Scored] = {}
        if control is not None:
            other = tallied(again[each.block, each.layer], control.views[each.block], repeats=True)
        sizes = value_weighted(each.weights, each.v, each.columns)
        moved = {name: t.score() for name, t in tallies(view, sizes, each.allowed, repeats=False).items()}
        general = generic(each, view)
        for head in range(each.weights.shape[1]):
            figures = {
                name: of_head(pooled, head, other.get(name) if name in scores and control else None)
                for name, pooled in {**{n: s for n, s in other.items() if ROLES[n].needs_repeats}, **scores}.items()
            }
            by_value = {name: float(score.corrected[head]) for name, score in moved.items() if score is not None}
            more = {name: float(values[head]) for name, values in general.items()}
            found[each.block, each.layer, head] = Measured(figures, more, by_value)
    return found


class Scored(NamedTuple):
    """A role's score for all heads of an attention, overall and for each length."""

    pooled: Score
    by_length: dict[int, Score]


def tallied(found: Map, view: View, *, repeats: bool) -> dict[str, Scored]:
    """Return the scores of every role that can be recognised, by name."""
    scores: dict[str, Scored] = {}
    for name, each in tallies(view, found.weights, found.allowed, repeats=repeats).items():
        if (pooled := each.score()) is not None:
            scores[name] = Scored(pooled, each.by_length(view.length))
    return scores


def of_head(scored: Scored, head: int, control: Scored | None) -> Figures:
    """Return the figures of one head."""
    pooled, lengths = scored
    return Figures(
        float(pooled.mass[head]),
        float(pooled.argmax[head]),
        pooled.chance,
        float(pooled.corrected[head]),
        pooled.n_queries,
        {n: float(score.corrected[head]) for n, score in lengths.items()},
        None if control is None else float(control.pooled.corrected[head]),
    )


def generic(found: Map, view: View) -> dict[str, Float[Tensor, " H"]]:
    """Return the figures that need no role; see `Measured.more`."""
    weights, allowed, counted = found.weights, found.allowed, view.counted
    nothing = weights.new_zeros(weights.shape[1])
    at_sinks = tally(weights, sink(view), allowed, counted).score()
    more = {
        "entropy": entropy(weights, allowed, counted),
        "entropy_norm": entropy(weights, allowed, counted, normalised=True),
        "confidence": confidence(weights, allowed, counted, view.keys == EOS),
        "sink": nothing if at_sinks is None else at_sinks.mass,
        "total": mean_over(found.total, several(allowed, counted)),
    }
    if not view.crossing:
        more["distance"] = distance(weights, counted)
        more["distance_signed"] = distance(weights, counted, signed=True)
    return more


def group_share(found: Sequence[Map], view: View, role: str, heads: Sequence[Head]) -> float | None:
    """Return the mean over queries of the largest weight that any of these heads puts on a role's keys.

    So two heads that each serve half of the queries fully have the role together. None if no query is scored.
    """
    predicted = ROLES[role].predict(view)
    own = [(each, head) for each in found for block, layer, head in heads if (block, layer) == (each.block, each.layer)]
    if predicted is None or not own:
        return None
    asked = own[0][0].allowed.sum(-1).gt(1) & view.counted & (predicted & own[0][0].allowed).any(-1)
    masses = [(each.weights[:, head] * predicted).sum(-1) for each, head in own]
    best = masses[0]
    for mass in masses[1:]:
        best = best.maximum(mass)
    return float(best[asked].mean()) if bool(asked.any()) else None
