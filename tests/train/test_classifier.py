"""A classifier from files to labels: prepared, trained, cut and resumed to the same bits, scored, asked."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from glassformer.base.errors import CheckpointError, ConfigError, DataError
from glassformer.data.batch import Batch
from glassformer.store.checkpoint import load
from glassformer.train.finished.use import answer_lines, evaluate, translate
from glassformer.train.run.beginning import model_config, prepare
from glassformer.train.run.session import resume, start
from train.examples import assert_same_end, follow, recipe

TEXTS = [f"{a} {b} {c}" for a in ("red", "blue") for b in ("cat", "dog", "cow") for c in ("runs", "sleeps far away")]
TRAIN = [(text, text.split()[1]) for text in TEXTS] * 3
DEV = TRAIN[1:8]
SETTINGS = {
    "data__task": "labelled", "data__layout": "label", "model__pooling": "attention", "model__token_dropout": 0.2,
    "model__head_dropout": 0.2, "training__metric": "accuracy",
}  # fmt: skip


def write(path: Path, rows: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{text}\t{label}\n" for text, label in rows), "utf-8")
    return path


def classifier_recipe(folder: Path, **changes):
    train, dev = write(folder / "train.tsv", TRAIN), write(folder / "dev.tsv", DEV)
    files = {"data__train": str(train), "data__dev": str(dev), "data__test": str(dev)}
    return recipe(**{**SETTINGS, **files, **changes})


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("classifier")
    follow(start(classifier_recipe(folder, checkpoint__every=1), folder / "run"))
    return folder / "run"


def test_prepared(tmp_path):
    ready = classifier_recipe(tmp_path)
    prepared = prepare(ready)
    assert prepared.tokenizers.target.entries == ("cat", "cow", "dog")
    config = model_config(ready, prepared.tokenizers)
    assert (config.vocab_size, config.decoder, config.source_vocab_size) == (6 + 9, None, None)
    assert (config.head.kind, config.head.n_labels, config.head.pooling) == ("classify", 3, "attention")
    assert config.encoder.token_dropout == config.head.dropout == 0.2
    notes = prepared.notes()
    assert notes[0] == ("data: 36 training texts, 7 dev texts; 15 tokens; 3 labels: 'cat' (12), 'dog' (12), 'cow' (12)")
    epoch, batch = next(iter(prepared.batches(0)))
    assert (epoch, batch.labels.ndim, batch.source) == (0, 1, None)
    assert set(batch.tokens[:, 0].tolist()) == {1}


def test_labels_of_dev_and_test_must_be_those_of_train(tmp_path):
    ready = classifier_recipe(tmp_path)
    write(tmp_path / "dev.tsv", [*DEV, ("a", "horse")])
    with pytest.raises(DataError, match=r"dev\.tsv:8: the label 'horse' does not occur in the training text"):
        prepare(ready)


def test_a_text_that_is_too_long_is_named_before_training(tmp_path):
    with pytest.raises(DataError, match=r"train\.tsv:2: the text has 6 tokens.*model\.max_len to 6"):
        prepare(classifier_recipe(tmp_path, model__max_len=5))


@pytest.mark.parametrize("step", [1, 4, 7])
def test_cut_after_any_step_it_ends_with_the_same_bits(run, tmp_path, step):
    other = tmp_path / "run"
    follow(start(classifier_recipe(run.parent, checkpoint__every=1), other), stop_after=step)
    torch.manual_seed(step)
    follow(resume(other))
    assert_same_end(other, run)


def test_changed_labels_are_refused(run, tmp_path):
    follow(start(classifier_recipe(tmp_path), tmp_path / "run"), stop_after=2)
    write(tmp_path / "train.tsv", [*TRAIN[:-1], (TRAIN[-1][0], "cat")])
    with pytest.raises(CheckpointError, match="have changed since"):
        resume(tmp_path / "run")


def test_scores_are_those_of_the_labels_given(run):
    loaded, ready = load(run), classifier_recipe(run.parent)
    scored = evaluate(run, ready, "dev")
    texts = [loaded.tokenizers.source.encode(text) for text, _ in DEV]
    scores = torch.stack([loaded.model(Batch.labelled([ids], [0]).tokens)[0] for ids in texts])
    names = loaded.tokenizers.target.entries
    wanted = torch.tensor([names.index(label) for _, label in DEV])
    assert scored["loss"] == pytest.approx(F.cross_entropy(scores, wanted).item(), rel=1e-5)
    assert scored["accuracy"] == (scores.argmax(-1) == wanted).double().mean().item()
    assert scored["n"] == sum(sum(row.values()) for row in scored["confusion"].values()) == len(DEV)
    assert {name: each["n"] for name, each in scored["labels"].items()} == {"cat": 3, "cow": 2, "dog": 2}
    line = next(
        each
        for each in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        if each["kind"] == "dev" and each["step"] == loaded.state["step"]
    )
    assert {name: line[name] for name in ("accuracy", "macro_f1", "loss", "n")} == {
        name: scored[name] for name in ("accuracy", "macro_f1", "loss", "n")
    }
    assert json.loads(json.dumps(scored)) == scored


@pytest.mark.parametrize("size", [1, 2, 99])
def test_lines_are_labelled_in_order_whatever_the_batches(run, size):
    loaded = load(run)
    texts = [text for text, _ in DEV]
    expected = [loaded.model(Batch.labelled([loaded.tokenizers.source.encode(text)], [0]).tokens)[0] for text in texts]
    for found, scores in zip(answer_lines(run, enumerate([*texts, "x cat y"], 1), size), expected, strict=False):
        shares = scores.softmax(-1)
        assert list(found.probabilities) == ["cat", "cow", "dog"]
        assert list(found.probabilities.values()) == pytest.approx(shares.tolist(), abs=1e-6)
        assert found.label == ["cat", "cow", "dog"][int(shares.argmax())]
        assert [*found.unknown] == []
    *_, last = answer_lines(run, enumerate(["x cat y"], 1), size)
    assert [*last.unknown] == ["x", "y"]


def test_a_line_longer_than_the_model_takes_is_named_and_not_cut(tmp_path):
    follow(start(classifier_recipe(tmp_path, model__max_len=6, training__steps=1), tmp_path / "run"))
    lines = [(1, "red cat"), (4, "red cat " * 3)]
    with pytest.raises(DataError, match=r"max_len=6 tokens, <bos> included; line 4 has 7: 'red cat"):
        list(answer_lines(tmp_path / "run", lines, 2))
    assert len(list(answer_lines(tmp_path / "run", lines[:1], 2))) == 1


def test_a_run_is_asked_for_what_it_gives(run, tmp_path):
    with pytest.raises(ConfigError, match=r"gives labels and answers no lines.*glassformer classify"):
        list(translate(run, [(1, "a")], 1))
    follow(start(recipe(training__steps=1), tmp_path / "run"))
    with pytest.raises(ConfigError, match=r"writes answers and answers no lines by itself.*glassformer translate"):
        list(answer_lines(tmp_path / "run", [(1, "a")], 1))
