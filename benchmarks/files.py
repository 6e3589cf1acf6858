"""The files of public data sets, as settings of a recipe: found in a folder, and rewritten where the format differs."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

HELD_OUT = 500
"""Lines at the end of training that become the dev split of a data set that has none."""

Files = Callable[[Path, Path], list[str]]
"""From the folder of a data set, and one for files to be written in, to settings. Errors: `FileNotFoundError`."""


def multi30k(data: Path, written: Path) -> list[str]:
    """English and German captions (Elliott et al. 2016), two parallel files a split."""
    names = {"train": "train", "dev": "val", "test": "test_2016_flickr"}
    sides = {"source": "en", "target": "de"}
    return [
        f"--data.{split}-{side}={there(data / f'{name}.{language}')}"
        for split, name in names.items()
        for side, language in sides.items()
    ]


def sst2(data: Path, written: Path) -> list[str]:
    """Sentences of film reviews, for or against (Socher et al. 2013); its dev split is scored once, at the end.

    All of training is learned from, and no checkpoint is chosen.
    """
    scored = read(data / "dev.tsv")
    return settings(written, train=read(data / "train.tsv"), dev=scored, test=scored)


def trec(data: Path, written: Path) -> list[str]:
    """Questions, and what kind of answer they ask for (Li and Roth 2002): `KIND:detail question`."""

    def pairs(name: str) -> list[str]:
        return [re.sub(r"^(\w+):\w+ (.*)$", r"\2\t\1", line) for line in read(data / name)]

    lines = pairs("TREC.train.txt")
    return settings(written, train=lines[:-HELD_OUT], dev=lines[-HELD_OUT:], test=pairs("TREC.test.txt"))


def scan(data: Path, written: Path) -> list[str]:
    """Commands and the actions they ask for (Lake and Baroni 2018), simple split: `IN: command OUT: actions`."""

    def pairs(name: str) -> list[str]:
        return [re.sub(r"^IN: (.*) OUT: (.*)$", r"\1\t\2", line) for line in read(data / name)]

    lines = pairs("tasks_train_simple.txt")
    return settings(written, train=lines[:-HELD_OUT], dev=lines[-HELD_OUT:], test=pairs("tasks_test_simple.txt"))


def there(path: Path) -> Path:
    """The file itself or its gzipped form. Errors: `FileNotFoundError`."""
    packed = path.with_name(path.name + ".gz")
    found = next((each for each in (path, packed) if each.is_file()), None)
    if found is None:
        raise FileNotFoundError(f"{path} is missing, also as .gz")
    return found


def read(path: Path) -> list[str]:
    """The lines of a file, plain or gzipped."""
    found = there(path)
    data = gzip.decompress(found.read_bytes()) if found.suffix == ".gz" else found.read_bytes()
    return data.decode("utf-8").removesuffix("\n").split("\n")


def settings(written: Path, **splits: Sequence[str]) -> list[str]:
    """Writes a file of lines for each split; the settings that name them."""
    written.mkdir(parents=True, exist_ok=True)
    return [f"--data.{split}={write(written / f'{split}.tsv', lines)}" for split, lines in splits.items()]


def write(path: Path, lines: Iterable[str]) -> Path:
    """The lines as a file."""
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


FILES: dict[str, Files] = {"multi30k": multi30k, "sst2": sst2, "trec": trec, "scan": scan}
"""By data set, which is also the name of its folder."""
