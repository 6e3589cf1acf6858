"""`train --dry-run`: what a run will need, and not a file."""

from __future__ import annotations

import json
import sys

import pytest

from glassformer.cli.main import main

SMALL = ["--data.train-size", "400", "--data.dev-size", "20", "--model.d-model", "16", "--model.d-ff", "32"]
SMALL += ["--training.batch-tokens", "200", "--training.precision", "float32", "--training.threads", "1"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_figures_for_programs(capsys, tmp_path):
    assert main(["train", "reverse", "--dry-run", "--json", *SMALL]) == 0
    told = json.loads(capsys.readouterr().out)
    memory, disk, data = told["memory"], told["disk"], told["data"]
    assert memory["weights"] == 4 * told["parameters"]
    assert memory["gradients"] == memory["weights"]
    assert memory["peak"] == sum(
        memory[part] for part in ("weights", "gradients", "optimizer", "snapshot", "activations")
    )
    assert disk["checkpoint"] == memory["weights"] + memory["optimizer"]
    assert disk["free"] > disk["kept"] > 0
    assert (data["samples"], data["dev_samples"]) == (400, 20)
    assert 1 <= told["pace"]["steps"] <= 6  # fewer where they take long
    assert told["pace"]["run_seconds"] > 0
    assert list(tmp_path.iterdir()) == []


def test_words_for_people(capsys, tmp_path):
    assert main(["train", "reverse", "--dry-run", *SMALL, "--training.recompute", "1"]) == 0
    told = capsys.readouterr().out
    parts = ("parameters", "activations", "peak", "a checkpoint", "ms a step", "400 training pairs", "recompute 1")
    assert [part for part in parts if part not in told] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flag", ["--dry-run", "--find-learning-rate", "--gradient-noise"])
def test_of_several_processes_the_first_says_it(capsys, monkeypatch, flag):
    """And the others nothing, as torchrun starts the same command in each."""
    places = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for name, value in (places | {"RANK": "1", "LOCAL_RANK": "1"}).items():
        monkeypatch.setenv(name, value)
    for module in ("outlook", "trial"):
        monkeypatch.setitem(sys.modules, f"glassformer.train.{module}", None)
    assert main(["train", "reverse", flag]) == 0
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("LOCAL_RANK", "0")
    with pytest.raises(ImportError):
        main(["train", "reverse", flag])


def test_json_alone_is_refused(capsys):
    assert main(["train", "reverse", "--json"]) == 2
    assert "--dry-run" in capsys.readouterr().err
