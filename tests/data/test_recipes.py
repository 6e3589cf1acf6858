"""What `glassformer data show` tells of recipes was measured so: their settings, their files and their figures."""

import gzip
import os
import re
import subprocess
from pathlib import Path

import pytest

from architecture import ROOT
from data.measured import FILE, RECIPES, as_fetched, ids, row_of, small, trained
from glassformer.cli.arguments import read_arguments
from glassformer.cli.data import steps
from glassformer.cli.verbs import VERBS
from glassformer.data.catalogue import HERE
from glassformer.train.recipe import load_recipe, override

EVERY = pytest.mark.parametrize(("of", "recipe"), RECIPES, ids=ids(RECIPES))
NOT_TOLD = {"sst2 ensemble", "cmudict ensemble", "multi30k french", "multi30k lower french"}
"""Rows without a recipe: several runs answer in an ensemble, and no result of the two of French is published."""
NAMED_AS = {
    "seconds": "1.886 in 9 s", "a minute": "1.52 in 76 s", "twenty minutes": "glassformer gets below that",
    "multi30k lower": "| beam of 5 |", "sst2 tuned": "| pre-trained on WikiText-2 |",
}  # fmt: skip
"""What stands beside the figures of a recipe in the documents, if it is not the name of its row."""
NUMBER = r"\d(?:[\d.,]*\d)?"
SPREAD = re.compile(rf"{NUMBER}[^()\d]* \({NUMBER}–{NUMBER}")


def test_every_row_of_a_public_data_set_has_a_recipe(module):
    of_files = {each.name for each in module("rows").ROWS.values() if each.data is not None}
    result = {recipe.name for _, recipe in RECIPES}
    assert of_files - NOT_TOLD <= result
    assert {each.name for each in module("language").BUDGETS} <= result


@EVERY
def test_its_settings_are_those_of_the_row(module, of, recipe):
    row = row_of(module, recipe.name)
    job, given = trained(recipe.steps)
    places = {name for name in given if name in ("--out", "--training.start-from") or FILE.fullmatch(name)}
    assert (job, {name: each for name, each in given.items() if name not in places}) == (row.job, row.settings)
    words = [job, *(word for pair in given.items() for word in pair)]
    override(load_recipe(job), read_arguments("train", VERBS["train"], words).changes)
    before = [trained(each.steps)[1]["--out"] for _, each in RECIPES if each.name == row.after]
    assert [given[name] for name in given if name == "--training.start-from"] == before


@EVERY
def test_it_is_scored_as_the_row_is(of, recipe):
    _, given = trained(recipe.steps)
    has_test = any(name.startswith("--data.test") for name in given)
    assert recipe.steps[-1] == f"glassformer evaluate {given['--out']}" + ("" if has_test else " --split dev")
    assert has_test or of.name == "tinyshakespeare", "which has one text alone"
    assert sum(each.startswith("glassformer ") for each in recipe.steps) == 2


def test_runs_have_folders_of_their_own():
    folders = [trained(recipe.steps)[1]["--out"] for _, recipe in RECIPES]
    assert len({*folders}) == len(folders)


@EVERY
@pytest.mark.parametrize(("packed", "locale"), [(False, "C"), (True, "C.UTF-8")], ids=["plain", "packed"])
def test_its_files_are_those_of_the_benchmark(module, tmp_path, of, recipe, packed, locale):
    compare(module, tmp_path, of, recipe, small(tmp_path / "my sets", packed), locale)


@EVERY
def test_its_files_are_those_of_the_benchmark_for_the_real_ones(module, shared, tmp_path, of, recipe):
    fetched = compare(module, tmp_path, of, recipe, shared(of.name).parent, "C")
    assert {*of.states(fetched.parent)} == {HERE}


def compare(module, tmp_path, of, recipe, data, locale) -> Path:
    """Run the steps before the training. The folder of the data set as they read it."""
    fetched = as_fetched(data / of.name, tmp_path / "fetched")
    (place := tmp_path / "here").mkdir()
    commands = steps(recipe, of, fetched.parent)
    script = "\n".join(each for each in commands if not each.startswith("glassformer "))
    environment = {"PATH": os.environ["PATH"], "LC_ALL": locale}
    done = subprocess.run(["sh", "-eu", "-c", script], cwd=place, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    found = {name: place / path for name, path in trained(commands)[1].items() if FILE.fullmatch(name)}
    wanted = theirs(module, of, recipe, data, tmp_path)
    assert found.keys() == wanted.keys()
    for name, path in found.items():
        as_it_is = content(path)
        if not path.is_relative_to(place) and not as_it_is.endswith(b"\n"):
            as_it_is += b"\n"  # which the benchmark writes behind the last line, and SST-2's own file lacks
        assert as_it_is == content(wanted[name]), name
    assert {path.name for path in place.iterdir()} <= {"files"}
    return fetched


def theirs(module, of, recipe, data, tmp_path) -> dict[str, Path]:
    """The files that the benchmark trains on, by setting."""
    row = row_of(module, recipe.name)
    if row.data is None:
        text = data / module("language").TEXT
        return {"--data.text": text if text.exists() else text.with_name(text.name + ".gz")}
    folder, files = module("files").FILES[row.data]
    assert folder == of.name
    named = (setting.split("=", 1) for setting in files(data / folder, tmp_path / "theirs"))
    return {name: Path(path) for name, path in named}


def content(path: Path) -> bytes:
    """The bytes of a file, unpacked."""
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


@EVERY
def test_its_figures_are_the_published_ones(of, recipe):
    texts = [(ROOT / it).read_text("utf-8") for it in ("docs/command_line.md", "docs/results.md", "docs/benchmarks.md")]
    name, paragraphs = f"`{recipe.name}`", parts("\n\n".join(texts))
    published = " ".join(each for each in paragraphs if NAMED_AS.get(recipe.name, name) in each)
    figures = SPREAD.findall(recipe.expected)
    assert figures or "one seed" in recipe.expected
    for figure in figures or re.findall(r"\d+\.\d+", recipe.expected):
        assert figure in published
    seconds = {*re.findall(rf"({NUMBER})(?: \([^)]*\))? seconds", recipe.expected)}
    assert seconds
    assert seconds <= {*re.findall(NUMBER, " ".join([published, *(each for each in paragraphs if name in each)]))}


def parts(text: str) -> list[str]:
    """Paragraphs, and rows of tables, each on one line and without bold type."""
    apart = re.sub(r"^(\|.*)$", r"\n\1\n", text, flags=re.M).replace("**", "")
    return [" ".join(each.split()) for each in re.split(r"\n\s*\n", apart)]
