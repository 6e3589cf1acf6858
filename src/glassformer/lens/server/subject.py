"""What the explorer shows: a model with its tokenizers, and facts of its run. No file path is sent to the page."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.base.errors import CheckpointError, GlassformerError
from glassformer.data.dataset import Tokenizers
from glassformer.data.tokens.vocabulary import BOS, SPECIALS
from glassformer.decode.answer import answer
from glassformer.decode.filters import unwritten
from glassformer.lens.ablate import Head, Means, silence
from glassformer.lens.roles.diagnosis import diagnose_run, over_checkpoints, readable, run_probe, usual_outputs
from glassformer.lens.roles.probe import Probe
from glassformer.lens.trace.make import Trace, trace, weights_sha256
from glassformer.lens.trace.reading import USUAL, USUAL_MANNER, Layout, Manner, Text, as_ids
from glassformer.nn.transformer import Transformer
from glassformer.store.checkpoint import Loaded
from glassformer.store.files import read_json, write_text_atomically
from glassformer.store.folders import checkpoints, refuse_in_training
from glassformer.train.finished.loading import dev_split, load_run
from glassformer.train.recipe import Recipe
from glassformer.train.records import whole_lines
from glassformer.train.run_data import Split
from glassformer.train.sample_lengths import Untrained, compared, untrained
from glassformer.train.tasks import task_of
from glassformer.train.tasks.pairs import PairsSplit
from glassformer.train.tasks.text import TextSplit

MOST_PAIRS = 100
"""How many pairs of similar heads the page gets, besides their total number."""
Example = tuple[Text, Text | None]
"""A source and, if known, the correct answer."""


Score = Callable[[Callable[[], None]], tuple[str, float, int]]
"""Takes a function to call repeatedly during the work, which ends the work if it raises."""


Silence = Callable[[Transformer, Iterable[Head], str], AbstractContextManager[None]]
"""silence(model, heads, kind): within the `with`, these heads output nothing ("zero") or their mean ("mean")."""


@dataclass(frozen=True)
class Subject:
    """A model to inspect, and facts of its run."""

    name: str
    model: Transformer
    tokenizers: Tokenizers
    layout: Layout = USUAL
    examples: Sequence[Example] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    """For the header of traces: `name`, `task`, `step`."""
    run: Path | None = None
    """The run's folder, which has its metrics."""
    heads: Sequence[Mapping[str, Any]] = ()
    """What each head does, in the format of a trace's header."""
    sentences: Sequence[str] = ()
    history: Callable[[], dict[str, Any]] | None = None
    """Returns head roles over checkpoints; may take seconds."""
    silence: Silence | None = None
    score: Score | None = None
    """Measures the model in its current state: the metric's name, its value, and the number of samples."""
    kept: Callable[[], Sequence[int]] = tuple
    """Returns the steps of the current checkpoints."""
    similar: Sequence[Sequence[Any]] | None = None
    """Pairs of heads with similar attention, most similar first: (one, other, divergence in bits); None: unknown."""
    others: Sequence[tuple[str, Path]] = ()
    """Runs whose curves are drawn beside its own: name and folder."""
    untrained: Callable[[int], Untrained | None] = lambda _: None
    """Whether a source of so many tokens is shorter or longer than every one in training."""
    study: Mapping[str, Any] | None = None
    """The study that the run is an arm of: `name`, `metric`, `share`, `split`, `n`; for each arm `values`, `seed`,
    `figure` and `data`, a digest."""

    def trace(self, source: Text, gold: Text | None = None, manner: Manner = USUAL_MANNER) -> Trace:
        """Trace the model's answer to a source; the trace includes the heads' roles."""
        made = trace(
            self.model,
            self.tokenizers,
            source,
            gold=gold,
            layout=self.layout,
            about={"name": self.name, **self.about},
            **manner._asdict(),
        )
        made.header["heads"] = [dict(each) for each in self.heads]
        if new := self.untrained(len(as_ids(source, self.tokenizers.source))):
            made.header["run"]["note"] = compared([new])
        return made

    def facts(self) -> dict[str, Any]:
        """Return the facts of the run for the page."""
        ids = self.tokenizers.source.decode
        examples = [source if isinstance(source, str) else ids(source) for source, _ in self.examples]
        record: dict[str, Any] = {
            "name": self.name,
            "sentences": list(self.sentences),
            "examples": examples,
            "alike": len(self.similar or ()),
        }
        record["similar"] = None if self.similar is None else list(self.similar[:MOST_PAIRS])
        record["study"] = self.study
        record["others"] = [name for name, _ in self.others]
        return record | {"live": True, "checkpoints": self.history is not None, "kept": list(self.kept())}

    def lines(self, since: int = 0) -> list[dict[str, Any]]:
        """Return the run's metrics from line `since` on."""
        return [] if self.run is None else figures(self.run, since)

    def samples(self) -> list[dict[str, Any]]:
        """Return what the model wrote at the run's evaluations."""
        return [] if self.run is None else samples(self.run)

    def beside(self) -> list[dict[str, Any]]:
        """Return name and metrics of each of the other runs."""
        return [{"name": name, "metrics": figures(run)} for name, run in self.others]


# Reading what a run logs while it may still be in training: metrics, speed, and the samples of its evaluations.

METRICS, TIMING = "metrics.jsonl", "timing.jsonl"
SPEED = "tokens_per_second"
MOST = 30
"""The most evaluations to return, the newest ones."""
LONGEST = 20_000
"""The most characters of one evaluation."""
NAME = re.compile(r"step-(\d{9,})\.txt")


def figures(run: Path, since: int = 0) -> list[dict[str, Any]]:
    """Return the complete lines of a run's metrics from number `since` on; training lines include their speed.

    A last line that is still being written is left out. A line that cannot be read has the kind "damaged".
    """
    found = [_read(line) for line in whole_lines(run / METRICS)[since:]]
    requested = {
        each["step"]: each for each in found if each.get("kind") == "train" and isinstance(each.get("step"), int)
    }
    for line in reversed(whole_lines(run / TIMING) if requested else []):  # from the end, as the new lines are wanted
        record = _read(line)
        step = record.get("step")
        if not isinstance(step, int):
            continue
        if record.get("kind") != "damaged" and step < min(requested):
            break
        if step in requested and SPEED in record:
            requested[step].setdefault(SPEED, record[SPEED])
    return found


def _read(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line, parse_constant=lambda _: None)  # a browser cannot parse NaN
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"kind": "damaged", "step": 0}


def samples(run: Path) -> list[dict[str, Any]]:
    """Return the samples of the newest evaluations in order: `step`, `text`, and whether the text was `cut`.

    A file that training deletes at this moment is skipped.
    """
    paths = (run / "samples").glob("step-*.txt")
    found = {int(match[1]): path for path in paths if (match := NAME.fullmatch(path.name))}
    newest: list[dict[str, Any]] = []
    for step in sorted(found)[-MOST:]:
        try:
            text = found[step].read_text("utf-8", errors="replace").rstrip("\n")
        except OSError:
            continue
        newest.append({"step": step, "text": text[:LONGEST], "cut": len(text) > LONGEST})
    return newest


# Head roles over the checkpoints of a run: each is diagnosed once, even while the run is in training.

SEQUENCES = 100
"""Sequences to probe at each checkpoint: a quarter of a full diagnosis, as every checkpoint is diagnosed."""
SHARE = 0.002
"""The mean share of one processor that diagnoses may use while the run trains, so as not to slow it down."""


class History:
    """The roles of a run's heads at each of its checkpoints. `clock` counts seconds."""

    def __init__(self, run: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.run = run
        self.clock = clock
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.seen: dict[int, list[dict[str, Any]]] = {}
        self.probe: Probe | None = None
        self.rested = -float("inf")
        """When the next diagnosis of a run in training may begin."""

    def __call__(self) -> dict[str, Any]:
        """Return `steps` and, for each head, its role at the last step and the score of that role at each step.

        A score is the attention on the role's keys beyond chance. New checkpoints are diagnosed now. While the run
        trains, only the newest one is, and so rarely that diagnoses take a `SHARE` of a processor; the others wait for
        later calls. Errors: those of loading a run; `GlassformerError` after `end`.
        """
        with self.lock:
            found = checkpoints(self.run)
            waiting = [step for step in found if step not in self.seen]
            if not self.in_training() or not found:
                self.look(known=self.seen)
            elif waiting and self.clock() >= self.rested:
                began = time.process_time()
                try:
                    self.look(known=found.keys() - {waiting[-1]})
                finally:
                    self.rested = self.clock() + (time.process_time() - began) / SHARE
            return self.so_far()

    def whole(self) -> dict[str, Any]:
        """Return the same, but diagnose every checkpoint first, even while the run trains."""
        with self.lock:
            self.look(known=self.seen)
            return self.so_far()

    def end(self) -> None:
        """Diagnose no more; a diagnosis that is under way ends at its next check."""
        self.ended.set()

    def in_training(self) -> bool:
        """Whether a process trains the run; False on systems without file locks."""
        try:
            refuse_in_training(self.run)
        except CheckpointError:
            return True
        return False

    def look(self, known: Collection[int]) -> None:
        """Diagnose the checkpoints that are not in `known`."""
        for step, diagnosis in over_checkpoints(
            self.run, sequences=SEQUENCES, known=known, probe=self.probe, between=self.refuse_ended
        ):
            self.seen[step] = diagnosis.to_json()
            self.probe = diagnosis.probe

    def refuse_ended(self) -> None:
        """Raise `GlassformerError` after `end`."""
        if self.ended.is_set():
            raise GlassformerError("The explorer is ending, so it analyses no more checkpoints. Start it again.")

    def so_far(self) -> dict[str, Any]:
        """Return the results so far."""
        steps = sorted(self.seen)
        heads = range(len(self.seen[steps[-1]]) if steps else 0)
        return {"steps": steps, "heads": [self.curve(i, steps) for i in heads]}

    def curve(self, i: int, steps: list[int]) -> dict[str, Any]:
        """Return head i's last role and that role's score at each step; without a role, its best-scoring one."""
        last = self.seen[steps[-1]][i]
        label, shift = last["role"]["label"], last["role"]["shift"]
        named = f"{label} {shift:+d}" if shift else label
        role = named if named in last["scores"] else max(last["scores"], key=lambda name: last["scores"][name] or -1.0)
        place = {name: last[name] for name in ("id", "block", "layer", "head")}
        return {**place, "role": role, "scores": [self.seen[step][i]["scores"].get(role) for step in steps]}


# Making the explorer's `Subject` from a run folder: its model, a few of its own inputs, what its heads do.

EXAMPLES = 3
SCORED = 200
"""The number of dev pairs to score with and without a head."""
BEGUN = 24
"""The number of tokens of a dev text that a decoder continues."""
HEADS = "heads.json"
"""A file beside the run's recipe that keeps the diagnosis of its heads, so that it is made only once."""
FOUND = ("heads", "sentences", "similar")
Report = Callable[[str], None]


def subject_of(
    run: Path,
    report: Report = lambda _: None,
    *,
    others: Sequence[tuple[str, Path]] = (),
    study: Mapping[str, Any] | None = None,
) -> Subject:
    """Load the best checkpoint of a run for the explorer; `report` gets messages on slow work and on what is missing.

    `others` and `study` are those of `Subject`.

    Errors: those of loading a run, and of `readable`. If its data are missing or changed, there are no examples from
    them, and `report` says so.
    """
    recipe = readable(run)
    loaded = load_run(run, recipe)
    split = None
    try:
        split = dev_split(run, recipe, loaded)
    except GlassformerError as missing:
        report(f"The dev data cannot be read, so the examples are made up from the vocabulary: {missing}")
    found = heads_of(run, loaded, report)
    return Subject(
        run.resolve().name,
        loaded.model,
        loaded.tokenizers,
        layout_of(recipe, loaded.tokenizers),
        examples_of(recipe, loaded.tokenizers, split),
        {"task": recipe.data.task, "step": loaded.state.get("step")},
        run,
        found["heads"],
        found["sentences"],
        History(run),
        silencer(run, recipe, loaded),
        scorer(recipe, loaded, split),
        kept=lambda: list(checkpoints(run)),
        similar=found["similar"],
        untrained=partial(untrained, state=loaded.state),
        others=others,
        study=study,
    )


def layout_of(recipe: Recipe, tokenizers: Tokenizers) -> Layout:
    """Return how the run lays out its texts."""
    task = task_of(recipe.data)
    begins = task.begins and (task.window is None or tokenizers.source.begins)
    return Layout(begins, task.window is not None and task.layout.blanks, task.window)


def examples_of(recipe: Recipe, tokenizers: Tokenizers, split: Split | None) -> list[Example]:
    """Return examples: the first dev pairs, passages of the dev text or, without data, the start of the vocabulary."""
    if isinstance(split, PairsSplit) and len(split.encoded):
        gold = task_of(recipe.data).decoded
        n = min(EXAMPLES, len(split.encoded))
        return [(list(split.encoded.source[i]), list(split.encoded.target[i]) if gold else None) for i in range(n)]
    if isinstance(split, TextSplit):
        length = min(BEGUN, recipe.data.window - 1, len(split.tokens))
        starts = np.linspace(0, len(split.tokens) - length, EXAMPLES).astype(np.int64)
        rows = split.tokens.take(starts, length).tolist()
        return [([id for id in row if id != BOS], None) for row in rows]
    first = len(SPECIALS)
    return [(list(range(first, min(first + 8, tokenizers.source.vocab_size))), None)]


def silencer(run: Path, recipe: Recipe, loaded: Loaded) -> Silence:
    """Return a function that ablates heads; it computes their mean outputs when they are first needed."""

    @cache
    def means() -> Means:
        return usual_outputs(loaded.model, run_probe(run, recipe, loaded, SEQUENCES, 1))

    def silenced(model: Transformer, heads: Iterable[Head], kind: str) -> AbstractContextManager[None]:
        return silence(model, heads, kind, means=means() if kind == "mean" else None)

    return silenced


def scorer(recipe: Recipe, loaded: Loaded, split: Split | None) -> Score | None:
    """Return a function that measures exact match on dev pairs, or None if there are no pairs to answer."""
    task = task_of(recipe.data)
    if not (isinstance(split, PairsSplit) and task.decoded):
        return None
    n = min(SCORED, len(split.encoded))
    sources = [split.encoded.source[i] for i in range(n)]
    targets = [list(split.encoded.target[i]) for i in range(n)]

    def score(poll: Callable[[], None]) -> tuple[str, float, int]:
        lengths = list(map(len, targets)) if task.layout.blanks else None
        found = answer(
            loaded.model,
            sources,
            lengths=lengths,
            never=unwritten(task.layout.decoder, recipe.data.objective),
            poll=poll,
        )
        return "exact_match", sum(each.ids == target for each, target in zip(found, targets, strict=True)) / n, n

    return score


def heads_of(run: Path, loaded: Loaded, report: Report) -> dict[str, Any]:
    """Return the roles of a run's heads, sentences on them, and similar pairs: from `HEADS` or a new diagnosis."""
    digest, path = weights_sha256(loaded.model), run / HEADS
    kept = read_json(path) if path.is_file() else {}
    if kept.get("weights_sha256") == digest and all(name in kept for name in FOUND):
        return {name: kept[name] for name in FOUND}
    report(f"Analysing what each head does; the result is kept in {HEADS}.")
    try:
        found = diagnose_run(run)
    except GlassformerError as reason:
        report(f"The heads cannot be analysed: {reason}")
        return {"heads": [], "sentences": [], "similar": None}
    similar = [[each.one, each.other, float(f"{each.divergence:.4g}")] for each in found.pairs]
    record = {"heads": found.to_json(), "sentences": list(found.sentences), "similar": similar}
    try:
        write_text_atomically(path, json.dumps({"weights_sha256": digest, **record}))
    except (OSError, GlassformerError) as reason:  # a read-only run can still be explored
        report(f"The analysis of the heads could not be saved: {reason}")
    return record
