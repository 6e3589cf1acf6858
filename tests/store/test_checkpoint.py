"""Save and load, end to end: what comes back is what went in, bit for bit."""

import json
import os
import pickle
import re
import shutil
import stat
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from glassformer import Transformer
from glassformer.base.errors import CheckpointError, ConfigError, DivergedError
from glassformer.data.batch import Batch
from glassformer.store import checkpoint
from glassformer.store.checkpoint import load, load_mean, load_optimizer, plain, save
from glassformer.store.folders import MANIFEST, MODEL, SOURCE_TOKENIZER, RunLock, newest, step_folder
from store import examples


def test_round_trip(tmp_path):
    folder = examples.save_step(tmp_path, 7, best_value=0.1, history=[1, 2.5, None, "é\n"])
    loaded = examples.assert_is_step(folder, 7, best_value=0.1, history=[1, 2.5, None, "é\n"])
    assert loaded.folder == folder
    assert loaded.skipped == ()
    assert loaded.model.config == examples.model().config
    assert not loaded.model.training
    assert loaded.tokenizers.source is loaded.tokenizers.target
    assert loaded.tokenizers.target.to_json() == examples.tokenizers().target.to_json()
    assert examples.names(folder) == sorted(
        ["model.safetensors", "optimizer.safetensors", "config.json", "tokenizer.json", "state.json", MANIFEST]
    )


def test_loaded_model_computes_the_same(tmp_path):
    made = examples.model().eval()
    loaded = load(save(tmp_path / "x", made, examples.tokenizers())).model
    batch = Batch.pairs([[6, 7, 8], [9]], [[7], [8, 9, 10]])
    inputs = {"keep": batch.keep, "source": batch.source, "source_keep": batch.source_keep}
    assert examples.same_bits(loaded(batch.tokens, **inputs), made(batch.tokens, **inputs))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dtype_is_kept(tmp_path, dtype):
    made = examples.model().to(dtype)
    examples.same_weights(load(save(tmp_path / "x", made, examples.tokenizers())).model, made)


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("tie", [True, False])
def test_tied_weights(tmp_path, tie, share):
    """Stored once, and one tensor again after loading, so that they also train as one."""
    made = examples.model(tie_embeddings=tie, share_embeddings=share)
    folder = save(tmp_path / "x", made, examples.tokenizers())
    assert len(load_file(folder / "model.safetensors")) == len(list(made.parameters()))
    loaded = load(folder).model
    assert (loaded.head.weight is loaded.decoder.embedding.weight) == tie
    assert (loaded.encoder.embedding.weight is loaded.decoder.embedding.weight) == share
    assert len(list(loaded.parameters())) == len(list(made.parameters()))
    examples.same_weights(loaded, made)
    assert all(parameter.requires_grad and parameter.is_leaf for parameter in loaded.parameters())


def test_weights_are_no_view_of_the_file(tmp_path):
    """A file that is rotated away or overwritten later must not change a model in memory."""
    folder = examples.save_step(tmp_path, 1)
    loaded, optimizer = load(folder).model, load_optimizer(folder)
    for path in folder.glob("*.safetensors"):
        with path.open("r+b") as file:
            file.write(bytes(path.stat().st_size))
    examples.same_weights(loaded, examples.model(1))
    examples.same_moments(optimizer, examples.moments(examples.model(1), 1))


def test_vocabularies_of_their_own(tmp_path):
    two = examples.tokenizers(shared=False, source_kind="character")
    sizes = {"vocab_size": two.target.vocab_size, "source_vocab_size": two.source.vocab_size}
    folder = save(tmp_path / "x", examples.model(**sizes, share_embeddings=False), two)
    assert (folder / SOURCE_TOKENIZER).exists()
    loaded = load(folder).tokenizers
    assert [each.to_json() for each in loaded] == [each.to_json() for each in two]


def test_tokenizer_kinds(tmp_path):
    for kind in ("word", "character", "byte", "bpe"):
        pair = examples.tokenizers(kind=kind, vocab_size=300)
        made = examples.model(vocab_size=pair.target.vocab_size)
        loaded = load(save(tmp_path / kind, made, pair)).tokenizers.target
        assert loaded.to_json() == pair.target.to_json()
        assert loaded.encode("deux trois") == pair.target.encode("deux trois")


def test_loading_draws_no_random_numbers(tmp_path):
    folder = examples.save_step(tmp_path, 1)
    before = torch.get_rng_state()
    load(folder)
    assert torch.equal(before, torch.get_rng_state())


def test_saving_changes_nothing(tmp_path):
    made, optimizer = examples.model(1), examples.moments(examples.model(1))
    before, random = {name: value.clone() for name, value in made.state_dict().items()}, torch.get_rng_state()
    save(tmp_path / "x", made, examples.tokenizers(), optimizer=optimizer)
    assert all(examples.same_bits(before[name], value) for name, value in made.state_dict().items())
    assert made.training
    assert torch.equal(random, torch.get_rng_state())


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_modes_follow_the_umask(tmp_path, mask, mode):
    old = os.umask(mask)
    try:
        folder = examples.save_step(tmp_path, 1)
    finally:
        os.umask(old)
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {
        path.name: mode for path in folder.iterdir()
    }
    assert stat.S_IMODE(folder.stat().st_mode) == 0o777 & ~mask


def test_unusual_tensors_in_the_optimizer(tmp_path):
    """Not contiguous, of no size, without dimensions, sharing memory: they come back as values of their own."""
    made = examples.model()
    (first, p), (second, q) = list(made.named_parameters())[:2]
    base = torch.randn(p.shape[1], p.shape[0])
    given = {first: {"exp_avg": base.t(), "rows": base[0], "rows_too": base[0], "none": torch.empty(0, 3)}}
    given[second] = {"exp_avg": torch.zeros_like(q), "step": torch.tensor(3, dtype=torch.int64)}
    folder = save(tmp_path / "x", made, examples.tokenizers(), optimizer=given)
    examples.same_moments(load_optimizer(folder), given)


def test_no_optimizer(tmp_path):
    folder = save(tmp_path / "x", examples.model(), examples.tokenizers())
    with pytest.raises(CheckpointError, match=r"has no optimizer\.safetensors"):
        load_optimizer(folder)
    folder = save(tmp_path / "x", examples.model(), examples.tokenizers(), optimizer={})
    assert load_optimizer(folder) == {}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_state_comes_back_equal(state):
    assert json.loads(json.dumps(plain(state))) == state


def test_same_step_is_replaced(tmp_path):
    folder = examples.save_step(tmp_path, 5, text="first")
    assert examples.save_step(tmp_path, 5, text="second") == folder
    examples.assert_is_step(folder, 5, text="second")
    assert examples.names(folder.parent) == [folder.name]


def test_run_folder(tmp_path):
    for step in (5, 10, 15):
        examples.save_step(tmp_path, step, best=10)
    assert load(tmp_path).state == {"step": 10, "best": 10}
    examples.same_moments(load_optimizer(tmp_path), examples.moments(examples.model(10), 10))
    assert load(str(tmp_path)).folder == step_folder(tmp_path, 10)
    damaged = step_folder(tmp_path, 10) / "model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    loaded = load(tmp_path)
    assert loaded.state["step"] == 15
    assert [each.folder for each in loaded.skipped] == [step_folder(tmp_path, 10)]
    assert str(damaged) in loaded.skipped[0].reason


def test_what_is_deleted_meanwhile_has_a_successor(tmp_path, monkeypatch):
    """Training keeps a few checkpoints: the best one may go while it is being read, as a better one has come."""
    for step in (1, 2):
        examples.save_step(tmp_path, step, best=2)
    whole = checkpoint.read_tensors
    removed = []

    def read(path):
        if not removed:
            removed.append(path.parent)
            shutil.rmtree(path.parent)
        return whole(path)

    monkeypatch.setattr(checkpoint, "read_tensors", read)
    assert load(tmp_path).folder == step_folder(tmp_path, 1)
    assert removed == [step_folder(tmp_path, 2)]
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(CheckpointError):
        load(tmp_path)


# --- A checkpoint from a stranger: reading it runs nothing, opens nothing else, and asks nobody


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A checkpoint to copy and to change."""
    return examples.save_step(tmp_path_factory.mktemp("saved"), 10)


HEARD: list[tuple[str, str]] = []
LOUD = ("pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect")


def listen(event: str, args: tuple[object, ...]) -> None:
    if LISTENING and (event in LOUD or event == "open"):
        HEARD.append((event, str(args[0])))


LISTENING: list[bool] = []
sys.addaudithook(listen)


@pytest.fixture
def heard(tmp_path, saved):
    """What happens in the block besides reading the folder itself."""
    load(saved)  # whatever is imported when it is first used, is
    HEARD.clear()
    LISTENING.append(True)
    ours = (str(tmp_path), str(saved))
    yield lambda: [each for each in HEARD if each[0] != "open" or not each[1].startswith(ours)]
    LISTENING.clear()


class Canary:
    """Pickled, it makes a folder when it is unpickled."""

    def __init__(self, nest: Path) -> None:
        self.nest = nest

    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, (str(self.nest),))


ATTACKED = [
    "model.safetensors", "optimizer.safetensors", "config.json", "tokenizer.json", "state.json", "MANIFEST.json",
]  # fmt: skip
BESIDE = ["pytorch_model.bin", "optimizer.pt", "rng_state.pth", ".metadata", "__init__.py", "sitecustomize.py"]


@pytest.mark.parametrize("name", ATTACKED + BESIDE)
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_pickle_under_any_name(saved, tmp_path, heard, name, protocol):
    folder = shutil.copytree(saved, tmp_path / "x")
    (folder / name).write_bytes(pickle.dumps(Canary(tmp_path / "nest"), protocol))
    if name in ATTACKED[:-1]:
        examples.rewrite_manifest(folder)
    for read in (load, load_optimizer):
        if name in BESIDE or (read, name) in SPARED:
            read(folder)
        else:
            with pytest.raises(CheckpointError, match=re.escape(name)):
                read(folder)
    assert not (tmp_path / "nest").exists()
    assert heard() == []


def test_canary_would_be_heard(tmp_path, heard):
    pickle.loads(pickle.dumps(Canary(tmp_path / "nest")))
    assert (tmp_path / "nest").exists()
    (tmp_path.parent / "elsewhere").write_text("x")
    assert [event for event, _ in heard()] == ["pickle.find_class", "open"]


JSON_OF_A_MODEL = ("config.json", "tokenizer.json", "state.json")
SPARED = [(load, "optimizer.safetensors"), *((load_optimizer, name) for name in JSON_OF_A_MODEL)]
"""What a reader does not read, so that it does not mind."""


def test_torch_file_under_the_name_of_a_safe_one(saved, tmp_path, heard):
    folder = shutil.copytree(saved, tmp_path / "x")
    torch.save({"a": torch.ones(2)}, folder / MODEL)
    examples.rewrite_manifest(folder)
    with pytest.raises(CheckpointError, match="looks like a pickle"):
        load(folder)


@pytest.mark.parametrize(
    "key", ["auto_map", "_attn_implementation_internal", "trust_remote_code", "library_name", "architectures", "path"]
)
def test_config_that_names_code(saved, tmp_path, heard, key):
    folder = shutil.copytree(saved, tmp_path / "x")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, key: "evil/repository--module.Class"}))
    examples.rewrite_manifest(folder)
    with pytest.raises(CheckpointError, match=f"{key} is not a setting"):
        load(folder)
    assert heard() == []


# --- What cannot be saved or loaded is answered by name, and costs nothing that was there


def test_optimizer_of_another_model_is_refused(tmp_path):
    made = examples.model()
    for name, why in (("decoder.x", "has no such weight"), ("head.weight", "stored as encoder.embedding.weight")):
        with pytest.raises(CheckpointError, match=why):
            save(tmp_path / "x", made, examples.tokenizers(), optimizer={name: {"step": torch.tensor(1.0)}})
    assert examples.names(tmp_path) == []
    wrong = {name: {"exp_avg": torch.zeros(2, 2)} for name in [next(iter(examples.moments(made)))]}
    folder = save(tmp_path / "x", made, examples.tokenizers(), optimizer=wrong)
    with pytest.raises(CheckpointError, match=r"exp_avg/encoder\.embedding\.weight does not match the name .* weight"):
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
    with pytest.raises(CheckpointError, match=r"state\.json .* most 33,554,432 bytes, .* it would have 33,554,\d\d\d"):
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
