"""A process that dies, fails or falls silent ends the job in time and is named; a signal ends it in order."""

import signal
import socket
import subprocess
from pathlib import Path

import pytest

from distributed.processes import ROOT, begin, ended, environment
from fresh import python
from glassformer.base.errors import ConfigError, ProcessError
from glassformer.base.launched import LOOPBACK, Launched, launched
from glassformer.cli.follow import Signals
from glassformer.store.folders import checkpoints
from glassformer.train.ranks.distributed import Ranks, joined, notes_on
from glassformer.train.recipe import dumps_recipe
from train.examples import recipe

WORK = str(Path(__file__).with_name("work.py"))
FULL = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": "29500"}


def test_alone_without_torchrun():
    assert launched({}) == launched({"RANK": "0", "WORLD_SIZE": "1"}) == Launched()
    assert launched(FULL | {"MASTER_ADDR": "10.0.0.1"}) == Launched(1, 4, 1, 2, "10.0.0.1", 29500)
    assert launched(FULL).address == LOOPBACK


@pytest.mark.parametrize(("changes", "message"), [
    ({"RANK": None}, "RANK must be a whole number of at most 9 digits; it is not set"),
    ({"WORLD_SIZE": "four"}, "WORLD_SIZE must be a whole number of at most 9 digits; got 'four'"),
    ({"RANK": "4"}, "RANK must be below WORLD_SIZE"),
    ({"LOCAL_WORLD_SIZE": "5"}, "at most WORLD_SIZE"),
    ({"LOCAL_RANK": "2"}, "LOCAL_RANK must be below LOCAL_WORLD_SIZE"),
    ({"MASTER_PORT": None}, "MASTER_PORT must be a whole number"),
], ids=["no-rank", "no-number", "beyond", "more-here", "beyond-here", "no-port"])  # fmt: skip
def test_half_an_environment_is_refused(changes, message):
    found = {name: value for name, value in (FULL | changes).items() if value is not None}
    with pytest.raises(ConfigError, match=message):
        launched(found)


def test_a_network_that_others_reach_is_warned_of():
    near, far = (Ranks(Launched(0, 4, 0, local, "10.0.0.1", 1)) for local in (4, 2))
    assert not any("network" in line for line in notes_on(near, shard=False))
    assert any("10.0.0.1 without encryption" in line for line in notes_on(far, shard=True))


def test_who_does_not_come_is_named():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (
        pytest.raises(ProcessError, match=r"Process 1, 2 of 3 did not connect to .* within 1 s"),
        joined(Launched(0, 3, 0, 3, LOOPBACK, port), "cpu", 1),
    ):
        pass


class Run:
    """What a signal stops."""

    stops = 0

    def interrupt(self) -> None:
        self.stops += 1


def test_torchrun_repeats_a_signal_and_none_quits_at_the_second(monkeypatch, capfd):
    for name, value in (FULL | {"RANK": "0", "LOCAL_RANK": "0"}).items():
        monkeypatch.setenv(name, value)
    signals, signals_of_another = Signals(), Signals()
    signals.run = signals_of_another.run = run = Run()
    signals_of_another.place = launched(FULL)
    for each in (signals, signals_of_another):
        each.receive(signal.SIGINT, None)
        each.receive(signal.SIGTERM, None)
        assert each.number == signal.SIGINT
    assert run.stops == 2
    assert capfd.readouterr().err == "\nSaving a checkpoint after this step.\n"


def test_processes_need_a_device_they_can_share(monkeypatch):
    import torch

    monkeypatch.setattr("glassformer.train.ranks.distributed.choose_device", lambda name: (torch.device("mps"), ""))
    with pytest.raises(ConfigError, match="which is mps here"), joined(Launched(0, 2, 0, 2), "auto", 1):
        pass


@pytest.mark.slow
@pytest.mark.parametrize(("task", "message"), [
    pytest.param(
        *("dies", "Process 1 of 2 was killed or no longer answers; the job has ended"), marks=pytest.mark.slow
    ),
    ("fails", "Process 1 of 2 failed (GlassformerError: The file x.txt is not here.); the job has ended"),
])  # fmt: skip
def test_a_lost_process_is_named(tmp_path, task, message):
    first, last = ended(begin(2, WORK, str(tmp_path), "60", task))
    assert first.code == 1, first.text
    assert message in first.text
    again = f"run `glassformer resume {tmp_path}` with the same number of processes or another."
    assert f"What was saved is intact: {again}" in first.text
    assert last.code == (9 if task == "dies" else 2)


@pytest.mark.slow
def test_a_silent_process_is_named_after_the_time_out(tmp_path):
    processes = begin(2, WORK, str(tmp_path), "5", "sleeps")
    first, _ = processes
    text, _ = first.communicate(timeout=600)
    assert first.returncode == 1, text
    assert "Process 1 of 2 was killed or no longer answers" in text
    ended(processes[1:])


def command(folder: Path, *more: str) -> list[subprocess.Popen[str]]:
    """The command line on a recipe that takes a while, in two processes."""
    path = folder / "long.toml"
    path.write_text(dumps_recipe(recipe(training__steps=100_000, checkpoint__every=100_000)), "utf-8")
    return begin(2, "-m", "glassformer", "train", str(path), "--out", str(folder / "run"), *more)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_a_signal_to_one_process_ends_both(tmp_path, number):
    processes = command(tmp_path)
    for line in processes[0].stderr or processes[0].stdout or ():
        if line.startswith("step "):
            break
    processes[number].send_signal(signal.SIGTERM)
    first, second = ended(processes)
    assert first.code == second.code == 143, first.text + second.text
    assert "Continue with: glassformer resume" in first.text
    assert second.text == ""
    assert len(checkpoints(tmp_path / "run")) == 1


@pytest.mark.slow
def test_torchrun_starts_the_same_command(tmp_path):
    """A run to its end; only the first process shows anything."""
    path = tmp_path / "short.toml"
    path.write_text(dumps_recipe(recipe()), "utf-8")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    words = ("-m", "glassformer", "train", path, "--out", tmp_path / "run")
    clean = {name: value for name, value in environment(0, 1, 1).items() if name not in FULL and name != "MASTER_ADDR"}
    answer = python(*launcher, *words, env=clean, cwd=ROOT)
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr.count("step 12/12") == 1
    assert "processes: 2, 2 of them on this machine" in answer.stderr
