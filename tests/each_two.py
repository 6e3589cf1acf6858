"""Of a test of many parameters the push tier runs the cases in which every two values meet; `make test-all` runs all.

A fault that needs three certain values at once is rare (Kuhn, Wallace and Gallo 2004, "Software fault interactions and
implications for software testing"), and the product of many variants is what takes the time.
"""

from __future__ import annotations

import pytest


def thin(items: list[pytest.Item]) -> None:
    """Mark as slow what `@pytest.mark.each_two` leaves out."""
    for item in items:
        if item.get_closest_marker("each_two") and not meets(item):
            item.add_marker(pytest.mark.slow)


def meets(item: pytest.Item) -> bool:
    """Whether the place of the shortest parameter's value is the sum of the others' places.

    So each choice of the others has one case; and as each of them is at least as long, it meets each of the shortest.
    """
    marks = sorted(item.iter_markers("parametrize"), key=lambda mark: len(mark.args[1]))
    shortest, *others = (item.callspec.indices[first_name(mark)] for mark in marks)
    return shortest == sum(others) % len(marks[0].args[1])


def first_name(mark: pytest.Mark) -> str:
    """Of the parameters that a mark gives together."""
    names = mark.args[0]
    return names.split(",")[0].strip() if isinstance(names, str) else names[0]
