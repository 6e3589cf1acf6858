"""The key/value cache: keys and values already computed, so that a decoding step projects only new tokens.

The kinds for a layer: `Growing`, which `generate` uses; `Fixed`, whose constant shapes a compiled step needs; `Once`,
for an encoder's memory; `State` (state.py), for linear attention; `Rolling` (rolling.py), for a window. Attention uses
them all alike. The cache also knows the position of each key, so rows of unequal length can share a batch.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import torch

from glassformer.foundation.errors import ConfigError
from glassformer.foundation.shapes import Bool, Int, Num, Tensor


@runtime_checkable
class LayerCache(Protocol):
    """What attention needs from the cache of one layer."""

    @property
    def complete(self) -> bool:
        """Whether all keys are already held, so that none need projecting."""
        ...

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Adds the keys and values of new tokens [B, G, T, K]; returns all keys and values that may be read."""
        ...

    def read(self) -> tuple[Tensor, Tensor]:
        """Returns all keys and values."""
        ...

    def select(self, rows: Tensor) -> None:
        """Keeps the given rows of the batch, in the order given."""
        ...


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

    def read(self) -> tuple[Num[Tensor, "B G S K"], Num[Tensor, "B G S K"]]:
        """Returns all keys and values that are held."""
        assert self._held is not None, "nothing was appended yet"
        k, v = self._held
        return k[:, :, : self.used], v[:, :, : self.used]

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keeps the given rows."""
        if self._held is not None:
            self._held = (self._held[0].index_select(0, rows), self._held[1].index_select(0, rows))


class Growing(Columns):
    """A cache of any length: its buffer doubles when full, so most steps copy nothing.

    With gradients enabled it copies everything instead: a backward pass must find its tensors unchanged.
    """

    def append(
        self, k: Num[Tensor, "B G T K"], v: Num[Tensor, "B G T K"]
    ) -> tuple[Num[Tensor, "B G S K"], Num[Tensor, "B G S K"]]:
        """Adds keys and values after those held; returns all."""
        if self._held is None:
            self._held = (k, v)
        elif torch.is_grad_enabled():
            old_k, old_v = self.read()
            self._held = (torch.cat([old_k, k], dim=2), torch.cat([old_v, v], dim=2))
        else:
            self.make_room(k.shape[2])
            for room, new in zip(self._held, (k, v), strict=True):
                room[:, :, self.used : self.used + new.shape[2]] = new
        self.used += k.shape[2]
        return self.read()

    @property
    def width(self) -> int:
        """How many columns are read."""
        return self.used

    def claim(self, shape: tuple[int, int, int, int], dtype: torch.dtype) -> None:
        """Adds columns [B, G, T, K] on a CPU, which the caller fills: in `buffers`, at `newest`."""
        if self._held is None:
            self._held = (torch.empty(shape, dtype=dtype, device="cpu"), torch.empty(shape, dtype=dtype, device="cpu"))
        else:
            self.make_room(shape[2])
        self.used += shape[2]

    def clear(self) -> None:
        """Forgets everything."""
        self._held, self.used = None, 0

    def newest(self, B: int, T: int) -> Int[Tensor, "B T"]:
        """The columns of the last tokens."""
        assert self._held is not None, "columns were claimed"
        return torch.arange(self.used - T, self.used, device=self._held[0].device).repeat(B, 1)

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keeps the given rows; of a buffer of its own, copies only those whose place changes."""
        if self._held is None or len(rows) != len(self._held[0]) or self.used == self._held[0].shape[2]:
            super().select(rows)
            return
        moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero()[:, 0]
        for held in self._held:
            columns = held[:, :, : self.used]
            columns.index_copy_(0, moved, columns.index_select(0, rows[moved]))

    def make_room(self, n: int) -> None:
        """Moves to a buffer of twice the size needed, if n more columns would fill this one; not while empty.

        Call it before a compiled step, which then never moves the buffer and always reads a part of it.
        """
        if self._held is not None and self.used + n >= self._held[0].shape[2]:
            self._held = (self._moved(self._held[0], n), self._moved(self._held[1], n))

    def _moved(self, old: Tensor, n: int) -> Tensor:
        B, G, _, K = old.shape
        room = old.new_empty(B, G, 2 * (self.used + n), K)
        room[:, :, : self.used] = old[:, :, : self.used]
        return room

    def truncate(self, length: int) -> None:
        """Forgets all but the first `length` tokens; the next ones are written over them."""
        self.used = min(self.used, length)


class Once(Growing):
    """A cache that is filled at the first step and only read afterwards."""

    @property
    def complete(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the first step has filled it."""
        return self._held is not None


class Fixed(Columns):
    """A buffer for `capacity` tokens, written in place and returned whole; the mask hides unwritten columns."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity

    def append(
        self, k: Num[Tensor, "B G T K"], v: Num[Tensor, "B G T K"]
    ) -> tuple[Num[Tensor, "B G S K"], Num[Tensor, "B G S K"]]:
        """Writes the new keys and values into their columns; returns the whole buffer."""
        if self._held is None:
            B, G, _, K = k.shape
            self._held = (k.new_zeros(B, G, self.capacity, K), v.new_zeros(B, G, self.capacity, K))
        end = self.used + k.shape[2]
        self._held[0][:, :, self.used : end] = k
        self._held[1][:, :, self.used : end] = v
        self.used = end
        return self._held

    def read(self) -> tuple[Tensor, Tensor]:
        """Returns the whole buffer."""
        assert self._held is not None, "nothing was appended yet"
        return self._held

    def truncate(self, length: int) -> None:
        """Forgets all but the first `length` tokens; the next ones are written over them."""
        self.used = min(self.used, length)


class Step(NamedTuple):
    """The positions of the tokens of one forward pass, and of all keys."""

    positions: Int[Tensor, "*batch T"]
    keys: Int[Tensor, "*batch S"]
    """-1 where a column holds no key."""
    in_order: bool
    """Whether the queries are the last T of S consecutive keys, so that a mask needs no positions."""


class Cache:
    """The cache of a decoder: for each layer, one `LayerCache` of its own keys and one of the encoder's memory.

    Layers are `Fixed`, for at most `capacity` tokens, or `Growing` without a capacity.
    """

    dropped = 0
    """How many tokens' keys were dropped because no query will read them again (`RollingCache`)."""

    def __init__(self, n_layers: int, *, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.length = 0
        self.layers: list[LayerCache] = [Growing() if capacity is None else Fixed(capacity) for _ in range(n_layers)]
        self.cross: list[LayerCache] = [Once() for _ in range(n_layers)]
        self._ragged: Tensor | None = None  # [B, length] positions of keys, -1 at padding, once rows differ
        self._memories: Tensor | None = None  # [B] the original row whose memory each row reads, once rows changed

    def step(self, tokens: Int[Tensor, "B T"], keep: Bool[Tensor, "B T"] | None = None) -> Step:
        """Returns the positions that new tokens would have. `keep` is False at padding: a column without a position.

        Errors: `ConfigError` past the capacity.
        """
        start, end = self.length, self.length + tokens.shape[1]
        self.check_room(end)
        if keep is not None or self._ragged is not None:
            return self._ragged_step(tokens, keep, start, end)
        columns = torch.arange(self.capacity or end, device=tokens.device)
        if self.capacity is None:
            return Step(columns[start:], columns, in_order=True)
        return Step(columns[start:end], torch.where(columns < end, columns, -1), in_order=False)

    def check_room(self, end: int) -> None:
        """Raises `ConfigError` if `end` tokens exceed the capacity."""
        if self.capacity is not None and end > self.capacity:
            raise ConfigError(
                f"The cache has room for {self.capacity} tokens, but this step needs room for {end}. "
                f"Make one with new_cache(capacity={end}) or more."
            )

    def _ragged_step(self, tokens: Tensor, keep: Tensor | None, start: int, end: int) -> Step:
        real = torch.ones_like(tokens, dtype=torch.bool) if keep is None else keep
        keys = tokens.new_full((tokens.shape[0], self.capacity or end), -1)
        keys[:, :start] = torch.arange(start, device=tokens.device) if self._ragged is None else self._ragged
        last = keys.max(1, keepdim=True).values
        positions = last + real.long().cumsum(1)
        keys[:, start:end] = torch.where(real, positions, -1)
        return Step(positions.clamp(min=0), keys, in_order=False)

    def advance(self, step: Step) -> None:
        """Records the tokens of a step; the layers add their keys and values."""
        self.length += step.positions.shape[-1]
        if step.keys.ndim == 2:
            self._ragged = step.keys[:, : self.length]

    def truncate(self, length: int) -> None:
        """Forgets all but the first `length` tokens of each row, padding counted.

        Errors: `ConfigError` for a `State`, which keeps only sums, and below 0.
        """
        if length < 0:
            raise ConfigError(f"A cache keeps at least 0 tokens; got length={length}. Try length=0 to keep none.")
        length = min(length, self.length)
        for layer in self.layers:
            if not isinstance(layer, TakesBack):
                raise ConfigError(
                    "Tokens cannot be removed from the cache of linear attention, which keeps only sums over all of "
                    "them. Make a new cache, and let the model read the tokens to keep again."
                )
            layer.truncate(length)
        self.length = length
        self._ragged = None if self._ragged is None else self._ragged[:, :length]

    def take_back(self, lengths: Int[Tensor, " B"]) -> None:
        """Keeps the first `lengths[row]` tokens of each row; columns that only other rows use become empty.

        Padding is not counted. Errors: as `truncate`.
        """
        keys = torch.arange(self.length, device=lengths.device)[None] if self._ragged is None else self._ragged
        keys = torch.where(keys < lengths[:, None], keys, -1)
        held = (keys >= 0).any(0).nonzero()
        self.truncate(int(held[-1]) + 1 if len(held) else 0)
        keys = keys[:, : self.length]
        if self._ragged is not None or bool((keys < 0).any()):
            self._ragged = keys

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keeps the given rows of the batch, in the order given."""
        for layer in self.layers:
            layer.select(rows)
        self._select_memories(rows)
        if self._ragged is not None:
            self._ragged = self._ragged[rows]

    def _select_memories(self, rows: Tensor) -> None:
        """Copies no memory keys if each row still reads the memory it read before, as in beam search."""
        if not self.cross or not self.cross[0].complete:
            return
        before = self._memories
        if before is None:
            before = torch.arange(len(self.cross[0].read()[0]), device=rows.device)
        self._memories = before[rows]
        if not torch.equal(self._memories, before):
            for layer in self.cross:
                layer.select(rows)
