"""Which cases of a product the push tier runs: every two values meet in one of them."""

from __future__ import annotations

import itertools

import pytest

import each_two

A, B, C = range(7), range(3), range(2)


class Case:
    """As much of a collected test as is asked for."""

    def __init__(self, *values: int, marks: list[pytest.Mark] | None = None) -> None:
        self.callspec = type("Spec", (), {"indices": dict(zip("abc", values, strict=True))})
        self.marks = marks or [
            pytest.mark.parametrize("b", B).mark,
            pytest.mark.parametrize(("a", "more"), [(a, 0) for a in A]).mark,
            pytest.mark.parametrize("c", C).mark,
        ]
        self.added: list[str] = []

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        return self.marks

    def get_closest_marker(self, name: str) -> bool:
        return name == "each_two"

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.added.append(mark.name)


def test_every_two_values_meet():
    cases = {values: Case(*values) for values in itertools.product(A, B, C)}
    each_two.thin([*cases.values()])
    assert {*map(tuple, (each.added for each in cases.values()))} == {(), ("slow",)}
    kept = [values for values, case in cases.items() if not case.added]
    assert len(kept) == len(A) * len(B)
    for one, other in itertools.combinations(range(3), 2):
        met = {(values[one], values[other]) for values in kept}
        assert met == {*itertools.product((A, B, C)[one], (A, B, C)[other])}


def test_what_is_not_marked_stays(monkeypatch):
    case = Case(0, 0, 1)
    monkeypatch.setattr(case, "get_closest_marker", lambda name: None)
    each_two.thin([case])
    assert case.added == []
