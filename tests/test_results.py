"""The benchmark of expected results: files in the form that a row needs, and rows that start from another's run."""

import importlib
import json
from pathlib import Path

import pytest
from sacrebleu.metrics.bleu import BLEU

from documents import ROOT

PARAGRAPH = ' Robert <unk> is a well @-@ known actor . He didn \'t earn 1 @,@ 200 or 3 @.@ 5 " pounds " . \n'
REVIEW = 'robert is a well known actor . he did n\'t earn 1,200 or 3.5 " pounds " .'


@pytest.fixture
def module(monkeypatch):
    """A file of benchmarks/ by its name."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


def test_articles_are_written_as_the_reviews_are(module):
    lines = [" \n", " = Robert <unk> = \n", " \n", PARAGRAPH, " = = Career = = \n"]
    assert [*module("files").as_reviews(lines)] == [REVIEW]


@pytest.mark.parametrize(
    ("row", "language", "words"),
    [("multi30k", "de", "Words\n"), ("multi30k french", "fr", "Words\n"), ("multi30k lower french", "fr", "words\n")],
)
def test_captions_are_translated_into_the_language_of_the_row(module, tmp_path, row, language, words):
    for name in ("train", "val", "test_2016_flickr"):
        for each in ("en", "de", "fr"):
            (made := tmp_path / "multi30k" / f"{name}.{each}").parent.mkdir(exist_ok=True)
            made.write_text("Words\n")
    settings = module("experiments").files_of(module("rows").ROWS[row], tmp_path, str(tmp_path))
    assert [each.rpartition(".")[2] for each in settings] == ["en", language] * 3
    assert {Path(each.partition("=")[2]).read_text() for each in settings} == {words}


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_questions_are_read_as_published_and_as_text(module, tmp_path, encoding):
    (tmp_path / "TREC.train.txt").write_bytes(600 * "LOC:city Where is Auguste Rodin 's Café ?\n".encode(encoding))
    (tmp_path / "TREC.test.txt").write_bytes(b"NUM:dist How far is it ?\n")
    module("files").trec(tmp_path, tmp_path / "written")
    lines = (tmp_path / "written" / "train.tsv").read_text("utf-8").splitlines()
    assert lines == 100 * ["Where is Auguste Rodin 's Café ?\tLOC"]


class Moses:
    """What is used of sacremoses, for French: quotes are one character, and an apostrophe ends a token."""

    def __init__(self, language: str = "fr") -> None:
        assert language == "fr"

    def normalize(self, text: str) -> str:
        return text.replace("’", "'")

    def tokenize(self, text: str, *, return_str: bool, escape: bool) -> str:
        assert return_str
        assert not escape
        return text.replace("'", "' ").replace(".", " .")


Moses.MosesPunctNormalizer = Moses.MosesTokenizer = Moses


def test_tokens_of_moses_are_scored_as_they_are_and_without_case(module):
    texts = ["L’homme qui lit un livre.", "Un chien court dans la rue."]
    score = module("tokenized").scores
    same = score(Moses, texts, [each.lower() for each in texts], language="fr")
    assert [each.bleu for each in same] == pytest.approx([100, 100])
    plain, tokens = score(Moses, [texts[0]], ["l'ami qui lit un livre."], language="fr")
    assert (plain.signature.split("|")[3], tokens.signature.split("|")[3]) == ("tok:13a", "tok:none")
    cut = BLEU(tokenize="none", force=True).corpus_score(
        ["l' homme qui lit un livre ."], [["l' ami qui lit un livre ."]]
    )
    assert tokens.bleu == cut.score != plain.bleu


def test_the_end_of_a_line_is_a_word_where_published_figures_count_it(module):
    lines = [" \n", " = Robert <unk> = \n", " two words \n"]
    assert [*module("files").as_counted(lines)] == ["<eol>", "= Robert <unk> = <eol>", "two words <eol>"]


@pytest.fixture
def rows(module, monkeypatch, tmp_path):
    """The module of experiments with a row and one behind it, the folder of the runs, and what was trained."""
    experiments = module("experiments")
    trained = []

    def train_run(recipe, settings, run, wanted):
        trained.append((recipe, settings))
        return None if recipe != "sort" else "it broke"

    def glassformer(*words):
        return 0, json.dumps({"exact_match": 1.0, "n": 3}), ""

    monkeypatch.setattr(experiments, "train_run", train_run)
    monkeypatch.setattr(experiments, "glassformer", glassformer)
    monkeypatch.setattr(experiments, "training_seconds", lambda run: 1.0)
    first = experiments.Experiment("the first", "copy", "")
    then = experiments.Experiment("then", "reverse", "", after="the first")
    monkeypatch.setattr(experiments, "ROWS", {"the first": first})
    return experiments, then, tmp_path, trained


def test_a_row_behind_another_starts_from_its_run_of_the_same_seed(rows):
    experiments, then, runs, trained = rows
    result = experiments.run_experiment(then, 7, runs, None, ["--training.steps=5"])
    both = ["--training.steps=5", "--training.seed=7"]
    assert trained == [
        ("copy", both),
        ("reverse", [*both, f"--training.start-from={runs / 'the-first-seed-7'}"]),
    ]
    assert result.train == ["reverse", *trained[1][1]]


def test_what_was_trained_before_stays_until_the_run_before_is_another(rows, monkeypatch):
    experiments, then, runs, trained = rows
    for times in (2, 2):
        experiments.run_experiment(then, 1, runs, None, [])
        assert len(trained) == times
    changed = experiments.ROWS["the first"].__class__("the first", "copy", "", settings=("--training.steps", "9"))
    monkeypatch.setattr(experiments, "ROWS", {"the first": changed})
    experiments.run_experiment(then, 1, runs, None, [])
    assert [recipe for recipe, _ in trained] == ["copy", "reverse"] * 2


def test_a_row_whose_run_before_failed_is_not_trained_and_says_why(rows, monkeypatch):
    experiments, then, runs, trained = rows
    monkeypatch.setattr(experiments, "ROWS", {"the first": experiments.Experiment("the first", "sort", "")})
    failed = experiments.run_experiment(then, 1, runs, None, [])
    assert failed == experiments.Failure("then", 1, "the first comes before it: it broke")
    assert [recipe for recipe, _ in trained] == ["sort"]


def test_a_ensemble_is_trained_with_seeds_of_its_own_and_scored_together(rows, monkeypatch):
    experiments, _, runs, trained = rows
    scored = []
    monkeypatch.setattr(
        experiments, "glassformer", lambda *words: scored.append(words) or (0, json.dumps({"exact_match": 1.0}), "")
    )
    ensemble = experiments.Experiment("three", "copy", "", members=3)
    results = [experiments.run_experiment(ensemble, seed, runs, None, ["--training.steps=5"]) for seed in (1, 2)]
    seeds = [words[-1] for _, words in trained]
    assert seeds == [f"--training.seed={seed}" for seed in (101, 102, 103, 201, 202, 203)]
    assert [(each.experiment, each.seed, each.seconds) for each in results] == [("three", 1, 3.0), ("three", 2, 3.0)]
    folders = [[str(runs / f"three-seed-{seed}") for seed in range(first, first + 3)] for first in (101, 201)]
    assert scored[3] == ("evaluate", *folders[0], "--json")
    assert scored[7] == ("evaluate", *folders[1], "--json")
    assert results[0].train == ["copy", "--training.steps=5", "--training.seed=101"]
    experiments.run_experiment(ensemble, 1, runs, None, ["--training.steps=5"])
    assert len(trained) == 6


def test_a_ensemble_with_a_member_that_failed_is_none(rows):
    experiments, _, runs, _ = rows
    failed = experiments.run_experiment(experiments.Experiment("three", "sort", "", members=3), 2, runs, None, [])
    assert failed == experiments.Failure("three", 2, "seed 201: it broke")
    missing = experiments.Experiment("three", "classify", "", data="sst2", members=3)
    failed = experiments.run_experiment(missing, 2, runs, None, [])
    assert (failed.experiment, failed.seed, failed.skipped) == ("three", 2, True)
    assert "give --data" in failed.reason
