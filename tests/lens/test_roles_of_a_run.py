"""A run's own task gives the probe, its best checkpoint the model; and each of its checkpoints can be asked."""

from dataclasses import replace
from pathlib import Path

import pytest

from glassformer import diagnose_run, save
from glassformer.base.errors import CheckpointError
from glassformer.data.synthetic import TASKS
from glassformer.lens.roles import diagnose
from glassformer.lens.roles.diagnosis import open_run, over_checkpoints
from glassformer.lens.roles.probe import spread
from glassformer.store.folders import step_folder
from glassformer.train.recipe import dumps_recipe, load_recipe, override
from glassformer.train.run.beginning import new_model, prepare

TINY = {
    "model.d_model": 16, "model.n_heads": 2, "model.d_ff": 16, "model.n_layers": 1, "model.dropout": 0.0,
    "training.threads": 1, "training.device": "cpu", "training.steps": 2,
}  # fmt: skip


def untrained_run(folder: Path, name: str, changes: dict[str, object], steps: tuple[int, ...] = (2,)) -> Path:
    """A run folder as training leaves it, but for the training."""
    named = ["encoder"] if changes.get("data.layout") == "encoder" else ["encoder", "decoder"] if name in TASKS else []
    sides = {f"model.{each}_layers": 1 for each in named}
    prepared = prepare(override(load_recipe(name), {**TINY, **sides, **changes}))
    model = new_model(prepared.recipe, prepared.tokenizers)
    folder.mkdir(parents=True)
    (folder / "recipe.toml").write_text(dumps_recipe(prepared.recipe), "utf-8")
    for step in steps:
        save(step_folder(folder, step), model, prepared.tokenizers, state={"step": step, "best": steps[-1]})
    return folder


SMALL = {"data.train_size": 300, "data.dev_size": 20, "data.test_size": 30, "data.symbols": 9,
         "data.min_length": 3, "data.max_length": 6}  # fmt: skip


def rows(batch) -> list[list[int]]:
    ids, keep = (batch.tokens, batch.keep) if batch.source is None else (batch.source, batch.source_keep)
    return [ids[row].tolist() if keep is None else ids[row][keep[row]].tolist() for row in range(len(ids))]


@pytest.mark.parametrize("layout", ["encoder-decoder", "encoder"])
def test_a_task_is_probed_with_held_out_sources_of_all_lengths(tmp_path, layout):
    opened = open_run(untrained_run(tmp_path / "run", "reverse", {**SMALL, "data.layout": layout}))
    loaded, probe = opened.loaded, opened.probe(sequences=40)
    words = loaded.tokenizers.source
    sources = [[each for each in row if each >= 6] for row in rows(probe.own)]
    assert probe.name == "reverse/test/distinct"
    assert (len(sources), len({tuple(each) for each in sources})) == (40, 40)
    if layout == "encoder-decoder":
        assert {len(each) for each in sources} == {3, 4, 5, 6}
        assert all(len({*each}) == len(each) for each in sources)
        assert {TASKS["reverse"].split_of(words.decode(each)) for each in sources} == {"test"}
        again = [[each for each in row if each >= 6] for row in rows(probe.control)]
        assert all(len({*each}) < len(each) and each != each[::-1] for each in again)
        assert {TASKS["reverse"].split_of(words.decode(each)) for each in again} == {"test"}
    found = diagnose(loaded.model, probe)
    assert {each.zero.n for each in found.heads} == {30}
    assert "reversal" in found.heads[-1].measured.scores


def test_sources_longer_than_the_symbols_repeat_some(tmp_path):
    run = untrained_run(tmp_path / "run", "copy", {**SMALL, "data.symbols": 3, "data.min_length": 5})
    probe = open_run(run).probe(sequences=10)
    assert (probe.name, probe.control) == ("copy/test/repeats", None)
    assert "duplicate" in diagnose_run(run, sequences=10, effects=False).heads[0].measured.scores


def test_other_pairs_are_probed_with_their_dev_split(tmp_path):
    run = untrained_run(tmp_path / "run", "spell", {"data.train_size": 300, "data.dev_size": 20, "data.test_size": 20})
    found = diagnose_run(run, sequences=12)
    assert found.probe.name == "spell/dev"
    assert found.probe.n_sequences == 12
    assert found.heads[0].zero.metric == "token_accuracy"


def test_a_decoder_of_running_text_is_probed_with_tokens_that_come_again(tmp_path):
    text = tmp_path / "book.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 60, "utf-8")
    run = untrained_run(
        tmp_path / "run", "lm", {"data.text": str(text), "data.window": 16, "training.batch_tokens": 64}
    )
    found = diagnose_run(run, sequences=9, scored=5)
    assert found.probe.name == "induction"
    assert {"induction", "duplicate", "previous"} <= {*found.heads[0].measured.scores}
    assert {len(each) for each in rows(found.probe.own)} <= {4, 8, 14}
    assert (found.heads[0].zero.metric, found.heads[0].zero.n) == ("token_accuracy", 5)


@pytest.mark.parametrize("name", ["mlm", "denoise"])
def test_other_objectives_of_text_are_probed_with_its_windows(tmp_path, name):
    text = tmp_path / "book.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 200, "utf-8")
    small = {"data.text": str(text), "data.window": 16, "training.batch_tokens": 64, "tokenizer.vocab_size": 300}
    found = diagnose_run(untrained_run(tmp_path / "run", name, small), scored=5)
    assert found.probe.name.endswith("/dev")
    assert {each.zero.n for each in found.heads} == {5}


def test_labels_are_probed_with_their_dev_split(tmp_path):
    lines = [
        f"{text} film {number}\t{label}\n" for number in range(20) for text, label in (("good", "yes"), ("bad", "no"))
    ]
    file = tmp_path / "all.tsv"
    file.write_text("".join(lines), "utf-8")
    files = {f"data.{split}": str(file) for split in ("train", "dev", "test")}
    found = diagnose_run(untrained_run(tmp_path / "run", "classify", files), sequences=10)
    assert found.heads[0].zero.metric == "accuracy"


def test_the_roles_of_each_checkpoint(tmp_path):
    run = untrained_run(tmp_path / "run", "reverse", SMALL, steps=(1, 2))
    seen = list(over_checkpoints(run, sequences=8))
    assert [step for step, _ in seen] == [1, 2]
    assert seen[0][1].to_json() == seen[1][1].to_json()
    assert {each.zero for each in seen[0][1].heads} == {None}
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "recipe.toml").write_text((run / "recipe.toml").read_text("utf-8"), "utf-8")
    with pytest.raises(CheckpointError, match="has no checkpoint"):
        list(over_checkpoints(tmp_path / "none"))


def test_roles_that_need_repeats_are_told_from_the_control(tmp_path):
    """Their queries are those of the control: in the probe itself there is no token twice, but for the answer's."""
    opened = open_run(untrained_run(tmp_path / "run", "reverse", SMALL))
    loaded, probe = opened.loaded, opened.probe(sequences=8)
    found = diagnose(loaded.model, probe, effects=False).heads[0]
    own = diagnose(loaded.model, replace(probe, control=None), effects=False).heads[0]
    assert found.measured.scores["duplicate"].n_queries > 0
    assert "duplicate" not in own.measured.scores
    assert found.measured.scores["duplicate"].control is None


def test_lengths_are_spread_evenly():
    assert spread(4, 12) == [4, 6, 8, 10, 12]
    assert spread(8, 8) == [8]
    assert spread(2, 4) == [2, 3, 4]
    assert spread(5, 3) == []
