"""`Mask`: the rules that say which keys each query may read, and how they become a tensor."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from types import NoneType
from typing import Any, TypeVar

import torch

from glassformer.base.errors import ConfigError
from glassformer.base.part import fields_of, misfit
from glassformer.base.schemes import Pattern
from glassformer.base.shapes import Bool, Float, Int, Keys, Queries, Tensor, Weights
from glassformer.base.tensors import as_mask, check_keep, check_mask_shapes


@dataclass(frozen=True, eq=False)
class ValueBias:
    """Query t reads v_s + table[index[t, s]] from key s (Shaw, Uszkoreit and Vaswani 2018, equation 3)."""

    table: Float[Tensor, "R K"]
    """The R vectors that can be added, the same for all heads."""
    index: Int[Tensor, "*#batch T S"]
    """The row of the table to add for each pair."""

    def read(self, weights: Weights) -> Queries:
        """sum over s of weight[t, s] table[index[t, s]].

        The weights are first summed per table row, so that no vector per pair is held. Sums are in float32 or wider.
        """
        wide = weights.to(torch.promote_types(weights.dtype, torch.float32))
        rows = self.index if self.index.ndim == 3 else self.index[None]
        empty = wide.new_zeros(*wide.shape[:-1], len(self.table))
        by_row = empty.scatter_add(-1, rows[:, None].expand_as(wide), wide)
        return (by_row @ self.table.to(wide.dtype)).to(weights.dtype)


def readable(
    pattern: Pattern, queries: Int[Tensor, "*#pairs"], keys: Int[Tensor, "*#pairs"]
) -> Bool[Tensor, "*#pairs"]:
    """True where the pattern lets the query at position t read the key at position s; `Mask` adds the causal rule.

    `queries` and `keys` are positions of any shapes that broadcast: one pair, as in a kernel, or all pairs at once.

    window:  |t - s| < window * dilation and (t - s) mod dilation = 0, or s < sinks, or s or t < global_tokens
    stride:  t - s < stride, or (t - s) mod stride = 0
    block:   t and s in one block, or s among the last `summary` of its block
    """
    back = queries - keys
    if pattern.window is not None:
        near = back.abs() < pattern.window * pattern.dilation
        if pattern.dilation > 1:
            near = near & (back % pattern.dilation == 0)
        if pattern.sinks:
            near = near | (keys < pattern.sinks)
        if pattern.global_tokens:
            near = near | (keys < pattern.global_tokens) | (queries < pattern.global_tokens)
        return near
    if pattern.stride is not None:
        return (back < pattern.stride) | (back % pattern.stride == 0)
    if pattern.block is not None:
        own = keys // pattern.block == queries // pattern.block
        return own | (keys % pattern.block >= pattern.block - pattern.summary)
    return back == back


Kept = TypeVar("Kept")
TENSORS = ("bias", "query_positions", "key_positions", "documents", "query_documents", "prefix", "table")
KINDS = {"causal": bool, "pattern": (NoneType, Pattern), "value_bias": (NoneType, ValueBias)} | dict.fromkeys(
    TENSORS, (NoneType, Tensor)
)
"""Of what classes the fields of a mask are, besides those that are checked elsewhere."""


@dataclass(frozen=True, eq=False)
class Mask:
    """The rules that a key must meet to be read. Without any, every query reads every key. True means *may be read*.

    If no positions are given, the queries are the last T of the S keys, so one mask serves a whole sequence and a
    decoding step with a cache. A key at position -1 is empty and never read. A query that may read no key gets zeros.

    >>> from glassformer import Mask
    >>> Mask(causal=True, window=2).allowed(3, 3, torch.device("cpu"))[0, 0].int().tolist()
    [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    """

    causal: bool = False
    """A query reads only its own position and earlier ones."""
    window: int | None = None
    """A query reads only keys less than `window` positions before it or, if not causal, after it."""
    pattern: Pattern | None = None
    """A richer sparse rule in place of `window`: dilation, stride, blocks, global tokens, sinks.

    It counts positions even if `documents` is given: with several documents in a row, give positions within each."""
    keep: Bool[Tensor, "B S"] | None = None
    """False at padding keys."""
    bias: Float[Tensor, "*#batch #H #T S"] | None = None
    """Added to the scores; B, H and T may be 1."""
    value_bias: ValueBias | None = None
    """Added to the values, separately for each pair of query and key."""
    query_positions: Int[Tensor, "*#batch T"] | None = None
    """The position of each query: one row for all sequences, or one per sequence."""
    key_positions: Int[Tensor, "*#batch S"] | None = None
    """The position of each key."""
    documents: Int[Tensor, "*#batch S"] | None = None
    """The document of each key, where several are packed in a row; a query reads only its own document."""
    query_documents: Int[Tensor, "*#batch T"] | None = None
    """The document of each query; if None, those of the last T keys."""
    prefix: Int[Tensor, " #B"] | None = None
    """Every query may read the keys at positions below this, even those after it: a prefix LM (Raffel et al. 2020,
    section 3.2.1, figure 4). It relaxes only the causal rule."""
    table: Bool[Tensor, "#B #H T S"] | None = None
    """False where a query may not read a key, whatever the other rules say."""
    _lowered: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self._check_types()
        if self.window is not None and self.pattern is not None:
            raise ConfigError(
                f"window=n is short for pattern=Pattern(window=n), so give only one of them; got window={self.window} "
                f"and {self.pattern}. Put it into the pattern, Pattern(window={self.window}, ...), or remove it."
            )
        if self.window is not None:
            Pattern(window=self.window)
        if self.pattern is not None:
            self.pattern.check_causal(self.causal)
        if self.query_documents is not None and self.documents is None:
            raise ConfigError("query_documents needs documents, those of the keys; got none. Give documents= as well.")
        check_keep(self.keep)
        self._check_prefix()

    def _check_types(self) -> None:
        """Look closer only where something may be wrong: a mask is made in every pass."""
        right = all(isinstance(getattr(self, name), kinds) for name, kinds in KINDS.items())
        if right and (self.bias is None or self.bias.is_floating_point()):
            return
        for name, hint in fields_of(Mask).items():
            if (wrong := misfit(name, getattr(self, name), hint, {})) is not None:
                raise ConfigError(f"{name} of Mask must {wrong}")

    def _check_prefix(self) -> None:
        if self.prefix is None:
            return
        if not self.causal:
            raise ConfigError(
                "A prefix lets queries read later keys, so it needs causal=True; got causal=False. "
                "Remove the prefix: without the causal rule every query may read later keys anyway."
            )
        if (sparser := self.sparse) is not None:
            raise ConfigError(
                f"Every query reads the whole prefix, but a pattern would hide parts of it; got {sparser}. "
                "Remove the pattern or the prefix."
            )

    @staticmethod
    def of(given: Mask | Tensor | None, q: Queries, k: Keys) -> Mask:
        """The mask that is given for these queries and keys; None: everything may be read.

        A boolean tensor is True where a key may be read; whole numbers 0 and 1 say the same. Floats are added to the
        scores, and where they are -inf a key may not be read. Shapes: [T, S], [B, T, S] or [B, H, T, S], where B, H and
        T may be 1; or [B, S], for the keys of each row. Errors: `ConfigError` for anything else, and for a shape that
        could be [T, S] or [B, S]; and, where looking does not wait for a device, for values that have no meaning, or
        two.
        """
        if given is None:
            return Mask()
        if isinstance(given, Mask):
            check_mask_shapes(given.keep, given.bias, q.shape, k.shape[2])
            return given
        table = as_mask(given, q.shape, k.shape[2])
        if table.is_floating_point():
            readable = table > -torch.inf
            return Mask(bias=table.masked_fill(~readable, 0.0), table=readable)
        return Mask(table=table.bool())

    @property
    def sparse(self) -> Pattern | None:
        """The sparse pattern, whether given as `pattern` or as `window`; None if there is none."""
        if self.window is not None:
            return Pattern(window=self.window)
        return None if self.pattern is None or self.pattern.reads_everything else self.pattern

    @property
    def placed(self) -> bool:
        """Whether positions are given, so that a column's number need not be its position."""
        return self.query_positions is not None or self.key_positions is not None

    @property
    def hides_nothing(self) -> bool:
        """Whether every query reads every key and no bias is added."""
        others = (self.sparse, self.keep, self.bias, self.value_bias, self.key_positions, self.documents, self.table)
        return not self.causal and all(other is None for other in others)

    @property
    def only_causal(self) -> bool:
        """Whether the causal rule, over consecutive positions, is the only rule."""
        others = (self.sparse, self.keep, self.bias, self.value_bias, self.documents, self.prefix, self.table)
        return self.causal and not self.placed and all(other is None for other in others)

    def allowed(self, T: int, S: int, device: torch.device) -> Bool[Tensor, "#B #H #T S"] | None:
        """True where query t may read key s; None if every query may read every key."""
        rules: list[Tensor] = []  # each [#B, #T, S]
        if self.keep is not None:
            rules.append(self.keep[:, None, :])
        if self.key_positions is not None:
            rules.append(torch.atleast_2d(self.key_positions >= 0)[:, None, :])
        pattern = self.sparse
        causal = self.causal and (T > 1 or self.placed)  # a single query is last and reads every key
        if causal or pattern is not None:
            queries, keys = self.places(T, S, device)
            places = torch.atleast_2d(queries)[:, :, None], torch.atleast_2d(keys)[:, None, :]
            if causal:
                before = places[0] >= places[1]
                rules.append(before if self.prefix is None else before | (places[1] < self.prefix[:, None, None]))
            if pattern is not None:
                rules.append(readable(pattern, *places))
        if self.documents is not None:
            rules.append(self.documents_of_queries(T, S)[:, :, None] == torch.atleast_2d(self.documents)[:, None, :])
        if not rules:
            return self.table
        allowed = rules[0]
        for rule in rules[1:]:
            allowed = allowed & rule
        return allowed[:, None] if self.table is None else allowed[:, None] & self.table

    def places(self, T: int, S: int, device: torch.device) -> tuple[Int[Tensor, "*#batch T"], Int[Tensor, "*#batch S"]]:
        """The positions of queries and keys: those given, or else 0 to S - 1, with the queries as the last T."""
        keys = torch.arange(S, device=device) if self.key_positions is None else self.key_positions
        queries = torch.arange(S - T, S, device=device) if self.query_positions is None else self.query_positions
        return queries, keys

    def back(self, T: int, S: int, device: torch.device) -> Int[Tensor, "*#batch T S"]:
        """How many positions each key is before each query: one table for all sequences, or one per sequence."""
        queries, keys = self.places(T, S, device)
        return queries[..., :, None] - keys[..., None, :]

    def documents_of_queries(self, T: int, S: int) -> Int[Tensor, "#B T"]:
        """The document of each query: `query_documents`, or else those of the last T keys."""
        if self.query_documents is not None:
            return torch.atleast_2d(self.query_documents)
        assert self.documents is not None
        if T > S:
            raise ConfigError(
                f"Without query_documents, T queries belong to the documents of the last T keys; got {T} queries and "
                f"only {S} keys. Give query_documents=."
            )
        return torch.atleast_2d(self.documents)[:, S - T :]

    def once(self, place: Hashable, build: Callable[[], Kept]) -> Kept:
        """Return `build()`, cached under `place` for the next layer unless the bias is learned."""
        return build() if self.bias is not None and self.bias.requires_grad else self.kept(place, build)

    def kept(self, place: Hashable, build: Callable[[], Kept]) -> Kept:
        """Return `build()`, which must not depend on the bias, cached under `place` for the next layer.

        Not cached in compiled code: the lengths in the key would become constants of it.
        """
        if torch.compiler.is_compiling():
            return build()
        if place not in self._lowered:
            self._lowered[place] = build()
        return self._lowered[place]

    def of_queries(self, first: int, end: int, T: int, S: int, device: torch.device) -> Mask:
        """The mask of queries `first` to `end` (exclusive) out of T, over the same S keys."""
        positions, _ = self.places(T, S, device)
        return replace(
            self,
            bias=None if self.bias is None else self.bias[..., first:end, :],
            table=None if self.table is None else self.table[..., first:end, :],
            query_positions=positions[..., first:end],
            query_documents=None if self.documents is None else self.documents_of_queries(T, S)[:, first:end],
        )
