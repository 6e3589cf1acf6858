"""A cache of keys and values in 8 bits: a quarter of float32's memory, with errors up to 1/254 of a vector's largest.

Each head's vector of each token has its own step, so a token with large numbers does not make others less exact
("per-token" in Xiao et al. 2023, SmoothQuant, section 3).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from glassformer.base.shapes import Float, Int, Tensor
from glassformer.nn.cache import Cache
from glassformer.nn.columns import Growing, LayerCache, Once
from glassformer.nn.eight_bits import rounded
from glassformer.nn.fixed import Fixed, FixedCache
from glassformer.nn.rolling import Rolling, RollingCache
from glassformer.nn.room import Room

Held = Growing | Fixed | Rolling | Room


class Rounded:
    """A layer cache that holds 8-bit whole numbers and their steps, and returns their products.

    `make` makes the layer caches that hold the numbers and the steps as they would hold keys and values.
    """

    def __init__(self, make: Callable[[], Held]) -> None:
        self.numbers, self.steps = make(), make()
        self.dtype = torch.float32

    @property
    def complete(self) -> bool:
        """Whether all keys are already held."""
        return self.numbers.complete

    @property
    def buffers(self) -> tuple[Tensor, Tensor] | None:
        """Numbers of keys and values as they lie in memory; the buffers of `steps` are beside them."""
        return self.numbers.buffers

    @property
    def width(self) -> int:
        """As `Growing.width`."""
        return self._claimable[0].width

    def claim(self, shape: tuple[int, int, int, int], dtype: torch.dtype) -> None:
        """As `Growing.claim`, for numbers and steps; they will be read in this dtype."""
        self.dtype = dtype
        numbers, steps = self._claimable
        numbers.claim(shape, torch.int8)
        steps.claim((*shape[:3], 1), torch.float32)

    def stay(self) -> Int[Tensor, "B N"] | None:
        """As `Growing.stay`, of numbers and steps."""
        found = [each.stay() for each in (self.numbers, self.steps) if isinstance(each, Growing)]
        return found[0] if found else None

    def clear(self) -> None:
        """Forgets everything."""
        for each in (self.numbers, self.steps):
            assert isinstance(each, Growing), "only what was claimed is cleared"
            each.clear()

    def newest(self, B: int, T: int) -> Int[Tensor, "B T"] | None:
        """As `Growing.newest`."""
        return self._claimable[0].newest(B, T)

    @property
    def _claimable(self) -> tuple[Growing | Room, Growing | Room]:
        assert isinstance(self.numbers, Growing | Room), "C++ reads no other"
        assert isinstance(self.steps, Growing | Room)
        return self.numbers, self.steps

    def append(
        self, k: Float[Tensor, "B G T K"], v: Float[Tensor, "B G T K"]
    ) -> tuple[Float[Tensor, "B G S K"], Float[Tensor, "B G S K"]]:
        """Adds keys and values after those held; returns all, rounded."""
        self.dtype = k.dtype
        (of_k, step_k), (of_v, step_v) = rounded(k), rounded(v)
        self.numbers.append(of_k, of_v)
        self.steps.append(step_k, step_v)
        return self.read()

    def read(self) -> tuple[Tensor, Tensor]:
        """Returns all keys and values so far, rounded."""
        pairs = zip(self.numbers.read(), self.steps.read(), strict=True)
        k, v = (each.to(self.dtype) * step.to(self.dtype) for each, step in pairs)  # one dtype: twice as fast
        return k, v

    def select(self, rows: Tensor) -> None:
        """Keeps the given rows."""
        for each in (self.numbers, self.steps):
            each.select(rows)

    def truncate(self, length: int) -> None:
        """Forgets all but the first `length` tokens."""
        for each in (self.numbers, self.steps):
            assert not isinstance(each, Rolling | Room), "their caches refuse it"
            each.truncate(length)


class RoundedRoom(Rounded):
    """A `Room` in 8 bits, which takes rows of `Rounded` layers as they are."""

    numbers: Room
    steps: Room

    def __init__(self, *, complete: bool = False) -> None:
        super().__init__(lambda: Room(complete=complete))

    @property
    def at(self) -> Int[Tensor, "B T"] | None:
        """As in `Room`."""
        return self.numbers.at

    @at.setter
    def at(self, columns: Int[Tensor, "B T"] | None) -> None:
        self.numbers.at = self.steps.at = columns

    @property
    def width(self) -> int:
        """As in `Room`."""
        return self.numbers.width

    @width.setter
    def width(self, columns: int) -> None:
        self.numbers.width = self.steps.width = columns

    def take(self, other: LayerCache, rows: Int[Tensor, " rows"], columns: int, most_rows: int) -> None:
        """As `Room.take`, of a layer in 8 bits: nothing is rounded again."""
        assert isinstance(other, Rounded), "one model made both"
        self.dtype = other.dtype
        self.numbers.take(other.numbers, rows, columns, most_rows)
        self.steps.take(other.steps, rows, columns, most_rows)


def rounding_cache(cache: Cache) -> Cache:
    """Make a new, empty cache hold its keys and values, including those of an encoder's memory, in 8 bits."""

    def make() -> Held:
        if isinstance(cache, RollingCache):
            return Rolling()
        return Fixed(cache.room) if isinstance(cache, FixedCache) else Growing()

    layers = [Rounded(make) for _ in cache.layers]
    cache.layers = [*layers]
    cache.cross = [Rounded(Once) for _ in cache.cross]
    parts = [each for layer in layers for each in (layer.numbers, layer.steps)]
    if isinstance(cache, RollingCache):
        cache.rolling = [each for each in parts if isinstance(each, Rolling)]
    if isinstance(cache, FixedCache):
        cache.fixed = [each for each in parts if isinstance(each, Fixed)]
    return cache
