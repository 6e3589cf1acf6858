"""Tagged sentences: reading them, the first piece of each word, spans as conlleval finds them, and a run."""

import json
from pathlib import Path

import pytest

from glassformer.base.errors import ConfigError, DataError
from glassformer.data.config import DataConfig, TokenizerConfig
from glassformer.data.pairs import Pair
from glassformer.data.rows import Columns
from glassformer.data.tagged import first_pieces, make_tagged, read_tagged
from glassformer.data.tokenizer import TOKENIZERS
from glassformer.train.finished.use import answer_lines, evaluate
from glassformer.train.recipe import load_recipe, override
from glassformer.train.run.beginning import prepare
from glassformer.train.run.session import start
from glassformer.train.tasks import task_of
from glassformer.train.tasks.tags import Tags, spanned, spans_of, tag_scores
from train.examples import OF_FILES, SMALL, assert_resumed_to_the_same_bits


def small(**changes):
    return override(load_recipe("tag"), SMALL | {name.replace("__", "."): each for name, each in changes.items()})


# --- files


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_columns_and_json_say_the_same(tmp_path):
    conll = write(tmp_path / "a.conll", "-DOCSTART- X O\n\nin IN O\nNew NNP B-LOC\nYork NNP I-LOC\n\n\nrain NN O\n")
    rows = [{"tokens": ["in", "New", "York"], "tags": ["O", "B-LOC", "I-LOC"]}, {"tokens": ["rain"], "tags": ["O"]}]
    lines = write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    pairs = [Pair("in New York", "O B-LOC I-LOC"), Pair("rain", "O")]
    table, objects = read_tagged(conll, Columns()), read_tagged(lines, Columns())
    assert table.pairs == objects.pairs == pairs
    assert [table.origin.place(row, "source") for row in (0, 1)] == [f"{conll}:3", f"{conll}:8"]
    assert read_tagged(conll, Columns("1", "2")).pairs[0].target == "IN NNP NNP"
    named = write(tmp_path / "b.tsv", "tag\tword\nO\tin\nB-LOC\tParis\n")
    assert read_tagged(named, Columns("word", "tag")).pairs == [Pair("in Paris", "O B-LOC")]


@pytest.mark.parametrize(("text", "words"), [
    ("a O\nb\n", [":2", "2 columns", "has 1"]),
    ("a O\nb O O\n", [":2", "2 columns", "has 3"]),
    ("# id = 1\na\tO\n", [":2", "4 columns", "Leave out lines of comments", "grep -v '^# '"]),
    ("a\tO\n\n# id = 2\nb\tO\n", [":3", "2 columns", "Leave out lines of comments"]),
    ("a\n", [":1", "a word and its tag"]),
    ("\n\n", ["no sentence"]),
    ("a b\tO\n", [":1", "without white space", "'a b'"]),
    ("a\t\n", [":1", "a tag is text without white space"]),
])  # fmt: skip
def test_lines_of_another_shape_are_refused(tmp_path, text, words):
    with pytest.raises(DataError) as caught:
        read_tagged(write(tmp_path / "a.conll", text), Columns())
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(("row", "words"), [
    ({"tokens": ["a"], "tags": ["O", "O"]}, ["1 words and 2 tags"]),
    ({"tokens": ["a"]}, ["no field 'tags'", "data.label_column"]),
    ({"tokens": "a b", "tags": ["O"]}, ["'tokens' must be a list"]),
    ({"tokens": [], "tags": []}, ["needs words and tags", "data.skip_empty = true"]),
    ({"tokens": [1], "tags": ["O"]}, ["list of texts", "not their numbers"]),
    ({"tokens": ["a"], "tags": [0.5]}, ["'tags'", "got 0.5"]),
    ({"tokens": ["a", "b"], "tags": ["1", 1]}, ["a tag must have the same type in all lines"]),
    ({"tokens": ["a", "b"], "tags": ["O", None]}, ["a tag is text without white space"]),
])  # fmt: skip
def test_objects_of_another_shape_are_refused(tmp_path, row, words):
    with pytest.raises(DataError) as caught:
        read_tagged(write(tmp_path / "a.jsonl", json.dumps(row) + "\n"), Columns())
    assert all(word in str(caught.value) for word in [":1", *words])


def test_truth_values_and_numbers_are_tags(tmp_path):
    rows = [{"tokens": ["a", "b"], "tags": [True, False]}, {"tokens": ["c"], "tags": [7]}]
    path = write(tmp_path / "a.ndjson", "".join(json.dumps(row) + "\n" for row in rows))
    assert read_tagged(path, Columns()).pairs == [Pair("a b", "true false"), Pair("c", "7")]


@pytest.mark.parametrize("row", ["", "null", '{"tokens": null, "tags": ["O"]}', '{"tokens": ["a"], "tags": []}'])
def test_objects_without_words_or_tags_are_skipped_and_counted(tmp_path, row):
    path = write(
        tmp_path / "a.jsonl", f'{{"tokens": ["a"], "tags": ["O"]}}\n{row}\n{{"tokens": ["b"], "tags": ["O"]}}\n'
    )
    with pytest.raises(DataError, match=r"a\.jsonl:2: a sentence needs words and tags.*data\.skip_empty = true"):
        read_tagged(path, Columns())
    loaded = read_tagged(path, Columns(), skip_empty=True)
    assert (len(loaded.pairs), loaded.skipped) == (2, 1)
    assert loaded.origin.place(1, "target") == f"{path}:3"


def test_a_tag_that_training_lacks_is_refused_with_its_line(tmp_path):
    path = write(tmp_path / "a.conll", "a O\nb B-LOC\n")
    with pytest.raises(DataError, match=r":2: the tag 'B-LOC' does not occur in the training text"):
        read_tagged(path, Columns(), ["O", "B-PER"])


@pytest.mark.parametrize(("columns", "error"), [
    (Columns("1", "3"), "data.label_column is 3, but the first line has 2 columns"),
    (Columns("wrd", "tag"), "Did you mean 'word'"),
    (Columns("2", "2"), "two columns"),
])  # fmt: skip
def test_columns_that_are_not_there_are_refused(tmp_path, columns, error):
    with pytest.raises((DataError, ConfigError), match=error):
        read_tagged(write(tmp_path / "a.tsv", "word\ttag\na\tO\n"), columns)


def test_made_sentences_depend_on_their_split_and_seed_only():
    config = DataConfig(task="tags", layout="tags", train_size=50, dev_size=50)
    train, again, dev = (make_tagged(config, split, 1) for split in ("train", "train", "dev"))
    assert train == again != make_tagged(config, "train", 2)
    assert not {*train} & {*dev}
    assert all(len(text.split()) == len(tags.split()) and spanned(tags.split()) for text, tags in [*train, *dev])


# --- pieces


@pytest.mark.parametrize("kind", ["word", "character", "byte", "bpe", "wordpiece", "unigram"])
def test_a_tag_belongs_to_the_first_piece_of_its_word(kind):
    texts = ["karl lives in new york , he says", "mira lives in berlin"] * 4
    tokenizer = TOKENIZERS[kind].train(texts, TokenizerConfig(kind=kind, vocab_size=600))
    ids, firsts = first_pieces(tokenizer, texts[0])
    assert len(firsts) == len(texts[0].split())
    ends = [*firsts[1:], len(ids)]
    assert [tokenizer.decode(ids[a:b]).strip() for a, b in zip(firsts, ends, strict=True)] == texts[0].split()


def test_the_loss_counts_words_and_not_pieces():
    recipe = small(tokenizer__kind="character")
    task = task_of(recipe.data)
    pairs = [Pair("ab c", "B-X O"), Pair("def", "O")]
    tokenizers = task.learn(recipe, pairs, None)
    batch = task.batch(task.encode(pairs, tokenizers), [0, 1])
    assert batch.label_keep.tolist() == [[True, False, False, True], [True, False, False, False]]
    assert [tokenizers.labels[each] for each in batch.labels[batch.label_keep].tolist()] == ["B-X", "O", "O"]


# --- figures, computed by hand


@pytest.mark.parametrize(("tags", "spans"), [
    ("O B-A I-A O B-B", {("A", 1, 2), ("B", 4, 4)}),
    ("B-A B-A I-A", {("A", 0, 0), ("A", 1, 2)}),
    ("I-A I-A O I-B", {("A", 0, 1), ("B", 3, 3)}),  # IOB1: no beginning is needed
    ("B-A I-B I-B", {("A", 0, 0), ("B", 1, 2)}),  # another kind begins another span
    ("B-A I-A E-A S-A", {("A", 0, 2), ("A", 3, 3)}),
    ("E-A I-A", {("A", 0, 0), ("A", 1, 1)}),
    ("O O", set()),
    ("B-A-1 I-A-1", {("A-1", 0, 1)}),
])  # fmt: skip
def test_spans_are_those_of_conlleval(tags, spans):
    assert spans_of(tags.split()) == spans


def test_scores_as_computed_by_hand():
    wanted = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-LOC", "O"]]
    metrics, tables = tag_scores([["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "B-LOC", "O"]], wanted)
    # spans wanted: PER 0-1, LOC 3, LOC 1; given: PER 0-1, PER 3, LOC 0, LOC 1; right: PER 0-1, LOC 1
    assert metrics["span_precision"] == 2 / 4
    assert metrics["span_recall"] == 2 / 3
    assert metrics["span_f1"] == 4 / 7
    assert metrics["accuracy"] == 5 / 7
    assert tables["spans"]["PER"] == {"n": 1, "given": 2, "precision": 0.5, "recall": 1.0, "f1": 2 / 3}
    assert tables["spans"]["LOC"] == {"n": 2, "given": 2, "precision": 0.5, "recall": 0.5, "f1": 0.5}
    # tags: B-LOC 1 right of 2 and 2; B-PER 1 of 1 and 2; I-PER 1 of 1 and 1; O 2 of 3 and 2
    assert metrics["macro_f1"] == pytest.approx((1 / 2 + 2 / 3 + 1 + 4 / 5) / 4)
    assert tables["tags"]["O"]["recall"] == 2 / 3


def test_plain_tags_have_no_spans():
    metrics, tables = tag_scores([["NOUN", "VERB"]], [["NOUN", "NOUN"]])
    assert metrics == {"accuracy": 0.5, "macro_f1": pytest.approx(1 / 3)}
    assert [*tables] == ["tags"]
    recipe = small()
    with pytest.raises(ConfigError, match=r"span_f1.*'NOUN'.*training.metric='accuracy'"):
        Tags(recipe.data).learn(recipe, [Pair("a b", "NOUN VERB")], None)
    with pytest.raises(ConfigError, match="at least two tags"):
        Tags(recipe.data).learn(recipe, [Pair("a b", "O O")], None)


# --- a run


def test_one_file_alone_or_a_size_beside_a_file_is_refused():
    with pytest.raises(ConfigError, match=r"data\.train alone"):
        small(data__train="a.conll", data__train_size=100_000)
    with pytest.raises(ConfigError, match=r"data\.train_size is the number of sentences to make"):
        small(data__train="a.conll", data__dev="b.conll")
    with pytest.raises(ConfigError, match="gives a tag for each word"):
        small(training__metric="exact_match")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tags") / "run"
    for _ in start(small(), folder).train():
        pass
    return folder


def test_a_run_is_scored_and_tags_lines_whatever_the_batches(run):
    figures = evaluate(run, load_recipe(run / "recipe.toml"))
    assert {"span_f1", "accuracy", "loss", "n", "spans", "tags"} <= {*figures}
    lines = ["mira lives in loresh", "nobody", "in  ulban it rained"]
    alone = [next(answer_lines(run, [(1, line)], 1)) for line in lines]
    together = list(answer_lines(run, enumerate(lines, 1), 9))
    for one, other in zip(alone, together, strict=True):
        assert (one.words, one.tags) == (other.words, other.tags)
        assert one.probabilities == pytest.approx(other.probabilities, rel=1e-5)
    assert together[2].words == ["in", "ulban", "it", "rained"]
    assert together[0].text(["words"]).split()[1].startswith("lives/")
    assert len(together[0].text([]).split()) == 4


def test_a_resumed_run_ends_with_the_same_bits(tmp_path):
    assert_resumed_to_the_same_bits(small(), tmp_path)


@pytest.mark.parametrize("first", ["word\tpos", "1\tToken\tNER_tag"])
def test_a_header_that_nobody_spoke_of_is_no_word(tmp_path, first):
    path = tmp_path / "a.tsv"
    cells = first.split("\t")
    path.write_text(first + "\n" + "\t".join([*cells[:-2], "Hund", "N"]) + "\n")
    columns = {"first": str(len(cells) - 1), "second": str(len(cells))}
    with pytest.raises(DataError, match=r"a\.tsv:1: the first line seems to name the columns.*data\.header = true"):
        read_tagged(str(path), Columns(**columns))
    assert read_tagged(str(path), Columns(**columns, header=True)).pairs == [Pair("Hund", "N")]
    assert len(read_tagged(str(path), Columns(**columns, header=False)).pairs) == 1


@pytest.mark.parametrize(("name", "good", "bad"), [
    ("tag", '{"tokens": ["a", "b"], "tags": [true, false]}\n', "null\n\n"),
    ("regression", '{"text": "a", "label": 1}\n{"text": "b", "label": 2}\n', '{"text": "c", "label": null}\n\n'),
])  # fmt: skip
def test_a_run_says_how_many_lines_were_skipped(tmp_path, name, good, bad):
    path = write(tmp_path / "a.jsonl", good + bad + good)
    files = {"data.train": path, "data.dev": path, "data.skip_empty": True, "training.metric": "loss"}
    layout = {"data.layout": "text-numbers"} if name == "regression" else {}
    data = prepare(override(load_recipe(name), OF_FILES | layout | files))
    for split in ("training", "dev"):
        assert f"skipped: 2 {split} {task_of(data.recipe.data).samples} with an empty side" in "\n".join(data.notes())
