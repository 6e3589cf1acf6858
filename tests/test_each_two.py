"""Which cases of a product the push tier runs: every two values meet in one of them."""

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

TESTS = """
import pytest

@pytest.mark.each_two
@pytest.mark.parametrize("b", ["u", pytest.param("v"), "w"])
@pytest.mark.parametrize(("a", "more"), [(a, a % 2) for a in range(5)])
@pytest.mark.parametrize("c", ["x", "y"])
def test_thinned(a, more, b, c):
    pass

@pytest.mark.parametrize("a", range(4))
@pytest.mark.parametrize("b", range(4))
def test_whole(a, b):
    pass
"""
CONFTEST = """
import each_two

def pytest_collection_modifyitems(items):
    each_two.thin(items)
"""


def test_every_two_values_meet(tmp_path):
    """Asked of pytest itself, whose places of values are those in the whole product."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    words = ["-q", "--collect-only", "-m", "not slow", "-p", "no:cacheprovider", "-W", "ignore"]
    output = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "--rootdir", str(tmp_path), str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        cwd=tmp_path,
    ).stdout
    kept = [tuple(each.split("-")) for each in re.findall(r"test_thinned\[(.*)\]", output)]
    assert len(kept) == 5 * 3, output
    values = (["x", "y"], list("01234"), ["0", "1"], ["u", "v", "w"])
    for one, other in itertools.combinations((0, 1, 3), 2):
        assert {(each[one], each[other]) for each in kept} == {*itertools.product(values[one], values[other])}
    assert output.count("test_whole[") == 16
