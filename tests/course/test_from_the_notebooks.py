"""The table 'From the notebooks': 121 rows, and each place that one names is there."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from course.chapters import CHAPTERS
from documents import INLINE, TEXTS, section, tables
from glassformer.base.errors import ConfigError
from glassformer.learn.course import read_course

PAGE = TEXTS["docs/from_the_notebooks.md"]
ROWS = list(tables(PAGE))
COURSE = read_course()
STEPS = {
    f"{path.name[0]}.{number}"
    for path in CHAPTERS
    for number in ("0", *re.findall(r"^## (\d+)\. ", path.read_text("utf-8"), re.M))
}


def missing(places: str) -> list[str]:
    """The places of a cell that are not there."""
    lost: list[str] = []
    for place in places.split(" · "):
        kind, _, number = place.partition(" ")
        try:
            if kind == "exercise":
                COURSE.exercise(number)
            elif kind == "page":
                COURSE.further.chapter(number)
            elif kind != "step" or number not in STEPS:
                lost.append(place)
        except ConfigError:
            lost.append(place)
    return lost


def unknown(names: list[str]) -> list[str]:
    """The names that cannot be imported. (Commands are read by test_docs.py, as in every page.)"""
    lost: list[str] = []
    for name in names:
        module, _, last = f"glassformer.{name.removeprefix('glassformer.')}".rpartition(".")
        if not name.startswith("glassformer ") and not hasattr(import_module(module), last):
            lost.append(name)
    return lost


def test_rows_are_counted():
    headings = re.findall(r"^## (00\d: .+)$", PAGE, re.M)
    assert [len({row[0] for row in tables(section(PAGE, each))}) for each in headings] == [33, 22, 31, 16, 19]
    assert len(ROWS) == 121


def test_each_place_is_there():
    lost = {row[0]: [*missing(row[1]), *unknown(INLINE.findall(row[2]))] for row in ROWS}
    assert {what: places for what, places in lost.items() if places} == {}
    assert all(INLINE.findall(row[2]) for row in ROWS)


@pytest.mark.parametrize("place", ["step 1.11", "exercise 1.9", "page F14", "page 1", "chapter 1", ""])
def test_missing_place_is_seen(place):
    assert missing(f"step 1.1 · {place}") == [place]


def test_unknown_name_is_seen():
    assert unknown(["Mask", "learn.shapes", "glassformer.nn.mask.Msk", "Masq"]) == ["glassformer.nn.mask.Msk", "Masq"]
