"""Samples of an evaluation: how the text goes on and how the model does, and what it fills holes with."""

import pytest
import torch

from glassformer.data.tokens.vocabulary import BOS
from glassformer.decode.generate import generate
from glassformer.nn.transformer import Transformer
from glassformer.train import text_score as text_samples
from glassformer.train.objective import objective_for
from glassformer.train.run.beginning import model_config, prepare
from glassformer.train.text_score import shown
from train.text_examples import WINDOW, book, shelf, text_recipe, words


def samples(path, objective="next_token", **changes):
    prepared = prepare(text_recipe(path, objective, **{"training__samples": 3} | changes))
    torch.manual_seed(3)
    model = Transformer(model_config(prepared.recipe, prepared.tokenizers))
    return prepared, model, prepared.dev.score(prepared.scoring(model, objective_for(model))).samples


def test_the_model_goes_on_where_the_text_does(tmp_path):
    prepared, model, figures = samples(book(tmp_path))
    text, tokenizer = words(120), prepared.tokenizers.target
    dev = text[len(prepared.train.tokens) :]
    assert len(figures) == 3
    assert figures[0].source == dev[: WINDOW // 2]
    assert figures[2].target == dev[-WINDOW // 2 :]
    for sample in figures:
        assert sample.source + sample.target in dev
        steps = generate(model, prompts=[tokenizer.encode(sample.source)], max_new_tokens=WINDOW // 2)
        assert sample.output == shown([id for step in steps for id in step.tokens], tokenizer)


@pytest.mark.parametrize("objective", ["next_token", "prefix"])
def test_a_prompt_is_read_as_it_was_learned(tmp_path, monkeypatch, objective):
    requests = []
    monkeypatch.setattr(text_samples, "generate", lambda *given, prefix, **rest: requests.append(prefix) or iter(()))
    samples(book(tmp_path), objective)
    assert requests == [objective == "prefix"]


def test_as_many_and_as_long_as_asked(tmp_path):
    assert samples(book(tmp_path), training__samples=0)[2] == []
    _, _, (sample,) = samples(book(tmp_path), training__samples=1, decode__max_new_tokens=2)
    assert (len(sample.source), len(sample.target)) == (4, 2)


@pytest.mark.parametrize("objective", ["masked", "spans", "noise"])
def test_what_is_hidden_shows(tmp_path, objective):
    spans = {} if objective == "masked" else {"data__mean_span": 1.0}
    _, _, figures = samples(book(tmp_path), objective, data__mask_share=0.4, **spans)
    text = words(120)
    assert any("<blank>" in sample.source for sample in figures)
    for sample in figures:
        if objective == "spans":
            assert all(piece in text for piece in sample.target.split("<sep>"))
        else:
            assert sample.target in text
        if objective == "masked":  # what was not hidden stays
            assert all(piece in sample.output for piece in sample.source.split("<blank>")[:1])


@pytest.mark.parametrize("objective", ["next_token", "masked", "spans"])
def test_a_model_in_training_is_evaluated_without_dropout_and_goes_on_in_its_mode(tmp_path, objective):
    holes = {"next_token": {}, "masked": {"data__mask_share": 0.4}, "spans": {"data__mask_share": 0.4}}[objective]
    prepared, model, _ = samples(book(tmp_path), objective, model__dropout=0.5, **holes)
    targets = objective_for(model)
    while_training = prepared.dev.score(prepared.scoring(model, targets))
    assert all(each.training for each in model.modules())
    assert while_training == prepared.dev.score(prepared.scoring(model.eval(), targets))
    assert not model.training


@pytest.mark.parametrize("mask", [False, True])
def test_a_text_goes_on_from_its_own_document_where_the_score_is_so(tmp_path, mask):
    changes = {"data__document_mask": mask, "data__dev_share": 0.6, "data__window": 40, "training__samples": 9}
    _, _, figures = samples(shelf(tmp_path), training__batch_tokens=160, **changes)
    ended = [sample.source.count("<bos>") - sample.source.startswith("<bos>") for sample in figures]
    assert (max(ended) == 0) == mask


@pytest.mark.parametrize("mask", [False, True])
def test_holes_are_filled_from_their_own_document_where_the_score_is_so(tmp_path, monkeypatch, mask):
    read = []
    called = Transformer.forward
    monkeypatch.setattr(
        Transformer,
        "forward",
        lambda model, tokens, **given: read.append((tokens, given["documents"])) or called(model, tokens, **given),
    )
    samples(shelf(tmp_path), "masked", data__document_mask=mask, data__dev_share=0.4)
    ((tokens, documents),) = read
    assert (documents is None) == (not mask)
    if mask:
        assert documents.tolist() == (tokens == BOS).cumsum(1).tolist()
        assert documents.max() > documents.min()


def test_special_tokens_show_by_name(tmp_path):
    tokenizer = prepare(text_recipe(book(tmp_path))).tokenizers.target
    ids = tokenizer.encode("ab")
    assert shown([1, *ids, 5, *ids[:1], 2], tokenizer) == "<bos>ab<blank>a<eos>"
