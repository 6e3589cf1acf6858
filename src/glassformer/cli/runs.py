"""Run folders as the command line meets them: one that must exist, and one that must not."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Collection, Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from glassformer.foundation.errors import CheckpointError
from glassformer.foundation.registry import suggestion
from glassformer.store.leftovers import beside, leftovers
from glassformer.store.lock import LOCK, refuse_in_training
from glassformer.train.recipe import Recipe, load_recipe

RUNS = Path("runs")
CONTENT = {LOCK, "recipe.toml", "metrics.jsonl", "timing.jsonl", "log.txt", "samples", "checkpoints"}
"""What a run writes into its folder. `--overwrite` deletes a folder that holds this and nothing else."""


def existing_run(target: str, presets: Collection[str] = ()) -> Path:
    """The run folder that a user named. Errors: `CheckpointError` saying what is there instead, and the nearest run.

    `presets` are what the verb takes as well; who calls has looked, and the target is none of them.
    """
    path = Path(target)
    if (path / "recipe.toml").is_file():
        return path
    what = "has no recipe.toml" if path.is_dir() else "is a file" if path.exists() else "does not exist"
    runs = {str(each.parent) for folder in {RUNS, path.parent} for each in folder.glob("*/recipe.toml")}
    known = [*runs, *presets]
    hint = suggestion(target, known) if known else "Make one with `glassformer train RECIPE`."
    nor = ", and no preset has that name" if presets else ""
    raise CheckpointError(f"{target} is not a run folder: it {what}{nor}. {hint}")


def recipe_of(run: Path) -> Recipe:
    """The resolved recipe that a run folder holds."""
    return load_recipe(run / "recipe.toml")


def free_name(wanted: Path) -> Path:
    """`wanted`, or if it is taken the first of wanted-2, wanted-3, ... that is not."""
    names = (wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}") for number in count(1))
    return next(name for name in names if not os.path.lexists(name))


def check_room(out: Path, overwrite: bool) -> None:
    """Refuse a folder in use; with `overwrite` one that is no run, or in training. Errors: `CheckpointError`."""
    if not in_use(out):
        return
    if not overwrite:
        raise CheckpointError(refusal(out))
    if reason := not_a_run(out):
        raise CheckpointError(f"--overwrite deletes run folders only; {out} {reason}. Delete it by hand, or use --out.")
    refuse_in_training(out)


@contextmanager
def room_for(out: Path) -> Generator[None]:
    """Create a run folder inside the `with`; one that is there, and passed `check_room`, is replaced.

    The old one is put aside first and deleted only when the new one stands, so that a mistake in the new recipe does
    not cost the old run.
    """
    if not in_use(out):
        yield
        return
    aside = beside(out, "old")
    out.rename(aside)
    try:
        yield
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        aside.rename(out)
        raise
    shutil.rmtree(aside)


def in_use(out: Path) -> bool:
    """Whether anything is there but an empty folder, or what a process left that died as it began a run there."""
    begun = {each.path for each in leftovers(out) if each.kind == "tmp" and each.home.name in CONTENT} | {out / LOCK}
    return os.path.lexists(out) and (not out.is_dir() or any(each not in begun for each in out.iterdir()))


def refusal(out: Path) -> str:
    """The three choices of a user whose run folder exists."""
    if not (out / "recipe.toml").is_file():
        return f"{out} exists and is no run folder. Choose another with --out {shlex.quote(str(free_name(out)))}."
    return (
        f"{out} exists. Choose one of three: go on with it (glassformer resume {shlex.quote(str(out))}), train beside "
        f"it (--out {shlex.quote(str(free_name(out)))}), or delete it and start over (--overwrite)."
    )


def not_a_run(path: Path) -> str | None:
    """Why a path does not look like a run folder, so that nothing else is ever deleted."""
    if path.is_symlink():
        return "is a link"
    if not path.is_dir():
        return "is a file"
    if not (path / "recipe.toml").is_file():
        return "has no recipe.toml"
    foreign = sorted(
        each.name
        for each in path.iterdir()
        if each.name not in CONTENT and not each.name.startswith((".tmp-", ".old-"))
    )
    return f"also holds {', '.join(foreign[:3])}, which no run writes" if foreign else None
