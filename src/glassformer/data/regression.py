r"""Samples that have numbers to predict: a text, or a row of features. Read from files, or made.

CSV (.csv), TABs (other)     rooms,area,price\n4,120,415.5     the first line names the columns; quotes as in CSV
JSON (.jsonl, .ndjson, ...)  {"text": "four rooms", "price": 415.5}, one object on each line, or an array of them

A sample is a `Pair`: the text, or the features as a JSON object, and the numbers as a JSON object. Nothing is silently
dropped, and a cell that is no finite number is an error that names its line and its column.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassformer.base.errors import ConfigError, DataError
from glassformer.base.registry import suggestion
from glassformer.data.config import DataConfig
from glassformer.data.dataset import Encoded, Sequences, Tokenizers
from glassformer.data.json_lines import Object, Record, object_in, records_of, text_in, value_in
from glassformer.data.lines import Opened
from glassformer.data.pairs import Loaded, Pair, gathered
from glassformer.data.rows import TABLE, Columns, Empty, by_name, counted, csv_rows, data_file, other_width, table
from glassformer.data.synthetic import below, hashed, split_of
from glassformer.data.tokens.vocabulary import BOS, FIRST_LABEL, SPECIALS, THE_FILE, Labels, read_json
from glassformer.data.trajectories.episodes import finite, number_in

if TYPE_CHECKING:
    from glassformer.data.batch import Batch

REMEDY = "Set data.label_column to the fields of the numbers and data.text_column to what is read"


class Scale(Labels):
    """Names of some numbers, with the mean and the standard deviation of each in the training samples.

    A run keeps it in a tokenizer's place: id FIRST_LABEL + k stands for number k. What a model reads and gives is
    standardised, (x - mean) / deviation, so the unit of a number does not matter.
    """

    kind = "regression"
    spells = False

    def __init__(self, names: Sequence[str], means: Sequence[float], spreads: Sequence[float]) -> None:
        super().__init__(names)
        self.means, self.spreads = tuple(means), tuple(spreads)

    @classmethod
    def fit(cls, names: Sequence[str], rows: NDArray[np.float64]) -> Scale:
        """The scale of rows [N, K] of K numbers. The deviation of a number that does not vary is taken as 1."""
        varies = rows.max(0) > rows.min(0)
        spreads = [float(each) if some and each > 0 else 1.0 for each, some in zip(rows.std(0), varies, strict=True)]
        return cls(names, rows.mean(0).tolist(), spreads)

    def standardised(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rows [N, K] in the units of the data as what the model reads, or must give."""
        return (rows - np.array(self.means)) / np.array(self.spreads)

    def in_units(self, outputs: Sequence[float]) -> list[float]:
        """The inverse of `standardised`, for one row; to seven digits, as many as a float of 32 bits has."""
        return [float(f"{m + s * x:.7g}") for x, m, s in zip(outputs, self.means, self.spreads, strict=True)]

    def row(self, text: str) -> list[float]:
        """The numbers in a line: a JSON object that names them, or a row of CSV with all of them in order.

        Errors: `DataError` for another number of them, other names, and what is no finite number.
        """
        if text.lstrip()[:1] == "{":
            fields = object_in(text, "the object")
            _refuse_others([*fields], self.entries, "the object", "the features in training")
            cells = [json.dumps(fields[name]) for name in self.entries]
        else:
            cells = next(csv_rows([text]))[1]
            if len(cells) != len(self.entries):
                raise DataError(
                    f"a line must have {counted(self.entries)}, {', '.join(self.entries)}, with commas between them; "
                    f"this one has {len(cells)}: {text[:60]!r}. Give these columns alone, without the line of names."
                )
            if [each.strip() for each in cells] == [*self.entries]:
                raise DataError(f"a line must have numbers; this one has their names: {text[:60]!r}. Leave it out.")
        return [number_in(cell, name) for name, cell in zip(self.entries, cells, strict=True)]

    def encode(self, text: str) -> list[int]:
        """The ids of the numbers in a line, of which each is there once."""
        self.row(text)
        return [*range(FIRST_LABEL, self.vocab_size)]

    def lacks(self, text: str) -> list[str]:
        """None: a line with a number too many is refused."""
        return []

    def to_json(self) -> str:
        """All of it as JSON text; floats are written so that they are read back equal."""
        record = {"kind": self.kind, "specials": SPECIALS, "entries": self.entries}
        return json.dumps(record | {"means": self.means, "spreads": self.spreads}, ensure_ascii=False, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Scale:
        """Read what `to_json` wrote. Errors: `DataError` for anything else."""
        record = read_json(text)
        entries = cls.entries_in(record)
        found = [_listed(record.get(name), len(entries)) for name in ("means", "spreads")]
        if not entries or not all(found) or min(found[1]) <= 0:
            raise DataError(
                f"A file of a scale must hold names, and as many finite means and spreads above 0; got {len(entries)} "
                f"names, means {record.get('means')!r:.60} and spreads {record.get('spreads')!r:.60}. {THE_FILE}"
            )
        return cls(entries, *found)


def _listed(value: object, count: int) -> list[float]:
    """The finite numbers in a list of so many; empty if it is none."""
    if not isinstance(value, list) or len(value) != count or not all(map(finite, value)):
        return []
    return [float(each) for each in value]


# --- files


class Chosen(NamedTuple):
    """The columns that are read, and those of the numbers to predict."""

    read: list[str]
    numbers: list[str]


def read_numbers(
    path: str, columns: Columns, *, as_text: bool, known: Chosen | None = None, skip_empty: bool = False
) -> Loaded:
    """Read the samples of a file. `columns`: what is read, and the numbers, as names or numbers of columns with commas.

    Unset: the last column has the number; the first other one has the text, or all others are features. In JSON, the
    fields `label`, and `text` or all others. `known`: the columns in training, which the features and the numbers must
    be, in any order.

    Errors: `DataError` naming file and line: for a line of names that is missing or not right, another number of
    columns, a cell that is no finite number, a blank line, an empty cell or null (skipped and counted with
    `skip_empty`), no sample at all, and what is not UTF-8 or not JSON.
    """
    chosen, every = Chosen([], []), list[str]()

    def sample(row: Record) -> Pair:
        nonlocal chosen, every
        _, place, cells = row
        if cells is None:
            raise Empty(place, "a line must have what is read and the numbers, but this one is blank or null")
        if not every:
            every = [*cells]
            chosen = _chosen(every, columns, f"{path}:1" if form == TABLE else place, as_text, form != TABLE, known)
        if form != TABLE and not as_text and columns.first is None:
            _refuse_others([*cells], every, place, "the fields of the first object")
        source = _text_in(cells, chosen.read[0], place) if as_text else _numbers_in(cells, chosen.read, place, form)
        return Pair(source, _numbers_in(cells, chosen.numbers, place, form))

    with data_file(path, columns, REMEDY) as (file, form):
        rows = _lines(file, path, columns) if form == TABLE else records_of(file, path)
        return gathered(rows, sample, (path, path), form, "sample in this file", skip_empty=skip_empty)


def _lines(file: Opened, path: str, columns: Columns) -> Iterator[Record]:
    """The rows of a table. Errors: `DataError` for a first line that names no columns, or a line of another width."""
    if columns.header is False:
        raise ConfigError("The first line must name the columns; got data.header=False. Add such a line.")
    sign, rows = table(file, path, comma=True)
    names = [each.strip() for each in next(rows)[1]]
    number = next((each for each in names if _is_number(each)), None)
    if number is not None and not columns.header:
        raise DataError(
            f"{path}:1: the first line must name the columns, but it has the number {number}. Add a line of names; or "
            "set data.header = true if that is the name of a column."
        )
    twice = next((each for at, each in enumerate(names) if not each or each in names[:at]), None)
    if twice is not None:
        raise DataError(
            f"{path}:1: the first line must give each column a name of its own; got {', '.join(names)[:80]!r}, with "
            f"{twice[:40]!r} {'twice' if twice else 'for one'}. Rename it."
        )
    for number, cells in rows:
        place = f"{path}:{number}"
        blank = not any(each.strip() for each in cells)
        if len(cells) != len(names) and not blank:
            wanted = f"have {counted(names)}, as the first line has names"
            raise other_width(place, cells, wanted, f"Separate columns by one {sign}")
        yield Record(number, place, None if blank else dict(zip(names, cells, strict=True)))


def _chosen(
    names: list[str], columns: Columns, place: str, as_text: bool, as_json: bool, known: Chosen | None
) -> Chosen:
    """The columns that these settings choose of `names`. Errors: `DataError`, `ConfigError`."""
    usual = known.numbers if known else ["label"] if as_json else names[-1:]
    numbers = _named(columns.second, usual, names, "data.label_column", place)
    others = [each for each in names if each not in numbers]
    usual = others if not as_text else ["text"] if as_json else others[:1]
    read = _named(columns.first, usual, names, "data.text_column", place)
    if not read or {*read} & {*numbers}:
        raise ConfigError(
            f"{place}: what is read and the numbers to predict must be different columns; got {', '.join(read)[:60]!r} "
            f"and {', '.join(numbers)[:60]!r}. Set data.text_column and data.label_column."
        )
    if as_text and len(read) > 1:
        raise ConfigError(
            f"A text is one column; got data.text_column={columns.first!r}. Name one, or read features: "
            "data.layout='feature-numbers'."
        )
    if known is None:
        return Chosen(read, numbers)
    _refuse_others(numbers, known.numbers, place, "the numbers in training")
    if not as_text:
        _refuse_others(read, known.read, place, "the features in training")
    return Chosen(read if as_text else known.read, known.numbers)


def _named(setting: str | None, usual: list[str], names: list[str], what: str, place: str) -> list[str]:
    """The columns that a setting names, or gives by number from 1; the usual ones if it is unset."""
    requested = usual if setting is None else [each.strip() for each in next(csv.reader([setting]))]
    found = [
        names[int(each) - 1] if each not in names and not by_name(each) and 1 <= int(each) <= len(names) else each
        for each in requested
    ]
    if len({*found}) < len(found):
        raise ConfigError(f"{what} must name each column once; got {setting!r}. Remove what is there twice.")
    for each in found:
        if each not in names:
            hint = suggestion(each[:40], [name[:40] for name in names[:20]])
            raise DataError(f"{place}: there is no column {each[:40]!r} to choose. {hint} Correct it, or set {what}.")
    return found


def _refuse_others(found: Sequence[str], wanted: Sequence[str], place: str, whose: str) -> None:
    """Refuse other names than `wanted`. Errors: `DataError` with those that are missing and those that are new."""
    missing, new = [each for each in wanted if each not in found], [each for each in found if each not in wanted]
    if missing or new:
        differences = [f"without {', '.join(missing)[:60]}"] if missing else []
        differences += [f"with {', '.join(new)[:60]}"] if new else []
        raise DataError(
            f"{place}: names must be those of {whose}; got them {' and '.join(differences)}. Give the same ones."
        )


def _numbers_in(cells: Object, names: Sequence[str], place: str, form: str) -> str:
    """The numbers of some columns as a JSON object. Errors: `DataError` naming place and column."""
    found: list[float] = []
    for name in names:
        cell = value_in(cells, name, place, f"{REMEDY}.")
        written = str(cell) if form == TABLE else json.dumps(cell)
        if cell is None or not written.strip():
            raise Empty(place, f"{name} must be a finite number; got {'null' if cell is None else repr(cell)}")
        found.append(number_in(written, f"{place}: {name}", f"Correct the line, or choose other columns. {REMEDY}."))
    return as_object(names, found)


def _text_in(cells: Object, name: str, place: str) -> str:
    """The text in a column. Errors: `DataError` for an empty one."""
    text = text_in(cells, name, place, f"{REMEDY}.")
    if not text.strip():
        raise Empty(place, f"the text ({name}) is empty")
    return text


def _is_number(cell: str) -> bool:
    try:
        number_in(cell, "")
    except DataError:
        return False
    return True


def as_object(names: Sequence[str], numbers: Sequence[float]) -> str:
    """Numbers by name as a JSON object; whole ones as such, and all so that they are read back equal."""
    whole = [int(each) if each.is_integer() and abs(each) < 2**53 else each for each in numbers]
    return json.dumps(dict(zip(names, whole, strict=True)), ensure_ascii=False)


# --- ids and numbers


@dataclass(frozen=True)
class Measured(Encoded):
    """Samples as ids, and as standardised numbers. Of features, the ids say which of them stands at each place."""

    numbers: NDArray[np.float64]
    """[N, K]: what the model must give."""
    features: NDArray[np.float64] | None = None
    """[N, J]: the value at each place, where features are read."""

    def digest(self) -> str:
        digest = hashlib.sha256(super().digest().encode())
        for array in (self.numbers, self.features):
            digest.update(b"" if array is None else array.tobytes())
        return digest.hexdigest()


def values_of(texts: Sequence[str], names: Sequence[str]) -> NDArray[np.float64]:
    """[N, K]: the numbers of these JSON objects, in the order of their names."""
    return np.array([[read[name] for name in names] for read in map(json.loads, texts)], np.float64)


def names_in(text: str) -> list[str]:
    """The names of the numbers in a JSON object."""
    return [*json.loads(text)]


def encode_numbers(pairs: Sequence[Pair], tokenizers: Tokenizers) -> Measured:
    """The samples as ids and standardised numbers."""
    source, target = tokenizers
    assert isinstance(target, Scale)
    numbers = target.standardised(values_of([pair.target for pair in pairs], target.entries))
    ids = Sequences([range(FIRST_LABEL, target.vocab_size)] * len(pairs))
    texts = [pair.source for pair in pairs]
    if not isinstance(source, Scale):
        return Measured(Sequences(source.encode_all(texts)), ids, numbers)
    features = source.standardised(values_of(texts, source.entries))
    return Measured(Sequences([range(FIRST_LABEL, source.vocab_size)] * len(pairs)), ids, numbers, features)


def cut(
    encoded: Encoded, rows: Iterable[int] | NDArray[np.int64], most: int | None = None
) -> tuple[list[list[int]], list[list[float]], list[list[float]] | None, int]:
    """The arguments of `batch_of` for some samples, with at most so many ids of each."""
    assert isinstance(encoded, Measured)
    at = [int(row) for row in rows]
    ids = [encoded.source[row][:most] for row in at]
    if encoded.features is None:
        return ids, encoded.numbers[at].tolist(), None, 0
    return ids, encoded.numbers[at].tolist(), encoded.features[at, :most].tolist(), encoded.features.shape[1]


def batch_of(
    ids: Sequence[Sequence[int]],
    numbers: Sequence[Sequence[float]] | None,
    values: Sequence[Sequence[float]] | None,
    count: int,
) -> Batch:
    """The batch of samples as ids, with the standardised numbers of each, where they are known.

    `values`: those of the features that the ids are of, of `count` in all; None: the ids are of texts, behind <bos>.
    Feature j has its value in number j of its place, and 1 in number `count` + j. The first map of the model turns
    these into x_j w_j + b_j, with vectors w_j and b_j of each feature: the feature tokenizer of Gorishniy et al. 2021,
    "Revisiting Deep Learning Models for Tabular Data", section 3.3.
    """
    import torch

    from glassformer.data.batch import Batch, pad

    labels = None if numbers is None else torch.tensor(numbers, dtype=torch.float32)
    if values is None:
        return Batch(*pad([[BOS, *row] for row in ids]), labels=labels)
    padded, keep = pad(ids)
    row, at = (torch.ones_like(padded, dtype=torch.bool) if keep is None else keep).nonzero(as_tuple=True)
    feature = padded[row, at] - FIRST_LABEL
    read = torch.zeros(*padded.shape, 2 * count)
    read[row, at, feature] = torch.tensor([*chain.from_iterable(values)], dtype=torch.float32)
    read[row, at, count + feature] = 1.0
    return Batch(read, keep, labels=labels)


# --- samples that are made

ORDERS = (
    "{rooms} rooms on {area} square metres , built {age} years ago , {distance} km from the centre",
    "{distance} km from the centre : {area} square metres , {rooms} rooms , {age} years old",
    "a house of {age} years with {rooms} rooms , {area} square metres in all , {distance} km out",
)
"""How a house is described where text is read."""
NOISE = 8.0
"""The standard deviation of what no feature tells, in units of the price (thousands)."""


def make_numbers(config: DataConfig, split: str, seed: int, *, as_text: bool) -> list[Pair]:
    """Make houses with a price and a cost of heating a year, as many as the settings say.

    Neither is a sum of what the features add: the price of an area falls with age and distance, and old walls cost more
    to heat the larger they are. A house depends only on (seed, split, index), and belongs to one split by its features.
    """
    found: list[Pair] = []
    for index in range(getattr(config, f"{split}_size")):
        draw = Random(hashed(f"{config.task}/{seed}/{split}/{index}"))
        made = _house(draw)
        while split_of(json.dumps(made)) != split:
            made = _house(draw)
        source = ORDERS[below(draw, len(ORDERS))].format(**made) if as_text else json.dumps(made)
        found.append(Pair(source, json.dumps(_costs(draw, **made))))
    return found


def _house(draw: Random) -> dict[str, int]:
    rooms = 1 + below(draw, 8)
    return {
        "rooms": rooms,
        "area": 20 + 10 * (rooms + below(draw, 12)),
        "age": 5 * below(draw, 25),
        "distance": below(draw, 41),
    }


def _costs(draw: Random, rooms: int, area: int, age: int, distance: int) -> dict[str, float]:
    around = sum(draw.random() - 0.5 for _ in range(12))  # nearly normal, of deviation 1
    price = area * (1.5 + 3 / (1 + distance / 8)) * (1 - age / 200) + 12 * rooms + NOISE * around
    return {"price": round(price, 1), "heating": round(area * (6 + age / 8) - 20 * rooms + 300, 1)}
