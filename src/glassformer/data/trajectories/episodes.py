"""Read episodes from a file: CSV, plain or gzip, or NPZ. Nothing is silently dropped, cut or repaired.

CSV (.csv, .csv.gz)   episode,t,obs0,obs1,action,reward,done     one line a step; `t` and `done` may be missing
NPZ (.npz)            observations [N, S], actions [N] or [N, A], rewards [N], and what ends an episode: terminals,
                      timeouts, dones, terminated, truncated (any of them true at its last step), or episode [N]

Whole numbers in one column `action` (in NPZ: one number a step, of an integer type) are the numbers of actions; all
else are vectors. The columns of a vector may stand in any order: their numbers say which is which.
"""

from __future__ import annotations

import io
import json
import math
import re
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from hashlib import blake2b, sha256
from itertools import pairwise
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from glassformer.base.errors import DataError
from glassformer.base.registry import suggestion
from glassformer.data.json_lines import in_json, looks_like_json
from glassformer.data.lines import lines_of, no_such_file, opened
from glassformer.data.tokens.vocabulary import SPECIALS, THE_FILE, Labels, read_json

Floats = NDArray[np.float32]
Actions = NDArray[Any]
"""Whole numbers of 64 bits, or floats of 32 bits."""


@dataclass(frozen=True)
class Episodes:
    """E episodes one after the other, N steps in all. At each step the agent observes, acts and gets a reward."""

    observations: Floats
    """[N, S]: what the agent observes before it acts."""
    actions: Actions
    """[N], the numbers of actions from 0; or [N, A], each action as A numbers."""
    rewards: NDArray[np.float64]
    """[N]: what each action earned."""
    edges: NDArray[np.int64]
    """[E + 1]: episode e has the steps edges[e] to edges[e + 1] - 1."""

    def __len__(self) -> int:
        return len(self.edges) - 1

    @property
    def n_steps(self) -> int:
        """N."""
        return int(self.edges[-1])

    @property
    def discrete(self) -> bool:
        """Whether an action is one of a few, by number, and not a vector of numbers."""
        return self.actions.ndim == 1

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """[E]: the number of steps of each episode."""
        return np.diff(self.edges)

    @cached_property
    def times(self) -> NDArray[np.int64]:
        """[N]: how many steps of its episode came before each step."""
        return np.arange(self.n_steps) - np.repeat(self.edges[:-1], self.lengths)

    @cached_property
    def returns(self) -> NDArray[np.float64]:
        """[E]: the sum of the rewards of each episode."""
        return np.add.reduceat(self.rewards, self.edges[:-1])

    def returns_to_go(self, discount: float = 1.0) -> NDArray[np.float64]:
        """[N]: the rewards from each step to the end of its episode, R_t = r_t + discount * R_(t+1).

        Chen et al. 2021, "Decision Transformer: Reinforcement Learning via Sequence Modeling", section 3, have
        discount 1. Summed from the end, one step of all episodes at a time.
        """
        found = self.rewards.copy()
        for back in range(2, int(self.lengths.max()) + 1):
            at = self.edges[1:][self.lengths >= back] - back
            found[at] += discount * found[at + 1]
        return found

    def fingerprints(self) -> list[bytes]:
        """A digest of each episode; those of two equal episodes are equal."""
        found: list[bytes] = []
        for first, last in pairwise(self.edges.tolist()):
            parts = (array[first:last].tobytes() for array in (self.observations, self.actions, self.rewards))
            found.append(blake2b(b"".join(parts), digest_size=16).digest())
        return found

    def digest(self) -> str:
        """SHA-256 of all that was observed, done and earned, and of where episodes end."""
        digest = sha256()
        for array in (self.observations, self.actions, self.rewards, self.edges):
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def part(self, first: int, last: int) -> Episodes:
        """The episodes `first` to `last` - 1."""
        steps = slice(int(self.edges[first]), int(self.edges[last]))
        edges = self.edges[first : last + 1] - self.edges[first]
        return Episodes(self.observations[steps], self.actions[steps], self.rewards[steps], edges)


ENDS = ("terminals", "timeouts", "dones", "terminated", "truncated")
NEEDED = ("observations", "actions", "rewards")
MOST_ACTIONS = 10_000
"""Most different actions: a number above this is no action's."""
MOST_EPISODE = 2.0**53
"""Above this, two whole numbers may be one float of 64 bits, and so two episodes one."""
WHOLE = re.compile(r"[+-]?[0-9]+")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
"""What a cell may hold; Python alone would also take 1_000 and the digits of other scripts."""
TRUTH = {"true": "1", "false": "0"}
"""How tables write whether an episode is done, besides 1 and 0, in any case."""
LARGEST = float(np.finfo(np.float32).max)
BLANKS = " \t"
"""What may stand around a name or a number."""
NO_NPZ = "this is no .npz file of named arrays, or a damaged one. Write it again with np.savez."
DAMAGED = (
    *(ValueError, TypeError, LookupError, OverflowError, EOFError, RuntimeError),
    *(SyntaxError, TokenError, zipfile.BadZipFile, zlib.error),
)
"""What numpy raises for a file that is none of its own; an array says what it is in the syntax of Python."""


class Read(NamedTuple):
    """The episodes of a file, and the names in it that were not read."""

    episodes: Episodes
    unread: tuple[str, ...]


def read_episodes(path: str | Path) -> Read:
    """Read all episodes of a file. Errors: `DataError` naming the file and the line or the array."""
    return read_npz(path) if str(path).lower().endswith(".npz") else read_csv(path)


def read_csv(path: str | Path) -> Read:
    """Read a table with one line for each step. Errors: `DataError` naming file, line and column."""
    first, *lines = _table_lines(path)
    names = [name.strip(BLANKS) for name in first.split(",")]
    columns = columns_of(path, names)
    if not lines:
        raise DataError(f"{path}: the file has a line of names, but no steps. Give a file with at least one episode.")
    whole = "action" in names
    table = np.empty((len(lines), len(names)))
    for row, line in enumerate(lines):
        cells = line.split(",")
        if len(cells) != len(names):
            raise DataError(
                f"{path}:{row + 2}: a line must have {len(names)} values, as the first line has names, but this one "
                f"has {len(cells)}: {line[:60]!r}. Correct it."
            )
        for place in (each for group in columns.values() for each in group):
            cell = cells[place]
            if place in columns.get("done", ()):
                cell = TRUTH.get(cell.strip(BLANKS).lower(), cell)
            table[row, place] = number_in(cell, f"{path}:{row + 2}: {names[place]}")
        whole = whole and WHOLE.fullmatch(cells[columns["action"][0]].strip(BLANKS)) is not None
    episode = table[:, columns["episode"][0]]
    edges = edges_of_ids(episode, f"{path}:", 2)
    check_times(path, table, columns.get("t"), edges)
    check_done(path, table, columns.get("done"), edges)
    actions = table[:, columns["action"]]
    made = Episodes(
        np.asarray(table[:, columns["obs"]], np.float32),
        numbered(actions[:, 0], f"{path}:", 2) if whole else np.asarray(actions, np.float32),
        table[:, columns["reward"][0]].copy(),
        edges,
    )
    read = {place for group in columns.values() for place in group}
    return Read(made, tuple(name for place, name in enumerate(names) if place not in read))


def _table_lines(path: str | Path) -> list[str]:
    """The lines of a table. Errors: `DataError` for JSON, with the way to a table."""
    with opened(path) as file:
        if in_json(path) or looks_like_json(file.stream, path):
            raise DataError(
                f"{path}: episodes are read from a table (.csv) or from arrays (.npz), but this seems to be JSON. "
                "Write a table: python -c 'import sys, pandas; pandas.read_json(sys.argv[1], lines=True)"
                ".to_csv(sys.argv[2], index=False)' OLD NEW.csv"
            )
        return list(lines_of(file, path))


def columns_of(path: str | Path, names: Sequence[str]) -> dict[str, list[int]]:
    """The columns of each kind, by the names in the first line. Errors: `DataError` for one missing or twice."""
    found: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        kind = name.rstrip("0123456789")
        if kind in ("obs", "action") or name in ("episode", "t", "reward", "done"):
            found.setdefault(kind if kind in ("obs", "action") else name, []).append(place)
    for needed in ("episode", "obs", "action", "reward"):
        if needed not in found:
            raise DataError(
                f"{path}:1: the first line must name the columns, among them episode, obs (or obs0, obs1, ...), action "
                f"(or action0, ...) and reward; got {', '.join(names)[:80]!r}, without {needed}. Name the columns so, "
                "without quotes."
            )
    (name, count), *_ = Counter(names).most_common(1)
    if count > 1:
        raise DataError(f"{path}:1: each column needs a name of its own, but {name!r} is there twice. Rename one.")
    return found | {kind: in_order(path, names, kind, found[kind]) for kind in ("obs", "action")}


def in_order(path: str | Path, names: Sequence[str], kind: str, places: list[int]) -> list[int]:
    """The columns of a vector by their numbers. Errors: `DataError` for a number that is missing."""
    wanted = [kind] if names[places[0]] == kind else [f"{kind}{number}" for number in range(len(places))]
    if {*wanted} != {names[place] for place in places}:
        raise DataError(
            f"{path}:1: what belongs to {kind} must be one column {kind}, or columns {kind}0, {kind}1, ... without a "
            f"gap; got {', '.join(names[place] for place in places)[:80]}. Rename them, or add what is missing."
        )
    return [names.index(name) for name in wanted]


def number_in(cell: str, place: str, remedy: str = "Correct the line.") -> float:
    """The finite number in a cell. Errors: `DataError` naming its place."""
    plain = cell.strip(BLANKS)
    value = float(plain) if NUMBER.fullmatch(plain) else float("nan")
    if not abs(value) <= LARGEST:
        raise DataError(f"{place} must be a finite number of 32 bits; got {cell[:40]!r}. {remedy}")
    return value


def check_times(path: str | Path, table: NDArray[Any], columns: list[int] | None, edges: NDArray[np.int64]) -> None:
    """Refuse steps that are out of order or missing. Errors: `DataError` naming the line."""
    wanted = np.arange(len(table)) - np.repeat(edges[:-1], np.diff(edges))
    steps = table[:, columns[0]] if columns else wanted
    wrong = np.flatnonzero(steps != wanted)
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{path}:{row + 2}: t must count the steps of an episode from 0, so here it must be {wanted[row]}; got "
            f"{steps[row]:g}. Put the lines in order, and add missing ones."
        )


def check_done(path: str | Path, table: NDArray[Any], columns: list[int] | None, edges: NDArray[np.int64]) -> None:
    """Refuse an episode that goes on after its end. Errors: `DataError` naming the line."""
    done = table[:, columns[0]] if columns else np.zeros(len(table))
    wrong = np.flatnonzero((done != 0) & (done != 1))
    if len(wrong):
        raise DataError(f"{path}:{wrong[0] + 2}: done must be 0 or 1; got {done[wrong[0]]:g}. Correct the line.")
    early = np.setdiff1d(np.flatnonzero(done == 1), edges[1:] - 1)
    if len(early):
        raise DataError(
            f"{path}:{early[0] + 2}: done is 1 here, but the same episode goes on in the next line. Give the next "
            "lines another number in the column episode, or set done to 0."
        )


def edges_of_ids(ids: NDArray[Any], where: str, first: int) -> NDArray[np.int64]:
    """Where the episodes begin and end, by the number of each step's. The place of a step is `where` and its number.

    Errors: `DataError` if an episode comes back later.
    """
    wrong = np.flatnonzero(np.abs(ids.astype(np.float64)) >= MOST_EPISODE)
    if len(wrong):
        raise DataError(
            f"{where}{wrong[0] + first}: the number of an episode must be below 2^53 = {MOST_EPISODE:.0f}, as larger "
            f"ones cannot be told apart; got {ids[wrong[0]]}. Count the episodes from 0."
        )
    starts = np.concatenate([[0], np.flatnonzero(np.diff(ids)) + 1])
    seen: set[float] = set()
    for start in starts.tolist():
        number = float(ids[start])
        if number in seen:
            raise DataError(
                f"{where}{start + first}: the steps of an episode must follow each other, but episode {number:.16g} "
                "was there before, with others in between. Sort the steps by episode."
            )
        seen.add(number)
    return np.concatenate([starts, [len(ids)]]).astype(np.int64)


def numbered(values: NDArray[Any], where: str, first: int) -> NDArray[np.int64]:
    """The numbers of actions; `where` and `first` as in `edges_of_ids`. Errors: `DataError` for an impossible one."""
    wrong = np.flatnonzero((values < 0) | (values >= MOST_ACTIONS))
    if len(wrong):
        raise DataError(
            f"{where}{wrong[0] + first}: actions of a whole number are counted from 0, to at most "
            f"{MOST_ACTIONS - 1:,}; got {values[wrong[0]]:g}. Number them from 0; if an action is a quantity, write "
            "3.0 for 3 (in an .npz file: as floats)."
        )
    return values.astype(np.int64)


def read_npz(path: str | Path) -> Read:
    """Read the arrays of an .npz file. Errors: `DataError` naming file and array; a pickled one is never read."""
    arrays, names = arrays_in(path)
    for needed in NEEDED:
        if needed not in arrays:
            raise DataError(f"{path}: there is no array {needed!r}. {suggestion(needed, names)}")
    rewards = np.asarray(shaped(arrays["rewards"], "rewards", path, 1), np.float64)
    observations = shaped(arrays["observations"], "observations", path, 2, len(rewards))
    edges = edges_in(arrays, len(rewards), path)
    actions = arrays["actions"]
    actions = shaped(actions[:, None] if actions.ndim == 1 else actions, "actions", path, 2, len(rewards))
    if actions.shape[1] == 1 and actions.dtype.kind in "iu":
        actions = numbered(actions[:, 0], f"{path}: actions: step ", 0)
    else:
        actions = np.asarray(actions, np.float32)
    made = Episodes(np.asarray(observations, np.float32), actions, rewards, edges)
    read = {*NEEDED, *(ENDS if "episode" not in arrays else ("episode",))}
    return Read(made, tuple(name for name in names if name not in read))


def arrays_in(path: str | Path) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """The arrays of a file that are needed, and the names of all that it has. Errors: `DataError`."""
    try:
        with Path(path).open("rb") as opened:
            file = np.load(opened, allow_pickle=False)
            if not isinstance(file, NpzFile):  # a single array, without a name
                raise DataError(f"{path}: {NO_NPZ}")
            wanted = [name for name in file.files if name in (*NEEDED, "episode", *ENDS)]
            return {name: array_in(file, name, path) for name in wanted}, file.files
    except DataError:
        raise
    except FileNotFoundError:
        raise no_such_file(path) from None
    except OSError as error:
        raise DataError(f"{path}: the file cannot be read ({error.strerror or error}). Give a readable .npz.") from None
    except MemoryError:
        raise DataError(f"{path}: the arrays take more memory than there is. Give fewer episodes.") from None
    except DAMAGED:
        raise DataError(f"{path}: {NO_NPZ}") from None


def array_in(file: Mapping[str, Any], name: str, path: str | Path) -> NDArray[Any]:
    """An array of a file. Errors: `DataError` for one of Python objects, which only a pickle can hold."""
    try:
        found = file[name]
    except ValueError as error:
        if "Object arrays" not in str(error):
            raise
        raise DataError(
            f"{path}: the array {name!r} holds Python objects, which reading would have to run as code. Save numbers "
            "alone, such as np.stack(observations)."
        ) from None
    if not isinstance(found, np.ndarray):  # the bytes of a file in the archive that is no array
        raise DataError(f"{path}: {NO_NPZ}")
    return found


def shaped(array: NDArray[Any], name: str, path: str | Path, ndim: int, n: int | None = None) -> NDArray[Any]:
    """An array of finite numbers with this many dimensions and `n` steps. Errors: `DataError`."""
    steps = "N" if n is None else str(n)
    if array.ndim != ndim or array.dtype.kind not in "fiub" or (n is not None and len(array) != n) or not array.size:
        raise DataError(
            f"{path}: {name} must be numbers of the shape [{steps}{', ...' * (ndim - 1)}], a row for each step; got "
            f"{array.dtype} of {list(array.shape)}. Save them so."
        )
    wrong = np.argwhere(~(np.abs(array.astype(np.float64)) <= LARGEST))
    if len(wrong):
        raise DataError(
            f"{path}: {name} must be finite numbers of 32 bits; step {wrong[0][0]} (counted from 0) has "
            f"{array[tuple(wrong[0])]}. Correct the data, or remove its episode."
        )
    return array


def edges_in(arrays: Mapping[str, NDArray[Any]], n: int, path: str | Path) -> NDArray[np.int64]:
    """Where the episodes of an .npz file begin and end. Errors: `DataError` if nothing says so."""
    if "episode" in arrays:
        return edges_of_ids(shaped(arrays["episode"], "episode", path, 1, n), f"{path}: step ", 0)
    given = [shaped(arrays[name], name, path, 1, n) for name in ENDS if name in arrays]
    if not given:
        raise DataError(
            f"{path}: nothing says where episodes end. Add an array episode with the number of each step's episode, "
            f"or one of {', '.join(ENDS)}."
        )
    last = np.flatnonzero(np.any([each != 0 for each in given], axis=0)) + 1
    return np.unique(np.concatenate([[0], last, [n]])).astype(np.int64)


def npz_bytes(episodes: Episodes) -> bytes:
    """Episodes as `read_npz` reads them."""
    file = io.BytesIO()
    np.savez_compressed(
        file,
        episode=np.repeat(np.arange(len(episodes)), episodes.lengths),
        observations=episodes.observations,
        actions=episodes.actions,
        rewards=episodes.rewards,
    )
    return file.getvalue()


# What a model of trajectories reads and writes: how many numbers, on which scale, and which actions there are.

TIMES = 16
"""Numbers that tell a step's place in its episode: sines and cosines, as many as one needs for 10,000 steps."""


@dataclass(frozen=True)
class Scales:
    """Statistics of the training episodes. Each vector has a number per number of an observation or an action."""

    observed: tuple[float, ...]
    """Means of the observations."""
    observed_spread: tuple[float, ...]
    """Their standard deviations; 1 where they do not vary."""
    acted: tuple[float, ...]
    """Means of the actions; empty if actions are numbered."""
    acted_spread: tuple[float, ...]
    acted_low: tuple[float, ...]
    """The least of each number of an action."""
    acted_high: tuple[float, ...]
    to_go: float
    """The largest return-to-go, without its sign; 1 if all are 0."""
    longest: int
    """Steps of the longest episode."""
    returns: tuple[float, float, float]
    """The lowest, the mean and the highest return of an episode, discounted as the returns-to-go are."""


class Spaces(Labels):
    """The spaces of observations and actions. Its entries are the actions by name; none if an action is a vector.

    It takes the place of a tokenizer: what it does with an action by number is what a label set does with a label.
    """

    kind = "trajectories"

    def __init__(self, scales: Scales, actions: tuple[str, ...] = ()) -> None:
        super().__init__(actions)
        self.scales = scales

    @property
    def n_observed(self) -> int:
        """S: numbers in an observation."""
        return len(self.scales.observed)

    @property
    def n_acted(self) -> int:
        """A: numbers that an action takes in what a model reads; one for each action, if actions are numbered."""
        return len(self.entries) or len(self.scales.acted)

    @property
    def n_features(self) -> int:
        """I: numbers at each place that a model reads: its kind, the return-to-go, observation, action and time."""
        return 3 + 1 + self.n_observed + self.n_acted + TIMES

    def reaching(self, other: Scales) -> Spaces:
        """The same scales of what is read, but for episodes with the actions, lengths and returns of `other`."""
        reach = {name: getattr(other, name) for name in ("acted_low", "acted_high", "longest", "returns")}
        return Spaces(replace(self.scales, **reach), self.entries)

    def check(self, episodes: Episodes, where: str) -> None:
        """Refuse episodes of another environment. Errors: `DataError` naming `where` they come from."""
        width = episodes.observations.shape[1]
        if width != self.n_observed:
            raise DataError(
                f"{where}: an observation must have {self.n_observed} numbers, as in training; these have {width}. "
                "Give episodes of the same environment."
            )
        ours, theirs = (
            "one of some, by number" if n is None else f"{n} numbers"
            for n in (
                None if self.entries else self.n_acted,
                None if episodes.discrete else episodes.actions.shape[1],
            )
        )
        if ours != theirs:
            raise DataError(
                f"{where}: an action must be {ours}, as in training; these are {theirs}. Give episodes of the same "
                "environment."
            )
        if self.entries and (largest := int(episodes.actions.max())) >= len(self.entries):
            raise DataError(
                f"{where}: actions must be below {len(self.entries)}, as in training; one is {largest}. Remove its "
                "episode, or train on such episodes."
            )

    def to_json(self) -> str:
        """All of it as JSON text."""
        record = {"kind": self.kind, "specials": SPECIALS, "entries": self.entries, "scales": asdict(self.scales)}
        return json.dumps(record, ensure_ascii=False, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Spaces:
        """Read what `to_json` wrote. Errors: `DataError` for anything else."""
        record = read_json(text)
        entries, scales = cls.entries_in(record), scales_in(record.get("scales"))
        if bool(entries) == bool(scales.acted):
            raise DataError(
                f"A file of spaces must hold the names of actions (entries) or the scales of their numbers (acted), "
                f"and not both; got {len(entries)} names and the scales of {len(scales.acted)} numbers. {THE_FILE}"
            )
        return cls(scales, tuple(entries))


def scales_in(found: object) -> Scales:
    """The scales in a file. Errors: `DataError` for what cannot be those of episodes."""
    names = [each.name for each in fields(Scales)]
    if not isinstance(found, dict) or {*cast("dict[str, object]", found)} != {*names}:
        raise DataError(f"A file of spaces must hold the scales {', '.join(names)}, and no others. {THE_FILE}")
    record = cast("dict[str, object]", found)
    for name in names:
        value = record[name]
        alone = name in ("to_go", "longest")
        numbers = [value] if alone else cast("list[object]", value) if isinstance(value, list) else [None]
        least = 0 if name.endswith("_spread") or alone else -math.inf
        if not all(finite(each) and cast("float", each) > least for each in numbers):
            raise DataError(
                f"{name} of a file of spaces must be {'a finite number' if alone else 'a list of finite numbers'}"
                f"{'' if least else ' above 0'}; got {value!r:.80}. {THE_FILE}"
            )
    n = {name: len(cast("list[float]", record[name])) for name in names if isinstance(record[name], list)}
    acted = {size for name, size in n.items() if name.startswith("acted")}
    if not n["observed"] or n["observed"] != n["observed_spread"] or len(acted) > 1 or n["returns"] != 3:
        raise DataError(
            f"A file of spaces must hold as many numbers under observed as under observed_spread, at least one, as "
            f"many under each of acted, acted_spread, acted_low and acted_high, and three returns; got {n}. {THE_FILE}"
        )
    if not isinstance(record["longest"], int):
        raise DataError(f"longest of a file of spaces must be whole; got {record['longest']!r}. {THE_FILE}")
    made = {name: tuple(map(float, each)) if isinstance(each, list) else each for name, each in record.items()}
    return Scales(**made | {"to_go": float(cast("float", record["to_go"]))})  # pyright: ignore[reportArgumentType]


def finite(value: object) -> bool:
    """Whether a value is a number, and not too large for a float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
