"""What a message says to install: packages that exist, for every extra of pyproject.toml."""

import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from glassformer.base import errors

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_packages_of_an_extra_are_named(extra, monkeypatch):
    listed = ["torch>=2.11", *(f'{each}; extra == "{name}"' for name, all in EXTRAS.items() for each in all)]
    monkeypatch.setattr(errors.metadata, "requires", lambda name: listed)
    assert errors.install(extra) == "pip install " + " ".join(f"'{each}'" for each in EXTRAS[extra])


def test_a_folder_without_metadata_names_the_clone(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(errors.metadata, "requires", missing)
    assert errors.install("plot") == "pip install '.[plot]' (in the clone of glassformer)"


def test_no_message_installs_a_name_that_is_not_ours():
    for path in (*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"):
        assert "'glassformer[" not in path.read_text("utf-8"), path
