"""A run is opened: a new one from its recipe, or one that was stopped, as its newest intact checkpoint left it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch

from glassformer.foundation.errors import CheckpointError
from glassformer.foundation.runtime import choose_threads
from glassformer.model.transformer import Transformer
from glassformer.store.checkpoint import load, load_optimizer
from glassformer.store.files import write_text_atomically
from glassformer.store.folders import newest
from glassformer.store.lock import RunLock
from glassformer.train.build import as_recipe, new_model, refuse_changed
from glassformer.train.chosen import chosen
from glassformer.train.distributed import ALONE, Ranks, device_of, notes_on
from glassformer.train.optimizer import load_optimizer_state
from glassformer.train.precision import choose_precision
from glassformer.train.prepare import Prepared, prepare
from glassformer.train.recipe import Recipe, dumps_recipe, load_recipe
from glassformer.train.resumable import refuse_other_data, standing
from glassformer.train.running import Session
from glassformer.train.sharded import cut, parts_of

__all__ = ["Session", "resume", "start"]


def start(recipe: Recipe, out: Path, ranks: Ranks = ALONE) -> Session:
    """A new run in the folder `out`, which then holds its recipe; of several processes the first writes it.

    Errors: those of reading the data and the recipe.
    """
    device, threads, notes = _runtime(recipe, ranks)
    prepared, model = _fresh(recipe, device)
    few = [batch.split(recipe.training.accumulate)[0] for _, batch in islice(prepared.batches(0), 2)]
    precision, why = choose_precision(recipe.training.precision, model, few)
    precision = ranks.text_of_first(precision)  # each has measured
    recipe = replace(recipe, training=replace(recipe.training, precision=precision, threads=threads))
    _refuse_other_view(prepared, 0, ranks)
    with _locked(out, ranks) as lock:
        if ranks.first:
            write_text_atomically(out / "recipe.toml", dumps_recipe(recipe))
        notes = [*notes, f"arithmetic: {why}", *chosen(model, prepared), *_unlocked(lock)]
        return Session(out, replace(prepared, recipe=recipe), _cut(model, recipe, ranks), notes, lock, ranks=ranks)


def resume(run: Path, ranks: Ranks = ALONE) -> Session:
    """A run as its newest intact checkpoint left it; one that was stopped before its first, from step 0 of its recipe.

    It may go on with another number of processes than before.
    Errors: `CheckpointError` where all checkpoints are damaged, and where data or model changed.
    """
    recipe = load_recipe(run / "recipe.toml")
    with _locked(run, ranks) as lock:  # before anything is read that another process might be writing
        ranks.barrier()
        device, _, notes = _runtime(recipe, ranks)
        found = newest(run)
        as_before = f"arithmetic: {recipe.training.precision}, as in the run so far"
        if found.folder is None and not found.skipped:
            prepared, model = _fresh(recipe, device)
            _refuse_other_view(prepared, 0, ranks)
            notes = ["there is no checkpoint yet, so training begins at step 0", *notes, as_before]
            notes += [*chosen(model, prepared), *_unlocked(lock)]
            return Session(run, prepared, _cut(model, recipe, ranks), notes, lock, ranks=ranks)
        if found.folder is None:
            damaged = "".join(f"{each.reason} " for each in found.skipped[:2])
            raise CheckpointError(
                f"{run} has no intact checkpoint to go on from. {damaged}"
                "Start over with `glassformer train ... --overwrite`."
            )
        loaded = load(found.folder, device=device)
        so_far = standing(loaded.state, found.folder, recipe.training.metric)
        prepared = prepare(recipe, loaded.tokenizers)
        refuse_changed(run, loaded, recipe)
        refuse_other_data(run, so_far.data, prepared.fingerprints())
        _refuse_other_view(prepared, so_far.step, ranks)
        notes = [f"resumed from {found.folder}", *notes, *(f"passed over: {each.reason}" for each in found.skipped)]
        model = as_recipe(loaded.model, recipe)
        notes += [as_before, *chosen(model, prepared), *_unlocked(lock)]
        model = _cut(model, recipe, ranks)
        session = Session(run, prepared, model, notes, lock, so_far.step, so_far.best, ranks)
        moments = parts_of(load_optimizer(found.folder, device=device), model)
        load_optimizer_state(session.optimizer, model, moments)
        return session


def _fresh(recipe: Recipe, device: torch.device) -> tuple[Prepared, Transformer]:
    """The data, and the model before its first step: a function of the recipe alone."""
    prepared = prepare(recipe)
    return prepared, new_model(recipe, prepared.tokenizers).to(device)


def _cut(model: Transformer, recipe: Recipe, ranks: Ranks) -> Transformer:
    """The model, over the processes if the recipe says so and there are several."""
    return cut(model, ranks, recipe.training.precision) if recipe.distributed.shard and ranks.count > 1 else model


def _refuse_other_view(prepared: Prepared, step: int, ranks: Ranks) -> None:
    """Refuse processes that do not see the same files."""
    for split, digest in prepared.fingerprints().items() if ranks.count > 1 else ():
        ranks.refuse_difference(f"the {split} data", int(digest[:12], 16))
    ranks.refuse_difference("the newest checkpoint", step)


@contextmanager
def _locked(run: Path, ranks: Ranks) -> Generator[RunLock]:
    """The lock, taken by the first process for all of them.

    It is given back if the `with` ends in an error, even where someone keeps its traceback.
    """
    lock = RunLock(run)
    if ranks.first:
        lock.take()
    try:
        yield lock
    except BaseException:
        lock.release()
        raise


def _unlocked(lock: RunLock) -> list[str]:
    return [] if lock.works else ["lock: there are none here, so take care that no second process trains this run"]


def _runtime(recipe: Recipe, ranks: Ranks) -> tuple[torch.device, int, list[str]]:
    device, why = device_of(recipe.training.device, ranks)
    number, threads = choose_threads(recipe.training.threads, ranks.local_count)
    return device, number, [f"device: {why}; {threads}", *notes_on(ranks, recipe.distributed.shard)]
