"""From a file of episodes to actions, by the commands a user types, until the model gets what it is asked for."""

import random
from pathlib import Path

import numpy as np
import pytest

from glassformer.cli.main import main
from glassformer.control.rollout import Agent, World, play
from glassformer.store.checkpoint import load

STEPS = 4
TINY = (
    *("--model.d-model", "32", "--model.n-heads", "2", "--model.d-ff", "32", "--model.dropout", "0"),
    *("--training.threads", "1", "--training.device", "cpu", "--training.precision", "float32"),
    *("--training.steps", "200", "--training.batch-tokens", "480", "--training.evaluate-every", "200"),
    *("--data.window", str(STEPS)),
)


class Coins:
    """Action 1 earns 1 and action 0 costs 1, whatever is seen; an episode has four steps."""

    def __init__(self) -> None:
        self.steps = 0

    def reset(self, *, seed: int):
        self.steps, self.random = 0, random.Random(seed)
        return self.seen(), {}

    def step(self, action: int):
        self.steps += 1
        return self.seen(), 2.0 * action - 1.0, False, self.steps == STEPS, {}

    def seen(self):
        return np.array([self.random.random()], np.float32)

    def close(self) -> None:
        pass


def written(path: Path, n: int = 150) -> str:
    """Episodes of an agent that tosses a coin."""
    lines, coin = ["episode,t,obs,action,reward"], random.Random(0)
    for episode in range(n):
        for t in range(STEPS):
            action = coin.randrange(2)
            lines.append(f"{episode},{t},{coin.random()},{action},{2 * action - 1}")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def agent(tmp_path_factory) -> Agent:
    folder = tmp_path_factory.mktemp("acting")
    out = str(folder / "run")
    assert main(["train", "decision", *TINY, "--data.train", written(folder / "coins.csv"), "--out", out]) == 0
    loaded = load(out)
    return Agent(loaded.model, loaded.tokenizers.target, STEPS)


@pytest.mark.parametrize("requested", [-4.0, -2.0, 0.0, 2.0, 4.0])
def test_it_gets_what_it_is_asked_for(agent, requested):
    """Of random actions; only by reading the return that is left can it stop where it should."""
    played = play(agent, lambda: World("coins", Coins(), 1, 2), [requested], range(20), STEPS)
    assert {each.got for each in played} == {requested}
