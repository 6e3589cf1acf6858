"""Trajectories: episodes of observations, actions and rewards, of which the actions are learned."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.base.errors import ConfigError
from glassformer.data.kinds import PLACES, TRAJECTORIES
from glassformer.train.tasks.task import ROLLOUT, Cut, Task

if TYPE_CHECKING:
    from glassformer.data.dataset import Tokenizers
    from glassformer.nn.config import ModelConfig
    from glassformer.train.settings import Settings
    from glassformer.train.trajectory_data import TrajectoryData, TrajectorySplit


class Trajectories(Task):
    """A Decision Transformer."""

    does, verb = "acts in an environment", ROLLOUT.name
    uses = frozenset({ROLLOUT})
    joins = False
    cut = Cut("file", "train", "dev", ("dev_share", "dev"), "test")

    def check(self, recipe: Settings) -> None:
        """Refuse settings that do not fit trajectories."""
        data, model, training = recipe.data, recipe.model, recipe.training
        least = PLACES * data.window
        self.refuse_tokenizer(recipe, "Episodes")
        if training.metric != "loss":
            raise ConfigError(
                f"With data.task={TRAJECTORIES!r}, training.metric must be loss; got {training.metric!r}. Try "
                "training.metric='loss'."
            )
        if training.pool is not None or training.growth.length_steps:
            name, value = (
                ("pool", training.pool) if training.pool is not None else ("length_warmup", training.length_warmup)
            )
            raise ConfigError(
                f"Windows of episodes are drawn one by one, whatever their length; got training.{name}={value}. Remove "
                f"training.{name}."
            )
        if training.batch_tokens < least:
            raise ConfigError(
                f"A batch must have room for one window, which takes {least} places with data.window={data.window} "
                f"(each step takes {PLACES}: return-to-go, observation and action); got training.batch_tokens="
                f"{training.batch_tokens}. Set it to at least {least}, or use a shorter window."
            )
        if model.max_len is not None and model.max_len < least:
            raise ConfigError(
                f"A model must be able to read a whole window, which takes {least} places with "
                f"data.window={data.window}; got model.max_len={model.max_len}. Set model.max_len to "
                f"at least {least}, or use a shorter window."
            )

    def prepare(self, recipe: Settings, tokenizers: Tokenizers | None = None) -> TrajectoryData:
        """Read the episodes."""
        from glassformer.train.trajectory_data import prepare_trajectories

        return prepare_trajectories(recipe, tokenizers)

    def split(self, recipe: Settings, tokenizers: Tokenizers, name: str) -> TrajectorySplit:
        """The episodes of a split."""
        from glassformer.train.trajectory_data import prepare_trajectory_split

        return prepare_trajectory_split(recipe, tokenizers, name)

    def config(self, recipe: Settings, tokenizers: Tokenizers) -> ModelConfig:
        """What is read are numbers; actions are numbered, or numbers themselves."""
        from glassformer.data.trajectories.episodes import Spaces

        spaces = tokenizers.target
        assert isinstance(spaces, Spaces)
        labels, numbers = (len(spaces.entries), None) if spaces.entries else (None, spaces.n_acted)
        return recipe.model.build(self.layout, None, n_labels=labels, n_features=spaces.n_features, n_numbers=numbers)

    def next_command(self, run: Path) -> str:
        """Let it act, where there is an environment to act in."""
        if self.data.environment is not None:
            return f"Let it act: glassformer rollout {shlex.quote(str(run))}"
        return super().next_command(run)
