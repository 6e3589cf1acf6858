"""A cache in constant shapes: where a step stands is a tensor, too, so one recorded step serves all that follow."""

from __future__ import annotations

import torch

from glassformer.base.shapes import Bool, Int, Num, Tensor
from glassformer.nn.cache import Cache, Step
from glassformer.nn.columns import Columns, LayerCache


class Fixed(Columns):
    """A buffer for `capacity` tokens, written in place and returned whole; the mask hides unwritten columns."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.at: Int[Tensor, " T"] | None = None
        """The columns of the next tokens, as their cache tells them; None: the first that are free."""

    def append(
        self, k: Num[Tensor, "B G T K"], v: Num[Tensor, "B G T _"]
    ) -> tuple[Num[Tensor, "B G S K"], Num[Tensor, "B G S _"]]:
        """Writes the new keys and values into their columns; returns the whole buffer."""
        if self._held is None:
            self._held = (self._empty(k), self._empty(v))
        end = self.used + k.shape[2]
        at = torch.arange(self.used, end, device=k.device) if self.at is None else self.at
        for held, new in zip(self._held, (k, v), strict=True):
            held.index_copy_(2, at, new)
        self.used = end
        return self._held

    def _empty(self, like: Tensor) -> Tensor:
        return like.new_zeros(*like.shape[:2], self.capacity, like.shape[3])

    def read(self) -> tuple[Tensor, Tensor]:
        """Returns the whole buffer."""
        assert self._held is not None, "nothing was appended yet"
        return self._held

    def truncate(self, length: int) -> None:
        """Forgets all but the first `length` tokens; the next ones are written over them."""
        self.used = min(self.used, length)


class FixedCache(Cache):
    """A `Cache` of `Fixed` layers, for at most `capacity` tokens.

    What changes from step to step, the next column and the positions of keys, is in tensors that keep their places
    until rows leave. Lengths are numbers of the host: `stand_at` sets them where only tensors have changed.
    """

    def __init__(self, n_layers: int, capacity: int) -> None:
        super().__init__(n_layers)
        self.capacity = self.room = capacity
        self.fixed = [Fixed(capacity) for _ in range(n_layers)]
        self.layers: list[LayerCache] = [*self.fixed]
        self._keys: Tensor | None = None  # [columns] or [B, columns]: the position of each key, -1 where there is none
        self._next: Tensor | None = None  # [1]: the column of the next token

    def step(self, tokens: Int[Tensor, "B T"], keep: Bool[Tensor, "B T"] | None = None) -> Step:
        """Returns the positions that new tokens would have. Errors: `ConfigError` past the capacity."""
        self.check_room(self.length + tokens.shape[1])
        columns = self._columns(tokens.shape[1], tokens.device)
        held = tokens.new_full((self.room,), -1) if self._keys is None else self._keys
        if keep is None and held.ndim == 1:
            return Step(columns, held.index_copy(0, columns, columns), in_order=False)
        real = torch.ones_like(tokens, dtype=torch.bool) if keep is None else keep
        held = held.expand(len(tokens), -1)
        positions = held.max(1, keepdim=True).values + real.long().cumsum(1)
        keys = held.index_copy(1, columns, torch.where(real, positions, -1))
        return Step(positions.clamp(min=0), keys, in_order=False)

    def _columns(self, T: int, device: torch.device) -> Int[Tensor, " T"]:
        if self._next is None:
            self._next = torch.zeros(1, dtype=torch.long, device=device)
        return self._next + torch.arange(T, device=device)

    def advance(self, step: Step) -> None:
        """Records the tokens of a step and tells the layers their columns."""
        T = step.positions.shape[-1]
        at = self._columns(T, step.keys.device)
        for layer in self.fixed:
            layer.at = at
        if self._keys is None or self._keys.shape != step.keys.shape:
            self._keys = step.keys.clone()
        else:
            self._keys.copy_(step.keys)
        assert self._next is not None, "columns were asked for"
        self._next += T
        self.length += T

    def stand_at(self, length: int) -> None:
        """Notes how many tokens it holds, as a recorded step changes tensors only."""
        self.length = length
        for layer in self.fixed:
            layer.used = length
        if self.convolved is not None:
            assert isinstance(self.convolved, FixedCache), "it has the shapes of this one"
            self.convolved.stand_at(length)

    def truncate(self, length: int) -> None:
        """As `Cache.truncate`."""
        super().truncate(length)
        if self._keys is not None and self._next is not None:
            self._next.fill_(self.length)
            self._keys[..., self.length :] = -1

    def take_back(self, lengths: Int[Tensor, " B"]) -> None:
        """As `Cache.take_back`."""
        if self._keys is None:
            return
        keys = self._keys.expand(len(lengths), -1)
        keys = torch.where(keys < lengths[:, None], keys, -1)
        if self.convolved is not None:
            self.convolved.take_back(lengths)
        held = (keys >= 0).any(0).nonzero()
        self.truncate(int(held[-1]) + 1 if len(held) else 0)
        self._keys = keys

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keeps the given rows of the batch, in the order given."""
        super().select(rows)
        if self._keys is not None and self._keys.ndim == 2:
            self._keys = self._keys[rows]

    def take(self, other: Cache) -> None:
        """Takes over all that another cache holds, while empty: one that grows, or one in constant shapes."""
        for mine, layer in zip(self.fixed, other.layers, strict=True):
            k, v = layer.read()
            mine.append(k[:, :, : other.length], v[:, :, : other.length])
        if self.convolved is not None and other.convolved is not None:
            assert isinstance(self.convolved, FixedCache), "it has the shapes of this one"
            self.convolved.take(other.convolved)
        self.cross, self._memories, self.length = other.cross, other._memories, other.length
        device = self.fixed[0].read()[0].device
        self._next = torch.full((1,), other.length, device=device)
        keys = other._keys if isinstance(other, FixedCache) else other._ragged
        keys = torch.arange(other.length, device=device) if keys is None else keys[..., : other.length]
        self._keys = torch.nn.functional.pad(keys, (0, self.room - other.length), value=-1)


def cache_of(n_layers: int, capacity: int | None) -> Cache:
    """Make a cache that grows, or one in constant shapes for `capacity` tokens."""
    return Cache(n_layers) if capacity is None else FixedCache(n_layers, capacity)
