"""The documents say what is so: their programs run, their commands parse, what they name is there."""

from __future__ import annotations

import ast
import inspect
import os
import re
import shlex
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import architecture
import glassformer
from documents import ARCHITECTURE, FENCED, GLOSSARY, INLINE, README, ROOT, TEXTS, blocks, section, tables
from fresh import printed, python
from glassformer import ModelConfig, StackConfig, Transformer
from glassformer.base.errors import GlassformerError
from glassformer.cli.arguments import read_arguments
from glassformer.cli.runs import CONTENT
from glassformer.cli.verbs import VERBS
from glassformer.nn import attention, backends, transformer
from glassformer.store import folders
from glassformer.store.folders import MANIFEST
from glassformer.train.recipe import load_recipe, override

# --- programs


def programs(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each Python block, and how its output ends: the lines of a `text` block behind it."""
    for (kind, body), (next_kind, shown) in pairwise([*FENCED.findall(text), ("", "")]):
        if kind == "python":
            yield body, shown.splitlines() if next_kind == "text" else []


PROGRAMS = [(f"{name}-{i}", *each) for name, text in TEXTS.items() for i, each in enumerate(programs(text))]


@pytest.mark.parametrize(("name", "body", "shown"), PROGRAMS, ids=[name for name, _, _ in PROGRAMS])
def test_program_runs(name, body, shown, tmp_path):
    """As a user's own, in an empty folder, with warnings as errors. The shades of a picture may differ elsewhere."""
    lines = run_python(body, tmp_path).splitlines()
    assert [line.strip(" ░▒▓█") for line in lines[-len(shown) :]] == [line.strip(" ░▒▓█") for line in shown or lines]


def run_python(body: str, folder: Path) -> str:
    """What a fresh interpreter prints."""
    path = f"{os.environ['PYTHONPATH']}{os.pathsep}{ROOT / 'benchmarks'}"
    return printed("-W", "error", "-c", body, cwd=folder, env=os.environ | {"PYTHONPATH": path})


# --- commands


def commands(text: str) -> Iterator[list[str]]:
    """The words of each `glassformer ...` and `make ...` in blocks and in running text, up to a pipe or redirection."""
    typed = [line for body in blocks(text, "") for line in body.replace("\\\n", " ").splitlines()]
    for line in [*typed, *INLINE.findall(FENCED.sub("", text))]:
        if re.match(r"(glassformer|make) ", line):
            words = shlex.split(line, comments=True)
            stop = next((place for place, word in enumerate(words) if word in ("<", ">", "|")), len(words))
            yield words[:stop]


def refused(words: list[str]) -> str | None:
    """Why the command line would not take these words; its own reader says so, and nothing is run."""
    _, name, *rest = words
    if name not in VERBS:
        return f"there is no verb {name!r}"
    try:
        arguments = read_arguments(name, VERBS[name], rest)
        if VERBS[name].target == "RECIPE" and arguments.target and arguments.target != "RECIPE":
            override(load_recipe(arguments.target), arguments.changes)
    except GlassformerError as error:
        return str(error)
    return None


COMMANDS = [(name, words) for name, text in TEXTS.items() for words in commands(text)]
SPELLED = [(name, words) for name, words in COMMANDS if words[0] == "glassformer"]
MADE = [(name, words) for name, words in COMMANDS if words[0] == "make"]


@pytest.mark.parametrize(("name", "words"), SPELLED, ids=[" ".join(words[:3]) for _, words in SPELLED])
def test_command_line_parses(name, words):
    assert refused(words) is None, f"{name}: {shlex.join(words)}: {refused(words)}"


@pytest.mark.parametrize(
    "line", ["tarin reverse", "train revers", "resume runs/x --json", "train copy --model.norms layer"]
)
def test_wrong_command_is_seen(line):
    [words] = commands(f"```\nglassformer {line} # with a remark\n```")
    assert refused(words)


def test_the_tour_shows_every_verb():
    assert {words[1] for name, words in SPELLED if name == "docs/command_line.md"} | {"demo"} == {*VERBS}


@pytest.mark.parametrize(("name", "words"), MADE, ids=[" ".join(words[:2]) for _, words in MADE])
def test_make_target_exists(name, words):
    targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text("utf-8"), re.M)
    requested = [word for word in words[1:] if "=" not in word and re.fullmatch(r"[a-z-]+", word)]
    assert {*requested} <= {*targets}, f"{name}: {words}"


# --- the table of results


def test_results_are_those_of_the_benchmark(module):
    """The table's head and rows, and the command that fills it."""
    results = module("results")
    rows = list(tables(section(TEXTS["docs/results.md"], "Results to expect")))
    assert [row[:2] for row in rows] == [[f"`{each.name}`", each.measures] for each in results.EXPERIMENTS]
    assert [
        cell.strip() for cell in re.search(r"^\| (recipe .*) \|$", TEXTS["docs/results.md"], re.M)[1].split("|")
    ] == [*results.HEAD]
    [given] = [word for _, words in MADE for word in words if word.startswith("ARGS=results")]
    assert results.reader().parse_args(shlex.split(given.removeprefix("ARGS="))[1:]).data == "data"


def test_readme_repeats_results():
    """Each figure of its short table stands in the long one's row of the same recipe, with the same seconds."""
    known = {row[0].strip("`"): row[2:] for row in tables(section(TEXTS["docs/results.md"], "Results to expect"))}
    short = [row for row in tables(README) if {*INLINE.findall(row[0])} & {*known}]
    assert len(short) == 6
    for recipe, measured, seconds in short:
        names = INLINE.findall(recipe)
        figure = re.search(r"[\d.]+", measured.rpartition(":")[2])[0]
        assert [known[name][0].split()[0] for name in names] == [figure] * len(names)
        assert [known[name][1].split()[0] for name in names] == seconds.split(", ")


def test_readme_is_one_page():
    assert len(README.splitlines()) <= 110


@pytest.mark.slow
def test_readme_shows_what_check_says(tmp_path):
    """The scale over the whole width, in line 6: that one finding, as the README has it."""
    (tmp_path / "attention.py").write_text(
        "import math\nimport torch\n\n\ndef attention(q, k, v, mask=None):\n"
        "    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[1] * q.shape[-1])\n"
        "    if mask is not None:\n        scores = scores.masked_fill(mask == 0, float('-inf'))\n"
        "    return scores.softmax(-1) @ v\n"
    )
    words = ("-m", "glassformer", "check", "attention.py")
    output = python(*words, cwd=tmp_path, env=os.environ | {"COLUMNS": "120"}).stdout
    [shown] = [body for body in blocks(README, "text") if "FAILS" in body]
    assert " ".join(output.split()).count(" ".join(shown.split()[:5])) == 1
    for line in shown.splitlines():
        assert " ".join(line.split()).rstrip(".") in " ".join(output.split())


TINY = {
    "attend": "--rounds 1 --lengths 4 --tokens 8 --mask padding",
    "attention": "--rounds 1 --lengths 4 --tokens 8 --heads 2 --width 4",
    "sparse": "--rounds 1 --lengths 4 8 --heads 1 --width 2",
    "dropout": "--rounds 1 --tokens 8 --json",
    "norm": "--rounds 1 --batch 1",
    "muon": "--rounds 1 --widths 8",
    "cross_entropy": "--rounds 1 --targets 4 --vocabulary 16 --vectors 4 --head 16 --d-model 8",
    "train_step": "--rounds 1 --batch 2 --length 6 --vocabulary 20 --d-model 16 --layers 1",
    "busy": "--rounds 1 --steps 2 --others 1",
    "learn": "--rounds 1",
    "checkpoint": "--rounds 1 --tokens 64 --vocabulary 50 --d-model 16 --layers 1 --steps 2",
    "decode": "--rounds 1 --small --works gpt2-1 beam --ours bfloat16 int8",
    "heads": "--rounds 1 --layers 1 --heads 1 --d-model 8 --sequences 4 --scored 2",
    "live": "--rounds 1 --window 0.5 --every 2 --threads 1",
    "page": "--sizes --layers 1 --heads 1 --tokens 70",
    "ranks": "--processes 1 --steps 1 --batch 2 --length 6 --vocabulary 20 --d-model 16 --layers 1",
    "serve": "--rounds 1 --clients 2 --requests 2 --tokens 3 --prompt 4 --d-model 16 --layers 1 --threads 1",
    "text": "--megabytes 1 --kinds byte",
} | {
    "memory": "--case 0",
    "results": "--only multi30k",
    "studies": "--list",
    "language": "--list",
    "words": "",
    "tokenized": "",
}


@pytest.mark.slow
def test_benchmarks_run(tmp_path):
    """All of `make bench`, as small as can be; the figures of such a run mean nothing."""
    body = f"from run import KNOWN, main\nassert {{*KNOWN}} == {{*{[*TINY]}}}\n"
    body += "".join(f"assert main([{name!r}, *{words.split()}]) == 0\n" for name, words in TINY.items())
    assert run_python(body, tmp_path).count("## ") == len(TINY) - 9, (
        "a heading each, but for JSON, busy, language, memory, results, studies, text, tokenized and words"
    )


# --- links


def anchors(text: str) -> set[str]:
    """The names that a page's headings can be linked by: lower case, without punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", text), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(name: str, text: str) -> list[str]:
    """Links that lead nowhere: a file that is not there, or a heading that the page does not have."""
    found: list[str] = []
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", text)):
        path, _, anchor = target.partition("#")
        place = (ROOT / name).parent / path if path else ROOT / name
        if target.startswith("https://"):
            continue
        page = text if not path else place.read_text("utf-8") if place.is_file() and place.suffix == ".md" else ""
        if not place.exists() or (anchor and anchor not in anchors(page)):
            found.append(target)
    return found


@pytest.mark.parametrize("name", TEXTS)
def test_links_lead_somewhere(name):
    assert broken(name, TEXTS[name]) == []


@pytest.mark.parametrize("link", ["docs/nothing.md", "#no-such-heading", "docs/glossary.md#nor-this", "http://x.org"])
def test_broken_link_is_seen(link):
    assert broken("README.md", f"# Here\n[there]({link})") == [link]


# --- what the architecture says


@cache
def defined(path: Path) -> set[str]:
    """Functions, classes, their methods as Class.method, and what is assigned at the top of a module."""
    names: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, architecture.Definition):
            names.add(node.name)
            names |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, architecture.Definition)}
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names |= {each.id for each in targets if isinstance(each, ast.Name)}
    return names


WHERE = [place for _, _, place in tables(TEXTS["docs/variants.md"])]
PLACES = [(re.findall(r"\]\(([^)]+)\)", text)[0], INLINE.findall(text)[0]) for text in WHERE]


@pytest.mark.parametrize(("path", "name"), PLACES, ids=[f"{Path(path).name}-{name}" for path, name in PLACES])
def test_where_is(path, name):
    assert name in defined((ROOT / "docs" / path).resolve())


def test_where_is_can_fail():
    assert 15 < len(PLACES) <= 60
    assert not {"nothing", "Mask.nothing"} & defined(architecture.SOURCE / "nn/mask.py")


def test_floors_are_those_of_the_test():
    rows = {folder: int(row[0]) for row in tables(section(ARCHITECTURE, "Floors")) for folder in INLINE.findall(row[1])}
    there = {path.name for path in architecture.SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert rows == {folder: architecture.FLOORS[folder] for folder in there}


def test_reading_path_is_as_long_as_it_says():
    path = section(ARCHITECTURE, "Reading path")
    files = [ROOT / "docs" / each for each in re.findall(r"\]\(([^)]+)\)", path)]
    lines = sum(len(each.read_text("utf-8").splitlines()) for each in files)
    claimed = int(re.search(r"about ([\d,]+) lines", path)[1].replace(",", ""))
    assert abs(lines - claimed) <= 0.1 * claimed, f"{lines} lines in {len(files)} files"
    assert f"{len(files)} files" in path


def test_run_folder_is_as_it_is_written():
    tree = section(TEXTS["docs/run_folder.md"], "A run on disk").partition("```")[2].partition("```")[0]
    names = {word.strip("/") for line in tree.splitlines() for word in re.findall(r"[├└]─ (\S+)", line)}
    assert names == CONTENT | {*folders.REQUIRED, folders.OPTIMIZER, MANIFEST} | {"step-000000200"}
    assert folders.SOURCE_TOKENIZER in tree


# --- what is inside


def test_documents_name_every_public_name():
    assert {*glassformer.__all__} == {each for it in tables(TEXTS["docs/python.md"]) for each in INLINE.findall(it[0])}


# --- The glossary says what is so: our words are in our sources, and torch's in torch's


@cache
def words_of_ours() -> set[str]:
    """Every name in the package: functions, classes, parameters, attributes, variables."""
    text = "".join((architecture.SOURCE / module).read_text("utf-8") for module in architecture.MODULES)
    return {*re.findall(r"\w+", text)}


@pytest.mark.parametrize("row", list(tables(GLOSSARY)), ids=lambda row: row[0])
def test_glossary(row):
    """Our words are in our sources; what is said to be of a part of torch's is named there."""
    ours = [word for word in INLINE.findall(row[0] if row[0] != "glassformer" else row[1]) if "." not in word]
    assert {*ours} <= words_of_ours()
    for names, owner in re.findall(r"((?:`\w+`(?:,| and)? ?)+) of `([\w.]+)`", row[-1] if len(row) > 3 else row[1]):
        known = known_to_torch(owner)
        assert {*INLINE.findall(names)} <= known, f"{owner} has no {names}"


def known_to_torch(owner: str) -> set[str]:
    """Every word in the source of something in torch, or in its documentation where it is compiled."""
    thing: object = {"nn": torch.nn, "F": F, "optim": torch.optim}[owner.split(".")[0]]
    for part in owner.split(".")[1:]:
        thing = getattr(thing, part)
    text = inspect.getsource(thing) if isinstance(thing, type) or inspect.isfunction(thing) else inspect.getdoc(thing)
    return {*re.findall(r"\w+", text or "")}


# --- The reading path: what a reader is promised of its files, and how few calls lead from the model to its softmax


DOCUMENT = (architecture.ROOT / "docs/architecture.md").read_text("utf-8")
PATH = re.findall(r"^\d+\. \[(\S+\.py)\]", DOCUMENT.partition("## Reading path")[2].partition("\n## ")[0], re.MULTILINE)
SEVENTH = "nn/block.py"


def imports(module):
    """What a file imports when it is imported itself."""
    for node in ast.parse((architecture.SOURCE / module).read_text("utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            yield node.module


def test_the_equations_need_nothing_else():
    known = {f"glassformer.{file.removesuffix('.py').replace('/', '.')}" for file in PATH}
    for module in PATH[: PATH.index(SEVENTH) + 1]:
        ours = [name for name in imports(module) if name.startswith("glassformer")]
        assert [name for name in ours if name not in known and not name.startswith("glassformer.base.")] == [], module
        others = {name.partition(".")[0] for name in imports(module)} - {"glassformer", "torch", "jaxtyping"}
        assert others <= sys.stdlib_module_names, module


def test_it_can_be_read_in_a_sitting():
    assert 10 <= len(PATH) <= 14
    assert sum(len((architecture.SOURCE / file).read_text("utf-8").splitlines()) for file in PATH) < 2_500


@pytest.mark.shapes(False)
@pytest.mark.parametrize(
    ("backend", "module", "softmax", "most"),
    [("reference", attention, "softmax_over_readable", (8, 4)), ("auto", backends, "softmax", (9, 6))],
)
def test_few_calls_to_the_softmax(backend, module, softmax, most):
    """Calls of our functions, one inside another, from the body of `Transformer.forward`; the softmax is the last."""
    stack = StackConfig(d_model=32, n_heads=4, n_layers=1, d_ff=64, causal=True, attention=backend)
    model, calls = Transformer(ModelConfig(vocab_size=50, decoder=stack)), []

    def look(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_name == softmax and code.co_filename == module.__file__ and not calls:
            while frame is not None:
                name = frame.f_code.co_filename  # a part is called as a module of torch is, by a function between
                if name.startswith(str(architecture.SOURCE)) and not name.endswith("base/part.py"):
                    calls.append((name, frame.f_code.co_name))
                frame = frame.f_back

    sys.setprofile(look)
    try:
        model(torch.tensor([[1, 2, 3]]))
    finally:
        sys.setprofile(None)
    assert calls[-1] == (transformer.__file__, "forward")
    assert (len(calls) - 1, len({file for file, _ in calls})) == most
