"""A run that two processes saved goes on with 1, 3 and 4: the same bits, the same samples, the same end (D2)."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch import Tensor

from distributed.processes import work
from distributed.runs import AVERAGED, UNDROPPED, look
from glassformer import load
from glassformer.store.folders import step_folder
from glassformer.train.ranks.distributed import ALONE
from glassformer.train.run.session import start
from train.examples import STEPS, assert_close, assert_same, follow, recipe

CHANGES = {"run": {}, "run-sharded": AVERAGED}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs that two processes stopped after step 5: one that both had whole, one that was cut and is averaged."""
    folder = tmp_path_factory.mktemp("saved")
    work(2, folder, "run_undropped")
    return folder


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same runs of one process, not stopped."""
    folder = tmp_path_factory.mktemp("straight")
    for name, changes in CHANGES.items():
        follow(start(recipe(**UNDROPPED, **changes), folder / name))
    return folder


@pytest.fixture(scope="module", params=[1, 3, 4])
def resumed(request: pytest.FixtureRequest, saved: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What so many processes find there, and where they end."""
    folder = tmp_path_factory.mktemp("resumed") / "runs"
    shutil.copytree(saved, folder)
    work(request.param, folder, "look", "go_on")
    return folder


def stored(run: Path) -> dict[str, Tensor]:
    """The checkpoint of step 5 as training goes on from it."""
    kept = load_file(step_folder(run, 5) / "optimizer.safetensors")
    last = {name.removeprefix("last/"): each for name, each in kept.items() if name.startswith("last/")}
    return kept | (last or load_file(step_folder(run, 5) / "model.safetensors"))


@pytest.mark.parametrize("name", CHANGES)
def test_weights_and_optimizer_are_the_same_bits(resumed, name):
    assert_same(load_file(resumed / f"seen-{name}.0.safetensors"), stored(resumed / name))


@pytest.mark.parametrize("name", CHANGES)
def test_the_next_samples_are_those_of_one_process(resumed, saved, tmp_path, name):
    shutil.copytree(saved / name, tmp_path / name)
    look(ALONE, tmp_path)
    ours, theirs = (json.loads((each / f"seen-{name}.0.json").read_text()) for each in (resumed, tmp_path))
    assert len(ours) == STEPS
    assert ours == theirs


@pytest.mark.parametrize("name", CHANGES)
def test_it_ends_where_one_process_ends_that_never_stopped(resumed, straight, name):
    """In float32, in which sums in another order differ in their last bits."""
    ours, theirs = (load(step_folder(each / name, STEPS)).model.state_dict() for each in (resumed, straight))
    assert_close(
        *({key: each for key, each in of.items() if not key.endswith(".key.bias")} for of in (ours, theirs)), 1e-3
    )
    figures, expected = (
        [json.loads(line)["loss"] for line in (each / name / "metrics.jsonl").read_text().splitlines()]
        for each in (resumed, straight)
    )
    assert figures == pytest.approx(expected, rel=1e-4)
