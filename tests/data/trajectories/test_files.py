"""Tables of episodes: what stands in them is read to the last bit, and each fault is named by file and line."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from data.trajectories.episodes import csv_of, made, same
from glassformer.base.errors import DataError
from glassformer.data.trajectories.episodes import npz_bytes, read_csv, read_episodes, read_npz

NAMES: str = "episode,t,obs0,obs1,action,reward,done"
GOOD = [NAMES, "0,0,0.5,-1,1,1.0,0", "0,1,0.25,2,0,1.0,1", "1,0,0.1,2,2,0.5,0"]


def written(folder: Path, text: str | bytes, name: str = "episodes.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def table(folder: Path, *lines: str) -> Path:
    return written(folder, "".join(f"{line}\n" for line in lines))


def changed(line: int, column: str, cell: str) -> list[str]:
    """The good table, with one cell changed; `line` counted from 1."""
    lines = [each.split(",") for each in GOOD]
    lines[line - 1][NAMES.split(",").index(column)] = cell
    return [",".join(each) for each in lines]


def test_a_table_by_example(tmp_path):
    found, unread = read_csv(table(tmp_path, *GOOD))
    assert found.observations.tolist() == [[0.5, -1.0], [0.25, 2.0], [pytest.approx(0.1), 2.0]]
    assert (found.observations.dtype, found.actions.dtype, found.rewards.dtype) == (np.float32, np.int64, np.float64)
    assert found.actions.tolist() == [1, 0, 2]
    assert found.rewards.tolist() == [1.0, 1.0, 0.5]
    assert found.edges.tolist() == [0, 2, 3]
    assert unread == ()


@pytest.mark.parametrize("discrete", [True, False])
def test_both_kinds_of_files_hold_the_same(tmp_path, discrete):
    episodes = made([3, 1, 7], discrete=discrete)
    tables = read_episodes(written(tmp_path, csv_of(episodes)))
    arrays = read_episodes(written(tmp_path, npz_bytes(episodes), "episodes.NPZ"))
    assert same(tables.episodes, episodes)
    assert same(arrays.episodes, episodes)
    assert tables.unread == arrays.unread == ()
    assert same(read_npz(written(tmp_path, npz_bytes(tables.episodes), "again.npz")).episodes, episodes)


@pytest.mark.parametrize("form", ["BOM", "CRLF", "gz", "spaces", "no end of line", "no t and no done", "other order",
                                  "truth values"])  # fmt: skip
def test_a_table_may_be_written_in_other_ways(tmp_path, form):
    plain = "".join(f"{line}\n" for line in GOOD)
    without = "\n".join(",".join(line.split(",")[i] for i in (0, 2, 3, 4, 5)) for line in GOOD)
    turned = "\n".join(",".join(line.split(",")[i] for i in (3, 6, 5, 2, 4, 1, 0)) for line in GOOD)
    text = {
        "BOM": b"\xef\xbb\xbf" + plain.encode(),
        "CRLF": plain.replace("\n", "\r\n"),
        "gz": gzip.compress(plain.encode()),
        "spaces": plain.replace(",", " ,\t"),
        "no end of line": plain.removesuffix("\n"),
        "no t and no done": without,
        "other order": turned,
        "truth values": "\n".join(line[:-1] + {"0": "False", "1": " true"}.get(line[-1], line[-1]) for line in GOOD),
    }[form]
    name = "episodes.csv.gz" if form == "gz" else "episodes.csv"
    assert same(read_csv(written(tmp_path, text, name)).episodes, read_csv(table(tmp_path, *GOOD)).episodes)


def test_columns_of_a_vector_are_in_the_order_of_their_numbers(tmp_path):
    """So that a training file and another one of the same environment agree, however their columns stand."""
    numbers = [10, 2, 0, 1, 9, 8, 7, 6, 5, 4, 3]
    names = ",".join(["episode", *(f"obs{n}" for n in numbers), "action1", "reward", "action0"])
    cells = ",".join(["0", *(f"{n}.5" for n in numbers), "11", "1", "10"])
    found = read_csv(table(tmp_path, names, cells)).episodes
    assert found.observations.tolist() == [[n + 0.5 for n in range(11)]]
    assert found.actions.tolist() == [[10.0, 11.0]]


@pytest.mark.parametrize(("names", "cells", "actions"), [
    ("action", ["1", "0", "2"], [1, 0, 2]),
    ("action", ["1", "0", "2.0"], [[1.0], [0.0], [2.0]]),
    ("action", ["1", "0", "2e0"], [[1.0], [0.0], [2.0]]),
    ("action", ["5", "0", "5"], [5, 0, 5]),  # numbers in between may never occur
    ("action0", ["1", "0", "2"], [[1.0], [0.0], [2.0]]),
    ("action", ["-0.5", "+.5", "1."], [[-0.5], [0.5], [1.0]]),
])  # fmt: skip
def test_whole_numbers_in_one_column_are_numbers_of_actions(tmp_path, names, cells, actions):
    lines = [f"episode,obs,{names},reward", *(f"0,1.5,{cell},1" for cell in cells)]
    found = read_csv(table(tmp_path, *lines)).episodes
    assert found.actions.tolist() == actions
    assert found.discrete == isinstance(actions[0], int)


def test_columns_that_are_not_read_are_told(tmp_path):
    lines = [f"{line},{extra}" for line, extra in zip(GOOD, ["info,next_obs0,Obs2", *["x y,nan,"] * 3], strict=True)]
    found, unread = read_csv(table(tmp_path, *lines))
    assert unread == ("info", "next_obs0", "Obs2")
    assert same(found, read_csv(table(tmp_path, *GOOD)).episodes)


@pytest.mark.parametrize("cell", ["nan", "inf", "-inf", "1e39", "-3.5e38", "", " ", "x", "1_000", "１", "1 2", '"1"',
                                  "0x1", "1e", "--1", "True", "\u00a01", "1;5", "٣"])  # fmt: skip
@pytest.mark.parametrize(("line", "column"), [(2, "obs1"), (4, "action"), (3, "reward"), (2, "t"), (3, "episode")])
def test_a_cell_that_is_no_number_is_named(tmp_path, cell, line, column):
    path = table(tmp_path, *changed(line, column, cell))
    with pytest.raises(DataError) as caught:
        read_csv(path)
    assert str(caught.value).startswith(f"{path}:{line}: {column} must be a finite number of 32 bits; got {cell!r}. ")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "the file is empty"),
        ([NAMES], "a line of names, but no steps"),
        ([GOOD[0], "0,0,1"], r":2: a line must have 7 values, .* has 3: '0,0,1'"),
        ([*GOOD, ""], r":5: a line must have 7 values, .* has 1: ''"),
        ([*GOOD[:2], GOOD[2] + ",1"], r":3: a line must have 7 values, .* has 8"),
        (GOOD[1:], r":1: the first line must name the columns, .* without episode"),
        ([NAMES.replace("action", "act"), *GOOD[1:]], r":1: .* without action\. Name the columns so"),
        ([NAMES.replace("obs", "o"), *GOOD[1:]], r":1: .* without obs\."),
        ([NAMES.replace("reward", "Reward"), *GOOD[1:]], r":1: .* without reward\."),
        (['"' + NAMES.replace(",", '","') + '"', *GOOD[1:]], r":1: .* without episode\. .* without quotes"),
        ([NAMES.replace("obs1", "obs0"), *GOOD[1:]], r":1: each column needs a name of its own, but 'obs0'"),
        ([NAMES.replace("obs1", " t "), *GOOD[1:]], r":1: each column needs a name of its own, but 't'"),
        ([NAMES.replace("obs0", "obs"), *GOOD[1:]], r":1: what belongs to obs must be .* a gap; got obs, obs1\."),
        ([NAMES.replace("obs1", "obs"), *GOOD[1:]], r":1: what belongs to obs must be .* a gap; got obs0, obs\."),
        ([NAMES.replace("obs1", "obs2"), *GOOD[1:]], r":1: what belongs to obs must be .* a gap; got obs0, obs2\."),
        ([NAMES.replace("obs1", "obs00"), *GOOD[1:]], r":1: what belongs to obs .* got obs0, obs00\."),
        ([NAMES.replace("action", "action1"), *GOOD[1:]], r":1: what belongs to action .* got action1\."),
        (changed(4, "action", "-1"), r":4: actions of a whole number are counted from 0, .* got -1\. .* write 3\.0"),
        (changed(2, "action", "10000"), r":2: actions .* at most 9,999; got 10000\."),
        (changed(3, "t", "2"), r":3: t must count .* from 0, so here it must be 1; got 2\."),
        (changed(2, "t", "1"), r":2: t must count .* here it must be 0; got 1\."),
        (changed(4, "t", "2"), r":4: t must count .* here it must be 0; got 2\."),
        (changed(3, "t", "0.5"), r":3: t must count .* got 0\.5\."),
        (changed(2, "done", "1"), r":2: done is 1 here, but the same episode goes on"),
        (changed(4, "done", "2"), r":4: done must be 0 or 1; got 2\."),
        (changed(4, "done", "0.5"), r":4: done must be 0 or 1; got 0\.5\."),
        ([*GOOD, GOOD[1]], r":5: the steps of an episode must follow each other, but episode 0 was there before"),
        (changed(4, "episode", "9007199254740993"), r":4: the number of an episode must be below 2\^53"),
        (changed(4, "obs0", "1\0"), r":4: byte \d+ of the line is NUL"),
    ],
)  # fmt: skip
def test_a_fault_of_a_table_is_named_by_file_and_line(tmp_path, lines, message):
    path = table(tmp_path, *lines)
    with pytest.raises(DataError, match=message) as caught:
        read_episodes(path)
    assert str(caught.value).startswith(f"{path}:")


def test_a_first_line_of_very_many_names_is_refused_at_once(tmp_path):
    """Looking for a name that is there twice must not take the square of their number."""
    with pytest.raises(DataError, match="without episode"):
        read_csv(table(tmp_path, ",".join(map(str, range(300_000)))))


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    packed = gzip.compress("".join(f"{line}\n" for line in GOOD).encode())
    cases = {
        "no such file": tmp_path / "none.csv",
        "cannot be read": tmp_path,
        "gzip file is damaged": written(tmp_path, packed[:-12], "cut.csv.gz"),
        "not valid UTF-8": written(tmp_path, b"\xff" + NAMES.encode()),
    }
    for message, path in cases.items():
        with pytest.raises(DataError, match=message) as caught:
            read_episodes(path)
        assert str(caught.value).startswith(f"{path}:")


@pytest.mark.parametrize(("name", "n", "mean", "kind"), [
    ("cartpole-v1_large", 21, None, "2 actions"),
    ("pendulum_sac_expert_50eps", 50, -174.7, "1 numbers"),
    ("pendulum_sac_medium_50eps", 50, -524.3, "1 numbers"),
])  # fmt: skip
def test_recorded_episodes_are_read(shared, name, n, mean, kind):
    found, unread = read_episodes(shared(f"rl/{name}.csv.gz"))
    assert (len(found), unread) == (n, ())
    actions = f"{int(found.actions.max()) + 1} actions" if found.discrete else f"{found.actions.shape[1]} numbers"
    assert actions == kind
    if mean is None:
        assert (found.rewards == 1).all()
    else:
        assert found.returns.mean() == pytest.approx(mean, abs=0.05)


@pytest.mark.parametrize("name", ["episodes.csv", "episodes.jsonl", "episodes.json"])
def test_json_is_refused_with_the_way_to_a_table(tmp_path, name):
    path = written(tmp_path, '{"episode": 0, "t": 0, "obs": 1, "action": 1, "reward": 1}\n', name)
    with pytest.raises(DataError, match=r"seems to be JSON.*to_csv"):
        read_episodes(path)
