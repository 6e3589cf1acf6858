"""`glassformer ablate`, stopped by a signal: every arm saves first."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from glassformer.cli import ablate
from glassformer.store.folders import newest, refuse_in_training
from glassformer.study.pool import Wrote
from study.examples import TINY


def words(*more: str) -> list[str]:
    return ["ablate", "reverse", *TINY, *more, "--out", "study"]


@pytest.fixture
def interrupting(monkeypatch) -> Callable[[signal.Signals, int], None]:
    """Sends this process a signal once so many arms have told of an evaluation."""

    def when(number: signal.Signals, arms: int) -> None:
        heard: set[str] = set()

        class Watching(ablate.Progress):
            def __call__(self, event, stopping: bool) -> None:
                super().__call__(event, stopping)
                before = len(heard)
                if isinstance(event, Wrote):
                    heard.add(event.task.name)
                if before < len(heard) == arms:
                    os.kill(os.getpid(), number)

        monkeypatch.setattr(ablate, "Progress", Watching)

    return when


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_signal_lets_all_arms_save_and_stop(run, interrupting, monkeypatch, number, code):
    monkeypatch.setattr(ablate, "free_processors", lambda: 2)
    interrupting(number, 2)
    answer = run(*words("--vary", "model.n_layers=1,2,3", "--seeds", "1", "--training.steps", "1000000"))
    assert answer.code == code
    assert answer.out == ""
    assert "Type the same command to continue" in answer.err
    begun = sorted(Path("study/runs").iterdir())
    assert [path.name for path in begun] == ["model.n_layers=1,seed=1", "model.n_layers=2,seed=1"]
    for path in begun:
        saved = newest(path).folder
        last = json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])["step"]
        assert saved.name == f"step-{last:09d}"
        refuse_in_training(path)
