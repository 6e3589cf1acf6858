"""Short convolutions: a branch reads the tokens just before each, too."""

from __future__ import annotations

import torch
from torch import nn

from glassformer.base.part import Part
from glassformer.base.shapes import Bool, Float, Int, Tensor
from glassformer.nn.attention import LayerCache
from glassformer.nn.block import Nearby
from glassformer.nn.step import Step, columns_before, steps_back


class ShortConvolution(Part):
    """y_t = x_t + sum over i of w_i * x_(t-i), number by number, for i from 1 to `taps` - 1; w begins at 0.

    A depthwise convolution whose kernel holds 1 for the token itself, over real tokens of one document: a text reads
    the same wherever it stands in a batch. Canon layers A and C (Allen-Zhu 2025, "Physics of Language Models: Part
    4.1") of four taps learn the token's own share, too; RWKV's token shift (Peng et al. 2023, section 3.1) of two gives
    it what the earlier one leaves. Primer convolves the heads of queries, keys and values instead (So et al. 2021).
    """

    def __init__(self, taps: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(taps - 1, d_model))

    def forward(
        self, x: Float[Tensor, "B T D"], nearby: Nearby | None = None, layer: LayerCache | None = None
    ) -> Float[Tensor, "B T D"]:
        """Return x with the shares of earlier vectors added; `layer` keeps x for later steps.

        Without `nearby`, all tokens of x are real, and of one text.
        """
        held = x if layer is None else kept(layer, x)
        if nearby is None or nearby.columns is None:
            return by_shifts(x, self.weight, None if nearby is None else nearby.real)
        y = x
        for weight, columns in zip(self.weight, nearby.columns, strict=True):
            y = y + weight * taken(held, columns)
        return y


def by_shifts(
    x: Float[Tensor, "B T D"], weight: Float[Tensor, "N D"], real: Bool[Tensor, "N *batch T"] | None
) -> Float[Tensor, "B T D"]:
    """The convolution of whole texts, whose earlier tokens stand as many columns before, where they are `real`.

    Under autocast it is rounded to the dtype of x at the end.
    """
    y = x
    for i, share in enumerate(weight, 1):
        added = x[:, :-i] * share
        if real is not None:
            added = added.masked_fill(~real[i - 1][..., i:, None], 0.0)
        y = torch.cat([y[:, :i], y[:, i:] + added], dim=1)
    return y.to(x.dtype)


def taken(held: Float[Tensor, "B S D"], columns: Int[Tensor, "*batch T"]) -> Float[Tensor, "B T D"]:
    """The vectors of these columns, zeros where the column is -1."""
    at = columns.clamp(min=0)
    found = held[:, at] if at.ndim == 1 else held.gather(1, at[..., None].expand(-1, -1, held.shape[-1]))
    return found.masked_fill((columns < 0)[..., None], 0.0)


def kept(layer: LayerCache, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B S D"]:
    """Put vectors into a layer of a cache, as the keys of a single head that has no values; return all held there."""
    return layer.append(x[:, None], x[:, None, :, :0])[0][:, 0]


def beside(step: Step, count: int, places: Int[Tensor, "*batch T"] | None, *, in_columns: bool) -> Nearby | None:
    """The `count` tokens before each of a whole text, without a cache.

    `places` are positions within documents, if there are any. `in_columns`: real tokens stand at their positions.
    """
    if step.in_order or in_columns:
        return None if places is None else Nearby(None, places >= steps_back(count, places))
    return Nearby(columns_before(step, count, step.positions if places is None else places), None)
