"""Settings of the position schemes: frozen dataclasses, checked when made. Both parts and model configs use them."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from glassformer.base.bounds import at_least, at_most
from glassformer.base.errors import ConfigError
from glassformer.base.registry import lookup
from glassformer.base.typed import check_types

LAYOUTS = ("half", "interleaved")
MOST_PLACES, MOST_TOLD_APART = 2**31 - 1, 2**20
"""Upper bounds: of positions, and of distances with a vector or bucket of their own."""
SCALINGS: dict[str, tuple[float, float] | None] = {
    "none": None,
    "linear": None,
    "ntk": None,
    "yarn": (1.0, 32.0),
    "llama3": (1.0, 4.0),
}
"""The scalings of rotary angles and their default (slow_turns, fast_turns); None if all pairs are treated alike."""


@dataclass(frozen=True)
class RotaryConfig:
    """Rotary positions (Su et al. 2021): how queries and keys are rotated, and how that is scaled to longer texts.

    Pair i is rotated by base^(-2i/R) radians per position, where R = share K numbers of a head are rotated. `factor`
    says how many times longer texts are to be than `original_max_len`, the length in the original training. Errors:
    `ConfigError` for values that contradict each other.
    """

    base: float = 10_000.0
    layout: str = "half"  # which numbers form a pair: i and i + K/2 (half), or 2i and 2i + 1 (interleaved)
    share: float = 1.0  # the part of a head that is rotated, from its first number on
    scaling: str = "none"
    factor: float | None = None  # for every scaling
    original_max_len: int | None = None  # for yarn and llama3, as slow_turns and fast_turns
    slow_turns: float | None = None  # pairs with fewer turns in the original length are slowed by the factor
    fast_turns: float | None = None  # pairs with more turns do not change
    attention_factor: float | None = None  # for yarn: multiplies queries and keys; None: 0.1 ln(factor) + 1

    def __post_init__(self) -> None:
        check_types(self)
        if not 1.0 < self.base < math.inf:
            raise ConfigError(
                f"The base of rotary positions must be above 1 and finite; got {self.base}. Try base=10000.0."
            )
        lookup(dict.fromkeys(LAYOUTS), self.layout, "layout")
        if not 0.0 < self.share <= 1.0:
            raise ConfigError(
                f"share, the part of each head that is rotated, must be above 0 and at most 1; got {self.share}. "
                "Try share=1.0."
            )
        bands = lookup(SCALINGS, self.scaling, "scaling")
        self._check_use("factor", self.scaling != "none", needed=True, example="factor=4.0")
        self._check_use("original_max_len", bands is not None, needed=True, example="original_max_len=2048")
        self._check_use("slow_turns", bands is not None)
        self._check_use("fast_turns", bands is not None)
        self._check_use("attention_factor", self.scaling == "yarn")
        if self.factor is not None and not 1.0 <= self.factor < math.inf:
            raise ConfigError(
                f"factor says how many times longer texts become, so it must be at least 1 and finite; got "
                f"{self.factor}. Try factor=4.0."
            )
        at_least(self, "", 1, "original_max_len")
        at_most(self, "", MOST_PLACES, "original_max_len")
        if self.attention_factor is not None and not 0.0 < self.attention_factor < math.inf:
            raise ConfigError(
                f"attention_factor must be above 0 and finite; got {self.attention_factor}. Try attention_factor=1.0."
            )
        if bands is not None and not 0.0 < self.turns[0] < self.turns[1] < math.inf:
            raise ConfigError(
                f"slow_turns must be above 0 and below fast_turns; got {self.turns[0]} and {self.turns[1]}. "
                f"Try slow_turns={bands[0]} and fast_turns={bands[1]}."
            )

    def _check_use(self, name: str, used: bool, *, needed: bool = False, example: str = "") -> None:
        value = getattr(self, name)
        if value is not None and not used:
            raise ConfigError(
                f"scaling={self.scaling!r} does not use {name}; got {name}={value}. Remove {name}, or choose a scaling "
                "that uses it."
            )
        if value is None and used and needed:
            raise ConfigError(f"scaling={self.scaling!r} needs {name}; got none. Try {example}.")

    @property
    def turns(self) -> tuple[float, float]:
        """(slow_turns, fast_turns), by default those of the scaling; (0, 0) if it has none."""
        slow, fast = SCALINGS[self.scaling] or (0.0, 0.0)
        return (
            slow if self.slow_turns is None else self.slow_turns,
            fast if self.fast_turns is None else self.fast_turns,
        )

    def width(self, d_head: int) -> int:
        """How many numbers of a head are rotated. Errors: `ConfigError` if they do not form pairs."""
        turned = round(d_head * self.share)
        if self.share == 1.0 and turned % 2:
            raise ConfigError(
                f"positions='rotary' rotates the numbers of a head in pairs, so d_head must be even; got {d_head}. "
                f"Try d_head={d_head + 1}."
            )
        least = 4 if self.scaling == "ntk" else 2  # ntk's exponent R/(R-2) is undefined for a single pair
        if turned % 2 or turned < least or abs(turned - d_head * self.share) > 1e-6:
            even = max(least, 2 * round(d_head * self.share / 2))
            remedy = f"share={even / d_head}" if even <= d_head else f"d_head={least} and share=1.0"
            raise ConfigError(
                f"scaling={self.scaling!r} rotates the numbers of a head in pairs, so share times d_head must be an "
                f"even whole number of at least {least}; got {self.share} times {d_head}. Try {remedy}."
            )
        return turned


@dataclass(frozen=True)
class RelativeConfig:
    """Relative positions: how T5's buckets and Shaw's clipping group the distances between query and key."""

    n_buckets: int = 32  # for positions="t5"; if both sides are read, half of them for each side
    max_distance: int = 128  # for positions="t5": from this distance on, all share the last bucket
    clip_distance: int = 16  # for positions="shaw" (k in the paper): keys farther away count as this far

    def __post_init__(self) -> None:
        check_types(self)
        for each in fields(self):
            if getattr(self, each.name) < 1:
                raise ConfigError(f"{each.name} must be at least 1; got {getattr(self, each.name)}.")
        at_most(self, "", MOST_PLACES, "max_distance")
        at_most(self, "", MOST_TOLD_APART, "n_buckets", "clip_distance")

    def sides(self, causal: bool) -> tuple[int, int]:
        """(buckets per side, how many of them hold a single distance). Errors: `ConfigError` for too few buckets."""
        least = 2 if causal else 4
        if self.n_buckets < least or (self.n_buckets % 2 and not causal):
            even = max(least, self.n_buckets + self.n_buckets % 2)
            why = "at least 2" if causal else "at least 4 and even, as half of them are for each side"
            raise ConfigError(f"n_buckets must be {why}; got {self.n_buckets}. Try n_buckets={even}.")
        side = self.n_buckets if causal else self.n_buckets // 2
        if self.max_distance <= side // 2:
            raise ConfigError(
                f"The first {side // 2} buckets hold one distance each, so max_distance must be above {side // 2}; "
                f"got {self.max_distance}. Try max_distance={4 * side}."
            )
        return side, side // 2
