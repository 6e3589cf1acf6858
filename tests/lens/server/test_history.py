"""Roles over the checkpoints of a run, as the page is told of them."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import pytest

from glassformer.foundation.errors import CheckpointError
from glassformer.lens.roles.run import over_checkpoints
from glassformer.lens.server import history as module
from glassformer.lens.server.history import SEQUENCES, History
from glassformer.store.checkpoint import load
from lens.test_roles_of_a_run import SMALL, untrained_run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return untrained_run(tmp_path_factory.mktemp("history") / "tiny", "reverse", SMALL, steps=(1, 2, 3))


def test_scores_are_those_of_each_checkpoint(made):
    found = History(made)()
    seen = {at.step: at.diagnosis.to_json() for at in over_checkpoints(made, sequences=SEQUENCES)}
    assert found["steps"] == [1, 2, 3]
    for i, curve in enumerate(found["heads"]):
        assert curve["id"] == seen[3][i]["id"]
        assert curve["scores"] == [seen[step][i]["scores"][curve["role"]] for step in (1, 2, 3)]
        assert curve["role"] in seen[3][i]["scores"]


def test_each_checkpoint_is_looked_at_once(made, tmp_path, monkeypatch):
    run = tmp_path / "run"
    shutil.copytree(made, run)
    last = max((run / "checkpoints").iterdir())
    shutil.move(last, tmp_path / "later")
    looked = []

    def counted(*given, **more):
        for at in over_checkpoints(*given, **more):
            looked.append(at.step)
            yield at

    monkeypatch.setattr(module, "over_checkpoints", counted)
    history = History(run)
    assert history()["steps"] == [1, 2]
    shutil.move(tmp_path / "later", last)
    assert history()["steps"] == [1, 2, 3]
    assert looked == [1, 2, 3]


def test_a_checkpoint_that_its_run_deletes_meanwhile_is_passed_over(made, tmp_path, monkeypatch):
    run = tmp_path / "run"
    shutil.copytree(made, run)
    first = min((run / "checkpoints").iterdir())

    def late(folder):
        if folder == first:
            shutil.rmtree(folder)
        return load(folder)

    monkeypatch.setattr("glassformer.lens.roles.run.load", late)
    assert History(run)()["steps"] == [2, 3]


def test_a_run_without_checkpoints_says_so(made, tmp_path):
    shutil.copytree(made, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(CheckpointError, match="no checkpoint"):
        History(tmp_path / "run")()


def test_a_curve_is_of_the_last_role(tmp_path, monkeypatch):
    """A head that turned from one role to another is followed in the one that it has at last; without one, its best."""

    def head(label, **scores):
        place = {"id": "x.0.0", "block": "cross", "layer": 0, "head": 0}
        return SimpleNamespace(to_json=lambda: [{**place, "role": {"label": label}, "scores": scores}])

    seen = [(1, head("sink", sink=0.9, reversal=0.1)), (2, head("reversal", sink=0.2, reversal=0.7))]
    looks = [SimpleNamespace(step=step, diagnosis=each) for step, each in seen]
    monkeypatch.setattr(
        module, "over_checkpoints", lambda *_, known, **__: [at for at in looks if at.step not in known]
    )
    history = History(tmp_path)
    assert history()["heads"][0]["role"] == "reversal"
    assert history()["heads"][0]["scores"] == [0.1, 0.7]
    looks.append(SimpleNamespace(step=3, diagnosis=head("diffuse", sink=0.3, reversal=0.2)))
    assert history()["heads"][0]["role"] == "sink"
    assert history()["heads"][0]["scores"] == [0.9, 0.2, 0.3]
