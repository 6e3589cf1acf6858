"""JSON by another name than .jsonl: told from plain text by its first lines, in files and on standard input."""

import json
import random

import pytest

from glassformer.base.errors import DataError
from glassformer.data.json_lines import seems_json
from glassformer.data.labelled import read_labelled
from glassformer.data.pairs import read_pairs
from glassformer.data.rows import Columns
from glassformer.data.running.text import pieces
from glassformer.data.trajectories.episodes import read_episodes

OBJECT = '{"text": "a b", "label": 1}\n'
JSON = {
    "objects": OBJECT * 2,
    "an object of many lines": '{\n "text": "a"\n}\n',
    "an array of objects": f"[\n{OBJECT.strip()},\n{OBJECT}]\n",
    "{} first": "{}\n{}\n" + OBJECT,
    "null first": "null\n" + OBJECT,
    "a comment first": "# made by hand\n// in spring\n\n" + OBJECT,
    "arrays": '["a b", "c"]\n["d", "e"]\n',
    "arrays of numbers": "[1, 2]\n[3]\n[]\n",
    "an array behind null": 'null\n["a", 1]\n["b", 0]\n',
    "arrays and objects": '["a", 1]\n{"text": "a"}\n',
    "one array of texts": '["a b c", "d e f"]',
    "one array of texts on many lines": '[\n  "a b c",\n  "d e f"\n]\n',
    "one array of pairs": '[["a", "b"], ["c", "d"]]\n',
    "texts in quotes": '"one line"\n' * 20,
    "two texts in quotes with an escape": '"one line"\n"the next \\u00e9"\n',
}
TEXT = {
    "prose": "It was a day.\n" + OBJECT,
    "a footnote": "[1]\nThe first note.\n",
    "a text that cites": "[1] Doe, A book.\n[2] Roe, Another.\n",
    "a quoted title": '"The End"\n\nIt was a day.\n',
    "dialogue": '"Yes," he said.\n"No."\n' * 20,
    "quoted lines, a few": '"Yes."\n"No."\n' * 5,
    "words in brackets": "[music]\n[applause]\n" * 10,
    "a list, and what it is": '["a", "b"] is a list.\n["c"] is one, too.\n',
    "one list of numbers": "[1, 2, 3]\n",
    "arrays side by side": "[3, 1]\t[1, 3]\n[2]\t[2]\n",
    "wiki": "[[File:x.png]]\n= Title =\n",
    "a heading": "# Title\n\nText.\n",
    "braces": "{a} b\n{c} d\n",
    "set braces": "{}\nA text.\n",
    "an object in prose": '{"name": "Blue Spice"} is a pub.\n',
    "python": "# a comment\n[x for x in y]\n",
    "many brackets": "[" * 100_000,
    "a long number": "[" + "9" * 5000 + "]\n",
    "nothing but null": "null\nnull\n",
}


@pytest.mark.parametrize("name", JSON)
def test_json_is_refused_with_the_way_out_and_is_text_if_that_is_said(file, name):
    path = file("a.txt", JSON[name].encode())
    said = r"a\.txt: this seems to be JSON .* Set data\.field .*data\.json = false if it is meant as plain text"
    with pytest.raises(DataError, match=said):
        list(pieces(path))
    assert "".join(piece.text for piece in pieces(path, json=False)) == JSON[name]
    for read, setting in ((read_pairs, "source_field"), (read_labelled, "text_column")):
        with pytest.raises(DataError, match=rf"this seems to be JSON .* Set data\.{setting}"):
            read(path)
    with pytest.raises(DataError, match="episodes are read from a table"):
        read_episodes(path)


@pytest.mark.parametrize("name", TEXT)
def test_text_is_no_json(file, name):
    assert "".join(piece.text for piece in pieces(file("a.txt", TEXT[name].encode()))) == TEXT[name]


@pytest.mark.parametrize("name", [each for each in JSON if "array" in each or "quotes" in each])
def test_what_holds_no_objects_says_what_makes_them(file, name):
    path = file("a.txt", JSON[name].encode())
    if "of objects" not in name:
        with pytest.raises(DataError, match=r"brackets and quotes\. Write objects: jq -c '.*text: \."):
            read_labelled(path)
        with pytest.raises(DataError, match=r"must be one JSON object, but this one|:1: the text is empty"):
            read_labelled(path, Columns("text", "label"))


def test_a_large_file_is_told_by_its_beginning(file):
    draw = random.Random(1)
    texts = ["".join(draw.choices('ab "\n', k=50)) for _ in range(5000)]
    for large in (json.dumps(texts), json.dumps([[each, each] for each in texts], indent=1)):
        assert len(large) > 2**17
        with pytest.raises(DataError, match="this seems to be JSON"):
            list(pieces(file("a.txt", large.encode())))
    assert seems_json('["Well", "' + "so he said" * 10_000) == ""
    assert seems_json('["Well", "yes", he said. ' * 5000, cut=True) == ""
