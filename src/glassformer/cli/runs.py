"""Finds and checks run folders for the command line: those that must exist, and those that must not."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Collection, Generator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from glassformer.base.errors import CheckpointError, ConfigError
from glassformer.cli.arguments import Arguments, meant_run, whole_number
from glassformer.store.files import LEFTOVER, absolute, alive, beside, leftovers, refuse_unnamable
from glassformer.store.folders import (
    CONFIG,
    LOCK,
    MANIFEST,
    OPTIMIZER,
    REQUIRED,
    SOURCE_TOKENIZER,
    STATE,
    STEP,
    RunLock,
    checkpoints,
    refuse_in_training,
)
from glassformer.train.recipe import Recipe, load_recipe

RUNS = Path("runs")
CONTENT = {
    LOCK,
    "recipe.toml",
    "metrics.jsonl",
    "timing.jsonl",
    "log.txt",
    "samples",
    "checkpoints",
    "tensorboard",
    "heads.json",
    "explorer.html",
}
"""What a run writes into its folder. `--overwrite` deletes a folder only if it holds nothing else."""
IN_CHECKPOINT = (*REQUIRED, OPTIMIZER, SOURCE_TOKENIZER, MANIFEST)
WRITTEN = re.compile(
    rf"({'|'.join(map(re.escape, CONTENT))}|samples/{STEP.pattern}\.txt|tensorboard/events\.out\.tfevents\.[0-9]+"
    rf"|checkpoints/{STEP.pattern}(/({'|'.join(map(re.escape, IN_CHECKPOINT))}))?)"
)
"""Matches the path, inside a run folder, of everything that a run writes."""
NAME_MAX, PATH_MAX = 255, 4096
"""The most bytes in a name and in a path, for systems that do not say."""
DEEPEST = 100
"""How many bytes the longest path inside a run folder adds to the path of the folder."""


def existing_run(target: str, presets: Collection[str] = (), texts: str = "") -> Path:
    """Return the run folder that a user named.

    Errors: `CheckpointError` saying what is there instead, with the nearest run. `presets` are the names that the verb
    also takes; the caller has already checked that the target is none of them. `texts` is as in `existing_runs`.
    """
    path = Path(target)
    refuse_unnamable(path)
    if (path / "recipe.toml").is_file():
        return path
    put_back(path)
    if (path / "recipe.toml").is_file():
        return path
    if path.is_dir() and (kept := checkpoints(path)):
        raise CheckpointError(
            f"{target} is a run folder without its recipe.toml. Restore it from a copy, or write it again: its "
            f'settings are in {list(kept.values())[-1] / STATE}, under "recipe", by their full names.'
        )
    run = path.parent.parent
    if STEP.fullmatch(path.name) and path.parent.name == "checkpoints" and (run / "recipe.toml").is_file():
        raise CheckpointError(f"{target} is a checkpoint of the run {run}. Give the run: {shlex.quote(str(run))}")
    what = "has no recipe.toml" if path.is_dir() else "is a file" if path.exists() else "does not exist"
    runs = {str(each.parent) for folder in {RUNS, path.parent} for each in folder.glob("*/recipe.toml")}
    hint = meant_run(target, runs, presets)
    if (path / CONFIG).is_file():
        hint = f"If Hugging Face's transformers saved it, make a run of it: glassformer import {shlex.quote(target)}"
    nor = ", and no preset has that name" if presets else ""
    raise CheckpointError(f"{target} is not a run folder: it {what}{nor}. {hint} {texts}".rstrip())


def existing_runs(arguments: Arguments, texts: str = "") -> list[Path]:
    """Return the folders of a verb that takes several runs. `texts` says how a text is given that is no run's name.

    Errors: as `existing_run`; `ConfigError` for one named twice.
    """
    targets = [str(arguments.target), *arguments.more]
    folders = [existing_run(target, texts=texts if i else "") for i, target in enumerate(targets)]
    places = [folder.resolve() for folder in folders]
    for target, place in zip(targets, places, strict=True):
        if places.count(place) > 1:
            raise ConfigError(f"{target} is named twice. Name each run once.")
    return folders


def recipe_of(run: Path) -> Recipe:
    """Return the resolved recipe in a run folder."""
    return load_recipe(run / "recipe.toml")


def averaged(arguments: Arguments) -> int | None:
    """Return how many checkpoints --average asks for, or None if it was not given. Errors: `ConfigError`."""
    given = arguments.options.get("average")
    return None if given is None else whole_number("average", given, 9999)


def free_name(wanted: Path) -> Path:
    """Return `wanted`, or, if that exists, the first of wanted-2, wanted-3, ... that does not."""
    names = (wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}") for number in count(1))
    return next(name for name in names if not os.path.lexists(name))


def run_folder(requested: str | None, usual: Path) -> Path:
    """Return where a new run goes: `--out`, else the usual place.

    Errors: `CheckpointError` if `--out` names no folder.
    """
    if requested is None:
        return usual
    if not requested:
        raise CheckpointError(
            f"--out names the run folder to create; got ''. Give a name, or remove --out to use {usual}."
        )
    out = Path(requested)
    out = absolute(out) if out.name in ("", "..") else out  # so that paths beside it can be named
    if not out.name:
        raise CheckpointError(
            f"A run folder needs a name; got {requested}, the root of the file system. Try --out {usual}."
        )
    return out


def check_room(out: Path, overwrite: bool, *, trains: bool = True) -> None:
    """Refuse a folder that cannot be created or is in use; with `overwrite`, one that is not a run or is in training.

    `trains`: whether the verb could continue a run that is there. Errors: `CheckpointError`, before anything is read or
    written; those of `put_back`.
    """
    check_place(out)
    put_back(out)
    if not in_use(out):
        return
    if not overwrite:
        raise CheckpointError(refusal(out, trains=trains))
    if reason := not_a_run(out):
        raise CheckpointError(
            f"--overwrite deletes run folders only; {out} {reason}. Delete it by hand, or choose another with --out."
        )
    if out.resolve() in (Path.cwd(), *Path.cwd().parents):
        raise CheckpointError(
            f"--overwrite would delete the folder that you are in, {out}. Change to another folder first."
        )
    refuse_in_training(out)


def check_place(out: Path) -> None:
    """Refuse a path that cannot become a folder: below a file, not writable, too long, or not valid as text."""
    refuse_unnamable(absolute(out))
    there = next(each for each in (out, *out.parents) if os.path.lexists(each))
    if there != out and not there.is_dir():
        raise CheckpointError(f"{out} cannot be created: {there} is not a folder. Choose another with --out.")
    if there.is_dir() and not os.access(there, os.W_OK | os.X_OK):
        raise CheckpointError(f"{out} cannot be created: {there} is not writable. Choose another with --out.")
    names = [*absolute(out).parent.parts, beside(out, "old").name]  # the last: its name while it is replaced
    longest = max(names, key=lambda name: len(os.fsencode(name)))
    for text, most in ((longest, limit(there, "PC_NAME_MAX")), (str(absolute(out)), limit(there, "PC_PATH_MAX"))):
        size = len(os.fsencode(text)) + (DEEPEST if text != longest else 0)
        if size > most:
            raise CheckpointError(
                f"A {'name' if text == longest else 'path'} may have at most {most} bytes here; {str(out)[:60]!r}... "
                f"would need one of {size}. Give a shorter --out."
            )


def limit(place: Path, name: str) -> int:
    """Return the most bytes that the file system of `place` allows in a name or a path."""
    usual = NAME_MAX if name == "PC_NAME_MAX" else PATH_MAX
    try:
        return os.pathconf(place, name)
    except (AttributeError, OSError, ValueError):
        return usual


@contextmanager
def room_for(out: Path) -> Generator[None]:
    """Context manager for creating a run folder; an existing run there, which passed `check_room`, is replaced.

    The old run is set aside first and deleted only once the new one exists, so that a mistake in the new recipe does
    not cost the old run. It stays locked throughout, so that nobody resumes it. Errors: `CheckpointError` if it is in
    use.
    """
    if not in_use(out):
        yield
        return
    lock = RunLock(out)
    lock.take()
    if not lock.works:  # on Windows a folder with an open file cannot be renamed
        lock.release()
    try:
        aside = beside(out, "old")
        out.rename(aside)
        try:
            yield
        except BaseException:
            shutil.rmtree(out, ignore_errors=True)
            aside.rename(out)
            raise
        # Delete the old runs that this one replaces; each is renamed from "old" first, so that a half-deleted run is
        # never put back.
        for each in leftovers(out.parent):
            if each.home == out and each.path.is_dir() and not alive(each.pid):
                doomed = beside(out, "tmp") if each.kind == "old" else each.path
                each.path.rename(doomed)
                shutil.rmtree(doomed)
    finally:
        lock.release()


def put_back(run: Path) -> None:
    """If a process died while replacing a run, restore the old run and say so.

    Errors: `CheckpointError` if that process is alive, or if the beginnings of its new run are in the way.
    """
    with suppress(PermissionError):
        asides = (each for each in leftovers(run.parent) if each.kind == "old" and each.home == run)
        aside = next((each for each in asides if not not_a_run(each.path)), None)
        if aside is None or in_use(run):
            return
        if alive(aside.pid):
            raise CheckpointError(
                f"{run} is being replaced by another run: process {aside.pid} was started with --overwrite. Wait until "
                "the new run trains, or stop that process, which restores the old run."
            )
        if os.path.lexists(run):
            raise CheckpointError(
                f"The process that was replacing {run} was killed. The old run, kept in {aside.path}, cannot be "
                f"restored while {run} exists. Delete {run}, which holds no run yet, and type the same command again."
            )
        with suppress(FileNotFoundError):  # another process of this command did it first
            aside.path.rename(run)
            text = f"The process that was replacing {run} was killed before it finished: the old run is restored."
            print(f"glassformer: {text}", file=sys.stderr)


def in_use(out: Path) -> bool:
    """Whether a path is taken: not by an empty folder, nor by what a process left that died when it began a run."""
    begun = {each.path for each in leftovers(out) if each.kind == "tmp" and each.home.name in CONTENT} | {out / LOCK}
    return os.path.lexists(out) and (not out.is_dir() or any(each not in begun for each in out.iterdir()))


def refusal(out: Path, *, trains: bool) -> str:
    """Return the error for an existing path; for a run folder it names the user's choices."""
    if not (out / "recipe.toml").is_file():
        kind = "is not a run folder" if out.is_dir() else "is a file" if out.is_file() else "is not a folder"
        return f"{out} exists and {kind}. Choose another with --out {shlex.quote(str(free_name(out)))}."
    if not trains:
        return (
            f"{out} exists. Write another folder (--out {shlex.quote(str(free_name(out)))}), or delete it and write it "
            "again (--overwrite)."
        )
    return (
        f"{out} exists. Choose one of three: continue it (glassformer resume {shlex.quote(str(out))}), train in "
        f"another folder (--out {shlex.quote(str(free_name(out)))}), or delete it and start over (--overwrite)."
    )


def not_a_run(path: Path) -> str | None:
    """Return why a path does not look like a run folder, else None. It guards everything else against deletion.

    A run folder has a recipe and a lock and, at any depth, only what runs write. A folder where a user keeps a recipe,
    or one with a note among the samples, is not a run folder.
    """
    if path.is_symlink():
        return "is a link"
    if not path.is_dir():
        return "is a file"
    for name in ("recipe.toml", LOCK):
        if not (path / name).is_file():
            return f"has no {name}"
    strange = foreign(path)
    return f"also holds {', '.join(strange[:3])}, which no run writes" if strange else None


def foreign(run: Path) -> list[str]:
    """List the paths inside a run folder that no run writes. Leftovers of a killed run count as the run's own."""
    found: list[str] = []
    for folder, folders, files in os.walk(run):
        for name in (*folders, *files):
            unfinished = LEFTOVER.fullmatch(name)
            place = Path(folder, unfinished[2] if unfinished else name).relative_to(run).as_posix()
            if not WRITTEN.fullmatch(place):
                found.append(Path(folder, name).relative_to(run).as_posix())
        folders[:] = [name for name in folders if not LEFTOVER.fullmatch(name)]
    return sorted(found)
