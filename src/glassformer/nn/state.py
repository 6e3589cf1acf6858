"""The cache of linear attention: two sums of constant size, however many tokens came before."""

from __future__ import annotations

import torch

from glassformer.base.shapes import Bool, Float, Int, Tensor
from glassformer.nn.attend.linear import features, from_features, nonzero
from glassformer.nn.cache import Cache, Step
from glassformer.nn.columns import LayerCache, Once


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
        self.cross: list[LayerCache] = [Once() for _ in range(n_layers)]
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
