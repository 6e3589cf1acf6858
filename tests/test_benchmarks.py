"""The benchmarks: what a decoded token needs, seconds scaled to a machine, words alone, expected results."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from sacrebleu.metrics.bleu import BLEU

from glassformer import ModelConfig, StackConfig, Transformer


@pytest.mark.parametrize("tied", [True, False])
def test_a_step_reads_all_maps_and_the_head(module, tied):
    """By hand: four maps of 8 x 8 a block, 8 x 32 up and down, and the head; one row of the embedding is nothing."""
    stack = StackConfig(d_model=8, n_heads=2, n_layers=3, d_ff=32, causal=True)
    model = Transformer(ModelConfig(20, decoder=stack, tie_embeddings=tied))
    assert module("decode_memory").weights(model) == 3 * (4 * 8 * 8 + 2 * 8 * 32) + 20 * 8


def test_a_step_reads_keys_and_values_of_all_layers(module):
    """By hand: a key and a value of one head of 4 numbers in each of three layers."""
    stack = StackConfig(d_model=8, n_heads=2, n_kv_heads=1, n_layers=3, d_ff=32, causal=True)
    assert module("decode_memory").cached(Transformer(ModelConfig(20, decoder=stack))) == 3 * 2 * 4


def test_the_limits_are_of_the_weights_and_of_what_a_step_reads_besides(module, monkeypatch):
    """Three steps after 4 tokens read 4, 5 and 6 columns: 5 on average."""
    memory = module("decode_memory")
    monkeypatch.setattr(memory, "reads", lambda n_bytes, times: (n_bytes, times))
    stack = StackConfig(d_model=8, n_heads=2, n_kv_heads=1, n_layers=3, d_ff=32, causal=True)
    model = Transformer(ModelConfig(20, decoder=stack))
    weights = 2 * (3 * (2 * 8 * 8 + 2 * 4 * 8 + 2 * 8 * 32) + 20 * 8)
    expected = {"reading the weights": (weights, 3), "reading weights and cache": (weights + 5 * 24 * 4, 3)}
    assert memory.limits(model, of_weight=2, of_cache=4, read=4, steps=3) == expected


SMALL = StackConfig(d_model=8, n_heads=2, n_layers=1, d_ff=32)


def test_a_run_of_the_benchmarks_own_shape_is_translated(module):
    module("decode_lines").check_shape(Transformer(ModelConfig(20, encoder=SMALL, decoder=SMALL)), "runs/de")


@pytest.mark.parametrize(
    ("change", "named"),
    [({"convolution": 2}, "convolution"), ({"positions": "rotary", "norm": "rms"}, "positions, norm")],
)
def test_a_run_that_cannot_be_converted_is_named_with_what_it_has(module, change, named):
    stack = replace(SMALL, **change)
    model = Transformer(ModelConfig(20, encoder=stack, decoder=stack))
    with pytest.raises(SystemExit, match=rf"cannot load runs/de, because of {named}\. .*--model\.convolution 1"):
        module("decode_lines").check_shape(model, "runs/de")


def test_a_run_without_an_encoder_is_refused_for_its_layout(module):
    model = Transformer(ModelConfig(20, decoder=replace(SMALL, causal=True)))
    with pytest.raises(SystemExit, match="because of its layout"):
        module("decode_lines").check_shape(model, "runs/de")


# --- The benchmark of language models: seconds are those of a machine on which nanoGPT's command takes 76


@pytest.fixture
def language(module):
    return module("language")


def budget(language):
    return language.Budget("a minute", 76.0, 1.52, ())


@pytest.mark.parametrize(("its", "requested"), [(None, 76.0), (76.0, 76.0), (114.0, 114.0)])
def test_the_seconds_asked_for_are_scaled_by_nanogpts(language, its, requested):
    found = [language.Timed(1.5, 80.0, its)]
    assert language.seconds_for(budget(language), found) == pytest.approx(requested)
    assert language.within(budget(language), found) == (requested > 80)


def test_they_are_scaled_by_the_mean_over_seeds(language):
    found = [language.Timed(1.5, 100.0, 90.0), language.Timed(1.5, 100.0, 110.0), language.Timed(1.5, 100.0, 103.0)]
    assert language.seconds_for(budget(language), found) == pytest.approx(101.0)


@pytest.mark.parametrize(("losses", "kept"), [((1.51, 1.52), True), ((1.50, 1.55), False)])
def test_the_mean_loss_counts(language, losses, kept):
    assert language.within(budget(language), [language.Timed(each, 70.0) for each in losses]) == kept


# --- The benchmark of words alone: log-count ratios by hand, and tiny texts that words do tell apart


GOOD, BAD = "a fine film", "a dull film"
ARTICLE = " the film was fine and the acting was dull @-@ witted \n"


@pytest.fixture
def words(module):
    return module("words")


@pytest.fixture
def data(tmp_path):
    """A folder with both data sets, as small as can be."""
    for folder in ("sst2", "wikitext-2"):
        (tmp_path / folder).mkdir()
    for name in ("train", "dev"):
        (tmp_path / "sst2" / f"{name}.tsv").write_text(f"{GOOD}\t1\n{BAD}\t0\n" * 20, "utf-8")
    (tmp_path / "wikitext-2" / "wiki.train.tokens").write_text(ARTICLE * 5, "utf-8")
    return tmp_path


def test_ratios_are_those_of_the_paper(words):
    texts, known = [["fine", "film", "film"], ["film"], ["dull"]], {"fine": 0, "film": 1, "dull": 2}
    found = words.count_ratios(texts, torch.tensor([1.0, 1.0, 0.0]), known)
    favour, against = [2 / 6, 3 / 6, 1 / 6], [1 / 4, 1 / 4, 2 / 4]
    assert found.tolist() == pytest.approx([math.log(p / q) for p, q in zip(favour, against, strict=True)], rel=1e-6)


def test_texts_that_words_tell_apart_are_told_apart(words, data, capsys):
    assert words.main(["--data", str(data), "--threads", "1", "--json"]) == 0
    cases = json.loads(capsys.readouterr().out)
    by = {(each["features"], each["vectors"]): each["accuracy"] for each in cases}
    assert {vectors for _, vectors in by} == {"", *words.VECTORS}
    del by["vectors", "SST-2's own sentences"]  # there the two words have the same neighbours
    assert {*by.values()} == {1.0}


def test_missing_files_are_named(words, data, capsys):
    (data / "sst2" / "dev.tsv").unlink()
    assert words.main(["--data", str(data)]) == 2
    output = capsys.readouterr().err
    assert "dev.tsv is missing" in output
    assert "--data" in output


# --- The benchmark of expected results: files in the form that a row needs, and rows that start from another's run


PARAGRAPH = ' Robert <unk> is a well @-@ known actor . He didn \'t earn 1 @,@ 200 or 3 @.@ 5 " pounds " . \n'
REVIEW = 'robert is a well known actor . he did n\'t earn 1,200 or 3.5 " pounds " .'


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
    assert trained == [("copy", both), ("reverse", [*both, f"--training.start-from={runs / 'the-first-seed-7'}"])]
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
