"""How much of a head's attention falls on the keys that a role predicts, beside what chance would put there.

Weights are [N, H, T, S] of N sequences, rows that sum to 1 (`record.maps` makes them so under every rule). `predicted`
is P(i), the keys that a role predicts for each query, `allowed` what each query may read, `counted` which queries are
asked at all: padding and special queries are not. All of them are masks, never taken from zeros among the weights. A
query that may read fewer than two keys says nothing and is left out, and so is one for which the role predicts no key.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from glassformer.foundation.shapes import Bool, Float, Int, Tensor


class Score(NamedTuple):
    """A role's figures for each head, means over queries."""

    mass: Float[Tensor, " H"]
    """S: weight on the predicted keys (Vig and Belinkov 2019, section 4.2)."""
    argmax: Float[Tensor, " H"]
    """V: share of queries whose largest weight lies there (Voita et al. 2019, section 5.1)."""
    chance: float
    """c: what even weights would put there, |P(i)| / |a(i)| for the |a(i)| keys that a query may read."""
    corrected: Float[Tensor, " H"]
    """S' = (S - c) / (1 - c): 0 by chance, 1 at most; 0 where chance is all there is."""
    n_queries: int


class Tally(NamedTuple):
    """Sums over the counted queries of each sequence, from which a score of any sequences is had."""

    mass: Float[Tensor, "N H"]
    argmax: Float[Tensor, "N H"]
    chance: Float[Tensor, " N"]
    queries: Int[Tensor, " N"]

    def score(self, rows: Bool[Tensor, " N"] | None = None) -> Score | None:
        """The score of all sequences, or of some, pooled by the number of queries; none where none was counted."""
        mass, argmax, chance, queries = self if rows is None else (each[rows] for each in self)
        n = int(queries.sum())
        if not n:
            return None
        S, c = mass.sum(0) / n, float(chance.sum()) / n
        corrected = (S - c) / (1 - c) if c < 1 else torch.zeros_like(S)
        return Score(S, argmax.sum(0) / n, c, corrected, n)

    def by_length(self, lengths: Int[Tensor, " N"]) -> dict[int, Score]:
        """The score of each length by itself: maps of different lengths are never averaged."""
        found = {int(n): self.score(lengths == n) for n in lengths.unique()}
        return {n: score for n, score in found.items() if score is not None}


def tally(
    weights: Float[Tensor, "N H T S"],
    predicted: Bool[Tensor, "N T S"],
    allowed: Bool[Tensor, "N T S"],
    counted: Bool[Tensor, "N T"],
    largest: Int[Tensor, "N H T"] | None = None,
) -> Tally:
    """How much weight falls on the predicted keys, query by query, summed for each sequence.

    `largest`: what `largest_key` gives, where it is known already.
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
    """The counted queries that may read two keys or more."""
    return counted & (allowed.sum(-1) > 1)


def largest_key(weights: Float[Tensor, "N H T S"], allowed: Bool[Tensor, "N T S"]) -> Int[Tensor, "N H T"]:
    """The allowed key of the largest weight."""
    return weights.masked_fill(~allowed[:, None], -math.inf).argmax(-1)


def mean_over(values: Float[Tensor, "N H T"], asked: Bool[Tensor, "N T"]) -> Float[Tensor, " H"]:
    """The mean of each head's values over the asked queries; NaN where there are none."""
    return (values * asked[:, None]).sum((0, 2)) / asked.sum()


def entropy(
    weights: Float[Tensor, "N H T S"],
    allowed: Bool[Tensor, "N T S"],
    counted: Bool[Tensor, "N T"],
    *,
    normalised: bool = False,
) -> Float[Tensor, " H"]:
    """Mean of -sum A ln A, in nats (Clark et al. 2019, section 3.3); normalised: as a share of ln |a(i)|, 0 to 1."""
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
    """Mean of the largest weight, the <eos> keys (`ends`) left out (Voita et al. 2019, section 4)."""
    others = weights.masked_fill(ends[:, None, None], 0.0)
    return mean_over(others.amax(-1), several(allowed, counted))


def distance(
    weights: Float[Tensor, "N H T S"], counted: Bool[Tensor, "N T"], *, signed: bool = False
) -> Float[Tensor, " H"]:
    """Mean of |key - query| in positions, weighted by attention (Vig and Belinkov 2019); signed: key - query.

    For self-attention, whose queries and keys are one sequence.
    """
    T, S = weights.shape[-2:]
    apart = (torch.arange(S) - torch.arange(T)[:, None]).to(weights)
    inside = weights * counted[:, None, :, None]
    return (inside * (apart if signed else apart.abs())).sum((0, 2, 3)) / inside.sum((0, 2, 3))


def coverage(weights: Float[Tensor, "N H T S"], counted: Bool[Tensor, "N T"]) -> Float[Tensor, "N H S"]:
    """What each key gets from all counted queries: 0 is ignored, above 1 is read more than once."""
    return torch.einsum("nhts,nt->nhs", weights, counted.to(weights.dtype))


def value_weighted(
    weights: Float[Tensor, "N H T S"], v: Float[Tensor, "N G S K"], output: Float[Tensor, "D H K"]
) -> Float[Tensor, "N H T S"]:
    """Weights times the size of what is moved, ||A[i,j] v_j W_output||, each row to sum 1 (Kobayashi et al. 2020).

    A weight on a key whose vector is nothing moves nothing.
    """
    sized = weights * value_sizes(v, output)[:, :, None, :]
    return sized / sized.sum(-1, keepdim=True).clamp(min=torch.finfo(sized.dtype).tiny)


def value_sizes(v: Float[Tensor, "N G S K"], output: Float[Tensor, "D H K"]) -> Float[Tensor, "N H S"]:
    """||v_j W_output|| of each head: how much a key gives when it is read with weight 1.

    `v` are the values (their bias within) of G heads, each shared by H/G; `output` is the output map, cut by heads.
    """
    values = v.repeat_interleave(output.shape[1] // v.shape[1], 1)
    squares = torch.einsum("dhk,dhl->hkl", output, output)  # |v W|^2 = v W W^T v^T, K numbers a key and not D
    return (torch.einsum("nhsk,hkl->nhsl", values, squares) * values).sum(-1).clamp(min=0.0).sqrt()


def divergence(
    one: Float[Tensor, "N T S"],
    other: Float[Tensor, "N T S"],
    allowed: Bool[Tensor, "N T S"],
    counted: Bool[Tensor, "N T"],
) -> float:
    """How unlike two heads are: mean Jensen-Shannon divergence of their rows, 0 to 1 in bits (Clark et al. 2019)."""
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
    """Alignment error rate of the largest key of each query with a sure link (Och and Ney 2003, equation 7).

    1 - (|A and sure| + |A and possible|) / (|A| + |sure|); sure links are possible, too.
    """
    asked = sure.any(-1)
    links = torch.zeros_like(sure).scatter(-1, largest_key(weights[:, None], allowed)[:, 0, :, None], True)
    links &= asked[..., None]
    hits = (links & sure).sum() + (links & (possible | sure)).sum()
    return 1 - float(hits) / float(links.sum() + sure.sum())
