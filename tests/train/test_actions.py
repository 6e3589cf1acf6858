"""An evaluation scores the action of each step once, from what its window holds, as if it were computed alone."""

from dataclasses import replace

import pytest
import torch

from glassformer.data.trajectories.windows import as_done, as_read, windows_of
from glassformer.train.evaluate import Scoring
from glassformer.train.objective import objective_for
from glassformer.train.tasks.trajectories import action_scores
from train.examples import definite
from train.trajectory_examples import acting, log


def made(path, **changes):
    return definite(acting(path, **changes))


def wide(batch):
    """The same batch in float64."""
    numbers = batch.labels.is_floating_point()
    return replace(batch, tokens=batch.tokens.double(), labels=batch.labels.double() if numbers else batch.labels)


def scores(prepared, model, window, batch_size):
    split = prepared.dev
    firsts, lengths = windows_of(split.episodes, window)
    recipe = replace(prepared.recipe, decode=replace(prepared.recipe.decode, batch_size=batch_size))
    scoring = Scoring(model, recipe, prepared.tokenizers, objective_for(model))
    return action_scores(scoring, split.spaces, lengths, lambda rows: wide(split.batch((firsts[rows], lengths[rows]))))


@torch.no_grad()
def step_by_step(prepared, model, window):
    """(loss, accuracy or error, n): one forward for each step, of its window so far; its own action is not there."""
    split, loss, other = prepared.dev, 0.0, 0.0
    episodes, spaces = split.episodes, split.spaces
    for step in range(episodes.n_steps):
        length = int(episodes.times[step]) % window + 1
        alone = wide(split.batch((torch.tensor([step - length + 1]).numpy(), torch.tensor([length]).numpy())))
        predicted = model(alone.tokens[:, :-1])[0, -1]  # without the place of the action
        if episodes.discrete:
            loss -= float(predicted.log_softmax(-1)[episodes.actions[step]])
            other += float(predicted.argmax() == episodes.actions[step])
        else:
            wanted = torch.as_tensor(as_read(spaces, episodes.actions[step])).float().double()
            loss += float((predicted - wanted).square().sum())
            spread = torch.tensor(spaces.scales.acted_spread, dtype=torch.float64)
            other += float(((predicted - wanted).abs() * spread).sum())
    n = episodes.n_steps * (1 if episodes.discrete else 2)
    return loss / n, other / n, episodes.n_steps


@pytest.mark.parametrize("window", [1, 3, 4, 50])
@pytest.mark.parametrize("discrete", [True, False])
def test_every_step_is_scored_as_if_it_were_alone(tmp_path, discrete, window):
    prepared, model = made(log(tmp_path, discrete=discrete), training__batch_tokens=600, data__window=window)
    loss, other, n = step_by_step(prepared, model, window)
    for batch_size in (1, 3, 100):
        scored = scores(prepared, model, window, batch_size)
        assert scored["n"] == n == 15
        assert scored["loss"] == pytest.approx(loss, rel=1e-12)
        # the spread of a number is a float of 32 bits there
        assert scored["accuracy" if discrete else "error"] == pytest.approx(other, rel=1e-12 if discrete else 1e-6)


@pytest.mark.parametrize("discrete", [True, False])
def test_a_split_scores_itself_so(tmp_path, discrete):
    prepared, model = made(log(tmp_path, discrete=discrete))
    expected = step_by_step(prepared, model, 4)
    polls = []
    scoring = prepared.scoring(model.float(), objective_for(model))
    found = prepared.dev.score(scoring._replace(poll=lambda: polls.append(1)))
    assert found.samples == []
    assert [*found.metrics] == ["loss", "accuracy" if discrete else "error", "n"]
    assert [*found.metrics.values()] == pytest.approx(expected, rel=1e-4)
    assert polls


def test_an_error_is_in_the_unit_of_the_data(tmp_path):
    """A model that always tells the mean is off by the mean distance from it."""
    prepared, model = made(log(tmp_path, discrete=False))
    torch.nn.init.zeros_(model.head.weight)
    spaces, episodes = prepared.dev.spaces, prepared.dev.episodes
    scored = scores(prepared, model, 4, 8)
    mean = as_done(spaces, 0 * as_read(spaces, episodes.actions))
    assert scored["error"] == pytest.approx(abs(episodes.actions - mean).mean(), rel=1e-6)
    assert scored["loss"] == pytest.approx((as_read(spaces, episodes.actions) ** 2).mean(), rel=1e-6)
