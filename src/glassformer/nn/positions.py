"""Positions: four ways in which order enters; attention never asks which scheme is in use.

>>> from glassformer import POSITIONS
>>> [name for name in POSITIONS if name.startswith("sinusoidal")]
['sinusoidal', 'sinusoidal_halves']
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from glassformer.base.errors import ConfigError, DataError
from glassformer.base.part import Part, explained
from glassformer.base.schemes import RelativeConfig, RotaryConfig
from glassformer.base.shapes import Float, Int, Keys, Queries, Tensor
from glassformer.base.tensors import widest
from glassformer.base.tracing import constant
from glassformer.nn.mask import Mask, ValueBias


class Rotation(NamedTuple):
    """The rotation of queries and keys: one angle for each position and each pair of numbers."""

    cos: Float[Tensor, "*batch T pairs"]
    sin: Float[Tensor, "*batch T pairs"]
    layout: str = "half"
    """Which numbers of a head form a pair; a name in `ROTARY_LAYOUTS`."""


class Sizes(NamedTuple):
    """The sizes and settings of a stack that a scheme may need."""

    d_model: int
    n_heads: int
    d_head: int
    max_len: int | None
    causal: bool = False
    rotary: RotaryConfig = RotaryConfig()
    relative: RelativeConfig = RelativeConfig()


class Relation(Part, ABC):
    """What a scheme adds in one layer only, with parameters of its own; held by that layer's self-attention."""

    @abstractmethod
    def forward(self, q: Queries, k: Keys, mask: Mask, *, scale: float) -> Mask:
        """Return the mask with the biases for scores and values; it gives the positions of queries and keys."""


class Positions(Part):
    """No positions ("none"), and the base of all schemes: attention sees a set, without order."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes

    def embedding(self, positions: Int[Tensor, "*batch T"], like: Tensor) -> Float[Tensor, "*batch T D"] | None:
        """Vectors to add to the token embeddings, in the dtype of `like`; None for nothing."""
        del positions, like
        return None

    def rotation(self, positions: Int[Tensor, "*batch T"], like: Tensor) -> Rotation | None:
        """The rotation of queries and keys, in the dtype of `like`; None for no rotation."""
        del positions, like
        return None

    def score_bias(
        self, queries: Int[Tensor, "*batch T"], keys: Int[Tensor, "*batch S"], like: Tensor
    ) -> Float[Tensor, "*batch H T S"] | None:
        """Numbers to add to the attention scores of every layer, in the dtype of `like`; None for nothing."""
        del queries, keys, like
        return None

    def relation(self) -> Relation | None:
        """A new module for one layer, for schemes that depend on its queries; None for no module."""
        return None


class Sinusoidal(Positions):
    """PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos of the same (Vaswani et al. 2017, section 3.5).

    Vectors are computed for the given positions, so any length works. For an odd D the last cosine is left out.

    >>> scheme = Sinusoidal(Sizes(d_model=4, n_heads=1, d_head=4, max_len=None, causal=False))
    >>> scheme.embedding(torch.arange(2), torch.zeros(1, dtype=torch.float64)).round(decimals=2).tolist()
    [[0.0, 1.0, 0.0, 1.0], [0.84, 0.54, 0.01, 1.0]]
    """

    @explained
    def embedding(self, positions: Int[Tensor, "*batch T"], like: Tensor) -> Float[Tensor, "*batch T D"]:
        """The vectors, in the dtype of `like`; angles are computed in float64 if the device has it."""
        turns = speeds(math.log(10_000.0), self.sizes.d_model, positions.device)
        angle = positions[..., None].to(turns.dtype) * turns
        return self.laid_out(angle.sin(), angle.cos())[..., : self.sizes.d_model].to(like.dtype)

    def laid_out(self, sin: Float[Tensor, "*where P"], cos: Float[Tensor, "*where P"]) -> Float[Tensor, "*where Q"]:
        """Join sines and cosines of all P = ceil(D/2) frequencies, with each frequency's sine and cosine adjacent."""
        return torch.stack([sin, cos], dim=-1).flatten(-2)


class SinusoidalHalves(Sinusoidal):
    """The same numbers in another order: first all sines, then all cosines, as in Marian.

    The code published by Vaswani et al. 2017 (tensor2tensor) does the same, with slightly different frequencies. Models
    learn equally from either order: only the order of the numbers in a vector differs.
    """

    def laid_out(self, sin: Float[Tensor, "*where P"], cos: Float[Tensor, "*where P"]) -> Float[Tensor, "*where Q"]:
        """Join all sines, then all cosines."""
        return torch.cat([sin, cos], dim=-1)


class Learned(Positions):
    """A learned vector for each position below max_len (Gehring et al. 2017, section 3.1)."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        if sizes.max_len is None:
            raise ConfigError("Learned positions need max_len, the longest text; got None. Try max_len=512.")
        self.weight = nn.Parameter(torch.empty(sizes.max_len, sizes.d_model))

    @explained
    def embedding(self, positions: Int[Tensor, "*batch T"], like: Tensor) -> Float[Tensor, "*batch T D"]:
        """The vectors of the positions."""
        try:
            return F.embedding(positions, self.weight).to(like.dtype)
        except IndexError as error:  # on a CPU
            n, (least, most) = len(self.weight), (int(each) for each in positions.aminmax())
            raise DataError(
                f"A learned position must be at least 0 and below max_len={n}; got {least} to {most}. "
                "Give a shorter text, or make the positions with a larger max_len."
            ) from error


def speeds(log_base: float, R: int, device: torch.device) -> Float[Tensor, " pairs"]:
    """base^(-2i/R) for pair i (Su et al. 2021, equation 15), in float64 if the device has it.

    In float32 the angle at position 100,000 is off by 0.004, which no later step can correct. The base is given as its
    logarithm, because a stretched base may exceed the largest float.
    """
    return torch.exp(torch.arange(0, R, 2, device=device, dtype=widest(device)) * (-log_base / R))


def unscaled(settings: RotaryConfig, R: int, device: torch.device) -> Float[Tensor, " pairs"]:
    """The original frequencies, without scaling."""
    return speeds(math.log(settings.base), R, device)


def linear(settings: RotaryConfig, R: int, device: torch.device) -> Float[Tensor, " pairs"]:
    """Position interpolation: position p is rotated as p / factor was before (Chen et al. 2023, section 2.3)."""
    return speeds(math.log(settings.base), R, device) / _factor(settings)


def ntk(settings: RotaryConfig, R: int, device: torch.device) -> Float[Tensor, " pairs"]:
    """NTK-aware interpolation (Peng et al. 2023, section 3.1): the base becomes base * factor^(R/(R-2)).

    The slowest pair becomes slower by the factor; the fastest pair does not change.
    """
    return speeds(math.log(settings.base) + R / (R - 2) * math.log(_factor(settings)), R, device)


def yarn(settings: RotaryConfig, R: int, device: torch.device) -> Float[Tensor, " pairs"]:
    """YaRN: keep fast pairs, interpolate slow pairs, and use a ramp in between (Peng et al. 2023, section 3.2).

    The ramp is linear in the index of the pair, with its ends rounded outwards to whole pairs, as in the paper's code,
    which trained the published weights. Equation 18 instead defines it over the number of turns.
    """
    own, slow_fast = speeds(math.log(settings.base), R, device), settings.turns
    slow, fast = (_pair_of(turns, settings, R) for turns in slow_fast)
    first, last = max(math.floor(fast), 0), min(math.ceil(slow), R - 1)
    pairs = torch.arange(R // 2, device=device, dtype=own.dtype)
    ramp = ((pairs - first) / max(last - first, 0.001)).clamp(0, 1)  # a step, if both ends are the same pair
    return own * (1 - ramp) + own / _factor(settings) * ramp


def llama3(settings: RotaryConfig, R: int, device: torch.device) -> Float[Tensor, " pairs"]:
    """As YaRN, with a ramp over the number of turns within the original length (code of Llama 3.1, 2024)."""
    own = speeds(math.log(settings.base), R, device)
    turns = own * (_original(settings) / (2 * math.pi))
    slow, fast = settings.turns
    kept = ((turns - slow) / (fast - slow)).clamp(0, 1)
    return own * kept + own / _factor(settings) * (1 - kept)


ROTARY_SCALINGS: dict[str, Callable[[RotaryConfig, int, torch.device], Tensor]] = {
    "none": unscaled,
    "linear": linear,
    "ntk": ntk,
    "yarn": yarn,
    "llama3": llama3,
}
"""Each takes the settings and R, how many numbers of a head are rotated, and returns R/2 frequencies ("speeds") in
radians per position of each pair, the fastest first."""


def attention_factor(settings: RotaryConfig) -> float:
    """The factor for queries and keys that keeps attention as sharp over many more keys; 1 except for YaRN.

    sqrt(1/t) = 0.1 ln(factor) + 1, where t is the temperature of the softmax (Peng et al. 2023, equation 22).
    """
    if settings.scaling != "yarn":
        return 1.0
    return 0.1 * math.log(_factor(settings)) + 1.0 if settings.attention_factor is None else settings.attention_factor


def _pair_of(turns: float, settings: RotaryConfig, R: int) -> float:
    """The (fractional) index of the pair that makes this many turns within the original length."""
    return R * (math.log(_original(settings) / (2 * math.pi)) - math.log(turns)) / (2 * math.log(settings.base))


def _factor(settings: RotaryConfig) -> float:
    assert settings.factor is not None, "RotaryConfig refuses a scaling without its factor"
    return settings.factor


def _original(settings: RotaryConfig) -> int:
    assert settings.original_max_len is not None, "RotaryConfig refuses bands without the original length"
    return settings.original_max_len


class Rotary(Positions):
    """R(p) q . R(s) k = q . R(s - p) k, with angles p * speed_i (Su et al. 2021, equation 15)."""

    @explained
    def rotation(self, positions: Int[Tensor, "*batch T"], like: Tensor) -> Rotation:
        """cos and sin of each position's angles, times YaRN's factor; computed in high precision and rounded once."""
        settings = self.sizes.rotary
        scaled = ROTARY_SCALINGS[settings.scaling](settings, settings.width(self.sizes.d_head), positions.device)
        angle, factor = positions[..., None].to(scaled.dtype) * scaled, attention_factor(settings)
        cos, sin = ((part * factor).to(like.dtype) for part in (angle.cos(), angle.sin()))
        return Rotation(cos, sin, settings.layout)


Pair = tuple[Tensor, Tensor]
"""The first numbers of all pairs and the second ones, each half as wide as the rotated vector."""


def halves(x: Float[Tensor, "*where R"]) -> Pair:
    """Pair number i with number i + R/2, the layout of Llama's published weights."""
    first, second = x.chunk(2, dim=-1)
    return first, second


def join_halves(pair: Pair) -> Float[Tensor, "*where R"]:
    """The inverse of `halves`."""
    return torch.cat(pair, dim=-1)


def neighbours(x: Float[Tensor, "*where R"]) -> Pair:
    """Pair number 2i with number 2i + 1, the layout of the paper and of GPT-J."""
    return x[..., 0::2], x[..., 1::2]


def join_neighbours(pair: Pair) -> Float[Tensor, "*where R"]:
    """The inverse of `neighbours`."""
    return torch.stack(pair, dim=-1).flatten(-2)


ROTARY_LAYOUTS: dict[str, tuple[Callable[[Tensor], Pair], Callable[[Pair], Tensor]]] = {
    "half": (halves, join_halves),
    "interleaved": (neighbours, join_neighbours),
}


def rotate(x: Queries, rotation: Rotation | None) -> Queries:
    """Rotate the pairs (a, b) of x to (a cos - b sin, b cos + a sin); numbers beyond the pairs stay unchanged."""
    if rotation is None:
        return x
    cos, sin = (part if part.ndim == 2 else part[:, None] for part in rotation[:2])
    split, join = ROTARY_LAYOUTS[rotation.layout]
    R = 2 * cos.shape[-1]
    a, b = split(x[..., :R])
    turned = join((a * cos - b * sin, b * cos + a * sin))
    return turned if x.shape[-1] == R else torch.cat([turned, x[..., R:]], dim=-1)


class Alibi(Positions):
    """score - slope_h * |distance|, slope_h = 2^(-8 h / H) (Press, Smith and Lewis 2022, section 3).

    If the number of heads is not a power of two, the slopes for the next lower power come first, then every other slope
    for the next higher one, as in the paper's code.
    """

    @explained
    def score_bias(
        self, queries: Int[Tensor, "*batch T"], keys: Int[Tensor, "*batch S"], like: Tensor
    ) -> Float[Tensor, "*batch H T S"]:
        """The penalties, 0 at a query's own position."""
        wide = torch.promote_types(like.dtype, torch.float32)  # float16 ends at 65,504, where a penalty may be small
        distance = (queries[..., :, None] - keys[..., None, :]).abs().to(wide)
        slopes = constant(alibi_slopes(self.sizes.n_heads), wide, like.device)
        return (-slopes[:, None, None] * distance[..., None, :, :]).to(like.dtype)


def alibi_slopes(n_heads: int) -> list[float]:
    """The slope of each head."""
    lower = 2 ** int(math.log2(n_heads))
    slopes = [2.0 ** (-8.0 * (h + 1) / lower) for h in range(lower)]
    return slopes + [2.0 ** (-4.0 * (h + 1) / lower) for h in range(0, 2 * (n_heads - lower), 2)]


class Buckets(Positions):
    """score + weight[bucket(distance), head] (Raffel et al. 2020, section 2.1).

    All layers share one table, as in T5 (where the first layer holds it). Cross-attention adds nothing.
    """

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.weight = nn.Parameter(torch.empty(sizes.relative.n_buckets, sizes.n_heads))

    @explained
    def score_bias(
        self, queries: Int[Tensor, "*batch T"], keys: Int[Tensor, "*batch S"], like: Tensor
    ) -> Float[Tensor, "*batch H T S"]:
        """The learned number of each pair's bucket, per head."""
        distance = keys[..., None, :] - queries[..., :, None]
        added = F.embedding(bucket(distance, self.sizes.relative, causal=self.sizes.causal), self.weight)
        return added.movedim(-1, -3).to(like.dtype)


def bucket(distance: Int[Tensor, "*pairs"], settings: RelativeConfig, *, causal: bool) -> Int[Tensor, "*pairs"]:
    """The bucket of each distance (key minus query): one per short distance, then growing ranges, then all beyond.

    A side has N buckets, and the first N/2 hold one distance each. A larger distance n falls into bucket
    N/2 + floor(ln(n / (N/2)) / ln(max_distance / (N/2)) * (N - N/2)), at most N - 1. If causal, all buckets are for
    earlier keys, and later keys count as distance 0; otherwise the upper half of the buckets is for later keys.
    """
    side, single = settings.sides(causal)
    edges = constant(first_distances(side, single, settings.max_distance), torch.long, distance.device)
    far = (-distance).clamp(min=0) if causal else distance.abs()
    within = torch.bucketize(far, edges, right=True)
    return within if causal else within + side * (distance > 0)


@cache
def first_distances(side: int, single: int, max_distance: int) -> tuple[int, ...]:
    """The smallest distance of each bucket of a side except the first; by integers, as logarithms may be off by one."""
    ranges = side - single
    edges = list(range(1, single + 1))
    for step in range(1, ranges):
        # The first n with (n / single)^ranges >= (max_distance / single)^step, searched from a guess nearby.
        bound = max_distance**step * single ** (ranges - step)
        n = round(single * (max_distance / single) ** (step / ranges))
        while n**ranges >= bound:
            n -= 1
        while n**ranges < bound:
            n += 1
        edges.append(n)
    return tuple(edges)


class Shaw(Positions):
    """Relative position representations (Shaw, Uszkoreit and Vaswani 2018), with separate tables for each layer."""

    def relation(self) -> Relation:
        """The tables of one layer."""
        return RelativeVectors(self.sizes.relative.clip_distance, self.sizes.d_head)


class RelativeVectors(Relation):
    """z_i = sum_j weight_ij (v_j + a^V_ij), with weights from scores q_i . (k_j + a^K_ij) * scale (equations 3 to 5).

    a_ij is row clip(j - i, -k, k) of a table (section 3.2). There is one table for keys and one for values, shared by
    all heads (section 3.3). q_i . a^K_ij is added to the scores, so that no vector per pair is ever held.
    """

    def __init__(self, clip_distance: int, d_head: int) -> None:
        super().__init__()
        self.clip_distance = clip_distance
        self.keys = nn.Parameter(torch.empty(2 * clip_distance + 1, d_head))
        self.values = nn.Parameter(torch.empty(2 * clip_distance + 1, d_head))

    def forward(self, q: Queries, k: Keys, mask: Mask, *, scale: float) -> Mask:
        """Return the mask with q . a^K * scale added to its bias, and a^V as its value bias."""
        T, S = q.shape[-2], k.shape[-2]
        clip = self.clip_distance
        index = (-mask.back(T, S, q.device)).clamp(-clip, clip) + clip  # [T, S] or [B, T, S]
        rows = index if index.ndim == 3 else index[None]
        by_row = (q * scale) @ self.keys.to(q.dtype).mT  # [B, H, T, 2k + 1]
        bias = by_row.gather(-1, rows[:, None].expand(*q.shape[:2], T, S))
        return replace(
            mask, bias=bias if mask.bias is None else mask.bias + bias, value_bias=ValueBias(self.values, index)
        )


POSITIONS: dict[str, type[Positions]] = {
    "sinusoidal": Sinusoidal,
    "sinusoidal_halves": SinusoidalHalves,
    "learned": Learned,
    "rotary": Rotary,
    "alibi": Alibi,
    "t5": Buckets,
    "shaw": Shaw,
    "none": Positions,
}
