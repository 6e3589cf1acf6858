"""Attention metrics: above all, how much of a head's attention falls on a role's predicted keys, compared to chance.

Weights are [N, H, T, S] for N sequences, with rows that sum to 1 (`record.maps` normalises them under every rule).
`predicted` is P(i), the keys that a role predicts for each query; `allowed`, the keys that each query may read;
`counted`, the queries that are scored, which padding and special queries are not. All three are masks; they are never
inferred from zero weights. A query that may read fewer than two keys, or has no predicted key, is left out.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from glassformer.base.shapes import Bool, Float, Int, Tensor


class Score(NamedTuple):
    """A role's figures for each head, as means over queries."""

    mass: Float[Tensor, " H"]
    """S: weight on the predicted keys (Vig and Belinkov 2019, section 4.2)."""
    argmax: Float[Tensor, " H"]
    """V: share of queries whose largest weight is on a predicted key (Voita et al. 2019, section 5.1)."""
    chance: float
    """c: the weight that uniform attention puts there, |P(i)| / |a(i)| for the |a(i)| keys that a query may read."""
    corrected: Float[Tensor, " H"]
    """S' = (S - c) / (1 - c): 0 at chance, at most 1; 0 if c = 1."""
    n_queries: int


class Tally(NamedTuple):
    """Sums over the counted queries of each sequence, from which the score of any subset of sequences follows."""

    mass: Float[Tensor, "N H"]
    argmax: Float[Tensor, "N H"]
    chance: Float[Tensor, " N"]
    queries: Int[Tensor, " N"]

    def score(self, rows: Bool[Tensor, " N"] | None = None) -> Score | None:
        """Return the score of all or some sequences, pooled by the number of queries; None if no query counts."""
        mass, argmax, chance, queries = self if rows is None else (each[rows] for each in self)
        n = int(queries.sum())
        if not n:
            return None
        S, c = mass.sum(0) / n, float(chance.sum()) / n
        corrected = (S - c) / (1 - c) if c < 1 else torch.zeros_like(S)
        return Score(S, argmax.sum(0) / n, c, corrected, n)

    def by_length(self, lengths: Int[Tensor, " N"]) -> dict[int, Score]:
        """Return the score of the sequences of each length by themselves."""
        found = {int(n): self.score(lengths == n) for n in lengths.unique()}
        return {n: score for n, score in found.items() if score is not None}


def tally(
    weights: Float[Tensor, "N H T S"],
    predicted: Bool[Tensor, "N T S"],
    allowed: Bool[Tensor, "N T S"],
    counted: Bool[Tensor, "N T"],
    largest: Int[Tensor, "N H T"] | None = None,
) -> Tally:
    """Sum, for each sequence, the weight that its queries put on the predicted keys.

    `largest`: the result of `largest_key`, if it is already known.
    """
    predicted = predicted & allowed
    asked = several(allowed, counted) & predicted.any(-1)
    target = (predicted & asked[..., None]).to(weights.dtype)
    largest = largest_key(weights, allowed) if largest is None else largest
    hits = target.gather(-1, largest.transpose(1, 2))  # [N, T, H]
    share = predicted.sum(-1) / allowed.sum(-1).clamp(min=1)
    return Tally(
        torch.einsum("nhts,nts->nh", weights, target),
        hits.sum(1),
        (share * asked).sum(-1),
        asked.sum(-1),
    )


def several(allowed: Bool[Tensor, "N T S"], counted: Bool[Tensor, "N T"]) -> Bool[Tensor, "N T"]:
    """Return the counted queries that may read at least two keys."""
    return counted & (allowed.sum(-1) > 1)


def largest_key(weights: Float[Tensor, "N H T S"], allowed: Bool[Tensor, "N T S"]) -> Int[Tensor, "N H T"]:
    """Return the allowed key with the largest weight."""
    return weights.masked_fill(~allowed[:, None], -math.inf).argmax(-1)


def mean_over(values: Float[Tensor, "N H T"], asked: Bool[Tensor, "N T"]) -> Float[Tensor, " H"]:
    """Return the mean of each head's values over the asked queries; NaN if there are none."""
    return (values * asked[:, None]).sum((0, 2)) / asked.sum()


def entropy(
    weights: Float[Tensor, "N H T S"],
    allowed: Bool[Tensor, "N T S"],
    counted: Bool[Tensor, "N T"],
    *,
    normalised: bool = False,
) -> Float[Tensor, " H"]:
    """Return the mean of -sum A ln A in nats (Clark et al. 2019, section 3.3); normalised: divided by ln |a(i)|."""
    asked = several(allowed, counted)
    nats = -torch.special.xlogy(weights, weights).sum(-1)
    most = allowed.sum(-1).clamp(min=2).log()[:, None]
    return mean_over(nats / most if normalised else nats, asked)


def confidence(
    weights: Float[Tensor, "N H T S"],
    allowed: Bool[Tensor, "N T S"],
    counted: Bool[Tensor, "N T"],
    ends: Bool[Tensor, "N S"],
) -> Float[Tensor, " H"]:
    """Return the mean of the largest weight, ignoring <eos> keys (`ends`) (Voita et al. 2019, section 4)."""
    others = weights.masked_fill(ends[:, None, None], 0.0)
    return mean_over(others.amax(-1), several(allowed, counted))


def distance(
    weights: Float[Tensor, "N H T S"], counted: Bool[Tensor, "N T"], *, signed: bool = False
) -> Float[Tensor, " H"]:
    """Return the attention-weighted mean of |key - query| in positions (Vig and Belinkov 2019); signed: key - query.

    For self-attention only, where queries and keys are the same sequence.
    """
    T, S = weights.shape[-2:]
    apart = (torch.arange(S) - torch.arange(T)[:, None]).to(weights)
    inside = weights * counted[:, None, :, None]
    return (inside * (apart if signed else apart.abs())).sum((0, 2, 3)) / inside.sum((0, 2, 3))


def coverage(weights: Float[Tensor, "N H T S"], counted: Bool[Tensor, "N T"]) -> Float[Tensor, "N H S"]:
    """Return the total weight that each key gets from the counted queries: 0 means ignored, above 1 read repeatedly."""
    return torch.einsum("nhts,nt->nhs", weights, counted.to(weights.dtype))


def value_weighted(
    weights: Float[Tensor, "N H T S"], v: Float[Tensor, "N G S K"], output: Float[Tensor, "D H K"]
) -> Float[Tensor, "N H T S"]:
    """Weight attention by the norm of what it moves, ||A[i,j] v_j W_output||, rows normalised (Kobayashi et al. 2020).

    A weight on a key with a zero vector moves nothing.
    """
    sized = weights * value_sizes(v, output)[:, :, None, :]
    return sized / sized.sum(-1, keepdim=True).clamp(min=torch.finfo(sized.dtype).tiny)


def value_sizes(v: Float[Tensor, "N G S K"], output: Float[Tensor, "D H K"]) -> Float[Tensor, "N H S"]:
    """Return ||v_j W_output|| for each head: the norm of what a key contributes at weight 1.

    `v` are the values, bias included, of G heads, each shared by H/G; `output` is the output projection, by head.
    """
    values = v.repeat_interleave(output.shape[1] // v.shape[1], 1)
    squares = torch.einsum("dhk,dhl->hkl", output, output)  # |v W|^2 = v W W^T v^T: K numbers per key instead of D
    return (torch.einsum("nhsk,hkl->nhsl", values, squares) * values).sum(-1).clamp(min=0.0).sqrt()


def divergence(
    one: Float[Tensor, "N T S"],
    other: Float[Tensor, "N T S"],
    allowed: Bool[Tensor, "N T S"],
    counted: Bool[Tensor, "N T"],
) -> float:
    """Return the mean Jensen-Shannon divergence of two heads' rows, in bits, 0 to 1 (Clark et al. 2019)."""
    asked = several(allowed, counted)
    if not bool(asked.any()):
        return math.nan
    p, q = one[asked], other[asked]
    middle = (p + q) / 2
    nats = (torch.special.xlogy(p, p) + torch.special.xlogy(q, q)) / 2 - torch.special.xlogy(middle, middle)
    return float(nats.sum(-1).mean()) / math.log(2)


def alignment_error(
    weights: Float[Tensor, "N T S"],
    allowed: Bool[Tensor, "N T S"],
    sure: Bool[Tensor, "N T S"],
    possible: Bool[Tensor, "N T S"],
) -> float:
    """Return the alignment error rate of the largest key of each query with a sure link (Och and Ney 2003, equation 7).

    1 - (|A and sure| + |A and possible|) / (|A| + |sure|); sure links count as possible too.
    """
    asked = sure.any(-1)
    links = torch.zeros_like(sure).scatter(-1, largest_key(weights[:, None], allowed)[:, 0, :, None], True)
    links &= asked[..., None]
    hits = (links & sure).sum() + (links & (possible | sure)).sum()
    return 1 - float(hits) / float(links.sum() + sure.sum())
