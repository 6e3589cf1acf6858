"""The classic mistakes on purpose: each is told, refused where it cannot be, and no obstacle to a run."""

import pytest
import torch

from fresh import printed
from glassformer.base.errors import ConfigError
from glassformer.train.breaks import BREAKS, CONTRARY, break_names
from glassformer.train.finished.use import evaluate, translate
from glassformer.train.loss import loss_of
from glassformer.train.recipe import read_recipe
from glassformer.train.records import Evaluated
from glassformer.train.run.beginning import broken_notes, new_model, objective_of, prepare
from glassformer.train.run.session import resume, start
from glassformer.train.surgery import OBJECTIVE, SURGERY, WEIGHTS
from train.examples import assert_same_end, follow, killed_after, recipe

RANDOM = "dropout-in-evaluation"
"""Its dev figures are random, so that no two runs have the same."""
TOKENS = [name for name in BREAKS if name != "pads-in-pooling"]


def broken(name: str | None, **changes):
    return recipe(**{"model__n_layers": 2, "training__broken": name, "training__accumulate": 1, **changes})


def test_every_mistake_is_made_in_one_place():
    assert sorted([*SURGERY, *WEIGHTS, *OBJECTIVE]) == sorted(BREAKS)
    assert {name for two in CONTRARY for name in two} <= {*BREAKS}
    assert all(each.what.endswith(".") and each.symptom.endswith(".") for each in BREAKS.values())


def test_names():
    assert break_names(None) == []
    assert break_names(" no-scale,leaky-mask ,no-scale,") == ["no-scale", "leaky-mask"]
    with pytest.raises(ConfigError, match=r"'no-scales' is not known.*'leaky-mask'.*Did you mean 'no-scale'"):
        break_names("no-scales")
    with pytest.raises(ConfigError, match="Remove it"):
        break_names(" , ")
    for two in CONTRARY:
        with pytest.raises(ConfigError, match="only one"):
            break_names(",".join(two))


IMPOSSIBLE = {
    "no-scale": {"model__attention_rule": "linear"}, "wrong-scale": {"model__n_heads": 1},
    "swapped-heads": {"model__n_heads": 1}, "alike-heads": {"model__positions": "alibi"},
    "leaky-mask": {"data__layout": "encoder"}, "no-positions": {"model__positions": "none"},
    "no-cross-attention": {"data__layout": "encoder"}, "shared-layers": {"model__n_layers": 1},
    "identical-layers": {"model__n_layers": 1}, "no-embedding-scale": {"model__scale_embeddings": False},
    "dropout-in-evaluation": {"model__dropout": 0.0}, "unshifted-labels": {"data__layout": "encoder"},
    "pads-in-pooling": {}, "cache-off-by-one": {"model__positions": "shaw"},
}  # fmt: skip


AS_IT_IS = [
    ("no-scale", {"model__attention_scale": 1.0}),
    ("no-scale", {"model__n_heads": 8}),
    ("wrong-scale", {"model__attention_scale": 8**-0.5}),
    ("leaky-mask", {"model__window": 1}),
    ("no-embedding-scale", {"model__d_model": 1, "model__n_heads": 1}),
]
"""Mistakes that these settings make no mistake."""


@pytest.mark.parametrize(("name", "settings"), [*IMPOSSIBLE.items(), *AS_IT_IS])
def test_what_cannot_be_broken_is_refused(name, settings):
    with pytest.raises(ConfigError, match=rf"{name} is not possible in .* model, as .*\. Possible here: .*no-residual"):
        broken(name, **settings)


def test_branches_in_parallel_have_no_input_to_replace():
    with pytest.raises(ConfigError, match=r"no-residual is not possible .* the branches of a block are parallel"):
        broken("no-residual", model__parallel_branches=True)


def test_labels_of_tokens_are_refused_of_a_classifier():
    files = {"data__task": "labelled", "data__layout": "label", "training__metric": "accuracy"}
    for name in ("shifted-labels", "unshifted-labels", "pads-in-loss"):
        with pytest.raises(ConfigError, match="one label"):
            broken(name, **files)


@pytest.mark.parametrize("name", TOKENS)
def test_every_weight_of_a_broken_model_has_a_gradient(name):
    ready = broken(name)
    prepared = prepare(ready)
    model = new_model(ready, prepared.tokenizers)
    loss_of(model, next(prepared.batches(0))[1], objective_of(model, ready)).objective.backward()
    assert all(each.grad is not None for each in model.parameters())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (i % 3 > 0)) for i, name in enumerate(TOKENS)]
)
def test_broken_run_is_told_of_resumed_and_used(name, tmp_path):
    whole = tmp_path / "whole"
    short = {"training__steps": 5, "training__evaluate_every": 2, "checkpoint__every": 2}
    first, *_, last = follow(start(broken(name, training__label_smoothing=0.0, **short), whole))
    [note] = [each for each in first.notes if each.startswith("broken on purpose")]
    assert note == f"broken on purpose ({name}): {BREAKS[name].what} Watch: {BREAKS[name].symptom}"
    assert note in (whole / "log.txt").read_text("utf-8")

    run = killed_after(whole, 2, tmp_path / "run")
    assert note in follow(resume(run))[0].notes
    if name == RANDOM:
        return
    assert_same_end(run, whole)
    scores = evaluate(run, read_recipe(run / "recipe.toml"), "dev")
    assert {key: pytest.approx(value) for key, value in last.best_metrics.items()} == scores
    assert len([*translate(run, enumerate(["a b", "b a d"], 1), 2)]) == 2


def test_evaluation_is_as_broken_as_training(tmp_path):
    """A position that is asked for what it reads has learned that, and not the next token."""
    run = tmp_path / "run"
    events = follow(start(broken("unshifted-labels", training__steps=60, training__learning_rate=3e-2), run))
    [*_, last] = [event for event in events if isinstance(event, Evaluated)]
    assert last.metrics["loss"] < 0.5
    assert last.metrics["exact_match"] == 0.0


def test_two_at_once():
    ready = broken("no-residual,no-scale,alike-heads,shifted-labels")
    prepared = prepare(ready)
    model = new_model(ready, prepared.tokenizers)
    block = model.decoder.blocks[0]
    assert block.self_attention.scale == 0.0
    assert block.self_attention.branch.scale == 1.0
    rows = block.self_attention.branch.query.weight.unflatten(0, (2, 4))
    assert torch.equal(rows[0], rows[1])
    batch = next(prepared.batches(0))[1]
    assert torch.equal(objective_of(model, ready)(batch).ids, batch.tokens[:, 2:])
    assert len(broken_notes(ready)) == 4


def test_a_right_run_pays_nothing():
    """Neither the surgery nor an object of the model that is not as its class has it."""
    body = (
        "import sys; from glassformer.data.config import DataConfig; from glassformer.train.recipe import Recipe;"
        "from glassformer.train.run.beginning import new_model, objective_of, prepare;"
        "from glassformer.train.objective import next_token;"
        "recipe = Recipe('x', data=DataConfig(task='copy', train_size=9, dev_size=2));"
        "model = new_model(recipe, prepare(recipe).tokenizers);"
        "assert objective_of(model, recipe) is next_token;"
        "assert not any('forward' in vars(each) or 'train' in vars(each) for each in model.modules());"
        "assert 'glassformer.train.surgery' not in sys.modules"
    )
    printed("-c", body)
