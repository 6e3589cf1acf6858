"""What the doctor finds in files, data, heads and learning, where each is damaged by hand."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from glassformer.proof.doctor import PROBES
from glassformer.proof.doctor.finding import FAILURE, NOT_PROBED, OK, WARNING, Finding, examine
from glassformer.store.folders import checkpoints
from proof.doctor_runs import QUICK, case_of, found, named, settings, trained

# --- files


def test_every_checkpoint_has_a_finding(tmp_path):
    run = trained(tmp_path, training__steps=3, checkpoint__every=1)
    folders = [*checkpoints(run).values()]
    weights = folders[0] / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    findings = [each for each in found(run) if each.probe == "checkpoints"]
    assert [each.state for each in findings] == [FAILURE, OK, OK]
    assert str(weights) in findings[0].evidence
    assert folders[1].name in findings[1].evidence


def test_run_without_a_checkpoint_is_looked_at_as_it_begins(tmp_path):
    run = trained(tmp_path)
    shutil.rmtree(run / "checkpoints")
    findings = found(run)
    assert named(findings, WARNING)[:1] == ["checkpoints"]
    assert named(findings, FAILURE) == []
    assert "causality" in named(findings, OK)


def test_run_whose_checkpoints_are_all_damaged(tmp_path):
    run = trained(tmp_path)
    for folder in checkpoints(run).values():
        (folder / "config.json").unlink()
    findings = found(run)
    assert {*named(findings, FAILURE)} == {"checkpoints"}
    assert "causality" in named(findings, OK)


@pytest.mark.parametrize("name", ["metrics.jsonl", "timing.jsonl"])
@pytest.mark.parametrize(("spoil", "state", "evidence"), [
    (lambda lines: lines, OK, "a line for each of 2 steps"),
    (lambda lines: lines[1:], WARNING, "1 of 2 steps, from 1 on"),
    (lambda lines: [], WARNING, "2 of 2 steps, from 1 on"),
    (lambda lines: ["{}\n", *lines], FAILURE, "jsonl:1: each line must be a JSON object with a step"),
    (lambda lines: [*lines, '{"step": 3, "lo'], OK, "a line for each of 2 steps"),
])  # fmt: skip
def test_every_step_has_its_figures(tmp_path, name, spoil, state, evidence):
    run = trained(tmp_path)
    lines = (run / name).read_text().splitlines(keepends=True)
    (run / name).write_text("".join(spoil([line for line in lines if '"dev"' not in line])))
    of_both = {Path(each.evidence.split(":")[0]).name: each for each in found(run) if each.probe == "figures"}
    assert of_both.keys() == {"metrics.jsonl", "timing.jsonl"}
    assert {key: each.state for key, each in of_both.items()} == dict.fromkeys(of_both, OK) | {name: state}
    assert evidence in of_both[name].evidence


def test_run_without_figures(tmp_path):
    run = trained(tmp_path)
    for name in ("metrics.jsonl", "timing.jsonl"):
        (run / name).unlink()
    assert "figures" in named(found(run), NOT_PROBED)


# --- data


def test_data_that_are_gone(tmp_path):
    run = trained(tmp_path, "label")
    for name in ("train", "dev", "test"):
        (tmp_path / f"{name}.tsv").unlink()
    findings = found(run, PROBES)
    missing = {each.probe: each.evidence for each in findings if each.state == NOT_PROBED}
    assert {"data", "round-trip", "leakage", "length"} <= {*missing}
    assert f"there is no {tmp_path / 'train.tsv'}" in missing["data"]
    assert {"padding", "pooling", "scale", "first-loss", "gradient"} <= {*named(findings, OK)}
    assert named(findings, FAILURE) == []


def test_one_file_that_is_gone(tmp_path):
    run = trained(tmp_path, "label")
    (tmp_path / "test.tsv").unlink()
    data = next(each for each in found(run) if each.probe == "data")
    assert data.state == OK
    assert "there is no" in data.evidence


def test_neither_data_nor_checkpoint(tmp_path):
    run = trained(tmp_path, "label")
    shutil.rmtree(run / "checkpoints")
    (tmp_path / "train.tsv").unlink()
    findings = found(run, PROBES)
    assert {each.state for each in findings if each.probe not in ("checkpoints", "figures")} == {NOT_PROBED}


def planted(tmp_path: Path, name: str, rows: list[str]) -> list[Finding]:
    """What is found where a file was changed after the training."""
    run = trained(tmp_path, "label")
    with (tmp_path / f"{name}.tsv").open("a", encoding="utf-8") as file:
        file.writelines(rows)
    return found(run)


def test_changed_data(tmp_path):
    findings = planted(tmp_path, "train", ["p s\tno\n"])
    assert named(findings, FAILURE) == ["data"]
    assert "digest of train" in next(each for each in findings if each.probe == "data").evidence


def test_unreadable_data(tmp_path):
    findings = planted(tmp_path, "dev", ["no label\n"])
    assert named(findings, FAILURE) == ["data"]
    assert "dev.tsv:4" in next(each for each in findings if each.probe == "data").evidence


def test_leak(tmp_path):
    lines = (settings("label", tmp_path), (tmp_path / "train.tsv").read_text("utf-8").splitlines())[1]
    findings = planted(tmp_path, "test", [f"{lines[0]}\n", f"{lines[4]}\n"])
    [leak] = [each for each in findings if each.probe == "leakage"]
    assert (leak.state, leak.what) == (FAILURE, "dev or test sources are also in the training data")
    assert "0 of 3 dev" in leak.evidence
    assert "2 of 5 test" in leak.evidence


def test_sources_of_test_in_dev_are_told(tmp_path):
    lines = (settings("label", tmp_path), (tmp_path / "dev.tsv").read_text("utf-8").splitlines())[1]
    [leak, same] = [each for each in planted(tmp_path, "test", [f"{lines[0]}\n"]) if each.probe == "leakage"]
    assert leak.state == OK
    assert (same.state, same.what) == (WARNING, "much of the test data is also in the dev data")
    assert same.evidence == "1 of 4 test sources are also in the dev data"


def test_unknown_words_and_longer_texts(tmp_path):
    findings = planted(tmp_path, "test", ["p p p p p p p p p p p p\tyes\n"])
    assert [each.what for each in findings if each.probe == "length"] == ["sequences are longer than any in training"]
    findings = planted(tmp_path, "dev", ["a b c d e f g h\tyes\n"])
    assert [each.what for each in findings if each.probe == "round-trip"] == ["many tokens are unknown"]


def test_text_that_is_too_long(tmp_path):
    run = trained(tmp_path, "label", model__max_len=9)
    (tmp_path / "test.tsv").write_text("p s u v x y p p p p p\tyes\n", "utf-8")
    [length] = [each for each in found(run) if each.probe == "length"]
    assert (length.state, length.what) == (FAILURE, "a sequence is longer than the model takes")
    assert "test 12 tokens; the model takes 9" in length.evidence


def test_text_that_does_not_come_back(tmp_path, monkeypatch):
    case = case_of(trained(tmp_path))
    monkeypatch.setattr(type(case.tokenizers.source), "decode", lambda self, ids: "other")
    [trip] = [each for each in examine(case, QUICK) if each.probe == "round-trip"]
    assert (trip.state, trip.what) == (FAILURE, "a text does not come back from its ids")


# --- heads


def test_heads_are_compared_as_they_begin(tmp_path):
    """In training, rounding and dropout of weights may part what began alike."""
    case = case_of(trained(tmp_path, training__broken="alike-heads"))
    for parameter in case.model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    [failure] = [each for each in examine(case, QUICK) if each.state == FAILURE]
    assert (failure.probe, failure.evidence[:10]) == ("alike-heads", "untrained,")


def test_heads_of_one_query_are_two(tmp_path):
    """They ask the same of other keys."""
    case = case_of(trained(tmp_path))
    query = case.model.decoder.blocks[0].self_attention.branch.query
    query.weight.data[8:], query.bias.data[8:] = query.weight.data[:8], query.bias.data[:8]
    assert "alike-heads" in named([*examine(case, QUICK)], OK)


def test_heads_that_were_pruned_are_not_alike(tmp_path):
    """All their maps are 0, so that they give the same: nothing, which is told as that."""
    case = case_of(trained(tmp_path))
    attention = case.model.decoder.blocks[0].self_attention.branch
    for each in (attention.query, attention.key, attention.value):
        each.weight.data.zero_()
        each.bias.data.zero_()
    attention.output.weight.data.zero_()
    found = [*examine(case, QUICK)]
    assert "alike-heads" in named(found, OK)
    assert "idle-heads" in named(found, WARNING)


def test_heads_that_do_nothing_or_are_stuck(tmp_path):
    case = case_of(trained(tmp_path))
    idle, stuck = (block.self_attention.branch for block in case.model.decoder.blocks)
    even = case.model.encoder.blocks[0].self_attention.branch
    idle.output.weight.data[:, :8] = 0.0
    stuck.query.weight.data[:8] *= 1e5
    even.query.weight.data[8:] = even.query.bias.data[8:] = 0.0
    found = [each for each in examine(case, QUICK) if each.probe == "idle-heads"]
    assert [(each.state, each.what) for each in found] == [
        (WARNING, "heads read all keys equally"),
        (WARNING, "heads do nothing"),
        (WARNING, "heads are saturated"),
    ]
    assert "head 1 of encoder.blocks.0.self_attention" in found[0].evidence
    assert "head 0 of decoder.blocks.0.self_attention" in found[1].evidence


def test_a_layer_whose_other_weights_are_exactly_0_is_stuck(tmp_path):
    """What may be read is said by the mask: no weight above 0 tells it here."""
    case = case_of(trained(tmp_path))
    stuck = case.model.encoder.blocks[0].self_attention.branch
    stuck.query.weight.data *= 1e9
    found = [each for each in examine(case, QUICK) if each.probe == "idle-heads"]
    assert [(each.state, each.what) for each in found] == [(WARNING, "heads are saturated")]
    assert "head 1 of encoder.blocks.0.self_attention" in found[0].evidence


@pytest.mark.parametrize("layout", ["encoder-decoder", "encoder"])
def test_branches_that_start_at_zero_are_passed(tmp_path, layout):
    run = trained(tmp_path, layout, model__init="zero")
    assert named(found(run), FAILURE) == []
    shutil.rmtree(run / "checkpoints")
    assert named(found(run), FAILURE) == []


def test_layer_without_a_gradient(tmp_path, monkeypatch):
    case = case_of(trained(tmp_path))
    begin = case.begin

    def frozen():
        model = begin()
        for parameter in model.encoder.blocks[1].feed_forward.parameters():
            parameter.requires_grad_(False)
        return model

    monkeypatch.setattr(case, "begin", frozen)
    [failure] = [each for each in examine(case, QUICK) if each.state == FAILURE]
    assert (failure.probe, failure.what) == ("gradient", "a layer gets no gradient")
    assert "encoder.blocks.1.feed_forward" in failure.evidence


def test_batch_that_cannot_be_learned(tmp_path, monkeypatch):
    case = case_of(trained(tmp_path))
    monkeypatch.setattr("glassformer.proof.doctor.learning.RATE", 1e-9)
    [overfit] = [each for each in examine(case, PROBES) if each.probe == "overfit"]
    assert (overfit.state, overfit.what) == (FAILURE, "one batch cannot be learned by heart")
