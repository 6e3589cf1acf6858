"""Running text comes in pieces that are the text when put together; what is no text is named by its byte."""

import gzip
import json
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.base.errors import DataError
from glassformer.data import lines as reading
from glassformer.data.config import TokenizerConfig
from glassformer.data.running import text as module
from glassformer.data.running.text import DocumentPiece, cut, measure, pieces
from glassformer.data.tokenizer import TOKENIZERS
from glassformer.data.tokens.vocabulary import ANYWHERE, WORDS, Cuts

SPACES = " \n\t\r\x0b\x0c\x1c\x85\xa0\u1680\u2003\u2028\u2029\u202f\u3000"
TEXTS = st.text(st.sampled_from("ab'sé9.ÃŸ😀\u0301漢" + SPACES * 2), max_size=60)


def written(path: Path, data: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def small(monkeypatch: pytest.MonkeyPatch, piece: int, longest: int = 1000) -> None:
    monkeypatch.setattr(module, "PIECE", piece)
    monkeypatch.setattr(reading, "CHUNK", piece)
    monkeypatch.setattr(module, "LONGEST_RUN", longest)


def whole(found: Sequence[DocumentPiece]) -> list[str]:
    """The documents, put together again."""
    documents, text = [], ""
    for piece in found:
        text += piece.text
        if piece.ends:
            documents.append(text)
            text = ""
    assert not text
    return documents


@given(TEXTS, st.integers(1, 9), st.booleans())
def test_pieces_are_the_text_and_are_cut_where_no_token_is(text, size, anywhere):
    with pytest.MonkeyPatch.context() as patch:
        small(patch, size)
        chunks = [text[first : first + 7] for first in range(0, len(text), 7)]
        found = list(cut(chunks, "here", Cuts(anywhere=anywhere)))
    assert "".join(piece.text for piece in found) == text
    assert [piece.ends for piece in found] == [False] * (len(found) - 1) + [True]
    for piece, following in pairwise(found):
        assert piece.text
        if not anywhere:
            assert not piece.text[-1].isspace()
            assert following.text[0] in " \n\t"


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@given(text=TEXTS.filter(str.strip), size=st.integers(1, 9))
def test_a_file_gives_its_text_wherever_the_reading_is_cut(packed, text, size, tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "a.txt"
    written(path, gzip.compress(text.encode()) if packed else text)
    with pytest.MonkeyPatch.context() as patch:
        small(patch, size)
        assert whole(list(pieces(path))) == [text.replace("\r\n", "\n")]


def test_mark_and_line_ends(tmp_path):
    path = written(tmp_path / "a.txt", b"\xef\xbb\xbfone\r\ntwo\rthree\n\xef\xbb\xbf")
    assert whole(list(pieces(path))) == ["one\ntwo\rthree\n\ufeff"]


def test_a_folder_is_read_in_order_and_each_form_by_its_name(tmp_path):
    written(tmp_path / "b.txt", "second")
    written(tmp_path / "a" / "z.txt.gz", gzip.compress(b"first"))
    written(tmp_path / "c.jsonl", '{"text": "third\\r\\n"}\n{"text": "fourth", "n": 1}\n')
    written(tmp_path / "d.jsonl.gz", gzip.compress(b'{"text": "fifth"}'))
    written(tmp_path / ".hidden", b"\xff")
    found = list(pieces(tmp_path))
    assert whole(found) == ["first", "second", "third\n", "fourth", "fifth"]
    assert [piece.place for piece in found] == [
        *(str(tmp_path / name) for name in ("a/z.txt.gz", "b.txt", "c.jsonl:1", "c.jsonl:2", "d.jsonl.gz:1"))
    ]


@pytest.mark.parametrize("name", ["a.JSONL", "a.ndjson", "a.NDJSON.GZ", "a.ndjson.gz", "a.Jsonl.Gz"])
def test_json_lines_are_known_by_each_of_their_names(name, tmp_path):
    lines = b'{"text": "one"}\n{"text": "two"}\n'
    path = written(tmp_path / name, gzip.compress(lines) if name.lower().endswith(".gz") else lines)
    assert whole(list(pieces(path))) == ["one", "two"]


def test_a_field_is_named(tmp_path):
    path = written(tmp_path / "a.jsonl", '{"body": "x"}\n{"body": "y"}\n')
    assert whole(list(pieces(path, "body"))) == ["x", "y"]


def test_without_a_path_it_is_the_documentation_of_python():
    from pydoc_data.topics import topics

    assert whole(list(pieces(None))) == [topics[name] for name in sorted(topics)]


def test_an_empty_document_is_refused_or_left_out_and_seen(tmp_path):
    path = written(tmp_path / "a.jsonl", '{"text": "x"}\n{"text": " \\n"}\n{"text": "y"}\n')
    with pytest.raises(DataError, match=r"a.jsonl:2: the text is empty.*data.skip_empty = true"):
        list(pieces(path))
    found = list(pieces(path, skip_empty=True))
    assert [piece.text for piece in found] == ["x", "", "y"]
    assert [piece.ends for piece in found] == [True, False, True]


@pytest.mark.parametrize("cuts", [WORDS, ANYWHERE], ids=["words", "anywhere"])
def test_white_space_of_several_pieces_is_an_empty_document_too(cuts, tmp_path, monkeypatch):
    small(monkeypatch, 8, longest=100)
    path = tmp_path / "a"
    for name, text in (("1", "x"), ("2", 50 * " "), ("3", 50 * "\n" + "y")):
        written(path / name, text)
    with pytest.raises(DataError, match=r"a/2: the text is empty"):
        list(pieces(path, cuts=cuts))
    assert whole([each for each in pieces(path, skip_empty=True, cuts=cuts) if each.text]) == ["x", 50 * "\n" + "y"]
    measured = measure(str(path), skip_empty=True)
    assert (measured.ends.tolist(), measured.skips.tolist()) == ([1, 52], [1])
    assert "".join(measured.part().texts(cuts)) == "x" + 50 * "\n" + "y"


def test_no_end_of_white_space_is_waited_for(tmp_path, monkeypatch):
    small(monkeypatch, 8, longest=100)
    path = written(tmp_path / "a.txt", 150 * " " + "x")
    with pytest.raises(DataError, match=r"a.txt: the text begins with more than 100 characters of white space"):
        list(pieces(path, cuts=ANYWHERE))
    with pytest.raises(DataError, match=r"a.txt: this tokenizer needs words .* have no end of a word"):
        list(pieces(path, cuts=WORDS))


@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf"], ids=["nothing", "a mark alone"])
@pytest.mark.parametrize("name", ["b.txt", "b.jsonl", "b.ndjson.gz"])
def test_an_empty_file_of_a_folder_is_refused_or_left_out_and_seen(name, data, tmp_path):
    written(tmp_path / "a.txt", "text")
    written(tmp_path / name, gzip.compress(data) if name.endswith(".gz") else data)
    with pytest.raises(DataError, match=f"{name}: the text is empty"):
        list(pieces(tmp_path))
    assert [piece.text for piece in pieces(tmp_path, skip_empty=True)] == ["text", ""]


BAD = {
    "empty": (b"", "the text is empty"),
    "a mark alone": (b"\xef\xbb\xbf", "the text is empty"),
    "NUL": (b"abc\0def", "byte 4 is NUL.*binary or UTF-16"),
    "UTF-16": ("text".encode("utf-16"), "text must be UTF-8.* UTF-16.*iconv -f utf-16"),
    "Latin-1": ("schön".encode("latin-1"), r"byte 4 \(0xf6\) is not valid UTF-8.*iconv"),
    "one bad byte far in": (b"caf\xc3\xa9 " * 40 + b"\xe9t\xe9", r"byte 241 \(0xe9\)"),
    "a character that ends too soon": (b"abc \xf0\x9f\x98", r"byte 5 \(0xf0\)"),
    "a bad byte behind a mark": (b"\xef\xbb\xbfab\xff", r"byte 6 \(0xff\)"),
    "half a gzip file": (gzip.compress(b"text" * 99)[:-9], "the gzip file is damaged"),
}


@pytest.mark.parametrize("size", [4, 7, 2**20])
@pytest.mark.parametrize("name", BAD)
def test_what_is_no_text_is_named(name, size, tmp_path, monkeypatch):
    small(monkeypatch, size)
    data, message = BAD[name]
    path = written(tmp_path / "a.txt", data)
    with pytest.raises(DataError, match=f"a.txt: {message}"):
        list(pieces(path))


LINES = '{"text": "a"}\n\n{"text": null}\n{"text": "b", "n": {"t": "c"}}\n'
JSON_FILES = {
    "json": ("a.json", LINES.encode()),
    "gzip": ("a.json.gz", gzip.compress(LINES.encode())),
    "mark": ("a.txt", b"\xef\xbb\xbf" + LINES.encode()),
    "no ending": ("part-00000", LINES.encode()),
    "array": ("a.json", b'[\n  {\n    "text": "a"\n  }, {"text": ""}, {"text": null}, {"text": "b"}]\n'),
    "folder": ("some/sub/a.txt", LINES.encode()),
}


@pytest.mark.parametrize("name", JSON_FILES)
def test_json_is_read_by_its_content(name, tmp_path):
    path = tmp_path / JSON_FILES[name][0]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(JSON_FILES[name][1])
    whole = tmp_path / JSON_FILES[name][0].split("/")[0]
    with pytest.raises(DataError, match=r"this seems to be JSON .*Set data\.field .*data\.json = false"):
        list(pieces(whole))
    for how in ({"field": "text"}, {"json": True}):
        found = list(pieces(whole, skip_empty=True, **how))
        assert [piece.text for piece in found if piece.ends] == ["a", "b"]
        assert sum(not piece.ends for piece in found) == 2  # skipped and counted
    if name not in ("gzip", "mark"):
        assert "".join(piece.text for piece in pieces(whole, json=False)) == path.read_text("utf-8")


def test_an_array_is_read_piece_by_piece(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "CHUNK", 3)
    texts = [f'"}}],{number} \u00e9' for number in range(20)]
    path = written(tmp_path / "a.json", json.dumps([{"text": text} for text in texts], indent=1))
    assert [piece.text for piece in pieces(path, "text")] == texts


BAD_LINES = {
    "no JSON": ("text", "a.jsonl:2: a line must be one JSON object"),
    "no object": ("[1]", "a.jsonl:2: a line must be one JSON object"),
    "no such field": ('{"txt": "x"}', "a.jsonl:2: the object has no field 'text'. Known: 'txt'.*data.field"),
    "no text in it": ('{"text": 7}', "a.jsonl:2: the field 'text' must be text; got 7"),
    "half a character": ('{"text": "\\ud83d"}', "a.jsonl:2: the field 'text':.*lone surrogate"),
    "NUL": ('{"text": "a\\u0000"}', "a.jsonl:2: the field 'text' holds NUL"),
    "an empty line": ("", "a.jsonl:2: the text is empty.*data.skip_empty = true"),
    "null": ('{"text": null}', "a.jsonl:2: the text is empty.*data.skip_empty = true"),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_bad_line_is_named(name, tmp_path):
    line, message = BAD_LINES[name]
    path = written(tmp_path / "a.jsonl", f'{{"text": "x"}}\n{line}\n')
    with pytest.raises(DataError, match=message):
        list(pieces(path))


def test_text_without_white_space_is_refused_where_a_tokenizer_needs_it(tmp_path, monkeypatch):
    small(monkeypatch, 10, longest=50)
    path = written(tmp_path / "a.txt", "one " + "x" * 500)
    with pytest.raises(DataError, match=r"needs words with white space.*tokenizer.kind to 'character'"):
        list(pieces(path))
    found = list(pieces(path, cuts=ANYWHERE))
    assert whole(found) == ["one " + "x" * 500]
    assert max(len(piece.text) for piece in found) <= 20


def test_a_long_line_comes_in_small_pieces(tmp_path, monkeypatch):
    small(monkeypatch, 64)
    path = written(tmp_path / "a.txt", "word and " * 1000)
    assert max(len(piece.text) for piece in pieces(path)) <= 128


@pytest.mark.parametrize("size", [100, 10], ids=["longer", "as long"])
def test_a_file_that_changes_while_it_is_read_is_noticed(size, tmp_path, monkeypatch):
    small(monkeypatch, 4)
    path = written(tmp_path / "a.txt", "one two th")
    found = pieces(path)
    next(found)
    path.write_text("x" * size)
    os.utime(path, ns=(1, 1))
    with pytest.raises(DataError, match=r"a.txt changed while it was read"):
        list(found)


def test_no_file_a_pipe_an_empty_folder_and_a_link_that_leads_back(tmp_path):
    with pytest.raises(DataError, match="there is no such file"):
        list(pieces(tmp_path / "gone.txt"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="pipe or a device"):
        list(pieces(tmp_path / "pipe"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="has no file to read"):
        list(pieces(tmp_path / "empty"))
    (tmp_path / "around").mkdir()
    (tmp_path / "around" / "back").symlink_to(tmp_path / "around")
    with pytest.raises(DataError, match="leads back"):
        list(pieces(tmp_path / "around"))


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_naughty_strings_go_through(kind, tmp_path, monkeypatch, shared):
    small(monkeypatch, 500, longest=10_000)
    naughty = shared("blns/blns.txt")
    text = naughty.read_bytes().decode()
    (document,) = whole(list(pieces(naughty)))
    assert document == text.replace("\r\n", "\n")
    strings = [it for it in json.loads(naughty.with_suffix(".json").read_text()) if it.strip() and "\0" not in it]
    lines = written(tmp_path / "a.jsonl", "".join(json.dumps({"text": each}) + "\n" for each in strings))
    assert whole(list(pieces(lines))) == [each.replace("\r\n", "\n") for each in strings]
    tokenizer = TOKENIZERS[kind].train((it.text for it in pieces(naughty)), TokenizerConfig(kind=kind, vocab_size=600))
    by_piece = [id for piece in pieces(naughty) for id in tokenizer.encode(piece.text)]
    assert by_piece == tokenizer.encode(document)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if kind == "unigram" else ()) for kind in TOKENIZERS]
)
def test_many_languages_go_through(kind, monkeypatch, shared):
    small(monkeypatch, 3000, longest=100_000)
    languages = shared("udhr")
    found = list(pieces(languages))
    assert whole(found) == [path.read_text("utf-8-sig") for path in sorted(languages.iterdir())]
    tokenizer = TOKENIZERS[kind].train((piece.text for piece in found), TokenizerConfig(kind=kind, vocab_size=600))
    rows = [tokenizer.encode(piece.text) for piece in found]
    by_document: list[list[int]] = [[]]
    for row, piece in zip(rows, found, strict=True):
        by_document[-1] += row
        if piece.ends:
            by_document.append([])
    assert by_document[:-1] == [tokenizer.encode(text) for text in whole(found)]
