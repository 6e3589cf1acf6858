"""Running text made ready: windows that only seed and step decide, digests, notes, and what is refused."""

import json

import pytest
import torch

from glassformer.base.errors import ConfigError, DataError
from glassformer.data.corrupt_lengths import places
from glassformer.data.kinds import OBJECTIVES
from glassformer.nn.transformer import Transformer
from glassformer.train.objective import objective_for
from glassformer.train.recipe import override
from glassformer.train.run.beginning import model_config, prepare, prepare_split
from train.examples import assert_batches_of_recipe_and_step, first
from train.text_examples import WINDOW, book, shelf, text_recipe, words


@pytest.mark.parametrize("order", ["random", "sequential"])
@pytest.mark.parametrize("objective", sorted(OBJECTIVES))
def test_batches_are_a_function_of_recipe_and_step(tmp_path, objective, order):
    reseeded = text_recipe(book(tmp_path), objective, training__seed=2) if order == "random" else None
    assert_batches_of_recipe_and_step(text_recipe(book(tmp_path), objective, data__order=order), reseeded)


def test_windows_stand_in_the_text(tmp_path):
    prepared = prepare(text_recipe(book(tmp_path)))
    text = words(120)
    for epoch, batch in first(prepared, 9):
        assert batch.tokens.shape == (6, WINDOW + 1)  # six windows, and for each the token behind it
        assert all(prepared.tokenizers.target.decode(row) in text for row in batch.tokens.tolist())
        assert epoch in (0, 1)


def test_an_epoch_is_as_many_tokens_as_the_text_has(tmp_path):
    prepared = prepare(text_recipe(book(tmp_path), data__order="sequential"))
    whole = prepared.windows.whole
    assert whole == (len(prepared.train.tokens) - 1) // WINDOW
    epochs = [epoch for epoch, _ in first(prepared, 2 * whole)]
    assert epochs == [step * 6 // whole for step in range(2 * whole)]
    assert prepared.summary().epochs == pytest.approx(12 * 6 / whole)


@pytest.mark.parametrize("objective", sorted(OBJECTIVES))
def test_a_batch_holds_what_the_recipe_allows(tmp_path, objective):
    requested = text_recipe(book(tmp_path, 400), objective, data__window=40, training__batch_tokens=500)
    sizes = [
        batch.tokens.numel() + (0 if batch.source is None else batch.source.numel())
        for _, batch in first(prepare(requested), 20)
    ]
    most = 500 * 1.1 if objective == "noise" else 500 + 500 // 40  # noise draws empty spans; and the tokens behind
    assert 0.6 * 500 < min(sizes) <= max(sizes) <= most


@pytest.mark.parametrize("objective", sorted(OBJECTIVES))
def test_the_model_is_of_the_layout_and_asks_for_something(tmp_path, objective):
    prepared = prepare(text_recipe(book(tmp_path), objective))
    model = Transformer(model_config(prepared.recipe, prepared.tokenizers))
    stacks = (model.encoder is not None, model.decoder is not None)
    assert (
        stacks
        == {"decoder": (False, True), "masked": (True, False), "encoder-decoder": (True, True)}[OBJECTIVES[objective]]
    )
    assert model.config.stack.causal == (OBJECTIVES[objective] != "masked")
    assert all(objective_for(model)(batch).n_targets > 0 for _, batch in first(prepared, 5))


def test_dev_is_the_end_of_the_text(tmp_path):
    prepared = prepare(text_recipe(book(tmp_path), data__dev_share=0.25))
    train, dev = (prepared.tokenizers.target.decode(it.tokens.tokens.tolist()) for it in (prepared.train, prepared.dev))
    assert train + dev == words(120)
    assert len(dev) == pytest.approx(0.25 * len(words(120)), abs=1)


def test_documents_are_decided_once_and_written_down(tmp_path):
    assert prepare(text_recipe(book(tmp_path))).recipe.data.documents is False
    prepared = prepare(text_recipe(shelf(tmp_path)))
    assert prepared.recipe.data.documents is True
    tokens = prepared.train.tokens
    assert tokens.counts.documents
    assert tokens.tokens[0] == 1
    assert "in 11 documents" in prepared.notes()[0]
    assert prepare(text_recipe(shelf(tmp_path), data__documents=False)).recipe.data.documents is False


def test_a_document_mask_over_one_document_is_refused(tmp_path):
    recipe = text_recipe(book(tmp_path), data__document_mask=True)
    with pytest.raises(ConfigError, match=r"inside each document, but .*is one document\. .*set data\.documents=True"):
        prepare(recipe)
    assert prepare(override(recipe, {"data.documents": True}))


def test_a_document_mask_keeps_documents_apart(tmp_path):
    prepared = prepare(
        text_recipe(shelf(tmp_path), data__document_mask=True, data__window=24, training__batch_tokens=96)
    )
    batch = first(prepared, 1)[0][1]
    assert torch.equal(batch.documents, (batch.tokens == 1).cumsum(1))
    assert first(prepare(text_recipe(shelf(tmp_path))), 1)[0][1].documents is None


def test_notes_say_what_is_there(tmp_path):
    path = book(tmp_path)
    prepared = prepare(text_recipe(path))
    data, batches = prepared.notes()
    train, dev = prepared.train.tokens.counts, prepared.dev.tokens.counts
    assert data == (
        f"data: {train.n_tokens} tokens ({train.n_bytes} bytes) of {path} to train on; {dev.n_tokens} tokens "
        f"({dev.n_bytes} bytes) of {path} as dev text; a vocabulary of 13 tokens"
    )
    assert batches.startswith(f"batches: 6 windows of 8 tokens, random; {prepared.windows.whole} windows per epoch, ")


def test_what_the_vocabulary_lacks_and_what_was_left_out_is_told(tmp_path):
    dev = tmp_path / "dev.jsonl"
    dev.write_text('{"text": "abc é"}\n{"text": " "}\n', "utf-8")
    notes = prepare(text_recipe(book(tmp_path), data__dev_text=str(dev), data__skip_empty=True)).notes()
    assert "skipped: 1 empty dev documents, as data.skip_empty asks" in notes
    assert "unknown: 1 tokens of the dev text (20.0%) are <unk>" in notes


def test_fingerprints_are_those_of_the_texts(tmp_path):
    path = book(tmp_path)
    whole = prepare(text_recipe(path)).fingerprints()
    assert prepare(text_recipe(path, training__seed=9, model__d_ff=16, data__window=4)).fingerprints() == whole
    for text, other in ((words(120)[:-1] + "a", {"dev"}), ("a" + words(120)[1:], {"train"})):
        path.write_text(text, "utf-8")
        now = prepare(text_recipe(path)).fingerprints()
        assert {name for name in now if now[name] != whole[name]} == other
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"  # the same text, with documents ending elsewhere
    one.write_text("".join(json.dumps({"text": each}) + "\n" for each in ("ab ab ab", "ab ab")), "utf-8")
    two.write_text("".join(json.dumps({"text": each}) + "\n" for each in ("ab ab ", "abab ab")), "utf-8")
    digests = {prepare(text_recipe(path, data__dev_text=str(each))).fingerprints()["dev"] for each in (one, two)}
    assert len(digests) == 2


def test_a_batch_is_named_by_its_places(tmp_path):
    path = book(tmp_path)
    prepared = prepare(text_recipe(path))
    starts = sorted(prepared.windows.starts(4, 6).tolist())
    assert prepared.named_batch(5) == (
        f"Its batch, in epoch 0, is made of the windows of {path} that begin at the tokens "
        f"{', '.join(map(str, starts))} (counted from 0)."
    )


def test_without_a_file_it_is_pythons_own_documentation():
    prepared = prepare(text_recipe(None, data__window=64, training__batch_tokens=128))
    assert prepared.train.name == "pydoc_data.topics"
    assert prepared.recipe.data.documents is True
    assert len(prepared.train.tokens) > 10 * len(prepared.dev.tokens) / 2 > 10_000


def test_a_text_shorter_than_a_window_is_refused(tmp_path):
    path = book(tmp_path, 20)
    with pytest.raises(DataError, match=r"data.window=100 tokens.* has \d\d tokens"):
        prepare(text_recipe(path, data__window=100, training__batch_tokens=100))


def test_a_split_that_is_not_named_is_refused(tmp_path):
    prepared = prepare(text_recipe(book(tmp_path)))
    with pytest.raises(ConfigError, match=r"The test .* text, .*\. Give one with --data\.text FILE, or .* --split dev"):
        prepare_split(prepared.recipe, prepared.tokenizers, "test")


@pytest.mark.parametrize(("objective", "text", "message"), [
    ("next_token", "a", "needs at least 2; this text has 1"),
    ("masked", "\u1234\u1235\u1236", "of the 3 tokens of this text 3 are <unk>"),
])  # fmt: skip
def test_a_dev_text_without_anything_to_score_is_refused_before_the_run(tmp_path, objective, text, message):
    dev = tmp_path / "dev.txt"
    dev.write_text(text, "utf-8")
    with pytest.raises(DataError, match=rf"^The dev text \({dev}\) cannot be scored\..*{message}"):
        prepare(text_recipe(book(tmp_path), objective, data__dev_text=str(dev)))
    dev.write_text("ab" + text, "utf-8")
    assert prepare(text_recipe(book(tmp_path), objective, data__dev_text=str(dev)))


def test_white_space_has_no_whole_word_to_score(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("a b " * 90 + " " * 40, "utf-8")
    message = r"cannot be scored\. With data\.whole_words.*white space alone.*set data\.whole_words=False"
    with pytest.raises(DataError, match=message):
        prepare(text_recipe(text, "masked", data__whole_words=True))
    assert prepare(text_recipe(text, "masked"))


def test_a_dev_share_without_anything_to_score_is_refused_before_the_run(tmp_path):
    with pytest.raises(DataError, match=r"of which data\.dev_share=0\.001 is held out\) cannot .* this text has 1"):
        prepare(text_recipe(book(tmp_path), data__dev_share=0.001))


REFUSED = {
    "metric": ({"training__metric": "exact_match"}, "training.metric must be loss; got 'exact_match'"),
    "two vocabularies": ({"tokenizer__shared": False}, "needs only one vocabulary; got tokenizer.shared=False"),
    "pool": ({"training__pool": 9}, "training.pool sorts samples by length"),
    "small batch": (
        {"training__batch_tokens": 7},
        "room for one window, which takes 8 places with data.window=8 .*Set it to at least 8",
    ),
    "small model": ({"model__max_len": 7}, "model.max_len=7; got data.window=8"),
}


LARGEST = {"next_token": 8, "prefix": 8, "masked": 8, "spans": 9, "noise": 16}


@pytest.mark.parametrize(("objective", "most"), LARGEST.items())
def test_the_model_takes_what_an_objective_makes_of_a_window(tmp_path, objective, most):
    path = tmp_path / "book.txt"
    with pytest.raises(ConfigError, match=rf"got data\.window=8.*Set model\.max_len to at least {most},"):
        text_recipe(path, objective, model__max_len=most - 1)
    assert text_recipe(path, objective, model__max_len=most)


def test_special_tokens_of_the_text_make_windows_longer(tmp_path):
    path = tmp_path / "tales.jsonl"  # half of the tokens are <bos> and <eos>
    path.write_text('{"text": "ab"}\n' * 40, "utf-8")
    settings = {"data__window": 16, "data__mask_share": 0.5, "training__batch_tokens": 64}
    with pytest.raises(ConfigError, match=r"can turn into 17\. Set model\.max_len to at least 17,"):
        prepare(text_recipe(path, "spans", model__max_len=16, **settings))
    prepared = prepare(text_recipe(path, "spans", model__max_len=17, **settings))
    assert max(batch.source.shape[1] for _, batch in first(prepared, 20)) <= 17
    assert prepare(text_recipe(path, "spans", model__max_len=16, data__documents=False, **settings))


@pytest.mark.parametrize("name", REFUSED)
def test_settings_that_do_not_fit(tmp_path, name):
    changes, message = REFUSED[name]
    with pytest.raises(ConfigError, match=message):
        text_recipe(tmp_path / "book.txt", **changes)


def test_a_stride_is_for_the_next_token(tmp_path):
    with pytest.raises(ConfigError, match="stride belongs to"):
        text_recipe(tmp_path / "book.txt", "masked", data__stride=4)
    assert text_recipe(tmp_path / "book.txt", "masked", training__metric="token_accuracy")


@pytest.mark.parametrize(("objective", "size"), [("next_token", 100), ("masked", 100), ("spans", 113), ("noise", 193)])
def test_places_of_a_window(tmp_path, objective, size):
    requested = text_recipe(tmp_path / "book.txt", objective, data__window=100, training__batch_tokens=1000)
    # of 100 tokens 15 are hidden, in 5 spans: 85 + 5 + <eos>, and <bos> + 15 + 5 + <eos>, or <bos> + 100 + <eos>
    assert places(requested.data) == size
