"""Diagnosing what each head of a model does, and what the model loses without it: on a probe, or over a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

from glassformer.base.errors import CheckpointError, ConfigError, some
from glassformer.base.runtime import choose_threads, threads_kept
from glassformer.base.typed import expect
from glassformer.data.dataset import Tokenizers
from glassformer.data.tokens.vocabulary import BOS, SPECIALS
from glassformer.lens.ablate import (
    Effect,
    Head,
    Means,
    Scored,
    all_heads,
    gradient_importance,
    head_id,
    mean_outputs,
    resampled,
)
from glassformer.lens.roles.probe import (
    Measured,
    Probe,
    Read,
    circuit,
    group_share,
    held_out,
    induction_probe,
    measure,
    pairs_probe,
    read,
    real_pairs,
    windows,
    written_share,
)
from glassformer.lens.roles.roles import ROLES, THRESHOLDS, Label, Pair, Role, Thresholds, label, similar
from glassformer.nn.observe import Evaluation
from glassformer.nn.outputs import Classify, Lm, Tag
from glassformer.nn.transformer import Transformer
from glassformer.store.checkpoint import Loaded, load
from glassformer.store.folders import checkpoints
from glassformer.train.finished.loading import dev_split, load_run
from glassformer.train.objective import objective_for
from glassformer.train.recipe import Recipe, load_recipe
from glassformer.train.run.beginning import as_recipe, objective_of, prepare_split
from glassformer.train.tasks import task_of
from glassformer.train.tasks.pairs import Pairs, PairsSplit
from glassformer.train.tasks.task import EXPLORE
from glassformer.train.tasks.text import TextSplit


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
        return [head_as_json(each, self.probe) for each in self.heads]

    @property
    def sentences(self) -> list[str]:
        """The findings in sentences."""
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

    >>> from glassformer import ModelConfig, StackConfig, Transformer
    >>> from glassformer.lens.roles import diagnose, induction_probe
    >>> model = Transformer(ModelConfig(vocab_size=30, decoder=StackConfig(d_model=8, n_heads=2, n_layers=1, d_ff=8)))
    >>> found = diagnose(model, induction_probe(range(6, 30), lengths=(3, 4), n=4), effects=False)
    >>> len(found.heads)
    2
    """
    expect(probe, Probe, "probe of diagnose", "Make one with induction_probe, or use diagnose_run for a run.")
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
    measured: dict[Head, dict[str, float]] = {}
    for each in own.maps:
        did = written_share(model, each, own.views[each.block])
        for head in range(each.weights.shape[1]):
            figures: dict[str, float] = {}
            if did is not None and not math.isnan(float(did[head])):
                figures["copying_written"] = float(did[head])
            if ids and (made := circuit(model, each, head, ids)) is not None:
                figures["copying_eigenvalues"] = made.eigenvalue_score()
                figures["copying_own_token"] = made.diagonal_share()
            measured[each.block, each.layer, head] = figures
    return measured


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
        zero, mean = (scored.effect(base, heads, probe.metric, drawn, kind, means) for kind in ("zero", "mean"))
        return zero, mean

    heads: list[Found] = []
    for each in found:
        zero, mean = effects([each.head])
        words = verdict(each.label.has_role, zero, rules)
        heads.append(replace(each, zero=zero, mean=mean, verdict=words, gradient=importance.get(each.head)))
    of = {each.head: each for each in heads}
    together: list[Group] = []
    for each in groups:
        alone = of[each.heads[0]]
        zero, mean = (alone.zero, alone.mean) if len(each.heads) == 1 else effects(each.heads)
        together.append(replace(each, zero=zero, mean=mean))
    return heads, together


def verdict(has_role: bool, effect: Effect, rules: Thresholds) -> str:
    """Say in words whether a head is needed and whether its role is known."""
    if effect.base < rules.solved:
        return "nothing to lose"
    needed = effect.drop[0] >= rules.needed
    if has_role:
        return "does it and the task needs it" if needed else "does it, not needed alone"
    return "needed, pattern not recognised" if needed else "no pattern, not needed alone"


# Reporting a diagnosis: as sentences and as plain data.


def head_as_json(found: Found, probe: Probe) -> dict[str, Any]:
    """Return one head as a plain dict; numbers that are not finite become None."""
    block, layer, head = found.head
    scores, role = found.measured.scores, found.label
    return {
        "id": found.id,
        "block": block,
        "layer": layer,
        "head": head,
        "scores": {name: finite(each.corrected) for name, each in scores.items()},
        "raw": {
            **{name: finite(each.mass) for name, each in scores.items()},
            **{name: finite(each) for name, each in {**found.measured.more, **found.copying}.items()},
        },
        "argmax": {name: finite(each.argmax) for name, each in scores.items()},
        "control": {name: finite(each.control) for name, each in scores.items() if each.control is not None},
        "by_value": {name: finite(each) for name, each in found.measured.by_value.items()},
        "chance": {name: finite(each.chance) for name, each in scores.items()},
        "role": {
            "label": role.label,
            "strength": role.strength,
            "score": finite(role.score),
            "runner_up": None if role.runner_up is None else [role.runner_up[0], finite(role.runner_up[1])],
            "shift": role.shift,
            "n_queries": role.n_queries,
            "n_sequences": probe.n_sequences,
            "probe": probe.name,
        },
        "ablation": None if found.zero is None else effect_as_json(found.zero, found.verdict),
        "ablation_mean": None if found.mean is None else effect_as_json(found.mean, None),
        "grad_importance": None if found.gradient is None else finite(found.gradient),
    }


def effect_as_json(effect: Effect, verdict: str | None) -> dict[str, Any]:
    """Return an effect as a plain dict; `ci95` is the interval of the value, `drop95` that of base - value."""
    record: dict[str, Any] = {
        "kind": effect.kind,
        "metric": effect.metric,
        "base": finite(effect.base),
        "value": finite(effect.value),
        "ci95": [finite(each) for each in effect.interval],
        "drop95": [finite(each) for each in effect.drop],
        "n": effect.n,
    }
    return record if verdict is None else {**record, "verdict": verdict}


def finite(value: float) -> float | None:
    """Round to six decimals; None for a number that is not finite, as JSON has none."""
    return round(value, 6) if math.isfinite(value) else None


def sentences(diagnosis: Diagnosis) -> list[str]:
    """Return sentences, most important first: roles by the loss without all their heads, then unknown needed heads."""
    lines: list[str] = []
    of = {each.head: each for each in diagnosis.heads}
    for group in sorted(diagnosis.groups, key=lambda each: each.zero.value if each.zero else 0.0):
        members = sorted((of[head] for head in group.heads), key=loss_of)
        if len(members) > 1:
            lines.append(together(group, members))
        needed = [each for each in members if each.verdict.endswith("needs it")]
        lines += [sentence(each) for each in (needed or members[:1])]
    if not lines:
        lines.append("No head has a known role.")
    lines += unrecognised(diagnosis.heads)
    first = diagnosis.heads[0].zero if diagnosis.heads else None
    if first is not None and first.base < diagnosis.rules.solved:
        lines.append(
            f"The model is right too rarely for removing heads to show anything: {metric(first)} is "
            f"{percent(first.base)} %."
        )
    ends = [named(each) for each in diagnosis.heads if each.head[0] == "encoder" and each.label.label == "eos"]
    if ends:
        verb = "read" if len(ends) > 1 else "reads"
        lines.append(f"The encoder knows how long the source is: {some(ends)} {verb} its end.")
    return lines


def loss_of(found: Found) -> tuple[float, float]:
    """Return a head's sort key: the metric without it, then its score, highest first."""
    return (found.zero.value if found.zero else 0.0), -found.label.score


def named(found: Found) -> str:
    """Return a head's name in a sentence: "cross 1.3"."""
    block, layer, head = found.head
    return f"{block} {layer}.{head}"


def sentence(found: Found) -> str:
    """Describe a head: "cross 1.3 is a reversal head: 0.97, chance 0.09; without it exact match falls from ..."."""
    role, score = ROLES[found.label.role], found.measured.scores[found.label.role]
    some = "is in part" if found.label.strength == "partial" else "is"
    line = f"{named(found)} {some} {article(role.title)} {role.title} head{shifted(role)}: "
    line += f"{score.mass:.2f}, chance {score.chance:.2f}"
    return f"{line}; {without(found.zero)}." if found.zero is not None else f"{line}."


def together(group: Group, members: Sequence[Found]) -> str:
    """Describe what is lost without all heads of a role."""
    names, role = [named(each) for each in members], ROLES[group.role]
    share = "" if group.share is None else f", together {group.share:.2f} of each query's attention"
    effect = "" if group.zero is None else f"; {without(group.zero, 'them')}"
    return f"{len(names)} {role.title} heads{shifted(role)} ({some(names)}){share}{effect}."


def shifted(role: Role) -> str:
    """Describe the shift of a role: how far to the side of its own keys it reads."""
    return f" shifted by {role.shift:+d}" if role.shift else ""


def unrecognised(heads: Sequence[Found]) -> list[str]:
    """Return a line on the heads that are needed but have no role, the most needed first; none if there are none."""
    needed = [each for each in heads if each.zero is not None and each.verdict.startswith("needed")]
    needed.sort(key=lambda each: each.zero.value if each.zero else 1.0)
    if not needed:
        return []
    effects = [f"{named(each)} ({percent(each.zero.value)} %)" for each in needed if each.zero]
    base = needed[0].zero
    assert base is not None
    return [
        f"Needed heads whose role is not recognised ({metric(base)} without each, {percent(base.base)} % with all): "
        f"{some(effects)}."
    ]


def without(effect: Effect | None, whom: str = "it") -> str:
    """Describe an effect: "without it exact match falls from 99.8 to 3.1 % [1.9, 4.9]"."""
    assert effect is not None
    if effect.value == effect.base:
        return f"without {whom} {metric(effect)} stays at {percent(effect.base)} %"
    low, high = effect.interval
    verb = "falls" if effect.drop[0] > 0 else "goes"
    values = f"from {percent(effect.base)} to {percent(effect.value)} % [{percent(low)}, {percent(high)}]"
    return f"without {whom} {metric(effect)} {verb} {values}"


def metric(effect: Effect) -> str:
    """Return the name of the metric in words."""
    return effect.metric.replace("_", " ")


def percent(share: float) -> str:
    """Return a share in percent, with one decimal."""
    return f"{100 * share:.1f}"


def article(word: str) -> str:
    """Return "a" or "an"."""
    return "an" if word[0] in "aeiou" else "a"


# Diagnosing the heads of a run with a probe from its own task: at its best checkpoint or at all of them in turn.

SEQUENCES, SCORED = 400, 1000
"""The number of sequences for scoring roles, and the number to answer with and without each head."""
LONGEST_HALF = 24
"""The most tokens that the induction probe repeats."""


class Opened(NamedTuple):
    """A run, ready to be diagnosed."""

    run: Path
    recipe: Recipe
    loaded: Loaded
    """Its best checkpoint, on the CPU, as the probes are."""

    def probe(self, sequences: int = SEQUENCES, scored: int = SCORED) -> Probe:
        """Return the probe for the run's own task."""
        return run_probe(*self, sequences, scored)


def readable(run: Path) -> Recipe:
    """Return the recipe of a run whose model reads tokens. Errors: `ConfigError` for one that does not."""
    recipe = load_recipe(run / "recipe.toml")
    task_of(recipe.data).refuse_unfit(run, EXPLORE)
    return recipe


def open_run(folder: Path | str) -> Opened:
    """Load a run and its model. Errors: those of loading a run, and of `readable`."""
    recipe = readable(Path(folder))
    loaded = load_run(Path(folder), recipe)
    loaded.model.to("cpu")
    return Opened(Path(folder), recipe, loaded)


def diagnose_run(
    folder: Path | str, *, sequences: int = SEQUENCES, scored: int = SCORED, effects: bool = True
) -> Diagnosis:
    """Diagnose the heads of a run's best checkpoint on data of its own task that it was not trained on.

    The tasks copy, reverse and sort are probed with held-out sources without repeated symbols and, as a control, with
    repeated ones; other tasks and files with their dev pairs; a decoder of running text with repeated random tokens.
    Errors: those of loading a run; `ConfigError` for a model that reads no tokens.

    >>> from tempfile import TemporaryDirectory
    >>> from glassformer import diagnose_run, save
    >>> from glassformer.store.folders import step_folder
    >>> from glassformer.train.recipe import dumps_recipe, load_recipe, override
    >>> from glassformer.train.run.beginning import begin
    >>> tiny = {"model.n_layers": 1, "model.d_model": 8, "model.d_ff": 8, "data.dev_size": 9, "data.test_size": 9}
    >>> recipe = override(load_recipe("copy"), {**tiny, "data.train_size": 99})
    >>> begun = begin(recipe)  # `glassformer train copy` writes such a folder, with a trained model
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "recipe.toml").write_text(dumps_recipe(recipe), "utf-8")
    ...     kept = save(step_folder(Path(folder), 1), begun.model, begun.data.tokenizers, state={"step": 1, "best": 1})
    ...     len(diagnose_run(folder, sequences=9, effects=False).heads)
    12
    """
    with threads_kept():
        opened = open_run(folder)
        choose_threads(opened.recipe.decode.threads)
        return diagnose(opened.loaded.model, opened.probe(sequences, scored), effects=effects)


def over_checkpoints(
    folder: Path | str,
    *,
    sequences: int = SEQUENCES,
    known: Collection[int] = (),
    probe: Probe | None = None,
    between: Callable[[], None] = lambda: None,
) -> Iterator[tuple[int, Diagnosis]]:
    """Yield the step and the diagnosis, without effects, of each checkpoint of a run, oldest first.

    It skips `known` steps, and checkpoints that a run in training deletes before they are read. `probe` is that of an
    earlier diagnosis of the same run; `between` is called between parts of the work, which ends if it raises.
    Torch has the threads of `decode.threads` meanwhile.
    Errors: `CheckpointError` if a checkpoint is damaged or there is none.
    """
    run = Path(folder)
    recipe = readable(run)
    found = checkpoints(run)
    if not found:
        raise CheckpointError(f"{run} has no checkpoint. Train first, or give another folder.")
    for step, each in found.items():
        if step in known:
            continue
        between()
        with threads_kept():
            choose_threads(recipe.decode.threads)
            try:
                loaded: Loaded = load(each)
            except CheckpointError:
                if each.exists():
                    raise
                continue
            model = as_recipe(loaded.model, recipe)
            probe = probe or run_probe(run, recipe, loaded, sequences, 1)
            between()
            diagnosis = diagnose(model, probe, effects=False, between=between)
        yield step, diagnosis


def run_probe(run: Path, recipe: Recipe, loaded: Loaded, sequences: int = SEQUENCES, scored: int = SCORED) -> Probe:
    """Return the probe for a run's task. Errors: `ConfigError` for a model that answers neither tokens nor labels."""
    task = task_of(recipe.data)
    if task.window is not None:
        return text_probe(run, recipe, loaded, sequences, scored)
    if not isinstance(loaded.model.config.head, Lm | Classify | Tag):
        raise ConfigError("Diagnosing heads needs a model that predicts tokens or labels; this one predicts neither.")
    return task_probe(recipe, loaded.model, loaded.tokenizers, sequences, scored)


def task_probe(recipe: Recipe, model: Transformer, tokenizers: Tokenizers, sequences: int, scored: int) -> Probe:
    """Return the probe for pairs (of a task or of files) or for labelled text."""
    data, task = recipe.data, cast("Pairs", task_of(recipe.data))
    seed = recipe.training.seed
    ids = range(len(SPECIALS), tokenizers.target.vocab_size)
    metric = "exact_match" if task.equal_lengths else "token_accuracy"
    if isinstance(model.config.head, Classify):
        metric = "accuracy"
    if task.equal_lengths:
        split = prepare_split(
            replace(recipe, data=replace(data, test_size=min(scored, data.test_size))), tokenizers, "test"
        )
        assert isinstance(split, PairsSplit)
        own = held_out(data, tokenizers, sequences, seed, repeats=False)
        control = held_out(data, tokenizers, sequences, seed, repeats=True)
        name = f"{data.task}/test/distinct" if own else f"{data.task}/test/repeats"
        answered = real_pairs(split.encoded, scored)
        own, control = (own, control) if own else (control, [])
    else:
        split = prepare_split(recipe, tokenizers, "dev")
        assert isinstance(split, PairsSplit)
        answered = real_pairs(split.encoded, scored)
        own, control, name = real_pairs(split.encoded, sequences, model), [], f"{data.task}/dev"
    collate = partial(task.of_ids, tokenizers=tokenizers)
    return pairs_probe(name, own, control, answered, collate, objective_of(model, recipe), ids, metric=metric)


def text_probe(run: Path, recipe: Recipe, loaded: Loaded, sequences: int, scored: int) -> Probe:
    """Return the probe for running text: repeated random tokens for a decoder, windows of the dev text for others.

    The answers that are scored are always those on windows of the dev text.
    """
    model, tokenizers = loaded.model, loaded.tokenizers
    split = dev_split(run, recipe, loaded)
    assert isinstance(split, TextSplit)
    batches = windows(recipe, split, tokenizers, scored, model)
    objective = objective_of(model, recipe)
    ids = range(len(SPECIALS), tokenizers.target.vocab_size)
    if model.encoder is not None:
        return Probe(f"{split.name}/dev", batches[0], None, batches, objective, "token_accuracy", ids)
    most = min(LONGEST_HALF, (recipe.data.window - 1) // 2, len(ids))
    lengths = sorted({max(2, most * part // 3) for part in (1, 2, 3)})
    made = induction_probe(
        ids, lengths, sequences, begin=BOS if recipe.data.documents and tokenizers.source.begins else None
    )
    return replace(
        made, scored=batches, objective=objective_for(model) if recipe.data.objective == "next_token" else objective
    )
