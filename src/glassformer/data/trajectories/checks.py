"""Check the settings of trajectories, each by itself and together."""

from __future__ import annotations

from glassformer.base.bounds import at_least, at_most
from glassformer.base.errors import ConfigError
from glassformer.data.config import MOST_PAIRS, DataConfig
from glassformer.data.trajectories.settings import ACTIONS, MOST_EPISODES, MOST_STEPS, ROOMS, TRAJECTORIES


def check_trajectories(config: DataConfig) -> None:
    """Refuse impossible settings. Errors: `ConfigError` naming the setting and the way out."""
    if (config.task == TRAJECTORIES) != (config.layout == ACTIONS):
        raise ConfigError(
            f"data.task={TRAJECTORIES!r} and data.layout={ACTIONS!r} only work together; got "
            f"data.task={config.task!r} and data.layout={config.layout!r}. Set both, or neither."
        )
    if config.task != TRAJECTORIES:
        return
    at_least(config, "data", 1, "window")
    at_most(config, "data", MOST_STEPS, "window")
    for name in MOST_PAIRS:
        at_most(config, "data", MOST_EPISODES, name)
    if not 0 < config.dev_share < 1:
        raise ConfigError(f"data.dev_share must be above 0 and below 1; got {config.dev_share}. Try dev_share=0.1.")
    if config.train is None and config.dev_share != DataConfig.dev_share:
        raise ConfigError(
            f"data.dev_share holds out the end of data.train; got data.dev_share={config.dev_share} and no data.train. "
            "Remove data.dev_share, or set data.train to a file of episodes."
        )
    if not 0 < config.discount <= 1:
        raise ConfigError(
            f"data.discount must be above 0 and at most 1, as a later reward never counts more; got {config.discount}. "
            "Try discount=1.0."
        )
    if config.environment == "":
        raise ConfigError("data.environment must name an environment; got ''. Give a name, or remove data.environment.")
    if config.train is None and config.environment != ROOMS:
        raise ConfigError(
            f"Only data.environment={ROOMS!r} makes its own episodes; got data.environment={config.environment!r} and "
            "no data.train. Set data.train to a file of episodes."
        )
