"""CTranslate2 in a process of its own: two libraries of threads in one process make both of them slow.

    python benchmarks/engine.py FOLDER COMPUTE_TYPE THREADS generator|translator

Each line read is a JSON object {"words": [[...]], "asked": {...}}, each line written {"found": [[...]], "seconds": ...}
with the processor time that it took.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Engine:
    """A converted model that answers rows of words. Its process ends when nothing refers to it any more."""

    spent = 0.0
    """Processor time of all engines so far, in seconds."""

    def __init__(self, folder: Path, compute_type: str, threads: int, *, whole: bool) -> None:
        """`whole`: the model has an encoder. As many threads as torch has make the comparison fair."""
        words = [__file__, str(folder), compute_type, str(threads), "translator" if whole else "generator"]
        self._process = subprocess.Popen(
            [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, words: Sequence[Sequence[str]], **requested: Any) -> list[list[str]]:
        """Return the words written for each row; `requested` goes to CTranslate2."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"words": words, "asked": requested}), file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline())
        Engine.spent += answer["seconds"]
        return answer["found"]

    def __del__(self) -> None:
        self._process.kill()
        self._process.communicate()


def processor_time() -> float:
    """Return the processor time of this process and of all engines, in seconds."""
    return time.process_time() + Engine.spent


def serve(folder: str, compute_type: str, threads: str, kind: str) -> None:
    """Answer lines of standard input until it ends."""
    if hasattr(os, "sched_setaffinity"):  # with OMP_PROC_BIND, this process has inherited the one processor of a thread
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    import ctranslate2

    settings = {"device": "cpu", "compute_type": compute_type, "inter_threads": 1, "intra_threads": int(threads)}
    model: Any = (ctranslate2.Translator if kind == "translator" else ctranslate2.Generator)(folder, **settings)
    for line in sys.stdin:
        given, began = json.loads(line), time.process_time()
        if kind == "translator":
            found = [each.hypotheses[0] for each in model.translate_batch(given["words"], **given["asked"])]
        else:
            found = [each.sequences[0] for each in model.generate_batch(given["words"], **given["asked"])]
        print(json.dumps({"found": found, "seconds": time.process_time() - began}), flush=True)


if __name__ == "__main__":
    serve(*sys.argv[1:])
