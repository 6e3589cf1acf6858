"""From a config and tensors to a model: nothing is built before it is plausible, nothing loaded that does not fit."""

import json
import re

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from glassformer import ModelConfig, Transformer
from glassformer.base.errors import CheckpointError, ResourceError
from glassformer.store import weights
from glassformer.store.checkpoint import load, load_optimizer, save
from store import examples

CPU = torch.device("cpu")
EMBEDDING = "encoder.embedding.weight"


@pytest.fixture
def saved(tmp_path):
    return save(tmp_path / "x", examples.model(), examples.tokenizers())


def change_config(folder, **changes):
    values = json.loads((folder / "config.json").read_text())
    for name, value in changes.items():
        target = values["decoder"] if name in values["decoder"] else values
        target[name] = value
    (folder / "config.json").write_text(json.dumps(values))
    examples.rewrite_manifest(folder)


def change_weights(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    examples.rewrite_manifest(folder)


def test_stored_names_follow_the_sharing_of_the_model():
    names = weights.stored_names(examples.model())
    assert {names[f"{tied}.weight"] for tied in ("encoder.embedding", "decoder.embedding", "head")} == {EMBEDDING}
    assert all(name == stored for name, stored in names.items() if stored != EMBEDDING)
    alone = weights.stored_names(examples.model(tie_embeddings=False, share_embeddings=False))
    assert all(name == stored for name, stored in alone.items())


@pytest.mark.parametrize("wrapper", ["_orig_mod", "module"])
def test_wrapped_model_is_refused(tmp_path, wrapper):
    wrapped = nn.Module()
    wrapped.add_module(wrapper, examples.model())
    with pytest.raises(CheckpointError, match=rf"Save the model inside: model\.{wrapper}\."):
        weights.unique_weights(wrapped)


def test_compiled_model_is_refused():
    with pytest.raises(CheckpointError, match="begin with '_orig_mod'"):
        weights.unique_weights(torch.compile(examples.model(), backend="eager"))


def test_tables_that_no_file_holds_are_right(tmp_path, monkeypatch):
    """Someone's own variant: a table that no file holds, one that the file holds, and a frozen weight."""
    plain = Transformer.__init__

    def with_tables(self, config: ModelConfig) -> None:
        plain(self, config)
        self.scale = nn.Parameter(torch.randn(3), requires_grad=False)
        self.register_buffer("table", torch.arange(3.0) * 2, persistent=False)
        self.register_buffer("counts", torch.tensor([1, 2, 3]))

    config = examples.model().config
    # The class stays the same one: what its name stands for in annotations is looked up once, at their first call.
    monkeypatch.setattr(Transformer, "__init__", with_tables)
    made = Transformer(config)
    made.counts += 5
    folder = save(tmp_path / "x", made, examples.tokenizers())
    before = torch.get_rng_state()
    loaded = load(folder).model
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(loaded.table, torch.tensor([0.0, 2.0, 4.0]))
    assert torch.equal(loaded.counts, torch.tensor([6, 7, 8]))
    assert not loaded.scale.requires_grad
    examples.same_weights(loaded, made)
    assert weights.stored_names(loaded) == weights.stored_names(made)


def test_a_new_tensor_never_takes_the_place_of_an_old_one():
    """Sharing is known by identity, and Python gives the identity of a dead object to the next one."""
    for seed in range(20):
        made = examples.model(seed, tie_embeddings=bool(seed % 2), share_embeddings=bool(seed % 3))
        built = weights.rebuild(made.config.to_dict(), weights.unique_weights(made), examples.Path(), CPU)
        examples.same_weights(built, made)
        assert weights.stored_names(built) == weights.stored_names(made)


@pytest.mark.parametrize(("change", "message"), [
    (lambda t: t.pop("decoder.norm.bias"), "1 missing: decoder.norm.bias."),
    (lambda t: t.update({"x.weight": torch.ones(2)}), "1 unexpected: x.weight."),
    (lambda t: t.update({EMBEDDING: torch.ones(14, 9)}),
     f"1 of the wrong shape: {EMBEDDING} (expected [14, 8], found [14, 9])"),
    (lambda t: t.update({"decoder.norm.bias": torch.ones(8, dtype=torch.int32)}),
     "1 of the wrong type: decoder.norm.bias (expected a floating-point type, found int32)"),
    (lambda t: [t.pop(name) for name in sorted(t) if name.startswith("decoder")], "28 missing: "),
    (lambda t: t.update({"\x1b[31m" + "x" * 500: torch.ones(1)}), r"1 unexpected: '\x1b[31mxxx"),
])  # fmt: skip
def test_differences_are_listed(saved, change, message):
    change_weights(saved, change)
    with pytest.raises(CheckpointError, match=re.escape(message)) as caught:
        load(saved)
    assert str(saved / "model.safetensors") in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.shapes(False)  # they would refuse some of it first, which no user sees
@pytest.mark.parametrize(("changes", "message"), [
    ({"d_modle": 8}, "model.d_modle is not a setting"),
    ({"norm": "layre"}, "Did you mean 'layer'"),
    ({"n_heads": 3}, "must be a multiple of n_heads"),
    ({"d_model": "8"}, "d_model must be a whole number"),
    ({"n_layers": 1.5}, "n_layers must be a whole number"),
    ({"dropout": None}, "dropout must be a number"),
    ({"decoder": 3}, "no model can have"),
    ({"decoder": [1]}, "no model can have"),
    ({"vocab_size": []}, "vocab_size must be a whole number or None"),
    ({"n_layers": 2}, "26 missing"),
    ({"vocab_size": 13}, "of the wrong shape"),
    ({"vocab_size": 2**40}, "says vocab_size=1.09951e+12, but model.safetensors has"),
    ({"d_model": 2**63}, "d_model"),
    ({"d_ff": 10**300}, "d_ff"),
    ({"n_layers": 10**5}, "n_layers"),
    ({"n_heads": 10**9}, "n_heads"),
    ({"max_len": 2**62, "positions": "learned"}, "max_len must be at most 2147483647"),
    ({"window": 2, "dilation": 2**62}, "dilation must be at most 2147483647"),
    ({"window": 2, "global_tokens": 2**62}, "global_tokens must be at most 2147483647"),
    ({"window": 2, "sinks": 2**62}, "sinks must be at most 2147483647"),
    ({"positions": "shaw", "relative": {"clip_distance": 2**40}}, "clip_distance must be at most 1048576"),
], ids=str)  # fmt: skip
def test_config_of_another_model_or_none(saved, changes, message):
    change_config(saved, **changes)
    with pytest.raises(CheckpointError, match=re.escape(message)) as caught:
        load(saved)
    assert str(saved) in str(caught.value)
    assert len(str(caught.value)) < 600


def test_config_that_is_no_object(saved):
    (saved / "config.json").write_text("[]")
    examples.rewrite_manifest(saved)
    with pytest.raises(CheckpointError, match=r"config\.json must be a JSON object of settings; got list"):
        load(saved)


@pytest.mark.parametrize(
    "changes",
    [{"d_ff": 2**40}, {"n_experts": 2**20, "experts_per_token": 1, "feed_forward": "experts"}],
    ids=["d_ff", "n_experts"],
)
def test_implausible_sizes_are_refused_before_anything_is_built(saved, monkeypatch, changes):
    change_config(saved, **changes)
    monkeypatch.setattr(weights.Transformer, "__init__", lambda self, config: pytest.fail("built"))
    with pytest.raises(CheckpointError, match=next(iter(changes))):
        load(saved)


@pytest.mark.parametrize("kind", [MemoryError, RuntimeError, torch.OutOfMemoryError])
def test_out_of_memory(saved, monkeypatch, kind):
    def fail(*_: object) -> None:
        raise kind("can't allocate memory")

    monkeypatch.setattr(weights, "allocate", fail)
    needed = sum(tensor.nbytes for tensor in load_file(saved / "model.safetensors").values())
    with pytest.raises(ResourceError, match=f"needs {needed:,} bytes on cpu") as caught:
        load(saved)
    assert caught.value.exit_code == 5


def test_out_of_memory_for_the_optimizer(saved, monkeypatch):
    folder = save(saved, examples.model(), examples.tokenizers(), optimizer=examples.moments(examples.model()))

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("can't allocate memory")

    monkeypatch.setattr(torch.Tensor, "to", fail)
    with pytest.raises(ResourceError, match=r"The optimizer in .* bytes .* and could not be put there: can't allocate"):
        load_optimizer(folder)


def test_no_numbers_are_allocated_for_weights_that_do_not_fit(saved, monkeypatch):
    change_weights(saved, lambda tensors: tensors.pop("decoder.norm.bias"))
    monkeypatch.setattr(weights, "allocate", lambda *_: pytest.fail("allocated"))
    with pytest.raises(CheckpointError, match="1 missing"):
        load(saved)


def test_model_has_no_tensor_without_memory(saved):
    loaded = load(saved).model
    assert {tensor.device.type for tensor in (*loaded.parameters(), *loaded.buffers())} == {"cpu"}
