"""Arms, results and settings for the tests of studies."""

import json
from collections.abc import Generator
from contextlib import redirect_stderr
from pathlib import Path
from tempfile import TemporaryFile

from glassformer.base.errors import GlassformerError
from glassformer.cli import arm
from glassformer.study.pool import Begun, Ended, Pool, Wrote
from glassformer.study.result import Result, result_from

TINY = (
    *("--model.d-model", "16", "--model.n-heads", "2", "--model.d-ff", "16", "--training.device", "cpu"),
    *("--training.steps", "8", "--training.batch-tokens", "256", "--training.evaluate-every", "2"),
    *("--training.samples", "0", "--training.warmup", "2", "--checkpoint.every", "4", "--checkpoint.keep", "9"),
    *("--data.train-size", "64", "--data.dev-size", "5", "--data.test-size", "6", "--data.max-length", "9"),
)
"""Of the recipe `reverse`: a second of training."""


def result(values: dict[str, object], seed: int, score: float = 0.5, **changes: object) -> Result:
    """A finished arm: its metric rises to `score` in four evaluations."""
    found = {
        "values": values, "seed": seed, "metric": "exact_match", "split": "test",
        "test": {"exact_match": score, "loss": 1 - score, "n": 1000, "by_length": {"2": {"exact_match": 1.0, "n": 9}}},
        "other_data": {}, "other": None, "curve": [(50 * step, score * step / 4) for step in range(1, 5)],
        "parameters": 1234567, "steps": 200, "seconds": 10.0 + seed, "data": "0a",
    }  # fmt: skip
    return Result(**{**found, **changes})


def results_of(path: Path) -> list[Result]:
    """The lines of a results.jsonl."""
    return [result_from(json.loads(line), str(path)) for line in path.read_text("utf-8").splitlines()]


class Here(Pool):
    """Does what the processes of a study would do in this one, in turn, without loading torch anew for each."""

    def run(self) -> Generator[Begun | Wrote | Ended]:
        """What happens, until all have ended."""
        for task in self.waiting:
            yield Begun(task)
            task.log.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryFile("w+", encoding="utf-8") as pipe, task.log.open("a", encoding="utf-8") as log:
                try:
                    with redirect_stderr(log):
                        code = arm.work(json.loads(task.message), pipe)
                except GlassformerError as error:
                    print(error, file=log)
                    code = error.exit_code
                pipe.seek(0)
                yield from (Wrote(task, line) for line in pipe.read().splitlines())
            yield Ended(task, code)


def grid(**changes: object) -> list[Result]:
    """Two settings of two values each, two seeds."""
    return [
        result({"model.n_layers": layers, "model.norm": norm}, seed, 0.1 * layers + 0.01 * seed, **changes)
        for layers in (1, 4)
        for norm in ("layer", "rms")
        for seed in (1, 2)
    ]
