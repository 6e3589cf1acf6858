"""Tests a learner's encoder of ids: its inputs and outputs, its first weights, and the count of its parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.proof.check.attention import first
from glassformer.proof.check.block import LAYERS, F, adopt, all_run, differ, final_norm, grows, keeps_lists
from glassformer.proof.check.calling import (
    EQUATION,
    RANDOM,
    Choice,
    aspect,
    built_either,
    called,
    distance,
    forward_of,
    is_norm,
    listening,
    mask_argument,
    read,
    scramble,
)
from glassformer.proof.check.heads import ROWS, D, giving
from glassformer.proof.check.language_model import HEAD, UNORDERED, first_loss_of
from glassformer.proof.check.mask import BATCH, FAILS, HEADS, IGNORED, INVERTED, UNCLEAR, T
from glassformer.proof.check.property import (
    CrashError,
    Fault,
    Mistake,
    NotTestedError,
    Property,
    Subject,
    ask,
    crash_of,
)

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


class Coder:
    """The learner's encoder: how it begins, and with random parameters in float64."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.unregistered: list[str] = []
        module = self.made(LAYERS)
        self.start = {name: each.detach().clone() for name, each in module.named_parameters()}
        self.module = scramble(module)
        self.mask = mask_argument(forward_of(module, "ids"), 1)
        self.x = IDS
        with listening(self.module) as heard, torch.no_grad():
            self.seen = first(ask(self.run, IDS, None))
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

    def table(self) -> Tensor:
        """Return the parameter that has a row for each id. Errors: `NotTestedError`."""
        found = [each for each in self.module.parameters() if each.shape == (VOCAB, D)]
        if not found:
            raise NotTestedError("no parameter has a row for each id")
        return found[0]

    def enters(self) -> Tensor:
        """Return what the first block reads: the input of the first norm or map. Errors: `NotTestedError`."""
        with listening(self.module) as heard:
            self.vectors(IDS)
        if not heard or heard[0].given.shape != (BATCH, T, D):
            raise NotTestedError("its blocks' norms and linear maps could not be found")
        return heard[0].given

    def positions(self) -> Tensor:
        """Return what enters the first block where every id has the vector 0."""
        table = self.table()
        before = table.detach().clone()
        table.data.zero_()
        try:
            return self.enters()
        finally:
            table.data.copy_(before)


def shape(learner: Coder) -> Fault | None:
    """Check the shape, with and without an output map."""
    wanted = [(BATCH, T, D), (BATCH, T, VOCAB)]
    got = tuple(learner.seen.shape) if isinstance(learner.seen, Tensor) else type(learner.seen).__name__
    if got not in wanted:
        return Fault(SHAPE, f"It is {got} and must be {wanted[0]}.")
    module = learner.made(1, n_outputs=OUTPUTS).double().eval()
    if not any(OUTPUTS in each.shape for each in module.parameters()):
        return None
    got = tuple(learner.vectors(IDS, module=module).shape)
    right = got == (BATCH, T, OUTPUTS)
    return None if right else Fault(SHAPE, f"With n_outputs={OUTPUTS} it is {got} and must be {(BATCH, T, OUTPUTS)}.")


def repeatable(learner: Coder) -> Fault | None:
    """Check that the same ids give the same output in evaluation mode."""
    gap = max(distance(learner.vectors(IDS), learner.seen) for _ in range(4))
    return Fault(RANDOM, f"Five calls in evaluation mode differ by up to {gap:.2g}.") if gap > 0 else None


def rows(learner: Coder) -> Fault | None:
    """Check that a row gets the same output alone."""
    gap = distance(learner.vectors(IDS[:1]), learner.seen[:1])
    return Fault(ROWS, f"Row 0 alone differs by {gap:.2g} from row 0 in the batch.") if gap > SAME else None


def ordered(learner: Coder) -> Fault | None:
    """Check that ids in another order do not give the same vectors in another order."""
    gap = distance(learner.vectors(IDS.flip(1)).flip(1), learner.seen)
    told = f"With the ids in reverse order, the vectors are the same ones in reverse order, to {gap:.0e}."
    return None if gap > SAME else Fault(UNORDERED, told)


def factor(part: Tensor, whole: Tensor) -> float | None:
    """Return the number by which `part` is multiplied to give `whole`, if there is one."""
    if part.shape != whole.shape or not part.any():
        return None
    ratio = ((part * whole).sum() / part.square().sum()).item()
    return ratio if distance(part * ratio, whole) < 1e-6 * max(1.0, abs(ratio)) else None


def sinusoids() -> list[Tensor]:
    """Return the paper's table in both layouts of its columns."""
    angles = torch.arange(T).double()[:, None] * 10_000.0 ** (-torch.arange(0, D, 2).double() / D)
    return [torch.stack([angles.sin(), angles.cos()], -1).flatten(1), torch.cat([angles.sin(), angles.cos()], 1)]


def unscaled(learner: Coder) -> Fault | None:
    """Check that positions are added as their table has them."""
    positions = learner.positions()[0]
    kept = [*learner.module.parameters(), *learner.module.buffers()]
    tables = [each.detach().reshape(-1, D)[:T].double() for each in kept if each.shape[-2:] == (MAX_LEN, D)]
    ratios = [factor(each, positions) for each in (*tables, *(each.float().double() for each in sinusoids()))]
    found = [each for each in ratios if each is not None]
    if not found or abs(found[0] - D**0.5) > 1e-3:
        return None
    return Fault(SCALED_TOO, f"What enters the first block is {found[0]:.3g} = √{D} times the table of positions.")


def once(learner: Coder) -> Fault | None:
    """Check that no later layer gets the positions again, while all linear maps give 0."""
    positions, stream = learner.positions(), learner.enters()
    maps = [each for each in learner.module.modules() if isinstance(each, nn.Linear)]
    with giving(maps, torch.zeros_like), listening(learner.module) as heard:
        learner.vectors(IDS)
    streams = [stream]
    for each in [call for call in heard if call.given.shape == stream.shape]:
        gaps = [each.given - before for before in streams]
        if all(gap.abs().max() > SAME for gap in gaps) and any(factor(positions, gap) for gap in gaps):
            return Fault(EVERY_LAYER, f"`{each.name}` reads the stream with the positions added once more.")
        streams += [each.gave] if is_norm(each.module) else []
    return None


KEEP = torch.tensor([True, True, False, True, False, True])
FORMS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda keep: keep.expand(BATCH, 1, 1, T),
    lambda keep: keep.expand(BATCH, T),
    lambda keep: keep.expand(T, T),
    lambda keep: keep.expand(BATCH, T, T),
    lambda keep: keep.expand(BATCH, 1, T, T),
)
"""The forms in which a mask of keys is tried."""


def reach(learner: Coder, mask: Tensor, module: nn.Module) -> Tensor:
    """Return [T], True where another id changes the output at another position."""
    before = learner.vectors(IDS, mask, module)
    moved = torch.zeros(T, dtype=torch.bool)
    for place in range(T):
        ids = IDS.clone()
        ids[:, place] = (ids[:, place] + 1) % VOCAB
        gap = (learner.vectors(ids, mask, module) - before).abs().amax((0, 2))
        gap[place] = 0.0
        moved[place] = bool((gap > SAME).any())
    return moved


def masked(learner: Coder) -> Fault | None:
    """Check that every layer obeys the mask."""
    if learner.mask is None:
        raise NotTestedError("it takes no mask")
    one_layer, crash = scramble(learner.made(1)), None
    for form in FORMS:
        try:
            one, all_layers = (reach(learner, form(KEEP), module) for module in (one_layer, learner.module))
        except (CrashError, RuntimeError) as error:  # a form that its attention does not take
            crash = crash or (error if isinstance(error, CrashError) else None)
            continue
        told = f"Of 6 positions 2 are hidden; {int((all_layers & ~KEEP).sum())} of them change other positions"
        if torch.equal(all_layers, KEEP) and torch.equal(one, KEEP):
            return None
        if torch.equal(one, KEEP):
            return Fault(STOPS, f"{told} in a model of {LAYERS} layers, and none in a model of 1.")
        return Fault(INVERTED if torch.equal(one, ~KEEP) else IGNORED if one.all() else UNCLEAR, f"{told}.")
    return Fault(FAILS, crash_of(crash) if crash else "Every form of a mask gives an output of another shape.")


def first_loss(learner: Coder) -> Fault | None:
    """Check that an untrained model with an output for each id gives all of them about the same probability."""
    torch.manual_seed(0)
    module = learner.made(2, 64, 4, n_outputs=VOCAB).eval()
    draw = torch.Generator().manual_seed(10)
    ids, targets = (torch.randint(VOCAB, (16, MAX_LEN), generator=draw) for _ in range(2))
    logits = learner.vectors(ids, module=module)
    if logits.shape[-1] != VOCAB:
        raise NotTestedError("it has no output map")
    return first_loss_of(logits, targets, module)


TOKEN_ENCODER = Subject(
    Coder,
    (
        Property("registered", "Its layers are parts of the module.", keeps_lists),
        Property("shape", "There is one vector for each id.", shape),
        Property("repeatable", "In evaluation mode the same input gives the same output.", repeatable, ("shape",)),
        Property("rows", "No row of a batch affects another.", rows, ("repeatable",)),
        Property("order", "The order of the ids matters.", ordered, ("rows",)),
        Property("positions", "Positions are added as they are.", unscaled, ("order",)),
        Property("positions-once", "Positions are added before the first layer alone.", once, ("order",)),
        Property("own-layers", "Each layer has parameters of its own.", grows),
        Property("fresh-layers", "Layers start different.", differ, ("own-layers",)),
        Property("used-layers", "Every layer is run.", all_run, ("shape", "repeatable")),
        Property("mask", "The mask reaches every layer.", masked, ("rows", "used-layers")),
        Property("final-norm", "The last layer is followed by a norm.", final_norm, ("used-layers",)),
        Property("first-loss", "An untrained model's loss is near ln vocab_size.", first_loss, ("shape",)),
    ),
)


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
