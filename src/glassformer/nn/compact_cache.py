"""Caches that take less memory, or constant memory: for windows, for linear attention, and in 8 bits.

With a causal window, only the last keys are in reach (Longformer, Beltagy et al. 2020, section 3.1). The first keys
stay too if they are sinks (StreamingLLM, Xiao et al. 2023, section 3.2) or global tokens. In 8 bits, keys and values
take a quarter of float32's memory, with errors up to 1/254 of a vector's largest number. Each head's vector of each
token has its own step, so a token with large numbers does not make others less exact ("per-token" in Xiao et al. 2023,
SmoothQuant, section 3).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

import torch

from glassformer.base.errors import ConfigError
from glassformer.base.schemes import Pattern
from glassformer.base.shapes import Bool, Float, Int, Int8, Num, Tensor
from glassformer.nn.attention import LayerCache
from glassformer.nn.cache import Cache, Claimable, Fixed, FixedCache, Growing, Once
from glassformer.nn.linear import features, from_features, nonzero
from glassformer.nn.step import Step, steps_back

LARGEST = 127
"""The numbers are -127 to 127, so that x and -x are equally exact."""
TINY = 1e-30
"""The smallest step, so that a vector of zeros is not divided by 0."""


def rounded(x: Float[Tensor, "*where K"]) -> tuple[Int8[Tensor, "*where K"], Float[Tensor, "*where 1"]]:
    """Quantise each vector: return whole numbers and one step per vector, whose product is x to within half a step.

    The largest number of a vector is 127 steps (Dettmers et al. 2022, section 2.1, vector-wise). A vector with NaN or
    infinity gets a step of NaN or infinity, so that its product cannot be mistaken for a valid result.
    """
    step = x.abs().amax(-1, keepdim=True).float().mul(1 / LARGEST).clamp_min(TINY)
    return (x / step).round_().to(torch.int8), step


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


class State:
    """s = sum of features(k) v^T and z = sum of features(k) (Katharopoulos et al. 2020, equations 16 to 20).

    Like other caches it returns keys and values, here one pair per feature i: the key whose features are z_i in place i
    and 0 elsewhere, and the value s_i / z_i. Over these K pairs, linear attention gives the same result as over all
    tokens in the sums, so `Attention` needs no special case. The sums are held in float32 or wider.
    """

    complete = False

    def __init__(self) -> None:
        self.real: Tensor | None = None
        """[B, T], False at padding among the next tokens; `StateCache` sets it."""
        self._sums: Tensor | None = None  # [B, G, K, K + 1]: s, and z as its last column

    def append(
        self, k: Float[Tensor, "B G T K"], v: Float[Tensor, "B G T K"]
    ) -> tuple[Float[Tensor, "B G S K"], Float[Tensor, "B G S K"]]:
        """Adds new tokens to the sums; returns the state before them, as K keys and values, then the new ones."""
        wide = torch.promote_types(k.dtype, torch.float32)
        of_k = features(k.to(wide))
        if self.real is not None:
            of_k = of_k * self.real[:, None, :, None]
        if self._sums is None:
            self._sums = of_k.new_zeros(*k.shape[:2], k.shape[-1], k.shape[-1] + 1)
        held_k, held_v = self.read()
        values = torch.nn.functional.pad(v.to(wide), (0, 1), value=1.0)
        self._sums = self._sums + of_k.mT @ values
        return torch.cat([held_k.to(k.dtype), k], dim=2), torch.cat([held_v.to(v.dtype), v], dim=2)

    def read(self) -> tuple[Tensor, Tensor]:
        """Returns the state as keys and values, [B, G, K, K] each."""
        assert self._sums is not None, "nothing was appended yet"
        s, z = self._sums[..., :-1], self._sums[..., -1]
        return from_features(torch.diag_embed(z)), s / nonzero(z[..., None])

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keeps the given rows."""
        if self._sums is not None:
            self._sums = self._sums[rows]

    def join(self, other: State, rows: Int[Tensor, " rows"]) -> None:
        """Adds the given rows of another state behind its own."""
        assert other._sums is not None, "nothing was appended there yet"
        new = other._sums[rows]
        self._sums = new if self._sums is None else torch.cat([self._sums, new])


class StateCache(Cache):
    """A `Cache` of states: `features` columns stand for all earlier tokens, then come the new ones. It never grows.

    A capacity only limits how many tokens may come; a state needs no memory for them.
    """

    def __init__(self, n_layers: int, features: int, *, capacity: int | None = None) -> None:
        super().__init__(n_layers)
        self.capacity = capacity
        self.features = features
        self.states = [State() for _ in range(n_layers)]
        self.layers: list[LayerCache] = [*self.states]
        self._counts: Tensor | None = None  # [B, 1] real tokens so far

    def step(self, tokens: Int[Tensor, "B T"], keep: Bool[Tensor, "B T"] | None = None) -> Step:
        """Returns the positions that new tokens would have. The state's own columns are at 0, or -1 while empty."""
        self.check_room(self.length + tokens.shape[1])
        real = torch.ones_like(tokens, dtype=torch.bool) if keep is None else keep
        before = tokens.new_zeros(len(tokens), 1) if self._counts is None else self._counts
        positions = before + real.long().cumsum(1) - 1
        held = torch.where(before > 0, 0, -1).expand(-1, self.features)
        keys = torch.cat([held, torch.where(real, positions, -1)], dim=1)
        return Step(positions.clamp(min=0), keys, in_order=False)

    def advance(self, step: Step) -> None:
        """Counts the new tokens and tells the states which of them are real."""
        self.length += step.positions.shape[-1]
        real = step.keys[:, self.features :] >= 0
        counts = real.sum(1, keepdim=True)
        self._counts = counts if self._counts is None else self._counts + counts
        for state in self.states:
            state.real = real

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keeps the given rows of the batch, in the order given."""
        super().select(rows)
        if self._counts is not None:
            self._counts = self._counts[rows]


STEP_OF_COLUMNS = 64
"""Buffers grow by multiples of this many columns, so that they seldom have to be reallocated."""


def moved_up(n_rows: int, gone: Collection[int]) -> list[int]:
    """The old places of the rows that stay, in their new order: the last rows fill the places of those gone."""
    stay = [row for row in range(n_rows) if row not in gone]
    holes = sorted(row for row in gone if row < len(stay))
    order = list(range(len(stay)))
    for hole, row in zip(holes, [row for row in stay if row >= len(stay)], strict=True):
        order[hole] = row
    return order


class Slotted:
    """Buffers for the keys and values of one layer, [rows, G, columns, K] each; each row fills its first columns.

    `at` gives the columns of the next tokens and `width` how many columns are read; the owner of the room sets both. A
    `complete` room is filled once and then only read: it holds the keys of an encoder's memory.
    """

    def __init__(self, *, complete: bool = False) -> None:
        self.complete = complete
        self.n_rows = self.width = 0
        self.at: Int[Tensor, "B T"] | None = None
        self._held: tuple[Tensor, Tensor] | None = None

    @property
    def buffers(self) -> tuple[Tensor, Tensor] | None:
        """As `Columns.buffers`."""
        return self._held

    def claim(self, shape: tuple[int, int, int, int], dtype: torch.dtype, *, values: bool = True) -> None:
        """As `Growing.claim`; a row has room for all its tokens from the beginning."""

    def newest(self, B: int, T: int) -> Int[Tensor, "B T"]:
        """As `Growing.newest`. Errors: `IndexError` for a column that the buffers do not have."""
        assert self.at is not None, "a step says where its tokens stand"
        assert self._held is not None, "rows are taken before they go on"
        at = self.at.reshape(B, T).contiguous()
        if int(at.max()) >= self._held[0].shape[2]:
            raise IndexError(
                f"The cache has no column {int(at.max())}: more tokens were written than its rows have room for."
            )
        return at

    def append(
        self, k: Num[Tensor, "B G T K"], v: Num[Tensor, "B G T _"]
    ) -> tuple[Num[Tensor, "B G S K"], Num[Tensor, "B G S _"]]:
        """Writes new keys and values at each row's columns `at`; returns as `read`."""
        assert self._held is not None, "rows are taken before they go on"
        assert self.at is not None, "a step says where its tokens stand"
        rows = torch.arange(len(k), device=k.device)[:, None]
        for held, new in zip(self._held, (k, v), strict=True):
            held[rows, :, self.at] = new.transpose(1, 2)
        return self.read()

    def read(self) -> tuple[Tensor, Tensor]:
        """Returns the keys and values of all rows, up to the columns of the longest row."""
        assert self._held is not None, "no row was taken yet"
        k, v = self._held
        return k[: self.n_rows, :, : self.width], v[: self.n_rows, :, : self.width]

    def take(self, other: LayerCache, rows: Int[Tensor, " rows"], columns: int, most_rows: int) -> None:
        """Copies rows of another cache behind its own; `columns` is the most that any of them will need."""
        k, v = other.read()
        self.add(k[rows], v[rows], columns, most_rows)

    def add(self, k: Num[Tensor, "N G S K"], v: Num[Tensor, "N G S _"], columns: int, most_rows: int) -> None:
        """Copies rows of keys and values behind its own; `columns` is the most that any of them will need.

        Slots are zeroed first: NaN or infinity left by an earlier row would spoil the result even at a weight of 0.
        """
        n = self.n_rows + len(k)
        self._widen(k, v, n, max(columns, k.shape[2]), most_rows)
        assert self._held is not None
        for held, new in zip(self._held, (k, v), strict=True):
            held[self.n_rows : n] = 0
            held[self.n_rows : n, :, : new.shape[2]] = new
        self.n_rows = n

    def _widen(self, k: Tensor, v: Tensor, n: int, columns: int, most_rows: int) -> None:
        """Moves to larger buffers if needed: for the current rows and half as many more, up to `most_rows`.

        There is one spare column, and at least one spare row below `most_rows`: a buffer of one row, or one that is
        read whole, would need a compilation of its own where steps are compiled.
        """
        if self._held is not None and self._held[0].shape[0] >= n and self._held[0].shape[2] > columns:
            return
        columns = -(-max(columns, self.width) // STEP_OF_COLUMNS) * STEP_OF_COLUMNS + 1
        rows = min(n + max(n // 2, 1), max(most_rows, n))
        before = None if self._held is None else self.read()
        new_k, new_v = (each.new_zeros(rows, each.shape[1], columns, each.shape[3]) for each in (k, v))
        self._held = (new_k, new_v)
        for new, old in zip(self._held, before or (), strict=False):
            new[: self.n_rows, :, : self.width] = old

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keeps the given rows, in an order from `moved_up`; copies only rows whose place changes."""
        order = rows.tolist()
        assert self._held is not None
        for place, row in enumerate(order):
            if place != row:
                for held in self._held:
                    held[place] = held[row]
        self.n_rows = len(order)


Held = Growing | Fixed | Rolling | Slotted


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
    def _claimable(self) -> tuple[Growing | Slotted, Growing | Slotted]:
        assert isinstance(self.numbers, Growing | Slotted), "C++ reads no other"
        assert isinstance(self.steps, Growing | Slotted)
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
            assert not isinstance(each, Rolling | Slotted), "their caches refuse it"
            each.truncate(length)


class RoundedSlotted(Rounded):
    """A `Slotted` in 8 bits, which takes rows of `Rounded` layers as they are."""

    numbers: Slotted
    steps: Slotted

    def __init__(self, *, complete: bool = False) -> None:
        super().__init__(lambda: Slotted(complete=complete))

    @property
    def at(self) -> Int[Tensor, "B T"] | None:
        """As in `Slotted`."""
        return self.numbers.at

    @at.setter
    def at(self, columns: Int[Tensor, "B T"] | None) -> None:
        self.numbers.at = self.steps.at = columns

    @property
    def width(self) -> int:
        """As in `Slotted`."""
        return self.numbers.width

    @width.setter
    def width(self, columns: int) -> None:
        self.numbers.width = self.steps.width = columns

    def take(self, other: LayerCache, rows: Int[Tensor, " rows"], columns: int, most_rows: int) -> None:
        """As `Slotted.take`, of a layer in 8 bits: nothing is rounded again."""
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
