"""A line of a gigabyte: its token files are made in bounded memory, or it is refused by name, as bounded."""

import gzip
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from fresh import printed
from glassformer.data.lines import LONGEST_LINE
from glassformer.data.running.text import LONGEST_RUN

SIZE = 10**9
"""Bytes of the line."""
SIZES = {"byte": SIZE, "character": SIZE, "bpe": 2**28}
"""Bytes of the line that a tokenizer reads: subwords take nine minutes for a gigabyte, and held 150 MB."""
MOST = 300 * 10**6
"""Bytes that a process may hold, whatever the size of the text; the benchmark `text` has the same bound."""
ROOM = 4 * 10**9
"""Bytes of disk: the line, and two bytes for each of its tokens; the rest is for others."""
SPACED = "Der Hund schläft, das Kind läuft; 漢字 und 😀 in 1 Zeile ohne Ende " * 16_000
SOLID = "Hundkindläuft漢字😀ohneEnde" * 40_000
"""Blocks of about a million bytes, no divisor of the pieces that are read: they are cut within characters."""
PROCESS = Path(__file__).with_name("long_line.py")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="how much a process held is told by Linux alone"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with room for a large text. pytest keeps the last ones of it, so what is in it goes at once."""
    if (free := shutil.disk_usage(tmp_path).free) < ROOM:
        pytest.skip(f"the disk has {free:,} bytes free, and a line of a gigabyte with its tokens needs {ROOM:,}")
    inside = tmp_path / "large"
    inside.mkdir()
    yield inside
    shutil.rmtree(inside)


def one_line(file: BinaryIO, block: str, size: int = SIZE) -> int:
    """Write a block again and again, without a line end. How often."""
    data = block.encode()
    times = size // len(data) + 1
    for _ in range(times):
        file.write(data)
    return times


def read(kind: str, path: Path, *words: Path) -> dict[str, Any]:
    """What a process of its own makes of the text, within its memory."""
    cache = {"GLASSFORMER_CACHE": str(path.parent / "cache")}
    found = json.loads(printed(PROCESS, kind, path, *words, env=os.environ | cache))
    print(f"{kind}: {found['held'] / 1e6:.0f} MB held")  # pytest shows it with -rP
    assert found["held"] <= MOST, found
    return found


@pytest.mark.parametrize("kind", SIZES)
def test_tokens_of_one_line_are_made_in_bounded_memory(kind, folder):
    path, words = folder / "line.txt", folder / "words.txt"
    with path.open("wb") as file:
        times = one_line(file, SPACED, SIZES[kind])
    words.write_text(SPACED[:10_000], "utf-8")
    found = read(kind, path, *([words] if kind == "bpe" else []))
    assert found["bytes"] == path.stat().st_size >= SIZES[kind]
    assert found["characters"] == times * len(SPACED)
    assert found["unknown"] == 0
    if kind != "bpe":
        assert found["tokens"] == found["bytes" if kind == "byte" else "characters"]
    assert found["begins"]
    assert SPACED.startswith(found["begins"].rstrip("\ufffd"))  # the last token may end within a character
    assert found["ends"]
    assert SPACED.endswith(found["ends"].lstrip("\ufffd"))


def test_a_line_without_white_space_is_refused_where_a_tokenizer_needs_it(folder):
    path = folder / "line.txt"
    with path.open("wb") as file:
        one_line(file, SOLID)
    found = read("bpe", path)
    assert found["refused"] == "DataError"
    assert f"{path}: this tokenizer needs words with white space between them" in found["says"]
    assert int(found["says"].split("but ")[1].split(" ")[0].replace(",", "")) > LONGEST_RUN


@pytest.mark.parametrize(
    ("kind", "name", "first", "begin", "end"),
    [
        ("byte", "texts.jsonl", '{"text": "a"}', '{"text": "', '"}'),
        ("byte", "texts.jsonl.gz", '{"text": "a"}', '{"text": "', '"}'),
        ("pairs", "pairs.tsv", "a\tb", "", "\tb"),
        ("pairs", "pairs.tsv.gz", "a\tb", "a\t", ""),
        ("labelled", "labels.tsv", "a\tb", "", "\tb"),
        ("labelled", "labels.jsonl", '{"text": "a", "label": "b"}', '{"text": "', '", "label": "b"}'),
    ],
)  # fmt: skip
def test_a_line_that_is_read_whole_is_refused_by_its_number(kind, name, first, begin, end, folder):
    path = folder / name
    with gzip.open(path, "wb", 1) if name.endswith(".gz") else path.open("wb") as file:
        file.write(f"{first}\n{begin}".encode())
        one_line(file, SOLID)
        file.write(f"{end}\n{first}\n".encode())
    found = read(kind, path)
    assert found["refused"] == "DataError"
    assert f"{path}:2: a line may have at most {LONGEST_LINE:,} bytes, but this one is longer" in found["says"]
