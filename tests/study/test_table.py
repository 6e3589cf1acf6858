"""The table, from results made by hand and from results.jsonl; figures read from the files of a run."""

import json

import pytest

from glassformer.base.errors import CheckpointError
from glassformer.study.plot import summary
from glassformer.study.result import learning_curve, result_from, table, training_seconds, write_results
from study.examples import grid, result, results_of


def rows(text: str) -> list[list[str]]:
    """The cells of a markdown table, without its ruler."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], *lines[2:])]


def test_mean_and_spread_of_each_combination():
    head, *body = rows(table(grid()))
    assert head == ["n_layers", "norm", "exact_match", "steps to 99 %", "parameters", "seconds"]
    assert body[0] == ["1", "layer", "11.50 % (11.00–12.00)", "-", "1,234,567", "12 (11–12)"]
    assert [row[:2] for row in body] == [["1", "layer"], ["1", "rms"], ["4", "layer"], ["4", "rms"]]


def test_steps_to_99_percent_are_of_the_first_evaluation_there():
    curves = [[(50, 0.5), (100, 0.99), (150, 0.4), (200, 1.0)], [(50, 0.0), (100, 0.989), (150, 0.99)], [(50, 0.9)]]
    results = [result({"model.n_layers": 1}, seed, curve=curve) for seed, curve in enumerate(curves)]
    assert [each.steps_to_enough() for each in results] == [100, 150, None]
    assert rows(table(results))[1][2] == "125 (100–150), 2 of 3"
    assert rows(table(results[2:]))[1][2] == "-"


def test_loss_reaches_no_99_percent():
    found = result({"model.n_layers": 1}, 1, metric="loss", test={"loss": 1.25, "n": 5}, curve=[(5, 1.5)])
    assert found.steps_to_enough() is None
    head, row = rows(table([found]))
    assert head == ["n_layers", "loss", "parameters", "seconds"]
    assert row[1] == "1.2500"


def test_other_data_have_a_column():
    other = {"data.min_length": 17, "data.max_length": 32}
    found = result({"model.positions": "rotary"}, 1, other_data=other, other={"exact_match": 0.125, "n": 7})
    head, row = rows(table([found]))
    assert head[1:3] == ["exact_match", "exact_match, min_length=17, max_length=32"]
    assert row[1:3] == ["50.00 %", "12.50 %"]
    assert "1,000 test samples each.\nOf min_length=17, max_length=32: 7 samples each." in table([found])


def test_the_split_is_told():
    held_out = [result({"model.n_layers": 1}, seed, split=split) for seed, split in ((1, "dev"), (2, "test"))]
    assert "1,000 test samples each." in table(held_out[1:])
    assert "1,000 dev samples each." in table(held_out[:1])
    assert "1,000 test or dev samples each." in table(held_out)
    assert summary(held_out[:1])[0].title == "exact_match on the dev split"


def test_combination_without_results_has_its_row():
    wanted = [{"model.n_layers": 1}, {"model.n_layers": 9}]
    _, done, failed = rows(table([result(wanted[0], 1)], wanted))
    assert done[0] == "1"
    assert failed == ["9", "-", "-", "-", "-"]


def test_settings_of_one_name_keep_their_sections():
    assert rows(table([result({"data.a": 1, "model.a": 2}, 1)]))[0][:2] == ["data.a", "model.a"]


def test_table_can_be_made_again_from_the_file(tmp_path):
    results = grid(other_data={"data.max_length": 32}, other={"exact_match": 0.5, "n": 7})
    write_results(results, tmp_path / "results.jsonl")
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == len(results)
    assert results_of(tmp_path / "results.jsonl") == results
    assert table(results_of(tmp_path / "results.jsonl")) == table(results)


def test_a_result_from_before_gets_its_split(tmp_path):
    found = result({"model.n_layers": 1}, 1, split="dev")
    before = {name: each for name, each in json.loads(found.as_json()).items() if name != "split"}
    assert result_from(before, "results.jsonl:1", "dev") == found
    assert result_from(json.loads(found.as_json()), "results.jsonl:1", "test") == found
    for value, split in ((before, None), ({**before, "split": None}, "dev")):
        with pytest.raises(CheckpointError, match=r"^results\.jsonl:1 is not the result .* repeat the study's command"):
            result_from(value, "results.jsonl:1", split)


@pytest.mark.parametrize("value", [{}, [], {"values": {}, "seed": 1}], ids=str)
def test_what_is_no_result_is_named(value):
    with pytest.raises(CheckpointError, match=r"^scores/a\.json is not the result"):
        result_from(value, "scores/a.json")


def test_seconds_of_a_run_that_was_resumed_are_summed(tmp_path):
    lines = [{"step": step, "seconds": seconds} for step, seconds in enumerate([1.0, 2.5, 0.5, 1.0, 0.25], start=1)]
    (tmp_path / "timing.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    assert training_seconds(tmp_path) == 2.5 + 1.0 + 0.25


def test_learning_curve_is_that_of_the_dev_split(tmp_path):
    lines = [{"kind": "train", "step": 1, "loss": 2.0}, {"kind": "dev", "step": 1, "loss": 3.0, "exact_match": 0.5}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    assert learning_curve(tmp_path, "exact_match") == [(1, 0.5)]
