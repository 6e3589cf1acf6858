"""Tell the user what was chosen for a run: the attention backend, the size of the model, the data."""

from __future__ import annotations

import torch

from glassformer.attend import RULES
from glassformer.attend.flex import obstacle
from glassformer.model.count import count_parameters
from glassformer.model.transformer import Transformer
from glassformer.parts import Attended, native_attention, watch_attention
from glassformer.train.objective import loss_of, objective_for
from glassformer.train.run.build import broken_notes
from glassformer.train.settings import TrainingConfig
from glassformer.train.sources.run_data import RunData

NARROW = ("bfloat16", "float16")


def chosen(model: Transformer, prepared: RunData) -> list[str]:
    """The lines that every start of a run shows."""
    _, total = count_parameters(model)
    lines = [f"attention: {attention(model, prepared)}", f"model: {total:,} parameters", *prepared.notes()]
    return [*lines, *rising(prepared.recipe.training), *broken_notes(prepared.recipe)]


def rising(training: TrainingConfig) -> list[str]:
    """A line for a warm-up that leaves the schedule no step: a trial of a few steps, or a mistake."""
    if training.warmup < training.steps:
        return []
    last = training.rates(training.steps)
    return [
        f"warm-up: {training.warmup:,} steps, of a run of {training.steps:,}: the learning rate never decays, and "
        f"reaches {last:.2g} of {training.learning_rate:.2g}"
    ]


def attention(model: Transformer, prepared: RunData) -> str:
    """The attention backend: as asked, or what computes the longest and the shortest training sample.

    Found by one forward pass of each alone, so it costs less than a step. Weights, mode and random state do not change.
    """
    asked = model.config.stack.attention
    if asked != "auto":
        return f"{asked}, as asked"
    picked: dict[str, str] = {}
    """For each name, the first reason to pick it."""
    rule, wide = model.config.stack.attention_rule, prepared.recipe.training.precision not in NARROW
    pick = RULES[rule].pick

    def note(call: Attended) -> None:
        q, chance = call.q, call.attention.dropout  # the dropout of training, because that is what is examined
        plain = rule == "softmax" and chance == 0 and call.attention.relation is None
        if plain and wide and native_attention.knows(q, call.k, call.v, call.mask):
            needed = -(-torch.get_num_threads() // call.k.shape[1])
            few = f"; a batch of fewer than {needed} texts is left to torch" if needed > 1 else ""
            picked.setdefault("our C++", f"in float32 on a CPU: it keeps no scores{few}")
            return
        flexible = obstacle(q.device.type, q.shape[-1], q.dtype, learns=False, dropout=chance) is None
        name, why = pick(q.device.type, q.shape[-2], call.k.shape[-2], call.mask, flexible=flexible)
        picked.setdefault(name, why)

    device, training = next(model.parameters()).device, model.training
    with watch_attention(model, note):
        for batch in prepared.extremes():
            loss_of(model.eval(), batch.to(device), objective_for(model))
    model.train(training)
    return "; ".join(f"{name} ({why})" for name, why in picked.items())
