"""`glassformer ablate`: what it refuses, what it trains, and what it goes on from."""

import json
import os
import shutil
from pathlib import Path

import pytest

from glassformer.base.errors import ConfigError
from glassformer.cli import ablate
from glassformer.cli.ablate import jobs, read_change, read_study, task
from glassformer.cli.arguments import read_arguments
from glassformer.cli.main import main
from glassformer.cli.verbs import VERBS
from glassformer.study.result import Result
from glassformer.train.recipe import load_recipe
from study.examples import TINY, Here, results_of

OTHER = ("--test", "data.min_length=10", "--test", "data.max-length=12")
LAYERS = ("--vary", "model.n_layers=1,2")


def words(*more: str, out: Path | str = "study") -> list[str]:
    return ["ablate", "reverse", *TINY, *more, "--out", str(out)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A study of two depths and two seeds, trained in this process; those below that train more start others."""
    out = tmp_path_factory.mktemp("study") / "study"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ablate, "Pool", Here)
        assert main(words(*LAYERS, "--seeds", "2", *OTHER, out=out)) == 0
    return out


@pytest.fixture
def study(finished, tmp_path) -> Path:
    """A copy of it."""
    return shutil.copytree(finished, tmp_path / "study")


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def comparable(results: list[Result]) -> list[tuple]:
    """All of a result but the clock's part."""
    return [(each.values, each.seed, each.test, each.other, each.curve, each.parameters, each.data) for each in results]


# --- what is refused, before anything is trained


@pytest.mark.parametrize(("given", "message"), [
    ((), "--vary SETTING=VALUE,VALUE"),
    (("--vary", "model.n_layer=1"), "Did you mean '--model.n-layers'?"),
    (("--vary", "modle.n_layers=1"), "Did you mean 'model'?"),
    (("--vary", "model.n_layers=1,,2"), "--vary model.n_layers needs a value after = and between commas"),
    (("--vary", "model.norm="), "--vary model.norm needs a value after ="),
    (("--vary", "model.n_layers"), "--vary takes SECTION.SETTING=VALUE"),
    (("--vary", "model.no_tie_embeddings=true"), "model.tie_embeddings=false"),
    (("--vary", "model.n_layers=1", "--vary", "model.n-layers=2"), "given twice"),
    (("--vary", "model.positions=rotary,rotery"), "model.positions=rotery: "),
    (("--vary", "model.n_kv_heads=1,3"), "model.n_kv_heads=3: "),
    ((*LAYERS, "--model.n-layers", "3"), "either varied or set; model.n_layers is both"),
    ((*LAYERS, "--change", "model.norm=rms"), "Give only one of the two"),
    (("--change", "model.norm"), "--change takes SECTION.SETTING=VALUE"),
    (("--change", "model.nrom=rms"), "Did you mean '--model.norm'?"),
    (("--change", "model.d_ff=wide"), "--change model.d_ff=wide: --model.d-ff takes a whole number; got 'wide'"),
    (("--change", "model.norm=rms,model.norm=none"), "model.norm is given twice"),
    (("--change", "model.no_tie_embeddings=true"), "model.tie_embeddings=false"),
    (("--change", "model.norm=rsm"), "--change model.norm=rsm: "),
    ((*LAYERS, "--test", "model.d_ff=3"), "no section 'model' here"),
    ((*LAYERS, "--test", "data.max_length=3,4"), "one value"),
    ((*LAYERS, "--test", "data.max_length=9", "--test", "data.max_length=10"), "given twice"),
    ((*LAYERS, "--test", "data.min_length=99"), "--data.max-length"),
], ids=lambda given: " ".join(given)[:40] if isinstance(given, tuple) else "")  # fmt: skip
def test_refused_before_anything_is_made(refused, given, message):
    assert message in refused(*words(*given))
    assert not Path("study").exists()


@pytest.mark.parametrize("there", ["study/notes.txt", "study/recipe.toml", "study"])
def test_what_is_no_study_is_left_alone(refused, there):
    path = Path(there)
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine", "utf-8")
    if there == "study":
        assert "study is not a folder" in refused(*words(*LAYERS, out="study/below"))
    assert "study" in refused(*words(*LAYERS))
    assert path.read_text("utf-8") == "mine"


def test_data_that_can_be_read_once_are_refused(refused, tmp_path):
    """As bash's <(...) gives them; no arm is begun."""
    for name in ("dev", "test"):
        (tmp_path / name).write_text("a\tb\n", "utf-8")
    os.mkfifo(tmp_path / "train")
    named = [word for name in ("train", "dev", "test") for word in (f"--data.{name}", str(tmp_path / name))]
    message = refused("ablate", "multi30k", "--vary", "model.n_layers=1,2", *named)
    assert f"{tmp_path / 'train'} is a pipe or a device" in message
    assert "Write its content to a file, and give that file." in message
    assert not Path("runs").exists()


FILES = {
    "none": ((), "There is no file for the train texts. Set --data.train"),
    "no dev": (("--data.train", "a.tsv"), "There is no file for the dev texts. Set --data.dev"),
    "no test": (("--data.train", "a.tsv", "--data.dev", "a.tsv"), "There is no file for the test texts"),
    "not there": (("--data.train", "b.tsv", "--data.dev", "a.tsv", "--data.test", "a.tsv"), "b.tsv: there is no such"),
    "another test": (
        ("--data.train", "a.tsv", "--data.dev", "a.tsv", "--data.test", "a.tsv", "--test", "data.test=b.tsv"),
        "b.tsv: there is no such file",
    ),
}


@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["", "dry"])
@pytest.mark.parametrize("name", FILES)
def test_missing_files_are_refused_once_for_all_arms(refused, name, dry):
    Path("a.tsv").write_text("a\tx\nb\ty\n", "utf-8")
    given, message = FILES[name]
    assert message in refused("ablate", "classify", *LAYERS, *given, *dry, "--out", "study")
    assert not Path("study").exists()


UNANSWERED = {
    "data.symbols=99": "was trained with data.symbols=18; got 99",
    "data.task=sort": "what it was trained to do, data.task='reverse'; got 'sort'",
    "data.dev_size=3": "The test split is scored, but --data.dev-size belongs to",
}


@pytest.mark.parametrize("given", UNANSWERED)
def test_other_data_that_nobody_can_answer_are_refused(refused, given):
    assert UNANSWERED[given] in refused("ablate", "reverse", *LAYERS, "--test", given, "--out", "study")
    assert not Path("study").exists()


def test_a_change_has_one_setting_or_several_with_commas():
    assert read_change("model.d-ff=64,training.learning-rate=3e-3,model.tie_embeddings=false") == {
        "model.d_ff": 64,
        "training.learning_rate": 3e-3,
        "model.tie_embeddings": False,
    }
    assert read_change("training.broken=no-scale,leaky-mask,model.norm=rms") == {
        "training.broken": "no-scale,leaky-mask",
        "model.norm": "rms",
    }


def test_values_have_the_types_of_their_settings():
    arguments = read_arguments(
        "ablate",
        VERBS["ablate"],
        [*words("--vary", "model.dropout=0,0.5", "--vary", "model.tie_embeddings=true,false", "--seeds", "1")[1:]],
    )
    values = [arm.values for arm in read_study(arguments).arms]
    assert values == [{"model.dropout": d, "model.tie_embeddings": tie} for d in (0.0, 0.5) for tie in (True, False)]
    assert {type(each["model.dropout"]) for each in values} == {float}


def test_a_study_of_changes_has_the_recipe_first():
    given = words("--change", "model.norm=rms", "--classic", "--training.steps", "3", "--seeds", "1")
    first, second = read_study(read_arguments("ablate", VERBS["ablate"], given[1:])).arms
    assert (first.values, second.values) == ({"change": "none"}, {"change": "model.norm=rms"})
    assert (first.recipe.optimizer.name, first.recipe.training.learning_rate) == ("adamw", 1e-3)
    assert first.recipe.training.steps == 3
    assert (first.recipe.model.norm, second.recipe.model.norm) == ("layer", "rms")


# --- threads and jobs


@pytest.mark.parametrize(("processors", "threads", "expected"), [(8, 1, 8), (8, 3, 2), (2, 4, 1), (1, 1, 1)])
def test_jobs_times_threads_fit_the_processors(monkeypatch, processors, threads, expected):
    monkeypatch.setattr(ablate, "free_processors", lambda: processors)
    assert jobs(None, threads) == expected


def test_more_jobs_than_fit_are_refused(monkeypatch):
    monkeypatch.setattr(ablate, "free_processors", lambda: 4)
    assert (jobs("4", 1), jobs("2", 2), jobs("1", 9)) == (4, 2, 1)
    with pytest.raises(ConfigError, match=r"needs 6 processors; 4 are free. Use --jobs 2"):
        jobs("3", 2)


def test_threads_of_scoring_count_for_jobs(monkeypatch):
    monkeypatch.setattr(ablate, "free_processors", lambda: 8)
    arguments = read_arguments("ablate", VERBS["ablate"], words(*LAYERS, "--decode.threads", "4")[1:])
    assert read_study(arguments).jobs == 2


def test_an_arm_has_its_threads_and_no_more(finished, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "16")
    requested = read_study(read_arguments("ablate", VERBS["ablate"], words(*LAYERS, "--seeds", "1")[1:]))
    assert {task(requested, arm).environment["OMP_NUM_THREADS"] for arm in requested.arms} == {"1"}
    logs = [path.read_text() for path in finished.glob("runs/*/log.txt")]
    assert len(logs) == 4
    assert all("1 thread, as the settings say" in log for log in logs)


# --- what is trained


def test_arms_are_ordinary_runs(finished, run):
    for path in finished.glob("runs/*"):
        assert load_recipe(path / "recipe.toml").name == "reverse"
        assert (path / "metrics.jsonl").is_file()
    report = json.loads(run("evaluate", str(next(finished.glob("runs/*seed=1"))), "--json").out)
    assert report["n"] == 6


def test_results(finished):
    results = results_of(finished / "results.jsonl")
    assert [(each.values, each.seed) for each in results] == [
        ({"model.n_layers": n}, seed) for n in (1, 2) for seed in (1, 2)
    ]
    assert [step for step, _ in results[0].curve] == [2, 4, 6, 8]
    assert {each.steps for each in results} == {8}
    assert results[0].parameters < results[2].parameters
    assert {*results[0].test["by_length"]} <= {"8", "9"}
    assert {*results[0].other["by_length"]} <= {"10", "11", "12"}
    assert results[0].other_data == {"data.min_length": 10, "data.max_length": 12}


def test_arms_of_a_seed_saw_the_same_data(finished):
    data = {(each.seed, each.values["model.n_layers"]): each.data for each in results_of(finished / "results.jsonl")}
    assert data[1, 1] == data[1, 2] != data[2, 1] == data[2, 2]


# --- what it goes on from


def test_finished_arms_are_not_trained_again(study, run, monkeypatch):
    before = files(study / "runs")
    monkeypatch.setattr(ablate, "task", lambda *_: pytest.fail("an arm was started"))
    answer = run(*words(*LAYERS, "--seeds", "2", *OTHER, out=study))
    assert answer.code == 0
    assert files(study / "runs") == before
    assert answer.out == (study / "table.md").read_text("utf-8")
    assert "4 are finished already" in answer.err


@pytest.mark.slow
def test_interrupted_arm_is_resumed_to_the_same_end(study, finished, run):
    """As a kill between two checkpoints leaves it."""
    name = "model.n_layers=2,seed=1"
    shutil.rmtree(study / "runs" / name / "checkpoints" / "step-000000008")
    (study / "scores" / f"{name}.json").unlink()
    assert run(*words(*LAYERS, "--seeds", "2", *OTHER, out=study)).code == 0
    assert comparable(results_of(study / "results.jsonl")) == comparable(results_of(finished / "results.jsonl"))
    assert "resumed from" in (study / "runs" / name / "log.txt").read_text()
    others = [path for path in (study / "runs").glob("*/log.txt") if path.parent.name != name]
    assert len(others) == 3
    assert not any("resumed from" in path.read_text() for path in others)


def test_new_values_are_added(study, run):
    before = files(study / "runs")
    assert run(*words("--vary", "model.n_layers=2,3", "--seeds", "1", *OTHER, out=study)).code == 0
    after = files(study / "runs")
    assert {name: after[name] for name in before} == before
    assert [(each.values, each.seed) for each in results_of(study / "results.jsonl")] == [
        ({"model.n_layers": 2}, 1),
        ({"model.n_layers": 3}, 1),
    ]


def test_other_test_data_are_scored_without_training(study, run, monkeypatch):
    monkeypatch.setattr(ablate, "Pool", Here)
    before = {name: text for name, text in files(study / "runs").items() if name.endswith(("metrics.jsonl", "tensors"))}
    assert run(*words(*LAYERS, "--seeds", "1", "--test", "data.test_size=3", out=study)).code == 0
    assert [each.other["n"] for each in results_of(study / "results.jsonl")] == [3, 3]
    after = files(study / "runs")
    assert {name: after[name] for name in before} == before


def test_arm_of_other_settings_is_refused_with_the_difference(study, refused):
    before = files(study)
    message = refused(*words(*LAYERS, "--training.steps", "9", "--seeds", "2", out=study))
    assert "training.steps is 8 there and 9 here" in message
    assert "--out" in message
    assert files(study) == before


def test_dry_run_lists_and_trains_nothing(study, run):
    (study / "scores" / "model.n_layers=1,seed=2.json").unlink()
    before = files(study)
    answer = run(*words("--vary", "model.n_layers=1,5", "--seeds", "2", "--dry-run", *OTHER, out=study))
    assert answer.code == 0
    assert [line.split()[0] for line in answer.out.splitlines()] == ["finished", "begun", "new", "new"]
    assert files(study) == before


# --- what fails


def test_failing_arm_is_told_and_stops_nobody(run, monkeypatch):
    monkeypatch.setattr(ablate, "Pool", Here)
    answer = run(*words("--vary", "model.max_len=4,40", "--seeds", "1"))
    assert answer.code == 1
    assert "Traceback" not in answer.err
    assert "failed: model.max_len=4, seed 1: exit code 2: The source of pair 1 of the train split has" in answer.err
    assert [each.values for each in results_of(Path("study/results.jsonl"))] == [{"model.max_len": 40}]
    assert "| 4 " in answer.out
    assert run(*words("--vary", "model.max_len=4,40", "--seeds", "1")).code == 1
