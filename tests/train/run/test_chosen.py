"""What a run says of itself at its start: also which backend of attention was picked, for the shapes of its data."""

import pytest
import torch

from glassformer.fast import for_training
from glassformer.nn.mask import Mask
from glassformer.nn.rules import ATTEND, RULES
from glassformer.nn.transformer import Transformer
from glassformer.train.records import Started
from glassformer.train.run.beginning import model_config, prepare
from glassformer.train.run.outlook import attention, chosen
from glassformer.train.run.session import start
from specimens import native_cpp
from train.examples import assert_same, follow, recipe, weights


def made(**changes):
    prepared = prepare(recipe(**changes))
    torch.manual_seed(0)
    model = Transformer(model_config(prepared.recipe, prepared.tokenizers))
    for_training(model)
    return model, prepared


@pytest.fixture
def no_compiler(monkeypatch):
    """Our C++ cannot be compiled."""
    monkeypatch.setattr("glassformer.fast.training.has_cpp", lambda source: False)


@native_cpp
@pytest.mark.parametrize(("changes", "ours"), [
    ({}, True),
    ({"data__layout": "encoder"}, True),
    ({"training__precision": "bfloat16"}, True),
    ({"training__precision": "float16"}, False),
    ({"model__attention_dropout": 0.1}, False),
    ({"model__positions": "t5"}, False),
    ({"model__positions": "alibi", "data__layout": "encoder"}, True),
], ids=str)  # fmt: skip
def test_our_cpp_is_told_of_where_it_will_learn(changes, ours):
    assert attention(*made(**changes)).startswith("our C++ (" if ours else "matmul (")


@native_cpp
def test_our_cpp_is_told_of_with_the_texts_that_it_needs(threads):
    model, prepared = made(model__n_heads=2)
    torch.set_num_threads(2)
    assert attention(model, prepared) == "our C++ (on a CPU: it keeps no scores)"
    torch.set_num_threads(5)
    assert attention(model, prepared).endswith("no scores; a batch of fewer than 3 texts is left to torch)")


@pytest.mark.parametrize("layout", ["encoder-decoder", "encoder"])
@pytest.mark.usefixtures("no_compiler")
def test_the_backend_that_auto_picks_is_told_with_its_reason(layout):
    found = attention(*made(data__layout=layout))
    assert found.startswith("matmul (")
    assert found.endswith(" scores on a CPU: two products beat the fused kernel)")


@pytest.mark.parametrize(("changes", "message"), [
    ({}, None),
    ({"tokenizer__vocab_size": 4096}, "all of the text's, as tokenizer.vocab_size (4,096) is for "),
    ({"tokenizer__kind": "bpe"}, " of the 8,000 tokens asked for: the text gives no more"),
    ({"tokenizer__kind": "bpe", "tokenizer__vocab_size": 262}, None),
], ids=str)  # fmt: skip
def test_a_vocabulary_of_another_size_than_asked_for_is_told(changes, message):
    model, prepared = made(**changes)
    lines = [line for line in chosen(model, prepared) if line.startswith("vocabulary: ")]
    assert [message in line for line in lines] == ([] if message is None else [True])


@pytest.mark.usefixtures("no_compiler")
def test_both_are_told_where_long_and_short_sequences_get_different_ones():
    found = attention(*made(data__min_length=2, data__max_length=400, training__batch_tokens=4096))
    fused, products = found.split("; ")
    assert fused.startswith("sdpa (")
    assert products.startswith("matmul (")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model__attention": "reference"}, "reference, as asked"),
        ({"model__attention_rule": "sigmoid"}, "matmul (on cpu: no fused kernel has this rule)"),
        ({"model__attention_rule": "linear"}, "reference ("),
        ({"model__positions": "shaw"}, "matmul (a value bias needs the attention weights"),
        ({"model__window": 2, "data__min_length": 1500, "data__max_length": 1500, "data__train_size": 2,
          "data__dev_size": 1, "training__batch_tokens": 9999, "data__layout": "encoder"}, "sparse (on cpu: "),
    ],
    ids=["asked", "sigmoid", "linear", "shaw", "window"],
)  # fmt: skip
def test_what_else_can_be_told(changes, message):
    assert attention(*made(**changes)).startswith(message)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("length", [3, 600])
def test_every_rule_picks_what_it_then_computes_with(rule, length):
    """The name is that of a backend of the rule, and auto's answer is that backend's, bit for bit."""
    q = torch.randn(1, 2, length, 4)
    name, why = RULES[rule].pick("cpu", length, length, Mask(causal=True))
    assert why
    auto, picked = (ATTEND[rule][each](q, q, q, Mask(causal=True), scale=0.5) for each in ("auto", name))
    assert torch.equal(auto, picked)


def test_looking_changes_nothing():
    model, prepared = made()
    before, random, seams = weights(model), torch.get_rng_state(), [getattr(m, "attend", None) for m in model.modules()]
    for training in (True, False):
        model.train(training)
        attention(model, prepared)
        assert model.training == training
    assert_same(weights(model), before)
    assert torch.equal(torch.get_rng_state(), random)
    assert [getattr(m, "attend", None) for m in model.modules()] == seams


@pytest.mark.usefixtures("no_compiler")
def test_every_start_says_it_once(tmp_path):
    short = {"training__steps": 1, "training__warmup": 0}
    [started] = [e for e in follow(start(recipe(**short), tmp_path / "run")) if isinstance(e, Started)]
    kinds = [note.partition(":")[0] for note in started.notes]
    assert kinds == ["device", "arithmetic", "attention", "model", "data", "batches"]
    assert started.notes[2:] == chosen(*made(**short))
    assert "attention: matmul (" in (tmp_path / "run" / "log.txt").read_text()


@pytest.mark.parametrize(("warmup", "rate"), [(12, "0.01"), (24, "0.005")])
def test_a_warmup_that_takes_the_whole_run_is_told(warmup, rate):
    [found] = [line for line in chosen(*made(training__warmup=warmup)) if line.startswith("warm-up")]
    assert (
        found == f"warm-up: {warmup} steps, of a run of 12: the learning rate never decays, and reaches {rate} of 0.01"
    )
    assert not any(line.startswith("warm-up") for line in chosen(*made(training__warmup=11)))
