"""The short name of a head, and what it is read from."""

import pytest

from glassformer.base.errors import ConfigError
from glassformer.lens.ablate import place


@pytest.mark.parametrize("name", ["encoder.blocks.0.cross_attention", "decoder.blocks.x.self_attention", "head", ""])
def test_another_name_is_refused(name):
    with pytest.raises(ConfigError, match=r"the name that observe\(\) gives"):
        place(name)
