"""Whether a head copies, that is raises the logits of tokens it attends to: from its weights and from its output."""

from __future__ import annotations

from typing import NamedTuple

import torch

from glassformer.base.shapes import Bool, Float, Int, Tensor
from glassformer.lens.observe import Map
from glassformer.lens.roles.roles import View, largest_key, several
from glassformer.nn.embedding import Embedding
from glassformer.nn.heads import Head
from glassformer.nn.norm import LayerNorm
from glassformer.nn.transformer import Transformer

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
    if not answers(model, found) or not isinstance(model.head, Head):
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
    if not answers(model, found) or not isinstance(model.head, Head):
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
        assert isinstance(model.head, Head)
        likeliest = torch.cat([(rows @ model.head.weight.T).argmax(-1) for rows in given.split(ROWS)])
    return (likeliest == read[asked]).cpu().double().mean()


def gained(model: Transformer, vectors: Float[Tensor, "M D"]) -> Float[Tensor, "M D"]:
    """Multiply stream vectors by the gain of the final norm; for a LayerNorm, subtract their mean first."""
    norm = model.reader.last_norm
    if isinstance(norm, LayerNorm):
        vectors = vectors - vectors.mean(-1, keepdim=True)
    gain = getattr(norm, "weight", None)
    return vectors if gain is None else vectors * gain
