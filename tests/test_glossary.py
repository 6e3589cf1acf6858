"""The glossary says what is so: our words are in our sources, and torch's in torch's."""

import inspect
import re
from functools import cache

import pytest
import torch
import torch.nn.functional as F

import architecture
from documents import GLOSSARY, INLINE, tables


@cache
def words_of_ours() -> set[str]:
    """Every name in the package: functions, classes, parameters, attributes, variables."""
    text = "".join((architecture.SOURCE / module).read_text("utf-8") for module in architecture.MODULES)
    return {*re.findall(r"\w+", text)}


@pytest.mark.parametrize("row", list(tables(GLOSSARY)), ids=lambda row: row[0])
def test_glossary(row):
    """Our words are in our sources; what is said to be of a part of torch's is named there."""
    ours = [word for word in INLINE.findall(row[0] if row[0] != "glassformer" else row[1]) if "." not in word]
    assert {*ours} <= words_of_ours()
    for names, owner in re.findall(r"((?:`\w+`(?:,| and)? ?)+) of `([\w.]+)`", row[-1] if len(row) > 3 else row[1]):
        known = known_to_torch(owner)
        assert {*INLINE.findall(names)} <= known, f"{owner} has no {names}"


def known_to_torch(owner: str) -> set[str]:
    """Every word in the source of something in torch, or in its documentation where it is compiled."""
    thing: object = {"nn": torch.nn, "F": F, "optim": torch.optim}[owner.split(".")[0]]
    for part in owner.split(".")[1:]:
        thing = getattr(thing, part)
    text = inspect.getsource(thing) if isinstance(thing, type) or inspect.isfunction(thing) else inspect.getdoc(thing)
    return {*re.findall(r"\w+", text or "")}
