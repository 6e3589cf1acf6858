"""What was chosen for a run, as lines for the user: which backend of attention, how large the model, which data."""

from __future__ import annotations

import torch

from glassformer.attend import RULES
from glassformer.attend.flex import obstacle
from glassformer.model.count import count_parameters
from glassformer.model.transformer import Transformer
from glassformer.parts import Attended, watch_attention
from glassformer.train.objective import loss_of, objective_for
from glassformer.train.run.build import broken_notes
from glassformer.train.settings import TrainingConfig
from glassformer.train.sources.run_data import RunData


def chosen(model: Transformer, prepared: RunData) -> list[str]:
    """The lines that every start of a run has."""
    _, total = count_parameters(model)
    lines = [f"attention: {attention(model, prepared)}", f"model: {total:,} parameters", *prepared.notes()]
    return [*lines, *rising(prepared.recipe.training), *broken_notes(prepared.recipe)]


def rising(training: TrainingConfig) -> list[str]:
    """A line where the warm-up leaves the schedule no step: a trial of a few steps, or a mistake."""
    if training.warmup < training.steps:
        return []
    last = training.rates(training.steps)
    return [
        f"warm-up: {training.warmup:,} steps, of a run of {training.steps:,}: the learning rate never decays, and "
        f"reaches {last:.2g} of {training.learning_rate:.2g}"
    ]


def attention(model: Transformer, prepared: RunData) -> str:
    """The backend of attention: as asked, or what `auto` picks for the longest and for the shortest training sample.

    Seen in one forward of each alone, so it costs less than a step. Weights, mode and random numbers stay as they are.
    """
    asked = model.config.stack.attention
    if asked != "auto":
        return f"{asked}, as asked"
    picked: dict[str, str] = {}
    """By name the first reason for it."""
    pick = RULES[model.config.stack.attention_rule].pick

    def note(call: Attended) -> None:
        q, chance = call.q, call.attention.dropout  # of training, which the look is for
        flexible = obstacle(q.device.type, q.shape[-1], q.dtype, learns=False, dropout=chance) is None
        name, why = pick(q.device.type, q.shape[-2], call.k.shape[-2], call.mask, flexible=flexible)
        picked.setdefault(name, why)

    device, training = next(model.parameters()).device, model.training
    with torch.no_grad(), watch_attention(model, note):
        for batch in prepared.extremes():
            loss_of(model.eval(), batch.to(device), objective_for(model))
    model.train(training)
    return "; ".join(f"{name} ({why})" for name, why in picked.items())
