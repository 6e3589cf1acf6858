"""Each kind of error ends the command line with the code that DESIGN gives it, and is a ValueError to everyone else."""

import pytest

from glassformer.base import errors

CODES = {
    "GlassformerError": 2, "ConfigError": 2, "RowError": 2, "RecipeError": 2, "ArgumentError": 2, "DataError": 2,
    "TooLongError": 2, "CheckpointError": 2, "DivergedError": 4, "BusyError": 2, "ResourceError": 5, "ProcessError": 1,
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in vars(errors) if name.endswith("Error")])
def test_exit_codes(name):
    kind = getattr(errors, name)
    made = kind("In ", 3, " it is said.") if name == "RowError" else kind("said")
    assert made.exit_code == CODES[name]
    assert issubclass(kind, errors.GlassformerError)
    assert isinstance(made, ValueError)


def test_the_row_of_an_error_has_another_name():
    error = errors.RowError("In ", 3, " it is said.")
    assert (str(error), error.row) == ("In row 3 (counted from 0) it is said.", 3)
    assert str(error.named("line 9")) == "In line 9 it is said."
