"""The key/value cache of a decoder: what all its layers keep (columns.py), and the position of each key.

Positions count real tokens only, so rows of unequal length can share a batch.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch

from glassformer.base.errors import ConfigError
from glassformer.base.shapes import Bool, Int, Tensor
from glassformer.nn.columns import Growing, LayerCache, Once, TakesBack


class Step(NamedTuple):
    """The positions of the tokens of one forward pass, and of all keys."""

    positions: Int[Tensor, "*batch T"]
    keys: Int[Tensor, "*batch S"]
    """-1 where a column holds no key."""
    in_order: bool
    """Whether the queries are the last T of S consecutive keys, so that a mask needs no positions."""


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
        keys[:, :start] = torch.arange(start, device=tokens.device) if self._ragged is None else self._ragged
        last = keys.max(1, keepdim=True).values
        positions = last + real.long().cumsum(1)
        keys[:, start:] = torch.where(real, positions, -1)
        return Step(positions.clamp(min=0), keys, in_order=False)

    def advance(self, step: Step) -> None:
        """Records the tokens of a step; the layers add their keys and values."""
        self.length += step.positions.shape[-1]
        if step.keys.ndim == 2:
            self._ragged = step.keys

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
        self._ragged = None if self._ragged is None else self._ragged[:, :length]

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
        if self.convolved is not None:
            self.convolved.select(rows)
        if self._ragged is not None:
            self._ragged = self._ragged[rows]

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


def columns_before(step: Step, count: int, places: Int[Tensor, "*batch T"] | None = None) -> Int[Tensor, "N *batch T"]:
    """The columns of the `count` tokens before each new one; -1 for those before the first of its text.

    `places` are positions within documents; None: as the step's positions.
    """
    earlier = step.positions - steps_back(count, step.positions)
    if step.in_order:  # columns are positions
        return earlier.clamp(min=-1)
    # Up to each column the last real token's position, so the first column that reaches a position holds it.
    reached = step.keys.cummax(-1).values
    wide = earlier.movedim(0, -2).flatten(-2)
    columns = torch.searchsorted(reached, wide.contiguous()).unflatten(-1, (count, -1)).movedim(-2, 0)
    begun = earlier >= 0 if places is None else places >= steps_back(count, places)
    return torch.where(begun, columns, -1)


def steps_back(count: int, like: Int[Tensor, "*batch T"]) -> Int[Tensor, "N *ones"]:
    """1 to `count`, along a new first dimension."""
    return torch.arange(1, count + 1, device=like.device).view(-1, *[1] * like.ndim)
