"""Each kind of error ends the command line with the code that DESIGN gives it, and is a ValueError to everyone else."""

from __future__ import annotations

import pytest

from glassformer.foundation import errors

CODES = {
    "GlassformerError": 2,
    "ConfigError": 2,
    "RecipeError": 2,
    "DataError": 2,
    "TooLongError": 2,
    "CheckpointError": 2,
    "DivergedError": 4,
    "BusyError": 2,
    "ResourceError": 5,
    "ProcessError": 1,
}


@pytest.mark.parametrize("name", [name for name in vars(errors) if name.endswith("Error")])
def test_exit_codes(name):
    kind = getattr(errors, name)
    assert kind("said").exit_code == CODES[name]
    assert issubclass(kind, errors.GlassformerError)
    assert isinstance(kind("said"), ValueError)
