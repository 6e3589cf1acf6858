"""Trajectories made ready: windows that only seed and step decide, all steps equally likely, digests and notes."""

import numpy as np
import pytest

from data.trajectories.episodes import made
from glassformer.base.errors import ConfigError, DataError
from glassformer.data.dataset import Tokenizers
from glassformer.data.tokenizer import ByteTokenizer, tokenizer_from_json
from glassformer.data.trajectories.episodes import npz_bytes
from glassformer.data.trajectories.windows import windows_batch, windows_of
from glassformer.nn.outputs import Regress, Tag
from glassformer.train.run.beginning import model_config, prepare, prepare_split
from train.examples import assert_batches_of_recipe_and_step, first, same
from train.trajectory_examples import LENGTHS, WINDOW, acting, log


@pytest.mark.parametrize("discrete", [True, False])
def test_batches_are_a_function_of_recipe_and_step(tmp_path, discrete):
    path = log(tmp_path, discrete=discrete)
    assert_batches_of_recipe_and_step(acting(path), acting(path, training__seed=2))


def test_a_window_ends_at_a_step_and_reaches_back_to_the_beginning_of_its_episode(tmp_path):
    prepared = prepare(acting(log(tmp_path)))
    episodes = prepared.train.episodes
    owners = np.repeat(np.arange(len(episodes)), episodes.lengths)
    for step in range(40):
        firsts, lengths = prepared._drawn(step, prepared.recipe.training.growth)
        assert len(firsts) == prepared.rows == 6
        for row, length in zip(firsts, lengths, strict=True):
            assert 1 <= length <= WINDOW
            assert len({*owners[row : row + length]}) == 1  # of one episode
            assert length == WINDOW or episodes.times[row] == 0
        [(epoch, batch)] = first(prepared, 1, step)
        made_of = windows_batch(prepared.train.spaces, episodes, prepared.train.to_go, firsts, lengths)
        assert same([(epoch, batch)], [(epoch, made_of)])


def test_windows_end_at_all_steps_equally_often(tmp_path):
    """Pearson's test: with 45 degrees of freedom the sum of squares is above 100 once in 200,000 times."""
    prepared = prepare(acting(log(tmp_path), training__batch_tokens=3 * WINDOW * 500))
    n = prepared.train.episodes.n_steps
    counts = np.zeros(n)
    for step in range(40):
        firsts, lengths = prepared._drawn(step, prepared.recipe.training.growth)
        np.add.at(counts, firsts + lengths - 1, 1)
    expected = 40 * 500 / n
    assert n - 1 <= 45
    assert ((counts - expected) ** 2 / expected).sum() < 100


def test_windows_of_an_evaluation_hold_each_step_once():
    episodes = made(LENGTHS)
    for window in (1, 2, 3, 4, 7, 12, 50):
        firsts, lengths = windows_of(episodes, window)
        steps = [step for row, n in zip(firsts, lengths, strict=True) for step in range(row, row + n)]
        assert steps == list(range(episodes.n_steps))
        assert lengths.max() <= window
        owners = np.repeat(np.arange(len(episodes)), episodes.lengths)
        assert all(owners[row] == owners[row + n - 1] for row, n in zip(firsts, lengths, strict=True))
        assert len(firsts) == sum(-(-length // window) for length in LENGTHS)


def test_an_epoch_is_as_many_steps_as_the_episodes_have(tmp_path):
    prepared = prepare(acting(log(tmp_path)))
    assert prepared.whole == -(-prepared.train.episodes.n_steps // WINDOW)
    assert [epoch for epoch, _ in first(prepared, 30)] == [step * 6 // prepared.whole for step in range(30)]
    found = prepared.summary()
    assert found.epochs == pytest.approx(12 * 6 / prepared.whole)
    assert (found.what, found.samples, found.tokens) == ("windows", prepared.whole, 3 * prepared.train.episodes.n_steps)
    assert (found.longest, found.dev_samples) == (3 * WINDOW, -(-6 // WINDOW) + -(-9 // WINDOW))


def test_a_batch_grows_in_its_warm_up(tmp_path):
    prepared = prepare(acting(log(tmp_path), training__batch_warmup=8, training__batch_start=0.2))
    sizes = [len(batch.tokens) for _, batch in first(prepared, 10)]
    assert sizes[0] == 1
    assert sizes == sorted(sizes)
    assert sizes[8:] == [6, 6]
    assert any(line.startswith("batch warm-up: over 8 steps from 1 windows to 6") for line in prepared.notes())


def test_the_largest_batch_and_the_extremes(tmp_path):
    for window, longest in ((WINDOW, WINDOW), (100, 12)):
        requested = acting(log(tmp_path), data__window=window, training__batch_tokens=6 * 3 * window)
        prepared = prepare(requested)
        (largest,) = prepared.largest()
        assert largest.tokens.shape[:2] == (6, 3 * longest)
        assert [each.tokens.shape[:2] for each in prepared.extremes()] == [(1, 3 * longest), (1, 3)]
        assert max(batch.tokens.shape[1] for _, batch in first(prepared, 20)) <= 3 * longest


@pytest.mark.parametrize("discrete", [True, False])
def test_the_model_fits_the_data(tmp_path, discrete):
    prepared = prepare(acting(log(tmp_path, discrete=discrete), model__head_dropout=0.25))
    config = model_config(prepared.recipe, prepared.tokenizers)
    assert config.head == (Tag(4, 0.25) if discrete else Regress(2, "none", 0.25))
    assert (config.encoder, config.decoder.causal, config.decoder.n_features) == (
        None, True, prepared.train.spaces.n_features,
    )  # fmt: skip


def test_scales_are_those_of_the_training_episodes_or_those_given(tmp_path):
    path = log(tmp_path)
    old = prepare(acting(path))
    assert old.train.spaces is old.dev.spaces is old.tokenizers.target
    whole = made(LENGTHS)
    assert old.train.spaces.scales.observed == tuple(whole.part(0, 8).observations.astype(np.float64).mean(0))
    given = tokenizer_from_json(old.tokenizers.target.to_json())
    own = prepare(acting(log(tmp_path, seed=5)), Tokenizers(given, given)).train.spaces
    assert (own.scales.observed, own.scales.to_go) == (given.scales.observed, given.scales.to_go)
    assert prepare_split(acting(path), Tokenizers(given, given), "dev").spaces is given
    fresh = prepare(acting(log(tmp_path, seed=5)), Tokenizers(ByteTokenizer(), ByteTokenizer()))
    assert fresh.train.spaces.scales != given.scales


def test_returns_to_go_are_discounted_as_the_recipe_says(tmp_path):
    path = log(tmp_path)
    for discount in (1.0, 0.5):
        prepared = prepare(acting(path, data__discount=discount))
        for split in (prepared.train, prepared.dev):
            np.testing.assert_array_equal(split.to_go, split.episodes.returns_to_go(discount))
        assert prepared.train.spaces.scales.to_go == abs(prepared.train.to_go).max()


def test_digests_are_those_of_the_episodes(tmp_path):
    path = log(tmp_path)
    whole = prepare(acting(path)).fingerprints()
    assert prepare(acting(path, training__seed=9, data__window=2)).fingerprints() == whole
    arrays = tmp_path / "log.npz"
    arrays.write_bytes(npz_bytes(made(LENGTHS)))
    assert prepare(acting(arrays)).fingerprints() == whole
    assert prepare(acting(path)).sides() == {"train episodes": whole["train"], "dev episodes": whole["dev"]}
    other = prepare(acting(log(tmp_path, lengths=[5, 1, 9, 2, *LENGTHS[4:]]))).fingerprints()
    assert (other["train"] != whole["train"], other["dev"] == whole["dev"]) == (True, True)


def test_notes_say_what_is_there(tmp_path):
    path = log(tmp_path)
    data, batches = prepare(acting(path)).notes()
    assert data.startswith("data: 8 episodes (42 steps, returns from ")
    assert f"of {path} to train on; 2 episodes (15 steps" in data
    assert data.endswith("as dev episodes; observations of 3 numbers, 4 actions")
    assert batches == f"batches: 6 windows of at most 4 steps (3 places each); {12 * 6 / 11:.2f} epochs in the run"
    assert "actions of 2 numbers" in prepare(acting(log(tmp_path, discrete=False))).notes()[0]
    lines = log(tmp_path).read_text().splitlines()
    path.write_text("".join(f"{line},{extra}\n" for line, extra in zip(lines, ["info", *["x"] * 99], strict=False)))
    assert prepare(acting(path)).notes()[2:] == [f"not read: info in {path}"]


def test_dev_episodes_that_are_trained_on_are_told(tmp_path):
    path = log(tmp_path)
    (tmp_path / "dev.csv").write_text(path.read_text())
    both = acting(path, data__dev=str(tmp_path / "dev.csv"), data__dev_share=0.1)
    assert "in both: 10 of the dev episodes are training episodes, too, and say nothing new" in prepare(both).notes()
    assert not [line for line in prepare(acting(path)).notes() if line.startswith("in both")]


def test_a_batch_is_named_by_its_episodes(tmp_path):
    prepared = prepare(acting(log(tmp_path)))
    firsts, _ = prepared._drawn(4, prepared.recipe.training.growth)
    edges = prepared.train.episodes.edges
    owners = sorted({next(e for e in range(8) if edges[e] <= row < edges[e + 1]) + 1 for row in firsts})
    assert (
        f"the training episodes {', '.join(map(str, owners))} of {prepared.train.source.name}"
        in prepared.named_batch(5)
    )
    assert " and " in prepared.named_batch(5, most=1)


def test_settings_of_a_split(tmp_path):
    assert prepare(acting(log(tmp_path))).settings("dev") == ["data.train"]
    assert prepare(acting(log(tmp_path), data__dev=str(log(tmp_path)))).settings("dev") == ["data.dev"]
    assert prepare(acting()).settings("dev") == ["data.dev"]
    assert prepare(acting()).settings("train") == ["data.train"]


def test_dev_episodes_of_another_environment_are_refused(tmp_path):
    other = tmp_path / "other.npz"
    other.write_bytes(npz_bytes(made([2, 3], discrete=False)))
    with pytest.raises(DataError, match=r"other\.npz: an action must be one of some, by number"):
        prepare(acting(log(tmp_path), data__dev=str(other)))


@pytest.mark.parametrize(("changes", "message"), [
    ({"training__metric": "accuracy"}, r"training\.metric must be loss; got 'accuracy'"),
    ({"training__pool": 10}, r"got training\.pool=10\. Remove training\.pool"),
    ({"training__length_warmup": 5}, r"got training\.length_warmup=5\. Remove"),
    ({"training__batch_tokens": 11}, r"one window, which takes 12 places .* got training\.batch_tokens=11"),
    ({"model__max_len": 11}, r"whole window, which takes 12 places .* got model\.max_len=11"),
    ({"model__encoder_layers": 1}, r"model\.encoder_layers"),
    ({"model__tie_embeddings": False}, r"model\.tie_embeddings"),
])  # fmt: skip
def test_settings_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        acting(**changes)
    assert acting(training__batch_tokens=12, model__max_len=12)
