"""`glassformer plot` and `glassformer params --plot`: pictures of every kind, and mistakes told before one is drawn."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from glassformer.base import figures
from glassformer.train.recipe import dumps_recipe, load_recipe

needs_matplotlib = pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")
BEGINS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


def a_run(name: str, steps: int = 40) -> str:
    folder = Path("runs", name)
    folder.mkdir(parents=True)
    (folder / "recipe.toml").write_text(dumps_recipe(load_recipe("reverse")), "utf-8")
    lines = [
        {"kind": "train", "step": step, "epoch": 0, "loss": 3.0 / step, "learning_rate": 0.01, "grad_norm": None}
        for step in range(1, steps + 1)
    ]
    lines += [{"kind": "dev", "step": steps, "exact_match": 0.5, "loss": 0.1, "n": 5, "best": True}] if steps else []
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return str(folder)


@needs_matplotlib
@pytest.mark.parametrize("kind", BEGINS)
def test_pictures_of_every_kind(run, kind):
    one, other = a_run("one"), a_run("other", 20)
    answer = run("plot", one, other, "--out", f"both.{kind}")
    assert (answer.code, answer.out) == (0, f"Picture: both.{kind} (loss, exact_match)\n")
    assert Path(f"both.{kind}").read_bytes().startswith(BEGINS[kind])
    assert run("params", "notebook-001", "--plot", f"where.{kind}").out == f"Picture: where.{kind}\n"
    assert Path(f"where.{kind}").read_bytes().startswith(BEGINS[kind])


@needs_matplotlib
def test_the_usual_name_and_figures_by_name(run):
    folder = a_run("one")
    assert run("plot", folder).out == "Picture: curves.png (loss, exact_match)\n"
    assert run("plot", folder, "--metric", "learning_rate", "--log").out == "Picture: curves.png (learning_rate)\n"


@needs_matplotlib
def test_for_programs_the_list_stands_beside_the_picture(run):
    answer = run("params", "notebook-001", "--plot", "where.png", "--json")
    assert json.loads(answer.out)["total"] == 18_688
    assert answer.err == "Picture: where.png\n"


@pytest.mark.parametrize(("words", "message"), [
    (("runs/one", "--out", "x.jpg"), "must end in .png, .svg or .pdf; got 'x.jpg'"),
    (("runs/one", "--out", "no/such/x.png"), "which is not an existing folder"),
    (("runs/one", "--metric", "los"), "No run has a figure 'los'"),
    (("runs/one", "runs/one"), "runs/one is named twice"),
    (("runs/one", "runs/two"), "runs/two is not a run folder"),
    (("runs/empty",), "has no figures"),
], ids=str)  # fmt: skip
def test_mistakes(run, words, message):
    a_run("one")
    a_run("empty", 0)
    answer = run("plot", *words)
    assert (answer.code, message in answer.err) == (2, True), answer.err
    assert not list(Path().glob("*.png"))


def test_without_matplotlib_the_remedy_is_told(run, monkeypatch):
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(figures, "import_module", missing)
    for words in (("plot", a_run("one")), ("params", "notebook-001", "--plot", "x.png")):
        answer = run(*words)
        assert (answer.code, "pip install 'matplotlib" in answer.err) == (2, True)
