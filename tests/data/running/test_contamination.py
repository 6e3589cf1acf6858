"""Held-out text that stands in the training text is counted, and only that."""

from __future__ import annotations

from pathlib import Path

import pytest

from glassformer.data.running import contamination
from glassformer.data.running import text as reading
from glassformer.data.running.contamination import CHARACTERS, WORDS, Overlap, overlap
from glassformer.data.running.corpus import Part, measure


def part(path: Path, text: str) -> Part:
    path.write_text(text)
    return measure(str(path)).part()


def words(first: int, last: int) -> str:
    return " ".join(f"w{number}" for number in range(first, last))


@pytest.mark.parametrize("size", [7, 2**20], ids=["many pieces", "one"])
def test_windows_of_words_by_hand(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PIECE", size)
    train = part(tmp_path / "train", words(0, 100))
    assert overlap(train, part(tmp_path / "a", words(200, 300))) == Overlap("words", WORDS, 88, 0)
    assert overlap(train, part(tmp_path / "b", words(40, 60))) == Overlap("words", WORDS, 8, 8)
    # words 88 to 99 are twelve: one fewer than a window; then 87 to 99 are one window
    assert overlap(train, part(tmp_path / "c", words(88, 120))).found == 0
    assert overlap(train, part(tmp_path / "d", words(87, 120))).found == 1
    backwards = " ".join(reversed(words(0, 100).split()))
    assert overlap(train, part(tmp_path / "e", backwards)).found == 0
    both = overlap(train, part(tmp_path / "f", f"{words(0, 50)} {words(0, 50)}"))
    assert both == Overlap("words", WORDS, 88, 2 * 38)  # a window that stands twice counts twice


def test_windows_of_characters_where_words_are_not_written_apart(tmp_path: Path) -> None:
    text = "".join(chr(0x4E00 + 7 * number) for number in range(200))
    train = part(tmp_path / "train", text)
    assert overlap(train, part(tmp_path / "a", text[100:160])) == Overlap("characters", CHARACTERS, 11, 11)
    assert overlap(train, part(tmp_path / "b", text[::-1])).found == 0
    assert overlap(train, part(tmp_path / "c", text[:49] + "x" + text[50:99])).found == 0


def test_no_window_lies_across_documents(tmp_path: Path) -> None:
    for name, text in (("1", words(0, 7)), ("2", words(7, 20))):
        (tmp_path / "train").mkdir(exist_ok=True)
        (tmp_path / "train" / name).write_text(text)
    train = measure(str(tmp_path / "train")).part()
    assert overlap(train, part(tmp_path / "dev", words(0, 20))) == Overlap("words", WORDS, 8, 1)


def test_text_shorter_than_a_window_has_no_share(tmp_path: Path) -> None:
    found = overlap(part(tmp_path / "train", "a b"), part(tmp_path / "dev", "a b"))
    assert (found.n, found.found, found.share) == (0, 0, 0.0)


def test_of_a_long_text_windows_are_taken_evenly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contamination, "MOST", 100)
    monkeypatch.setattr(reading, "PIECE", 50)
    train = part(tmp_path / "train", words(0, 500))
    found = overlap(train, part(tmp_path / "dev", f"{words(0, 500)} {words(1000, 1500)}"))
    assert found.n == 99  # every tenth of 988
    assert found.found == 49
