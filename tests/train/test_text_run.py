"""Runs on running text: resumed to the same bits, their data watched, scored on any file."""

import json

import pytest

from glassformer.base.errors import CheckpointError, ConfigError
from glassformer.store.checkpoint import load
from glassformer.study.result import score
from glassformer.train.finished.use import answer_lines, evaluate, translate
from glassformer.train.recipe import load_recipe, override
from glassformer.train.records import Finished
from glassformer.train.run.outlook import look_ahead
from glassformer.train.run.session import resume, start
from glassformer.train.run.trial import noise_over, search
from train.examples import STEPS, assert_resumed_to_the_same_bits, assert_same_end, follow
from train.text_examples import book, shelf, text_recipe, words

RUNS = {
    "next_token": {},
    "sequential": {"data__order": "sequential"},
    "prefix": {"objective": "prefix"},
    "masked": {"objective": "masked", "training__metric": "token_accuracy", "data__whole_words": True},
    "spans": {"objective": "spans", "training__batch_tokens": 80},
    "noise": {"objective": "noise", "training__batch_tokens": 100},
    "muon": {"optimizer__name": "muon", "optimizer__average": 0.9},
    "subwords": {"tokenizer__kind": "bpe", "tokenizer__vocab_size": 270},
}


@pytest.mark.parametrize("name", RUNS)
def test_cut_and_resumed_to_the_same_bits(tmp_path, name):
    assert_resumed_to_the_same_bits(text_recipe(book(tmp_path), **RUNS[name]), tmp_path)


def test_documents_are_resumed_as_they_were_decided(tmp_path):
    path = shelf(tmp_path)
    requested = text_recipe(path, data__document_mask=True, data__window=24, training__batch_tokens=96)
    assert_resumed_to_the_same_bits(requested, tmp_path)
    assert "documents = true" in (tmp_path / "run" / "recipe.toml").read_text("utf-8")


@pytest.mark.parametrize("order", ["random", "sequential"])
def test_a_step_whose_windows_ask_for_nothing_is_drawn_anew(tmp_path, order):
    """And who resumes draws the same, and names the windows that were read."""
    path = tmp_path / "rare.txt"  # a word of its own is <unk>, of which nothing is hidden
    path.write_text(" ".join(f"x{i}" for i in range(150)) + " the cat sat on a mat" * 25, "utf-8")
    settings = {"tokenizer__kind": "word", "tokenizer__min_count": 2, "training__batch_tokens": 8}
    requested = text_recipe(path, "masked", data__order=order, **settings)
    session = start(requested, tmp_path / "whole")
    data = session.prepared
    firsts = [data.windows.starts(step, 1) for step in range(STEPS)]
    lost = [step for step, first in enumerate(firsts) if (data.train.tokens.take(first, 8) < 6).all()]
    assert lost
    assert f"tokens {firsts[lost[0]][0]} (" not in data.named_batch(lost[0] + 1)
    assert isinstance(follow(session)[-1], Finished)
    follow(start(requested, tmp_path / "run"), stop_after=5)
    follow(resume(tmp_path / "run"))
    assert_same_end(tmp_path / "run", tmp_path / "whole")


def test_documents_are_decided_anew_where_a_resume_asks(tmp_path):
    """And written down as decided, as a run's first recipe is: the next resume finds them so."""
    run, path = tmp_path / "run", shelf(tmp_path)
    follow(start(text_recipe(path, data__documents=False), run), stop_after=5)
    with pytest.raises(CheckpointError, match=r"data\.documents false -> none.* --data\.documents none\.$"):
        resume(run, requested={"data.documents": None})
    session = resume(run, ["data.documents"], {"data.documents": None})
    assert session.recipe.data.documents is True
    assert load_recipe(run / "recipe.toml").data.documents is True
    assert follow(session)[-1].step == STEPS
    with pytest.raises(ConfigError, match="the same as in the run so far"):
        resume(run, ["data.documents"])


def test_a_lost_cache_changes_nothing(tmp_path, monkeypatch):
    requested = text_recipe(book(tmp_path))
    follow(start(requested, tmp_path / "whole"))
    follow(start(requested, tmp_path / "run"), stop_after=5)
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "elsewhere"))
    follow(resume(tmp_path / "run"))
    assert_same_end(tmp_path / "run", tmp_path / "whole")


def test_changed_text_is_refused_by_name_and_gone_on_with_where_allowed(tmp_path):
    path = book(tmp_path)
    follow(start(text_recipe(path), tmp_path / "run"), stop_after=5)
    path.write_text("e" + words(120)[1:], "utf-8")
    with pytest.raises(CheckpointError, match=rf"contents of the training .* \({path}\) have changed since.*data.text"):
        resume(tmp_path / "run")
    session = resume(tmp_path / "run", ["data.text"])
    assert f"changed, as allowed: the contents of the training text ({path})" in session.notes
    assert isinstance(follow(session)[-1], Finished)


def test_changed_dev_text_is_named(tmp_path):
    dev = tmp_path / "dev.txt"
    dev.write_text(words(20, 7), "utf-8")
    follow(start(text_recipe(book(tmp_path), data__dev_text=str(dev)), tmp_path / "run"), stop_after=5)
    dev.write_text(words(20, 8), "utf-8")
    with pytest.raises(CheckpointError, match=rf"contents of the dev text \({dev}\) have changed.*data.dev_text"):
        resume(tmp_path / "run")


def test_a_text_may_lie_elsewhere(tmp_path):
    path = book(tmp_path)
    follow(start(text_recipe(path), tmp_path / "run"), stop_after=5)
    path.rename(tmp_path / "moved.txt")
    session = resume(tmp_path / "run", requested={"data.text": str(tmp_path / "moved.txt")})
    assert isinstance(follow(session)[-1], Finished)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    follow(start(text_recipe(book(folder)), folder / "run"))
    return folder / "run"


def test_a_whole_file_is_scored(run, tmp_path):
    test = tmp_path / "test.txt"
    test.write_text(words(50, 3) + "xyz", "utf-8")
    recipe = text_recipe(run.parent / "book.txt", data__documents=False, data__test_text=str(test))
    scores = evaluate(run, recipe)
    assert scores["n"] == len(words(50, 3)) + 2
    assert scores["unknown"] == 3
    dev = evaluate(run, recipe, "dev")
    assert dev == pytest.approx(load(run).state["best_metrics"], rel=1e-6)


def test_dev_is_what_was_held_out_in_training(tmp_path):
    """Where it is cut from a text that changed, or elsewhere, it may be what the model has learned from."""
    path, run, other = book(tmp_path), tmp_path / "run", tmp_path / "other.txt"
    follow(start(text_recipe(path), run), stop_after=4)
    own = load_recipe(run / "recipe.toml")
    path.rename(tmp_path / "moved.txt")
    moved = override(own, {"data.text": str(tmp_path / "moved.txt")})
    assert evaluate(run, moved, "dev")["n"]
    with pytest.raises(CheckpointError, match=r"data\.dev_share is 0\.3 and was 0\.1, .* settings of the training"):
        evaluate(run, override(moved, {"data.dev_share": 0.3}), "dev")
    path.write_text(words(120)[: len(words(120)) // 2], "utf-8")
    with pytest.raises(
        CheckpointError, match=rf"contents of {path} have changed, .*Restore the old file, .* {run} --data\.text FILE"
    ):
        evaluate(run, own, "dev")
    other.write_text(words(30, 8), "utf-8")
    assert evaluate(run, override(own, {"data.test_text": str(other)}))["n"]
    assert evaluate(run, override(own, {"data.dev_text": str(other)}), "dev")["n"]


def test_what_it_cannot_do_is_named(run, tmp_path):
    own = text_recipe(run.parent / "book.txt", data__documents=False)
    with pytest.raises(ConfigError, match="test split needs a text"):
        evaluate(run, own)
    with pytest.raises(ConfigError, match="predicts running text"):
        evaluate(run, own, "dev", by_length=True)
    with pytest.raises(ConfigError, match=r"data\.objective='next_token'; got 'prefix'"):
        evaluate(run, text_recipe(run.parent / "book.txt", "prefix"), "dev")
    with pytest.raises(ConfigError, match="Use glassformer generate"):
        list(translate(run, [(1, "a")], 1))
    with pytest.raises(ConfigError, match="Use glassformer generate"):
        list(answer_lines(run, [(1, "a")], 1))


def test_samples_and_figures_are_kept(run):
    dev = [line for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) if line["kind"] == "dev"]
    assert [line["step"] for line in dev] == [4, 8, 12]
    assert {"loss", "bits_per_byte", "bits_per_character", "perplexity", "word_perplexity", "n"} <= dev[0].keys()
    assert (run / "samples" / f"step-{STEPS:09d}.txt").read_text("utf-8").count("  source  ") == 1


def test_a_study_scores_the_dev_text_where_there_is_no_other(run):
    result = score(run, {}, {})
    assert result.test["loss"] == pytest.approx(float(load(run).state["best_metrics"]["loss"]), rel=1e-6)
    assert score(run, {}, {"data.stride": 2}).other["n"] == result.test["n"]


@pytest.mark.parametrize("objective", ["next_token", "spans"])
def test_the_outlook_counts_windows(tmp_path, objective):
    requested = text_recipe(book(tmp_path), objective, training__batch_tokens=80, optimizer__name="muon")
    outlook = look_ahead(requested, tmp_path / "run")
    assert outlook.data.what == "windows"
    if objective == "next_token":
        assert outlook.data.batches == -(-outlook.data.samples // 10)
    assert outlook.memory.peak > outlook.memory.weights
    assert not (tmp_path / "run").exists()


def test_trials_need_no_run(tmp_path):
    requested = text_recipe(book(tmp_path))
    assert search(requested).recommended > 0
    assert next(noise_over(requested)).targets == 6 * 8


@pytest.mark.parametrize("setting", ["data__text", "data__dev_text", "data__test_text"])
def test_a_run_does_not_write_among_its_texts(tmp_path, setting):
    """Its weights would be read as text by whoever resumes or scores it; hidden folders no text is read from."""
    texts = tmp_path / "texts"
    (texts / "runs").mkdir(parents=True)
    book(texts)
    requested = text_recipe(book(tmp_path), **{setting: str(texts)})
    with pytest.raises(ConfigError, match=rf"text {texts} and the run folder {texts / 'runs' / 'one'} in it\..*--out"):
        start(requested, texts / "runs" / "one")
    assert not (texts / "runs" / "one").exists()
    for out in (texts / ".runs" / "one", tmp_path / "texts-of-run"):
        follow(start(requested, out), stop_after=1)
        follow(resume(out), stop_after=2)
