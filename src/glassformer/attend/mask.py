"""Which keys each query may read: a value, and the one place where it becomes a tensor."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from glassformer.attend.value_bias import ValueBias
from glassformer.foundation.errors import ConfigError
from glassformer.foundation.shapes import Bool, Float, Int, Tensor


@dataclass(frozen=True, eq=False)
class Mask:
    """Rules that a key must meet to be read; with none of them, every query reads every key. True means *may be read*.

    Without positions the queries are the last T of the S keys, so a mask serves a whole sequence and a cached step
    alike. A key at position -1 holds nothing and is read by nobody. A query that may read no key gets zeros.
    """

    causal: bool = False
    """A query reads its own position and those before it."""
    window: int | None = None
    """A query reads keys less than `window` positions before it; if not causal, after it too."""
    keep: Bool[Tensor, "B S"] | None = None
    """False at padding keys."""
    bias: Float[Tensor, "*#batch H T S"] | None = None
    """Added to the scores."""
    value_bias: ValueBias | None = None
    """Added to the values, pair by pair."""
    query_positions: Int[Tensor, "*#batch T"] | None = None
    """Where each query stands; one row for all sequences, or one for each."""
    key_positions: Int[Tensor, "*#batch S"] | None = None
    """Where each key stands."""
    _lowered: dict[tuple[int, int, str], Lowered] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise ConfigError(f"window must be at least 1 (a query reads itself); got {self.window}.")
        check_keep(self.keep)

    @property
    def hides_nothing(self) -> bool:
        """Whether every key is read by every query and nothing is added."""
        others = (self.window, self.keep, self.bias, self.value_bias, self.key_positions)
        return not self.causal and all(other is None for other in others)

    @property
    def only_causal(self) -> bool:
        """Whether the causal rule over consecutive positions is all there is."""
        others = (self.window, self.keep, self.bias, self.value_bias, self.query_positions, self.key_positions)
        return self.causal and all(other is None for other in others)

    def allowed(self, T: int, S: int, device: torch.device) -> Bool[Tensor, "#B 1 #T S"] | None:
        """True where query t may read key s; None where everything may be read."""
        rules: list[Tensor] = []  # each [#B, #T, S]
        if self.keep is not None:
            rules.append(self.keep[:, None, :])
        if self.key_positions is not None:
            rules.append(torch.atleast_2d(self.key_positions >= 0)[:, None, :])
        if self.causal or self.window is not None:
            back = self.back(T, S, device)
            back = back if back.ndim == 3 else back[None]
            if self.causal:
                rules.append(back >= 0)
            if self.window is not None:
                rules.append(back.abs() < self.window)
        if not rules:
            return None
        allowed = rules[0]
        for rule in rules[1:]:
            allowed = allowed & rule
        return allowed[:, None]

    def back(self, T: int, S: int, device: torch.device) -> Int[Tensor, "*#batch T S"]:
        """How far each key lies back from each query; one table for all sequences, or one for each."""
        keys = torch.arange(S, device=device) if self.key_positions is None else self.key_positions
        queries = torch.arange(S - T, S, device=device) if self.query_positions is None else self.query_positions
        return queries[..., :, None] - keys[..., None, :]

    def _always_reads(self, T: int, S: int) -> bool:
        """Whether every query reads itself at least, which needs no look at values."""
        return self.keep is None and self.key_positions is None and self.query_positions is None and T <= S

    def lower(self, T: int, S: int, like: Float[Tensor, "..."]) -> Lowered:
        """The mask as numbers to add to scores, in the dtype and on the device of `like`.

        The layers of a forward share one mask, so it is lowered once; not where the bias is being learned, as its
        graph must belong to one backward.
        """
        place = (T, S, f"{like.dtype} {like.device}")
        if place in self._lowered:
            return self._lowered[place]
        allowed = self.allowed(T, S, like.device)
        bias = None if self.bias is None else self.bias.to(like.dtype)
        if bias is not None and bias.ndim == 3:
            bias = bias[None]
        if allowed is None:
            lowered = Lowered(bias, None)
        else:
            blind = ~allowed.any(-1, keepdim=True)  # such a query keeps finite scores, and its output is zeroed
            zeros = like.new_zeros(()) if bias is None else bias
            added = torch.where(allowed | blind, zeros, float("-inf"))
            lowered = Lowered(added, None if self._always_reads(T, S) else blind)
        if self.bias is None or not self.bias.requires_grad:
            self._lowered[place] = lowered
        return lowered


def check_keep(keep: Tensor | None) -> None:
    """Raises `ConfigError` for a mask of numbers: in some libraries they mean True and False, in others addends."""
    if keep is not None and keep.dtype != torch.bool:
        raise ConfigError(
            f"keep must be boolean, True at real keys; got {keep.dtype}. "
            "Use keep.bool() for a 0/1 mask, and bias= for numbers added to the scores."
        )


@dataclass(frozen=True, eq=False)
class Lowered:
    """A mask made ready for a kernel."""

    added: Float[Tensor, "#B #H #T S"] | None
    """To be added to the scores: 0 (or the bias) where a key may be read, -inf where not."""
    blind: Bool[Tensor, "#B 1 #T 1"] | None
    """True at queries that may read nothing, whose output is zero; None where there can be none."""

    def zero_blind(self, output: Float[Tensor, "B H T K"]) -> Float[Tensor, "B H T K"]:
        """The output with zeros for queries that may read nothing."""
        return output if self.blind is None else output.masked_fill(self.blind, 0.0)
