"""Held-out text that stands in the training text is counted, and only that."""

import json
from pathlib import Path

import pytest

from glassformer.data.running import text as contamination
from glassformer.data.running import text as reading
from glassformer.data.running.text import CHARACTERS, RUN_OF_WORDS, Overlap, Part, measure, overlap


def part(path: Path, text: str) -> Part:
    path.write_text(text)
    return measure(str(path)).part()


def words(first: int, last: int) -> str:
    return " ".join(f"w{number}" for number in range(first, last))


@pytest.mark.parametrize("size", [7, 2**20], ids=["many pieces", "one"])
def test_windows_of_words_by_hand(size, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "PIECE", size)
    train = part(tmp_path / "train", words(0, 100))
    assert overlap(train, part(tmp_path / "a", words(200, 300))) == Overlap("words", RUN_OF_WORDS, 88, 0)
    assert overlap(train, part(tmp_path / "b", words(40, 60))) == Overlap("words", RUN_OF_WORDS, 8, 8)
    # words 88 to 99 are twelve: one fewer than a window; then 87 to 99 are one window
    assert overlap(train, part(tmp_path / "c", words(88, 120))).found == 0
    assert overlap(train, part(tmp_path / "d", words(87, 120))).found == 1
    backwards = " ".join(reversed(words(0, 100).split()))
    assert overlap(train, part(tmp_path / "e", backwards)).found == 0
    both = overlap(train, part(tmp_path / "f", f"{words(0, 50)} {words(0, 50)}"))
    assert both == Overlap("words", RUN_OF_WORDS, 88, 2 * 38)  # a window that stands twice counts twice


def test_windows_of_characters_where_words_are_not_written_apart(tmp_path):
    text = "".join(chr(0x4E00 + 7 * number) for number in range(200))
    train = part(tmp_path / "train", text)
    assert overlap(train, part(tmp_path / "a", text[100:160])) == Overlap("characters", CHARACTERS, 11, 11)
    assert overlap(train, part(tmp_path / "b", text[::-1])).found == 0
    assert overlap(train, part(tmp_path / "c", text[:49] + "x" + text[50:99])).found == 0


def test_no_window_lies_across_documents(tmp_path):
    for name, text in (("1", words(0, 7)), ("2", words(7, 20))):
        (tmp_path / "train").mkdir(exist_ok=True)
        (tmp_path / "train" / name).write_text(text)
    train = measure(str(tmp_path / "train")).part()
    assert overlap(train, part(tmp_path / "dev", words(0, 20))) == Overlap("words", RUN_OF_WORDS, 8, 1)


def lines(path: Path, texts: list[str]) -> Part:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return measure(str(path)).part()


@pytest.mark.parametrize("size", [7, 2**20], ids=["many pieces", "one"])
def test_a_document_shorter_than_a_window_is_compared_as_a_whole(size, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "PIECE", size)
    notes = [words(10 * number, 10 * number + 5) for number in range(20)]
    train = lines(tmp_path / "train.jsonl", notes)
    same = overlap(train, lines(tmp_path / "dev.jsonl", [*notes[:4], words(300, 305)]))
    assert (same, same.share) == (Overlap("words", RUN_OF_WORDS, 5, 4), 0.8)
    assert overlap(train, lines(tmp_path / "less.jsonl", [words(0, 4), words(1, 5)])).found == 0
    assert overlap(train, lines(tmp_path / "more.jsonl", [words(0, 6), words(0, 20)])) == Overlap(
        "words", RUN_OF_WORDS, 9, 0
    )
    # the last words of a long document are no short document
    long = lines(tmp_path / "long.jsonl", [f"{words(500, 520)} {notes[0]}" + 20 * " "])
    assert overlap(train, long) == Overlap("words", RUN_OF_WORDS, 13, 0)
    assert overlap(long, lines(tmp_path / "end.jsonl", [notes[0], words(508, 520)])).found == 0


def test_a_text_of_one_character_has_one_window(tmp_path):
    train = lines(tmp_path / "train.jsonl", ["x", "yes"])
    assert overlap(train, lines(tmp_path / "dev.jsonl", ["x"])) == Overlap("words", RUN_OF_WORDS, 1, 1)
    assert overlap(train, lines(tmp_path / "two.jsonl", [" z ", "  x "])).share == 0.5


def test_of_a_long_text_windows_are_taken_evenly(tmp_path, monkeypatch):
    monkeypatch.setattr(contamination, "MOST", 100)
    monkeypatch.setattr(reading, "PIECE", 50)
    train = part(tmp_path / "train", words(0, 500))
    found = overlap(train, part(tmp_path / "dev", f"{words(0, 500)} {words(1000, 1500)}"))
    assert found.n == 99  # every tenth of 988
    assert found.found == 49
