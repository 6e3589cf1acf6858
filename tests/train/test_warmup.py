"""Runs whose batches begin small and short: they resume to the same bits; a dry run times full ones."""

import pytest

from glassformer.base.errors import ConfigError
from glassformer.train.run.beginning import prepare
from glassformer.train.run.outlook import look_ahead
from glassformer.train.run.session import resume, start
from train.examples import STEPS, assert_same_end, follow, killed_after, recipe

WARM = {
    "training__batch_warmup": 6, "training__batch_start": 0.25, "training__length_warmup": 7,
    "training__length_start": 3, "training__schedule": "constant",
}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing happened to, saved at every step."""
    run = tmp_path_factory.mktemp("warm") / "run"
    follow(start(recipe(checkpoint__every=1, **WARM), run))
    return run


def test_batches_begin_small_and_short():
    batches = prepare(recipe(**WARM)).batches(0)
    few = [next(batches)[1] for _ in range(STEPS)]
    rows = [len(each.tokens) for each in few]
    assert rows[0] <= max(rows) / 4 + 1
    assert max(rows[7:10]) == max(rows)
    assert few[0].tokens.shape[1] < max(each.tokens.shape[1] for each in few)


@pytest.mark.parametrize("step", [1, 3, 5, 6, 7, 9])
def test_a_warming_run_resumes_to_the_same_bits(whole, tmp_path, step):
    run = killed_after(whole, step, tmp_path / "run")
    follow(resume(run))
    assert_same_end(run, whole)


def test_a_run_says_what_it_holds_back(whole):
    log = (whole / "log.txt").read_text("utf-8")
    assert "batch warm-up: over 6 steps from 1/4 of a batch to all of it" in log
    assert "length warm-up: over 7 steps from 3 to 6 tokens; " in log


def test_time_is_measured_on_full_batches(tmp_path, monkeypatch):
    seen = []
    real = prepare(recipe(**WARM)).__class__.batches
    monkeypatch.setattr(
        "glassformer.train.tasks.pairs.PairsData.batches",
        lambda self, start: (seen.append(start), real(self, start))[1],
    )
    look_ahead(recipe(**WARM), tmp_path)
    assert seen == [7, 7]


def test_a_dry_run_counts_epochs_by_samples(tmp_path):
    warm, plain = (look_ahead(recipe(**changes), tmp_path).data for changes in (WARM, {}))
    assert warm.batches == plain.batches
    assert plain.epochs == pytest.approx(STEPS / plain.batches)
    assert warm.epochs < plain.epochs


@pytest.mark.parametrize(("name", "value", "message"), [
    ("batch_start", 0.0, "at least 0.001 and at most 1, .*; got 0.0"),
    ("batch_start", 1.5, "at least 0.001 and at most 1, .*; got 1.5"),
    ("length_start", 0, "length_start must be at least 1"),
    ("batch_warmup", -1, "batch_warmup must be at least 0"),
    ("length_warmup", 2**31, "length_warmup must be at most 1000000"),
])  # fmt: skip
def test_settings_that_cannot_be(name, value, message):
    with pytest.raises(ConfigError, match=message):
        recipe(**{f"training__{name}": value})
