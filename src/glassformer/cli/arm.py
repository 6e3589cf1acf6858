"""Runs one arm of a study in a process of its own: trains or resumes it like any run, then scores it.

`glassformer ablate` starts this process with one line of JSON on standard input and keeps that pipe open. When the
input ends, the study is gone, so the arm saves and stops. At each evaluation it writes a line of JSON to standard
output.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import tomllib
from pathlib import Path
from typing import Any, TextIO

from glassformer.cli.main import complain, debugging, explained
from glassformer.store.files import write_text_atomically
from glassformer.train.recipe import Recipe, read_table
from glassformer.train.records import Evaluated, Event


def main() -> int:
    """Read the message, run the arm, and return the same exit code as the command line would."""
    message = json.loads(sys.stdin.readline())
    study = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # anything else that writes to standard output goes to the log
    threading.Thread(target=stop_with_the_study, daemon=True).start()
    try:
        return work(message, study)
    except KeyboardInterrupt as stop:
        return complain("Stopped.", getattr(stop, "exit_code", 130))
    except Exception as error:
        known = explained(error, ())
        if known is None or debugging(()):
            raise
        return complain(*known)


def stop_with_the_study() -> None:
    """Wait until standard input ends, then send this process SIGTERM."""
    while os.read(0, 1024):
        pass
    if sys.platform == "win32":  # where os.kill would end this process at once, without a checkpoint
        signal.raise_signal(signal.SIGTERM)
    else:
        os.kill(os.getpid(), signal.SIGTERM)


def work(message: dict[str, Any], study: TextIO) -> int:
    """Train to the end, reporting each evaluation to the study, then score. If training is finished, only score."""
    from glassformer.cli.follow import Signals, follow
    from glassformer.fast import for_training
    from glassformer.study.result import score
    from glassformer.train.run.session import resume, start

    recipe = read_table(Recipe, tomllib.loads(message["recipe"]), "the arm's recipe")
    run, metric = Path(message["run"]), recipe.training.metric

    def tell(event: Event) -> None:
        if isinstance(event, Evaluated):
            value = event.metrics[metric]
            record = {"step": event.step, "steps": recipe.training.steps, "metric": metric, "value": value}
            study.write(json.dumps(record) + "\n")

    with Signals() as signals:
        begun = (run / "recipe.toml").is_file()
        session = resume(run, speed=for_training) if begun else start(recipe, run, speed=for_training)
        code = follow(session, run, signals, tell, track=recipe.training.track)
    if code:
        return code
    result = score(run, message["values"], message["other_data"])
    write_text_atomically(Path(message["scores"]), result.as_json() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
