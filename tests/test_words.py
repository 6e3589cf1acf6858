"""The benchmark of words alone: log-count ratios by hand, and tiny texts that words do tell apart."""

import importlib
import json
import math

import pytest
import torch

from documents import ROOT

GOOD, BAD = "a fine film", "a dull film"
ARTICLE = " the film was fine and the acting was dull @-@ witted \n"


@pytest.fixture
def words(monkeypatch):
    """The module."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("words")


@pytest.fixture
def data(tmp_path):
    """A folder with both data sets, as small as can be."""
    for folder in ("sst2", "wikitext-2"):
        (tmp_path / folder).mkdir()
    for name in ("train", "dev"):
        (tmp_path / "sst2" / f"{name}.tsv").write_text(f"{GOOD}\t1\n{BAD}\t0\n" * 20, "utf-8")
    (tmp_path / "wikitext-2" / "wiki.train.tokens").write_text(ARTICLE * 5, "utf-8")
    return tmp_path


def test_ratios_are_those_of_the_paper(words):
    texts, known = [["fine", "film", "film"], ["film"], ["dull"]], {"fine": 0, "film": 1, "dull": 2}
    found = words.count_ratios(texts, torch.tensor([1.0, 1.0, 0.0]), known)
    favour, against = [2 / 6, 3 / 6, 1 / 6], [1 / 4, 1 / 4, 2 / 4]
    assert found.tolist() == pytest.approx([math.log(p / q) for p, q in zip(favour, against, strict=True)], rel=1e-6)


def test_texts_that_words_tell_apart_are_told_apart(words, data, capsys):
    assert words.main(["--data", str(data), "--threads", "1", "--json"]) == 0
    cases = json.loads(capsys.readouterr().out)
    by = {(each["features"], each["vectors"]): each["accuracy"] for each in cases}
    assert {vectors for _, vectors in by} == {"", *words.VECTORS}
    del by["vectors", "SST-2's own sentences"]  # there the two words have the same neighbours
    assert {*by.values()} == {1.0}


def test_missing_files_are_named(words, data, capsys):
    (data / "sst2" / "dev.tsv").unlink()
    assert words.main(["--data", str(data)]) == 2
    said = capsys.readouterr().err
    assert "dev.tsv is missing" in said
    assert "--data" in said
