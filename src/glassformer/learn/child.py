"""The process that runs a learner's file for `checking.py`: judges exercise after exercise, a line of JSON for each."""

from __future__ import annotations

import faulthandler
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from glassformer.base.errors import DataError
from glassformer.learn.course import read_course
from glassformer.learn.judge import judge
from glassformer.learn.source import read_source
from glassformer.proof.check.examine import load
from glassformer.proof.check.property import Piece


def work(path: Path, folder: Path, numbers: Sequence[str], out: Path, limit: float) -> None:
    """Judge the exercises `numbers` of a course for a learner's file; write into `out`: verdicts.jsonl, stack.txt."""
    torch.set_num_threads(1)
    sys.path.append(str(path.parent))  # for imports of modules in the same folder
    course = read_course(folder)
    with (out / "stack.txt").open("w") as stack, (out / "verdicts.jsonl").open("w", encoding="utf-8") as lines:
        faulthandler.dump_traceback_later(limit, exit=True, file=stack)

        def put(row: dict[str, Any]) -> None:
            lines.write(json.dumps(row) + "\n")
            lines.flush()

        try:
            things = vars(load(path))
        except DataError as error:
            put({"problem": str(error)})
            return
        source, examined = read_source(path), dict[str, Piece]()
        for number in numbers:
            torch.manual_seed(0)
            put({"begun": number})
            put(judge(course, course.exercise(number), things, source, examined).as_json())
        faulthandler.cancel_dump_traceback_later()
        put({"end": True})


def main(words: Sequence[str]) -> None:
    """Do the work. The words are: file, folder of the course, numbers with commas, output folder, seconds."""
    path, folder, numbers, out, limit = words
    work(Path(path), Path(folder), numbers.split(","), Path(out), float(limit))


if __name__ == "__main__":
    main(sys.argv[1:])
