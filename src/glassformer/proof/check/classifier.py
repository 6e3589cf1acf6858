"""Tests modules around an encoder: a classifier's head, and a map from states."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.proof.check.calling import (
    UNKNOWN,
    Choice,
    Heard,
    aspect,
    built,
    distance,
    drawn,
    forward_of,
    itself,
    listening,
    read,
    scramble,
    shaped,
)
from glassformer.proof.check.encoder_decoder import IN_ENCODER
from glassformer.proof.check.labels import DIVISOR, PADS, SOFTMAX_TWICE
from glassformer.proof.check.property import Fault, Mistake, NotTestedError, ask, law

B, T, D, LABELS = 2, 6, 8, 5

# --- a classifier

IDS = torch.tensor([[3, 1, 4, 1, 5, 2], [2, 6, 5, 0, 0, 0]])
LENGTHS = torch.tensor([6, 3])
REAL = torch.arange(T) < LENGTHS[:, None]


class Encoder(nn.Module):
    """An encoder of width `d_model` in which each position adds twice the mean of those that the mask allows."""

    d_model = D

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Parameter(drawn(8, D)), nn.LayerNorm(D)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return vectors [B, T, D]."""
        return encoded(self.table, ids, mask if mask is None else mask.reshape(len(ids), -1, ids.shape[1])[:, 0])


def encoded(table: Tensor, ids: Tensor, keep: Tensor | None) -> Tensor:
    """Return the encoder's vectors."""
    x = table[ids]
    weights = (torch.ones_like(ids) if keep is None else keep).to(x.dtype)[..., None]
    return x + 2 * (x * weights).sum(1, keepdim=True) / weights.sum(1, keepdim=True)


POOLS = {
    "pool": [
        Choice("right"),
        Choice("all", "all places averaged", PADS),
        Choice("divisor", "a division by all places", DIVISOR),
    ],
    "mask": [Choice(True), Choice(False, "the encoder without a mask", IN_ENCODER)],
}


class Classifying:
    """The learner's `Classifier` around our encoder."""

    def __init__(self, kind: Any) -> None:
        module = scramble(built(kind, {"encoder": Encoder(), "n_outputs": LABELS}))
        forward_of(module, "ids", "lengths")
        self.table = next(each.detach() for each in module.parameters() if each.shape == (8, D))
        with listening(module) as heard, torch.no_grad():
            self.seen = ask(module, IDS, LENGTHS)
        self.maps = [each for each in heard if isinstance(each.module, nn.Linear)]
        fits = bool(self.maps) and self.maps[0].given.shape == (B, D)
        self.reading = read(self.maps[0].given, POOLS, self.pooled) if fits else None

    def pooled(self, pool: str, mask: bool) -> Tensor:
        """Return the vectors that the first map gets under a reading."""
        x = encoded(self.table, IDS, REAL if mask else None)
        if pool == "all":
            return x.mean(1)
        return (x * REAL[..., None]).sum(1) / (T if pool == "divisor" else LENGTHS[:, None])

    @law("There is one logit for each label.")
    def shape(self) -> Fault | None:
        return shaped(self.seen, (B, LABELS), UNKNOWN)

    def head(self) -> Heard:
        """Return the call of the map to the labels. Errors: `NotTestedError`."""
        if not self.maps:
            raise NotTestedError("its map to the labels (nn.Linear) could not be found")
        return self.maps[-1]

    @law("The mean of the encoder's vectors goes into the map.", "shape")
    def equation(self) -> Fault | None:
        self.head()
        return None if self.reading is not None else Fault(UNKNOWN, "What its first map reads is no known mean.")

    mean = aspect("pool", "The mean goes over real tokens.", name="mean")
    mask = aspect("mask", "The encoder is given the mask.")

    @law("Logits are returned.", "shape")
    def logits(self) -> Fault | None:
        gave = self.head().gave
        gap = distance(self.seen, gave)
        soft = min(distance(self.seen, each(gave, -1)) for each in (torch.softmax, torch.log_softmax))
        evidence = f"It is {gap:.2g} off the map's output."
        return Fault(SOFTMAX_TWICE if soft < 1e-9 else UNKNOWN, evidence) if gap > 1e-9 else None


# --- states

FEATURES = 3
OTHER_DATA = Mistake(
    "the scale comes from other data",
    "States are scaled by the mean and deviation of the batch at hand, not by those that were fitted.",
    "Which data may a scale come from, when the model later meets a single state?",
)
NOT_SCALED = Mistake(
    "the states are not scaled",
    "They go into the map as they are, whatever was fitted.",
    "Where does forward use what fit has kept?",
)
CONSTANT = Mistake(
    "a constant feature gives NaN",
    "The deviation of a feature that never changes is 0, and something is divided by it.",
    "What must stand in place of a deviation of 0?",
)
MEAN, STD = torch.tensor([1.0, -2.0, 0.5]).double(), torch.tensor([2.0, 0.5, 3.0]).double()
STATES = drawn(B, T, FEATURES)


CENTRED = STATES - STATES.mean((0, 1))
SCALES = [
    Choice((STATES - MEAN) / STD),
    Choice(CENTRED / STATES.std((0, 1)), "the batch's own mean and deviation", OTHER_DATA),
    Choice(CENTRED / STATES.std((0, 1), correction=0), "the batch's own mean and deviation", OTHER_DATA),
    Choice(STATES, "states as they are", NOT_SCALED),
]


class States:
    """The learner's `StateEncoder`, fitted to a mean and a deviation."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.seen, heard = self.run(STD)
        self.reading = read(heard[0].given, {"way": SCALES}, itself, 1e-4) if heard else None

    def run(self, std: Tensor) -> tuple[Any, list[Heard]]:
        """Return the output for the states, and the calls of linear maps."""
        module = scramble(built(self.kind, {"n_features": FEATURES, "d_model": D}))
        fit = getattr(module, "fit", None)
        if fit is None:
            raise NotTestedError("it has no fit(mean, std)")
        ask(fit, MEAN.clone(), std.clone())
        with listening(module) as heard, torch.no_grad():
            seen = ask(module, STATES)
        return seen, [each for each in heard if isinstance(each.module, nn.Linear)]

    @law("There is one vector for each state.")
    def shape(self) -> Fault | None:
        return shaped(self.seen, (B, T, D), UNKNOWN)

    @law("The map reads scaled states.", "shape")
    def equation(self) -> Fault | None:
        return None if self.reading is not None else Fault(UNKNOWN, "Its map reads no known scaling of the states.")

    scale = aspect("way", "States are scaled by what was fitted.", name="scale")

    @law("A deviation of 0 gives numbers.", "scale")
    def constant(self) -> Fault | None:
        seen = self.run(STD * torch.tensor([1.0, 0.0, 1.0]))[0]
        broken = int((~seen.isfinite()).sum())
        evidence = f"With a deviation of 0, {broken} of {seen.numel()} numbers are not finite."
        return Fault(CONSTANT, evidence) if broken else None
