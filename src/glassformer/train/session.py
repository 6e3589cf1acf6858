"""A run is opened: a new one from its recipe, or one that was stopped, as its newest intact checkpoint left it."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch

from glassformer.attend.flex import obstacle
from glassformer.foundation.errors import CheckpointError, ConfigError
from glassformer.foundation.runtime import choose_device, choose_threads
from glassformer.model.recompute import recompute
from glassformer.model.transformer import Transformer
from glassformer.store.checkpoint import Loaded, load, load_optimizer
from glassformer.store.files import write_text_atomically
from glassformer.store.folders import newest
from glassformer.store.lock import RunLock
from glassformer.train.build import as_recipe, new_model
from glassformer.train.changes import (
    changes,
    data_follow,
    other_data,
    refuse_changes,
    refuse_other_vocabulary,
    refuse_unknown,
    refuse_useless,
    settings_by_name,
)
from glassformer.train.chosen import chosen
from glassformer.train.optimizer import load_optimizer_state
from glassformer.train.precision import choose_precision
from glassformer.train.prepare import Prepared, model_config, prepare
from glassformer.train.recipe import Recipe, anchored, dumps_recipe, load_recipe, override
from glassformer.train.resumable import Best, Standing, refuse_other_model, standing
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
        prepared = replace(prepared, recipe=recipe)
        notes = [*notes, f"arithmetic: {why}", *chosen(model, prepared), *_unlocked(lock)]
        return Session(out, prepared, model, notes, lock, _standing(prepared))


def resume(run: Path, allowed: Collection[str] = (), asked: Mapping[str, object] | None = None) -> Session:
    """A run as its newest intact checkpoint left it; one that was stopped before its first, from step 0 of its recipe.

    `asked`: settings that are to be others than in its recipe. `allowed`: names of settings that may be, or whose files
    may hold other data; the recipe is then written anew. Errors: `CheckpointError` where all checkpoints are damaged,
    and where recipe, data or model changed and were not allowed to.
    """
    recipe = load_recipe(run / "recipe.toml")
    recipe = anchored(override(recipe, asked)) if asked else recipe
    refuse_unknown(allowed, recipe)
    with _locked(run) as lock:  # before anything is read that another process might be writing
        device, _, notes = _runtime(recipe)
        found = newest(run)
        as_before = f"arithmetic: {recipe.training.precision}, as in the run so far"
        if found.folder is None and not found.skipped:
            if asked:
                write_text_atomically(run / "recipe.toml", dumps_recipe(recipe))
            prepared, model = _fresh(recipe, device)
            notes = ["there is no checkpoint yet, so training begins at step 0", *notes, as_before]
            notes += [*chosen(model, prepared), *_unlocked(lock)]
            return Session(run, prepared, model, notes, lock, _standing(prepared))
        if found.folder is None:
            damaged = "".join(f"{each.reason} " for each in found.skipped[:2])
            raise CheckpointError(
                f"{run} has no intact checkpoint to go on from. {damaged}"
                "Start over with `glassformer train ... --overwrite`."
            )
        notes = [f"resumed from {found.folder}", *notes, *(f"passed over: {each.reason}" for each in found.skipped)]
        return _again(recipe, found.folder, allowed, [*notes, as_before], device, lock)


def _again(
    recipe: Recipe, folder: Path, allowed: Collection[str], notes: list[str], device: torch.device, lock: RunLock
) -> Session:
    """The run as this checkpoint left it, with `recipe`, if that may be."""
    run = lock.run
    loaded = load(folder, device=device)
    so_far = standing(loaded.state, folder, recipe.training.metric)
    changed = changes(so_far.recipe, recipe)
    refuse_other_vocabulary(run, changed)
    may_change = any(each.name.startswith("model.") for each in changed)
    model = as_recipe(_model(run, loaded, recipe, may_change), recipe)
    refuse_changes(run, changed, allowed)
    prepared = prepare(recipe, loaded.tokenizers)
    now = _standing(prepared)
    others = other_data(run, so_far, now, prepared, follows=data_follow(changed), allowed=allowed)
    refuse_useless(allowed, changed, others)
    now = so_far._replace(data=now.data, sides=now.sides, recipe=now.recipe)
    notes = [*notes, *(f"changed, as allowed: {each}" for each in (*changed, *others))]
    notes += [*chosen(model, prepared), *_unlocked(lock)]
    session = Session(run, prepared, model, notes, lock, now, save_first=bool(changed or others))
    saved = load_optimizer(folder, device=device)
    if session.average:
        saved = session.average.restore(saved)
    load_optimizer_state(session.optimizer, model, saved)
    if changed:
        write_text_atomically(run / "recipe.toml", dumps_recipe(recipe))
    return session


def _standing(prepared: Prepared) -> Standing:
    """Before the first step."""
    return Standing(0, Best(), prepared.fingerprints(), prepared.sides(), settings_by_name(prepared.recipe))


def _model(run: Path, loaded: Loaded, recipe: Recipe, may_change: bool) -> Transformer:
    """The saved model, or where `may_change` its weights in the one that the recipe asks for.

    Errors: `CheckpointError` where that has other weights.
    """
    config = model_config(recipe, loaded.tokenizers)
    if config == loaded.model.config:
        return loaded.model
    with torch.random.fork_rng(devices=[]):
        model = Transformer(config)
    ours, theirs = ({name: each.shape for name, each in of.named_parameters()} for of in (model, loaded.model))
    if ours != theirs or not may_change:
        refuse_other_model(run, loaded.model.config, config)
    model.load_state_dict(loaded.model.state_dict())
    return model.to(next(loaded.model.parameters()).device).eval()


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
    if recipe.model.attention == "flex":  # else the first step would say it, after all data was read
        width = recipe.model.d_model // recipe.model.n_heads
        if reason := obstacle(device.type, width, torch.float32, learns=True):
            raise ConfigError(reason)
    number, threads = choose_threads(recipe.training.threads)
    return device, number, [f"device: {why}; {threads}"]
