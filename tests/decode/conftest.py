"""What tests of decoding share."""

from __future__ import annotations

import pytest

from glassformer.decode import native_steps


@pytest.fixture
def steps(monkeypatch):
    """How many steps C++ has run."""
    count, step = [0], native_steps.step

    def counted(*given):
        count[0] += 1
        return step(*given)

    monkeypatch.setattr(native_steps, "step", counted)
    return count
