"""A finished run has threads of its own, whatever it is loaded for, and not those that it was trained with."""

import re
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from glassformer.lens.roles.diagnosis import over_checkpoints
from glassformer.train.finished.use import translate
from glassformer.train.recipe import Recipe, dumps_recipe, load_recipe, override
from glassformer.train.run.session import resume, start
from train.examples import final, follow, killed_after, recipe


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("loading") / "run"
    follow(start(recipe(), folder))
    return folder


def own(run: Path, **decode: object) -> Recipe:
    return override(load_recipe(run / "recipe.toml"), {f"decode.{name}": value for name, value in decode.items()})


def test_threads_are_not_those_of_training(run, monkeypatch):
    seen: list[int] = []
    monkeypatch.setattr(
        "glassformer.train.finished.use.answers", lambda *given, **more: seen.append(torch.get_num_threads()) or []
    )
    assert own(run).training.threads == 1
    for threads in (2, 3):
        with suppress(ValueError):  # as nothing is answered
            next(translate(run, [(1, "a b")], 1, own(run, threads=threads)))
    assert seen == [2, 3]


def test_each_checkpoint_is_diagnosed_with_these_threads(run, tmp_path, monkeypatch):
    asked_for: list[int] = []
    monkeypatch.setattr("glassformer.lens.roles.diagnosis.choose_threads", asked_for.append)
    (again := tmp_path / "run").mkdir()
    (again / "recipe.toml").write_text(dumps_recipe(own(run, threads=3)))
    (again / "checkpoints").symlink_to(run / "checkpoints")
    next(over_checkpoints(again, sequences=2))
    assert asked_for == [3]


def test_a_recipe_from_before_there_were_such_threads(run, tmp_path):
    text = (run / "recipe.toml").read_text()
    before, after = text.split("[decode]")
    (old := tmp_path / "recipe.toml").write_text(f"{before}[decode]{re.sub('(?m)^threads = .*$', '', after)}")
    assert load_recipe(old) == own(run)
    assert "threads = 0" in after


def test_a_resume_may_give_other_threads(whole, tmp_path):
    run = killed_after(whole, 5, tmp_path / "run")
    follow(resume(run, asked={"decode.threads": 2}))
    assert final(run)["model.safetensors"] == final(whole)["model.safetensors"]
    assert load_recipe(run / "recipe.toml").decode.threads == 2
