"""A process of its own that saves where there is no room; prints one JSON line for each try.

python disk_full.py FOLDER limit LEVELS     files may not grow beyond a limit (RLIMIT_FSIZE)
python disk_full.py FOLDER tmpfs LEVELS     FOLDER is a small file system of its own, filled up to a level
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glassformer.base.errors import CheckpointError, GlassformerError, ResourceError
from glassformer.store.files import free_bytes
from glassformer.store.folders import newest
from store.examples import assert_is_step, contents, names, save_step


@contextmanager
def file_limit(size: int) -> Iterator[None]:
    """No file of this process may become larger than `size` bytes."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


@contextmanager
def room_left(folder: Path, size: int) -> Iterator[None]:
    """The disk of `folder` has about `size` bytes left."""
    ballast = folder / "ballast"
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, (free_bytes(folder) or 0) - size)
    try:
        yield
    finally:
        ballast.unlink()


def try_save(run: Path) -> dict[str, object]:
    """Save step 2 and say how it went; whatever happens, step 1 is what it was and nothing lies around."""
    before = contents(run / "checkpoints" / "step-000000001")
    try:
        save_step(run, 2)
        outcome: dict[str, object] = {"saved": True}
        assert_is_step(run / "checkpoints" / "step-000000002", 2)
        for path in (run / "checkpoints" / "step-000000002").iterdir():
            path.unlink()
        (run / "checkpoints" / "step-000000002").rmdir()
    except ResourceError as error:
        outcome = {"saved": False, "message": str(error), "exit_code": error.exit_code}
    found = newest(run)
    outcome["intact"] = contents(run / "checkpoints" / "step-000000001") == before
    outcome["left"] = names(run / "checkpoints")
    outcome["newest"] = found.folder is not None and found.folder.name
    return outcome


def main(folder: str, kind: str, levels: str) -> None:
    """Try at every level from no room at all to room enough."""
    run = Path(folder) / "run"
    step = save_step(run, 1)
    sizes = [path.stat().st_size for path in step.iterdir()]
    enough = max(sizes) if kind == "limit" else sum(sizes) + 20 * 4096
    for level in range(int(levels) + 1):
        size = enough * level // int(levels)
        with file_limit(size) if kind == "limit" else room_left(Path(folder), size):
            outcome = try_save(run)
        print(json.dumps({**outcome, "needed": sum(sizes), "room": size}))
    if kind == "tmpfs":
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        assert_is_step(run, 1)
        try:
            save_step(run, 2)
        except CheckpointError as error:
            print(json.dumps({"read_only": str(error), "left": names(run / "checkpoints")}))
        except GlassformerError as error:
            print(json.dumps({"read_only": f"{type(error)} {error}"}))


if __name__ == "__main__":
    main(*sys.argv[1:])
