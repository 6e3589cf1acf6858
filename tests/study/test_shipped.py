"""The shipped studies: the page gives the command of each, and has a place for its table."""

import shlex

import pytest

import architecture
from glassformer.cli.ablate import read_study
from glassformer.cli.arguments import read_arguments
from glassformer.cli.verbs import VERBS
from glassformer.study.result import table
from study.examples import grid

PAGE = architecture.ROOT / "docs" / "studies.md"


@pytest.fixture
def studies(module):
    return module("studies")


def commands(text: str) -> list[list[str]]:
    """The words of each `glassformer ablate` on a line of its own."""
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines if line.startswith("glassformer ablate")]


def test_commands_are_those_of_the_page(studies):
    assert commands(PAGE.read_text("utf-8")) == [shlex.split(command) for command in studies.STUDIES.values()]


def test_commands_of_the_documents_make_a_grid():
    """The tour and the page alike: nothing in them is refused before training."""
    for path in (PAGE, architecture.ROOT / "docs/command_line.md"):
        found = commands(path.read_text("utf-8"))
        assert found
        for words in found:
            assert read_study(read_arguments("ablate", VERBS["ablate"], words[2:])).arms


def test_tables_have_their_places(studies):
    page = PAGE.read_text("utf-8")
    for name in studies.STUDIES:
        page = studies.replaced(page, name, f"| {name} |")
        assert page.count(f"| {name} |") == 1
    assert studies.replaced(page, "depth", "| depth |") == page


GENERATED = ("| ", "Mean (", "Steps to 99 %: ", "![")


def test_between_the_marks_stands_nothing_written_by_hand(studies):
    """Which the next table would delete."""
    page = PAGE.read_text("utf-8")
    for name in studies.STUDIES:
        start, stop = studies.place(page, name)
        lines = [line for line in page[start:stop].splitlines() if line]
        assert [line for line in lines if not line.startswith(GENERATED)] == []
        found = page[:start].splitlines()[-3:]
        assert ("Not run yet." in found) == (not lines), f"{name}: what stands before its marks is stale"


def test_what_a_study_writes_is_known_as_generated():
    assert all(line.startswith(GENERATED) for line in table(grid()).splitlines() if line)


def test_unknown_study(studies, capsys):
    assert studies.main(["deapth"]) == 2
    assert "There is no study deapth" in capsys.readouterr().err
