"""Reading the settings in another library's config.json: each with its type checked, and none silently ignored."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.base.errors import CheckpointError


class Values(NamedTuple):
    """The settings in a config.json, and where the file is. Errors of all methods: `CheckpointError` naming both."""

    given: Mapping[str, Any]
    path: Path
    inside: str = ""
    """The beginning of their full names, if they are not at the top of the file."""

    def whole(self, *names: str, usual: int | None = None) -> int:
        """The first of these settings that is set, a whole number of at least 1, or else `usual`."""
        name = next((each for each in names if self.given.get(each) is not None), names[0])
        value = self.given.get(name, usual)
        value = usual if value is None else value
        if type(value) is not int or value < 1:
            raise self.wrong(name, "a whole number of at least 1", value)
        return value

    def number(self, name: str, usual: float | None) -> float:
        """A finite number of at least 0."""
        value = self.given.get(name, usual)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= sys.float_info.max:
            raise self.wrong(name, "a number of at least 0", value)
        return float(value)

    def flag(self, name: str, *, usual: bool) -> bool:
        """True or false."""
        value = self.given.get(name, usual)
        if type(value) is not bool:
            raise self.wrong(name, "true or false", value)
        return value

    def our_name(self, name: str, table: Mapping[str, str], usual: str) -> str:
        """Our name for the function that a setting names."""
        value = self.given.get(name, usual)
        if not isinstance(value, str) or value not in table:
            raise self.wrong(name, f"one of {', '.join(table)}", value)
        return table[value]

    def refuse(self, **wanted: object) -> None:
        """Refuse settings with which the model would compute something that ours does not; `wanted` is what ours has.

        A setting that is not in the file counts as wanted, because that is the other library's default.
        """
        for name, value in wanted.items():
            if self.given.get(name, value) != value:
                raise self.wrong(name, f"{value!r}, as glassformer computes nothing else here", self.given[name])

    def wrong(self, name: str, wanted: str, value: object) -> CheckpointError:
        """The error for a setting that cannot be used."""
        return CheckpointError(
            f"{self.path}: {self.inside}{name} must be {wanted}; got {value!r:.80}. Import another model."
        )
