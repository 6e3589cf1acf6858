"""What the tests of resuming share."""

from pathlib import Path

import pytest

from glassformer.train.run.session import start
from train.examples import follow, recipe


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run that nothing happened to, saved at every step."""
    run = tmp_path_factory.mktemp("whole") / "run"
    follow(start(recipe(checkpoint__every=1), run))
    return run
