"""Each file of our C++ compiles: what does not is left to torch without a word, and its tests are skipped."""

import pytest

from glassformer.fast.compiler import compiler, library
from glassformer.fast.native import CPP

FILES = sorted(CPP.parent.glob("*.cpp"))


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler is here")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_compiles(file):
    assert library(file)


def test_there_are_files():
    assert len(FILES) >= 5
