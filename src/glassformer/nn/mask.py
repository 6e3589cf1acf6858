"""`Mask`: the rules that say which keys each query may read, and how they become a tensor."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch

from glassformer.base.errors import ConfigError
from glassformer.base.schemes import Pattern
from glassformer.base.shapes import Bool, Float, Int, Keys, Queries, Tensor, Weights
from glassformer.base.tensors import check_keep
from glassformer.base.typed import came


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
    bias: Float[Tensor, "*#batch H T S"] | None = None
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
            if given.keep is not None or given.bias is not None:
                given.check_shapes(q.shape, k.shape[2])
            return given
        if not isinstance(given, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"A mask must be a Mask or a tensor; got {came(given)}. {WAYS}")
        table = _spread(given, q.shape, k.shape[2])
        if table.device.type == "cpu" and not torch.compiler.is_compiling():
            _check_values(table)
        if table.is_floating_point():
            readable = table > -torch.inf
            return Mask(bias=table.masked_fill(~readable, 0.0), table=readable)
        return Mask(table=table.bool())

    def check_shapes(self, of_queries: torch.Size, S: int) -> None:
        """Raise `ConfigError` unless `keep` and `bias` are for queries of this shape [B, H, T, K] and S keys."""
        (B, H, T, _), keep, bias = of_queries, self.keep, self.bias
        if keep is not None and keep.shape != (B, S):
            raise ConfigError(
                f"keep of a Mask says which keys of each row are real, so for {B} rows and {S} keys its shape is "
                f"{[B, S]}; got {list(keep.shape)}. Give one value for each key."
            )
        if bias is None:
            return
        sizes = zip(reversed(bias.shape), (S, T, H, B), strict=False)
        if not (3 <= bias.ndim <= 4 and bias.shape[-1] == S and all(size in (1, most) for size, most in sizes)):
            raise ConfigError(
                f"bias of a Mask is added to the scores of {B} rows, {H} heads, {T} queries and {S} keys, so its shape "
                f"is {[H, T, S]} or {[B, H, T, S]}, where all but the last may be 1; got {list(bias.shape)}. "
                f"{'For the same in all heads, give bias[None].' if bias.ndim == 2 else 'Give a value for each key.'}"
            )

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

    def _always_reads(self, T: int, S: int) -> bool:
        """Whether every query certainly reads at least itself; decided without looking at tensor values."""
        others = (self.keep, self.key_positions, self.query_positions, self.query_documents, self.table)
        return T <= S and all(other is None for other in others)

    def lower(self, T: int, S: int, like: Float[Tensor, "..."]) -> Lowered:
        """Turn the mask into a tensor to add to scores, in the dtype and on the device of `like`.

        The layers of a forward pass share a mask, so the result is cached; but not with a learned bias, whose graph
        must belong to one backward pass.
        """

        def build() -> Lowered:
            bias = None if self.bias is None else self.bias.to(like.dtype)
            if bias is not None and bias.ndim == 3:
                bias = bias[None]
            return lower(self.allowed(T, S, like.device), bias, like, always_reads=self._always_reads(T, S))

        return self.once((T, S, like.dtype, like.device), build)

    def once(self, place: Hashable, build: Callable[[], Lowered]) -> Lowered:
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
        positions = torch.arange(S - T, S, device=device) if self.query_positions is None else self.query_positions
        return replace(
            self,
            bias=None if self.bias is None else self.bias[..., first:end, :],
            table=None if self.table is None else self.table[..., first:end, :],
            query_positions=positions[..., first:end],
            query_documents=None if self.documents is None else self.documents_of_queries(T, S)[:, first:end],
        )


def lower(
    allowed: Bool[Tensor, "*#allowed S"] | None,
    bias: Float[Tensor, "*#bias S"] | None,
    like: Float[Tensor, "..."],
    *,
    always_reads: bool = False,
) -> Lowered:
    """Combine which keys may be read and the bias into one tensor to add; with `always_reads` no query is blind."""
    if allowed is None:
        return Lowered(bias, None, None)
    blind = ~allowed.any(-1, keepdim=True)  # keeps finite scores, so no NaN; its output is zeroed later
    zeros = like.new_zeros(()) if bias is None else bias
    added = torch.where(allowed | blind, zeros, float("-inf"))
    return Lowered(added, None if always_reads else blind, allowed)


@dataclass(frozen=True, eq=False)
class Lowered:
    """A mask as tensors that an attention kernel can use."""

    added: Float[Tensor, "*#rows S"] | None
    """Added to the scores: 0 (or the bias) where a key may be read, else -inf; None to add nothing."""
    blind: Bool[Tensor, "*#rows 1"] | None
    """True at queries that may read no key, whose output is zero; None if there are none."""
    allowed: Bool[Tensor, "*#rows S"] | None
    """True at keys that may be read; None if all may be."""

    def zero_blind(self, output: Float[Tensor, "*rows K"]) -> Float[Tensor, "*rows K"]:
        """Replace the output of queries that may read no key by zeros."""
        return output if self.blind is None else output.masked_fill(self.blind, 0.0)


WAYS = (
    "Give a boolean tensor [B, H, T, S], [B, T, S] or [T, S], True where a query may read a key; Mask(keep=keep) for "
    "padding (boolean [B, S], True at real keys); Mask(causal=True) for the causal rule; floats [B, H, T, S] are added "
    "to the scores."
)


def _check_values(table: Tensor) -> None:
    """Raise `ConfigError` for a mask whose values have no meaning, or two: floats 0 and 1 may be rules or a bias."""
    unlike = ((table != 0) & (table != 1)).any()
    if table.is_floating_point():
        if bool((table.isnan() | (table == torch.inf)).any()):
            raise ConfigError(f"A mask of floats holds numbers to add to the scores, or -inf; got NaN or inf. {WAYS}")
        if not bool(unlike) and bool(table.any()):
            raise ConfigError(
                f"A mask of floats that are all 0 or 1 could say which keys may be read, or be added to the scores; "
                f"got {table.dtype}. Give mask.bool() if 1 means that a key may be read, Mask(bias=mask) to add it "
                "(mask[None] if its shape is [T, S])."
            )
    elif bool(unlike):
        raise ConfigError(f"A mask of whole numbers holds 1 where a key may be read, else 0; got others. {WAYS}")


def _spread(given: Tensor, of_queries: torch.Size, S: int) -> Tensor:
    """A table as [#B, #H, T, S]. Errors: `ConfigError` for another shape, and for one that has two meanings."""
    (B, H, T, _), shape = of_queries, list(given.shape)
    if shape == [B, S] == [T, S] and B > 1:
        raise ConfigError(
            f"A mask of shape {shape} could be [B, S], for the keys of each row, or [T, S], for each query. Give "
            "mask[:, None] for the first, mask[None] for the second."
        )
    if given.ndim in (2, 3):
        given = given[:, None, None] if shape == [B, S] else given[None, None] if given.ndim == 2 else given[:, None]
    sizes = zip(given.shape, (B, H, T, S), strict=False)
    if given.ndim != 4 or given.shape[3] != S or any(has not in (1, whole) for has, whole in sizes):
        raise ConfigError(f"A mask for {B} rows, {H} heads, {T} queries and {S} keys cannot have shape {shape}. {WAYS}")
    return given.expand(-1, -1, T, -1)
