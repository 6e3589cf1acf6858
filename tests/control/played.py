"""A tiny model of trajectories, and environments to act in, for the tests of acting."""

import numpy as np
import torch

from glassformer.control.rollout import Agent, Bounds, World
from glassformer.data.trajectories.episodes import Episodes, Spaces
from glassformer.data.trajectories.windows import spaces_of
from glassformer.nn.config import ModelConfig, StackConfig
from glassformer.nn.outputs import Regress, Tag
from glassformer.nn.transformer import Transformer

SEEN = 3
"""Numbers in an observation of `Drift`."""


class Drift:
    """A point that is pushed about, with gymnasium's interface; an episode ends when it is far to the right."""

    def __init__(self, long: int = 9) -> None:
        self.long, self.steps, self.closed = long, 0, False
        self.place = np.zeros(SEEN)

    def reset(self, *, seed: int):
        self.steps, self.place = 0, np.random.default_rng(seed).normal(size=SEEN)
        return self.place.astype(np.float32), {}

    def step(self, action):
        push = float(np.sum(action)) - 0.5
        self.steps += 1
        self.place = 0.9 * self.place + push * np.array([1.0, 0.5, -0.3]) + 0.1 * self.steps
        return self.place.astype(np.float32), push - 0.1, self.place[0] > 2.5, self.steps >= self.long, {}

    def close(self) -> None:
        self.closed = True


def drift(*, discrete: bool, long: int = 9) -> World:
    bounds = None if discrete else Bounds(np.array([-1.0, -2.0]), np.array([1.0, 2.0]))
    return World("drift", Drift(long), SEEN, 2 if discrete else None, bounds)


def spaces(*, discrete: bool) -> Spaces:
    random = np.random.default_rng(5)
    actions = random.integers(0, 2, 40) if discrete else random.normal(size=(40, 2)).astype(np.float32)
    made = Episodes(
        random.normal(size=(40, SEEN)).astype(np.float32), actions, random.normal(size=40), np.array([0, 25, 40])
    )
    return spaces_of(made, made.returns_to_go())


def agent(*, discrete: bool, window: int = 4, **settings) -> Agent:
    """A random model in float64, whose weights are large enough for actions to differ."""
    torch.manual_seed(7)
    own = spaces(discrete=discrete)
    head = Tag(2) if discrete else Regress(2, "none")
    stack = StackConfig(d_model=16, n_heads=2, n_layers=2, d_ff=32, n_features=own.n_features, positions="rotary")
    model = Transformer(ModelConfig(decoder=stack, tie_embeddings=False, head=head)).double().eval()
    with torch.no_grad():
        for each in model.parameters():
            each.add_(torch.randn_like(each) * 0.4)
    return Agent(model, own, window, **settings)
