"""Unknown names are answered with the known ones and the nearest, for every table of the library."""

import pytest

from glassformer.base.errors import ConfigError
from glassformer.base.registry import lookup, suggestion
from glassformer.nn.block import PLACEMENTS
from glassformer.nn.feed_forward import ACTIVATIONS
from glassformer.nn.initialize import INITS
from glassformer.nn.norm import NORMS
from glassformer.nn.positions import POSITIONS
from glassformer.nn.rules import ATTEND

TABLES = [ATTEND, *ATTEND.values(), NORMS, ACTIVATIONS, POSITIONS, PLACEMENTS, INITS]


@pytest.mark.parametrize("table", TABLES)
def test_every_entry_is_found_and_its_typo_answered(table):
    for name, entry in table.items():
        assert lookup(table, name, "thing") is entry
        with pytest.raises(ConfigError, match=rf"^thing='{name}x' is not known\..*'{name}'.* Did you mean '{name}'\?$"):
            lookup(table, f"{name}x", "thing")


def test_nothing_near_is_suggested_for_nothing_like_it():
    with pytest.raises(ConfigError, match=r"^norm='qqqq' is not known\. Known: 'layer', 'rms'\.$"):
        lookup({"rms": 1, "layer": 2}, "qqqq", "norm")
    assert suggestion("", {}) == "Known: ."


def test_of_very_many_names_the_first_are_listed():
    names = [f"name-{number:02}" for number in range(50)]
    assert suggestion("name-33x", names).endswith("'name-07' and 42 more. Did you mean 'name-33'?")
    assert "more" not in suggestion("", names[:40])
