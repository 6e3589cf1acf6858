"""Arrays of episodes in an .npz file: what is read of them, and each fault named by file and array."""

import io
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.trajectories.episodes import made
from glassformer.base.errors import DataError
from glassformer.data.trajectories.episodes import ENDS, npz_bytes, read_episodes, read_npz

GOOD = {
    "observations": np.array([[0.5, -1.0], [0.25, 2.0], [0.1, 2.0], [7.0, 8.0]]),
    "actions": np.array([1, 0, 2, 1]),
    "rewards": np.array([1.0, 1.0, 0.5, 0.25]),
    "episode": np.array([4, 4, 2, 9]),
}


def arrays(folder: Path, *, without: tuple[str, ...] = (), **changes: Any) -> Path:
    """The good arrays, changed, in a file."""
    path = folder / "episodes.npz"
    kept: dict[str, Any] = {name: each for name, each in {**GOOD, **changes}.items() if name not in without}
    np.savez(path, **kept)
    return path


def test_arrays_by_example(tmp_path):
    found, unread = read_npz(arrays(tmp_path))
    assert np.array_equal(found.observations, GOOD["observations"].astype(np.float32))
    assert (found.observations.dtype, found.actions.dtype, found.rewards.dtype) == (np.float32, np.int64, np.float64)
    assert found.actions.tolist() == [1, 0, 2, 1]
    assert found.rewards.tolist() == [1.0, 1.0, 0.5, 0.25]
    assert (found.edges.tolist(), unread) == ([0, 2, 3, 4], ())


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("kind", [bool, np.uint8, np.float32])
def test_an_episode_ends_where_an_array_says_so(tmp_path, name, kind):
    ends: dict[str, Any] = {name: np.array([0, 1, 0, 0]).astype(kind)}
    assert read_npz(arrays(tmp_path, without=("episode",), **ends)).episodes.edges.tolist() == [0, 2, 4]


def test_an_episode_ends_where_any_array_says_so(tmp_path):
    given: dict[str, Any] = {"terminals": np.array([1, 0, 0, 0]), "timeouts": np.array([False, False, True, True])}
    found, unread = read_npz(arrays(tmp_path, without=("episode",), **given))
    assert (found.edges.tolist(), unread) == ([0, 1, 3, 4], ())
    found, unread = read_npz(arrays(tmp_path, **given))
    assert (found.edges.tolist(), unread) == ([0, 2, 3, 4], ("terminals", "timeouts"))


@pytest.mark.parametrize("kind", [np.float16, np.float64, np.longdouble, np.int8, np.uint64, bool])
def test_numbers_of_every_type_are_read(tmp_path, kind):
    values = np.array([[1, 0], [0, 1], [1, 1], [0, 0]])
    found = read_npz(arrays(tmp_path, observations=values.astype(kind), rewards=values[:, 0].astype(kind))).episodes
    assert found.observations.tolist() == values.tolist()
    assert found.rewards.tolist() == values[:, 0].tolist()
    assert (found.observations.dtype, found.rewards.dtype) == (np.float32, np.float64)


@pytest.mark.parametrize(("actions", "expected"), [
    (np.array([3, 1, 0, 1], np.uint8), [3, 1, 0, 1]),
    (np.array([[3], [1], [0], [1]]), [3, 1, 0, 1]),
    (np.array([3.0, 1.0, 0.0, 1.0]), [[3.0], [1.0], [0.0], [1.0]]),
    (np.array([True, False, False, True]), [[1.0], [0.0], [0.0], [1.0]]),
    (np.array([[1, 2], [3, 4], [-5, 6], [7, 8]]), [[1.0, 2.0], [3.0, 4.0], [-5.0, 6.0], [7.0, 8.0]]),
])  # fmt: skip
def test_one_whole_number_a_step_is_the_number_of_an_action(tmp_path, actions, expected):
    found = read_npz(arrays(tmp_path, actions=actions)).episodes
    assert found.actions.tolist() == expected
    assert found.discrete == isinstance(expected[0], int)
    assert found.actions.dtype == (np.int64 if found.discrete else np.float32)


def test_what_is_not_needed_is_told_and_not_read(tmp_path):
    """Not even opened: a data set may hold more than fits into memory, and objects that only a pickle can hold."""
    objects = np.empty(4, object)
    assert read_npz(arrays(tmp_path, infos=objects, next_observations=np.zeros(0))).unread == (
        "infos",
        "next_observations",
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"without": ("observations",)}, r"there is no array 'observations'\. Known: 'actions', 'episode', 'rewards'"),
        ({"without": ("actions",), "action": 1}, r"there is no array 'actions'\. .* Did you mean 'action'"),
        ({"without": ("rewards",)}, "there is no array 'rewards'"),
        ({"without": ("episode",)}, "nothing says where episodes end"),
        ({"observations": np.zeros(4)}, r"observations must .* \[4, \.\.\.\], .* got float64 of \[4\]"),
        ({"observations": np.zeros((4, 2, 2))}, r"observations must .* got float64 of \[4, 2, 2\]"),
        ({"observations": np.zeros((3, 2))}, r"observations must .* got float64 of \[3, 2\]"),
        ({"observations": np.zeros((4, 0))}, r"observations must .* got float64 of \[4, 0\]"),
        ({"observations": np.zeros((4, 2), complex)}, r"observations must .* got complex128 of \[4, 2\]"),
        ({"rewards": np.zeros((4, 1))}, r"rewards must .* \[N\], .* got float64 of \[4, 1\]"),
        ({"rewards": np.array(1.0)}, r"rewards must .* got float64 of \[\]"),
        ({"rewards": np.zeros(0)}, r"rewards must .* got float64 of \[0\]"),
        ({"rewards": np.array(["1"] * 4)}, r"rewards must .* got <U1 of \[4\]"),
        ({"rewards": np.zeros(4, "M8[s]")}, r"rewards must .* got datetime64\[s\] of \[4\]"),
        ({"rewards": np.zeros(4, [("a", float)])}, r"rewards must .* got \[\('a', '<f8'\)\] of \[4\]"),
        ({"actions": np.array(1)}, r"actions must .* got int64 of \[\]"),
        ({"actions": np.array([1, 2])}, r"actions must .* got int64 of \[2, 1\]"),
        ({"actions": np.zeros((4, 1, 1))}, r"actions must .* got float64 of \[4, 1, 1\]"),
        ({"episode": np.zeros((4, 1))}, r"episode must .* got float64 of \[4, 1\]"),
        ({"without": ("episode",), "dones": np.zeros(3)}, r"dones must .* got float64 of \[3\]"),
        ({"observations": np.array([[1.0, 2.0]] * 3 + [[3.0, np.nan]])}, r"observations .* step 3 .* has nan"),
        ({"rewards": np.array([1.0, np.inf, 0.0, 0.0])}, r"rewards must be finite .* step 1 .* has inf"),
        ({"rewards": np.array([1.0, 0.0, -1e39, 0.0])}, r"rewards must be finite .* step 2 .* has -1e\+39"),
        ({"actions": np.array([1.0, 0.0, np.nan, 0.0])}, r"actions must be finite .* step 2"),
        ({"without": ("episode",), "dones": np.array([0, 1, np.nan, 0])}, r"dones must be finite .* step 2"),
        ({"actions": np.array([1, -1, 0, 0])}, r"actions: step 1: actions of a whole number .* got -1\..*as floats"),
        ({"actions": np.array([1, 1, 0, 10_000])}, r"actions: step 3: .* at most 9,999; got 10000\."),
        ({"actions": np.array([1, 1, 0, 2**64 - 1], np.uint64)}, r"actions: step 3: .* at most 9,999"),
        ({"episode": np.array([1, 2, 1, 1])}, r"step 2: the steps of an episode .* episode 1 was there before"),
        ({"episode": np.array([True, False, True, True])}, r"step 2: the steps of an episode .* episode 1 was"),
        ({"episode": np.array([1, 2, 2**53 + 1, 2**53])}, r"step 2: the number of an episode must be below 2\^53"),
        ({"actions": np.array([None] * 4)}, r"the array 'actions' holds Python objects"),
    ],
)  # fmt: skip
def test_a_fault_of_an_array_is_named(tmp_path, changes, message):
    path = arrays(tmp_path, **changes)
    with pytest.raises(DataError, match=message) as caught:
        read_episodes(path)
    assert str(caught.value).startswith(f"{path}: ")


def archive(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name, content in members.items():
            made.writestr(name, content)
    return file.getvalue()


def header(shape: str) -> bytes:
    """The beginning of an array, which says that it has this shape."""
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def alone() -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    return file.getvalue()


@pytest.mark.parametrize(("content", "message"), [
    (b"", "no .npz file"),
    (b"episode,t\n", "no .npz file"),
    (b"PK\x03\x04 and no more", "no .npz file"),
    (b"\x80\x04K\x01.", "no .npz file"),  # a pickle
    (alone(), "no .npz file"),  # one array
    (archive(), r"there is no array 'observations'\. Known: \."),
    (archive(rewards=b"no array"), "no .npz file"),
    (archive(**{"rewards.npy": b"\x93NUMPY\x01\x00\x05\x00{'a':"}), "no .npz file"),
    (archive(**{"rewards.npy": header("(3,)") + b"\0" * 7}), "no .npz file"),
    (archive(**{"rewards.npy": header("(-1,)")}), "no .npz file"),
    (archive(**{"rewards.npy": header("(1 << 62,)")}), "no .npz file"),
    (archive(**{"rewards.npy": header(f"({2**60},)")}), "no .npz file|more memory than there is"),
    (archive(**{"rewards.npy": header(f"({2**45},)")}), "no .npz file|more memory than there is"),
])  # fmt: skip
def test_what_is_no_file_of_arrays_is_refused(tmp_path, content, message):
    path = tmp_path / "episodes.npz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_npz(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_file_of_arrays_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "folder.npz").mkdir()
    for message, path in {"no such file": tmp_path / "none.npz", "cannot be read": tmp_path / "folder.npz"}.items():
        with pytest.raises(DataError, match=message) as caught:
            read_npz(path)
        assert str(caught.value).startswith(f"{path}: ")


def test_no_damage_ends_in_an_error_of_python(tmp_path):
    """One byte is changed, anywhere in the file, or the end is cut off: it is refused, or read as something else."""
    whole, draw = npz_bytes(made([3, 4])), np.random.default_rng(0)
    path = tmp_path / "episodes.npz"
    refused: list[str] = []
    for number in range(600):
        damaged = bytearray(whole)
        if number % 4:
            damaged[draw.integers(len(whole))] ^= 1 << int(draw.integers(8))
        else:
            del damaged[draw.integers(len(whole)) :]
        path.write_bytes(damaged)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of zipfile, about names that are there twice
            try:
                read_npz(path)
            except DataError as error:
                refused.append(str(error))
    assert len(refused) > 300
    assert all(each.startswith(f"{path}: ") for each in refused)
