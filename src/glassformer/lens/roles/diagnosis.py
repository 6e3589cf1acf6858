"""Diagnosing what each head of a model does, and what the model loses without it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from glassformer.lens.ablate import Head, Means, all_heads, mean_outputs
from glassformer.lens.blocks import head_id
from glassformer.lens.effect import Effect, Outcomes, Scored, compare, resampled
from glassformer.lens.importance import gradient_importance
from glassformer.lens.roles.copying import circuit, written_share
from glassformer.lens.roles.label import THRESHOLDS, Label, Thresholds, label
from glassformer.lens.roles.measure import Measured, Read, group_share, measure, read
from glassformer.lens.roles.probe import Probe
from glassformer.lens.roles.similar import Pair, similar
from glassformer.nn.observe import Evaluation
from glassformer.nn.transformer import Transformer


@dataclass(frozen=True)
class Found:
    """The diagnosis of one head."""

    head: Head
    measured: Measured
    label: Label
    copying: Mapping[str, float]
    """copying_eigenvalues and copying_own_token (from weights), copying_written (from output), where they exist."""
    zero: Effect | None = None
    mean: Effect | None = None
    verdict: str = ""
    gradient: float | None = None

    @property
    def id(self) -> str:
        """The head's short name, like "x.1.3"."""
        return head_id(*self.head)


@dataclass(frozen=True)
class Group:
    """All heads of one kind of block with one role, ablated together."""

    block: str
    role: str
    """Its name in `ROLES`."""
    heads: tuple[Head, ...]
    share: float | None
    """Mean over queries of the largest weight that any of these heads puts on the role's keys."""
    zero: Effect | None
    mean: Effect | None


@dataclass(frozen=True)
class Diagnosis:
    """What every head does, the loss without it and without all heads of its role, and which heads are similar."""

    probe: Probe
    heads: list[Found]
    groups: list[Group]
    pairs: list[Pair]
    """Pairs of similar heads, up to a divergence of `Thresholds.alike`."""
    rules: Thresholds = THRESHOLDS

    def to_json(self) -> list[dict[str, Any]]:
        """Return a plain dict for each head."""
        from glassformer.lens.roles.words import head_as_json

        return [head_as_json(each, self.probe) for each in self.heads]

    @property
    def sentences(self) -> list[str]:
        """The findings in sentences."""
        from glassformer.lens.roles.words import sentences

        return sentences(self)


def diagnose(
    model: Transformer,
    probe: Probe,
    *,
    effects: bool = True,
    rules: Thresholds = THRESHOLDS,
    between: Callable[[], None] = lambda: None,
) -> Diagnosis:
    """Score every role for every head, label the heads, and measure the loss without each head and each role.

    `effects=False` skips everything that silences heads. `between` is called between parts of the work, which ends if
    it raises. The model is read in evaluation mode and left as it was.
    """
    with Evaluation(model):
        own = read(model, probe.own, probe.objective)
        control = None if probe.control is None else read(model, probe.control, probe.objective)
        measured = measure(own, control, between)
        between()
        copied = copying(model, own, probe.ids)
        found = [
            Found(head, each, label(each.scores, each.more["sink"], each.more["entropy_norm"], rules), copied[head])
            for head, each in ((head, measured[head]) for head in all_heads(model) if head in measured)
        ]
        groups = grouped(own, found)
        between()
        pairs = [pair for pair in similar(own.maps, own.views) if pair.divergence <= rules.alike]
        if effects:
            found, groups = with_effects(model, probe, own, found, groups, rules)
    return Diagnosis(probe, found, groups, pairs, rules)


def copying(model: Transformer, own: Read, ids: range) -> dict[Head, dict[str, float]]:
    """Measure whether each head copies, by the figures that exist for it; see `Found.copying`."""
    told: dict[Head, dict[str, float]] = {}
    for each in own.maps:
        did = written_share(model, each, own.views[each.block])
        for head in range(each.weights.shape[1]):
            figures: dict[str, float] = {}
            if did is not None and not math.isnan(float(did[head])):
                figures["copying_written"] = float(did[head])
            if ids and (made := circuit(model, each, head, ids)) is not None:
                figures["copying_eigenvalues"] = made.eigenvalue_score()
                figures["copying_own_token"] = made.diagonal_share()
            told[each.block, each.layer, head] = figures
    return told


def grouped(own: Read, found: Sequence[Found]) -> list[Group]:
    """Group the heads that have a role by kind of block and role."""
    by_role: dict[tuple[str, str], list[Head]] = {}
    for each in found:
        if each.label.has_role:
            by_role.setdefault((each.head[0], each.label.role), []).append(each.head)
    return [
        Group(block, role, tuple(heads), group_share(own.maps, own.views[block], role, heads), None, None)
        for (block, role), heads in by_role.items()
    ]


def means_of(own: Read) -> Means:
    """Return the mean output of each head."""
    return mean_outputs(((each.block, each.layer), each.output, own.views[each.block].counted) for each in own.maps)


def usual_outputs(model: Transformer, probe: Probe) -> Means:
    """Return the mean output of each head on the sequences of a probe."""
    with Evaluation(model):
        return means_of(read(model, probe.own, probe.objective))


def with_effects(
    model: Transformer, probe: Probe, own: Read, found: Sequence[Found], groups: Sequence[Group], rules: Thresholds
) -> tuple[list[Found], list[Group]]:
    """Return the same heads and groups with the measured loss without them."""
    scored = Scored(model, probe.scored, probe.objective)
    means = means_of(own)
    base = scored.outcomes()
    drawn = resampled(len(base.exact))
    importance = gradient_importance(model, probe.scored, probe.objective)

    def effects(heads: Sequence[Head]) -> tuple[Effect, Effect]:
        zero, mean = (effect_of(scored, base, heads, kind, probe.metric, means, drawn) for kind in ("zero", "mean"))
        return zero, mean

    told: list[Found] = []
    for each in found:
        zero, mean = effects([each.head])
        words = verdict(each.label.has_role, zero, rules)
        told.append(
            Found(each.head, each.measured, each.label, each.copying, zero, mean, words, importance.get(each.head))
        )
    of = {each.head: each for each in told}
    together = [
        Group(
            each.block, each.role, each.heads, each.share,
            *((of[each.heads[0]].zero, of[each.heads[0]].mean) if len(each.heads) == 1 else effects(each.heads)),
        )
        for each in groups
    ]  # fmt: skip
    return told, together


def effect_of(
    scored: Scored,
    base: Outcomes,
    heads: Sequence[Head],
    kind: str,
    metric: str,
    means: Means,
    drawn: torch.Tensor,
) -> Effect:
    """Measure the loss without these heads."""
    without = scored.outcomes(heads, kind, means)
    return compare(base.of(metric), without.of(metric), kind, metric, drawn)


def verdict(has_role: bool, effect: Effect, rules: Thresholds) -> str:
    """Say in words whether a head is needed and whether its role is known."""
    if effect.base < rules.solved:
        return "nothing to lose"
    needed = effect.drop[0] >= rules.needed
    if has_role:
        return "does it and the task needs it" if needed else "does it, not needed alone"
    return "needed, pattern not recognised" if needed else "no pattern, not needed alone"
