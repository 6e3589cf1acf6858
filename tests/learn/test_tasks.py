"""A task that is learned to the last example in a few seconds, and not by a model with a planted bug."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from glassformer.data import batch
from glassformer.nn.stack import Stack
from glassformer.train.finished.use import evaluate
from glassformer.train.objective import OBJECTIVES, next_token
from glassformer.train.run.session import start
from train.examples import follow, recipe

SMALL = {
    "data__symbols": 6, "data__min_length": 3, "data__max_length": 4, "decode__max_new_tokens": 8,
    "data__train_size": 2000, "data__dev_size": 60, "data__test_size": 60, "model__d_model": 32, "model__d_ff": 64,
    "model__dropout": 0.0, "model__tie_embeddings": False, "model__positions": "learned", "model__max_len": 12,
    "training__steps": 250, "training__batch_tokens": 512, "training__accumulate": 1, "training__learning_rate": 1e-2,
    "training__warmup": 20, "training__label_smoothing": 0.0, "optimizer__weight_decay": 0.0,
    "training__evaluate_every": 0, "training__metric": "exact_match",
}  # fmt: skip
"""1,512 different sources to be written backwards, about 1,360 of them for training."""
ENCODER = {"data__layout": "encoder", "model__n_layers": 2}


def learned(folder: Path, **changes: object) -> dict[str, float]:
    """The last line of figures of a run."""
    follow(start(recipe(**{**SMALL, **changes}), folder / "run"))
    return json.loads((folder / "run" / "metrics.jsonl").read_text().splitlines()[-1])


@pytest.mark.parametrize("layout", ["encoder-decoder", pytest.param("encoder", marks=pytest.mark.slow)])
def test_reverse_is_learned_to_the_last_example(tmp_path, layout):
    figures = learned(tmp_path, **(ENCODER if layout == "encoder" else {}))
    assert (figures["exact_match"], figures["token_accuracy"]) == (1.0, 1.0)
    assert figures["loss"] < 0.05
    run, options = tmp_path / "run", {**SMALL, **(ENCODER if layout == "encoder" else {})}
    unseen = evaluate(run, recipe(**options))["exact_match"]
    assert unseen > 0.95
    if layout == "encoder-decoder":
        assert evaluate(run, recipe(**options, decode__cache="int8"))["exact_match"] == unseen


def without_order(monkeypatch) -> dict[str, object]:
    """Attention sees a set."""
    return {"model__positions": "none"}


def encoder_without_order(monkeypatch) -> dict[str, object]:
    return {**ENCODER, "model__positions": "none"}


def labels_not_shifted(monkeypatch) -> dict[str, object]:
    """Each token predicts itself: the loss falls to nothing, and nothing is learned."""

    def same_token(data):
        targets = next_token(data)
        return targets._replace(ids=targets.inputs)

    monkeypatch.setitem(OBJECTIVES, "next_token", same_token)
    return {}


def decoder_sees_the_future(monkeypatch) -> dict[str, object]:
    """Each token may look up the one it is to predict."""
    mask = Stack._mask

    def leaky(stack, *given):
        made = mask(stack, *given)
        return replace(made, causal=False) if torch.is_grad_enabled() else made

    monkeypatch.setattr(Stack, "_mask", leaky)
    return {}


def source_of_another_row(monkeypatch) -> dict[str, object]:
    """Each row is taught with its neighbour's source."""
    collate = batch.collate

    def rolled(encoded, rows, layout):
        made = collate(encoded, rows, layout)
        keep = None if made.source_keep is None else made.source_keep.roll(1, 0)
        return replace(made, source=made.source.roll(1, 0), source_keep=keep)

    monkeypatch.setattr(batch, "collate", rolled)
    return {}


@pytest.mark.parametrize(
    "plant",
    [without_order, encoder_without_order, labels_not_shifted, decoder_sees_the_future, source_of_another_row],
)
def test_planted_bug_is_noticed(tmp_path, monkeypatch, plant):
    assert learned(tmp_path, **plant(monkeypatch), training__steps=120)["exact_match"] < 0.4
