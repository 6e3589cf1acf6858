"""Naughty strings in training: every form of file gives them to the run as they are, or names file and line."""

import json
import os
import unicodedata
from pathlib import Path

import pytest

from glassformer.base.errors import DataError
from glassformer.data.labelled import BREAKS, read_labelled
from glassformer.data.pairs import Pair, read_pairs
from glassformer.data.running.token_file import open_tokens
from glassformer.data.tokenizer import Tokenizer
from glassformer.data.tokens.vocabulary import BOS, EOS
from glassformer.store.checkpoint import load
from naughty.conftest import LABELS, lines, trained

QUICK = ("--training.batch-tokens", "200", "--data.window", "50")
BYTES = ("--tokenizer.kind", "byte")


def token_files() -> list[list[int]]:
    """The tokens of the train text and of the dev text, which the training before left in its cache."""
    folders = [*(Path(os.environ["GLASSFORMER_CACHE"]) / "tokens").iterdir()]
    found = [open_tokens(each).tokens.tolist() for each in folders]
    assert len(found) == 2
    return sorted(found, key=len, reverse=True)


def documents(tokenizer: Tokenizer) -> list[str]:
    """The documents of the token files, train before dev, as their tokens spell them."""
    texts: list[str] = []
    for ids in token_files():
        assert ids[0] == BOS
        assert ids[-1] == EOS
        first = 0
        for place, id in enumerate(ids):
            if id == EOS:
                assert ids[first] == BOS
                texts.append(tokenizer.decode(ids[first : place + 1]))
                first = place + 1
    return texts


def test_a_text_is_learned_line_by_line(strings, tmp_path):
    run = trained(tmp_path, "lm", "--data.text", str(lines(tmp_path / "a.txt", strings)), *QUICK, *BYTES)
    tokenizer = load(run).tokenizers.target
    train, dev = token_files()
    assert tokenizer.decode(train) + tokenizer.decode(dev) == "".join(f"{each}\n" for each in strings)


def test_json_lines_are_learned_however_they_are_escaped(texts, tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [json.dumps({"text": each}, ensure_ascii=n % 2 == 0) for n, each in enumerate(texts)]
    path.write_text("".join(f"{each}\n" for each in rows), "utf-8")
    run = trained(
        tmp_path,
        "lm",
        "--data.text",
        str(path),
        *QUICK,
        "--tokenizer.kind",
        "wordpiece",
        "--tokenizer.vocab-size",
        "600",
    )
    assert documents(load(run).tokenizers.target) == texts


def test_a_folder_of_a_file_for_each_is_learned(strings, texts, tmp_path, refused):
    folder = tmp_path / "texts"
    folder.mkdir()
    for n, each in enumerate(strings):
        (folder / f"{n:03}.txt").write_text(each, "utf-8-sig")
    words = ("--data.text", str(folder), *QUICK, "--tokenizer.kind", "bpe", "--tokenizer.vocab-size", "300")
    blank = next(n for n, each in enumerate(strings) if not each.strip())
    assert f"{blank:03}.txt: the text is empty" in refused("train", "lm", *words)
    run = trained(tmp_path, "lm", *words, "--data.skip-empty")
    assert documents(load(run).tokenizers.target) == texts


def test_pairs_are_read_as_they_are_or_refused_with_their_line(strings, tmp_path):
    whole = [each for each in strings if each.strip() and "\t" not in each]
    expected = [Pair(one, other) for one, other in zip(whole, reversed(whole), strict=True)]
    rows = [f"{one}\t{other}" for one, other in expected]
    assert read_pairs(lines(tmp_path / "pairs.tsv", rows)).pairs == expected
    sides = lines(tmp_path / "in", whole), lines(tmp_path / "out", [*reversed(whole)])
    assert read_pairs(*sides).pairs == expected
    for each in strings:
        if each not in whole:
            path = lines(tmp_path / "bad.tsv", ["a\tb", f"{each}\tb"])
            with pytest.raises(DataError, match=r"bad.tsv:2: (the source .* empty|a line must be source, TAB, target)"):
                read_pairs(path)


@pytest.mark.parametrize("form", ["tsv", "jsonl"])
def test_labelled_texts_are_read_as_they_are_or_refused_with_their_line(form, strings, tmp_path):
    """Each string is once the text, and once the label."""
    path, in_json = tmp_path / f"rows.{form}", form == "jsonl"
    usual = Pair("first", "usual")
    for each in strings:
        for row in (Pair(each, "a label"), Pair("a text", each)):
            both = [json.dumps(dict(zip(("text", "label"), one, strict=True))) if in_json else "\t".join(one)
                    for one in (usual, row)]  # fmt: skip
            lines(path, both)
            of_two_columns = "\t" not in each or in_json
            a_label = row.target == row.target.strip() and not any(
                unicodedata.category(c) in BREAKS for c in row.target
            )
            if each.strip() and of_two_columns and a_label:
                assert read_labelled(path).pairs == [usual, row]
            else:
                with pytest.raises(DataError, match=f"rows.{form}:2: "):
                    read_labelled(path)


def test_runs_of_all_forms_have_learned_from_every_string(texts, answering_run, labelling_run):
    log = (answering_run / "log.txt").read_text("utf-8")
    assert f"data: {len(texts)} training pairs" in log
    log = (labelling_run / "log.txt").read_text("utf-8")
    assert f"data: {len(texts) - 1} training texts" in log
    assert {*load(labelling_run).tokenizers.labels} == {*LABELS}
