"""Tests a learner's encoder of ids: embedding, positions, mask and layers, by what changes what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.proof.check.attention import RANDOM, first
from glassformer.proof.check.block import F
from glassformer.proof.check.calling import built_either, forward_of, mask_argument, scramble
from glassformer.proof.check.heads import ROWS, D
from glassformer.proof.check.language_model import UNORDERED, first_loss_of
from glassformer.proof.check.listen import is_norm, listening
from glassformer.proof.check.mask import BATCH, FAILS, HEADS, IGNORED, INVERTED, UNCLEAR, T
from glassformer.proof.check.reading import distance
from glassformer.proof.check.stack import LAYERS, adopt, all_run, differ, final_norm, grows, keeps_lists
from glassformer.proof.check.table import CrashError, Fault, Mistake, NotTestedError, Property, Subject, ask, crash_of

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

    def nothing(module: nn.Module, given: Any, gave: Tensor) -> Tensor:
        del module, given
        return torch.zeros_like(gave)

    hooks = [each.register_forward_hook(nothing) for each in learner.module.modules() if isinstance(each, nn.Linear)]
    try:
        with listening(learner.module) as heard:
            learner.vectors(IDS)
    finally:
        for each in hooks:
            each.remove()
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
