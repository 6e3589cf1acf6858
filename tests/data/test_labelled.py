"""Labelled text: what is read exactly, and what every mistake in a file is answered with."""

import gzip
import json

import pytest

from glassformer.base.errors import ConfigError, DataError
from glassformer.data.config import DataConfig
from glassformer.data.dataset import load_pairs
from glassformer.data.labelled import read_labelled, refuse_one_class
from glassformer.data.pairs import Loaded, Pair
from glassformer.data.rows import Columns
from glassformer.data.tokenizer import Labels

TWO = [Pair("a b", "1"), Pair("c", "0")]


READ = {
    "text, TAB, label": ("a.tsv", b"a b\t1\nc\t0\n", Columns()),
    "columns by number": ("a.tsv", b"x\t1\ta b\ny\t0\tc\n", Columns("3", "2")),
    "columns by name": ("a.tsv", b"id\tclass\tsentence\nx\t1\ta b\ny\t0\tc\n", Columns("sentence", "class")),
    "a header, columns by number": ("a.tsv", b"class\tsentence\n1\ta b\n0\tc\n", Columns("2", "1", header=True)),
    "one by name, one by number": ("a.tsv", b"class\tsentence\n1\ta b\n0\tc\n", Columns("sentence", "1")),
    "JSON": ("a.jsonl", b'{"text": "a b", "label": "1"}\n{"label": 0, "text": "c", "id": 7}\n', Columns()),
    "JSON, other fields": ("a.jsonl", b'{"q": "a b", "y": 1}\n{"y": 0, "q": "c"}\n', Columns("q", "y")),
    "JSON lines, their longest name": ("a.jsonlines", b'{"text": "a b", "label": 1}\n{"text": "c", "label": 0}',
        Columns()),
    "JSON lines in any file": ("a.txt", b'{"q": "a b", "y": 1}\n{"y": 0, "q": "c"}\n', Columns("q", "y")),
    "a JSON array": ("a.json", b'[{"q": {"s": "a b"}, "y": 1},\n {"y": 0, "q": {"s": "c"}}]', Columns("q.s", "y")),
    "a JSON array, gzip": ("a.json.gz", gzip.compress(b'[{"text":"a b","label":1},{"label":0,"text":"c"}]'),
        Columns(json=True)),
    "CSV": ("a.csv", b'id,text,label\n7,"a b",1\n8,c,0\n', Columns("text", "label")),
    "JSON, gzip": ("a.JSONL.gz", gzip.compress(b'{"text": "a b", "label": 1}\n{"text": "c", "label": 0}'), Columns()),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_every_form_reads_the_same(file, name):
    path, content, columns = READ[name]
    assert read_labelled(file(path, content), columns) == Loaded(TWO, 0)


def test_text_is_kept_as_it_is(file):
    text = ' \u2028 "quoted" {x} \\t LABEL:fine '
    assert read_labelled(file("a.tsv", f"{text}\tx\n".encode())).pairs == [Pair(text, "x")]
    line = json.dumps({"text": text, "label": "x y"})
    assert read_labelled(file("a.jsonl", line.encode())).pairs == [Pair(text, "x y")]


ERRORS = {
    "no TAB": ("a.tsv", b"a\t1\nb 0\n", Columns(), ["FILE:2: a line must be text, TAB, label", "has 1 column: 'b 0'"]),
    "two TABs": ("a.tsv", b"a\tb\t1\n", Columns(), ["FILE:1:", "has 3 columns", "data.text_column"]),
    "a column short": ("a.tsv", b"x\ta\t1\ny\tb\n", Columns("2", "3"),
        ["FILE:2: a line must have 3 columns", "has 2"]),
    "no such column": ("a.tsv", b"text\tlabel\na\t1\n", Columns("texts", "label"), ["FILE:1:", "'texts'", "'text'?"]),
    "no such number": ("a.tsv", b"a\tb\nx\t1\n", Columns("1", "3", True), ["data.label_column is 3", "'a', 'b'"]),
    "beyond all lines": ("a.tsv", b"a\t1\nb\t0\n", Columns(None, "3"),
        ["FILE:1: data.label_column is 3, but the first line has 2 columns, counted from 1: 'a', '1'."]),
    "a number of many digits": ("a.tsv", b"a\t1\n", Columns("9" * 5000), ["FILE:1: data.text_column is '999"]),
    "column 0": ("a.tsv", b"a\t1\n", Columns("0"), ["data.text_column is 0", "counted from 1"]),
    "one column twice": ("a.tsv", b"a\t1\n", Columns("2"), ["both are column 2"]),
    "empty text": ("a.tsv", b"a\t1\n \t0\n", Columns(), ["FILE:2: the text is empty", "data.skip_empty = true"]),
    "empty label": ("a.tsv", b"a\t\n", Columns(), ["FILE:1: the label is empty"]),
    "a label with a space": ("a.tsv", b"a\t1 \n", Columns(), ["FILE:1: the label '1 '", "white space"]),
    "header alone": ("a.tsv", b"text\tlabel\n", Columns("text", "label"), ["FILE: there is no line"]),
    "bad JSON": ("a.jsonl", b'{"text": "a", "label": 1}\n{"text": \n', Columns(), ["FILE:2:", "not valid JSON"]),
    "an array": ("a.jsonl", b'["a", 1]\n', Columns(), ["FILE:1: a line must be one JSON object"]),
    "too deep": ("a.jsonl", b"[" * 100_000, Columns(), ["FILE:1:", "nested too deep"]),
    "no such field": ("a.jsonl", b'{"txt": "a", "label": 1}', Columns(), ["FILE:1:", "no field 'text'", "'txt'?"]),
    "a fraction": ("a.jsonl", b'{"text": "a", "label": 0.5}', Columns(), ["FILE:1: the field 'label'", "got 0.5"]),
    "a list": ("a.jsonl", b'{"text": "a", "label": [1]}', Columns(), ["'label'", "got [1]", "in quotes"]),
    "null": ("a.jsonl", b'{"text": null, "label": 1}', Columns(), ["FILE:1: the text is empty", "skip_empty = true"]),
    "null in the array's second object": ("a.json", b'[{"text": "a", "label": 1}, {"text": "b", "label": null}]',
        Columns(json=True), ["FILE[2]: the label is empty"]),
    "a truth value and its name": ("a.jsonl", b'{"text": "a", "label": "true"}\n{"text": "b", "label": true}',
        Columns(), ["FILE:2:", "'true' is a truth value here and text in line 1"]),
    "JSON lines by another name": ("a.txt", b'{"text": "a", "label": 1}\n', Columns(),
        ["FILE: this seems to be JSON", "data.text_column and data.label_column", "data.json = true"]),
    "an array that ends too soon": ("a.json", b'[{"text": "a", "label": 1},', Columns(json=True), ["FILE: the array"]),
    "an array of broken objects": ("a.json", b'[{"text": "a", "label": 1}, {"text": }]', Columns(json=True),
        ["FILE[2]:", "not valid JSON"]),
    "no comma in an array": ("a.json", b'[{"a": 1} {"a": 2}]', Columns("a", "a"), ["FILE[2]: an array of JSON"]),
    "CSV with a lonely quote": ("a.csv", b'a,1\nb,"0\n', Columns(), ["FILE:2: this is no row of CSV"]),
    "half a character in a text": ("a.jsonl", b'{"text": "a", "label": 1}\n{"text": "b \\ud83d", "label": 0}',
        Columns(), ["FILE:2: the field 'text'", "character 3 is the lone surrogate U+D83D"]),
    "half a character in a label": ("a.jsonl", b'{"text": "b", "label": "\\udc00"}', Columns(),
        ["FILE:1: the field 'label'", "U+DC00"]),
    "two lines in a label": ("a.jsonl", b'{"text": "a", "label": "x\\ny"}', Columns(), ["FILE:1: a label", "'\\n'"]),
    "a TAB in a label": ("a.jsonl", b'{"text": "a", "label": "x\\ty"}', Columns(), ["'x\\ty' contains '\\t'"]),
    "U+2028 in a label": ("a.tsv", "a\tx\u2028y".encode(), Columns(), ["FILE:1: a label is one line", "Remove it"]),
    "a field twice": ("a.jsonl", b'{"text": "a", "label": 1}\n{"text": "a", "label": 1, "label": 0}', Columns(),
        ["FILE:2:", "key 'label' is given twice", "each key once"]),
    "a number and its digits": ("a.jsonl",
        b'{"text": "a", "label": 0}\n{"text": "b", "label": 1}\n{"text": "c", "label": "0"}', Columns(),
        ["FILE:3: a label must have", "but '0' is text here and a number in line 1", "write both the same way"]),
    "digits and their number": ("a.jsonl", b'{"text": "a", "label": "0"}\n{"text": "b", "label": 0}', Columns(),
        ["FILE:2:", "'0' is a number here and text in line 1"]),
    "empty text in JSON": ("a.jsonl", b'{"text": "", "label": 1}', Columns(), ["FILE:1: the text is empty"]),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_mistakes_in_a_file(file, name):
    path, content, columns, message = ERRORS[name]
    written = file(path, content)
    with pytest.raises((DataError, ConfigError)) as error:
        read_labelled(written, columns)
    for words in message:
        assert words.replace("FILE", str(written)) in str(error.value)
    assert len(str(error.value)) < 500 + len(str(written))


def test_empty_lines_are_left_out_and_counted(file):
    assert read_labelled(file("a.tsv", b"a b\t1\n\t1\n\nc\t0\nd\t \n"), skip_empty=True) == Loaded(TWO, 3)
    with pytest.raises(DataError, match="nothing is left"):
        read_labelled(file("b.tsv", b"\n\n"), skip_empty=True)


def test_a_label_outside_the_set_is_named(file):
    path = file("dev.tsv", b"a\tgood\nb\tgod\n")
    assert len(read_labelled(path, known=["good", "god"]).pairs) == 2
    with pytest.raises(DataError) as error:
        read_labelled(path, known=["good", "bad"])
    for words in (f"{path}:2", "'god'", "training text", "Known: 'bad', 'good'", "Did you mean 'good'?"):
        assert words in str(error.value)


ONE_EACH = b"a\tx\nb\ty\n"
OFTEN = b"a\tx\nb\ty\n" * 5
HEADERS = {
    "usual names": b"sentence\tlabel\n" + ONE_EACH,
    "the label's usual name": b"tweets of 2019\tSentiment\n" + ONE_EACH,
    "the text's usual name": b"Review\tstars\n" + ONE_EACH,
    "unusual names of what is met often": b"Satz\tKlasse\n" + OFTEN,
    "an unusual name above numbers": b"Satz\tKlasse\na\t1\nb\t0\nc\t2\n",
}
NO_HEADERS = {
    "one text a label": ONE_EACH,
    "a rare label among rare ones": b"Satz\tKlasse\n" + OFTEN + b"c\tz\n",
    "a name that is met again": b"question\tclass\nreview\tclass\n" + OFTEN,
    "a rare label further down": OFTEN + b"Satz\tKlasse\n",
    "numbers alone": b"a\t7\nb\t1\nc\t0\nd\t1\n",
    "a name above two numbers": b"a\tx\nb\t1\nc\t0\n",
    "a label met once above others": b"Satz\tKlasse\n" + ONE_EACH * 2,
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_nobody_spoke_of_is_refused(file, name):
    path = file("a.tsv", HEADERS[name])
    with pytest.raises(DataError) as error:
        read_labelled(path)
    for words in (f"{path}:1: the first line seems to name the columns", "header = true if", "header = false if"):
        assert words in str(error.value)
    whole, rest = (read_labelled(path, Columns(header=each)).pairs for each in (False, True))
    assert whole[1:] == rest
    assert len(rest) == HEADERS[name].count(b"\n") - 1


@pytest.mark.parametrize("name", NO_HEADERS)
def test_a_text_is_not_taken_for_a_header(file, name):
    assert len(read_labelled(file("a.tsv", NO_HEADERS[name])).pairs) == NO_HEADERS[name].count(b"\n")


def test_a_first_label_that_no_other_text_has_is_noted(file, caplog):
    caplog.set_level("INFO")
    path = file("a.tsv", b"Satz\tKlasse\n" + ONE_EACH * 2)
    read_labelled(path)
    assert f"{path}:1: only the first line has the label 'Klasse'. If it names the columns, set data" in caplog.text
    caplog.clear()
    read_labelled(path, Columns(header=False))
    for name in ("one text a label", "a rare label among rare ones", "a rare label further down"):
        read_labelled(file("b.tsv", NO_HEADERS[name]))
    assert caplog.text == ""


def test_a_header_of_another_split_is_no_label(file):
    path = file("dev.tsv", b"Satz\tKlasse\na\tx\n")
    with pytest.raises(DataError, match=r"dev\.tsv:1: .* label 'Klasse' .* names the columns, set data\.header = true"):
        read_labelled(path, known=["x", "y"])
    with pytest.raises(DataError, match=r"the label 'Klasse' .* or remove it\. If another column"):
        read_labelled(path, Columns(header=False), known=["x", "y"])


def test_of_very_many_labels_only_their_number_is_said(file):
    with pytest.raises(DataError, match=r"It has 1,000 labels\. .* If another column has the label"):
        read_labelled(file("dev.tsv", b"good\ta whole text\n"), known=[f"text {row}" for row in range(1000)])


def test_one_class_is_refused():
    with pytest.raises(DataError, match=r"t\.tsv: a classifier needs at least two labels, but all 2 lines have 'x'"):
        refuse_one_class("t.tsv", [Pair("a", "x"), Pair("b", "x")])
    refuse_one_class("t.tsv", TWO)


def test_splits_of_a_config(file):
    two, one = str(file("two.tsv", b"a b\t1\nc\t0\n")), str(file("one.tsv", b"a b\t1\n"))
    config = DataConfig(task="labelled", layout="label", train=two, dev=one)
    assert load_pairs(config, "train").pairs == TWO
    assert load_pairs(config, "dev", labels=Labels(["0", "1"])).pairs == TWO[:1]  # one class is enough to be scored
    with pytest.raises(DataError, match=r"one\.tsv:1: the label '1'"):
        load_pairs(config, "dev", labels=Labels(["0", "2"]))
    with pytest.raises(DataError, match="at least two labels"):
        load_pairs(DataConfig(task="labelled", layout="label", train=one), "train")
    with pytest.raises(ConfigError, match=r"no file for the test texts. Set data\.test"):
        load_pairs(config, "test")


@pytest.mark.parametrize("label", ["", " "])
def test_a_label_without_a_name_is_refused(label):
    for make in (lambda: Labels(["x", label]), lambda: Labels.from_json(Labels(["x"]).to_json().replace("x", label))):
        with pytest.raises(DataError, match=r"A label .* be a name, but label \d \(counted from 0\) is ' ?'\. Give it"):
            make()


def test_truth_values_are_labels(file):
    path = file(
        "a.ndjson", b'{"text": "a", "label": true}\n\n{"text": "b", "label": false}\n{"text": "c", "label": null}\n'
    )
    assert read_labelled(path, skip_empty=True) == Loaded([Pair("a", "true"), Pair("b", "false")], 2)


def test_a_quoted_cell_of_csv_goes_over_lines(file):
    path = file("a.csv", b'"one\ntwo, ""three""",x\nfour,y\nfive,z,q\n')
    with pytest.raises(DataError, match=r"a\.csv:4: a line must be text, comma, label, but this one has 3 columns"):
        read_labelled(path)
    path.write_bytes(path.read_bytes().replace(b",q", b""))
    assert read_labelled(path).pairs[0] == Pair('one\ntwo, "three"', "x")
