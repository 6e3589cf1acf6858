"""`glassformer params` of a preset: its tensors and their sum; a run of the same name comes first."""

import json
from pathlib import Path

import pytest

from glassformer import PRESETS
from glassformer.train.recipe import dumps_recipe, load_recipe


def test_params_of_a_preset(run):
    answer = run("params", "notebook-001")
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0] == "module                                                shape     count   share"
    assert lines[1] == "encoder.embedding.weight                              50 x 32   1,600   8.56%"
    assert lines[-1].split() == ["total", "18,688", "100%"]
    assert not [line for line in lines if "head" in line], "a tied matrix stands once"


@pytest.mark.parametrize("name", ["gpt2", "t5-small", "llama-3-8b"])
def test_params_of_a_preset_for_programs(run, name):
    report = json.loads(run("params", name, "--json").out)
    assert report["total"] == sum(row["count"] for row in report["rows"])
    assert (report["total"] > 5e7, name in PRESETS) == (True, True)


def test_a_run_comes_before_a_preset_of_its_name(run, session):
    Path("gpt2").mkdir()
    Path("gpt2", "recipe.toml").write_text(dumps_recipe(load_recipe("reverse")), "utf-8")
    for answer in (run("params", "gpt2"), run("params", "gpt2", "--by", "component")):
        assert answer.out.splitlines()[-1].split()[-2] == "18,688", "a tied matrix counts once"
    assert session.calls == [("best_model", Path("gpt2"))] * 2


def test_a_folder_that_is_no_run_hides_no_preset(run):
    Path("notebook-001").mkdir()
    assert "18,688" in run("params", "notebook-001").out


def test_parameters_by_component(run):
    lines = [line.split() for line in run("params", "gpt2", "--by", "component").out.splitlines()]
    assert [line[0] for line in lines] == ["embedding", "positions", "norm", "attention", "feed-forward", "total"]
    assert lines[-2] == ["feed-forward", "56,669,184", "45.5%"]
    report = json.loads(run("params", "gpt2", "--by", "component", "--json").out)
    assert sum(report["components"].values()) == report["total"]
    answer = run("params", "gpt2", "--by", "layer")
    assert (answer.code, "by component; got 'layer'" in answer.err) == (2, True)


@pytest.mark.parametrize("name", ["bert-base", "gpt2", "llama-3-8b", "notebook-004", "t5-small"])
def test_what_passes_through_a_preset(run, name):
    report = json.loads(run("params", name, "--shapes", "--json").out)
    assert report["rows"][0]["parameters"] == sum(report["components"].values())
    assert all(row["gave"] for row in report["rows"])


def test_what_passes_as_a_table(run):
    lines = run("params", "notebook-001", "--shapes").out.splitlines()
    assert lines[0].split() == ["module", "in", "out", "parameters", "purpose"]
    assert any(line.split()[:1] == ["self_attention"] and "fetch from other places" in line for line in lines)
