"""The wheel has the page: nothing of it is left behind where the package is built."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

import glassformer

PACKAGE = Path(glassformer.__file__).parent
ROOT = PACKAGE.parents[1]
BUILD = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
OPEN = """
from pathlib import Path
from glassformer.lens.page.bundle import served, standalone
from glassformer.lens.page.script import resources
from glassformer.lens.trace.schema import header_schema
import glassformer
assert header_schema() and "page.js" in served() and len(standalone([], {"name": "empty"})) > 50_000
print(Path(glassformer.__file__).parent, *resources())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this tree, unpacked."""
    if find_spec("hatchling") is None:
        pytest.skip("hatchling, which builds the wheel, is not installed (pip install 'glassformer[dev]')")
    if not (ROOT / "pyproject.toml").exists():
        pytest.skip("the package is installed, and its sources are elsewhere")
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-c", BUILD, str(folder)], cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    with ZipFile(built) as packed:
        packed.extractall(folder / "site")
    return folder / "site"


def test_the_wheel_has_every_file_of_the_page(wheel):
    here = [each for each in (PACKAGE / "lens" / "page").iterdir() if each.suffix in (".js", ".css", ".html")]
    assert len(here) > 30
    for each in [*here, PACKAGE / "lens" / "trace" / "schema.json"]:
        packed = wheel / "glassformer" / each.relative_to(PACKAGE)
        assert packed.read_bytes() == each.read_bytes(), each.name


def test_the_page_is_made_from_the_wheel(wheel):
    """In a process that sees the unpacked wheel alone."""
    environment = {**os.environ, "PYTHONPATH": str(wheel)}
    told = subprocess.run(
        [sys.executable, "-c", OPEN], env=environment, check=True, stdout=subprocess.PIPE, text=True, cwd=wheel
    )
    place, *names = told.stdout.split()
    assert Path(place) == wheel / "glassformer"
    assert "main.js" in names
