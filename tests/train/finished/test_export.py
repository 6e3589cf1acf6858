"""Exporting a run: its best checkpoint, how it reads a text, and the runs that no folder could stand for."""

import json

import pytest
import torch
from safetensors.torch import load_file

from glassformer.base.errors import GlassformerError
from glassformer.store.checkpoint import load, load_mean
from glassformer.store.folders import checkpoints
from glassformer.train.finished.loading import export_run
from glassformer.train.run.session import start
from train.examples import follow, recipe
from train.text_examples import book, shelf, text_recipe


@pytest.fixture
def run(tmp_path):
    requested = text_recipe(
        book(tmp_path), model__scale_embeddings=False, training__steps=4, training__evaluate_every=2,
        checkpoint__every=2, checkpoint__keep=9,
    )  # fmt: skip
    follow(start(requested, tmp_path / "run"))
    return tmp_path / "run"


def table(folder):
    return load_file(folder / "model.safetensors")["gpt_neox.embed_in.weight"]


def test_the_best_checkpoint_is_exported(run, tmp_path):
    for place, step in enumerate(checkpoints(run)):
        for folder in checkpoints(run).values():
            state = json.loads((folder / "state.json").read_text())
            state["state"]["best"] = step
            rewritten(folder, state)
        export_run(run, tmp_path / f"out-{place}")
        chosen = load(checkpoints(run)[step]).model
        assert torch.equal(table(tmp_path / f"out-{place}"), chosen.decoder.embedding.weight)
    assert place > 0


def rewritten(folder, state):
    """Write another state.json into a checkpoint, and its digest into the manifest."""
    from glassformer.store.folders import MANIFEST, write_manifest

    (folder / MANIFEST).unlink()
    (folder / "state.json").write_text(json.dumps(state))
    write_manifest(folder)


def test_the_mean_of_the_newest_can_be_exported(run, tmp_path):
    export_run(run, tmp_path / "out", average=2)
    assert torch.equal(table(tmp_path / "out"), load_mean(run, 2).model.decoder.embedding.weight)


def test_a_text_begins_there_as_it_does_here(run, tmp_path):
    export_run(run, tmp_path / "one")
    follow(start(text_recipe(shelf(tmp_path), model__scale_embeddings=False, training__steps=2), tmp_path / "many"))
    export_run(tmp_path / "many", tmp_path / "several")
    found = {}
    for name in ("one", "several"):
        read = json.loads((tmp_path / name / "tokenizer.json").read_text("utf-8"))
        writes = json.loads((tmp_path / name / "generation_config.json").read_text("utf-8"))
        found[name] = (read["post_processor"] is not None, writes["suppress_tokens"])
    assert found == {"one": (False, [0, 1, 2, 3, 4, 5]), "several": (True, [0, 1, 3, 4, 5])}
    config = json.loads((tmp_path / "one" / "config.json").read_text("utf-8"))
    assert config["max_position_embeddings"] == 8


def test_a_run_that_reads_otherwise_is_refused(tmp_path):
    plain = {"model__scale_embeddings": False, "training__steps": 1}
    options = {
        "prefix": text_recipe(book(tmp_path), "prefix", **plain),
        "broken": text_recipe(book(tmp_path), training__broken="leaky-mask", **plain),
        "spans": text_recipe(book(tmp_path), "spans", training__steps=1),
        "pairs": recipe(training__steps=1),
    }
    message = {
        "prefix": "reads each prompt in both directions",
        "broken": "makes a mistake on purpose .training.broken='leaky-mask'",
        "spans": "Only decoders can be exported",
        "pairs": "Only decoders can be exported",
    }
    for name, each in options.items():
        follow(start(each, tmp_path / name))
        with pytest.raises(GlassformerError, match=message[name]):
            export_run(tmp_path / name, tmp_path / "out")
        assert not (tmp_path / "out").exists()
