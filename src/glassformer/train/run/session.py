"""Open a run: start a new one from its recipe, or resume one from its newest intact checkpoint."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from glassformer.base.errors import CheckpointError, ConfigError
from glassformer.base.runtime import choose_threads, threads_kept
from glassformer.data.config import SPLITS, DataConfig
from glassformer.nn.flex import obstacle
from glassformer.nn.recompute import recompute
from glassformer.nn.transformer import Transformer
from glassformer.store.checkpoint import Loaded, load, load_optimizer
from glassformer.store.files import RESTORE, write_text_atomically
from glassformer.store.folders import RunLock, newest
from glassformer.train.optimizer import load_optimizer_state
from glassformer.train.precision import choose_precision
from glassformer.train.ranks.distributed import ALONE, Ranks, device_of, notes_on
from glassformer.train.ranks.sharded import parts_of
from glassformer.train.recipe import Recipe, anchored, dumps_recipe, load_recipe, override
from glassformer.train.records import refuse_untrackable, step_of, whole_lines
from glassformer.train.run.beginning import Plain, Speed, as_recipe, begin, model_config, prepare
from glassformer.train.run.resumable import (
    Best,
    Standing,
    changes,
    other_data,
    refuse_changes,
    refuse_fewer_steps,
    refuse_other_model,
    refuse_other_recipe,
    refuse_other_vocabulary,
    refuse_undecided,
    refuse_unknown,
    refuse_useless,
    settings_by_name,
    standing,
)
from glassformer.train.run.running import Session
from glassformer.train.run_data import RunData
from glassformer.train.sample_lengths import SampleLengths, joined

__all__ = ["Session", "resume", "start"]


@threads_kept()
def start(recipe: Recipe, out: Path, ranks: Ranks = ALONE, speed: Speed = Plain) -> Session:
    """Start a new run in the folder `out` and write its recipe there; of several processes the first one writes it.

    Torch's random generators and its number of threads are the caller's again afterwards, as after `Session.train`.
    `speed` is put on the model and its optimizer, as `fast.for_training`. Errors: those of reading data and recipe.
    """
    refuse_other_recipe(recipe, ranks)
    refuse_among_texts(recipe.data, out)
    device, threads, notes = _runtime(recipe, ranks)
    prepared, model, began, lengths = begin(recipe)
    model = model.to(device)
    notes = [*notes, *speed(model).notes]
    ahead = (batch for _, batch in prepared.batches(recipe.training.growth.steps))
    firsts = (batch.split(recipe.training.accumulate)[0] for batch in ahead)
    with recompute(model, recipe.training.recompute):
        precision, why = choose_precision(recipe.training.precision, model, firsts)
    precision = ranks.text_of_first(precision)  # each process has measured its own
    decided = replace(prepared.recipe, training=replace(recipe.training, precision=precision, threads=threads))
    _refuse_other_view(prepared, 0, ranks)
    with _locked(out, ranks) as lock:
        if ranks.first:
            write_text_atomically(out / "recipe.toml", dumps_recipe(decided))
        prepared = replace(prepared, recipe=decided)
        notes = [*notes, f"arithmetic: {why}", *began]
        return Session(lock, prepared, model, notes, _standing(prepared, lengths), ranks=ranks, speed=speed)


@threads_kept()
def resume(
    run: Path,
    allowed: Collection[str] = (),
    requested: Mapping[str, object] | None = None,
    ranks: Ranks = ALONE,
    speed: Speed = Plain,
) -> Session:
    """Resume a run from its newest intact checkpoint, or from step 0 of its recipe if it stopped before its first.

    The number of processes may differ from before. `requested`: settings that replace those of the run's recipe.
    `allowed`: names of settings that may differ, or whose files may hold other data; the recipe is then rewritten.
    Errors: `CheckpointError` if all checkpoints are damaged, or if recipe, data or model changed without permission.
    """
    own = load_recipe(run / "recipe.toml")
    recipe = anchored(override(own, requested)) if requested else own
    refuse_unknown(allowed, recipe)
    refuse_undecided(recipe, requested or ())
    with _locked(run, ranks) as lock:  # before reading anything that another process might be writing
        refuse_other_recipe(recipe, ranks)
        device, _, notes = _runtime(recipe, ranks)
        found = newest(run)
        as_before = f"arithmetic: {recipe.training.precision}, as in the run so far"
        if found.folder is None and not found.skipped:
            changed = changes(settings_by_name(own), recipe)
            refuse_other_vocabulary(run, changed)
            refuse_changes(run, changed, allowed, requested or ())
            refuse_useless(allowed, changed, ())
            prepared, model, began, lengths = begin(recipe)
            model = model.to(device)
            notes = [*notes, *speed(model).notes]
            _refuse_other_view(prepared, 0, ranks)
            if changed and ranks.first:
                write_text_atomically(run / "recipe.toml", dumps_recipe(prepared.recipe))
            began = [*began, *(f"changed, as allowed: {each}" for each in changed)]
            notes = [*_from_nothing(run), *notes, as_before, *began]
            return Session(lock, prepared, model, notes, _standing(prepared, lengths), ranks=ranks, speed=speed)
        if found.folder is None:
            damaged = "".join(f"{each.reason.removesuffix(RESTORE).strip()} " for each in found.skipped[:2])
            recipe_file, out = shlex.quote(str(run / "recipe.toml")), shlex.quote(str(run))
            raise CheckpointError(
                f"{run} has no intact checkpoint to resume from. {damaged}Restore one from a copy, or start over: "
                f"glassformer train {recipe_file} --out {out} --overwrite"
            )
        notes = [f"resumed from {found.folder}", *notes, *(f"skipped: {each.reason}" for each in found.skipped)]
        session = _again(
            recipe, found.folder, allowed, requested or (), [*notes, as_before], device, lock, ranks, speed
        )
        session.saver.damaged = {each.folder for each in found.skipped}
        return session


def _again(
    recipe: Recipe,
    folder: Path,
    allowed: Collection[str],
    requested: Collection[str],
    notes: list[str],
    device: torch.device,
    lock: RunLock,
    ranks: Ranks,
    speed: Speed,
) -> Session:
    """Resume from this checkpoint with `recipe`, if that is allowed."""
    run = lock.run
    loaded = load(folder, device=device)
    so_far = standing(loaded.state, folder, recipe.training.metric)
    changed = changes(so_far.recipe, recipe)
    refuse_other_vocabulary(run, changed)
    may_change = any(each.name.startswith("model.") for each in changed)
    model = as_recipe(_model(run, loaded, recipe, may_change), recipe)
    notes = [*notes, *speed(model).notes]
    refuse_changes(run, changed, allowed, requested)
    refuse_fewer_steps(run, recipe, so_far.step)
    prepared = prepare(recipe, loaded.tokenizers)
    now = _standing(prepared, joined(so_far.lengths, prepared.lengths()))
    others = other_data(run, so_far, now, prepared, changed, allowed)
    refuse_useless(allowed, changed, others)
    _refuse_other_view(prepared, so_far.step, ranks)
    now = so_far._replace(data=now.data, sides=now.sides, recipe=now.recipe, lengths=now.lengths)
    notes = [*notes, *(f"changed, as allowed: {each}" for each in (*changed, *others))]
    if so_far.step == recipe.training.steps and not so_far.evaluation_due:
        longer = f"--allow-change training.steps --training.steps {2 * so_far.step}"
        notes.append(f"nothing is left to do: all {so_far.step:,} steps are done. To train on: {longer}")
    if changed or others:
        notes.append("if the run is killed before it saves a checkpoint with this change, give the same flags again")
    save_first = bool(changed or others)
    session = Session(lock, prepared, model, notes, now, save_first=save_first, ranks=ranks, speed=speed)
    saved = parts_of(load_optimizer(folder, device=device), model)
    if session.average:
        saved = session.average.restore(saved)
    load_optimizer_state(session.optimizer, model, saved, unused=now.updates == 0)
    if changed and ranks.first:
        write_text_atomically(run / "recipe.toml", dumps_recipe(prepared.recipe))
    ranks.barrier()  # all must have read before the first process saves
    return session


def _from_nothing(run: Path) -> list[str]:
    """Lines for the user: that training starts anew, and which existing files it leaves alone or drops."""
    folder = run / "checkpoints"
    others = sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []
    dropped = sum((step_of(line) or 0) > 0 for line in whole_lines(run / "metrics.jsonl"))
    lines = ["there is no checkpoint yet, so training begins at step 0"]
    lines += [f"left alone: {', '.join(others[:5])} in {folder}, as no checkpoint has such a name"] if others else []
    lines += [f"dropped: {dropped} lines of metrics.jsonl, of steps that will be repeated"] if dropped else []
    return lines


def _standing(prepared: RunData, lengths: SampleLengths) -> Standing:
    """The standing before the first step."""
    digests, settings = (prepared.fingerprints(), prepared.sides()), settings_by_name(prepared.recipe)
    return Standing(0, Best(), *digests, settings, lengths=lengths)


def _model(run: Path, loaded: Loaded, recipe: Recipe, may_change: bool) -> Transformer:
    """Return the saved model or, if `may_change`, its weights in the model that the recipe asks for.

    Errors: `CheckpointError` if that model has other weights.
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


def _refuse_other_view(prepared: RunData, step: int, ranks: Ranks) -> None:
    """Refuse processes that do not see the same files."""
    for split, digest in prepared.fingerprints().items() if ranks.count > 1 else ():
        ranks.refuse_difference(f"the {split} data", int(digest[:12], 16))
    ranks.refuse_difference("the newest checkpoint", step)


@contextmanager
def _locked(run: Path, ranks: Ranks) -> Generator[RunLock]:
    """Hold the run's lock, taken by the first process for all of them.

    It is released if the `with` ends in an error, even if someone keeps the error's traceback.
    """
    lock = RunLock(run)
    if ranks.first:
        lock.take()
    try:
        yield lock
    except BaseException:
        lock.release()
        raise


def _runtime(recipe: Recipe, ranks: Ranks) -> tuple[torch.device, int, list[str]]:
    refuse_untrackable(recipe.training.track)
    device, why = device_of(recipe.training.device, ranks)
    if recipe.model.attention == "flex":  # otherwise the first step would refuse it, after reading all data
        width = recipe.model.d_head or recipe.model.d_model // recipe.model.n_heads
        if reason := obstacle(device.type, width, torch.float32, learns=True):
            raise ConfigError(reason)
    number, threads = choose_threads(recipe.training.threads, ranks.local_count)
    return device, number, [f"device: {why}; {threads}", *notes_on(ranks, recipe.distributed.shard)]


def refuse_among_texts(data: DataConfig, out: Path) -> None:
    """Refuse a run folder inside a folder of texts, unless hidden. Errors: `ConfigError` naming both, before all else.

    The run would train, but its weights are not text: resuming or scoring it later would be refused.
    """
    for split in SPLITS:
        name = data.text_file(split)
        if name is None or not (folder := Path(name)).is_dir():
            continue
        inside, whole = out.resolve(), folder.resolve()
        if inside.is_relative_to(whole) and not any(p.startswith(".") for p in inside.relative_to(whole).parts):
            raise ConfigError(
                "The run folder must not be in a folder of texts, as every file there is read as text; got the "
                f"{split} text {name} and the run folder {out} in it. Choose another run folder with --out, or move "
                "the texts to a folder of their own."
            )
