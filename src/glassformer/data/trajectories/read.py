"""The episodes that a config names: read from a file, held out of one, or made by an environment."""

from __future__ import annotations

from typing import NamedTuple

from glassformer.base.errors import ConfigError, DataError
from glassformer.data.config import DataConfig
from glassformer.data.trajectories.episodes import Episodes
from glassformer.data.trajectories.files import read_episodes
from glassformer.data.trajectories.rooms import ACTIONS, make_episodes
from glassformer.data.trajectories.settings import ROOMS


class Source(NamedTuple):
    """Episodes, where they come from, and what in their file was not read."""

    episodes: Episodes
    name: str
    unread: tuple[str, ...] = ()


def read_split(config: DataConfig, split: str, seed: int) -> Source:
    """The episodes of "train", "dev" or "test".

    Without a file of its own, dev is the end of the training file, and the training split its beginning. Errors:
    `DataError` from reading and for a file too short to be split; `ConfigError` for a split that nothing gives.
    """
    path: str | None = getattr(config, split)
    if path is not None and not (split == "train" and config.dev is None):
        return Source(*read_named(path))
    if config.train is None:
        return Source(make_episodes(config, split, seed), f"the environment {ROOMS}")
    if split == "test":
        raise ConfigError(
            "There is no file for the test episodes. Set data.test to a file, or score the dev episodes with --split "
            "dev."
        )
    episodes, name, unread = read_named(config.train)
    held_out = max(1, round(config.dev_share * len(episodes)))
    if held_out >= len(episodes):
        raise DataError(
            f"{name}: data.dev_share={config.dev_share} of {len(episodes)} episodes leaves none to train on. Give more "
            "episodes, or a file of dev episodes with data.dev."
        )
    kept = len(episodes) - held_out
    part = episodes.part(0, kept) if split == "train" else episodes.part(kept, len(episodes))
    return Source(part, name, unread)


def read_named(path: str) -> tuple[Episodes, str, tuple[str, ...]]:
    """The episodes of a file, its name, and what in it was not read."""
    found = read_episodes(path)
    return found.episodes, path, found.unread


def action_names(config: DataConfig) -> tuple[str, ...]:
    """The names of the actions, where the environment that made the episodes has any."""
    return ACTIONS if config.train is None else ()
