"""Of a test of many parameters the push tier runs the cases in which every two values meet; `make test-all` runs all.

A fault that needs three certain values at once is rare (Kuhn, Wallace and Gallo 2004, "Software fault interactions and
implications for software testing"), and the product of many variants is what takes the time.
"""

from collections.abc import Mapping, Sequence

import pytest


def thin(items: list[pytest.Item]) -> None:
    """Mark as slow what `@pytest.mark.each_two` leaves out."""
    for item in items:
        if item.get_closest_marker("each_two") and not meets(item):
            item.add_marker(pytest.mark.slow)


def meets(item: pytest.Function) -> bool:
    """Whether the place of the shortest parameter's value is the sum of the others' places.

    So each choice of the others has one case; and as each of them is at least as long, it meets each of the shortest.
    """
    marks = sorted(item.iter_markers("parametrize"), key=lambda mark: len(mark.args[1]))
    shortest, *others = (place(item.callspec.params, mark) for mark in marks)
    return shortest == sum(others) % len(marks[0].args[1])


def place(params: Mapping[str, object], mark: pytest.Mark) -> int:
    """The place of a case's value among those of a mark; pytest itself tells only its place in the whole product."""
    names, values = mark.args
    names = [each.strip() for each in names.split(",")] if isinstance(names, str) else names
    own = [params[name] for name in names]
    return next(place for place, each in enumerate(values) if all(map(same, own, values_of(each, len(names)))))


def values_of(given: object, count: int) -> Sequence[object]:
    """The values that one entry of a mark gives to so many names."""
    if hasattr(given, "values") and hasattr(given, "marks"):  # pytest.param
        return given.values
    return given if count > 1 else [given]


def same(one: object, other: object) -> bool:
    return one is other or one == other
