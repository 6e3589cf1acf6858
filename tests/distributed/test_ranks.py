"""Two processes that train together: the same batches, gradients, decisions and files as of one."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from distributed import work as tasks
from distributed.processes import work
from distributed.runs import AVERAGED, UNDROPPED, look, that_matter
from glassformer import load
from glassformer.base.launched import Launched
from glassformer.store.folders import step_folder
from glassformer.train.ranks.distributed import ALONE, Ranks
from glassformer.train.ranks.team import own_batches
from glassformer.train.run.session import resume, start
from train.examples import STEPS, assert_close, assert_same, assert_same_end, follow, recipe
from train.text_examples import book, text_recipe

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """What two processes leave that do all the tasks, one after the other."""
    folder = tmp_path_factory.mktemp("two")
    book(folder)
    work(
        2,
        folder,
        "talk",
        "scores",
        "gradients",
        "diverged",
        "blamed",
        "run",
        "run_averaged",
        "run_sharded_averaged",
        "run_sharded_through",
        "run_hindered",
        "run_narrow",
        "text",
    )
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process leaves that trains the same; the batch of the case `dropout` is cut as two would cut it."""
    folder = tmp_path_factory.mktemp("one")
    for name in tasks.CASES:
        tasks.trained(name, ALONE, folder, accumulate=2 if name == "dropout" else None)
    return folder


def read(folder: Path, name: str) -> object:
    return json.loads((folder / name).read_text("utf-8"))


def laid_out(path: Path) -> list[str]:
    """The names in the header of a safetensors file, as they stand there."""
    data = path.read_bytes()
    return list(json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]))


def test_processes_tell_each_other(together):
    first, second = read(together, "talk.0.json"), read(together, "talk.1.json")
    assert first == second
    *result, refusal = first
    assert result == [2.0, 0.0, True, False, 7.0, "für alle", [[0.1], [1.1, 1.1, 1.1]]]
    assert "the train data of process 1 differs from that of process 0" in refusal


@pytest.mark.parametrize("name", [f"whole-{name}" for name in tasks.CASES] + [f"sharded-{n}" for n in tasks.SHARDED])
def test_two_processes_take_the_steps_of_one(together, alone, name):
    """Weights after three clipped updates, of which the last has one row, each step's loss, norm and tokens.

    And the average of the weights over the steps, its loss in an evaluation, after which the weights are as they were.

    With dropout two processes are one that cuts its batches in two.
    """
    expected = "whole-" + name.partition("-")[2]
    ours = load_file(together / f"{name}.0.safetensors")
    assert_close(ours, load_file(alone / f"{expected}.0.safetensors"))
    assert_same(ours, load_file(together / f"{name}.1.safetensors"))
    reports, theirs = read(together, f"{name}.0.json"), read(alone, f"{expected}.0.json")
    assert reports == [pytest.approx(each, rel=1e-12) for each in theirs]
    assert reports == read(together, f"{name}.1.json")


@pytest.mark.slow
def test_three_processes_take_the_steps_of_one(alone, tmp_path):
    """As above; the last update has one row, so that two of the three have none. Dropout is another one in thirds."""
    work(3, tmp_path, "gradients")
    whole, cut = (sorted({*names} - {"dropout"}) for names in (tasks.CASES, tasks.SHARDED))
    assert whole
    assert cut
    for name, kind in [(name, "whole") for name in whole] + [(name, "sharded") for name in cut]:
        ours = [load_file(tmp_path / f"{kind}-{name}.{number}.safetensors") for number in range(3)]
        assert_close(ours[0], load_file(alone / f"whole-{name}.0.safetensors"))
        assert_same(ours[0], ours[1])
        assert_same(ours[0], ours[2])
        theirs = read(alone, f"whole-{name}.0.json")
        assert read(tmp_path, f"{kind}-{name}.0.json") == [pytest.approx(each, rel=1e-12) for each in theirs]


@pytest.mark.parametrize("name", tasks.SCORED)
def test_two_processes_score_as_one(together, tmp_path, name):
    """To the last bit, in float32: figures, outputs in their order, tables."""
    ours = read(together, f"scored-{name}.0.json")
    assert ours == read(together, f"scored-{name}.1.json")
    assert ours == json.loads(json.dumps(tasks.scored(name, ALONE, tmp_path)))


def test_processes_share_the_batches_of_one():
    """Each batch is read once, and is one that a single process reads."""
    lengths = np.array([3, 1, 2, 3, 1, 2, 3])
    assert own_batches(lengths, 2, ALONE) == [[1, 4], [2, 5], [0, 3], [6]]
    shares = [own_batches(lengths, 2, Ranks(Launched(number, 3, number, 3))) for number in range(3)]
    assert shares == [[[1, 4], [6]], [[2, 5]], [[0, 3]]]


@pytest.mark.parametrize("kind", ["whole", "cut"])
def test_all_stop_where_one_diverges(together, kind):
    """The gradient is not finite in the second process alone; before the update of both they end, or leave it out."""
    for number in range(2):
        report = read(together, f"diverged.{number}.json")
        [[why, unmoved]] = report[f"{kind}-0"]
        assert "at step 1" in why
        assert "The outputs are finite; the gradient of decoder.norm.bias is not. The weights were not updated" in why
        assert unmoved
        (why, unmoved), (well, at_first) = report[f"{kind}-1"]
        assert "at step 1" in why
        assert unmoved
        assert (well, at_first) == ("", False)


def test_a_cut_model_names_what_is_to_blame(together):
    """Also where one process alone has the part that is not finite."""
    report = read(together, "blamed.0.json")
    assert report == read(together, "blamed.1.json")
    up = "decoder.blocks.0.feed_forward.branch.up"
    assert f"The weight {up}.weight is not finite." in report["weight"]
    assert f"The first module whose output is not finite is {up}." in report["output"]


@pytest.mark.parametrize("name", ["run", "run-sharded-averaged"])
def test_a_signal_to_one_stops_all_after_the_same_step(together, name):
    events = read(together, f"{name}.0.json")
    of_another = read(together, f"{name}.1.json")
    assert [each for each in events if each != "Saved"] == [each for each in of_another if each != "Saved"]
    assert events[-2:] == ["Saved", "Stopped"]
    assert load(step_folder(together / name, 5)).state["step"] == 5


def losses(run: Path) -> list[float]:
    """Of the first five steps."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["kind"] == "train"][:5]


def test_a_cut_model_in_bfloat16_learns_and_resumes_as_in_float32(together):
    """Near float32, but not the same; its weights and moments stay float32; stopped, it ends with the same bits."""
    ours, wide = losses(together / "narrow"), losses(together / "run-sharded-averaged")
    assert ours == pytest.approx(wide, rel=0.02)
    assert ours != pytest.approx(wide, rel=1e-6)
    for file in ("model.safetensors", "optimizer.safetensors"):
        kept = load_file(step_folder(together / "narrow", STEPS) / file)
        assert {each.dtype for each in kept.values()} == {torch.float32}
    assert_same_end(together / "narrow", together / "narrow-through")


def test_a_cut_model_is_saved_beside_training_and_goes_on_where_the_disk_is_full(together):
    """Of a snapshot, so that the checkpoint holds what it does where training waits; both processes tell the same."""
    events, saves = read(together, "hindered.0.json")
    assert [events, saves] == read(together, "hindered.1.json")
    assert events == ["Unsaved 4", "Saved 8", "Saved 12", "Finished 12"]
    for step in (8, STEPS):
        ours, theirs = (step_folder(together / name, step) for name in ("hindered", "run-sharded"))
        for file in ("model.safetensors", "optimizer.safetensors"):
            assert (ours / file).read_bytes() == (theirs / file).read_bytes()
    assert sorted(each.name for each in (together / "hindered" / "checkpoints").iterdir()) == saves[1:]


def test_checkpoints_of_parts_are_those_of_the_whole(together):
    """Names, shapes and numbers, also those without a dimension; the average, and beside it the last weights.

    The names stand in their order, so that a run and its resume leave the same bytes.
    """
    cut, uncut = (step_folder(together / name, 5) for name in ("run-sharded-averaged", "run-averaged"))
    for file in ("model.safetensors", "optimizer.safetensors"):
        assert_close(that_matter(load_file(cut / file)), that_matter(load_file(uncut / file)), 1e-6)
        assert (names := laid_out(cut / file)) == sorted(names)
    assert {path.name for path in cut.iterdir()} == {path.name for path in uncut.iterdir()}


@pytest.mark.parametrize("name", ["run", "run-averaged", "run-sharded-averaged"])
def test_one_process_goes_on_where_two_stopped(together, tmp_path, name):
    """In float32; the rest of the run sees the same samples, so it ends where one process ends that never stopped."""
    changes = {} if name == "run" else AVERAGED
    follow(start(recipe(training__accumulate=4, **changes), tmp_path / "whole"))
    session = resume(together / name)
    session.recipe = recipe(training__accumulate=4, **changes)
    follow(session)
    ours, theirs = load(step_folder(together / name, STEPS)), load(step_folder(tmp_path / "whole", STEPS))
    assert_close(that_matter(ours.model.state_dict()), that_matter(theirs.model.state_dict()), 1e-3)
    figures, expected = (
        [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]
        for run in (together / name, tmp_path / "whole")
    )
    assert figures == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("shard", [False, True])
def test_one_two_three_and_one_again(tmp_path, shard):
    """Three steps at a time with another number of processes each time; without dropout all cut a batch alike."""
    changes = {"model__dropout": 0.0, "distributed__shard": shard}
    follow(start(recipe(**changes), tmp_path / "whole"))
    follow(start(recipe(**changes), tmp_path / "run"), 3)
    for count in (2, 3):
        work(count, tmp_path, "three_more")
    follow(resume(tmp_path / "run"))
    ours, theirs = (load(step_folder(tmp_path / name, STEPS)).model.state_dict() for name in ("run", "whole"))
    assert_close(that_matter(ours), that_matter(theirs), 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("shard", [False, True])
def test_three_processes_resume_to_the_same_bits(tmp_path, shard):
    """A run of three that stopped and went on, beside one of three that did not: the order of every sum is the same."""
    name = "run_sharded" if shard else "run"
    for folder in ("stopped", "whole"):
        (tmp_path / folder).mkdir()
    work(3, tmp_path / "stopped", name)
    work(3, tmp_path / "stopped", "go_on")
    work(3, tmp_path / "whole", f"{name}_through")
    run = name.replace("_", "-")
    assert_same_end(tmp_path / "stopped" / run, tmp_path / "whole" / run)


def test_running_text_is_shared_out_too(together, tmp_path):
    """The windows of each step are those of one process, and so is what is learned of them."""
    follow(start(text_recipe(together / "book.txt", model__dropout=0.0), tmp_path / "whole"))
    runs = (together / "text", tmp_path / "whole")
    ours, theirs = (load(step_folder(run, STEPS)).model.state_dict() for run in runs)
    assert_close(that_matter(ours), that_matter(theirs), 1e-3)
    figures, expected = (
        [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()] for run in runs
    )
    assert len(figures) == STEPS + 3
    assert figures == pytest.approx(expected, rel=1e-4)


# --- A run that two processes saved goes on with 1, 3 and 4: the same bits, the same samples, the same end (D2)


CHANGES = {"run": {}, "run-sharded": AVERAGED}


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
    assert_close(*({k: each for k, each in of.items() if not k.endswith(".key.bias")} for of in (ours, theirs)), 1e-3)
    figures, expected = (
        [json.loads(line)["loss"] for line in (each / name / "metrics.jsonl").read_text().splitlines()]
        for each in (resumed, straight)
    )
    assert figures == pytest.approx(expected, rel=1e-4)
