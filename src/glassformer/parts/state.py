"""The memory of linear attention: two sums of constant size, however many tokens came before."""

from __future__ import annotations

import torch

from glassformer.attend.linear import features, from_features, nonzero
from glassformer.foundation.shapes import Bool, Float, Int, Tensor
from glassformer.parts.cache import Cache, LayerCache, Once, Step


class State:
    """s = sum of features(k) v^T and z = sum of features(k) (Katharopoulos et al. 2020, equations 16 to 20).

    It answers as a cache does, with keys and values: one for each feature i, its key the one whose features are z_i in
    place i and 0 elsewhere, its value s_i / z_i. What linear attention makes of these K is what it makes of all tokens
    that the sums hold, so attention cannot tell a state from a cache. The sums are kept in float32 at least.
    """

    complete = False

    def __init__(self) -> None:
        self.real: Tensor | None = None
        """[B, T], False at padding among the tokens about to come; `StateCache` says it."""
        self._sums: Tensor | None = None  # [B, G, K, K + 1]: s, and z as its last column

    def append(
        self, k: Float[Tensor, "B G T K"], v: Float[Tensor, "B G T K"]
    ) -> tuple[Float[Tensor, "B G S K"], Float[Tensor, "B G S K"]]:
        """The state before the new tokens as K keys and values, and the new ones after them."""
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
        """The state as keys and values, [B, G, K, K] each."""
        assert self._sums is not None, "nothing was appended yet"
        s, z = self._sums[..., :-1], self._sums[..., -1]
        return from_features(torch.diag_embed(z)), s / nonzero(z[..., None])

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keeps the given rows."""
        if self._sums is not None:
            self._sums = self._sums[rows]

    def join(self, other: State, rows: Int[Tensor, " rows"]) -> None:
        """Takes in the given rows of another state, behind its own."""
        assert other._sums is not None, "nothing was appended there yet"
        new = other._sums[rows]
        self._sums = new if self._sums is None else torch.cat([self._sums, new])


class StateCache(Cache):
    """A `Cache` of states: `features` columns for all tokens before, then the new ones. It never grows.

    A capacity is a promise not to ask for more; a state needs none.
    """

    def __init__(self, n_layers: int, features: int, *, capacity: int | None = None) -> None:
        super().__init__(n_layers, capacity=capacity)
        self.features = features
        self.states = [State() for _ in range(n_layers)]
        self.layers: list[LayerCache] = [*self.states]
        self.cross: list[LayerCache] = [Once() for _ in range(n_layers)]
        self._counts: Tensor | None = None  # [B, 1] real tokens so far

    def step(self, tokens: Int[Tensor, "B T"], keep: Bool[Tensor, "B T"] | None = None) -> Step:
        """Where new tokens would stand. The state's columns stand at 0, before them all; at -1 while it is empty."""
        self.check_room(self.length + tokens.shape[1])
        real = torch.ones_like(tokens, dtype=torch.bool) if keep is None else keep
        before = tokens.new_zeros(len(tokens), 1) if self._counts is None else self._counts
        positions = before + real.long().cumsum(1) - 1
        held = torch.where(before > 0, 0, -1).expand(-1, self.features)
        keys = torch.cat([held, torch.where(real, positions, -1)], dim=1)
        return Step(positions.clamp(min=0), keys, in_order=False)

    def advance(self, step: Step) -> None:
        """Tells the states which of the new tokens are real, and counts them."""
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
