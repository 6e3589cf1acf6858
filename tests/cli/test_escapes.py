"""Texts that flags take: escapes as in printf."""

import pytest

from glassformer.base.errors import ConfigError
from glassformer.cli.constraints import unescaped


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("a b", "a b"),
        (r"\n", "\n"),
        (r"a\tb\r\n", "a\tb\r\n"),
        (r"\\n", r"\n"),
        (r"\\\n", "\\\n"),
        (r"\x41\u00e9\U0001F600\101", "A\u00e9\U0001f600A"),
        (r"\q and \ ", r"\q and \ "),
        ("\\", "\\"),
    ],
)
def test_escapes_are_those_of_printf(typed, meant):
    assert unescaped(typed) == meant


@pytest.mark.parametrize("typed", [r"\ud800", r"\UFFFFFFFF"])
def test_numbers_that_are_no_character_are_refused(typed):
    with pytest.raises(ConfigError, match="must be the number of a character; got"):
        unescaped(typed)
