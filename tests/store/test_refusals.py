"""What cannot be saved or loaded is answered by name, and costs nothing that was there."""

import json

import numpy as np
import pytest
import torch

from glassformer import Transformer
from glassformer.base.errors import CheckpointError, ConfigError, DivergedError
from glassformer.store.checkpoint import load, load_mean, load_optimizer, save
from glassformer.store.folders import RunLock, newest, step_folder
from store import examples


def test_optimizer_of_another_model_is_refused(tmp_path):
    made = examples.model()
    for name, why in (("decoder.x", "has no such weight"), ("head.weight", "stored as encoder.embedding.weight")):
        with pytest.raises(CheckpointError, match=why):
            save(tmp_path / "x", made, examples.tokenizers(), optimizer={name: {"step": torch.tensor(1.0)}})
    assert examples.names(tmp_path) == []
    wrong = {name: {"exp_avg": torch.zeros(2, 2)} for name in [next(iter(examples.moments(made)))]}
    folder = save(tmp_path / "x", made, examples.tokenizers(), optimizer=wrong)
    with pytest.raises(
        CheckpointError, match=r"exp_avg/encoder\.embedding\.weight does not match the name and shape of any weight"
    ):
        load_optimizer(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_non_finite_is_refused(tmp_path, value):
    folder = examples.save_step(tmp_path, 1)
    before, made = examples.contents(tmp_path), examples.model(2)
    with torch.no_grad():
        made.head.weight[3, 5] = value
    with pytest.raises(
        DivergedError, match=rf"; 1 of 112 values of encoder\.embedding\.weight .*\({value}\) at index \[3, 5\]"
    ):
        save(folder, made, examples.tokenizers())
    optimizer = examples.moments(examples.model(2))
    optimizer["decoder.norm.bias"]["exp_avg_sq"][2] = value
    with pytest.raises(DivergedError, match=r"exp_avg_sq/decoder\.norm\.bias"):
        save(folder, examples.model(2), examples.tokenizers(), optimizer=optimizer)
    assert examples.contents(tmp_path) == before


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), (1, 2), {1: 2}, {"a": {"b": {3}}}, np.int64(3), torch.tensor(1), b"x", object()],
    ids=lambda value: type(value).__name__,  # the same in every process
)
def test_state_that_would_change_is_refused(tmp_path, value):
    with pytest.raises(CheckpointError, match=r"state\['key'\] must be plain JSON"):
        save(tmp_path / "x", examples.model(), examples.tokenizers(), state={"step": 1, "key": value})
    assert examples.names(tmp_path) == []


def test_a_number_too_long_to_be_written_is_refused_by_name(tmp_path):
    made, pair = examples.model(), examples.tokenizers()
    for state in ({"key": 10**5000}, {"key": [10**5000]}):
        with pytest.raises(CheckpointError, match=r"state\['key'\] must be plain JSON.*cannot be written out"):
            save(tmp_path / "x", made, pair, state=state)
    assert examples.names(tmp_path) == []


def test_a_path_that_is_no_text_is_refused_before_anything_is_written(tmp_path):
    made, pair = examples.model(), examples.tokenizers()
    folder = tmp_path / "n\udcff"
    for do in (lambda: save(folder / "x", made, pair), lambda: load(folder), lambda: load(str(folder))):
        with pytest.raises(CheckpointError, match=r"must be valid UTF-8; got '.*n\\udcff.*Choose another name"):
            do()
    assert examples.names(tmp_path) == []


def test_state_that_could_not_be_read_again_is_refused(tmp_path):
    deep: list[object] = []
    for _ in range(61):
        deep = [deep]
    made, pair = examples.model(), examples.tokenizers()
    assert load(save(tmp_path / "x", made, pair, state={"deep": deep})).state == {"deep": deep}
    with pytest.raises(CheckpointError, match="plain JSON"):
        save(tmp_path / "x", made, pair, state={"deep": [deep]})
    with pytest.raises(
        CheckpointError, match=r"state\.json must have at most 33,554,432 bytes, .* it would have 33,554,\d\d\d"
    ):
        save(tmp_path / "x", made, pair, state={"long": "x" * 2**25})


def test_tokenizer_larger_than_the_model(tmp_path):
    small = examples.model(vocab_size=7)
    with pytest.raises(CheckpointError, match="source tokenizer has 14 ids, but the model reads 7"):
        save(tmp_path / "x", small, examples.tokenizers())


def test_what_is_not_read_need_not_be_whole(tmp_path):
    """Nobody who only translates is stopped by a damaged optimizer; who resumes is."""
    folder = examples.save_step(tmp_path, 1)
    path = folder / "optimizer.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    examples.same_weights(load(tmp_path).model, examples.model(1))
    with pytest.raises(CheckpointError, match=r"optimizer\.safetensors is damaged"):
        load_optimizer(folder)


def test_what_only_training_reads_may_be_missing(tmp_path):
    """A run handed on without its optimizer answers, with its newest weights; only training cannot go on from there."""
    for step in (1, 2):
        folder = examples.save_step(tmp_path, step)
    path = folder / "optimizer.safetensors"
    for spoil in (lambda: path.write_bytes(path.read_bytes()[:-9]), path.unlink):
        spoil()
        loaded = load(tmp_path)
        assert (loaded.state["step"], loaded.skipped) == (2, ())
        assert load_mean(tmp_path, 2).folder == folder
        with pytest.raises(CheckpointError, match=r"optimizer\.safetensors is (damaged|missing)"):
            load_optimizer(folder)
        assert newest(tmp_path).folder == step_folder(tmp_path, 1)


def test_a_run_in_training_is_not_called_stopped(tmp_path):
    (tmp_path / "recipe.toml").touch()
    lock = RunLock(tmp_path)
    lock.take()
    with pytest.raises(CheckpointError, match=r"is being trained, and has not saved its first one yet\. Wait"):
        load(tmp_path)
    lock.release()
    with pytest.raises(CheckpointError, match="was stopped before its first one"):
        load(tmp_path)


def test_verify_off_compares_sizes(tmp_path):
    folder = examples.save_step(tmp_path, 1)
    path = folder / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CheckpointError, match="SHA-256"):
        load(folder)
    assert isinstance(load(folder, verify=False).model, Transformer)
    path.write_bytes(data[:-4])
    with pytest.raises(CheckpointError, match="bytes instead of"):
        load(folder, verify=False)


def test_wrong_folders(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "config.json").write_text("{}")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "recipe.toml").touch()
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "pytorch_model.bin").write_bytes(b"\x80\x02.")
    cases = {
        "none": "does not exist",
        "file": "give the folder",
        "": "neither a checkpoint",
        "hub": "make a run of it: glassformer import",
        "old": "pytorch_model.bin is a pickle",
        "begun": "The run was stopped before its first one. Go on with it: glassformer resume",
    }
    for name, message in cases.items():
        with pytest.raises(CheckpointError, match=message) as caught:
            load(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)


def test_foreign_folders_are_not_overwritten(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("precious")
    (tmp_path / "file").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "thesis")
    before = examples.contents(tmp_path)
    for name in ("thesis", "file", "link", "file/below"):
        with pytest.raises(CheckpointError, match=name):
            save(tmp_path / name, examples.model(), examples.tokenizers())
    assert examples.contents(tmp_path) == before
    (tmp_path / "empty").mkdir()
    load(save(tmp_path / "empty", examples.model(), examples.tokenizers()))


def test_device(tmp_path):
    folder = examples.save_step(tmp_path, 1)
    for device in ("tpu9", "cuda:99"):
        with pytest.raises(ConfigError, match=f"device='{device}' cannot be used here"):
            load(folder, device=device)
    assert load(folder, device=torch.device("cpu")).model.head.weight.device.type == "cpu"


def test_newer_format(tmp_path):
    folder = examples.save_step(tmp_path, 1)
    record = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps({**record, "format": 99}))
    examples.rewrite_manifest(folder)
    with pytest.raises(CheckpointError, match="format 99, written by a newer glassformer"):
        load(folder)
