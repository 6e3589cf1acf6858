"""Pruning heads: setting their weights to zero, so that the model computes what it does while they are silenced."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from glassformer.lens.ablate import Effect, Head, Scored, by_attention, resampled
from glassformer.lens.roles.diagnosis import Diagnosis
from glassformer.nn.transformer import Transformer
from glassformer.store.checkpoint import Loaded, save
from glassformer.store.files import write_text_atomically
from glassformer.store.folders import LOCK, step_folder


def pruned(model: Transformer, heads: Iterable[Head]) -> Transformer:
    """Return a copy of the model without these heads: the projections into and out of each are zero.

    A stack has one `n_heads` for all its layers, so config and file size stay the same; but the heads output exactly
    nothing. In a product of two zero factors neither gets a gradient, so training does not bring a head back, unless
    its key/value head is kept because others share it. Errors: `ConfigError` for a head that the model does not have.
    """
    smaller = copy.deepcopy(model)
    with torch.no_grad():
        for attention, (_, numbers) in by_attention(smaller, heads).items():
            K, shared = attention.d_head, attention.query.out_features // attention.key.out_features
            for number in numbers:
                own = slice(number * K, (number + 1) * K)
                attention.output.weight[:, own] = 0.0
                _silence_rows(attention.query, own)
            for group in {number // shared for number in numbers}:
                if {group * shared + each for each in range(shared)} <= {*numbers}:
                    _silence_rows(attention.key, slice(group * K, (group + 1) * K))
                    _silence_rows(attention.value, slice(group * K, (group + 1) * K))
    return smaller


def _silence_rows(linear: torch.nn.Linear, rows: slice) -> None:
    linear.weight[rows] = 0.0
    if linear.bias is not None:  # pyright: ignore[reportUnnecessaryComparison]  (built with bias=False it is None)
        linear.bias[rows] = 0.0


def spare(model: Transformer, diagnosis: Diagnosis) -> tuple[list[Head], Effect | None]:
    """Find heads that can be removed together without a measurable loss: greedily, the least important first.

    Returns them, and the loss without all of them; None if there are none.

    Importance is `gradient_importance`. A head is removed if, without it and all heads removed so far, the whole
    interval of the drop is below `Thresholds.needed`. So heads that can replace each other are not all removed.
    """
    probe = diagnosis.probe
    scored = Scored(model, probe.scored, probe.objective)
    base = scored.outcomes()
    drawn = resampled(len(base.exact))
    gone, effect = list[Head](), None
    for each in sorted(diagnosis.heads, key=lambda found: found.gradient or 0.0):
        tried = [*gone, each.head]
        without = scored.effect(base, tried, probe.metric, drawn)
        if without.drop[1] < diagnosis.rules.needed:
            gone, effect = tried, without
    return gone, effect


def effect_on(model: Transformer, diagnosis: Diagnosis, heads: Sequence[Head]) -> Effect:
    """Measure what is lost without all these heads together."""
    probe = diagnosis.probe
    scored = Scored(model, probe.scored, probe.objective)
    return scored.effect(scored.outcomes(), heads, probe.metric)


def write_pruned(run: Path, loaded: Loaded, heads: Sequence[Head], out: Path) -> Path:
    """Write a run folder with the run's recipe and its model without these heads; return the checkpoint.

    It has no optimizer state: it can be scored, used and trained from, but not resumed.
    """
    step = int(loaded.state.get("step", 0))
    out.mkdir(parents=True, exist_ok=True)
    (out / LOCK).touch()
    write_text_atomically(out / "recipe.toml", (run / "recipe.toml").read_text("utf-8"))
    state = {**loaded.state, "best": step}
    return save(step_folder(out, step), pruned(loaded.model, heads), loaded.tokenizers, state=state)
