"""Tests a learner's encoder of ids: its inputs and outputs, its first weights, and the count of its parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.proof.check.attention import first
from glassformer.proof.check.block import FINAL_NORM, LAYERS, F, Layered, adopt
from glassformer.proof.check.calling import (
    Choice,
    Computed,
    aspect,
    built_either,
    called,
    distance,
    form,
    forward_of,
    in_some_form,
    is_norm,
    listening,
    mask_argument,
    parameters_of,
    repeated,
    scramble,
    shaped,
)
from glassformer.proof.check.heads import ROWS, D, giving
from glassformer.proof.check.language_model import HEAD, UNORDERED, changed, first_loss_of
from glassformer.proof.check.mask import BATCH, FAILS, HEADS, IGNORED, KEEPS, T, wrong_keys
from glassformer.proof.check.mask import HIDDEN_KEYS as KEEP
from glassformer.proof.check.property import CrashError, Fault, Mistake, NotTestedError, ask, crash_of, law

VOCAB, MAX_LEN, OUTPUTS = 30, 9, 17
IDS = torch.tensor([[3, 29, 0, 11, 8, 20], [1, 2, 28, 7, 15, 4]])
SAME = 1e-9

SHAPE = Mistake(
    "the output has the wrong shape",
    "There must be one vector for each id: of width d_model, or of n_outputs where an output map is asked for.",
    "What are the three axes of the result, and which part of the model makes the last one?",
)
SCALED_TOO = Mistake(
    "positions are scaled too",
    "The factor stands outside the sum, so positions are multiplied by √d_model as well as the tokens.",
    "Which of the two does section 3.4 of the paper multiply: the embedding, or the sum?",
)
EVERY_LAYER = Mistake(
    "positions are added in every layer",
    "A later layer gets the positions once more, so they outgrow what the layers before it wrote.",
    "How often does a token's place have to be told?",
)
STOPS = Mistake(
    "the mask stops at the first layer",
    "One layer obeys the mask, but with two a hidden position is read.",
    "Which blocks of your loop are given the mask?",
)


class Coder(Layered):
    """The learner's encoder: how it begins, and with random parameters in float64."""

    laws = (
        "registered shape repeatable rows order positions positions-once own-layers fresh-layers used-layers mask "
        "final-norm first-loss"
    )

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.unregistered: list[str] = []
        module = self.made(LAYERS)
        self.start = parameters_of(module)
        self.module = scramble(module)
        self.mask = mask_argument(forward_of(module, "ids"), 1)
        with listening(self.module) as heard:
            self.seen = self.vectors(IDS)
        self.heard = list(heard)

    def made(self, layers: int, width: int = D, heads: int = HEADS, **extra: Any) -> nn.Module:
        """Return an instance as its constructor leaves it, with layers in plain lists registered."""
        sizes = {"vocab_size": VOCAB, "d_model": width, "n_heads": heads, "n_layers": layers}
        module = built_either(self.kind, sizes, {"d_ff": F, "max_len": MAX_LEN}, extra)
        self.unregistered = adopt(module)
        return module

    def run(self, ids: Tensor, mask: Tensor | None, module: nn.Module | None = None) -> Any:
        """Run the model."""
        named = {} if mask is None or self.mask is None else {self.mask: mask}
        return (module or self.module)(ids, **named)

    def vectors(self, ids: Tensor, mask: Tensor | None = None, module: nn.Module | None = None) -> Tensor:
        """Return the output without a graph."""
        with torch.no_grad():
            return first(ask(self.run, ids, mask, module))

    def output(self) -> Tensor:
        """Return the output for the fixed ids, with its graph."""
        return first(ask(self.run, IDS, None))

    def enters(self) -> Tensor:
        """Return what the first block reads: the input of the first norm or map. Errors: `NotTestedError`."""
        with listening(self.module) as heard:
            self.vectors(IDS)
        if not heard or heard[0].given.shape != (BATCH, T, D):
            raise NotTestedError("its blocks' norms and linear maps could not be found")
        return heard[0].given

    def added(self) -> Tensor:
        """Return what enters the first block where every id has the vector 0. Errors: `NotTestedError`."""
        table = next((each for each in self.module.parameters() if each.shape == (VOCAB, D)), None)
        if table is None:
            raise NotTestedError("no parameter has a row for each id")
        before = table.detach().clone()
        table.data.zero_()
        try:
            return self.enters()
        finally:
            table.data.copy_(before)

    @law("There is one vector for each id.")
    def shape(self) -> Fault | None:
        if form(self.seen) != (BATCH, T, VOCAB) and (fault := shaped(self.seen, (BATCH, T, D), SHAPE)) is not None:
            return fault
        module = self.made(1, n_outputs=OUTPUTS).double().eval()
        if not any(OUTPUTS in each.shape for each in module.parameters()):
            return None
        got, mapped = form(self.vectors(IDS, module=module)), (BATCH, T, OUTPUTS)
        return None if got == mapped else Fault(SHAPE, f"With n_outputs={OUTPUTS} it is {got} and must be {mapped}.")

    repeatable = repeated(lambda learner: learner.vectors(IDS))

    @law("No row of a batch affects another.", "repeatable")
    def rows(self) -> Fault | None:
        gap = distance(self.vectors(IDS[:1]), self.seen[:1])
        return Fault(ROWS, f"Row 0 alone differs by {gap:.2g} from row 0 in the batch.") if gap > SAME else None

    @law("The order of the ids matters.", "rows")
    def order(self) -> Fault | None:
        gap = distance(self.vectors(IDS.flip(1)).flip(1), self.seen)
        evidence = f"With the ids in reverse order, the vectors are the same ones in reverse order, to {gap:.0e}."
        return None if gap > SAME else Fault(UNORDERED, evidence)

    @law("Positions are added as they are.", "order")
    def positions(self) -> Fault | None:
        positions = self.added()[0]
        kept = [*self.module.parameters(), *self.module.buffers()]
        tables = [each.detach().reshape(-1, D)[:T].double() for each in kept if each.shape[-2:] == (MAX_LEN, D)]
        ratios = [multiple(each, positions) for each in (*tables, *(each.float().double() for each in sinusoids()))]
        found = [each for each in ratios if each is not None]
        if not found or abs(found[0] - D**0.5) > 1e-3:
            return None
        return Fault(SCALED_TOO, f"What enters the first block is {found[0]:.3g} = √{D} times the table of positions.")

    @law("Positions are added before the first layer alone.", "order")
    def positions_once(self) -> Fault | None:
        positions, stream = self.added(), self.enters()
        maps = [each for each in self.module.modules() if isinstance(each, nn.Linear)]
        with giving(maps, torch.zeros_like), listening(self.module) as heard:
            self.vectors(IDS)
        streams = [stream]
        for each in [call for call in heard if call.given.shape == stream.shape]:
            gaps = [each.given - before for before in streams]
            if all(gap.abs().max() > SAME for gap in gaps) and any(multiple(positions, gap) for gap in gaps):
                return Fault(EVERY_LAYER, f"`{each.name}` reads the stream with the positions added once more.")
            streams += [each.gave] if is_norm(each.module) else []
        return None

    def reach(self, mask: Tensor, module: nn.Module) -> Tensor:
        """Return [T], True where another id changes the output at another position."""
        before = self.vectors(IDS, mask, module)
        moved = torch.zeros(T, dtype=torch.bool)
        for place in range(T):
            gap = (self.vectors(changed(IDS, VOCAB, place), mask, module) - before).abs().amax((0, 2))
            gap[place] = 0.0
            moved[place] = bool((gap > SAME).any())
        return moved

    @law("The mask reaches every layer.", "rows", "used-layers", name="mask")
    def masked(self) -> Fault | None:
        if self.mask is None:
            raise NotTestedError("it takes no mask")
        one_layer = scramble(self.made(1))
        try:
            one, every = in_some_form(
                KEEPS, lambda form: [self.reach(form(KEEP), module) for module in (one_layer, self.module)]
            )
        except CrashError as crash:
            return Fault(FAILS, crash_of(crash))
        evidence = f"Of 6 positions 2 are hidden; {int((every & ~KEEP).sum())} of them change other positions"
        if (mistake := wrong_keys(one, IGNORED)) is not None:
            return Fault(mistake, f"{evidence}.")
        evidence = f"{evidence} in a model of {LAYERS} layers, and none in a model of 1."
        return None if torch.equal(every, KEEP) else Fault(STOPS, evidence)

    final_norm = FINAL_NORM

    @law("An untrained model's loss is near ln vocab_size.", "shape")
    def first_loss(self) -> Fault | None:
        torch.manual_seed(0)
        module = self.made(2, 64, 4, n_outputs=VOCAB).eval()
        draw = torch.Generator().manual_seed(10)
        ids, targets = (torch.randint(VOCAB, (16, MAX_LEN), generator=draw) for _ in range(2))
        logits = self.vectors(ids, module=module)
        if logits.shape[-1] != VOCAB:
            raise NotTestedError("it has no output map")
        return first_loss_of(logits, targets, module)


def multiple(part: Tensor, whole: Tensor) -> float | None:
    """Return the number by which `part` is multiplied to give `whole`, if there is one."""
    if part.shape != whole.shape or not part.any():
        return None
    ratio = ((part * whole).sum() / part.square().sum()).item()
    return ratio if distance(part * ratio, whole) < 1e-6 * max(1.0, abs(ratio)) else None


def sinusoids() -> list[Tensor]:
    """Return the paper's table in both layouts of its columns."""
    angles = torch.arange(T).double()[:, None] * 10_000.0 ** (-torch.arange(0, D, 2).double() / D)
    return [torch.stack([angles.sin(), angles.cos()], -1).flatten(1), torch.cat([angles.sin(), angles.cos()], 1)]


# --- how its parameters start

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
        before = parameters_of(model)
        torch.manual_seed(seed)
        try:
            called(self.function, {"model": model})
        except CrashError as crash:
            if "Fan in and fan out" not in str(crash.__cause__):
                raise
            self.crash = crash
        return before, parameters_of(model)

    def matrices(self) -> dict[str, Tensor]:
        """Return the maps' matrices after the call."""
        return {name: each for name, each in self.after.items() if each.ndim == 2 and "embedding" not in name}

    @law("Norms stay as they are.")
    def norms(self) -> Fault | None:
        if self.crash is not None:
            return Fault(NORMS_TOO, crash_of(self.crash))
        moved = [
            name for name, each in self.after.items() if "norm" in name and not torch.equal(each, self.before[name])
        ]
        return Fault(NORMS_TOO, f"`{moved[0]}` has changed.") if moved else None

    @law("Every matrix is drawn, in place.", "norms")
    def changed(self) -> Fault | None:
        kept = [name for name, each in self.matrices().items() if torch.equal(each, self.before[name])]
        if not kept:
            return None
        evidence = f"{len(kept)} of {len(self.matrices())} matrices are as before, among them `{kept[0]}`."
        return Fault(UNCHANGED if len(kept) == len(self.matrices()) else SOME_LEFT, evidence)

    @law("Each matrix has numbers of its own, by the caller's seed.", "changed")
    def own_numbers(self) -> Fault | None:
        square = {name: each for name, each in self.matrices().items() if name.startswith("maps")}
        first, *rest = square
        same = [name for name in rest if torch.equal(square[name], square[first])]
        if same:
            return Fault(IDENTICAL, f"`{first}` and `{same[0]}` hold the same numbers.")
        other = self.drawn(2)[1]
        evidence = "Under torch.manual_seed(1) and (2) they are the same."
        return Fault(IDENTICAL, evidence) if torch.equal(other[first], square[first]) else None

    @law("Matrices are uniform, up to √(6 / (rows + columns)).", "own-numbers")
    def spread(self) -> Fault | None:
        for name, each in self.matrices().items():
            bound = math.sqrt(6 / sum(each.shape))
            largest, deviation = each.abs().max().item(), each.std().item()
            evidence = f"`{name}` has numbers up to {largest:.3g}, deviation {deviation:.3g}"
            evidence += f"; Xavier's are {bound:.3g} and {bound / 3**0.5:.3g}."
            if name.startswith("head") and deviation > 0.5:
                return Fault(HEAD, evidence)
            if largest > bound * 1.0001 or abs(deviation * 3**0.5 / bound - 1) > 0.1:
                return Fault(OTHER_SPREAD, evidence)
        return None

    @law("The embedding begins small.", "changed")
    def embedding(self) -> Fault | None:
        deviation = self.after["embedding.weight"].std().item()
        evidence = f"Its deviation is {deviation:.2g}; 1/√64 is 0.125."
        return Fault(EMBEDDING, evidence) if deviation > 0.25 else None

    @law("Biases are 0, or as they were.", "norms", "changed")
    def biases(self) -> Fault | None:
        drawn_too = [
            name
            for name, each in self.after.items()
            if name.endswith("bias") and "norm" not in name and each.any() and not torch.equal(each, self.before[name])
        ]
        return Fault(BIASES_TOO, f"`{drawn_too[0]}` has other numbers.") if drawn_too else None


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


COUNTED = count(4, True, "all", 1, 0, 0)[0].item()
"""What is right for the first of `SIZES`."""
WAYS = {
    "maps": [Choice(4), Choice(3, "three maps", THREE_MAPS)],
    "biases": [Choice(True), Choice(False, "no biases", NO_BIASES)],
    "norms": [Choice("all"), Choice("none", "no norms", NO_NORMS), Choice("no end", "no norm at the end", NO_NORMS)],
    "heads": [Choice(1), *(Choice(n, f"{n} heads of the whole width", TIMES_HEADS) for n in (2, 4, 8, 12, 16))],
    "layers": [Choice(0), *(Choice(n, f"n_layers {n:+d}", LAYERS_OFF) for n in (-1, 1))],
}


class Predicted(Computed):
    """The learner's `predict_parameters`, called for five sizes while modules that are made are counted."""

    laws = "arithmetic equation maps biases norms heads layers buffers"

    def __init__(self, function: Callable[..., Any]) -> None:
        self.made, begin = 0, nn.Module.__init__

        def noted(module: nn.Module, *inputs: Any, **named: Any) -> None:
            self.made += 1
            begin(module, *inputs, **named)

        nn.Module.__init__ = noted  # pyright: ignore[reportAttributeAccessIssue]
        try:
            found = [called(function, dict(zip(ROLES, each, strict=True))) for each in SIZES]
        finally:
            nn.Module.__init__ = begin
        numbers = all(isinstance(each, int | float) for each in found)
        rows = round((found[0] - COUNTED) / SIZES[0][1]) if numbers else 0
        tables = [Choice(rows, f"a table of {rows} positions", BUFFERS)] if rows > 2 else []
        seen: Any = torch.tensor(found, dtype=torch.float64) if numbers else found[0]
        super().__init__(seen, {**WAYS, "table": [Choice(0), *tables]}, count, 0.5)

    @law("No model is built.")
    def arithmetic(self) -> Fault | None:
        return Fault(BUILT, f"For five answers, {self.made} modules are made.") if self.made else None

    equation = replace(Computed.equation, needs=("arithmetic",))
    maps = aspect("maps", "Attention has four maps.")
    biases = aspect("biases", "Each map has a bias.")
    norms = aspect("norms", "Each norm has a scale and a shift.")
    heads = aspect("heads", "Heads share the width.")
    layers = aspect("layers", "There are n_layers blocks.")
    buffers = aspect("table", "What is not learned is not counted.", name="buffers")
