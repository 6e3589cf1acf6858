"""The settings of several processes: bounds, and what a model that is cut cannot have."""

from __future__ import annotations

import pytest

from glassformer.foundation.errors import ConfigError
from glassformer.train.distributed_settings import DistributedConfig
from glassformer.train.recipe import Recipe, override


def test_a_cut_model_takes_adamw():
    asked = {"distributed.shard": True, "distributed.timeout": 7}
    assert override(Recipe("x"), asked).distributed == DistributedConfig(shard=True, timeout=7)
    with pytest.raises(ConfigError, match=r"distributed\.shard cuts each matrix.*optimizer\.name='muon'.*'adamw'"):
        override(Recipe("x"), asked | {"optimizer.name": "muon"})


@pytest.mark.parametrize("changes", [{"optimizer.average": 0.9}, {"training.precision": "float16"}])
def test_a_cut_model_is_not_averaged_nor_scaled(changes):
    override(Recipe("x"), changes)
    with pytest.raises(ConfigError, match=r"distributed\.shard does not go with an average of the weights"):
        override(Recipe("x"), changes | {"distributed.shard": True})


@pytest.mark.parametrize(("value", "rule"), [(0, "at least 1"), (86_401, "at most 86400")])
def test_bounds_of_the_time_out(value, rule):
    with pytest.raises(ConfigError, match=f"distributed.timeout must be {rule}"):
        DistributedConfig(timeout=value)
