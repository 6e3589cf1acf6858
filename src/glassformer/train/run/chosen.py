"""Tell the user what was chosen for a run: the attention backend, the size of the model, the data."""

from __future__ import annotations

from glassformer.data.config import TokenizerConfig, names_file
from glassformer.data.tokenizer import TOKENIZERS
from glassformer.nn.count import count_parameters
from glassformer.nn.flex import obstacle
from glassformer.nn.observe import Attended, watch_attention
from glassformer.nn.rules import RULES
from glassformer.nn.transformer import Transformer
from glassformer.train.loss import loss_of
from glassformer.train.objective import objective_for
from glassformer.train.run.build import broken_notes
from glassformer.train.settings import TrainingConfig
from glassformer.train.sources.run_data import RunData


def chosen(model: Transformer, prepared: RunData) -> list[str]:
    """The lines that every start of a run shows."""
    _, total = count_parameters(model)
    lines = [f"attention: {attention(model, prepared)}", f"model: {total:,} parameters", *prepared.notes()]
    recipe = prepared.recipe
    return [*lines, *other_size(recipe.tokenizer, prepared), *rising(recipe.training), *broken_notes(recipe)]


def other_size(asked: TokenizerConfig, prepared: RunData) -> list[str]:
    """A line for each vocabulary that comes from a file, or has another size than was asked for."""
    if prepared.recipe.training.start_from is not None:  # a vocabulary that was there before
        return []
    kinds, usual = {"source": asked.source_kind or asked.kind, "target": asked.kind}, TokenizerConfig.vocab_size
    sizes = {side: getattr(prepared.tokenizers, side).vocab_size for side in kinds}
    learning = [name for name, made in TOKENIZERS.items() if made.least_vocab_size]
    said: list[str] = []
    for side, file in kinds.items():
        if names_file(file):
            lacking = len(getattr(getattr(prepared.tokenizers, side), "lacking", ()))
            lacks = f"; it lacks {lacking} bytes of UTF-8, which become <unk>" if lacking else ""
            said.append(f"{sizes[side]:,} tokens, of {file}{lacks}")
    for side, kind in kinds.items():
        if kind in learning and sizes[side] < asked.vocab_size:
            said.append(f"{sizes[side]:,} of the {asked.vocab_size:,} tokens asked for: the text gives no more")
    if asked.vocab_size != usual and not {*learning} & {*kinds.values()}:
        of = "the file's" if any(map(names_file, kinds.values())) else "the text's"
        learned = ", ".join(learning)
        said.append(f"all of {of}, as tokenizer.vocab_size ({asked.vocab_size:,}) is for kinds that learn: {learned}")
    return [f"vocabulary: {each}" for each in dict.fromkeys(said)]


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
    rule, known = model.config.stack.attention_rule, prepared.recipe.training.precision != "float16"
    pick = RULES[rule].pick

    def note(call: Attended) -> None:
        q, chance = call.q, call.attention.dropout  # the dropout of training, because that is what is examined
        fast = getattr(call.attention, "backend", None)  # of a faster equal, which trains otherwise
        if known and fast is not None and (found := fast(q, call.k, call.v, call.mask)):
            picked.setdefault(*found)
            return
        flexible = obstacle(q.device.type, q.shape[-1], q.dtype, learns=False, dropout=chance) is None
        name, why = pick(q.device.type, q.shape[-2], call.k.shape[-2], call.mask, flexible=flexible, dropout=chance)
        picked.setdefault(name, why)

    device, training = next(model.parameters()).device, model.training
    with watch_attention(model, note):
        for batch in prepared.extremes():
            loss_of(model.eval(), batch.to(device), objective_for(model))
    model.train(training)
    return "; ".join(f"{name} ({why})" for name, why in picked.items())
