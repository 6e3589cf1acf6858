"""The doctor on runs on running text: all is well in a good one, and what is wrong with its texts is named."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from data.tokens.published_examples import json_of
from glassformer.data.config import DataConfig
from glassformer.data.tokens.exported import adopt
from glassformer.proof.doctor import probes_for
from glassformer.proof.doctor.case import case_of
from glassformer.proof.doctor.finding import FAILURE, WARNING, Finding, examine, looked
from glassformer.proof.doctor.texts import there_and_back
from glassformer.store.export import write_pretrained
from glassformer.train.recipe import dumps_recipe, load_recipe, override
from glassformer.train.run.beginning import import_run
from glassformer.train.run.session import start
from glassformer.train.tasks import task_of
from store.export_examples import NEOX, READING, decoder
from train.examples import follow
from train.text_examples import book, shelf, text_recipe, words

TEXT = task_of(DataConfig(task="text", layout="decoder"))
LEAKAGE = next(each for each in probes_for(TEXT) if each.name == "leakage")
SMALL = {"training__steps": 2, "training__batch_tokens": 120, "model__n_layers": 2, "model__dropout": 0.0}


def trained(path, objective="next_token", **changes):
    run = path.parent / "run"
    follow(start(text_recipe(path, objective, **SMALL | changes), run))
    return run


def found(run, *names: str) -> dict[str, Finding]:
    probes = [probe for probe in probes_for(TEXT) if probe.name in names or not names]
    recipe = load_recipe(run / "recipe.toml")
    return {each.probe: each for each in examine(case_of(run, recipe), [replace(probe, needs=()) for probe in probes])}


@pytest.mark.parametrize("objective", ["next_token", "prefix", "masked", "spans", "noise"])
def test_a_good_run_is_well(tmp_path, objective):
    names = () if objective == "next_token" else tuple(each.name for each in probes_for(TEXT) if each.name != "overfit")
    findings = found(trained(book(tmp_path, 300), objective), *names)
    assert {name: each.evidence for name, each in findings.items() if each.state == FAILURE} == {}
    assert "with the same digests as in training" in findings["data"].evidence
    if objective == "next_token":
        assert {name for name, each in findings.items() if each.state == "not probed"} == {"pooling", "source"}
        assert "8 windows" in findings["overfit"].evidence


@pytest.mark.parametrize("broken", ["leaky-mask", "shifted-labels", "cache-off-by-one", "no-residual"])
def test_mistakes_in_the_model_are_seen(tmp_path, broken):
    probe = {"leaky-mask": "causality", "shifted-labels": "labels", "cache-off-by-one": "cache"}.get(broken, "residual")
    assert found(trained(book(tmp_path), training__broken=broken), probe)[probe].state == FAILURE


def test_changed_and_lost_text(tmp_path):
    path = book(tmp_path)
    run = trained(path)
    path.write_text("e" + words(120)[1:], "utf-8")
    changed = found(run, "data")["data"]
    assert (changed.state, changed.what) == (FAILURE, "the data have changed since training")
    assert "the digest of train has changed" in changed.evidence
    path.write_bytes(b"\xff\xfe")
    assert found(run, "data")["data"].what == "the data cannot be read"
    path.unlink()
    findings = found(run, "data", "leakage", "first-loss", "round-trip")
    assert [findings[name].state for name in ("data", "leakage", "round-trip")] == ["not probed"] * 3
    assert f"the data are gone: there is no {path}" in findings["data"].evidence
    assert findings["first-loss"].state == "ok"  # on random tokens


def test_a_tokenizer_that_composes_gives_text_back_composed(tmp_path):
    made, path, text = adopt(json_of("GPT-NeoX"), {}).tokenizer, book(tmp_path), "cafe\u0301 noir " * 40
    path.write_text(text, "utf-8")
    write_pretrained(tmp_path / "in", decoder(torch.float32, made, **NEOX), made, READING, named="it")
    import_run(tmp_path / "in", tmp_path / "run")
    recipe = load_recipe(tmp_path / "run" / "recipe.toml")
    requested = override(recipe, {"data.text": str(path), "data.window": 8})
    (tmp_path / "run" / "recipe.toml").write_text(dumps_recipe(requested), "utf-8")
    assert found(tmp_path / "run", "round-trip")["round-trip"].state == "ok"
    assert there_and_back(made, [text]) == (0.0, None)


def test_text_that_stands_in_both(tmp_path):
    path, dev = book(tmp_path), tmp_path / "dev.txt"
    dev.write_text(words(120)[100:300], "utf-8")
    findings = found(trained(path, data__dev_text=str(dev)), "leakage")["leakage"]
    assert findings.state == FAILURE
    assert "stretches of the dev text (13 words, or a whole document that is shorter) are also in" in findings.evidence


def test_a_test_text_that_is_the_dev_text_is_told(tmp_path):
    dev, other = tmp_path / "dev.txt", tmp_path / "other.txt"
    dev.write_text(words(60, 7), "utf-8")
    other.write_text(words(60, 8), "utf-8")
    run = trained(book(tmp_path), data__dev_text=str(dev), data__test_text=str(dev))
    [leak, same] = looked(LEAKAGE, case_of(run, load_recipe(run / "recipe.toml")))
    assert leak.state == "ok"
    assert (same.state, same.what) == (WARNING, "much of the test data is also in the dev data")
    assert "48 of 48 stretches of the test text" in same.evidence
    apart = override(load_recipe(run / "recipe.toml"), {"data.test_text": str(other)})
    assert [each.state for each in looked(LEAKAGE, case_of(run, apart))] == ["ok"]


def test_text_that_does_not_come_back_or_is_unknown(tmp_path, monkeypatch):
    run = trained(book(tmp_path))
    kind = type(case_of(run, load_recipe(run / "recipe.toml")).tokenizers.target)
    decode = kind.decode
    monkeypatch.setattr(kind, "decode", lambda self, ids: decode(self, ids).replace("a", "b"))
    assert found(run, "round-trip")["round-trip"].what == "a text does not come back from its ids"
    monkeypatch.undo()
    dev = tmp_path / "dev.txt"
    dev.write_text("xyz abc xyz abc", "utf-8")
    (tmp_path / "other").mkdir()
    findings = found(trained(book(tmp_path / "other"), data__dev_text=str(dev)), "round-trip")["round-trip"]
    assert (findings.state, findings.what) == (WARNING, "many tokens are unknown")


def test_a_run_without_a_checkpoint_is_looked_at_as_it_begins(tmp_path):
    run = tmp_path / "run"
    start(text_recipe(shelf(tmp_path), **SMALL), run).lock.release()
    findings = found(run, "data", "first-loss", "checkpoints")
    assert findings["checkpoints"].state == WARNING
    assert (findings["data"].state, findings["first-loss"].state) == ("ok", "ok")
    assert json.dumps([each._asdict() for each in findings.values()])
