"""Making the explorer's `Subject` from a run folder: its model, a few of its own inputs, what its heads do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.base.errors import GlassformerError
from glassformer.data.dataset import Tokenizers
from glassformer.data.tokens.vocabulary import BOS, SPECIALS
from glassformer.decode.answer import answer
from glassformer.decode.choose.unwritten import unwritten
from glassformer.lens.ablate import Means, silence
from glassformer.lens.roles.diagnosis import usual_outputs
from glassformer.lens.roles.run import diagnose_run, readable, run_probe
from glassformer.lens.server.history import SEQUENCES, History
from glassformer.lens.server.subject import Example, Head, Score, Silence, Subject
from glassformer.lens.trace.make import weights_sha256
from glassformer.lens.trace.reading import Layout
from glassformer.nn.transformer import Transformer
from glassformer.store.checkpoint import Loaded
from glassformer.store.files import write_text_atomically
from glassformer.store.folders import checkpoints
from glassformer.store.json_file import read_json
from glassformer.train.finished.loading import dev_split, load_run
from glassformer.train.recipe import Recipe
from glassformer.train.sample_lengths import untrained
from glassformer.train.sources.pairs_data import PairsSplit
from glassformer.train.sources.run_data import Split
from glassformer.train.sources.text_data import TextSplit
from glassformer.train.tasks import task_of

EXAMPLES = 3
SCORED = 200
"""The number of dev pairs to score with and without a head."""
BEGUN = 24
"""The number of tokens of a dev text that a decoder continues."""
HEADS = "heads.json"
"""A file beside the run's recipe that keeps the diagnosis of its heads, so that it is made only once."""
FOUND = ("heads", "sentences", "similar")
Told = Callable[[str], None]


def subject_of(
    run: Path,
    told: Told = lambda _: None,
    *,
    others: Sequence[tuple[str, Path]] = (),
    study: Mapping[str, Any] | None = None,
) -> Subject:
    """Load the best checkpoint of a run for the explorer; `told` gets messages on slow work and on what is missing.

    `others` and `study` are those of `Subject`.

    Errors: those of loading a run, and of `readable`. If its data are missing or changed, there are no examples from
    them, and `told` says so.
    """
    recipe = readable(run)
    loaded = load_run(run, recipe)
    split = None
    try:
        split = dev_split(run, recipe, loaded)
    except GlassformerError as missing:
        told(f"The dev data cannot be read, so the examples are made up from the vocabulary: {missing}")
    found = heads_of(run, loaded, told)
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

    def silenced(model: Transformer, heads: Iterable[Head], kind: str = "zero") -> AbstractContextManager[None]:
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


def heads_of(run: Path, loaded: Loaded, told: Told) -> dict[str, Any]:
    """Return the roles of a run's heads, sentences on them, and similar pairs: from `HEADS` or a new diagnosis."""
    digest, path = weights_sha256(loaded.model), run / HEADS
    kept = read_json(path) if path.is_file() else {}
    if kept.get("weights_sha256") == digest and all(name in kept for name in FOUND):
        return {name: kept[name] for name in FOUND}
    told(f"Analysing what each head does; the result is kept in {HEADS}.")
    try:
        found = diagnose_run(run)
    except GlassformerError as reason:
        told(f"The heads cannot be analysed: {reason}")
        return {"heads": [], "sentences": [], "similar": None}
    alike = [[each.one, each.other, float(f"{each.divergence:.4g}")] for each in found.pairs]
    record = {"heads": found.to_json(), "sentences": list(found.sentences), "similar": alike}
    try:
        write_text_atomically(path, json.dumps({"weights_sha256": digest, **record}))
    except (OSError, GlassformerError) as reason:  # a read-only run can still be explored
        told(f"The analysis of the heads could not be saved: {reason}")
    return record
