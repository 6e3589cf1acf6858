"""Recipes: what is refused and how, and that what is written reads back equal."""

from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as some

from glassformer import Transformer
from glassformer.base.errors import ConfigError
from glassformer.base.typed import annotations_of
from glassformer.data.config import DataConfig
from glassformer.data.kinds import LAYOUTS
from glassformer.train.recipe import Recipe, dumps_recipe, load_recipe, override, read_recipe
from glassformer.train.settings import CheckpointConfig, DecodeConfig, OptimizerConfig, TrainingConfig
from glassformer.train.tasks import METRICS

TASKS = {
    "pairs": ("multi30k", "seq2seq"), "labelled": ("classify",), "text": ("denoise", "lm", "mlm"), "tags": ("tag",),
    "regression": ("regression",), "trajectories": ("decision",),
}  # fmt: skip
OWN = ("copy", "numbers", "reverse", "sort", "spell")
NAMES = tuple(sorted([*OWN, *(name for names in TASKS.values() for name in names)]))


def recipe_file(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_recipe(recipe_file(folder, text))
    assert "mine.toml" in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_named_recipe(name, tmp_path):
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.description.endswith(".")
    assert recipe.data.task == next((task for task, names in TASKS.items() if name in names), name)
    assert read_recipe(recipe_file(tmp_path, dumps_recipe(recipe))) == recipe


def test_file_says_only_what_differs(tmp_path):
    path = recipe_file(tmp_path, '[model]\nn_layers = 5\n[data]\ntask = "sort"\n')
    plain = Recipe("mine")
    assert load_recipe(path) == replace(
        plain, model=replace(plain.model, n_layers=5), data=replace(plain.data, task="sort")
    )


def test_byte_order_mark_is_taken_off(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xef\xbb\xbf[decode]\r\nbatch_size = 7\r\n")
    assert load_recipe(path).decode.batch_size == 7


def test_every_setting_can_be_written():
    """TOML has no word for none: a setting may be none only if that is also its default."""
    for name, kind in annotations_of(Recipe).items():
        for key, allowed in annotations_of(kind).items() if is_dataclass(kind) else [(name, kind)]:
            assert {int, float, str, bool, type(None)} >= set(get_args(allowed) or (allowed,))
            if type(None) in get_args(allowed):
                assert getattr(getattr(Recipe("x"), name), key) is None


numbers = some.floats(min_value=1e-300, max_value=1e300)


@given(
    texts=some.tuples(some.text(), some.text(), some.text(min_size=1)),
    rate=numbers,
    epsilon=numbers.filter(lambda value: value >= 1e-30),
    decay=some.floats(min_value=0, max_value=1e300),
    seed=some.integers(0, 2**64 - 1),
    longest=some.none() | some.integers(1, 10**6),
    skip=some.booleans(),
)
def test_written_and_read_back(tmp_path_factory, texts, rate, epsilon, decay, seed, longest, skip):
    recipe = Recipe(
        "r",
        texts[0],
        training=TrainingConfig(learning_rate=rate, seed=seed),
        optimizer=OptimizerConfig(epsilon=epsilon, weight_decay=decay),
        decode=DecodeConfig(max_new_tokens=longest),
    )
    recipe = override(recipe, {"data.train": texts[2], "data.skip_empty": skip, "training.device": texts[1]})
    assert read_recipe(recipe_file(tmp_path_factory.mktemp("recipes"), dumps_recipe(recipe))) == recipe


def test_text_that_is_not_utf8_is_refused():
    recipe = override(Recipe("x"), {"data.train": "caf\udce9.tsv"})
    with pytest.raises(ConfigError, match="UTF-8"):
        dumps_recipe(recipe)


@pytest.mark.parametrize(("text", "facts"), [
    ("[model]\nn_layer = 4", ["model.n_layer", "Did you mean 'n_layers'?"]),
    ("[training]\nd_model = 4", ["training.d_model", "It belongs to [model]"]),
    ("[modle]\nd_model = 4", ["modle", "Did you mean 'model'?"]),
    ("stepps = 4", ["stepps", "Known:"]),
    ("steps = 4", ["steps", "It belongs to [training]"]),
    ('[model]\nn_layers = "4"', ["model.n_layers", "a whole number", 'got "4"']),
    ("[model]\nn_layers = 4.0", ["model.n_layers", "a whole number", "got 4.0"]),
    ("[model]\nn_layers = true", ["model.n_layers", "a whole number", "got true"]),
    ("[model]\ndropout = true", ["model.dropout", "a number", "got true"]),
    ("[model]\ntie_embeddings = 1", ["model.tie_embeddings", "true or false", "got 1"]),
    ("[data]\ntrain = 3", ["data.train", "text in quotes", "got 3"]),
    ("[data]\ntrain = ['a', 'b']", ["data.train", "text in quotes", "['a', 'b']"]),
    ("model = 3", ["model", "a section", "got 3"]),
    ("[model]\nn_heads = 3", ["d_model (256)", "n_heads (3)", "try n_heads=2"]),
    ("[data]\ntask = 'revers'", ["data.task='revers'", "Did you mean 'reverse'?"]),
    ("[training]\nschedule = 'cosin'", ["training.schedule='cosin'", "Did you mean 'cosine'?"]),
    ("[training]\nsteps = 0", ["training.steps must be at least 1; got 0", "Try training.steps=1"]),
    ("[model]\nn_layers =\n", ["not valid TOML", "line 2"]),
    ("[model]\nd_ff = 1\nd_ff = 2\n", ["not valid TOML", "line 3"]),
    ("[model]\nd_ff = " + "9" * 5000, ["not valid TOML", "4300"]),
    ("[model]\ndropout = " + "9" * 400, ["model.dropout", "a number", "got 9999"]),
    ("x = " + "[" * 100_000, ["not valid TOML"]),
    ("[training]\nmetric = 'blue'", ["training.metric='blue'", "Did you mean 'bleu'?"]),
    ("[training]\nmetric = 'bleu'\n[data]\ntask = 'copy'", ["training.metric='bleu'", "'copy'", "'exact_match'"]),
    ("[model]\nencoder_layers = 0", ["model.encoder_layers must be at least 1; got 0", "model.n_layers"]),
    ("[model]\ndecoder_layers = -1", ["model.decoder_layers must be at least 1; got -1", "model.n_layers"]),
    ("name = 'a/b'", ["without slashes", "'a/b'"]),
    ("name = '..'", ["without slashes", "'..'"]),
])  # fmt: skip
def test_mistake_in_a_file(tmp_path, text, facts):
    message = refusal(tmp_path, text)
    assert all(fact in message for fact in facts), message
    assert message.count("mine.toml") == 1


def test_file_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match=r"missing\.toml.*No such file"):
        load_recipe(tmp_path / "missing.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(ConfigError, match=r"folder\.toml cannot be read"):
        load_recipe(tmp_path / "folder.toml")
    (tmp_path / "latin.toml").write_bytes("name = 'é'".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"latin\.toml is not UTF-8 text \(byte 8\)"):
        load_recipe(tmp_path / "latin.toml")


def test_a_text_is_no_recipe(tmp_path):
    book = recipe_file(tmp_path, "Once upon a time\n", "book.txt")
    with pytest.raises(ConfigError, match=f"glassformer train lm --data.text {book}$"):
        load_recipe(book)


def test_unknown_recipe():
    with pytest.raises(ConfigError, match=r"no recipe 'revers'.*Did you mean 'reverse'\?"):
        load_recipe("revers")


def test_run_folder_is_no_recipe(tmp_path):
    recipe_file(tmp_path, "", "recipe.toml")
    with pytest.raises(ConfigError, match=r"is a run folder.*recipe\.toml"):
        load_recipe(str(tmp_path))


@pytest.mark.parametrize(("kind", "values", "fact"), [
    (TrainingConfig, {"steps": -1}, "training.steps must be at least 1; got -1"),
    (TrainingConfig, {"batch_tokens": 0}, "training.batch_tokens"),
    (TrainingConfig, {"seed": -1}, "training.seed"),
    (TrainingConfig, {"clip": float("inf")}, "training.clip"),
    (TrainingConfig, {"learning_rate": 0.0}, "training.learning_rate must be above 0"),
    (TrainingConfig, {"learning_rate": float("nan")}, "training.learning_rate"),
    (OptimizerConfig, {"beta1": 1.0}, "optimizer.beta1 must be at least 0 and below 1; got 1.0"),
    (OptimizerConfig, {"layer_decay": 0.0}, "optimizer.layer_decay must be above 0"),
    (OptimizerConfig, {"name": "muon", "adamw_scale": 0.0}, "optimizer.adamw_scale must be above 0"),
    (OptimizerConfig, {"name": "moun"}, "Did you mean 'muon'?"),
    (OptimizerConfig, {"momentum": 0.9}, "optimizer.momentum belongs to optimizer.name='muon'; got"),
    (OptimizerConfig, {"adamw_scale": 2.0}, "optimizer.adamw_scale belongs to optimizer.name='muon'; got"),
    (OptimizerConfig, {"name": "adafactor", "beta1": 0.8}, "beta1 belongs to optimizer.name='adamw' or 'muon'"),
    (TrainingConfig, {"min_learning_rate": 1.0}, "training.min_learning_rate (1.0) must be at most"),
    (TrainingConfig, {"precision": "float8"}, "training.precision='float8'"),
    (CheckpointConfig, {"keep": 0}, "checkpoint.keep must be at least 1; got 0"),
])  # fmt: skip
def test_value_that_cannot_be(kind, values, fact):
    with pytest.raises(ConfigError) as caught:
        kind(**values)
    assert fact in str(caught.value)


def test_metric_must_be_one_of_what_is_given():
    classify = load_recipe("classify")
    for metric in set(METRICS) - {"accuracy", "macro_f1", "loss"}:
        with pytest.raises(ConfigError, match=rf"metric='{metric}' does not fit.*labels.*Try training.metric='accur"):
            override(classify, {"training.metric": metric})
    for metric in ("accuracy", "macro_f1"):
        assert override(classify, {"training.metric": metric}).training.metric == metric
        with pytest.raises(ConfigError, match=rf"metric='{metric}' does not fit.*Try training.metric='exact_match'"):
            override(load_recipe("reverse"), {"training.metric": metric})


# --- What a recipe may not ask for: numbers beyond their bounds, layouts that a task cannot have


@pytest.mark.parametrize(("name", "value"), [
    ("training.seed", 2**64),
    ("training.threads", 10**25),
    ("training.steps", 10**25),
    ("training.samples", 2**64),
    ("optimizer.epsilon", 1e-39),
    ("model.d_model", 10**25),
    ("model.max_len", 10**25),
])  # fmt: skip
def test_number_beyond_what_can_be_is_refused_with_the_bound(name, value):
    bound = "at least 1.17" if name.endswith("epsilon") else r"at most \d+"
    with pytest.raises(ConfigError, match=f"{name.split('.')[1]} must be {bound}"):
        override(Recipe("x"), {name: value})


@pytest.mark.parametrize("task", ["copy", "reverse", "sort", "numbers", "spell", "pairs"])
def test_one_stack_fills_answers_as_long_as_their_sources(task):
    """It is given a blank for each token of the source, and knows no other length."""
    recipe = replace(Recipe("x"), data=DataConfig(task=task))
    if task in ("copy", "reverse", "sort"):
        assert override(recipe, {"data.layout": "encoder"}).data.layout == "encoder"
        return
    with pytest.raises(ConfigError, match=rf"as long as their sources.*got data\.task='{task}'.*'encoder-decoder'"):
        override(recipe, {"data.layout": "encoder"})


def test_one_stack_has_one_vocabulary():
    options = {"data.layout": "encoder", "tokenizer.shared": False}
    with pytest.raises(ConfigError, match=r"needs .* target; got tokenizer\.shared=False.*Try tokenizer\.shared=True"):
        override(load_recipe("reverse"), options)
    assert override(load_recipe("reverse"), options | {"tokenizer.shared": True}).data.layout == "encoder"


@pytest.mark.parametrize("name", ["", " ", "..", "a/b", "a\0"])
def test_a_name_that_no_folder_has_is_refused(name):
    with pytest.raises(ConfigError, match=r"name must be a plain name .* Try name = \"my-run\"\."):
        Recipe(name)


def test_a_recipe_has_a_largest_size(tmp_path):
    """So that a link to /dev/zero is not read without end."""
    path = tmp_path / "mine.toml"
    path.write_text("# " + "x" * 2**20, "utf-8")
    with pytest.raises(ConfigError, match=r"at most 1,048,576 bytes; .*mine\.toml has more"):
        read_recipe(path)


@pytest.mark.parametrize(("changes", "message"), [
    ({"model.head_dropout": 1.0}, r"^model\.head_dropout must be at least 0 and below 1; got 1\.0\. Try model\."),
    ({"model.pooling": "max"}, r"^pooling='max' is not known"),
])  # fmt: skip
def test_settings_of_the_head_have_the_names_of_the_recipe(changes, message):
    def make():
        recipe = override(load_recipe("classify"), changes)
        return Transformer(recipe.model.build(LAYOUTS[recipe.data.layout], 9, n_labels=2))

    with pytest.raises(ConfigError, match=message):
        make()
