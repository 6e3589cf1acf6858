"""A run is opened: a new one from its recipe, or one that was stopped, as its newest intact checkpoint left it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch

from glassformer.foundation.errors import CheckpointError
from glassformer.foundation.runtime import choose_device, choose_threads
from glassformer.model.recompute import recompute
from glassformer.model.transformer import Transformer
from glassformer.store.checkpoint import load, load_optimizer
from glassformer.store.files import write_text_atomically
from glassformer.store.folders import newest
from glassformer.store.lock import RunLock
from glassformer.train.build import as_recipe, new_model, refuse_changed
from glassformer.train.chosen import chosen
from glassformer.train.optimizer import load_optimizer_state
from glassformer.train.precision import choose_precision
from glassformer.train.prepare import Prepared, prepare
from glassformer.train.recipe import Recipe, dumps_recipe, load_recipe
from glassformer.train.resumable import refuse_other_data, standing
from glassformer.train.running import Session

__all__ = ["Session", "resume", "start"]


def start(recipe: Recipe, out: Path) -> Session:
    """A new run in the folder `out`, which then holds its recipe. Errors: those of reading the data and the recipe."""
    device, threads, notes = _runtime(recipe)
    prepared, model = _fresh(recipe, device)
    few = [batch.split(recipe.training.accumulate)[0] for _, batch in islice(prepared.batches(0), 2)]
    with recompute(model, recipe.training.recompute):
        precision, why = choose_precision(recipe.training.precision, model, few)
    recipe = replace(recipe, training=replace(recipe.training, precision=precision, threads=threads))
    with _locked(out) as lock:
        write_text_atomically(out / "recipe.toml", dumps_recipe(recipe))
        notes = [*notes, f"arithmetic: {why}", *chosen(model, prepared), *_unlocked(lock)]
        return Session(out, replace(prepared, recipe=recipe), model, notes, lock)


def resume(run: Path) -> Session:
    """A run as its newest intact checkpoint left it; one that was stopped before its first, from step 0 of its recipe.

    Errors: `CheckpointError` where all checkpoints are damaged, and where data or model changed.
    """
    recipe = load_recipe(run / "recipe.toml")
    with _locked(run) as lock:  # before anything is read that another process might be writing
        device, _, notes = _runtime(recipe)
        found = newest(run)
        as_before = f"arithmetic: {recipe.training.precision}, as in the run so far"
        if found.folder is None and not found.skipped:
            prepared, model = _fresh(recipe, device)
            notes = ["there is no checkpoint yet, so training begins at step 0", *notes, as_before]
            return Session(run, prepared, model, [*notes, *chosen(model, prepared), *_unlocked(lock)], lock)
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
        notes = [f"resumed from {found.folder}", *notes, *(f"passed over: {each.reason}" for each in found.skipped)]
        model = as_recipe(loaded.model, recipe)
        notes += [as_before, *chosen(model, prepared)]
        session = Session(run, prepared, model, [*notes, *_unlocked(lock)], lock, so_far.step, so_far.best)
        if session.loss_scale and so_far.loss_scale:
            session.loss_scale.load(so_far.loss_scale)
        load_optimizer_state(session.optimizer, model, load_optimizer(found.folder, device=device))
        return session


def _fresh(recipe: Recipe, device: torch.device) -> tuple[Prepared, Transformer]:
    """The data, and the model before its first step: a function of the recipe alone."""
    prepared = prepare(recipe)
    return prepared, new_model(recipe, prepared.tokenizers).to(device)


@contextmanager
def _locked(run: Path) -> Generator[RunLock]:
    """The lock, taken; it is given back if the `with` ends in an error, even where someone keeps its traceback."""
    lock = RunLock(run)
    lock.take()
    try:
        yield lock
    except BaseException:
        lock.release()
        raise


def _unlocked(lock: RunLock) -> list[str]:
    return [] if lock.works else ["lock: there are none here, so take care that no second process trains this run"]


def _runtime(recipe: Recipe) -> tuple[torch.device, int, list[str]]:
    device, why = choose_device(recipe.training.device)
    number, threads = choose_threads(recipe.training.threads)
    return device, number, [f"device: {why}; {threads}"]
