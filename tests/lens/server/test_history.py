"""Roles over the checkpoints of a run, as the page is told of them."""

import shutil
import signal
from types import SimpleNamespace

import pytest
from starlette.applications import Starlette

from glassformer.base.errors import CheckpointError, GlassformerError
from glassformer.lens.roles import diagnosis as roles_of_a_run
from glassformer.lens.roles.diagnosis import over_checkpoints
from glassformer.lens.server import subject as module
from glassformer.lens.server.app import make_server
from glassformer.lens.server.subject import SEQUENCES, History
from glassformer.store.checkpoint import load
from glassformer.store.folders import RunLock
from lens.test_roles_of_a_run import SMALL, untrained_run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return untrained_run(tmp_path_factory.mktemp("history") / "tiny", "reverse", SMALL, steps=(1, 2, 3))


def test_scores_are_those_of_each_checkpoint(made):
    found = History(made)()
    seen = {step: found.to_json() for step, found in over_checkpoints(made, sequences=SEQUENCES)}
    assert found["steps"] == [1, 2, 3]
    for i, curve in enumerate(found["heads"]):
        assert curve["id"] == seen[3][i]["id"]
        assert curve["scores"] == [seen[step][i]["scores"][curve["role"]] for step in (1, 2, 3)]
        assert curve["role"] in seen[3][i]["scores"]


def test_a_role_with_a_shift_is_followed_by_its_own_score(made):
    history = History(made)
    history()
    for heads in history.seen.values():
        heads[0]["role"] |= {"label": "reversal", "shift": 1}
        heads[0]["scores"] |= {"reversal": 0.02, "reversal +1": 0.97}
    result = history.so_far()["heads"][0]
    assert (result["role"], result["scores"]) == ("reversal +1", [0.97, 0.97, 0.97])


def test_each_checkpoint_is_looked_at_once(made, tmp_path, monkeypatch):
    run = tmp_path / "run"
    shutil.copytree(made, run)
    last = max((run / "checkpoints").iterdir())
    shutil.move(last, tmp_path / "later")
    looked = []

    def counted(*given, **more):
        for at in over_checkpoints(*given, **more):
            looked.append(at[0])
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

    monkeypatch.setattr("glassformer.lens.roles.diagnosis.load", late)
    assert History(run)()["steps"] == [2, 3]


def test_a_run_in_training_is_looked_at_seldom(made, tmp_path, monkeypatch):
    """One checkpoint at a time, the newest first, then a rest 500 times as long; after its end all the others."""
    run, now, used = tmp_path / "run", [0.0], iter([0.0, 2.0, 10.0, 13.0])
    shutil.copytree(made, run)
    monkeypatch.setattr(module.time, "process_time", lambda: next(used))
    history, lock = History(run, clock=lambda: now[0]), RunLock(run)
    lock.take()
    assert history()["steps"] == [3]
    for now[0], steps in [(999.0, [3]), (1001.0, [2, 3]), (2000.0, [2, 3])]:
        assert history()["steps"] == steps
    lock.release()
    assert history()["steps"] == [1, 2, 3]
    assert next(used, None) is None


def test_all_of_a_run_in_training_where_all_is_asked_for(made, tmp_path):
    shutil.copytree(made, tmp_path / "run")
    lock = RunLock(tmp_path / "run")
    lock.take()
    assert History(tmp_path / "run").whole()["steps"] == [1, 2, 3]
    lock.release()


@pytest.mark.parametrize("piece", ["load", "run_probe", "diagnose"])
def test_a_look_ends_with_the_explorer(made, monkeypatch, piece):
    """Within a piece of the work, and whoever asks again is told so."""
    history, own = History(made), getattr(roles_of_a_run, piece)

    def ends(*given, **more):
        history.end()
        return own(*given, **more)

    monkeypatch.setattr(roles_of_a_run, piece, ends)
    for _ in range(2):
        with pytest.raises(GlassformerError, match="The explorer is ending"):
            history()
    assert not history.seen


def test_a_server_says_when_it_begins_to_end():
    lines = []
    server = make_server(Starlette(), lambda: lines.append("end"))
    server.handle_exit(signal.SIGTERM, None)
    assert lines == ["end"]
    assert server.should_exit


def test_a_run_without_checkpoints_says_so(made, tmp_path):
    shutil.copytree(made, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(CheckpointError, match="no checkpoint"):
        History(tmp_path / "run")()


def test_a_curve_is_of_the_last_role(tmp_path, monkeypatch):
    """A head that turned from one role to another is followed in the one that it has at last; without one, its best."""

    def head(label, **scores):
        place = {"id": "x.0.0", "block": "cross", "layer": 0, "head": 0}
        result = {**place, "role": {"label": label, "shift": 0}, "scores": scores}
        return SimpleNamespace(probe=None, to_json=lambda: [result])

    looks = [(1, head("sink", sink=0.9, reversal=0.1)), (2, head("reversal", sink=0.2, reversal=0.7))]
    monkeypatch.setattr(module, "over_checkpoints", lambda *_, known, **__: [at for at in looks if at[0] not in known])
    history = History(tmp_path)
    assert history()["heads"][0]["role"] == "reversal"
    assert history()["heads"][0]["scores"] == [0.1, 0.7]
    looks.append((3, head("diffuse", sink=0.3, reversal=0.2)))
    assert history()["heads"][0]["role"] == "sink"
    assert history()["heads"][0]["scores"] == [0.9, 0.2, 0.3]
