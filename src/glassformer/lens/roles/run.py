"""Diagnosing the heads of a run with a probe from its own task: at its best checkpoint or at all of them in turn."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from glassformer.base.errors import CheckpointError, ConfigError
from glassformer.base.runtime import choose_threads, threads_kept
from glassformer.data.dataset import Tokenizers
from glassformer.data.tokens.vocabulary import BOS, SPECIALS
from glassformer.lens.roles.diagnosis import Diagnosis, diagnose
from glassformer.lens.roles.probe import Probe, held_out, induction_probe, pairs_probe, real_pairs, windows
from glassformer.nn.outputs import Classify, Lm, Tag
from glassformer.nn.transformer import Transformer
from glassformer.store.checkpoint import Loaded, load
from glassformer.store.folders import checkpoints
from glassformer.train.finished.loading import dev_split, load_run
from glassformer.train.objective import objective_for
from glassformer.train.pairs_data import PairsSplit
from glassformer.train.recipe import Recipe, load_recipe
from glassformer.train.run.beginning import as_recipe, objective_of, prepare_split
from glassformer.train.tasks import task_of
from glassformer.train.tasks.pairs import Pairs
from glassformer.train.tasks.task import EXPLORE
from glassformer.train.tasks.text import Text
from glassformer.train.text_data import TextSplit

SEQUENCES, SCORED = 400, 1000
"""The number of sequences for scoring roles, and the number to answer with and without each head."""
LONGEST_HALF = 24
"""The most tokens that the induction probe repeats."""


class At(NamedTuple):
    """The diagnosis at one checkpoint."""

    step: int
    diagnosis: Diagnosis


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
) -> Iterator[At]:
    """Yield the diagnosis, without effects, at each checkpoint of a run, oldest first.

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
            diagnosed = At(step, diagnose(model, probe, effects=False, between=between))
        yield diagnosed


def run_probe(run: Path, recipe: Recipe, loaded: Loaded, sequences: int = SEQUENCES, scored: int = SCORED) -> Probe:
    """Return the probe for a run's task. Errors: `ConfigError` for a model that answers neither tokens nor labels."""
    task = task_of(recipe.data)
    if isinstance(task, Text):
        return text_probe(run, recipe, loaded, sequences, scored)
    if not isinstance(loaded.model.config.head, Lm | Classify | Tag):
        raise ConfigError("Diagnosing heads needs a model that predicts tokens or labels; this one predicts neither.")
    return task_probe(recipe, loaded.model, loaded.tokenizers, sequences, scored)


def task_probe(recipe: Recipe, model: Transformer, tokenizers: Tokenizers, sequences: int, scored: int) -> Probe:
    """Return the probe for pairs (of a task or of files) or for labelled text."""
    data, task = recipe.data, task_of(recipe.data)
    assert isinstance(task, Pairs)
    seed = recipe.training.seed
    ids = range(len(SPECIALS), tokenizers.target.vocab_size)
    metric = "exact_match" if task.equal_lengths else "token_accuracy"
    if isinstance(model.config.head, Classify):
        metric = "accuracy"
    if task.equal_lengths:
        asked = prepare_split(
            replace(recipe, data=replace(data, test_size=min(scored, data.test_size))), tokenizers, "test"
        )
        assert isinstance(asked, PairsSplit)
        own = held_out(data, tokenizers, sequences, seed, repeats=False)
        control = held_out(data, tokenizers, sequences, seed, repeats=True)
        name = f"{data.task}/test/distinct" if own else f"{data.task}/test/repeats"
        answered = real_pairs(asked.encoded, scored)
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
    asked = windows(recipe, split, tokenizers, scored, model)
    objective = objective_of(model, recipe)
    ids = range(len(SPECIALS), tokenizers.target.vocab_size)
    if model.encoder is not None:
        return Probe(f"{split.name}/dev", asked[0], None, asked, objective, "token_accuracy", ids)
    most = min(LONGEST_HALF, (recipe.data.window - 1) // 2, len(ids))
    lengths = sorted({max(2, most * part // 3) for part in (1, 2, 3)})
    made = induction_probe(
        ids, lengths, sequences, begin=BOS if recipe.data.documents and tokenizers.source.begins else None
    )
    return replace(
        made, scored=asked, objective=objective_for(model) if recipe.data.objective == "next_token" else objective
    )
