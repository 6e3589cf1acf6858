"""The frozen surface: every verb and flag there is, what `--help` says of them, and that it answers without torch."""

import json
import re
from pathlib import Path

import pytest

from cli.surface import surface
from fresh import python
from glassformer import __version__
from glassformer.cli.arguments import setting_lines
from glassformer.cli.help import width
from glassformer.cli.verbs import SECTIONS, VERBS
from glassformer.train.recipe import Recipe

GOLDEN = Path(__file__).with_name("surface.txt")


def test_surface_is_what_was_promised():
    assert surface() == GOLDEN.read_text("utf-8"), "If it is meant: python tests/cli/surface.py > tests/cli/surface.txt"


def test_overview_names_every_verb(run):
    answer = run("--help")
    assert (answer.code, answer.err) == (0, "")
    assert run("-h").out == answer.out
    assert all(re.search(rf"^  {name}\b.*  {re.escape(it.summary)}$", answer.out, re.M) for name, it in VERBS.items())


@pytest.mark.parametrize("name", VERBS)
def test_help_of_a_verb_names_every_flag(run, name):
    answer = run(name, "--help")
    assert (answer.code, answer.err) == (0, "")
    assert run(name, "-h").out == answer.out
    assert answer.out.startswith(f"Usage: glassformer {name}")
    promised = [
        word for line in GOLDEN.read_text("utf-8").splitlines() if line.split()[1] == name for word in line.split()
    ]
    shown = re.findall(r"^  (--[a-z0-9.-]+)", answer.out, re.M)
    assert shown == [word for word in promised if word.startswith("--")]
    assert f"  glassformer {name}" in answer.out.partition("Examples")[2]


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_is_explained(section):
    for flag, meaning in setting_lines(section, Recipe("x")):
        explanation = re.sub(r" \[[^]]*\]$", "", meaning)
        assert 10 < len(explanation) < 200, flag
        assert explanation.endswith((".", ")")), flag


def test_help_shows_the_values_of_the_target(run):
    assert re.search(r"--model.d-model INT .*\[256\]", run("train", "--help").out)
    assert re.search(r"--model.d-model INT .*\[64\]", run("train", "reverse", "--help").out)
    assert "the value in reverse" in run("train", "reverse", "--help").out


def test_help_shows_the_values_of_a_run(run, tmp_path):
    (tmp_path / "recipe.toml").write_text("[decode]\nbatch_size = 77\n")
    assert re.search(r"--decode.batch-size INT .*\[77\]", run("evaluate", str(tmp_path), "--help").out)


def test_help_shows_what_generate_does_with_a_run_that_is_greedy(run, tmp_path):
    """It samples at temperature 1 where the recipe has 0; the other verbs decode as the recipe says."""
    (tmp_path / "recipe.toml").write_text("[decode]\ntop_k = 5\ntemperature = 0.5\n")
    for words, temperature in (((), "1.0"), ((str(tmp_path),), "0.5")):
        assert re.search(rf"--decode.temperature [^[]*\[{temperature}\]", run("generate", *words, "--help").out)
    assert re.search(r"--decode.temperature [^[]*\[0.0\]", run("translate", "--help").out)
    (tmp_path / "recipe.toml").write_text("[decode]\nbeam = 5\nearly_stop = true\n")
    for verb, beam in (("generate", 1), ("evaluate", 5)):
        assert re.search(rf"--decode.beam INT [^[]*\[{beam}\]", run(verb, str(tmp_path), "--help").out)


def test_help_never_fails(run):
    assert run("train", "--help", "--no-such-flag").code == 0
    assert run("train", "no-such-recipe", "--help").out == run("train", "--help").out
    assert run("evaluate", "no-such-run", "--help").out == run("evaluate", "--help").out


def test_recipes_are_listed_in_the_help_of_train(run):
    assert re.search(r"^  reverse +Write a sequence of symbols backwards\.$", run("train", "--help").out, re.M)


@pytest.mark.parametrize(("columns", "used"), [("10", 40), ("60", 60), ("500", 120)])
def test_help_fits_the_terminal(run, monkeypatch, columns, used):
    monkeypatch.setenv("COLUMNS", columns)
    assert width() == used
    usage, _, text = run("train", "--help").out.partition("Examples")[0].partition("\n")
    assert usage.startswith("Usage: ")
    assert max(map(len, text.splitlines())) <= max(used, 58)  # beside the longest flags 20 columns are left at least


def test_version(run):
    assert run("--version").out == run("-V").out == f"glassformer {__version__}\n"


def test_no_words_at_all(run):
    answer = run()
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == run("--help").out


HEAVY = ("torch", "numpy", "tokenizers", "rich", "sacrebleu", "safetensors")


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], *([name, "--help"] for name in VERBS), ["train", "reverse", "-h"]]
)
def test_help_imports_nothing_heavy(words):
    """What keeps it under 0.15 s; a test cannot measure time, but it can see what costs it."""
    code = (
        "import json, sys\nfrom glassformer.cli.main import main\nassert main(sys.argv[1:]) == 0\n"
        f"print(json.dumps(sorted({{*{HEAVY}}} & {{*sys.modules}})), file=sys.stderr)"
    )
    assert json.loads(python("-c", code, *words).stderr) == []
