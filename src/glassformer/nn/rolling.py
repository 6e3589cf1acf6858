"""A cache of bounded size, for windowed attention and short convolutions: it drops what no later token can read.

With a causal window, only the last keys are in reach (Longformer, Beltagy et al. 2020, section 3.1). The first keys
stay too if they are sinks (StreamingLLM, Xiao et al. 2023, section 3.2) or global tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from glassformer.base.errors import ConfigError
from glassformer.base.pattern import Pattern
from glassformer.base.shapes import Bool, Int, Num, Tensor
from glassformer.nn.cache import Cache, Step, steps_back
from glassformer.nn.columns import Claimable, LayerCache

SLACK = 64
"""How many columns must be out of reach before they are dropped: dropping copies all the columns that stay."""


class Plan(NamedTuple):
    """What a step does to the columns: the positions of all keys after it, and which held columns stay (None: all)."""

    keys: Int[Tensor, "*batch S"]
    stay: Int[Tensor, " columns"] | None


class Rolling(Claimable):
    """Keys and values of one layer in bounded memory. `stay`: the columns to keep at the next step; None means all."""

    def __init__(self) -> None:
        super().__init__()
        self.stay: Int[Tensor, " columns"] | None = None

    def make_room(self, n: int) -> None:
        """Drops the columns that do not stay; moves to a larger buffer, if n more columns would not fit into this."""
        if self._held is not None and (self.stay is not None or self.used + n > self._held[0].shape[2]):
            k, v = self.staying()
            self._held, self.used = (roomier(k, n), roomier(v, n)), k.shape[2]

    def staying(self) -> tuple[Num[Tensor, "B G S K"], Num[Tensor, "B G S _"]]:
        """Keys and values of the columns to keep, once: those kept are all then."""
        (k, v), stay, self.stay = self.read(), self.stay, None
        return (k, v) if stay is None else (k[:, :, stay], v[:, :, stay])


def roomier(old: Num[Tensor, "B G S K"], n: int) -> Num[Tensor, "B G R K"]:
    """The old columns in a buffer with room for n more, and for those that come until the next ones are dropped."""
    B, G, used, K = old.shape
    room = old.new_empty(B, G, used + n + SLACK, K)
    room[:, :, :used] = old
    return room


class RollingCache(Cache):
    """A `Cache` of `Rolling` layers that all read by one pattern; it drops keys out of the pattern's reach."""

    def __init__(self, n_layers: int, pattern: Pattern) -> None:
        assert pattern.window is not None, "only a window has an end"
        super().__init__(n_layers)
        self.rolling = [Rolling() for _ in range(n_layers)]
        self.layers: list[LayerCache] = [*self.rolling]
        self.reach = (pattern.window - 1) * pattern.dilation
        """How many positions back a query can read."""
        self.first = max(pattern.sinks, pattern.global_tokens)
        """How many of the first positions are never dropped."""
        self._keys: Tensor | None = None  # the position of each held column, [columns] or [B, columns]
        self._plan: Plan | None = None
        self._full = 0  # with fewer columns, too few can be out of reach

    def step(self, tokens: Int[Tensor, "B T"], keep: Bool[Tensor, "B T"] | None = None) -> Step:
        """Returns the positions that new tokens would have, and those of the keys that they may read."""
        T, device = tokens.shape[1], tokens.device
        held = tokens.new_empty(0) if self._keys is None else self._keys
        if keep is None and held.ndim == 1:
            positions = new = torch.arange(self.length, self.length + T, device=device)
        else:
            held = held.expand(len(tokens), -1)
            real = torch.ones_like(tokens, dtype=torch.bool) if keep is None else keep
            last = torch.nn.functional.pad(held, (1, 0), value=-1).max(1, keepdim=True).values
            positions = last + real.long().cumsum(1)
            new = torch.where(real, positions, -1)
        stay = self._staying(held)
        keys = torch.cat([held if stay is None else held[..., stay], new], dim=-1)
        self._plan, self.dropped = Plan(keys, stay), self.length + T - keys.shape[-1]
        return Step(positions.clamp(min=0), keys, in_order=keys.ndim == 1 and self.dropped == 0)

    def _staying(self, held: Int[Tensor, "*batch S"]) -> Int[Tensor, " columns"] | None:
        """The columns that any row may still read from its next position on; None to keep all, as too few would go."""
        if held.shape[-1] < self._full or not held.numel():
            return None
        last = held.max(-1, keepdim=True).values
        needed = (held >= 0) & ((held > last - self.reach) | (held < self.first))
        stay = torch.atleast_2d(needed).any(0).nonzero()[:, 0]
        gone = held.shape[-1] - len(stay)
        self._full = held.shape[-1] + SLACK - gone
        return stay if gone >= SLACK else None

    def advance(self, step: Step) -> None:
        """Records the tokens of the last `step` and tells the layers which of their columns stay."""
        assert self._plan is not None, "a step is planned before it is taken"
        self.length += step.positions.shape[-1]
        self._keys, stay = self._plan
        if stay is not None:
            self._full = len(stay) + SLACK
        for layer in self.rolling:
            layer.stay = stay

    def earlier(self, step: Step, count: int) -> Int[Tensor, "N *batch T"]:
        """As `Cache.earlier`. The last columns hold the last positions, so without padding none need be looked for."""
        if step.keys.ndim == 2:
            return super().earlier(step, count)
        (columns,), (new,) = step.keys.shape, step.positions.shape
        at = torch.arange(columns - new, columns, device=step.keys.device)
        return (at - steps_back(count, at)).clamp(min=-1)

    def check_takes_back(self) -> None:
        """Always raises `ConfigError`: what was dropped since then would be missing."""
        raise ConfigError(
            "Tokens cannot be removed from this cache, as it drops what no window or convolution reads any longer. "
            "Make it with new_cache(whole=True)."
        )

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keeps the given rows of the batch, in the order given."""
        super().select(rows)
        if self._keys is not None and self._keys.ndim == 2:
            self._keys = self._keys[rows]
