"""Tests what a learner does with a model's parameters: how they start, and how many there are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.proof.check.calling import called
from glassformer.proof.check.language_model import HEAD
from glassformer.proof.check.reading import Choice, aspect, read
from glassformer.proof.check.small_parts import EQUATION
from glassformer.proof.check.table import CrashError, Fault, Mistake, Property, Subject, crash_of

# --- start values

NORMS_TOO = Mistake(
    "norms are drawn too",
    "The scale of a norm must begin at 1 and its shift at 0; random ones scale every position at random.",
    "Which parameters have two axes?",
)
UNCHANGED = Mistake(
    "nothing is changed",
    "After the call the matrices hold the numbers that they held before.",
    "Do you write into the parameter, or make a new tensor?",
)
SOME_LEFT = Mistake(
    "some matrices are left as they were",
    "Not every matrix of the model is drawn anew.",
    "Does your loop find every matrix, also those inside of other modules?",
)
IDENTICAL = Mistake(
    "matrices start identical",
    "Two matrices of one shape hold the same numbers, or two models drawn under different seeds do.",
    "Who chooses the seed: your function, or its caller?",
)
EMBEDDING = Mistake(
    "the embedding starts too large",
    "Its numbers have a deviation of 1 or so: as a head it would give logits as large as the root of d_model.",
    "How long is a row drawn with a deviation of 1/√d_model?",
)
OTHER_SPREAD = Mistake(
    "the numbers are not drawn as Xavier draws them",
    "Their range or their spread is another than that of the uniform numbers up to √(6 / (rows + columns)).",
    "From which two sizes of a matrix does its range follow?",
)
BIASES_TOO = Mistake(
    "biases are drawn too",
    "Biases must begin at 0 (or as they were).",
    "Which parameters have one axis, and how must they begin?",
)


class Untrained(nn.Module):
    """An embedding, five maps, a norm and a head, as torch starts them."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 64)
        self.maps = nn.ModuleDict({name: nn.Linear(64, 64) for name in ("query", "key", "value", "output")})
        self.up, self.norm, self.head = nn.Linear(64, 256), nn.LayerNorm(64), nn.Linear(64, 50)


class Started:
    """The learner's `init_weights`, called on a model of ours."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.crash: CrashError | None = None
        self.before, self.after = self.drawn(1)

    def drawn(self, seed: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the parameters of an untrained model before and after the call, by name."""
        torch.manual_seed(3)
        model = Untrained()
        before = {name: each.detach().clone() for name, each in model.named_parameters()}
        torch.manual_seed(seed)
        try:
            called(self.function, {"model": model})
        except CrashError as crash:
            if "Fan in and fan out" not in str(crash.__cause__):
                raise
            self.crash = crash
        return before, {name: each.detach() for name, each in model.named_parameters()}

    def matrices(self) -> dict[str, Tensor]:
        """Return the maps' matrices after the call."""
        return {name: each for name, each in self.after.items() if each.ndim == 2 and "embedding" not in name}


def norms_kept(learner: Started) -> Fault | None:
    """Check that norms are as they were."""
    if learner.crash is not None:
        return Fault(NORMS_TOO, crash_of(learner.crash))
    moved = [
        name for name, each in learner.after.items() if "norm" in name and not torch.equal(each, learner.before[name])
    ]
    return Fault(NORMS_TOO, f"`{moved[0]}` has changed.") if moved else None


def all_changed(learner: Started) -> Fault | None:
    """Check that every matrix is drawn anew."""
    kept = [name for name, each in learner.matrices().items() if torch.equal(each, learner.before[name])]
    if not kept:
        return None
    told = f"{len(kept)} of {len(learner.matrices())} matrices are as before, among them `{kept[0]}`."
    return Fault(UNCHANGED if len(kept) == len(learner.matrices()) else SOME_LEFT, told)


def different(learner: Started) -> Fault | None:
    """Check that matrices differ, and that they follow the caller's seed."""
    square = {name: each for name, each in learner.matrices().items() if name.startswith("maps")}
    first, *rest = square
    same = [name for name in rest if torch.equal(square[name], square[first])]
    if same:
        return Fault(IDENTICAL, f"`{first}` and `{same[0]}` hold the same numbers.")
    other = learner.drawn(2)[1]
    told = "Under torch.manual_seed(1) and (2) they are the same."
    return Fault(IDENTICAL, told) if torch.equal(other[first], square[first]) else None


def spread(learner: Started) -> Fault | None:
    """Check that the matrices are uniform within Xavier's bounds."""
    for name, each in learner.matrices().items():
        bound = math.sqrt(6 / sum(each.shape))
        largest, deviation = each.abs().max().item(), each.std().item()
        told = f"`{name}` has numbers up to {largest:.3g}, deviation {deviation:.3g}"
        told += f"; Xavier's are {bound:.3g} and {bound / 3**0.5:.3g}."
        if name.startswith("head") and deviation > 0.5:
            return Fault(HEAD, told)
        if largest > bound * 1.0001 or abs(deviation * 3**0.5 / bound - 1) > 0.1:
            return Fault(OTHER_SPREAD, told)
    return None


def small_embedding(learner: Started) -> Fault | None:
    """Check that the embedding begins small."""
    deviation = learner.after["embedding.weight"].std().item()
    told = f"Its deviation is {deviation:.2g}; 1/√64 is 0.125."
    return Fault(EMBEDDING, told) if deviation > 0.25 else None


def plain_biases(learner: Started) -> Fault | None:
    """Check that biases are 0, or as they were."""
    drawn_too = [
        name
        for name, each in learner.after.items()
        if name.endswith("bias") and "norm" not in name and each.any() and not torch.equal(each, learner.before[name])
    ]
    return Fault(BIASES_TOO, f"`{drawn_too[0]}` has other numbers.") if drawn_too else None


INIT_WEIGHTS = Subject(
    Started,
    (
        Property("norms", "Norms stay as they are.", norms_kept),
        Property("changed", "Every matrix is drawn, in place.", all_changed, ("norms",)),
        Property("own-numbers", "Each matrix has numbers of its own, by the caller's seed.", different, ("changed",)),
        Property("spread", "Matrices are uniform, up to √(6 / (rows + columns)).", spread, ("own-numbers",)),
        Property("embedding", "The embedding begins small.", small_embedding, ("changed",)),
        Property("biases", "Biases are 0, or as they were.", plain_biases, ("norms", "changed")),
    ),
)


# --- how many parameters

THREE_MAPS = Mistake(
    "one of the four maps of attention is missing",
    "A block's attention is counted with three maps.",
    "Which map comes after the heads are merged?",
)
NO_BIASES = Mistake(
    "biases are left out",
    "Every linear map is counted as its matrix alone.",
    "How many numbers does nn.Linear(3, 5) hold?",
)
NO_NORMS = Mistake(
    "norms are left out",
    "Two vectors for each norm are missing, in the blocks or at the end.",
    "How many norms has a block, how many has the model's end, and what does each of them learn?",
)
TIMES_HEADS = Mistake(
    "heads are counted as if each had the whole width",
    "The maps of attention are multiplied by a number of heads.",
    "How wide is one head, and how many numbers have all heads together?",
)
LAYERS_OFF = Mistake(
    "the count of layers is off by one",
    "The blocks are counted once too often, or once too seldom.",
    "How many blocks has a model of n_layers layers?",
)
BUFFERS = Mistake(
    "buffers are counted",
    "The table of positions is counted, which is computed and not learned.",
    "Which tensors does an optimizer change?",
)
BUILT = Mistake(
    "a model is built to count it",
    "The answer comes from a model and not from arithmetic, so it takes its time and its memory.",
    "Which numbers multiply to give the size of one matrix?",
)
SIZES = ((30, 8, 1, 20), (50, 12, 2, 48), (17, 16, 3, 40), (100, 32, 4, 128), (1000, 64, 6, 256))
ROLES = ("vocab_size", "d_model", "n_layers", "d_ff")


def count(maps: int, biases: bool, norms: str, heads: int, layers: int, table: int) -> Tensor:
    """Return the number of parameters for each of `SIZES` under a reading."""

    def one(V: int, D: int, L: int, F: int) -> int:
        attention = maps * (D * D + biases * D) * heads
        feed = 2 * D * F + biases * (F + D)
        inside, end = {"all": (4 * D, 2 * D), "no end": (4 * D, 0), "none": (0, 0)}[norms]
        return V * D + (L + layers) * (attention + feed + inside) + end + table * D

    return torch.tensor([one(*sizes) for sizes in SIZES], dtype=torch.float64)


class Predicted:
    """The learner's `predict_parameters`, called for five sizes while modules that are made are counted."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.made, begin = 0, nn.Module.__init__

        def noted(module: nn.Module, *inputs: Any, **named: Any) -> None:
            self.made += 1
            begin(module, *inputs, **named)

        nn.Module.__init__ = noted  # pyright: ignore[reportAttributeAccessIssue]
        try:
            found = [
                called(function, dict(zip(("vocab_size", "d_model", "n_layers", "d_ff"), each, strict=True)))
                for each in SIZES
            ]
        finally:
            nn.Module.__init__ = begin
        self.wanted = count(4, True, "all", 1, 0, 0)
        numbers = all(isinstance(each, int | float) for each in found)
        self.seen: Any = torch.tensor(found, dtype=torch.float64) if numbers else found[0]
        self.reading = read(self.seen, self.aspects(), count, 0.5) if numbers else None

    def aspects(self) -> dict[str, list[Choice]]:
        """Return the known ways to count."""
        rows = round((self.seen[0] - self.wanted[0]).item() / SIZES[0][1])
        return {
            "maps": [Choice(4), Choice(3, "three maps", THREE_MAPS)],
            "biases": [Choice(True), Choice(False, "no biases", NO_BIASES)],
            "norms": [
                Choice("all"),
                Choice("none", "no norms", NO_NORMS),
                Choice("no end", "no norm at the end", NO_NORMS),
            ],
            "heads": [Choice(1), *(Choice(n, f"{n} heads of the whole width", TIMES_HEADS) for n in (2, 4, 8, 12, 16))],
            "layers": [Choice(0), *(Choice(n, f"n_layers {n:+d}", LAYERS_OFF) for n in (-1, 1))],
            "table": [Choice(0), *([Choice(rows, f"a table of {rows} positions", BUFFERS)] if rows > 2 else [])],
        }


def by_arithmetic(learner: Predicted) -> Fault | None:
    """Check that no module is made."""
    return Fault(BUILT, f"For five answers, {learner.made} modules are made.") if learner.made else None


PREDICT_PARAMETERS = Subject(
    Predicted,
    (
        Property("arithmetic", "No model is built.", by_arithmetic),
        Property(EQUATION.name, EQUATION.law, EQUATION.probe, ("arithmetic",)),
        Property("maps", "Attention has four maps.", aspect("maps"), ("equation",)),
        Property("biases", "Each map has a bias.", aspect("biases"), ("equation",)),
        Property("norms", "Each norm has a scale and a shift.", aspect("norms"), ("equation",)),
        Property("heads", "Heads share the width.", aspect("heads"), ("equation",)),
        Property("layers", "There are n_layers blocks.", aspect("layers"), ("equation",)),
        Property("buffers", "What is not learned is not counted.", aspect("table"), ("equation",)),
    ),
)
