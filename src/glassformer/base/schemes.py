"""Settings of position schemes and attention patterns, which parts and configs use: dataclasses, checked when made."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

from glassformer.base.contradictions import BACKWARD, PATTERN, ROTARY, refuse
from glassformer.base.errors import ConfigError
from glassformer.base.settings import check, setting

LAYOUTS = ("half", "interleaved")
MOST_PLACES, MOST_TOLD_APART = 2**31 - 1, 2**20
"""Upper bounds: of positions, and of distances with a vector or bucket of their own."""
MOST_WIDE = 2**20
"""Upper bound for widths, heads, blocks and experts: one matrix twice as wide would take 16 TB."""
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

    base: float = setting(10_000.0, above=1.0, varies=True)
    """RoPE: base (theta); pair i rotates by base^(-2i/width) a token."""
    layout: str = setting("half", known=LAYOUTS, recipe=False)
    """Which numbers form a pair: i and i + K/2 (half), or 2i and 2i + 1 (interleaved)."""
    share: float = setting(1.0, above=0.0, most=1.0, varies=True)
    """RoPE: part of a head that is rotated, from its first number on; GPT-NeoX rotates a quarter."""
    scaling: str = setting("none", known=SCALINGS)
    """RoPE: scaling to contexts longer than trained on: none, linear, ntk, yarn or llama3."""
    factor: float | None = setting(None, 1.0, advice="4.0")
    """RoPE: context growth factor, needed by every rotary scaling."""
    original_max_len: int | None = setting(None, 1, MOST_PLACES)
    """RoPE: context length before scaling, in tokens; needed by yarn and llama3."""
    slow_turns: float | None = setting(None, recipe=False)
    """For yarn and llama3: pairs with fewer turns in the original length are slowed by the factor."""
    fast_turns: float | None = setting(None, recipe=False)
    """For yarn and llama3: pairs with more turns do not change."""
    attention_factor: float | None = setting(None, above=0.0, advice="1.0", recipe=False)
    """For yarn: multiplies queries and keys; None: 0.1 ln(factor) + 1."""

    def __post_init__(self) -> None:
        check(self)
        refuse(self, ROTARY)

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

    n_buckets: int = setting(32, 1, MOST_TOLD_APART, recipe=False)
    """For positions="t5": groups of distances; if both sides are read, half of them for each side."""
    max_distance: int = setting(128, 1, MOST_PLACES, recipe=False)
    """For positions="t5": from this distance on, all share the last bucket."""
    clip_distance: int = setting(16, 1, MOST_TOLD_APART)
    """Shaw's relative positions: maximum distance; tokens farther away count as this far."""

    def __post_init__(self) -> None:
        check(self)

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


# Sparse attention patterns: settings that say, by positions alone, which keys a query may read.


@dataclass(frozen=True)
class Pattern:
    """One local rule (window, stride or block), and with a window optionally keys that every query reads.

    With no rule set, every key may be read. All numbers count positions. The window, its dilation and global tokens are
    Longformer's (Beltagy et al. 2020, section 3.1; ETC, Ainslie et al. 2020), stride, block and its summary, the
    paper's c, those of the Sparse Transformer (Child et al. 2019, section 4.3), sinks those of StreamingLLM (Xiao et
    al. 2023, section 3.2). Errors: `ConfigError` for numbers that contradict each other. `nn/mask.py` evaluates a
    pattern.
    """

    window: int | None = setting(None, 1, MOST_PLACES, varies=True)
    """Sliding-window attention: a query reads itself and the window - 1 keys before it, in an encoder also after it;
    unset: all."""
    dilation: int = setting(1, 1, MOST_PLACES)
    """Dilated window: distance between its keys, in positions."""
    global_tokens: int = setting(0, 0, MOST_PLACES)
    """Global attention (Longformer): first tokens that read all and are read by all, besides a window."""
    sinks: int = setting(0, 0, MOST_PLACES)
    """Attention sinks: first keys that stay readable besides a decoder's window."""
    stride: int | None = setting(None, 1, MOST_PLACES)
    """Strided sparse attention: a decoder's query reads this many last keys and every stride-th before; unset: all."""
    block: int | None = setting(None, 1, MOST_PLACES)
    """Fixed sparse attention: block length; a decoder's query reads its block and the summary of earlier ones; unset:
    all."""
    summary: int = setting(1, 1)
    """Last keys of each block, which later blocks read."""

    def __post_init__(self) -> None:
        check(self)
        refuse(self, PATTERN)

    @property
    def reads_everything(self) -> bool:
        """Whether it hides no key."""
        return self.window is None and self.stride is None and self.block is None

    @property
    def anchored(self) -> bool:
        """Whether it depends on positions from the start, and not only on distances from the query."""
        return bool(self.block or self.sinks or self.global_tokens)

    def check_causal(self, causal: bool) -> None:
        """Raise `ConfigError` for a rule that only reads back, if attention is not causal."""
        if not causal and (self.stride or self.block or self.sinks):  # torch's compiler cannot follow what is inside
            refuse(SimpleNamespace(**vars(self), causal=causal), BACKWARD)
