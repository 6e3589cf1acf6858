"""A text is scored whole: each token once, from the context that its window gives it, as if it were computed alone."""

import math

import numpy as np
import pytest
import torch

from glassformer.base.errors import DataError, GlassformerError
from glassformer.data.tokens.vocabulary import BOS
from glassformer.train import text_score as text_score
from glassformer.train.evaluate import Scoring
from glassformer.train.objective import objective_for
from glassformer.train.run.beginning import prepare_split
from glassformer.train.text_score import exponential, reader_of, text_scores
from train.examples import definite
from train.text_examples import WINDOW, book, shelf, text_recipe, words


def made(path, objective="next_token", **changes):
    return definite(text_recipe(path, objective, **changes))


def scores(prepared, model):
    return prepared.dev.score(Scoring(model, prepared.recipe, prepared.tokenizers, objective_for(model))).metrics


def token_by_token(model, ids: list[int], stride: int, documents: bool) -> list[float]:
    """-log p of each token but the first, one forward for each, from what the rule of windows lets it see."""
    found: list[float] = []
    for place in range(1, len(ids)):
        begin = 0 if place <= WINDOW else stride * math.ceil((place - WINDOW) / stride)
        context = ids[begin:place]
        if documents:
            if ids[place] == BOS:
                continue
            context = context[max((i for i, id in enumerate(context) if id == BOS), default=0) :]
        with torch.no_grad():
            logits = model(torch.tensor([context]))[0, -1]
        found.append(-float(logits.log_softmax(-1)[ids[place]]))
    return found


@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.parametrize("stride", [None, 1, 3, 7])
def test_every_token_is_scored_as_if_it_were_alone(tmp_path, stride, documents, monkeypatch):
    monkeypatch.setattr(text_score, "PLACES", {"cpu": 3 * WINDOW})
    changes = {"data__document_mask": True} if documents else {}
    path = shelf(tmp_path, 6) if documents else book(tmp_path, 60)
    prepared, model = made(path, data__stride=stride, data__dev_share=0.4, **changes)
    ids = prepared.dev.tokens.tokens.tolist()
    scored = scores(prepared, model)
    alone = token_by_token(model, ids, stride or WINDOW, documents)
    assert scored["n"] == len(alone)
    assert scored["loss"] == pytest.approx(sum(alone) / len(alone), rel=1e-12)
    assert scored["perplexity"] == pytest.approx(math.exp(scored["loss"]), rel=1e-12)


@pytest.mark.parametrize("kind", ["character", "byte"])
def test_bits_are_those_of_the_text(tmp_path, kind):
    """By hand: a model of equal chances pays log2 V bits a token, however many bytes or characters that is."""
    path = tmp_path / "text.txt"
    path.write_text("one two\n" * 40, "utf-8")
    test = tmp_path / "test.txt"
    test.write_text("no öne\n", "utf-8")  # 7 characters, 8 bytes, 2 words
    prepared, model = made(path, tokenizer__kind=kind, data__test_text=str(test))
    torch.nn.init.zeros_(model.head.weight)
    split = prepare_split(prepared.recipe, prepared.tokenizers, "test")
    scored = split.score(Scoring(model, prepared.recipe, prepared.tokenizers, objective_for(model))).metrics
    size, n = prepared.tokenizers.target.vocab_size, {"character": 6, "byte": 7}[kind]
    assert scored["n"] == n
    assert scored["loss"] == pytest.approx(math.log(size))
    assert scored["bits_per_byte"] == pytest.approx(n * math.log2(size) / 8)
    assert scored["bits_per_character"] == pytest.approx(n * math.log2(size) / 7)
    assert scored["word_perplexity"] == pytest.approx(size ** (n / 2))
    assert scored.get("unknown") == {"character": 1, "byte": None}[kind]
    assert list(scored)[:1] == ["loss"]


def test_a_text_shorter_than_a_window_is_scored(tmp_path):
    test = tmp_path / "test.txt"
    test.write_text("abc", "utf-8")
    prepared, model = made(book(tmp_path), data__test_text=str(test))
    split = prepare_split(prepared.recipe, prepared.tokenizers, "test")
    scored = split.score(Scoring(model, prepared.recipe, prepared.tokenizers, objective_for(model))).metrics
    assert scored["n"] == 2
    assert scored["loss"] == pytest.approx(np.mean(token_by_token(model, split.tokens.tokens.tolist(), WINDOW, False)))


@pytest.mark.parametrize("more", [0, 1, 5])
@pytest.mark.parametrize("objective", ["prefix", "masked", "spans", "noise"])
def test_what_is_hidden_is_scored_window_by_window(tmp_path, objective, more, monkeypatch):
    dev = tmp_path / "dev.txt"
    dev.write_text(words(60)[: 9 * WINDOW + more], "utf-8")
    prepared, model = made(book(tmp_path), objective, data__dev_text=str(dev))
    tokens, wanted = prepared.dev.tokens, objective_for(model)
    reader = reader_of(prepared.recipe.data, prepared.tokenizers.target, 0)
    total = n = right = 0
    last = len(tokens) - (objective == "prefix")  # the last token of a text predicts none
    for row, start in enumerate(range(0, last, WINDOW)):
        length = min(WINDOW, last - start)
        batch = reader.batch(tokens, np.array([start]), length, rows=[row])
        targets = wanted(batch)
        with torch.no_grad():
            logits = model(
                targets.inputs, keep=targets.inputs_keep, source=batch.source, source_keep=batch.source_keep,
                prefix=targets.prefix,
            )  # fmt: skip
        keep = torch.ones_like(targets.ids, dtype=torch.bool) if targets.keep is None else targets.keep
        ids, logits = targets.ids[keep], logits[keep]
        total -= float(logits.log_softmax(-1).gather(-1, ids[:, None]).sum())
        n, right = n + len(ids), right + int((logits.argmax(-1) == ids).sum())
    assert prepared.summary().dev_samples == row + 1
    scored = scores(prepared, model)
    assert scored["n"] == n
    assert scored["loss"] == pytest.approx(total / n, rel=1e-12)
    assert scored.get("token_accuracy") == (right / n if objective == "masked" else None)
    assert "bits_per_byte" not in scored
    monkeypatch.setattr(text_score, "PLACES", {"cpu": WINDOW})
    assert scores(prepared, model) == pytest.approx(scored, rel=1e-12)


def test_of_one_token_all_is_written_again(tmp_path):
    test = tmp_path / "test.txt"
    test.write_text("a", "utf-8")
    prepared, model = made(book(tmp_path), "noise", data__test_text=str(test))
    split = prepare_split(prepared.recipe, prepared.tokenizers, "test")
    assert (
        split.score(Scoring(model, prepared.recipe, prepared.tokenizers, objective_for(model))).metrics["n"] == 2
    )  # and <eos>


def test_what_is_hidden_is_the_same_at_every_evaluation_and_in_every_run(tmp_path):
    prepared, model = made(book(tmp_path), "masked")
    other, _ = made(book(tmp_path), "masked", training__seed=9)
    assert scores(prepared, model) == scores(prepared, model) == scores(other, model)


def test_an_evaluation_can_be_ended(tmp_path):
    prepared, model = made(book(tmp_path), training__samples=0)

    class Ended(GlassformerError):
        pass

    def poll() -> None:
        raise Ended

    with pytest.raises(Ended):
        prepared.dev.score(prepared.scoring(model, objective_for(model))._replace(poll=poll))


def test_what_no_float_holds_is_left_out():
    assert exponential("perplexity", 1.0) == {"perplexity": math.e}
    assert exponential("perplexity", 1e4) == {}


def test_a_text_without_white_space_has_no_word_perplexity(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("ab" * 2000, "utf-8")
    scored = scores(*made(path, data__dev_share=0.5))
    assert "word_perplexity" not in scored
    assert all(math.isfinite(each) for each in scored.values())


def test_a_text_without_a_word_has_no_word_perplexity(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("ab" * 50 + "\n" * 100, "utf-8")
    scored = scores(*made(path, data__dev_share=0.4))
    assert "word_perplexity" not in scored
    assert scored["n"] == 79
    assert {"loss", "perplexity", "bits_per_byte", "bits_per_character"} <= scored.keys()


def test_a_text_of_which_nothing_can_be_hidden_is_refused(tmp_path):
    test = tmp_path / "test.txt"
    test.write_text("xyz" * 10, "utf-8")
    prepared, model = made(book(tmp_path), "masked", data__test_text=str(test))
    split = prepare_split(prepared.recipe, prepared.tokenizers, "test")
    with pytest.raises(DataError, match=r"30 tokens of this text 30 are <unk>.*tokenizer\.kind='byte'"):
        split.score(Scoring(model, prepared.recipe, prepared.tokenizers, objective_for(model)))


def test_weights_and_gradients_are_left_alone(tmp_path):
    prepared, model = made(book(tmp_path))
    reader = reader_of(prepared.recipe.data, prepared.tokenizers.target, 0)
    text_scores(prepared.scoring(model, objective_for(model)), prepared.dev.tokens, reader)
    assert all(parameter.grad is None for parameter in model.parameters())
