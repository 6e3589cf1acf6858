"""`train --dry-run`, `--find-learning-rate` and `--gradient-noise`: what a run should know, and not a run."""

import json
import os
import sys
from itertools import combinations
from pathlib import Path
from types import ModuleType

import pytest

from cli.conftest import TINY
from glassformer.cli.main import TOGETHER, main
from glassformer.cli.verbs import VERBS
from glassformer.train.run.trial import Found, Noise, NoiseAt, Tried
from train.text_examples import book

SMALL = (*TINY, "--data.train-size", "400", "--data.dev-size", "20")


def test_figures_for_programs(capsys, tmp_path):
    assert main(["train", "reverse", "--dry-run", "--json", *SMALL]) == 0
    report = json.loads(capsys.readouterr().out)
    memory, disk, data = report["memory"], report["disk"], report["data"]
    assert report["written"] == []
    assert memory["weights"] == 4 * report["parameters"]
    assert memory["gradients"] == memory["weights"]
    assert memory["peak"] == sum(memory[of] for of in ("weights", "gradients", "optimizer", "snapshot", "activations"))
    assert disk["checkpoint"] == memory["weights"] + memory["optimizer"]
    assert disk["free"] > disk["kept"] > 0
    assert (data["samples"], data["dev_samples"]) == (400, 20)
    assert 1 <= report["pace"]["steps"] <= 6  # fewer where they take long
    assert report["pace"]["run_seconds"] > 0
    assert list(tmp_path.iterdir()) == []


def test_words_for_people(capsys, tmp_path):
    assert main(["train", "reverse", "--dry-run", *SMALL, "--training.recompute", "1"]) == 0
    output = capsys.readouterr().out
    assert max(map(len, output.splitlines())) <= 100  # the width where there is no terminal
    parts = ("parameters", "activations", "peak", "a checkpoint", "ms a step", "400 training pairs", "recompute 1")
    assert [part for part in parts if part not in " ".join(output.split())] == []
    assert list(tmp_path.iterdir()) == []


def test_samples_are_called_as_their_task_calls_them(capsys):
    sizes = ("--data.train-size", "40", "--data.dev-size", "10", "--training.batch-tokens", "64")
    assert main(["train", "tag", "--dry-run", *sizes]) == 0
    assert "data        40 training sentences, 10 dev sentences" in capsys.readouterr().out


def test_tokens_of_a_text_stay_for_the_run_and_are_named(run, tmp_path, monkeypatch):
    """To make them may take most of the time; found again, nothing is written indeed."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("GLASSFORMER_CACHE", str(cache))
    words = ("train", "lm", "--data.text", str(book(tmp_path)), "--dry-run", *TINY, "--data.window", "16")
    output = run(*words).out
    made = sorted(map(str, (cache / "tokens").iterdir()))
    assert (len(made), sorted(line.strip() for line in output.splitlines()[-2:])) == (2, made)
    assert "Nothing was written but the tokens of the text, which the run will find" in output
    assert run(*words).out.endswith("\n\nNothing was written.\n")
    assert json.loads(run(*words, "--json").out)["written"] == []
    assert json.loads(run(*words, "--json", "--data.dev-share", "0.2").out)["written"]
    assert {each.name for each in tmp_path.iterdir()} == {"book.txt", "cache"}


PLACES = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@pytest.mark.parametrize("flag", ["--dry-run", "--find-learning-rate", "--gradient-noise"])
def test_of_several_processes_the_first_says_it(capsys, monkeypatch, flag):
    """And the others nothing, as torchrun starts the same command in each."""
    places = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for name, value in (places | {"RANK": "1", "LOCAL_RANK": "1"}).items():
        monkeypatch.setenv(name, value)
    for module in ("outlook", "trial"):
        monkeypatch.setitem(sys.modules, f"glassformer.train.run.{module}", None)
    assert main(["train", "reverse", flag]) == 0
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("LOCAL_RANK", "0")
    with pytest.raises(ImportError):
        main(["train", "reverse", flag])


@pytest.mark.parametrize("verb", [each for each in VERBS if each not in TOGETHER])
@pytest.mark.parametrize("rest", [[], ["RUN", "--json"], ["--help"]])
def test_of_several_processes_one_runs_what_does_not_train(capsys, monkeypatch, verb, rest):
    ran = []
    monkeypatch.setattr("glassformer.cli.main.run_verb", lambda name, words: ran.append((name, words)) or 3)
    for name, value in PLACES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RANK", "1")
    assert main([verb, *rest]) == 0
    heard = capsys.readouterr()
    assert (ran, heard.out, heard.err) == ([], "", "")
    monkeypatch.setenv("RANK", "0")
    assert main([verb, *rest]) == 3
    assert ran == [(verb, rest)]
    assert "torchrun started 2 processes, but only train and resume use several" in capsys.readouterr().err
    assert not {"RANK", "WORLD_SIZE"} & {*os.environ}, "what it starts is alone, too"


@pytest.mark.parametrize("words", [["resume", "--help"], ["train", "-h"], ["--version"], ["nosuch"], ["--help"], []])
def test_of_several_processes_one_helps(capsys, monkeypatch, words):
    for name, value in (PLACES | {"RANK": "1"}).items():
        monkeypatch.setenv(name, value)
    assert main(words) == 0
    assert capsys.readouterr() == ("", "")


class Trial(ModuleType):
    """In place of `glassformer.train.run.trial`: what was found is made up."""

    def __init__(self, losses: list[float]) -> None:
        super().__init__("trial")
        self.Found = Found
        tried = [Tried(10.0**n, loss, loss) for n, loss in enumerate(losses, start=-4)]
        lowest = min(tried, key=lambda each: each.smoothed).rate
        self.search = lambda recipe, *_: Found(tried, lowest, lowest / 10)
        self.noise_over = lambda recipe, *_: [NoiseAt(0, Noise(0.5, 40.0), 64.0), NoiseAt(20, Noise(0.0, 40.0), 64.0)]


@pytest.mark.parametrize(("losses", "rises", "message"), [
    ([3.0, 1.0, 2.0], True, "lowest at 1.00e-03; beyond that it rises."),
    ([3.0, 2.0, 1.0], False, "lowest at 1.00e-02; that is the last rate tried, so it was not seen to rise."),
])  # fmt: skip
def test_rates_for_people_and_for_programs(run, monkeypatch, losses, rises, message):
    monkeypatch.setitem(sys.modules, "glassformer.train.run.trial", Trial(losses))
    assert message in run("train", "reverse", "--find-learning-rate").out
    report = json.loads(run("train", "reverse", "--find-learning-rate", "--json").out)
    assert report["tried"] == [
        {"rate": pytest.approx(10.0**n), "loss": loss, "smoothed": loss} for n, loss in enumerate(losses, start=-4)
    ]
    assert (report["rises"], report["recommended"]) == (rises, pytest.approx(report["lowest"] / 10))
    if report["picture"]:  # where matplotlib is there
        assert Path(report["picture"]).read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_there_is_no_picture(run, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "glassformer.train.run.trial", Trial([3.0, 1.0, float("nan")]))
    monkeypatch.setattr("glassformer.cli.train.find_spec", lambda name: None)
    report = json.loads(
        run("train", "reverse", "--find-learning-rate", "--json").out, parse_constant=lambda name: pytest.fail(name)
    )
    assert (report["picture"], report["tried"][-1]["loss"]) == (None, None)
    assert list(tmp_path.iterdir()) == []


def test_noise_for_people_and_for_programs(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "glassformer.train.run.trial", Trial([1.0]))
    assert "   20                   inf               64\n" in run("train", "reverse", "--gradient-noise").out
    report = json.loads(run("train", "reverse", "--gradient-noise", "--json").out, parse_constant=pytest.fail)
    rows = [{"step": 0, "scale": 80.0, "targets": 64.0}, {"step": 20, "scale": None, "targets": 64.0}]
    assert report == {"noise": rows}


def test_json_alone_is_refused(refused, session):
    assert "--json works only with --dry-run, --find-learning-rate, --gradient-noise" in refused(
        "train", "reverse", "--json"
    )


@pytest.mark.parametrize("flags", list(combinations(["--dry-run", "--find-learning-rate", "--gradient-noise"], 2)))
def test_one_look_at_a_time(refused, flags):
    assert f"{flags[0]} and {flags[1]} are two separate checks before a run. Give only one" in refused(
        "train", "reverse", *flags
    )


def test_a_mistake_is_named_once(refused, session):
    message = refused("train", "reverse", "--break", "leaky-mask", "--training.broken", "no-residual")
    assert "--break and --training.broken are the same setting. Give only one" in message
