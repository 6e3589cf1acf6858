"""Check the settings of trajectories, each by itself and together."""

from __future__ import annotations

from glassformer.base.errors import ConfigError
from glassformer.base.settings import Rule
from glassformer.data.config import MOST_PAIRS, DataConfig
from glassformer.data.trajectories.settings import MOST_EPISODES, MOST_STEPS, ROOMS, TRAJECTORIES


def check_trajectories(config: DataConfig) -> None:
    """Refuse impossible settings. Errors: `ConfigError` naming the setting and the way out."""
    if config.task != TRAJECTORIES:
        return
    Rule(most=MOST_STEPS).check("data.window", config.window, 256, whole=True)
    for name in MOST_PAIRS:
        Rule(most=MOST_EPISODES).check(f"data.{name}", getattr(config, name), 1, whole=True)
    if config.train is None and config.dev_share != DataConfig.dev_share:
        raise ConfigError(
            f"data.dev_share holds out the end of data.train; got data.dev_share={config.dev_share} and no data.train. "
            "Remove data.dev_share, or set data.train to a file of episodes."
        )
    if config.environment == "":
        raise ConfigError("data.environment must name an environment; got ''. Give a name, or remove data.environment.")
    if config.train is None and config.environment != ROOMS:
        raise ConfigError(
            f"Only data.environment={ROOMS!r} makes its own episodes; got data.environment={config.environment!r} and "
            "no data.train. Set data.train to a file of episodes."
        )
