"""`glassformer rollout`: what it prints and writes, and what it says to mistakes."""

import json

import numpy as np
import pytest

from cli.conftest import TINY
from glassformer.cli.main import main
from glassformer.data.trajectories.episodes import read_episodes

FEW = ("--data.train-size", "30", "--data.dev-size", "5")
BRIEF = (*TINY, "--training.steps", "2", "--training.batch-tokens", "60", "--data.window", "5")
VECTORS = "episode,obs0,obs1,obs2,action,reward\n" + "".join(
    f"{n // 5},{n / 7},{n % 3},-{n},{n / 9 - 1},{-n}\n" for n in range(20)
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("rollout")
    assert main(["train", "decision", "--out", str(place / "rooms"), *FEW, *BRIEF]) == 0
    (place / "vectors.csv").write_text(VECTORS)
    vectors = ["train", "decision", "--out", str(place / "vectors"), "--data.train", str(place / "vectors.csv")]
    assert main([*vectors, *BRIEF]) == 0
    return place


def rollout(folder, capsys, *words: str, run: str = "rooms"):
    capsys.readouterr()
    return main(["rollout", str(folder / run), *words]), capsys.readouterr()


def test_a_row_for_each_return_and_the_training_episodes_below(folder, capsys):
    code, answer = rollout(folder, capsys, "--return", "-5", "--return=-40", "--episodes", "3")
    head, *rows, note, training = answer.out.splitlines()
    assert code == 0
    assert head.split() == ["asked", "for", "got,", "mean", "lowest", "highest", "steps", "ended"]
    assert [row.split()[0] for row in rows] == ["-5.00", "-40.00"]
    assert "rooms, 3 episodes for each return; the best possible mean is -" in note
    assert training.startswith("training episodes: returns from -60.00 to -")


def test_it_acts_with_the_threads_of_decoding(folder, capsys, monkeypatch):
    asked_for = []
    monkeypatch.setattr("glassformer.base.runtime.choose_threads", asked_for.append)
    assert rollout(folder, capsys, "--return", "-5", "--episodes", "1")[0] == 0
    assert asked_for == [0]


def test_without_a_return_it_asks_for_those_of_the_training_episodes(folder, capsys):
    code, answer = rollout(folder, capsys, "--episodes", "1", "--json")
    found = json.loads(answer.out)
    assert code == 0
    assert [row["asked"] for row in found["rows"]] == found["training"]
    assert found["environment"] == "rooms"
    assert {row["n"] for row in found["rows"]} == {1}


def test_returns_of_a_discounted_run_are_discounted(tmp_path, capsys):
    assert main(["train", "decision", "--out", str(tmp_path / "run"), *FEW, *BRIEF, "--data.discount", "0.5"]) == 0
    code, answer = rollout(tmp_path, capsys, "--episodes", "4", "--steps", "9", run="run")
    *rows, note, training, output = answer.out.splitlines()[1:]
    assert code == 0
    assert min(float(row.split()[0]) for row in rows) == -2.0  # 60 steps: 1 + 1/2 + 1/4 + ...
    assert all(-2.0 <= float(row.split()[2]) < 0.0 for row in rows)
    assert "best possible" not in note  # that is not discounted
    assert training.startswith("training episodes: returns from -2.00 to -1.")
    assert output == "All returns are discounted by 0.5 a step, as in training (data.discount)."


def test_the_same_seed_gives_the_same_and_seeds_count_up(folder, capsys):
    words = ("--return", "-9", "--temperature", "1", "--json")
    both = [rollout(folder, capsys, *words, "--episodes", "2", "--seed", seed)[1].out for seed in ("3", "3")]
    assert both[0] == both[1]
    alone = [json.loads(rollout(folder, capsys, *words, "--episodes", "1", "--seed", s)[1].out) for s in ("3", "4")]
    got = [each["rows"][0]["got"] for each in alone]
    assert json.loads(both[0])["rows"][0]["got"] == sum(got) / 2


def test_saved_episodes_are_learned_from_again(folder, capsys, tmp_path):
    out = tmp_path / "episodes.npz"
    code, answer = rollout(folder, capsys, "--return", "-9", "--episodes", "8", "--save", str(out), "--json")
    read = read_episodes(out).episodes
    row = json.loads(answer.out)["rows"][0]
    assert code == 0
    assert f"Episodes: {out}" in answer.err
    assert (len(read), float(read.returns.mean()), float(read.lengths.mean())) == (8, row["got"], row["steps"])
    again = ["train", "decision", "--out", str(tmp_path / "again"), "--data.train", str(out)]
    assert main([*again, *BRIEF]) == 0


def test_steps_bound_an_episode(folder, capsys):
    _, answer = rollout(folder, capsys, "--return", "-9", "--episodes", "4", "--steps", "2", "--json")
    assert json.loads(answer.out)["rows"][0]["steps"] <= 2


def test_vectors_act_in_gymnasium(folder, capsys):
    pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    words = ("--env", "Pendulum-v1", "--return", "-100", "--episodes", "2", "--steps", "3", "--json")
    for more in ((), ("--unit-actions",)):
        code, answer = rollout(folder, capsys, *words, *more, run="vectors")
        assert code == 0
        assert json.loads(answer.out)["rows"][0]["steps"] == 3
    assert np.isfinite(json.loads(answer.out)["rows"][0]["got"])


MISTAKES = [
    ("rooms", ["--return", "much"], "--return takes a number; got 'much'"),
    ("rooms", ["--return", "nan"], "--return takes a number; got 'nan'"),
    ("rooms", ["--return", "1e999"], "--return takes a number"),
    ("rooms", ["--episodes", "0"], "--episodes takes a whole number from 1 to 100000; got '0'"),
    ("rooms", ["--steps", "-1"], "--steps takes a whole number"),
    ("rooms", ["--seed", "-1"], "--seed takes a whole number from 0"),
    ("rooms", ["--temperature", "-1"], "--temperature must be at least 0; got -1"),
    ("rooms", ["--env", ""], "A rollout needs an environment"),
    ("rooms", ["--unit-actions"], "--unit-actions maps -1 and 1 to the bounds"),
    ("rooms", ["--save", "episodes.csv"], "--save takes the name of a file that ends in .npz"),
    ("rooms", ["--save", "no/such/folder.npz"], "in a folder that exists"),
    ("vectors", [], "A rollout needs an environment, and the recipe names none"),
    ("vectors", ["--env", "rooms"], "The environment 'rooms' has observations of 38 numbers and 4 numbered actions"),
    ("nowhere", [], "is not a run folder"),
]


@pytest.mark.parametrize(("run", "words", "message"), MISTAKES)
def test_mistakes_get_one_message(folder, capsys, run, words, message):
    code, answer = rollout(folder, capsys, *words, run=run)
    assert code == 2
    assert message in answer.err
    assert "Traceback" not in answer.err
    assert not answer.out


def test_drawing_vectors_is_refused(folder, capsys):
    pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    code, answer = rollout(folder, capsys, "--env", "Pendulum-v1", "--temperature", "1", run="vectors")
    assert (code, "the actions of this run are vectors" in answer.err) == (2, True)


def test_a_run_that_does_not_act_is_refused(capsys, tmp_path):
    tiny = ("--training.steps", "1", "--data.train-size", "10", "--data.dev-size", "2", "--model.d-model", "8")
    assert main(["train", "copy", "--out", str(tmp_path / "copy"), *tiny, "--model.n-heads", "2"]) == 0
    code, answer = rollout(tmp_path, capsys, run="copy")
    assert (code, "writes answers and plays no episodes. Use glassformer translate" in answer.err) == (2, True)
