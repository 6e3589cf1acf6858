"""What tests of speed share."""

import pytest

from glassformer.fast import stack as native_stack
from glassformer.fast.native import may_go_on


@pytest.fixture(autouse=True)
def put_on(monkeypatch):
    """Speed is what these tests are about, also where the environment leaves it off."""
    monkeypatch.delenv("GLASSFORMER_FAST", raising=False)


@pytest.fixture
def calls(monkeypatch):
    """What C++ has run: of each call the tokens of a text, and how many of them were read before (None: no cache)."""
    seen, run = [], native_stack.run

    def counted(running, spec, x, shared, cache):
        seen.append((x.shape[1], None if cache is None else cache.length - x.shape[1]))
        return run(running, spec, x, shared, cache)

    monkeypatch.setattr(native_stack, "run", counted)
    return seen


@pytest.fixture
def steps(monkeypatch):
    """How many steps of one token C++ has run, of texts that had begun."""
    count, run = [0], native_stack.run

    def counted(running, spec, x, shared, cache):
        count[0] += x.shape[1] == 1 and cache is not None and may_go_on(cache.layers)
        return run(running, spec, x, shared, cache)

    monkeypatch.setattr(native_stack, "run", counted)
    return count
