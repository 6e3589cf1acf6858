"""Attention by torch's FlexAttention, whose kernel skips every block of scores in which no key may be read."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from glassformer.base.errors import ConfigError
from glassformer.base.part import explained
from glassformer.base.shapes import Float, Keys, Queries, Tensor, Values
from glassformer.nn.backends import refuse
from glassformer.nn.mask import Mask, readable

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

BLOCK, ROWS = 128, 1024
"""Queries, and keys, per block, as the kernels require; queries counted at a time, so that no T x S table is made."""
LEAST, SHARE = 1024, 0.5
"""The least number of keys, and the largest share of blocks read, for which packed documents use a compiled kernel.

Not measured. A causal mask over one long document reads more than half of the blocks, so a row must hold several.
"""
KINDS = 64
"""Kernels that a process may compile, one for each kind of mask and dtype; torch's own limit is 8."""
FORWARD_ONLY = ("cpu", "mps")
"""Devices on which torch 2.13 has no backward pass of FlexAttention."""
NARROWEST, DTYPES = 16, (torch.float32, torch.bfloat16, torch.float16)
"""The smallest head width, and the dtypes, with which it is used on an accelerator."""
CHOICE = "attention_rule='softmax' with attention='flex'"


@explained
def flex(q: Queries, k: Keys, v: Values, mask: Mask, *, scale: float, dropout: float = 0.0) -> Queries:
    """`torch.nn.attention.flex_attention` under our mask (Dong et al. 2024, "Flex Attention").

    On an accelerator it is compiled at the first call, for any lengths. On a CPU it runs torch's uncompiled equation,
    which holds all scores and has no gradient. Errors: `ConfigError` for a value bias, and for what `obstacle` names.
    """
    refuse(mask.value_bias, "flex")
    if mask.table is not None:
        raise ConfigError(
            f"{CHOICE} needs a Mask made of rules; got a table of keys. Give rules, or try attention='auto'."
        )
    learns = any(each is not None and each.requires_grad for each in (q, k, v, mask.bias)) and torch.is_grad_enabled()
    if reason := obstacle(q.device.type, q.shape[-1], q.dtype, learns=learns, dropout=dropout):
        raise ConfigError(reason)
    (blocks, _), add = blocks_of(mask, q.shape[2], k.shape[2], q.device), _adding(mask.bias, q.dtype)
    if q.device.type == "cpu":  # call the operator itself: the public function would compile it
        return torch.ops.higher_order.flex_attention(q * scale, k, v, add, blocks.as_tuple(), 1.0, {})[0]
    with torch.compiler.config.patch(recompile_limit=KINDS):  # pyright: ignore[reportAttributeAccessIssue]
        return compiled()(q * scale, k, v, add, blocks)


@cache
def compiled() -> Callable[..., Tensor]:
    """Return the compiled kernel. Callers scale q: a scale that may vary could not be a constant of the kernel."""
    from torch.nn.attention.flex_attention import flex_attention  # here: its import adds a filter of warnings

    def attend(q: Tensor, k: Tensor, v: Tensor, add: Callable[..., Tensor], blocks: BlockMask) -> Tensor:
        return flex_attention(q, k, v, add, blocks, scale=1.0, enable_gqa=q.shape[1] != k.shape[1])

    return torch.compile(attend, dynamic=True, fullgraph=True)


def obstacle(device: str, width: int, dtype: torch.dtype, *, learns: bool, dropout: float = 0.0) -> str | None:
    """Say why FlexAttention cannot compute this and what to do instead; None if it can."""
    if dropout:
        return (
            f"FlexAttention does not store attention weights, so {CHOICE} cannot drop any; got dropout={dropout}. "
            "Set attention_dropout=0.0, or try attention='auto'."
        )
    if learns and device in FORWARD_ONLY:
        return (
            f"FlexAttention has no backward pass on {device}, so {CHOICE} cannot be trained there; got tensors that "
            "require gradients. Try attention='auto', a cuda device, or torch.no_grad()."
        )
    if device not in FORWARD_ONLY and (width < NARROWEST or dtype not in DTYPES):
        return (
            f"On {device}, {CHOICE} needs d_head of at least {NARROWEST}, in float32, bfloat16 or float16; got "
            f"d_head={width} in {str(dtype).removeprefix('torch.')}. Try attention='auto'."
        )
    return None


def pays(mask: Mask, T: int, S: int) -> bool:
    """Whether packed documents leave enough blocks unread for skipping them to be worth a compiled kernel."""
    fits = mask.bias is None and mask.table is None and T == S >= LEAST
    if mask.documents is None or not fits or torch.compiler.is_compiling():
        return False
    _, share = blocks_of(mask, T, S, mask.documents.device)
    return mask.kept(("flex share", T, S), share.item) <= SHARE


def blocks_of(mask: Mask, T: int, S: int, device: torch.device) -> tuple[BlockMask, Float[Tensor, ""]]:
    """Return the mask in the kernel's form and the share of blocks that are not skipped; built once for all layers."""
    from torch.nn.attention.flex_attention import BlockMask  # here, as in `compiled`

    def build() -> tuple[BlockMask, Tensor]:
        reads, rows = _reads(mask, T, S, device)
        b, s = torch.arange(rows, device=device)[:, None, None], torch.arange(S, device=device)
        counted: list[Tensor] = []
        for t in torch.arange(T, device=device).split(ROWS):
            table = F.pad(reads(b, b, t[:, None], s).expand(rows, len(t), S), (0, -S % BLOCK, 0, -len(t) % BLOCK))
            counted.append(table.unflatten(2, (-1, BLOCK)).unflatten(1, (-1, BLOCK)).sum((2, 4)))
        pairs = torch.cat(counted, dim=1)[:, None]  # [rows, 1, blocks of queries, blocks of keys]
        some, full = pairs > 0, pairs == BLOCK * BLOCK
        lists = (*_listed(some & ~full), *_listed(full))
        return BlockMask.from_kv_blocks(*lists, BLOCK, reads, (T, S)), some.double().mean()

    return mask.kept(("flex", T, S, device), build)


def _listed(table: Tensor) -> tuple[Tensor, Tensor]:
    """For each block of queries: how many blocks of keys it reads, and all block numbers, with the read ones first."""
    return table.sum(-1, dtype=torch.int32), table.int().argsort(dim=-1, descending=True, stable=True).int()


def _reads(mask: Mask, T: int, S: int, device: torch.device) -> tuple[Callable[..., Tensor], int]:
    """Return `Mask.allowed` as a function of indices that broadcast, and the number of rows for which it differs."""
    places, keys = mask.places(T, S, device)
    keys = keys if mask.keep is None else torch.where(mask.keep, keys, -1)
    documents = [] if mask.documents is None else [mask.documents_of_queries(T, S), mask.documents]
    tables = [torch.atleast_2d(each).squeeze(0) for each in (places, keys, *documents)]
    causal, pattern, prefix = mask.causal, mask.sparse, mask.prefix

    def reads(b: Tensor, h: Tensor, t: Tensor, s: Tensor) -> Tensor:
        query, key = _at(tables[0], b, t), _at(tables[1], b, s)
        may = (key >= 0) & _before(query, key, prefix, b) if causal else key >= 0
        may = may if pattern is None else may & readable(pattern, query, key)
        return may & (_at(tables[2], b, t) == _at(tables[3], b, s)) if len(tables) == 4 else may

    sizes = [1 if each.ndim == 1 else len(each) for each in tables]
    return reads, max(*sizes, 1 if prefix is None else len(prefix))


def _before(query: Tensor, key: Tensor, prefix: Tensor | None, b: Tensor) -> Tensor:
    if prefix is None:
        return key <= query
    return (key <= query) | (key < (prefix[0] if len(prefix) == 1 else prefix[b]))


def _at(table: Tensor, b: Tensor, place: Tensor) -> Tensor:
    return table[place] if table.ndim == 1 else table[b, place]


def _adding(bias: Tensor | None, dtype: torch.dtype) -> Callable[..., Tensor]:
    """Return a function that adds the bias to a score; it indexes the bias in place, so no row gets a copy."""
    table = bias if bias is None else bias.to(dtype) if bias.ndim == 3 else bias.to(dtype).squeeze(0)

    def add(score: Tensor, b: Tensor, h: Tensor, t: Tensor, s: Tensor) -> Tensor:
        return score if table is None else score + (table[h, t, s] if table.ndim == 3 else table[b, h, t, s])

    return add
