"""What was chosen for a run, as lines for the user: which backend of attention, how large the model, which data."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial

import torch

from glassformer.attend import RULES, Attend, Mask, Pick
from glassformer.data.batch import collate
from glassformer.foundation.shapes import Tensor
from glassformer.model.count import count_parameters
from glassformer.model.transformer import Transformer
from glassformer.parts import Attention
from glassformer.train.build import broken_notes
from glassformer.train.objective import loss_of, objective_for
from glassformer.train.prepare import Prepared


def chosen(model: Transformer, prepared: Prepared) -> list[str]:
    """The lines that every start of a run has."""
    _, total = count_parameters(model)
    lines = [f"attention: {attention(model, prepared)}", f"model: {total:,} parameters", *prepared.notes()]
    return [*lines, *broken_notes(prepared.recipe)]


def attention(model: Transformer, prepared: Prepared) -> str:
    """The backend of attention: as asked, or what `auto` picks for the longest and for the shortest training sample.

    Seen in one forward of each alone, so it costs less than a step. Weights, mode and random numbers stay as they are.
    """
    asked = model.config.stack.attention
    if asked != "auto":
        return f"{asked}, as asked"
    picked: dict[str, str] = {}
    layout = prepared.recipe.data.layout
    source, target = prepared.train.encoded.lengths(layout)
    device, training = next(model.parameters()).device, model.training
    with torch.no_grad(), watched(model, RULES[model.config.stack.attention_rule].pick, picked):
        for row in (int((source + target).argmax()), int((source + target).argmin())):
            batch = collate(prepared.train.encoded, [row], layout).to(device)
            loss_of(model.eval(), batch, objective_for(model))
    model.train(training)
    return "; ".join(f"{name} ({why})" for name, why in picked.items())


@contextmanager
def watched(model: Transformer, pick: Pick, picked: dict[str, str]) -> Generator[None]:
    """While it lasts, each attention first notes what `auto` picks for it: the first reason for each name."""

    def noting(
        q: Tensor, k: Tensor, v: Tensor, mask: Mask, *, own: Attend, scale: float, dropout: float = 0.0
    ) -> Tensor:
        name, why = pick(q.device.type, q.shape[-2], k.shape[-2], mask)
        picked.setdefault(name, why)
        return own(q, k, v, mask, scale=scale, dropout=dropout)

    layers = {each: each.attend for each in model.modules() if isinstance(each, Attention)}
    try:
        for layer, own in layers.items():
            layer.attend = partial(noting, own=own)
        yield
    finally:
        for layer, own in layers.items():
            layer.attend = own
