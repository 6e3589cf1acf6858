"""The parts of a text: together they are the text, each document is in one of them or cut in two, and both are said."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.base.errors import ConfigError, DataError
from glassformer.data.config import DataConfig
from glassformer.data.running import text as reading
from glassformer.data.running.text import Part, has_documents, held_out_from, measure, read_parts


def config(**given: object) -> DataConfig:
    return DataConfig(task="text", layout="decoder", **given)


def documents(part: Part) -> list[str]:
    found, text = [], ""
    for piece in part.pieces():
        text += piece.text
        if piece.ends:
            found.append(text)
            text = ""
    assert not text
    return found


def lines(path: Path, texts: list[str]) -> str:
    path.write_text("".join(json.dumps({"text": each}) + "\n" for each in texts))
    return str(path)


@given(st.lists(st.text("ab \n", min_size=1, max_size=12).filter(str.strip), min_size=1, max_size=6), st.data())
def test_a_part_is_its_characters_and_its_documents(tmp_path_factory, texts, data):
    whole = measure(lines(tmp_path_factory.mktemp("corpus") / "a.jsonl", texts))
    total = sum(map(len, texts))
    assert whole.ends.tolist() == [sum(map(len, texts[: n + 1])) for n in range(len(texts))]
    at = data.draw(st.integers(0, total))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "PIECE", data.draw(st.integers(1, 9)))
        parts = [part for part in (whole.part(0, at), whole.part(at)) if part.n_characters]
        found = [documents(part) for part in parts]
    assert "".join(text for each in found for text in each) == "".join(texts)
    assert [len(each) for each in found] == [part.n_documents for part in parts]
    assert sum(map(len, found)) == len(texts) + (0 < at < total and at not in whole.ends)


def test_the_end_of_one_text_is_held_out(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("0123456789" * 10)
    parts = read_parts(config(text=str(path), dev_share=0.2))
    assert [*parts] == ["train", "dev"]
    assert documents(parts["train"]) == ["0123456789" * 8]
    assert documents(parts["dev"]) == ["0123456789" * 2]
    assert not has_documents(config(), parts["train"])
    assert has_documents(config(documents=True), parts["train"])


def test_of_several_documents_the_nearest_edge_is_taken(tmp_path):
    near = measure(lines(tmp_path / "near.jsonl", ["a" * 50, "b" * 35, "c" * 15]))
    assert held_out_from(near, 0.1) == 85
    far = measure(lines(tmp_path / "far.jsonl", ["a" * 20, "b" * 80]))
    assert held_out_from(far, 0.1) == 90  # the nearest edge, at 20, would hold out most of the text
    assert held_out_from(measure(lines(tmp_path / "last.jsonl", ["a" * 98, "b" * 2])), 0.1) == 90
    parts = read_parts(config(text=str(tmp_path / "far.jsonl")))
    assert documents(parts["train"]) == ["a" * 20, "b" * 70]
    assert documents(parts["dev"]) == ["b" * 10]
    assert has_documents(config(), parts["train"])
    assert not has_documents(config(documents=False), parts["train"])


def test_named_texts_are_whole(tmp_path):
    for name in ("train", "dev", "test"):
        (tmp_path / name).write_text(f"the {name} text")
    named = config(**{key: str(tmp_path / split) for split, key in (("train", "text"), ("dev", "dev_text"))})
    assert {split: documents(part) for split, part in read_parts(named).items()} == {
        "train": ["the train text"],
        "dev": ["the dev text"],
    }
    tested = config(test_text=str(tmp_path / "test"))
    assert documents(read_parts(tested, ["test"])["test"]) == ["the test text"]
    parts = read_parts(tested)
    assert [*parts] == ["train", "dev", "test"]
    assert parts["train"].corpus.name == "pydoc_data.topics"


def test_empty_documents_are_counted(tmp_path):
    path = lines(tmp_path / "a.jsonl", ["a", " ", "b", ""])
    assert measure(path, skip_empty=True).part().n_skipped == 2
    assert measure(path, skip_empty=True).ends.tolist() == [1, 2]
    with pytest.raises(DataError, match="every document is empty"):
        measure(lines(tmp_path / "b.jsonl", ["", " "]), skip_empty=True)


@given(st.lists(st.sampled_from(["", "a", "bcd"]), min_size=1).filter(any), st.data())
def test_each_empty_document_is_counted_in_one_part(tmp_path_factory, texts, data):
    whole = measure(lines(tmp_path_factory.mktemp("corpus") / "a.jsonl", texts), skip_empty=True)
    total = len("".join(texts))
    at = data.draw(st.integers(1, total))
    before = [len("".join(texts[:n])) for n, text in enumerate(texts) if not text]
    parts = [part for part in (whole.part(0, at), whole.part(at)) if part.n_characters]
    held_out = sum(place >= at for place in before) if at < total else 0
    assert [part.n_skipped for part in parts] == [len(before) - held_out, held_out][: len(parts)]


def test_empty_documents_at_the_head_are_none_of_dev(tmp_path):
    path = lines(tmp_path / "a.jsonl", [""] * 50 + ["ab"] * 20 + [" "])
    parts = read_parts(config(text=path, skip_empty=True))
    assert {name: part.n_skipped for name, part in parts.items()} == {"train": 50, "dev": 1}


def test_the_hash_hangs_on_the_text_and_its_documents_and_not_on_how_they_are_kept(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\n")
    same = [measure(str(tmp_path / "a.txt")).sha256, measure(lines(tmp_path / "b.jsonl", ["one\n"])).sha256]
    assert len({*same}) == 1
    others = [["one"], ["one\n", "x"], ["on", "e\n"]]
    hashes = {measure(lines(tmp_path / "c.jsonl", texts)).sha256 for texts in others}
    assert len(hashes) == 3
    assert same[0] not in hashes


def test_a_field_of_no_file_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("some text, and more of it")
    lines(tmp_path / "b.jsonl", ["other text"])
    with pytest.raises(ConfigError, match=r"data.field='body' names a field of JSON objects, but no text .*jsonl"):
        read_parts(config(text=str(tmp_path / "a.txt"), field="body"))
    parts = read_parts(config(text=str(tmp_path / "a.txt"), dev_text=str(tmp_path / "b.jsonl"), field="text"))
    assert documents(parts["dev"]) == ["other text"]


def test_too_short_to_hold_anything_out(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(DataError, match=r"data.dev_share=0.1 of 1 characters.*data.dev_text"):
        read_parts(config(text=str(tmp_path / "a.txt")))


def test_a_text_that_changed_since_it_was_measured_is_refused(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("some text")
    part = measure(str(path)).part()
    path.write_text("some other text")
    with pytest.raises(DataError, match=r"a.txt changed while it was read"):
        list(part.pieces())


def test_a_folder_that_got_another_file_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("some text")
    part = measure(str(tmp_path)).part()
    (tmp_path / "b.txt").write_text("more")
    with pytest.raises(DataError, match=r"b.txt changed while it was read"):
        list(part.pieces())
