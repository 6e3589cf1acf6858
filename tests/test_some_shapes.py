"""Which cases execute shapes, and that those that do not pay nothing for it."""

from __future__ import annotations

import jaxtyping
import pytest
from beartype import beartype

import some_shapes
from glassformer.base.shapes import Float, Tensor


class Case:
    """As much of a collected test as is asked for."""

    def __init__(self, nodeid: str, mark: pytest.Mark | None = None) -> None:
        self.nodeid, self.mark, self.stash = nodeid, mark, pytest.Stash()

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.mark if self.mark and self.mark.name == name else None


def chosen(*cases: Case, of_each_file: bool = False) -> list[bool]:
    some_shapes.choose(list(cases), of_each_file=of_each_file)
    return [case.stash[some_shapes.CHOSEN] for case in cases]


def test_the_first_case_of_every_test_is_chosen_and_a_share_of_the_others():
    cases = [Case(f"tests/test_a.py::test_one[{i}]") for i in range(800)]
    found = chosen(*cases, Case("tests/test_a.py::test_two[0]"), Case("tests/test_a.py::test_three"))
    assert (found[0], found[-2], found[-1]) == (True, True, True)
    assert 60 <= sum(found[:800]) <= 140
    assert chosen(*cases) == found[:800], "the same ones again"


def test_of_a_file_the_first_is_chosen_and_a_share_of_the_others():
    cases = [Case(f"tests/test_{name}.py::test_{i}") for name in "ab" for i in range(800)]
    found = chosen(*cases, of_each_file=True)
    assert (found[0], found[800]) == (True, True)
    assert 120 <= sum(found) <= 280
    assert all(chosen(*cases)), "of each test, where there is time"


@pytest.mark.parametrize("executed", [True, False])
def test_what_is_marked_is_as_the_mark_says(executed):
    mark = pytest.mark.shapes(executed).mark
    assert chosen(*[Case(f"tests/test_a.py::test_one[{i}]", mark) for i in range(20)]) == [executed] * 20


def flat(x: Float[Tensor, "B T"]) -> Float[Tensor, "B"]:
    """What takes a matrix alone."""
    return x[..., 0]


@pytest.mark.parametrize("executed", [True, False])
def test_a_wrong_shape_is_refused_where_shapes_are_executed(monkeypatch, executed):
    import torch

    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", not executed)
    made = some_shapes.when_asked(flat, typechecker=beartype)
    if executed:
        with pytest.raises(jaxtyping.TypeCheckError):
            made(torch.zeros(3))
    else:
        assert made(torch.zeros(3)).shape == ()
