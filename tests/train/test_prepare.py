"""A recipe made ready: batches that only the seed decides, pairs too long refused by name, skipped ones counted."""

from dataclasses import replace

import pytest

from glassformer.base.errors import ConfigError, DataError
from glassformer.nn.transformer import Transformer
from glassformer.train.run.beginning import model_config, prepare, prepare_split
from train.examples import assert_batches_of_recipe_and_step, first, recipe, texts

SOURCE = ["a b c", "b", "c a b", "a a", "b c", "c"]
TARGET = ["x y z", "y", "z x y", "x x", "y z", "z"]


def files(folder, source=SOURCE, target=TARGET, **changes):
    """The tiny recipe on parallel files, dev the same as train."""
    paths = texts(folder, source=source, target=target)
    names = {f"data__{split}_{side}": str(path) for split in ("train", "dev") for side, path in paths.items()}
    return recipe(data__task="pairs", **names | changes)


@pytest.mark.parametrize("layout", ["encoder-decoder", "encoder"])
def test_batches_are_a_function_of_recipe_and_step(layout):
    reseeded = recipe(data__layout=layout, training__seed=2)
    assert_batches_of_recipe_and_step(recipe(data__layout=layout), reseeded)
    assert {epoch for epoch, _ in first(prepare(reseeded), 12)} >= {0, 1}


def test_every_pair_is_met_once_an_epoch():
    prepared = prepare(recipe(training__batch_tokens=100))
    met = [data for epoch, data in first(prepared, len(prepared.sampler.epoch(0)))]
    rows = sum(len(data.tokens) for data in met)
    assert rows == len(prepared.train.pairs) == 50
    assert sum(data.n_tokens for data in met) == sum(int(side.sum()) for side in prepared.train.encoded.lengths())
    assert all(data.tokens.numel() + data.source.numel() <= 100 for data in met)


@pytest.mark.parametrize("side", ["source", "target"])
def test_pair_that_is_too_long_is_named_before_training(tmp_path, side):
    lines = {"source": list(SOURCE), "target": list(TARGET)}
    lines[side][4] = "a b c a b c a"
    longest = 7 + (1 if side == "source" else 2)
    with pytest.raises(DataError) as caught:
        prepare(files(tmp_path, **lines, model__max_len=longest - 1))
    place = f"{tmp_path / side}.txt:5: the {side} has {longest} tokens"
    for words in (f"max_len={longest - 1}", place, f"to {longest}"):
        assert words in str(caught.value)
    assert prepare(files(tmp_path, **lines, model__max_len=longest))


@pytest.mark.parametrize(
    "dev", [{"data__dev_source": None, "data__dev_target": None}, {"data__dev_source": "none.txt"}]
)
def test_a_missing_dev_file_is_named_before_the_training_text_is_read(tmp_path, monkeypatch, dev):
    monkeypatch.setattr("glassformer.train.tasks.pairs.load_pairs", lambda *given: pytest.fail("it is read"))
    with pytest.raises((ConfigError, DataError), match=r"no file for the dev pairs|none\.txt: there is no such file"):
        prepare(files(tmp_path, **dev))


def test_the_line_is_that_of_the_file_also_where_pairs_were_left_out(tmp_path):
    lines = {"source": ["", "a", " ", *SOURCE, "a b c a b c a"], "target": ["x", "", "y", *TARGET, "x"]}
    with pytest.raises(DataError, match=r"source\.txt:10: the source has 8 tokens"):
        prepare(files(tmp_path, **lines, data__skip_empty=True, model__max_len=7))


def test_training_pair_that_no_batch_holds_is_named_by_file_and_line(tmp_path):
    lines = {"source": [*SOURCE, "a " * 9], "target": [*TARGET, "z " * 30]}
    with pytest.raises(DataError) as caught:
        prepare(files(tmp_path, **lines, training__batch_tokens=41))
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}/target.txt:7: the target belongs to the longest sample, which has 42 tokens")
    assert "batch_tokens=41. Set it to at least 42" in message
    assert prepare(files(tmp_path, **lines, training__batch_tokens=42))
    with pytest.raises(DataError, match=r"^The target of pair 1 of the train split belongs to the longest.* 1 of 1\.$"):
        prepare(recipe(training__batch_tokens=2, data__train_size=1))


def test_pool_of_the_sampler_is_the_recipes(tmp_path):
    """Samples of one pool are sorted by length together, so that small pools pad more."""
    settings = {"data__max_length": 40, "data__train_size": 300, "training__batch_tokens": 512}
    prepared = {pool: prepare(recipe(**settings, training__pool=pool)) for pool in (None, 300, 20)}
    shares = {pool: each.sampler.padding_share() for pool, each in prepared.items()}
    assert shares[None] == shares[300] < 0.8 * shares[20]
    assert {pool: each.sampler.pool for pool, each in prepared.items()} == {None: 300, 300: 300, 20: 20}


def test_layout_of_one_sequence_counts_both_sides():
    """Sources of 2 to 4 symbols, a separator, and as many blanks."""
    with pytest.raises(DataError, match=r"The target of pair \d+ of the train split has 9 tokens"):
        prepare(recipe(data__layout="encoder", model__max_len=8))
    assert prepare(recipe(data__layout="encoder", model__max_len=9))


def test_dev_and_test_pairs_are_checked_too(tmp_path):
    long = texts(tmp_path, long_source=["a b", "b c a b c a b"], long_target=["x", "y"])
    ready = files(tmp_path, model__max_len=7)
    data = replace(ready.data, dev_source=str(long["long_source"]), dev_target=str(long["long_target"]))
    with pytest.raises(DataError, match=r"long_source\.txt:2: the source has 8 tokens"):
        prepare(replace(ready, data=data))


def test_empty_pairs_are_refused_or_counted(tmp_path):
    lines = {"source": [*SOURCE, "", "a", "c"], "target": [*TARGET, "z", " ", "x"]}
    with pytest.raises(DataError, match=r"source\.txt:7: the source side is empty.*data\.skip_empty"):
        prepare(files(tmp_path, **lines))
    prepared = prepare(files(tmp_path, **lines, data__skip_empty=True))
    assert (len(prepared.train.pairs), prepared.train.skipped, prepared.dev.skipped) == (7, 2, 2)
    notes = "\n".join(prepared.notes())
    assert "skipped: 2 training pairs with an empty side" in notes
    assert "skipped: 2 dev pairs" in notes
    assert "skipped" not in "\n".join(prepare(files(tmp_path)).notes())


def test_notes_say_how_much_there_is(tmp_path):
    prepared = prepare(files(tmp_path, tokenizer__shared=False))
    data, batches, bleu = prepared.notes()
    assert bleu.startswith("bleu: ")
    assert data == "data: 6 training pairs, 6 dev pairs; two vocabularies of 9 and 9 tokens"
    assert batches == f"batches: 1 per epoch, {prepared.sampler.padding_share():.1%} padding"
    assert "one vocabulary of 12 tokens" in prepare(files(tmp_path)).notes()[0]


def test_fingerprints_are_those_of_the_pairs(tmp_path):
    whole = prepare(files(tmp_path)).fingerprints()
    assert prepare(files(tmp_path)).fingerprints() == whole
    assert prepare(files(tmp_path, training__seed=9, model__d_model=16)).fingerprints() == whole
    for changed in ([*SOURCE[:5], "b"], [SOURCE[1], SOURCE[0], *SOURCE[2:]]):
        assert differing(prepare(files(tmp_path, changed)).fingerprints(), whole) == {"train", "dev"}
    one = prepare(files(tmp_path, ["a b", "a"], ["x", "x"])).fingerprints()
    other = prepare(files(tmp_path, ["a", "b a"], ["x", "x"])).fingerprints()  # the same words, cut elsewhere
    assert differing(one, other) == {"train", "dev"}


def test_fingerprint_of_dev_sees_words_that_the_vocabulary_lacks(tmp_path):
    """They are all <unk> to the model, but an answer is compared with the text."""
    ready = files(tmp_path)
    found = []
    for name, last in (("one", "v"), ("other", "w")):
        dev = texts(tmp_path, **{name: ["x", last, "x", "x", "x", "x"]})[name]
        found.append(prepare(replace(ready, data=replace(ready.data, dev_target=str(dev)))).fingerprints())
    assert differing(*found) == {"dev"}


def differing(one: dict[str, str], other: dict[str, str]) -> set[str]:
    return {name for name in one if one[name] != other[name]}


def test_given_tokenizers_are_used(tmp_path):
    old = prepare(files(tmp_path))
    new = prepare(files(tmp_path, [*SOURCE, "w"], [*TARGET, "w"]), old.tokenizers)
    assert new.tokenizers is old.tokenizers
    assert new.train.encoded.source[6] == [3]  # <unk>
    assert prepare_split(files(tmp_path), old.tokenizers, "dev").encoded.source[1] == old.train.encoded.source[1]


@pytest.mark.parametrize("shared", [True, False])
def test_model_has_the_vocabularies_of_the_data(tmp_path, shared):
    ready = files(tmp_path, tokenizer__shared=shared)
    config = model_config(ready, prepare(ready).tokenizers)
    assert config.vocab_size == (12 if shared else 9)
    assert config.source_vocab_size == (None if shared else 9)


def test_model_of_one_stack_has_one_vocabulary():
    ready = recipe(data__layout="encoder")
    config = model_config(ready, prepare(ready).tokenizers)
    assert (config.vocab_size, config.source_vocab_size, config.decoder) == (6 + 5, None, None)


@pytest.mark.parametrize("shared", [True, False])
def test_two_vocabularies_have_two_matrices_also_where_they_are_of_one_size(tmp_path, shared):
    """The 9 ids of SOURCE and the 9 of TARGET stand for other words."""
    ready = files(tmp_path, tokenizer__shared=shared)
    model = Transformer(model_config(ready, prepare(ready).tokenizers))
    assert (model.encoder.embedding.weight is model.decoder.embedding.weight) == shared
