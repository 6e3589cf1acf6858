"""Files of pairs: what is read exactly, and what every mistake in a file is answered with."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.base.errors import ConfigError, DataError
from glassformer.data.lines import read_lines
from glassformer.data.pairs import Loaded, Pair, read_pairs
from glassformer.data.rows import Columns


def test_parallel_files(file):
    source, target = file("a.en", b"one\ntwo  words\n"), file("a.de", "eins\nzwei Wörter\n".encode())
    assert read_pairs(source, target) == Loaded([Pair("one", "eins"), Pair("two  words", "zwei Wörter")], 0)
    assert read_pairs(str(source), str(target)).pairs[0] == Pair("one", "eins")


def test_tsv(file):
    path = file("a.tsv", b"one\teins\n two \t zwei \n")
    assert read_pairs(path) == Loaded([Pair("one", "eins"), Pair(" two ", " zwei ")], 0)


@pytest.mark.parametrize("content", [
    b"a b\tc\nd\te\n",
    b"a b\tc\nd\te",  # no line end at the end
    b"a b\tc\r\nd\te\r\n",  # CRLF
    b"\xef\xbb\xbfa b\tc\nd\te\n",  # byte order mark
    b"\xef\xbb\xbfa b\tc\r\nd\te",
    gzip.compress(b"a b\tc\nd\te\n", mtime=0),
    gzip.compress(b"\xef\xbb\xbfa b\tc\r\nd\te\r\n", mtime=0),
])  # fmt: skip
@pytest.mark.parametrize("name", ["plain.tsv", "named.gz"])  # what a file is stands in it, not in its name
def test_line_ends_byte_order_mark_and_gzip(file, name, content):
    assert read_pairs(file(name, content)).pairs == [Pair("a b", "c"), Pair("d", "e")]


def test_only_lf_ends_a_line(file):
    """`str.splitlines` would also cut at these, and the two sides would drift apart."""
    line = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\rh"
    assert read_lines(file("odd", (line + "\nnext\n").encode())) == [line, "next"]


def test_a_second_byte_order_mark_is_text(file):
    assert read_lines(file("a", b"\xef\xbb\xbf\xef\xbb\xbfa\n\xef\xbb\xbfb\n")) == ["\ufeffa", "\ufeffb"]


@given(lines=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0\ufeff"), min_size=1), min_size=1))
def test_any_lines_come_back(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("lines") / "file"
    path.write_bytes("\n".join(lines).encode() + b"\n")
    assert read_lines(path) == lines
    path.write_bytes(gzip.compress("\r\n".join(lines).encode()))
    assert read_lines(path) == lines


TSV_ERRORS = {
    "empty file": (b"", ["FILE: the file is empty", "at least one line"]),
    "empty after the byte order mark": (b"\xef\xbb\xbf", ["FILE: the file is empty"]),
    "empty gzip": (gzip.compress(b"", mtime=0), ["FILE: the file is empty"]),
    "damaged gzip": (gzip.compress(b"a\tb\n" * 100, mtime=0)[:-12], ["FILE: the gzip file is damaged", "again"]),
    "damaged gzip body": (gzip.compress(b"a\tb\n", mtime=0)[:12] + b"\xff" * 20, ["FILE: the gzip file is damaged"]),
    "latin-1": ("a\tb\nc\tdé\n".encode("latin-1"), ["FILE:2: byte 4", "0xe9", "not valid UTF-8", "iconv"]),
    "half a character": (b"a\tb\nc\td\ne\t\xe2\x82\n", ["FILE:3: byte 3", "0xe2"]),
    "utf-16": ("a\tb\n".encode("utf-16"), ["FILE: text must be UTF-8", "UTF-16", "iconv -f utf-16 -t utf-8"]),
    "binary": (b"a\tb\nPNG\0\1\2", ["FILE:2: byte 4", "NUL", "binary"]),
    "no TAB": (b"a\tb\nno tab here\n", ["FILE:2: a line must be source, TAB, target", "has 1 column: 'no tab here'"]),
    "two TABs": (
        b"a\tb\nc\td\te\n",
        ["FILE:2:", "has 3 columns: 'c\\td\\te'", "one TAB", "data.target_field", "cut -f1,2 OLD > NEW"],
    ),
    "empty line": (b"a\tb\n\nc\td\n", ["FILE:2: the source side is empty", "data.skip_empty = true"]),
    "empty source": (b"a\tb\n  \td\n", ["FILE:2: the source side is empty"]),
    "empty target": (b"a\tb\nc\t \n", ["FILE:2: the target side is empty"]),
    "blank last line": (b"a\tb\n\n", ["FILE:2: the source side is empty"]),
}


@pytest.mark.parametrize("name", TSV_ERRORS)
def test_mistakes_in_a_tsv_file(file, name):
    content, message = TSV_ERRORS[name]
    path = file("some.tsv", content)
    with pytest.raises(DataError) as error:
        read_pairs(path)
    for words in message:
        assert words.replace("FILE", str(path)) in str(error.value)


def test_a_long_line_is_not_shown_whole(file):
    with pytest.raises(DataError) as error:
        read_pairs(file("a.tsv", b"x" * 100_000))
    assert len(str(error.value)) < 500


def test_unequal_line_counts_name_both(file):
    source, target = file("a.en", b"a\nb\nc\n"), file("a.de", b"a\nb\n")
    with pytest.raises(DataError) as error:
        read_pairs(source, target)
    for words in (f"{source} has 3 lines", f"{target} has 2", "Align"):
        assert words in str(error.value)


def test_an_empty_line_of_parallel_files_names_the_file_it_stands_in(file):
    source, target = file("a.en", b"a\nb\nc\n"), file("a.de", b"a\n\t\nc\n")
    with pytest.raises(DataError) as error:
        read_pairs(source, target)
    assert f"{target}:2: the target side is empty" in str(error.value)
    assert "data.skip_empty = true" in str(error.value)


def test_skip_empty_leaves_pairs_out_on_both_sides_and_counts(file):
    source, target = file("a.en", b"a\n\nc\nd\n \n"), file("a.de", b"A\nB\n\nD\n\n")
    assert read_pairs(source, target, skip_empty=True) == Loaded([Pair("a", "A"), Pair("d", "D")], 3)
    tsv = file("a.tsv", b"a\tA\n\n\tx\nd\tD\n")
    assert read_pairs(tsv, skip_empty=True) == Loaded([Pair("a", "A"), Pair("d", "D")], 2)


def test_skip_empty_still_refuses_a_missing_tab(file):
    with pytest.raises(DataError, match="has 1 column: 'b'"):
        read_pairs(file("a.tsv", b"a\tA\nb\n"), skip_empty=True)


def test_nothing_left_is_an_error(file):
    with pytest.raises(DataError, match="no line with a source and a target, so nothing is left"):
        read_pairs(file("a.tsv", b"\n\n\n"), skip_empty=True)


def test_a_missing_file_and_a_folder(tmp_path, file):
    with pytest.raises(DataError) as error:
        read_pairs(tmp_path / "none.tsv")
    assert f"{tmp_path / 'none.tsv'}: there is no such file" in str(error.value)
    with pytest.raises(DataError) as error:
        read_pairs(tmp_path)
    assert f"{tmp_path}: the file cannot be read (Is a directory)" in str(error.value)
    with pytest.raises(DataError, match=r"b\.de: there is no such file"):
        read_pairs(file("b.en", b"a\n"), tmp_path / "b.de")


NESTED = b'{"id": 1, "translation": {"en": "Go.", "de": "Geh."}}\n{"translation": {"de": "Hallo.", "en": "Hi."}}\n'
LANGUAGES = Columns("translation.en", "translation.de")
FORMS = {
    "nested JSON lines": ("a.jsonl", NESTED, LANGUAGES),
    "a JSON array": ("a.json", b"[" + NESTED.strip().replace(b"\n", b", ") + b"]", LANGUAGES),
    "usual fields": (
        "a.ndjson",
        b'{"source": "Go.", "target": "Geh."}\n{"target": "Hallo.", "source": "Hi."}',
        Columns(),
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_columns_and_fields(file, name):
    path, content, columns = FORMS[name]
    loaded = read_pairs(file(path, content), columns=columns)
    assert loaded == Loaded([Pair("Go.", "Geh."), Pair("Hi.", "Hallo.")], 0)


def test_parallel_files_of_json(file):
    source, target = file("a.json", b'{"s": "a"}\n\n{"s": "b"}\n'), file("b.txt", b"A\nB\nC\n")
    assert read_pairs(source, target, columns=Columns("s"), skip_empty=True) == Loaded(
        [Pair("a", "A"), Pair("b", "C")], 1
    )
    with pytest.raises(DataError, match=r"a\.json: this seems to be JSON .* Set data\.source_field"):
        read_pairs(source, target)
    with pytest.raises(ConfigError, match=r"data\.target_field='s' chooses a column .*b\.txt .* one text on each line"):
        read_pairs(source, target, columns=Columns("s", "s"))


@pytest.mark.parametrize("first", [
    *("source\ttarget", "en\tde", "en_GB\tfr_FR", "Input Text\toutput", "question\tanswer_1"),
    *("Deutsch\tEnglish", "eng\tdeu", "word\tphonemes", "frage\tantwort"),
    *("text_en\ttext_de", '"source"\t"target"', "# source\ttarget", "User:\tAssistant:", "Vietnamese\tLatin"),
    *("premise\thypothesis", "source (en)\ttarget (de)", "lemma\tform", "wrong\tcorrection", "原文\t译文"),
])  # fmt: skip
def test_a_header_that_nobody_spoke_of(file, first):
    path = file("a.tsv", f"{first}\na b\tb a\n".encode())
    with pytest.raises(DataError, match=r"a\.tsv:1: the first line seems to name the columns.*data\.header = true"):
        read_pairs(path)
    assert len(read_pairs(path, columns=Columns(header=False)).pairs) == 2
    assert read_pairs(path, columns=Columns(header=True)).pairs == [Pair("a b", "b a")]
    sides = [file(f"b.{place}", f"{side}\nc\n".encode()) for place, side in enumerate(first.split("\t"))]
    with pytest.raises(DataError, match=r"b\.0:1: the first line seems"):
        read_pairs(*sides)
    assert read_pairs(*sides, columns=Columns(header=True)).pairs == [Pair("c", "c")]


@pytest.mark.parametrize(
    "first", ["the source\tdie Quelle", "question ?\tanswer", "en\ten", "target\tgoal", "a\tb", "my name is Latin\tde"]
)
def test_a_pair_is_no_header(file, first):
    assert len(read_pairs(file("a.tsv", f"{first}\nx\ty\n".encode())).pairs) == 2
    assert len(read_pairs(file("b.tsv", f"x\ty\n{first}\nsource\ttarget".encode())).pairs) == 3


def test_json_is_not_learned_as_pairs(file):
    with pytest.raises(DataError, match=r"this seems to be JSON .* Set data\.source_field and data\.target_field"):
        read_pairs(file("a.tsv", NESTED))
    with pytest.raises(DataError, match=r"no field 'source'.*'translation\.de', 'translation\.en'"):
        read_pairs(file("b.tsv", NESTED), columns=Columns(json=True))
    prose = b'{"name": "Blue Spice"}\tBlue Spice is a pub.\n'
    assert read_pairs(file("c.tsv", prose)).pairs == [Pair('{"name": "Blue Spice"}', "Blue Spice is a pub.")]


def test_null_in_place_of_an_object_or_of_a_nested_one_is_empty(file):
    lines = NESTED + b'null\n{"translation": null}\n'
    for name, content in {"a.jsonl": lines, "a.json": b"[" + lines.strip().replace(b"\n", b",") + b"]"}.items():
        path = file(name, content)
        assert read_pairs(path, columns=LANGUAGES, skip_empty=True).skipped == 2
        with pytest.raises(DataError, match=r"(:3|\[3\]): the source side is empty.*data\.skip_empty = true"):
            read_pairs(path, columns=LANGUAGES)


@pytest.mark.parametrize(
    ("head", "message"), [(b"PK\x03\x04", "zip archive"), (b"PAR1", "parquet.*jsonl"), (b"BZh9", "bunzip2")]
)
def test_other_formats_are_named(file, head, message):
    with pytest.raises(DataError, match=message):
        read_pairs(file("a.tsv", head + b"a\tb\n"))


def test_multi30k(shared):
    loaded = read_pairs(shared("multi30k/val.en.gz"), shared("multi30k/val.de.gz"))
    assert len(loaded.pairs) == 1_014
    assert loaded.skipped == 0
    assert loaded.pairs[0].source.startswith("A group of men are loading cotton")
