"""Tests a learner's `greedy_translate(model, source, bos_id, eos_id, max_new_tokens)` on a model with known answers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.proof.check.attention import accepts
from glassformer.proof.check.decode import LIMITS, MISTAKES, MOST, Counting, Written, compared, greedy, ids_of
from glassformer.proof.check.shift import OTHER_START
from glassformer.proof.check.table import Fault, Mistake, Property, SignatureError, Subject, ask

SOURCE, BOS = torch.tensor([[7, 5, 10]]), 3
END = greedy(4, eos=-1, prompt=[BOS])[-1]
"""The fourth token that the model predicts. It differs from those before it, and depends on all of them."""

NO_SOURCE = Mistake(
    "the source does not reach the model",
    "The model is called with something other than the source that was given.",
    "How does the decoder learn what is to be translated?",
)


class Translating(nn.Module):
    """A model that predicts what `Counting` does for the target, and records its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.counting = Counting()
        self.asked: list[tuple[Tensor, Tensor]] = []

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return logits [1, T, V]."""
        self.asked.append((source, target))
        return self.counting(target)


class Translate:
    """The learner's function, called once with a generous limit, and everything it passed to the model."""

    def __init__(self, function: Callable[..., Any]) -> None:
        if not accepts(function, "model", "source", "bos", "eos", "n"):
            raise SignatureError(f"{inspect.signature(function)}")
        self.function, self.model = function, Translating()
        self.ids = self.written(MOST, END)

    def written(self, limit: int, eos: int) -> Written:
        """Return what the function writes."""
        return ids_of(ask(self.function, self.model, SOURCE, BOS, eos, limit))


def reads_source(learner: Translate) -> Fault | None:
    """Check that the source reaches the model unchanged."""
    other = [source for source, _ in learner.model.asked if not torch.equal(source, SOURCE)]
    if learner.model.asked and not other:
        return None
    got = other[0].tolist() if other else "nothing"
    return Fault(NO_SOURCE, f"The source is {SOURCE.tolist()}; the model was given {got}.")


def begins(learner: Translate) -> Fault | None:
    """Check that the first target that the model reads is bos_id alone."""
    first = learner.model.asked[0][1].flatten().tolist()
    if first == [BOS]:
        return None
    meaning = {
        END: ", which is eos_id",
        0: ", which is often padding",
        SOURCE[0, -1].item(): ", the source's last token",
    }
    told = meaning.get(first[0], "") if len(first) == 1 else ""
    return Fault(OTHER_START, f"bos_id is {BOS}, and the model first reads {first}{told}.")


def ends(learner: Translate) -> Fault | None:
    """Check that it writes the greedy tokens up to the end token."""
    return compared(learner.ids, lambda how: greedy(MOST, END, how, [BOS]), MISTAKES)


def limited(learner: Translate) -> Fault | None:
    """Check that it writes no more than it may."""
    return compared(learner.written(3, -1), lambda how: greedy(3, -1, how, [BOS]), LIMITS)


TRANSLATE = Subject(
    Translate,
    (
        Property("source", "The model reads the source.", reads_source),
        Property("start", "Decoding begins with bos_id, as training does.", begins, ("source",)),
        Property("ends", "The tokens are the likeliest ones, up to the end token.", ends, ("start",)),
        Property("limit", "At most max_new_tokens tokens are written.", limited, ("ends",)),
    ),
)
