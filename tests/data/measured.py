"""Tests of recipes: the rows of the benchmarks that they repeat, and small data sets of the form of the public ones."""

from __future__ import annotations

import gzip
import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from glassformer.data.catalogue import DataSet, Measured, catalogue

RECIPES = [(each, recipe) for each in catalogue().values() for recipe in each.recipes]
FILE = re.compile(r"--data\.(text|(dev|test)-text|(train|dev|test)(-source|-target)?)")
"""Matches a setting that names a file."""
SELDOM = {
    **dict.fromkeys(("german", "turkish", "finnish", "cmudict"), "0"),
    **dict.fromkeys(("multi30k lower", "multi30k lower wide", "multi30k lower wide french"), "0"),
    **dict.fromkeys(("scan", "scan length", "scan jump"), "1000"),
}
"""Rows that docs/results.md has with a `--training.evaluate-every` of their own, which decides what can be best."""


class Row(NamedTuple):
    """What was measured."""

    job: str
    """The name after `glassformer train`."""
    settings: dict[str, str]
    data: str | None = None
    """The key of its files in benchmarks/files.py."""
    after: str | None = None


def row_of(module: Callable[[str], object], name: str) -> Row:
    """The row of the benchmarks by the name of a recipe, which may have `, N steps` at its end."""
    for budget in module("language").BUDGETS:
        if budget.name == name:
            return Row("lm", pairs([*budget.settings, "--training.evaluate-every", "0"]))
    row, _, longer = name.partition(", ")
    found = module("rows").ROWS[row]
    settings = pairs(found.settings)
    if row in SELDOM:
        settings["--training.evaluate-every"] = SELDOM[row]
    if longer:
        settings["--training.steps"] = re.fullmatch(r"([\d,]+) steps", longer)[1].replace(",", "")
    return Row(found.recipe, settings, found.data, found.after)


def trained(steps: Sequence[str]) -> tuple[str, dict[str, str]]:
    """What the one training of these steps is of, and its settings with `--out`."""
    [step] = [each for each in steps if each.startswith("glassformer train ")]
    _, _, job, *words = shlex.split(step.replace("\\\n", " "))
    return job, pairs(words)


def pairs(words: Sequence[str]) -> dict[str, str]:
    """Settings by name; the last one of a name counts."""
    return dict(zip(words[::2], words[1::2], strict=True))


def as_fetched(folder: Path, made: Path) -> Path:
    """The folder of a data set as `fetch` leaves it: TREC.train.txt is in Latin-1 there, in shared/data in UTF-8."""
    if folder.name != "trec":
        return folder
    copy = Path(shutil.copytree(folder, made / "trec", copy_function=shutil.copyfile))
    for path in copy.glob("TREC.train.txt*"):
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rb") as file:
            text = file.read().decode("utf-8")
        path.unlink()
        with opened(path, "wb") as file:
            file.write(text.encode("latin-1"))
    return copy


def small(made: Path, packed: bool) -> Path:
    """Small files of the form of the public ones, with what could go wrong in each; as NAME.gz if packed."""
    for each in catalogue().values():
        (made / each.name).mkdir(parents=True)
        for file in each.files:
            data = text_of(each, file.name).encode("utf-8")
            if file.name.endswith(".gz"):
                (made / each.name / file.name).write_bytes(gzip.compress(data))
            else:
                path = made / each.name / (file.name + ".gz" * packed)
                path.write_bytes(gzip.compress(data) if packed else data)
    return made


def text_of(each: DataSet, name: str) -> str:
    """The text of a small file."""
    return {
        "wikitext-2": f" \n = {name} <unk> = \n \n {ARTICLE} \n = = Ö = = \n <unk> \n \n",
        "multi30k": f"Ein MÄDCHEN in {name} .\nÉTÉ À Paris\n\n",
        "sst2": f"a film of {name}\t1\ndull\t0\n",
        "trec": "".join(f"NUM:dist How far is Café {n} : TAB:x in {name} ?\n" for n in range(505)),
        "scan": "".join(f"IN: jump {n} {name} OUT: I_JUMP I_{n}\n" for n in range(505)),
        "cmudict-g2p": SAID.get(name, ""),
        "sigmorphon2017": f"Öl\tÖle\tN;NOM;PL\nan fangen\tfängt an\tV;3;SG\n{name}\tİß\tN\n",
        "tinyshakespeare": "To be.\n",
    }[each.name]


ARTICLE = "Áron <unk> <unk> a well @-@ known @-@ ŒUVRE . He didn 't pay 1 @,@ 200 @,@ 000 or 3 @.@ 5 <unk> . <unk>s"
SAID = {
    "train.txt": "A  AH\r\n'BOUT  B AW T\r\nB.  B IY\r\nA  EY\r\n",
    "dev.txt": "BE  B IY\r\nA  AH\r\nB.  B\r\nBEE  B IY\r\nBE  B\r\n",
    "test.txt": "TO  T UW\r\nOR  AO R\r\nTO  T AH\r\n",
}


def ids(recipes: Sequence[tuple[DataSet, Measured]]) -> list[str]:
    """Names of recipes."""
    return [recipe.name for _, recipe in recipes]
