"""A model of another library is a run like any other: it writes, is scored, and others start from it."""

import math

import pytest
import torch

from glassformer.base.errors import CheckpointError, ResourceError
from glassformer.data.tokens.vocabulary import BOS, EOS
from glassformer.store.checkpoint import load
from glassformer.store.export import write_pretrained
from glassformer.train.finished.use import evaluate
from glassformer.train.finished.writing import Writer
from glassformer.train.recipe import load_recipe, override
from glassformer.train.run import beginning
from glassformer.train.run.beginning import begin, import_run, model_config
from glassformer.train.run.session import resume, start
from store.export_examples import EXAMPLES, READING, decoder, tokenizer
from store.pretrained_examples import END, TEXT, pretrained
from train.examples import follow
from train.text_examples import book, text_recipe


def full(*_args, **_settings):
    raise ResourceError("the disk is full")


def begun(parts):
    """Changes what `pretrained` writes: the tokenizer puts its end token before each text."""
    parts["tokenizer"]["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": END, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {END: {"id": END, "ids": [parts["config"]["eos_token_id"]], "tokens": [END]}},
    }


@pytest.fixture
def run(tmp_path):
    pretrained(tmp_path / "gpt2", begun)
    import_run(tmp_path / "gpt2", tmp_path / "run")
    return tmp_path / "run"


def test_it_writes_what_the_model_finds_most_probable(run):
    recipe = override(load_recipe(run / "recipe.toml"), {"decode.max_new_tokens": 5, "decode.temperature": 0.0})
    text = "".join(piece.text for piece in Writer(run, recipe).write(["The model"]))
    loaded = load(run)
    ids = [BOS, *loaded.tokenizers.target.encode("The model")]
    for _ in range(5):
        ids.append(int(loaded.model(torch.tensor([ids]))[0, -1].argmax()))
    assert loaded.tokenizers.target.decode(ids[1:]) == f"The model{text}"
    assert EOS not in ids


def test_its_loss_is_that_of_the_model(run, tmp_path):
    (tmp_path / "text.txt").write_text(TEXT[:40], "utf-8")
    loaded = load(run)
    ids = [BOS, *loaded.tokenizers.target.encode(TEXT[:40]), EOS]
    requested = override(load_recipe(run / "recipe.toml"), {"data.test_text": str(tmp_path / "text.txt")})
    scored = evaluate(run, requested, "test")
    logits = loaded.model(torch.tensor([ids[:-1]])).log_softmax(-1)
    expected = -logits[0, range(len(ids) - 1), ids[1:]].mean().item()
    assert math.isclose(float(scored["loss"]), expected, rel_tol=1e-5)


def test_what_it_never_predicts_is_not_scored(run, tmp_path):
    (tmp_path / "texts").mkdir()
    for name in ("a", "b"):
        (tmp_path / "texts" / name).write_text(TEXT[:9], "utf-8")
    loaded = load(run)
    own = [BOS, *loaded.tokenizers.target.encode(TEXT[:9]), EOS]
    ids, wanted = [*own, *own], override(load_recipe(run / "recipe.toml"), {"data.test_text": str(tmp_path / "texts")})
    scored = evaluate(run, wanted, "test")
    logits = loaded.model(torch.tensor([ids[:-1]])).log_softmax(-1)[0]
    expected = [-logits[place, id].item() for place, id in enumerate(ids[1:]) if id != BOS]
    assert scored["n"] == len(expected) == len(ids) - 2
    assert math.isclose(float(scored["loss"]), sum(expected) / len(expected), rel_tol=1e-5)


def test_what_writes_answers_from_it_learns_their_special_tokens(run, tmp_path):
    sizes = {"data.text": str(book(tmp_path)), "data.window": 16, "training.start_from": str(run)}
    begun = begin(override(load_recipe("denoise"), sizes))
    assert begun.model.config.silent == ""
    assert begun.data.recipe.model.silent == ""


def test_where_the_tokenizer_puts_nothing_first_a_text_begins_with_itself(tmp_path):
    pretrained(tmp_path / "gpt2")
    import_run(tmp_path / "gpt2", tmp_path / "run")
    recipe = load_recipe(tmp_path / "run" / "recipe.toml")
    assert not load(tmp_path / "run").tokenizers.target.begins
    assert Writer(tmp_path / "run", recipe).ids("The", 1) == load(tmp_path / "run").tokenizers.target.encode("The")


@pytest.mark.parametrize(("family", "chosen"), EXAMPLES.values(), ids=EXAMPLES)
def test_the_recipe_of_each_family_builds_its_model(tmp_path, family, chosen):
    write_pretrained(tmp_path / "in", decoder(torch.float32, **chosen), tokenizer(), READING, named="it")
    assert import_run(tmp_path / "in", tmp_path / "run").family == family
    recipe, loaded = load_recipe(tmp_path / "run" / "recipe.toml"), load(tmp_path / "run")
    assert model_config(recipe, loaded.tokenizers) == loaded.model.config
    assert recipe.data.window == 24


def test_a_window_too_long_to_train_with_is_shorter_and_told(tmp_path, monkeypatch):
    monkeypatch.setattr(beginning, "LONGEST", 16)
    pretrained(tmp_path / "gpt2", begun)
    assert import_run(tmp_path / "gpt2", tmp_path / "run").notes == [
        "window: 16 of the 32 tokens that the model reads (data.window in recipe.toml)"
    ]
    assert load_recipe(tmp_path / "run" / "recipe.toml").data.window == 16
    assert load(tmp_path / "run").model.config.stack.max_len == 32


def test_nothing_is_left_of_a_run_that_could_not_be_written(tmp_path, monkeypatch):
    pretrained(tmp_path / "gpt2")
    monkeypatch.setattr(beginning, "save", full)
    with pytest.raises(ResourceError):
        import_run(tmp_path / "gpt2", tmp_path / "run")
    assert not (tmp_path / "run").exists()
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "note").touch()
    with pytest.raises(ResourceError):
        import_run(tmp_path / "gpt2", tmp_path / "own")
    assert (tmp_path / "own" / "note").exists()


def test_a_run_that_starts_from_it_keeps_what_it_never_predicts(run, tmp_path):
    requested = text_recipe(book(tmp_path), training__steps=2, training__start_from=str(run))
    follow(start(requested, tmp_path / "tuned"))
    before, after = load(run).model, load(tmp_path / "tuned").model
    assert after.config.silent == before.config.silent == "0,1,3,4,5"
    assert torch.equal(after.head.bias, before.head.bias)
    assert "head.bias" not in dict(after.named_parameters())
    assert not torch.equal(after.decoder.embedding.weight, before.decoder.embedding.weight)


def test_it_has_no_training_to_go_on_with(run):
    with pytest.raises(CheckpointError, match=rf"imported .* \(gpt2\) .*train lm --data.text FILE .*start-from {run}"):
        resume(run)
