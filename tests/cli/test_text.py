"""Running text on the command line: trained, scored on any file, and what it is told that it cannot do."""

import json
import re
from pathlib import Path

import pytest

from cli.conftest import TINY
from glassformer.cli.main import main
from glassformer.store.folders import LOCK
from glassformer.train.recipe import load_recipe
from train.text_examples import book, words

BRIEF = (
    *(*TINY, "--training.steps", "4", "--training.batch-tokens", "160", "--training.evaluate-every", "2"),
    *("--checkpoint.every", "0", "--data.window", "32", "--tokenizer.kind", "character"),
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A finished run of the recipe `lm`, made smaller."""
    folder = tmp_path_factory.mktemp("trained")
    assert main(["train", "lm", "--data.text", str(book(folder, 300)), *BRIEF, "--out", str(folder / "run")]) == 0
    return folder / "run"


def test_a_run_of_text_looks_like_any_other(trained):
    assert {path.name for path in trained.iterdir()} == {
        *("recipe.toml", LOCK, "metrics.jsonl", "timing.jsonl", "log.txt", "samples", "checkpoints")
    }
    data = load_recipe(trained / "recipe.toml").data
    assert (data.documents, data.text) == (False, str(trained.parent / "book.txt"))
    log = (trained / "log.txt").read_text("utf-8")
    assert f"Generate text: glassformer generate {trained} --prompt TEXT" in log
    assert "5 windows of 32 tokens" in log


def test_a_text_that_changed_is_not_shown_as_held_out(run, refused, tmp_path):
    """What is its end now the model may have learned from: neither its examples nor its heads are told of it."""
    path, out, page = book(tmp_path, 300), tmp_path / "run", tmp_path / "page.html"
    assert run("train", "lm", "--data.text", str(path), *BRIEF, "--out", str(out)).code == 0
    before = run("explore", str(out), "--export", str(page)).err
    (out / "heads.json").unlink()
    path.write_text(words(150), "utf-8")  # its first half
    after = run("explore", str(out), "--export", str(page)).err
    message = f"the contents of {path} have changed, so that the model may have been trained on it"
    assert (before.count(message), after.count(message)) == (0, 2)
    assert "the examples are made up from the vocabulary" in after
    assert "The heads cannot be analysed" in after
    assert message in refused("heads", str(out))


@pytest.mark.parametrize("name", ["mlm", "denoise"])
def test_the_other_recipes(tmp_path, run, name):
    out = tmp_path / "run"
    assert run("train", name, "--data.text", str(book(tmp_path, 300)), *BRIEF, "--out", str(out)).code == 0
    assert f"Score it on another text: glassformer evaluate {out} --data.text FILE" in (out / "log.txt").read_text()
    (tmp_path / "test.txt").write_text(words(40, 9), "utf-8")
    assert json.loads(run("evaluate", str(out), "--data.text", str(tmp_path / "test.txt"), "--json").out)["n"] > 9


def test_texts_that_follow_a_grammar(trained, run, refused, tmp_path):
    pytest.importorskip("llguidance", reason="llguidance is not installed")
    words = ("generate", str(trained), "--prompt", "a", "--no-prompt", "--json", "--n", "3")
    report = [json.loads(line) for line in run(*words, "--regex", "[ae]{3}( [ae]){2}").out.splitlines()]
    assert all(re.fullmatch("[ae]{3}( [ae]){2}", each["text"]) and each["end"] == "eos" for each in report)
    assert "the file is empty" in refused(*words, "--json-schema", file_of(tmp_path, ""))
    assert "is not JSON" in refused(*words, "--json-schema", file_of(tmp_path, "{"))
    assert "must be one that llguidance supports" in refused(*words, "--regex", "a((")
    assert "got both" in refused(*words, "--regex", "a", "--json-schema", file_of(tmp_path, '{"enum": ["a"]}'))
    assert "there is no such file" in refused(*words, "--json-schema", str(tmp_path / "nowhere"))


def test_settings_that_forbid_every_token_are_named_before_a_text_is_printed(trained, refused, run):
    pytest.importorskip("llguidance", reason="llguidance is not installed")
    words = ("generate", str(trained), "--prompt", "e")
    assert "tokens of the text all are forbidden by --regex and --begin. C" in refused(
        *words, "--regex", "a", "--begin", "b"
    )
    assert "after 1 tokens of the text all are forbidden by --ban and --regex. Change" in refused(
        *words, "--regex", "abc", "--ban", "b"
    )
    assert "forbidden by --bias and --begin. Change" in refused(*words, "--begin", "ab", "--bias", "b=-inf")
    ended = run(*words, "--regex", "abc", "--ban", "b", "--stop", "a")
    assert (ended.code, ended.out) == (0, "e\n"), "a stop text ends it before"


def test_a_text_cut_before_it_matches_is_told(trained, run):
    pytest.importorskip("llguidance", reason="llguidance is not installed")
    words = ("generate", str(trained), "--prompt", "e", "--no-prompt", "--max-new-tokens", "5")
    cut = run(*words, "--regex", "[ab]{6}")
    assert (cut.code, len(cut.out)) == (0, 6)
    message = "A text matches --regex only when it is complete; the text was cut before that, at 5 tokens."
    assert cut.err.splitlines()[-1] == f"{message} Raise --max-new-tokens."
    assert "only when" not in run(*words, "--regex", "[ab]{5,6}").err, "it matches, though it could go on"
    assert "only when" not in run(*words, "--regex", "[ab]{6}", "--stop", "a", "--stop", "b").err
    assert "only when" not in run(*words).err
    some = run(*words, "--regex", "a|[bc]{6}", "--n", "9", "--json")
    numbers = [i for i, line in enumerate(some.out.splitlines(), 1) if json.loads(line)["end"] == "max_new_tokens"]
    assert 1 < len(numbers) < 9
    which = ", ".join(map(str, numbers[:5])) + (", ..." if len(numbers) > 5 else "")
    assert f"; {len(numbers)} of 9 texts ({which}) were cut before that, at 5 tokens." in some.err


@pytest.mark.parametrize("given", ["e", "abc", "a=x", "=3", "\u2713", "\u2713=", "the"])
def test_the_example_of_a_bias_works_for_the_vocabulary(trained, run, refused, given):
    words = ("generate", str(trained), "--prompt", "e", "--max-new-tokens", "2")
    message = refused(*words, "--bias", given)
    example = re.search(r"Try --bias '([^']+)'\.$", message.strip())
    assert example is not None, message
    assert run(*words, "--bias", example[1]).code == 0
    text = given.partition("=")[0]
    assert text != "abc" or example[1] == "a=-2.5"
    assert text != "e" or example[1] == "e=-2.5"


def test_an_empty_text_gives_nothing_to_score(trained, refused, tmp_path):
    assert f"{tmp_path}/file.json: the text is empty, so there is nothing to score. Give another text" in refused(
        "evaluate", str(trained), "--data.text", file_of(tmp_path, "")
    )
    learned = refused("train", "lm", "--data.text", file_of(tmp_path, " "), *BRIEF, "--out", str(tmp_path / "run"))
    assert "so there is nothing to learn from it. Give another text" in learned


def file_of(folder: Path, text: str) -> str:
    (folder / "file.json").write_text(text, "utf-8")
    return str(folder / "file.json")


def test_evaluate_scores_a_whole_file(trained, run, tmp_path):
    test = tmp_path / "test.txt"
    test.write_text(words(40, 9), "utf-8")
    answer = run("evaluate", str(trained), "--data.text", str(test), "--json")
    assert f"Scoring {trained} on {test}." in answer.err
    report = json.loads(answer.out)
    assert report["n"] == len(words(40, 9)) - 1
    assert json.loads(run("evaluate", str(trained), "--data.test-text", str(test), "--json").out) == report
    nearer = json.loads(run("evaluate", str(trained), "--data.text", str(test), "--data.stride", "4", "--json").out)
    assert (nearer["n"], nearer["loss"] != report["loss"]) == (report["n"], True)
    assert json.loads(run("evaluate", str(trained), "--split", "dev", "--json").out)["n"] > 1


WRONG = {
    "no test text": (
        ["evaluate", "RUN"],
        "The test split needs a text, and the recipe names none. Give one with --data.text FILE",
    ),
    "a text and a split": (["evaluate", "RUN", "--data.text", "x", "--split", "dev"], "Give only one of them"),
    "no such file": (["evaluate", "RUN", "--data.text", "nowhere.txt"], "nowhere.txt"),
    "by length": (["evaluate", "RUN", "--split", "dev", "--by-length"], "predicts running text"),
    "another objective": (
        ["evaluate", "RUN", "--split", "dev", "--data.objective", "prefix"],
        "--data.objective next_token; got 'prefix'. Remove --data.objective.",
    ),
    "answers": (["translate", "RUN"], "Use glassformer generate"),
    "labels": (["classify", "RUN"], "Use glassformer generate"),
    "pairs": (["train", "lm", "--data.train", "x.tsv"], "reads running text and no pairs"),
    "a text for pairs": (["train", "reverse", "--data.text", "x.txt"], "--data.text belongs to --data.task text"),
    "no text": (["train", "lm", "--data.text", "nowhere.txt"], "nowhere.txt"),
}


def test_nothing_is_said_to_be_scored_that_is_not(trained, run):
    """Which split is scored is said once its data are there, and never before an error."""
    assert run("evaluate", str(trained)).err.startswith("glassformer: The test split needs a text")
    assert run("evaluate", str(trained), "--split", "dev").err == f"Scoring {trained} on its dev split.\n"


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_named(trained, run, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    words, message = WRONG[name]
    answer = run(*[str(trained) if word == "RUN" else word for word in words])
    assert answer.code == 2
    assert message in answer.err


def test_a_dry_run_tells_of_windows(run, tmp_path):
    answer = run("train", "lm", "--data.text", str(book(tmp_path, 300)), *BRIEF, "--dry-run")
    assert "training windows, " in answer.out
    assert "Nothing was written but the tokens of the text" in answer.out


def test_doctor(trained, run):
    answer = run("doctor", str(trained), "--json")
    assert answer.code == json.loads(answer.out)["exit_code"] == 0
