"""Turns the files of public data sets into recipe settings, and rewrites files whose format differs."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

HELD_OUT = 500
"""For a data set without a dev split: how many lines at the end of its training data become one."""

Files = Callable[[Path, Path], list[str]]
"""Takes the folder of a data set and a folder for rewritten files; returns settings. Errors: `FileNotFoundError`."""
Rewrite = Callable[[Iterable[str]], Iterator[str]]
"""Turns the lines of a file into the lines to use."""


def multi30k(data: Path, written: Path, target: str = "de") -> list[str]:
    """English captions and their translation (Elliott et al. 2016, 2017), two parallel files per split."""
    names = {"train": "train", "dev": "val", "test": "test_2016_flickr"}
    sides = {"source": "en", "target": target}
    return [
        f"--data.{split}-{side}={there(data / f'{name}.{language}')}"
        for split, name in names.items()
        for side, language in sides.items()
    ]


def multi30k_lower(data: Path, written: Path, target: str = "de") -> list[str]:
    """The same in lower case: published figures are of models that read and write it so."""
    plain = (setting.split("=", 1) for setting in multi30k(data, written, target))
    texts = ((name, Path(path)) for name, path in plain)
    return [
        f"{name}={write(made(written) / path.name.removesuffix('.gz'), map(str.lower, read(path)))}"
        for name, path in texts
    ]


def sst2(data: Path, written: Path) -> list[str]:
    """Positive and negative sentences from film reviews (Socher et al. 2013). The dev split is scored once, at the end.

    All training sentences are used for training, and no checkpoint is chosen.
    """
    scored = read(data / "dev.tsv")
    return settings(written, train=read(data / "train.tsv"), dev=scored, test=scored)


def wikitext2(data: Path, written: Path, rewrite: Rewrite) -> list[str]:
    """Articles (Merity et al. 2017), with each split rewritten line by line."""
    names = {"text": "train", "dev-text": "valid", "test-text": "test"}
    return [
        f"--data.{setting}={write(made(written) / f'{name}.txt', rewrite(read(data / f'wiki.{name}.tokens')))}"
        for setting, name in names.items()
    ]


def as_counted(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of WikiText-2 unchanged, empty ones too, each with `<eol>`, which published figures count."""
    return (f"{line.strip()} <eol>".lstrip() for line in lines)


def as_reviews(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines of WikiText-2 in the style of SST-2.

    That is: in lower case, without headings, `<unk>` and the marks around hyphens, points and commas. Hyphens split
    words, since SST-2 has none, and `don't` becomes `do`, `n't`.
    """
    for line in lines:
        if (text := line.strip().lower()) and not text.startswith("= "):
            for mark, joined in ((" @-@ ", " "), (" @,@ ", ","), (" @.@ ", "."), ("n 't", " n't")):
                text = text.replace(mark, joined)
            yield " ".join(word for word in text.split() if word != "<unk>")


def trec(data: Path, written: Path) -> list[str]:
    """Questions and the kind of answer they ask for (Li and Roth 2002): `KIND:detail question`.

    As published, one question is in Latin-1.
    """

    def pairs(name: str) -> list[str]:
        return [re.sub(r"^(\w+):\w+ (.*)$", r"\2\t\1", line) for line in read(data / name, "latin-1")]

    lines = pairs("TREC.train.txt")
    return settings(written, train=lines[:-HELD_OUT], dev=lines[-HELD_OUT:], test=pairs("TREC.test.txt"))


def scan(data: Path, written: Path, split: str = "simple") -> list[str]:
    """Commands and the actions they ask for (Lake and Baroni 2018), by split: `IN: command OUT: actions`."""

    def pairs(name: str) -> list[str]:
        return [re.sub(r"^IN: (.*) OUT: (.*)$", r"\1\t\2", line) for line in read(data / name)]

    lines = pairs(f"tasks_train_{split}.txt")
    return settings(written, train=lines[:-HELD_OUT], dev=lines[-HELD_OUT:], test=pairs(f"tasks_test_{split}.txt"))


def sigmorphon(data: Path, written: Path, language: str) -> list[str]:
    """Inflection (Cotterell et al. 2017, task 1, high): `lemma, form, N;ACC;PL`, as symbols separated by spaces.

    The source is the tags followed by the letters of the lemma, the target the letters of the form.
    """

    def pairs(name: str) -> list[str]:
        rows = (line.split("\t") for line in read(data / f"{language}-{name}.tsv"))
        return [f"{tags.replace(';', ' ')} = {letters(lemma)}\t{letters(form)}" for lemma, form, tags in rows]

    return settings(written, train=pairs("train-high"), dev=pairs("dev"), test=pairs("uncovered-test"))


def cmudict(data: Path, written: Path) -> list[str]:
    """Pronunciations (CMUdict 0.7b): `WORD  PH PH`. A word with several pronunciations has a line for each.

    Words of dev that are also in train are left out of dev.
    """

    def pairs(name: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for line in read(data / name):
            word, sounds = line.rstrip("\r").split("  ", 1)
            found.setdefault(word, []).append(f"{letters(word)}\t{sounds.strip()}")
        return found

    train, dev, test = (pairs(f"{name}.txt") for name in ("train", "dev", "test"))
    dev = {word: lines for word, lines in dev.items() if word not in train}
    splits = {"train": train, "dev": dev, "test": test}
    return settings(written, **{name: list(chain(*split.values())) for name, split in splits.items()})


def letters(word: str) -> str:
    """Return the characters of a word, separated by spaces; a space inside becomes an underscore."""
    return " ".join(word.replace(" ", "_"))


def there(path: Path) -> Path:
    """Return the file itself or its gzipped form. Errors: `FileNotFoundError`."""
    packed = path.with_name(path.name + ".gz")
    found = next((each for each in (path, packed) if each.is_file()), None)
    if found is None:
        raise FileNotFoundError(f"{path} is missing, also as .gz")
    return found


def read(path: Path, or_else: str = "utf-8") -> list[str]:
    """Return the lines of a file, plain or gzipped, in UTF-8 or, if it is not, in the encoding `or_else`."""
    found = there(path)
    data = gzip.decompress(found.read_bytes()) if found.suffix == ".gz" else found.read_bytes()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode(or_else)
    return text.removesuffix("\n").split("\n")


def settings(written: Path, **splits: Sequence[str]) -> list[str]:
    """Write a file of lines for each split, and return the settings that name them."""
    return [f"--data.{split}={write(made(written) / f'{split}.tsv', lines)}" for split, lines in splits.items()]


def made(folder: Path) -> Path:
    """Create the folder if needed, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write(path: Path, lines: Iterable[str]) -> Path:
    """Write the lines to a file, and return it."""
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


FILES: dict[str, tuple[str, Files]] = {
    "multi30k": ("multi30k", multi30k),
    "multi30k french": ("multi30k", partial(multi30k, target="fr")),
    "multi30k lower": ("multi30k", multi30k_lower),
    "multi30k lower french": ("multi30k", partial(multi30k_lower, target="fr")),
    "sst2": ("sst2", sst2),
    "wikitext-2 reviews": ("wikitext-2", partial(wikitext2, rewrite=as_reviews)),
    "wikitext-2 lines": ("wikitext-2", partial(wikitext2, rewrite=as_counted)),
    "trec": ("trec", trec),
    "scan": ("scan", scan),
    "scan length": ("scan", partial(scan, split="length")),
    "scan jump": ("scan", partial(scan, split="addprim_jump")),
    "german": ("sigmorphon2017", partial(sigmorphon, language="german")),
    "turkish": ("sigmorphon2017", partial(sigmorphon, language="turkish")),
    "finnish": ("sigmorphon2017", partial(sigmorphon, language="finnish")),
    "cmudict": ("cmudict-g2p", cmudict),
}
"""By data set: its folder, and the function that returns its settings."""
