"""Run folders as the command line meets them: one that must exist, and one that must not."""

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

from glassformer.cli.arguments import Arguments, whole_number
from glassformer.foundation.errors import CheckpointError, ConfigError
from glassformer.foundation.registry import suggestion
from glassformer.store.files import refuse_unnamable
from glassformer.store.folders import OPTIMIZER, REQUIRED, SOURCE_TOKENIZER, STATE, STEP, checkpoints
from glassformer.store.leftovers import LEFTOVER, absolute, alive, beside, leftovers
from glassformer.store.lock import LOCK, RunLock, refuse_in_training
from glassformer.store.manifest import MANIFEST
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
"""What a run writes into its folder. `--overwrite` deletes a folder that holds this and nothing else."""
IN_CHECKPOINT = (*REQUIRED, OPTIMIZER, SOURCE_TOKENIZER, MANIFEST)
WRITTEN = re.compile(
    rf"({'|'.join(map(re.escape, CONTENT))}|samples/{STEP.pattern}\.txt|tensorboard/events\.out\.tfevents\.[0-9]+"
    rf"|checkpoints/{STEP.pattern}(/({'|'.join(map(re.escape, IN_CHECKPOINT))}))?)"
)
"""The path of everything that a run writes, in its folder."""
NAME_MAX, PATH_MAX = 255, 4096
"""Bytes of a name and of a path, where the system does not say."""
DEEPEST = 100
"""Bytes that the longest path inside a run folder adds to the folder's own."""


def existing_run(target: str, presets: Collection[str] = ()) -> Path:
    """The run folder that a user named. Errors: `CheckpointError` saying what is there instead, and the nearest run.

    `presets` are what the verb takes as well; who calls has looked, and the target is none of them.
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
            f"{target} is a run without its recipe.toml. Put it back from a copy, or write it anew: the settings stand "
            f'under "recipe" in {list(kept.values())[-1] / STATE}, by their whole names.'
        )
    what = "has no recipe.toml" if path.is_dir() else "is a file" if path.exists() else "does not exist"
    runs = {str(each.parent) for folder in {RUNS, path.parent} for each in folder.glob("*/recipe.toml")}
    known = [*runs, *presets]
    hint = suggestion(target, known) if known else "Make one with `glassformer train RECIPE`."
    nor = ", and no preset has that name" if presets else ""
    raise CheckpointError(f"{target} is not a run folder: it {what}{nor}. {hint}")


def existing_runs(arguments: Arguments) -> list[Path]:
    """The run folders of a verb that takes several. Errors: those of `existing_run`; `ConfigError` for one twice."""
    targets = [str(arguments.target), *arguments.more]
    folders = [existing_run(target) for target in targets]
    places = [folder.resolve() for folder in folders]
    for target, place in zip(targets, places, strict=True):
        if places.count(place) > 1:
            raise ConfigError(f"{target} is named twice. Name each run once.")
    return folders


def recipe_of(run: Path) -> Recipe:
    """The resolved recipe that a run folder holds."""
    return load_recipe(run / "recipe.toml")


def averaged(arguments: Arguments) -> int | None:
    """How many checkpoints --average asks for the mean of; none where it does not. Errors: `ConfigError`."""
    given = arguments.options.get("average")
    return None if given is None else whole_number("average", given, 9999)


def free_name(wanted: Path) -> Path:
    """`wanted`, or if it is taken the first of wanted-2, wanted-3, ... that is not."""
    names = (wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}") for number in count(1))
    return next(name for name in names if not os.path.lexists(name))


def run_folder(asked: str | None, usual: Path) -> Path:
    """Where a new run goes: what `--out` says, else the usual place. Errors: `CheckpointError` for no name at all."""
    if asked is None:
        return usual
    if not asked:
        raise CheckpointError(f"--out names the run folder to make; got ''. Leave it out for {usual}, or name one.")
    out = Path(asked)
    out = absolute(out) if out.name in ("", "..") else out  # so that what stands beside it has a name
    if not out.name:
        raise CheckpointError(f"A run folder has a name of its own; got {asked}, the root. Try --out {usual}.")
    return out


def check_room(out: Path, overwrite: bool) -> None:
    """Refuse a folder that cannot be made, or is in use; with `overwrite` one that is no run, or in training.

    Errors: `CheckpointError`, before anything is read or written; those of `put_back`.
    """
    check_place(out)
    put_back(out)
    if not in_use(out):
        return
    if not overwrite:
        raise CheckpointError(refusal(out))
    if reason := not_a_run(out):
        raise CheckpointError(f"--overwrite deletes run folders only; {out} {reason}. Delete it by hand, or use --out.")
    if out.resolve() in (Path.cwd(), *Path.cwd().parents):
        raise CheckpointError(f"--overwrite would delete the folder that you are in, {out}. Type cd elsewhere first.")
    refuse_in_training(out)


def check_place(out: Path) -> None:
    """Refuse a path that no folder can have: below a file, where one may not write, too long, or no text."""
    refuse_unnamable(absolute(out))
    there = next(each for each in (out, *out.parents) if os.path.lexists(each))
    if there != out and not there.is_dir():
        raise CheckpointError(
            f"{out} cannot be made, as {there} is no folder that could hold it. Choose another with --out."
        )
    if there.is_dir() and not os.access(there, os.W_OK | os.X_OK):
        raise CheckpointError(f"{out} cannot be made, as {there} is not yours to write in. Choose another with --out.")
    names = [*absolute(out).parent.parts, beside(out, "old").name]  # it has the latter for a moment when replaced
    longest = max(names, key=lambda name: len(os.fsencode(name)))
    for text, most in ((longest, limit(there, "PC_NAME_MAX")), (str(absolute(out)), limit(there, "PC_PATH_MAX"))):
        size = len(os.fsencode(text)) + (DEEPEST if text != longest else 0)
        if size > most:
            raise CheckpointError(
                f"A {'name' if text == longest else 'path'} may have at most {most} bytes here; {str(out)[:60]!r}... "
                f"would need one of {size}. Give a shorter --out."
            )


def limit(place: Path, name: str) -> int:
    """What the file system of `place` allows for a name or a path, in bytes."""
    usual = NAME_MAX if name == "PC_NAME_MAX" else PATH_MAX
    try:
        return os.pathconf(place, name)
    except (AttributeError, OSError, ValueError):
        return usual


@contextmanager
def room_for(out: Path) -> Generator[None]:
    """Create a run folder inside the `with`; one that is there, and passed `check_room`, is replaced.

    The old one is put aside first and deleted only when the new one stands, so that a mistake in the new recipe does
    not cost the old run. All the while it is locked, so that nobody goes on with it. Errors: `CheckpointError` where
    somebody does.
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
        remove_replaced(out)
    finally:
        lock.release()


def remove_replaced(out: Path) -> None:
    """Delete what was put aside for the run that stands, by this process or by one that died since.

    What is half deleted is never put back: it is no "old" one any more.
    """
    for each in leftovers(out.parent):
        if each.home == out and each.path.is_dir() and not alive(each.pid):
            doomed = beside(out, "tmp") if each.kind == "old" else each.path
            each.path.rename(doomed)
            shutil.rmtree(doomed)


def put_back(run: Path) -> None:
    """Where a process died as it replaced a run, put the old one in its place again, and say so.

    Errors: `CheckpointError` where the process lives, or its new run had just begun to be.
    """
    with suppress(PermissionError):
        asides = (each for each in leftovers(run.parent) if each.kind == "old" and each.home == run)
        aside = next((each for each in asides if not not_a_run(each.path)), None)
        if aside is None or in_use(run):
            return
        if alive(aside.pid):
            raise CheckpointError(
                f"{run} is being replaced by another run: process {aside.pid} was told to --overwrite it. Wait until "
                "that one trains, or stop it, which gives the old run back."
            )
        if os.path.lexists(run):
            raise CheckpointError(
                f"A run that is replaced must be put back where the new one was killed as it began, but {run} is in "
                f"the way of {aside.path}. Delete {run}, in which there is nothing yet, and type the same again."
            )
        with suppress(FileNotFoundError):  # another process of the same command was faster
            aside.path.rename(run)
            text = f"{run} was to be replaced, but the process that began to was killed: the old run is back."
            print(f"glassformer: {text}", file=sys.stderr)


def in_use(out: Path) -> bool:
    """Whether anything is there but an empty folder, or what a process left that died as it began a run there."""
    begun = {each.path for each in leftovers(out) if each.kind == "tmp" and each.home.name in CONTENT} | {out / LOCK}
    return os.path.lexists(out) and (not out.is_dir() or any(each not in begun for each in out.iterdir()))


def refusal(out: Path) -> str:
    """The three choices of a user whose run folder exists."""
    if not (out / "recipe.toml").is_file():
        kind = "is no run folder" if out.is_dir() else "is a file" if out.is_file() else "is no folder"
        return f"{out} exists and {kind}. Choose another with --out {shlex.quote(str(free_name(out)))}."
    return (
        f"{out} exists. Choose one of three: go on with it (glassformer resume {shlex.quote(str(out))}), train beside "
        f"it (--out {shlex.quote(str(free_name(out)))}), or delete it and start over (--overwrite)."
    )


def not_a_run(path: Path) -> str | None:
    """Why a path does not look like a run folder, so that nothing else is ever deleted.

    A run has a recipe and a lock, and nothing in it but what runs write, at any depth: a folder in which a user keeps
    a recipe, or a note among the samples, is none.
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
    """What lies in a folder and no run writes, by its path in there; leftovers of a killed run are its own."""
    found: list[str] = []
    for folder, folders, files in os.walk(run):
        for name in (*folders, *files):
            unfinished = LEFTOVER.fullmatch(name)
            place = Path(folder, unfinished[2] if unfinished else name).relative_to(run).as_posix()
            if not WRITTEN.fullmatch(place):
                found.append(Path(folder, name).relative_to(run).as_posix())
        folders[:] = [name for name in folders if not LEFTOVER.fullmatch(name)]
    return sorted(found)
