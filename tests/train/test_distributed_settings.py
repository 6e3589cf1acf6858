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


def test_a_cut_model_is_averaged_but_not_scaled():
    cut = {"distributed.shard": True}
    assert override(Recipe("x"), cut | {"optimizer.average": 0.9}).optimizer.average == 0.9
    changes = {"training.precision": "float16"}
    override(Recipe("x"), changes)
    with pytest.raises(ConfigError, match=r"distributed\.shard does not go with float16"):
        override(Recipe("x"), changes | cut)


@pytest.mark.parametrize(("value", "rule"), [(0, "at least 1"), (86_401, "at most 86400")])
def test_bounds_of_the_time_out(value, rule):
    with pytest.raises(ConfigError, match=f"distributed.timeout must be {rule}"):
        DistributedConfig(timeout=value)
