"""Keys and values already computed, so that a decoding step projects only the new tokens.

`Growing` is what `generate` uses; `Fixed` has constant shapes, which a compiled step needs; `Once` holds the keys of
an encoder's memory;
`State` (in state.py) is that of linear attention, `Rolling` (in rolling.py) that of a window.
Attention cannot tell them apart. The cache also knows where each key stands, so rows of unequal length share a batch.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import torch

from glassformer.foundation.errors import ConfigError
from glassformer.foundation.shapes import Bool, Int, Num, Tensor


@runtime_checkable
class LayerCache(Protocol):
    """What attention asks of one layer's memory."""

    @property
    def complete(self) -> bool:
        """Whether all keys are in already, so that nothing is left to project."""
        ...

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Takes in the keys and values of new tokens [B, G, T, K]; answers with all that may be read."""
        ...

    def read(self) -> tuple[Tensor, Tensor]:
        """All keys and values."""
        ...

    def select(self, rows: Tensor) -> None:
        """Keeps the given rows of the batch, in the order given."""
        ...


@runtime_checkable
class TakesBack(LayerCache, Protocol):
    """One that holds each token apart."""

    def truncate(self, length: int) -> None:
        """Forgets all but the first `length` tokens."""
        ...


class Columns:
    """Keys and values of one layer in the first `used` columns of a room; how the room grows is each kind's own."""

    complete = False

    def __init__(self) -> None:
        self.used = 0
        self._held: tuple[Tensor, Tensor] | None = None

    def read(self) -> tuple[Num[Tensor, "B G S K"], Num[Tensor, "B G S K"]]:
        """All keys and values that are held."""
        assert self._held is not None, "nothing was appended yet"
        k, v = self._held
        return k[:, :, : self.used], v[:, :, : self.used]

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keeps the given rows."""
        if self._held is not None:
            self._held = (self._held[0].index_select(0, rows), self._held[1].index_select(0, rows))


class Growing(Columns):
    """Any length: room that doubles where it is full, so that a step writes its own columns and copies no others.

    Where gradients are wanted all is copied instead: what a backward will read must not be written over.
    """

    def append(
        self, k: Num[Tensor, "B G T K"], v: Num[Tensor, "B G T K"]
    ) -> tuple[Num[Tensor, "B G S K"], Num[Tensor, "B G S K"]]:
        """The new keys and values after the old."""
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

    def make_room(self, n: int) -> None:
        """Moves to twice the room that n more columns need, where they would leave none. Before the first, nothing.

        Who compiles a step calls this first: a step then never moves, and always reads a part of the room.
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
    """Projected at the first step, read ever after."""

    @property
    def complete(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the first step is done."""
        return self._held is not None


class Fixed(Columns):
    """Writes in place into room for `capacity` tokens and answers with all of it; the mask hides what is unwritten."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity

    def append(
        self, k: Num[Tensor, "B G T K"], v: Num[Tensor, "B G T K"]
    ) -> tuple[Num[Tensor, "B G S K"], Num[Tensor, "B G S K"]]:
        """The whole room, with the new keys and values in their columns."""
        if self._held is None:
            B, G, _, K = k.shape
            self._held = (k.new_zeros(B, G, self.capacity, K), v.new_zeros(B, G, self.capacity, K))
        end = self.used + k.shape[2]
        self._held[0][:, :, self.used : end] = k
        self._held[1][:, :, self.used : end] = v
        self.used = end
        return self._held

    def read(self) -> tuple[Tensor, Tensor]:
        """The whole room."""
        assert self._held is not None, "nothing was appended yet"
        return self._held

    def truncate(self, length: int) -> None:
        """Forgets all but the first `length` tokens; the next ones are written over them."""
        self.used = length


class Step(NamedTuple):
    """Where the tokens of one forward stand, and where every key does."""

    positions: Int[Tensor, "*batch T"]
    keys: Int[Tensor, "*batch S"]
    """-1 where a column holds nothing."""
    in_order: bool
    """Whether the queries are simply the last T of S consecutive keys, so that a mask needs no positions."""


class Cache:
    """The memory of a decoder: one `LayerCache` a layer for its own keys, one for those of the encoder's memory.

    With `capacity` it is `Fixed` and takes at most that many tokens; without, `Growing`.
    """

    dropped = 0
    """Tokens whose keys are no longer held, as nobody will read them (`RollingCache`)."""

    def __init__(self, n_layers: int, *, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.length = 0
        self.layers: list[LayerCache] = [Growing() if capacity is None else Fixed(capacity) for _ in range(n_layers)]
        self.cross: list[LayerCache] = [Once() for _ in range(n_layers)]
        self._ragged: Tensor | None = None  # [B, columns] positions, once rows differ
        self._memories: Tensor | None = None  # [B] which of the first rows' memory each row reads, once rows changed

    def step(self, tokens: Int[Tensor, "B T"], keep: Bool[Tensor, "B T"] | None = None) -> Step:
        """Where new tokens would stand. `keep` is False at padding, which takes a column but no position.

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
        """Raises `ConfigError` where `end` tokens pass the capacity."""
        if self.capacity is not None and end > self.capacity:
            raise ConfigError(
                f"The cache holds {self.capacity} tokens; a step to {end} was asked for. Make a larger one."
            )

    def _ragged_step(self, tokens: Tensor, keep: Tensor | None, start: int, end: int) -> Step:
        real = torch.ones_like(tokens, dtype=torch.bool) if keep is None else keep
        keys = tokens.new_full((tokens.shape[0], self.capacity or end), -1)
        keys[:, :start] = torch.arange(start, device=tokens.device) if self._ragged is None else self._ragged[:, :start]
        last = keys.max(1, keepdim=True).values
        positions = last + real.long().cumsum(1)
        keys[:, start:end] = torch.where(real, positions, -1)
        return Step(positions.clamp(min=0), keys, in_order=False)

    def advance(self, step: Step) -> None:
        """Makes room for the tokens of a step."""
        self.length += step.positions.shape[-1]
        if step.keys.ndim == 2:
            self._ragged = step.keys

    def truncate(self, length: int) -> None:
        """Forgets all but the first `length` tokens. Errors: `ConfigError` for a state, which keeps no token apart."""
        for layer in self.layers:
            if not isinstance(layer, TakesBack):
                raise ConfigError("Only keys and values kept token by token can be taken back. Read the text anew.")
            layer.truncate(length)
        self.length = length

    def take_back(self, lengths: Int[Tensor, " B"]) -> None:
        """Forgets of each row all but its first tokens; they leave holes where another row holds the column.

        Errors: as `truncate`.
        """
        keys = torch.arange(self.length, device=lengths.device)[None] if self._ragged is None else self._ragged
        keys = torch.where(keys < lengths[:, None], keys, -1)
        self.truncate(int((keys >= 0).any(0).nonzero().max()) + 1)
        keys = keys[:, : self.length]
        if self._ragged is not None or bool((keys < 0).any()):
            self._ragged = keys

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keeps the given rows of the batch, in the order given: rows that are finished leave."""
        for layer in self.layers:
            layer.select(rows)
        self._select_memories(rows)
        if self._ragged is not None:
            self._ragged = self._ragged[rows]

    def _select_memories(self, rows: Tensor) -> None:
        """Keys of the memory stay where they are if each row reads the same one as before, as in a beam."""
        if not self.cross or not self.cross[0].complete:
            return
        before = self._memories
        if before is None:
            before = torch.arange(len(self.cross[0].read()[0]), device=rows.device)
        self._memories = before[rows]
        if not torch.equal(self._memories, before):
            for layer in self.cross:
                layer.select(rows)
