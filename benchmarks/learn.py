"""How long it takes from a save to the verdict of `glassformer learn --watch`, with polling left out.

Each save changes the attention of a file with all solutions. `one exercise` has nothing else done; `all done` checks
again whatever depends on attention. A save that breaks it makes many exercises fail, and their lines are looked for.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from common import arguments, begin, compare, finish

from glassformer.learn.checking import Checker, warmed
from glassformer.learn.course import read_course
from glassformer.learn.watch import watching
from glassformer.learn.workspace import Workspace

RIGHT = "scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))"
WRONG = "scores = q @ k.transpose(-2, -1)"


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    options = arguments("learn", __doc__ or "", rounds=10).parse_args(words)
    begin("learn: from a save to the verdict", options)
    with tempfile.TemporaryDirectory(prefix="glassformer-learn-") as folder:
        contestants = {
            "all done": saver(Path(folder) / "all", "", RIGHT),
            "all done, broken": saver(Path(folder) / "broken", "", WRONG),
            "one exercise": saver(Path(folder) / "one", "1.2", RIGHT),
        }
        rows = [compare({"saved": "attention"}, contestants, options.rounds)]
    return finish("learn", rows, options)


def saver(folder: Path, last: str, line: str) -> Callable[[], str]:
    """Return a function that saves the solutions up to `last` with another attention, and gives the watch's screen."""
    course, numbers = read_course(), count()
    folder.mkdir()
    path = course.write(folder, course.solution_file(last))
    text = path.read_text("utf-8")
    assert RIGHT in text
    watch, _ = watching(Workspace(course, folder), Checker(course, path, run=warmed()), 80, course.exercise("1.2"))

    def save() -> str:
        path.write_text(text.replace(RIGHT, f"{line}\n    changed = {next(numbers)}"), "utf-8")
        return watch.saved()

    return save


if __name__ == "__main__":
    raise SystemExit(main())
