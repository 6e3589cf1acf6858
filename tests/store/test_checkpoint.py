"""Save and load, end to end: what comes back is what went in, bit for bit."""

import json
import os
import shutil
import stat

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from glassformer.base.errors import CheckpointError
from glassformer.data.batch import Batch
from glassformer.store import checkpoint
from glassformer.store.checkpoint import load, load_optimizer, plain, save
from glassformer.store.folders import MANIFEST, SOURCE_TOKENIZER, step_folder
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
