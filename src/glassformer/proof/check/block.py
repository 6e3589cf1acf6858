"""Tests a learner's block and a stack of blocks: how attention, feed-forward, norms and sums are assembled."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import combinations, pairwise, product
from typing import Any, NamedTuple, cast

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.proof.check.attention import first
from glassformer.proof.check.calling import (
    Heard,
    built,
    constructed,
    distance,
    forward_of,
    is_norm,
    mask_argument,
    parameters_of,
    scramble,
)
from glassformer.proof.check.heads import D, Heads
from glassformer.proof.check.mask import HEADS, WIDTH
from glassformer.proof.check.property import Fault, Mistake, NotTestedError, Property, ask, law
from glassformer.proof.check.small_parts import LINEAR

EXACT = 1e-9


class Branch(NamedTuple):
    """A recorded attention or feed-forward: the index of its first call, its input and its output."""

    name: str
    place: int
    given: Tensor
    gave: Tensor


class Way(NamedTuple):
    """after(base + output(branch(before(x)))), each norm by name or None; base: "stream", "normed" or "nothing"."""

    before: str | None
    output: str | None
    after: str | None
    base: str

    def norms(self) -> list[str]:
        """Return the norms in it."""
        return [each for each in (self.before, self.output, self.after) if each is not None]


def structure_of(x: Tensor, seen: Tensor, branches: list[Branch], heard: list[Heard]) -> list[Way]:
    """Return the ways that lead through the branches from x to `seen`, with the learner's norms as functions.

    Empty if no ways add up.
    """
    norms = {each.name: each.module for each in heard if is_norm(each.module)}
    with torch.no_grad():
        found = [ways for ways, end in routes(x, branches, norms) if distance(end, seen) <= EXACT]
    return min(found, key=oddity) if found else []


def routes(
    x: Tensor, branches: list[Branch], norms: dict[str, Callable[[Tensor], Tensor]]
) -> Iterator[tuple[list[Way], Tensor]]:
    """Yield every list of ways that explains what the branches received, with the stream at the end."""
    if not branches:
        yield [], x
        return
    for way, stream in candidates(x, branches[0], norms):
        for rest, end in routes(stream, branches[1:], norms):
            yield [way, *rest], end


def oddity(ways: list[Way]) -> float:
    """Count the mistakes in these ways. Of two that give the same numbers, the one with fewer was probably meant."""
    mistakes = float(any(way.base == "normed" for way in ways))
    mistakes += sum(way.base == "nothing" for way in ways)
    mistakes += sum(way.before is None and way.after is None for way in ways)
    mistakes += len({way.before is None for way in ways}) > 1
    return mistakes + 0.1 * sum(len(way.norms()) for way in ways)


def candidates(x: Tensor, branch: Branch, norms: dict[str, Callable[[Tensor], Tensor]]) -> Iterator[tuple[Way, Tensor]]:
    """Yield every way that explains the branch's input, with the stream after it."""

    def every(value: Tensor) -> dict[str | None, Tensor]:
        return {None: value, **{name: norm(value) for name, norm in norms.items()}}

    befores = {name: base for name, base in every(x).items() if distance(base, branch.given) <= EXACT}
    if not befores:
        return
    outputs = every(branch.gave)
    for before, normed in befores.items():
        bases = {"stream": x, "nothing": torch.zeros_like(x)} | ({} if before is None else {"normed": normed})
        for (base, value), (output, added) in product(bases.items(), outputs.items()):
            for after, stream in every(value + added).items():
                yield Way(before, output, after, base), stream


F = 20


def no_residual(where: str) -> Mistake:
    """Return the mistake that a branch's output replaces the stream."""
    return Mistake(
        f"the residual around the {where} is missing",
        f"What comes out of the {where} replaces the stream instead of being added to it.",
        "In figure 1 of the paper, which arrow goes round the branch?",
    )


def no_norm(where: str) -> Mistake:
    """Return the mistake that a branch has no norm."""
    return Mistake(
        f"the norm of the {where} is missing",
        f"Neither the input of the {where} nor the sum after it is normalised.",
        "Count the norms in figure 1 of the paper, and those that your forward calls.",
    )


NORMED = Mistake(
    "the residual starts from the normalised stream",
    "The branch is added to the norm's output, so the stream itself is cut at every norm.",
    "In a pre-norm block, is there one path from input to output without any norm?",
)
BEFORE_SUM = Mistake(
    "the norm stands before the sum",
    "The branch alone is normalised; in a post-norm block it is the sum that is.",
    "Put brackets into LayerNorm(x + Sublayer(x)) as you wrote it, and as the paper has it.",
)
MIXED_NORMS = Mistake(
    "pre-norm and post-norm are mixed",
    "One branch is normalised before, the other after its sum.",
    "Decide on one of the two figures, and draw your block beside it.",
)
SHARED = Mistake(
    "one norm stands in two places",
    "The same module, with the same weights, normalises at both places.",
    "How many norms does your constructor make, and how many does the figure have?",
)
ORDER = Mistake(
    "the feed-forward comes before the attention",
    "The branches run in the wrong order.",
    "Read figure 1 of the paper from the bottom up.",
)
UNKNOWN = Mistake(
    "the block is not put together as documented",
    "Input, branches and output do not add up, and no mistake known here explains it.",
    "Write down each line of your forward as an equation, and use every result.",
)


UNUSED_PLACE = Mistake(
    "norm_first changes nothing",
    "With norm_first=True the norms stand where they stand without it.",
    "Where does your forward ask for norm_first?",
)
OPPOSITE = Mistake(
    "norm_first means the opposite",
    "With norm_first=True the norms stand after the sums, and without it before the branches.",
    "In which of your two cases does a branch read a normalised stream?",
)
UNUSED_NAME = Mistake(
    "the activation by name is ignored",
    'With activation="gelu" something else stands between the two maps of the feed-forward.',
    "Which function does your feed-forward call, and who chooses it?",
)
FEED_FORWARD = "feed-forward"
ASSEMBLED = "structure branches residual norm own-norm activation norm-first named-activation"


class Block(Heads):
    """The learner's block, with the recorded calls of its attention, feed-forward and norms."""

    laws = f"{Heads.laws} {ASSEMBLED}"
    sequence: tuple[str, ...] = ("attention", FEED_FORWARD)
    """The branches as they should run."""

    def __init__(self, kind: Any, **settings: Any) -> None:
        self.kind = kind
        module = constructed(kind, {"d_model": D, "n_heads": HEADS}, {"d_ff": F, **settings})
        super().__init__(module, self.call, self.masks(module))
        self.branches = self.parts(self.heard)

    @cached_property
    def ways(self) -> list[Way] | None:
        """The way of each branch; empty if they do not add up, None if not all branches were found."""
        shapes = {each.gave.shape for each in self.branches}
        known = len(self.branches) == len(self.sequence) and shapes == {self.x.shape}
        return structure_of(self.x, self.seen, self.branches, self.heard) if known else None

    def masks(self, module: nn.Module) -> str | None:
        """Return the name of the mask argument."""
        return mask_argument(forward_of(module, "x"), 1)

    def call(self, x: Tensor, mask: Tensor | None) -> Any:
        """Run the block."""
        return self.module(x) if mask is None else self.module(x, **self.named(mask))

    def parts(self, heard: list[Heard]) -> list[Branch]:
        """Return attention and feed-forward, as far as they are found, in the order of their calls."""
        return in_order(branch("attention", attention_maps(heard)), branch(FEED_FORWARD, feed_maps(heard)))

    def switched(self, argument: str, value: object) -> Block:
        """Return the block built with another setting. Errors: `NotTestedError` without such an argument."""
        if argument not in inspect.signature(self.kind).parameters:
            raise NotTestedError(f"it has no argument {argument}")
        return type(self)(self.kind, **{argument: value})

    def pairs(self) -> list[tuple[Way, Branch]]:
        """Return each branch with its way. Errors: `NotTestedError` if parts were not found or do not add up."""
        if self.ways is None:
            raise NotTestedError("its attention and feed-forward could not be told apart")
        if not self.ways:
            raise NotTestedError("its parts do not add up; see `structure`")
        return [*zip(self.ways, self.branches, strict=True)]

    def feed_calls(self) -> list[Heard]:
        """Return the calls of the feed-forward's two maps. Errors: `NotTestedError` if it is not two linear maps."""
        calls = [each for _, each in feed_maps(self.heard)]
        if len(calls) != 2:
            raise NotTestedError("its feed-forward is not two linear maps")
        return calls

    @law("Input, branches and norms add up to the output.", "shape", "repeatable", "rows")
    def structure(self) -> Fault | None:
        if self.ways is None:
            raise NotTestedError("its attention and feed-forward (nn.Linear to d_ff and back) could not be told apart")
        if self.ways:
            return None
        total = distance(self.seen, self.x + sum(each.gave for each in self.branches))
        return Fault(UNKNOWN, f"The sum of input and branches differs from the output by {total:.2g}.")

    def in_sequence(self, mistake: Mistake) -> Fault | None:
        """Check that the branches run in the documented order."""
        found = [each.name for _, each in self.pairs()]
        evidence = f"They are called in the order {', '.join(found)}."
        return None if found == [*self.sequence] else Fault(mistake, evidence)

    @law("Attention comes first, then the feed-forward.", "structure", name="branches")
    def attention_first(self) -> Fault | None:
        return self.in_sequence(ORDER)

    def stream_kept(self) -> Fault | None:
        """Check that each branch is added to the stream."""
        for way, branch in self.pairs():
            if way.base == "nothing":
                evidence = (
                    f"The stream continues as the branch alone (numbers up to {branch.gave.abs().max().item():.2g})"
                )
                return Fault(no_residual(branch.name), f"{evidence}, without x.")
            if way.base == "normed":
                return Fault(NORMED, f"The {branch.name} is added to the output of norm `{way.before}`.")
        return None

    @law("Each branch is added to the stream.", "structure")
    def residual(self) -> Fault | None:
        return self.stream_kept()

    def normalised(self) -> Fault | None:
        """Check that each branch has a norm, and all at the same place: before it or after its sum."""
        places: dict[str, str] = {}
        for way, branch in self.pairs():
            if way.before is None and way.after is None:
                if way.output is not None:
                    return Fault(BEFORE_SUM, f"Norm `{way.output}` receives the {branch.name}'s output without x.")
                norms = sum(is_norm(each.module) for each in self.heard)
                evidence = f"None of the {norms} norms called produces its input or receives its sum."
                return Fault(no_norm(branch.name), evidence)
            places[branch.name] = "before the branch" if way.before is not None else "after the sum"
        evidence = ", ".join(f"that of the {name} {place}" for name, place in places.items())
        return Fault(MIXED_NORMS, f"The norms: {evidence}.") if len({*places.values()}) > 1 else None

    @law("Each branch has a norm, before it or after its sum.", "structure")
    def norm(self) -> Fault | None:
        return self.normalised()

    @law("Each norm has weights of its own.", "structure")
    def own_norm(self) -> Fault | None:
        used = [name for way, _ in self.pairs() for name in way.norms()]
        twice = next((name for name in used if used.count(name) > 1), None)
        evidence = f"`{twice}` is called {used.count(twice or '')} times in one forward."
        return None if twice is None else Fault(SHARED, evidence)

    @law("The feed-forward is not linear.", "structure")
    def activation(self) -> Fault | None:
        first, second = self.feed_calls()
        gap = distance(first.gave, second.given)
        return None if gap else Fault(LINEAR, f"Output of the first map and input of the second differ by {gap:.0g}.")

    @law("norm_first=True puts every norm before its branch.", "residual", "norm")
    def norm_first(self) -> Fault | None:
        pre = self.switched("norm_first", True)
        if pre.ways is not None and not pre.ways:
            return Fault(UNKNOWN, "With norm_first=True, input, branches and norms do not add up to the output.")
        if (fault := pre.stream_kept() or pre.normalised()) is not None:
            return fault
        if all(way.before is not None for way, _ in pre.pairs()):
            return None
        usual = self.switched("norm_first", False)
        before = any(way.before is not None for way in usual.ways or [])
        return Fault(OPPOSITE if before else UNUSED_PLACE, "With norm_first=True, every norm stands after its sum.")

    @law('activation="gelu" is obeyed.', "activation")
    def named_activation(self) -> Fault | None:
        first, second = self.switched("activation", "gelu").feed_calls()
        gap = min(distance(nn.functional.gelu(first.gave, approximate=how), second.given) for how in ("none", "tanh"))
        return None if gap < 1e-7 else Fault(UNUSED_NAME, f"What the second map reads is {gap:.2g} off gelu.")


def attention_maps(heard: list[Heard]) -> list[tuple[int, Heard]]:
    """Return the calls, with their places, that belong to attention: those of linear maps of the model or of heads."""
    return [
        (place, each)
        for place, each in enumerate(heard)
        if not is_norm(each.module) and {*each.widths} <= {WIDTH, D, 2 * D, 3 * D}
    ]


def feed_maps(heard: list[Heard]) -> list[tuple[int, Heard]]:
    """Return the calls, with their places, of the feed-forward's linear maps, which have the width d_ff."""
    return [(place, each) for place, each in enumerate(heard) if {F, 2 * F} & {*each.widths}]


def branch(name: str, calls: list[tuple[int, Heard]]) -> Branch | None:
    """Return a branch from its calls; None if there are none, or if they do not end with the width of the stream."""
    if not calls or calls[-1][1].widths[1] != D:
        return None
    return Branch(name, calls[0][0], calls[0][1].given, calls[-1][1].gave)


def in_order(*branches: Branch | None) -> list[Branch]:
    """Return those that were found, in the order of their calls."""
    return sorted((each for each in branches if each is not None), key=lambda each: each.place)


# --- a stack of blocks: its layers are its own, are all run, and are given the mask

LAYERS = 3
SAME_LAYERS = Mistake(
    "the layers are the same module",
    "More layers bring no more parameters: the same module is run again and again.",
    "How many blocks does your constructor make, and how many does it put into the list?",
)
EQUAL_LAYERS = Mistake(
    "the layers start identical",
    "Each layer starts with the same numbers, as copies of one module do.",
    "Is each layer made anew, with random numbers of its own?",
)
IDLE_LAYERS = Mistake(
    "some layers are not run",
    "The parameters of some layers do not affect the output.",
    "Follow x through the loop: is each layer given what the one before it gave?",
)


UNREGISTERED = Mistake(
    "the layers are not registered",
    "They are kept in a plain list, which the module does not look into: no optimizer finds their parameters, and they "
    "stay behind when the module is moved or saved.",
    "Which kind of list does torch have for modules?",
)
NO_FINAL_NORM = Mistake(
    "the final norm is missing",
    "In a stack of norm-first blocks nothing normalises the sum of all branches at its end.",
    "Through which norm does the result of the last branch pass?",
)


class Layered(ABC):
    """A learner's module of several layers: a stack, an encoder of ids, an encoder-decoder."""

    module: nn.Module
    start: dict[str, Tensor]
    """Its parameters as its constructor leaves them."""
    unregistered: list[str]
    """The names of plain lists that hold layers."""

    @abstractmethod
    def made(self, layers: int) -> nn.Module:
        """Return an instance with this many layers, as its constructor leaves it."""

    @abstractmethod
    def output(self) -> Tensor:
        """Return the output for the fixed input, with its graph."""

    @law("Its layers are parts of the module.")
    def registered(self) -> Fault | None:
        names = ", ".join(f"`{each}`" for each in self.unregistered)
        return Fault(UNREGISTERED, f"A plain list holds modules: {names}.") if names else None

    @law("Each layer has parameters of its own.")
    def own_layers(self) -> Fault | None:
        counts = [sum(each.numel() for each in self.made(layers).parameters()) for layers in (1, 2, LAYERS)]
        evidence = f"1, 2 and {LAYERS} layers have {', '.join(f'{each:,}' for each in counts)} parameters."
        return None if all(more > fewer for fewer, more in pairwise(counts)) else Fault(SAME_LAYERS, evidence)

    @law("Layers start different.", "own-layers")
    def fresh_layers(self) -> Fault | None:
        # constant ones may be equal, such as output maps that start at 0
        matrices = {name: each for name, each in self.start.items() if each.ndim == 2 and (each != each[0, 0]).any()}
        for (name, one), (other, two) in combinations(matrices.items(), 2):
            if one.shape == two.shape and torch.equal(one, two):
                return Fault(EQUAL_LAYERS, f"`{name}` and `{other}` hold the same {one.numel()} numbers at the start.")
        return None

    @law("Every layer is run.", "shape", "repeatable")
    def used_layers(self) -> Fault | None:
        named, output = dict(self.module.named_parameters()), self.output()
        if not output.requires_grad:
            return Fault(IDLE_LAYERS, f"None of {len(named)} tensors has a gradient.")
        weights = torch.linspace(-1, 2, output.numel(), dtype=output.dtype).view_as(output)
        found = torch.autograd.grad((output * weights).sum(), [*named.values()], allow_unused=True)
        slopes = cast("tuple[Tensor | None, ...]", found)
        idle = [name for name, slope in zip(named, slopes, strict=True) if slope is None]
        evidence = f"{len(idle)} of {len(named)} tensors have no gradient"
        return Fault(IDLE_LAYERS, f"{evidence}, among them `{idle[0]}`.") if idle else None


def final_norm(learner: Any) -> Fault | None:
    """Check that no feed-forward's output leaves the stack without passing a norm."""
    last = max((place for place, each in enumerate(learner.heard) if is_norm(each.module)), default=None)
    if last is None:
        raise NotTestedError("it calls no norm")
    after = [each.name for each in learner.heard[last + 1 :] if F in each.widths]
    evidence = f"After the last norm, `{learner.heard[last].name}`, `{after[-1]}` is run." if after else ""
    return Fault(NO_FINAL_NORM, evidence) if after else None


FINAL_NORM = Property("final-norm", "The last layer is followed by a norm.", final_norm, ("used-layers",))


def adopt(module: nn.Module) -> list[str]:
    """Register modules that are kept in plain lists, so that the rest can be tested, and return the lists' names."""
    found: list[str] = []
    for part in [*module.modules()]:
        for name, value in [*vars(part).items()]:
            if isinstance(value, list) and value and all(isinstance(each, nn.Module) for each in value):  # pyright: ignore[reportUnknownVariableType]
                found.append(name)
                delattr(part, name)
                setattr(part, name, nn.ModuleList(value))  # pyright: ignore[reportUnknownArgumentType]
    return found


class Stack(Heads, Layered):
    """The learner's stack, with its initial parameters."""

    laws = "registered shape repeatable rows own-layers fresh-layers used-layers mask final-norm"

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.unregistered: list[str] = []
        module = self.made(LAYERS)
        self.start = parameters_of(module)
        super().__init__(scramble(module), self.call, mask_argument(forward_of(module, "x"), 1))

    def single(self) -> Heads:
        """Return a stack of one layer. Through several layers, information flows indirectly past a mask."""
        module = scramble(self.made(1))

        def call(x: Tensor, mask: Tensor | None) -> Any:
            return module(x) if mask is None else module(x, **self.named(mask))

        return Heads(module, call, self.mask)

    def made(self, layers: int) -> nn.Module:
        """Return an instance as its constructor leaves it."""
        module = built(self.kind, {"n_layers": layers, "d_model": D, "n_heads": HEADS}, {"d_ff": F})
        self.unregistered = adopt(module)
        return module

    def call(self, x: Tensor, mask: Tensor | None) -> Any:
        """Run the stack."""
        return self.module(x) if mask is None else self.module(x, **self.named(mask))

    def output(self) -> Tensor:
        """Return the output for the fixed input, with its graph."""
        return first(ask(self.run, self.x, None))

    rows = replace(Heads.rows, needs=("repeatable",))
    final_norm = FINAL_NORM

    @law("The mask reaches the attention of a layer.", "shape", "repeatable", "rows", name="mask")
    def one_mask(self) -> Fault | None:
        self.needs_mask()
        return self.single().polarity()
