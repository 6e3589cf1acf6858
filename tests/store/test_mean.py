"""The mean of checkpoints: equal to the mean written out, tied weights stay tied, what does not fit is refused."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from glassformer import load
from glassformer.base.errors import CheckpointError
from glassformer.nn.transformer import Transformer
from glassformer.store.checkpoint import load_mean, save
from glassformer.store.folders import MODEL, step_folder
from store.examples import model, save_step, tokenizers

STEPS = (2, 4, 10)


@pytest.fixture
def run(tmp_path):
    """Three checkpoints of a tied model, with other weights each."""
    for step in STEPS:
        save_step(tmp_path, step)
    return tmp_path


def saved(run, step):
    return load_file(step_folder(run, step) / MODEL)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_it_is_the_mean_of_the_newest(run, count):
    loaded = load_mean(run, count)
    files = [saved(run, step) for step in STEPS[-count:]]
    for name, each in loaded.model.named_parameters():
        expected = sum(file[name].double() for file in files) / count
        assert torch.equal(each, expected.float()), name
    assert loaded.state["step"] == STEPS[-1]
    assert not loaded.model.training


def test_tied_weights_stay_tied(run):
    loaded, single = load_mean(run, 3), load(run)
    assert [*dict(loaded.model.named_parameters())] == [*dict(single.model.named_parameters())]
    names = {id(each) for _, each in loaded.model.named_parameters(remove_duplicate=False)}
    assert len(names) == len(list(loaded.model.parameters()))


def test_a_damaged_one_is_passed_over_and_named(run):
    (step_folder(run, 4) / MODEL).write_bytes(b"x")
    loaded = load_mean(run, 2)
    assert [each.folder for each in loaded.skipped] == [step_folder(run, 4)]
    two = [saved(run, step) for step in (2, 10)]
    for name, each in loaded.model.named_parameters():
        assert torch.equal(each, (sum(file[name].double() for file in two) / 2).float())
    with pytest.raises(CheckpointError, match=r"needs 3 complete ones; .* has 2\. .*--checkpoint.keep 3"):
        load_mean(run, 3)


def test_other_models_and_vocabularies_are_refused(run):
    given = model()
    stack = replace(given.config.encoder, dropout=0.4)
    save(step_folder(run, 12), Transformer(replace(given.config, encoder=stack)), tokenizers())
    with pytest.raises(CheckpointError, match=r"step-000000012 and step-000000010 differ in config\.json"):
        load_mean(run, 2)
    assert load_mean(run, 1).folder == step_folder(run, 12)
