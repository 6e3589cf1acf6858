"""The shapes in our signatures are executed in some cases of the tests: in all, most of the time would go into them.

jaxtyping builds the checks of a function where it is defined. Here they are built when they are first asked for, as
functions that are defined inside others are so at every call.
"""

from __future__ import annotations

import functools
import inspect
import zlib
from collections.abc import Callable
from typing import Any

import jaxtyping
import pytest

CHOSEN = pytest.StashKey[bool]()
SHARE = 8
"""One in so many cases is chosen, beside the first of each test; of each file in the push tier."""

jaxtyped = jaxtyping.jaxtyped


def install() -> None:
    """Before the first import of what is checked: the import hook asks `jaxtyping.jaxtyped` for every function."""
    jaxtyping.jaxtyped = when_asked


def choose(items: list[pytest.Item], *, of_each_file: bool) -> None:
    """The same cases whenever the same tests run; what is marked as the mark says."""
    seen: set[str] = set()
    for item in items:
        group = item.nodeid.split("::" if of_each_file else "[", 1)[0]
        drawn = zlib.crc32(item.nodeid.encode()) % SHARE == 0
        marked = item.get_closest_marker("shapes")
        item.stash[CHOSEN] = marked.args[0] if marked else group not in seen or drawn
        seen.add(group)


def switch(item: pytest.Item) -> None:
    """On or off for this test."""
    jaxtyping.config.update("jaxtyping_disable", not item.stash[CHOSEN])


def when_asked(fn: Any = None, *, typechecker: Any) -> Any:
    """`jaxtyped`, whose work begins with the first call that is checked."""
    if fn is None:
        return functools.partial(when_asked, typechecker=typechecker)
    if not inspect.isfunction(fn):
        return jaxtyped(fn, typechecker=typechecker)
    checked: Callable[..., Any] | None = None

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal checked
        if jaxtyping.config.jaxtyping_disable:
            return fn(*args, **kwargs)
        if checked is None:
            checked = jaxtyped(fn, typechecker=typechecker)
        return checked(*args, **kwargs)

    return call
