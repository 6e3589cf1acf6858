"""The big list of naughty strings, and tiny runs that learned from it."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cli.conftest import TINY, outside, refused, run
from glassformer.cli.main import main

__all__ = ["outside", "refused", "run"]  # fixtures, for these tests too
SMALL = (*TINY, "--training.steps", "1", "--training.warmup", "0", "--training.evaluate-every", "0")
LABELS = ("\U0001f44d\U0001f3fd", "</script><script>alert('label')</script>")


@pytest.fixture(scope="session")
def strings(shared: Callable[[str], Path]) -> list[str]:
    """All of them, as they stand in the list."""
    found = json.loads(shared("blns/blns.json").read_text("utf-8"))
    assert len(found) > 500
    assert not any({"\n", "\r", "\0"} & {*each} for each in found), "each is a line"
    return found


@pytest.fixture(scope="session")
def texts(strings: list[str]) -> list[str]:
    """Those that hold more than white space."""
    return [each for each in strings if each.strip()]


def lines(path: Path, texts: Sequence[str]) -> Path:
    """A file with a line for each; a byte order mark before them is no part of the first."""
    path.write_text("".join(f"{each}\n" for each in texts), "utf-8-sig")
    return path


def trained(folder: Path, recipe: str, *words: str) -> Path:
    """A run of a recipe, one small step long."""
    assert main(["train", recipe, *SMALL, *words, "--out", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture(scope="session")
def writer_run(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model of bytes on the strings, a document each."""
    folder = tmp_path_factory.mktemp("writer")
    path = folder / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": each}) + "\n" for each in texts), "utf-8")
    more = ("--tokenizer.kind", "byte", "--data.window", "900", "--training.batch-tokens", "900")
    return trained(folder, "lm", "--data.text", str(path), *more)


@pytest.fixture(scope="session")
def answering_run(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder-decoder that answers each string with the one behind it, from parallel files; short ones are dev."""
    folder = tmp_path_factory.mktemp("answers")
    dev = [each for each in texts if len(each) < 40][::40]
    files = []
    for split, sources in (("train", texts), ("dev", dev)):
        source, target = folder / f"{split}.in", folder / f"{split}.out"
        lines(source, sources), lines(target, [*sources[1:], sources[0]])
        files += [f"--data.{split}-source", str(source), f"--data.{split}-target", str(target)]
    more = ("--tokenizer.kind", "byte", "--training.batch-tokens", "2000", "--decode.max-new-tokens", "3")
    return trained(folder, "multi30k", *files, *more)


@pytest.fixture(scope="session")
def labelling_run(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of the strings in two classes."""
    folder = tmp_path_factory.mktemp("labels")
    rows = [f"{each}\t{LABELS[n % 2]}" for n, each in enumerate(texts) if "\t" not in each]
    path = lines(folder / "rows.tsv", rows)
    files = ("--data.train", str(path), "--data.dev", str(path), "--data.test", str(path), "--data.no-header")
    more = ("--tokenizer.kind", "byte", "--tokenizer.min-count", "1", "--training.batch-tokens", "2000")
    return trained(folder, "classify", *files, *more)
