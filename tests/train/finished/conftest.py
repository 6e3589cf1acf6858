"""What tests of finished runs share."""

from pathlib import Path

import pytest

from glassformer.train.run.session import start
from train.examples import follow, recipe
from train.finished.answering import LAYOUTS


@pytest.fixture(scope="module", params=LAYOUTS)
def run(request, tmp_path_factory) -> Path:
    """A run whose best checkpoint is not its newest: no evaluation is said to beat the first."""
    folder = tmp_path_factory.mktemp("use") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("glassformer.train.run.running.rank", lambda metrics, name, task: (0.0, 0.0))
        follow(start(recipe(data__layout=request.param, training__evaluate_every=3), folder))
    return folder
