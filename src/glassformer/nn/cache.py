"""The key/value cache of a decoder: what all its layers keep, and the position of each key.

Positions count real tokens only, so rows of unequal length can share a batch. Each layer keeps keys and values in
columns: `Growing`, for texts of any length; `Once`, for an encoder's memory; `Fixed`, in constant shapes. Those of
compact_cache.py and slots.py take their place; attention uses them all in the same way.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol, cast, runtime_checkable

import torch

from glassformer.base.errors import ConfigError
from glassformer.base.shapes import Bool, Int, Num, Tensor
from glassformer.nn.attention import LayerCache
from glassformer.nn.step import Step, columns_before

SHORT = 16
"""Columns that a buffer begins with at the least: while an answer is shorter, it never moves."""


@runtime_checkable
class TakesBack(LayerCache, Protocol):
    """A layer cache from which the last tokens can be removed."""

    def truncate(self, length: int) -> None:
        """Forgets all but the first `length` tokens."""
        ...


class Columns:
    """Keys and values of one layer, in the first `used` columns of a buffer; subclasses decide how the buffer grows."""

    complete = False

    def __init__(self) -> None:
        self.used = 0
        self._held: tuple[Tensor, Tensor] | None = None

    @property
    def buffers(self) -> tuple[Tensor, Tensor] | None:
        """Keys and values as they lie in memory, used columns first; None before any was appended."""
        return self._held

    def read(self) -> tuple[Num[Tensor, "B G S K"], Num[Tensor, "B G S _"]]:
        """Returns all keys and values that are held."""
        assert self._held is not None, "nothing was appended yet"
        k, v = self._held
        return k[:, :, : self.used], v[:, :, : self.used]

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keeps the given rows."""
        if self._held is not None:
            self._held = (self._held[0].index_select(0, rows), self._held[1].index_select(0, rows))


class Claimable(Columns):
    """Columns that our C++ can fill: it is given room for them first."""

    def append(
        self, k: Num[Tensor, "B G T K"], v: Num[Tensor, "B G T _"]
    ) -> tuple[Num[Tensor, "B G S K"], Num[Tensor, "B G S _"]]:
        """Adds keys and values after those that stay; returns all.

        With gradients enabled it copies everything: a backward pass must find its tensors unchanged.
        """
        if self._held is None:
            self._held = (k, v)
        elif torch.is_grad_enabled():
            old_k, old_v = self.staying()
            self._held = (torch.cat([old_k, k], dim=2), torch.cat([old_v, v], dim=2))
            self.used = old_k.shape[2]
        else:
            self.make_room(k.shape[2])
            for room, new in zip(self._held, (k, v), strict=True):
                room[:, :, self.used : self.used + new.shape[2]] = new
        self.used += k.shape[2]
        return self.read()

    def staying(self) -> tuple[Num[Tensor, "B G S K"], Num[Tensor, "B G S _"]]:
        """Keys and values that the next step finds."""
        return self.read()

    @abstractmethod
    def make_room(self, n: int) -> None:
        """Moves to a larger buffer, if n more columns would not fit into this one; not while empty.

        Call it before a compiled step, which then never moves the buffer and always reads a part of it.
        """

    @property
    def width(self) -> int:
        """How many columns are read."""
        return self.used

    def claim(self, shape: tuple[int, int, int, int], dtype: torch.dtype, *, values: bool = True) -> None:
        """Adds columns [B, G, T, K] on a CPU, which the caller fills: in `buffers`, at `newest`.

        `values`: whether the keys have values.
        """
        if self._held is None:
            B, G, T, K = shape
            k, v = (torch.empty(B, G, self._first_room(T), size, dtype=dtype, device="cpu") for size in (K, K * values))
            self._held = (k, v)
        else:
            self.make_room(shape[2])
        self.used += shape[2]

    def _first_room(self, n: int) -> int:
        """How many columns a buffer for n tokens begins with."""
        return n

    def newest(self, B: int, T: int) -> Int[Tensor, "B T"] | None:
        """The columns of the tokens that were claimed last; None: the last of `width`, in order."""
        return None


class Growing(Claimable):
    """A cache of any length: its buffer doubles when full, so most steps copy nothing.

    Nor does a selection of rows while C++ reads the buffer: `indirection` then says where their columns lie. Rows of a
    beam share the columns of those they extend, so these are read from memory once for all of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.indirection: Int[Tensor, "B N"] | None = None
        """Of the first columns of each row: the row of `buffers` where each lies. Later ones lie in their own."""
        self._stays = False

    def stay(self) -> Int[Tensor, "B N"] | None:
        """Tells C++, which reads all columns where they lie, the `indirection`: from now on, rows stay there."""
        self._stays = True
        return self.indirection

    def append(
        self, k: Num[Tensor, "B G T K"], v: Num[Tensor, "B G T _"]
    ) -> tuple[Num[Tensor, "B G S K"], Num[Tensor, "B G S _"]]:
        """As `Claimable.append`."""
        self.settle()
        return super().append(k, v)

    def read(self) -> tuple[Num[Tensor, "B G S K"], Num[Tensor, "B G S _"]]:
        """Returns all keys and values that are held, and moves each row's into its own: read all layers, or none."""
        self.settle()
        return super().read()

    def clear(self) -> None:
        """Forgets everything."""
        self.__init__()

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keeps the given rows, where they lie if C++ reads them; otherwise copies those whose place changes.

        Columns to come need rows of their own, so more rows than the buffer has are copied. So are half as many or
        fewer, which frees the memory of the others.
        """
        if self._held is None:
            return
        room = len(self._held[0])
        if self._stays and room < 2 * len(rows) and (len(rows) <= room or self.complete):
            self.indirection = self._origins()[rows]
        elif self.indirection is not None:
            self.indirection = self._origins()[rows]
            self.settle()
        elif len(rows) != room or self.used == self._held[0].shape[2]:
            self._move(self._held[0].shape[2], rows)
        else:
            moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero()[:, 0]
            for held in self._held:
                columns = held[:, :, : self.used]
                columns.index_copy_(0, moved, columns.index_select(0, rows[moved]))

    def _origins(self) -> Int[Tensor, "B S"]:
        """The row where each column of each row lies."""
        assert self._held is not None
        n, known = (len(self._held[0]), 0) if self.indirection is None else self.indirection.shape
        own = torch.arange(n, device=self._held[0].device)[:, None].expand(-1, self.used - known)
        return own if self.indirection is None else torch.cat([self.indirection, own], dim=1)

    def settle(self) -> None:
        """Copies each row's columns into a row of its own, for modules to read, if they lie elsewhere."""
        if self._held is not None and self.indirection is not None:
            self._move(self._held[0].shape[2])
        self._stays = False

    def make_room(self, n: int) -> None:
        """Moves to a buffer of twice the size needed, if n more columns would fill this one; not while empty."""
        if self._held is not None and self.used + n >= self._held[0].shape[2]:
            self._move(2 * (self.used + n))

    def _first_room(self, n: int) -> int:
        """As many columns as the next step would move to, and enough for a short answer."""
        return max(SHORT, 2 * (n + 1))

    def _move(self, columns: int, rows: Tensor | None = None) -> None:
        """Moves to a buffer of so many columns, with a row for each, or without an indirection for each of `rows`."""
        assert self._held is not None
        assert rows is None or self.indirection is None
        k, v = self._held
        at: tuple[Tensor | slice, ...] = (slice(None) if rows is None else rows, slice(None), slice(self.used))
        if self.indirection is not None:
            device = k.device
            groups = torch.arange(k.shape[1], device=device)[:, None]
            at = (self._origins()[:, None], groups, torch.arange(self.used, device=device))
        self._held, self.indirection = (self._moved(k[at], columns), self._moved(v[at], columns)), None

    def _moved(self, used: Tensor, columns: int) -> Tensor:
        room = used.new_empty(*used.shape[:2], columns, used.shape[3])
        room[:, :, : self.used] = used
        return room

    def truncate(self, length: int) -> None:
        """Forgets all but the first `length` tokens; the next ones are written over them."""
        self.settle()
        self.used = min(self.used, length)


class Once(Growing):
    """A cache that is filled at the first step and only read afterwards."""

    @property
    def complete(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the first step has filled it."""
        return self._held is not None

    def _first_room(self, n: int) -> int:
        return n  # no more will come


class Cache:
    """The cache of a decoder: for each layer, one `LayerCache` of its own keys and one of the encoder's memory.

    Its layers are `Growing`. Subclasses may have a `capacity`, and hold at most so many tokens.
    """

    capacity: int | None = None

    dropped = 0
    """How many tokens' keys were dropped because no query will read them again (`RollingCache`)."""

    taps, convolved = 1, cast("Cache | None", None)
    """How many tokens a short convolution reads, and what these read, with two layers for each layer here: that of
    self-attention and that of feed-forward."""

    def __init__(self, n_layers: int) -> None:
        self.length = 0
        self.layers: list[LayerCache] = [Growing() for _ in range(n_layers)]
        self.cross: list[LayerCache] = [Once() for _ in range(n_layers)]
        self._keys: Tensor | None = None
        """[B, length] positions of keys, -1 at padding, once rows differ; subclasses have them from the first step."""
        self._memories: Tensor | None = None  # [B] the original row whose memory each row reads, once rows changed

    def step(self, tokens: Int[Tensor, "B T"], keep: Bool[Tensor, "B T"] | None = None) -> Step:
        """Returns the positions that new tokens would have. `keep` is False at padding: a column without a position.

        Errors: `ConfigError` past the capacity.
        """
        start, end = self.length, self.length + tokens.shape[1]
        self.check_room(end)
        if keep is not None or self._keys is not None:
            return self._ragged_step(tokens, keep, start, end)
        columns = torch.arange(end, device=tokens.device)
        return Step(columns[start:], columns, in_order=True)

    def earlier(self, step: Step, count: int) -> Int[Tensor, "N *batch T"]:
        """The columns of the `count` tokens before each of a step, as `columns_before`."""
        return columns_before(step, count)

    def check_room(self, end: int) -> None:
        """Raises `ConfigError` if `end` tokens exceed the capacity."""
        if self.capacity is not None and end > self.capacity:
            raise ConfigError(
                f"The cache has room for {self.capacity} tokens, but this step needs room for {end}. "
                f"Make one with new_cache(capacity={end}) or more."
            )

    def _ragged_step(self, tokens: Tensor, keep: Tensor | None, start: int, end: int) -> Step:
        real = torch.ones_like(tokens, dtype=torch.bool) if keep is None else keep
        keys = tokens.new_full((tokens.shape[0], end), -1)
        keys[:, :start] = torch.arange(start, device=tokens.device) if self._keys is None else self._keys
        last = keys.max(1, keepdim=True).values
        positions = last + real.long().cumsum(1)
        keys[:, start:] = torch.where(real, positions, -1)
        return Step(positions.clamp(min=0), keys, in_order=False)

    def advance(self, step: Step) -> None:
        """Records the tokens of a step; the layers add their keys and values."""
        self.length += step.positions.shape[-1]
        if step.keys.ndim == 2:
            self._keys = step.keys

    def truncate(self, length: int) -> None:
        """Forgets all but the first `length` tokens of each row, padding counted.

        Errors: `ConfigError` for a `State`, which keeps only sums, and below 0.
        """
        if length < 0:
            raise ConfigError(f"A cache keeps at least 0 tokens; got length={length}. Try length=0 to keep none.")
        self.check_takes_back()
        length = min(length, self.length)
        if self.convolved is not None:
            self.convolved.truncate(length)
        for layer in cast(list[TakesBack], self.layers):
            layer.truncate(length)
        self.length = length
        self._keys = None if self._keys is None else self._keys[..., :length]

    def check_takes_back(self) -> None:
        """Raises `ConfigError` if tokens cannot be removed."""
        if not all(isinstance(layer, TakesBack) for layer in self.layers):
            raise ConfigError(
                "Tokens cannot be removed from the cache of linear attention, which keeps only sums over all of them. "
                "Make a new cache, and let the model read the tokens to keep again."
            )
        if self.convolved is not None:
            self.convolved.check_takes_back()

    def take_back(self, lengths: Int[Tensor, " B"]) -> None:
        """Keeps the first `lengths[row]` tokens of each row; columns that only other rows use become empty.

        Padding is not counted. Errors: as `truncate`.
        """
        self.check_takes_back()
        if self.convolved is not None:
            self.convolved.take_back(lengths)
        keys = torch.arange(self.length, device=lengths.device)[None] if self._keys is None else self._keys
        keys = torch.where(keys < lengths[:, None], keys, -1)
        held = (keys >= 0).any(0).nonzero()
        self.truncate(int(held[-1]) + 1 if len(held) else 0)
        keys = keys[:, : self.length]
        if self._keys is not None or bool((keys < 0).any()):
            self._keys = keys

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keeps the given rows of the batch, in the order given."""
        for layer in self.layers:
            layer.select(rows)
        self._select_memories(rows)
        if self.convolved is not None:
            self.convolved.select(rows)
        if self._keys is not None and self._keys.ndim == 2:
            self._keys = self._keys[rows]

    @property
    def convolved_layers(self) -> list[tuple[LayerCache, LayerCache] | None]:
        """What the convolutions of each layer read: before self-attention, and before feed-forward."""
        if self.convolved is None:
            return [None] * len(self.layers)
        return [*zip(self.convolved.layers[::2], self.convolved.layers[1::2], strict=True)]

    def _select_memories(self, rows: Tensor) -> None:
        """Copies no memory keys if each row still reads the memory it read before, as in beam search."""
        if not self.cross or not self.cross[0].complete:
            return
        before = self._memories
        if before is None:
            held = cast(Once, self.cross[0]).buffers  # looked at, not read: C++ may be what reads them
            assert held is not None, "they are complete"
            before = torch.arange(len(held[0]), device=rows.device)
        self._memories = before[rows]
        if not torch.equal(self._memories, before):
            for layer in self.cross:
                layer.select(rows)


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
        keys = self._keys
        super().truncate(length)
        if keys is not None and self._next is not None:
            self._next.fill_(self.length)
            keys[..., self.length :] = -1
            self._keys = keys

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
        keys = torch.arange(other.length, device=device) if other._keys is None else other._keys[..., : other.length]
        self._keys = torch.nn.functional.pad(keys, (0, self.room - other.length), value=-1)


def cache_of(n_layers: int, capacity: int | None) -> Cache:
    """Make a cache that grows, or one in constant shapes for `capacity` tokens."""
    return Cache(n_layers) if capacity is None else FixedCache(n_layers, capacity)
