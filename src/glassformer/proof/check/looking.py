"""Tests what a learner does with heads: one programmed by hand, the maps of a model, a role's score, one silenced."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.nn.attention import attention_weights
from glassformer.nn.mask import Mask
from glassformer.proof.check.attention import WEIGHTS
from glassformer.proof.check.calling import (
    UNKNOWN,
    Choice,
    Reading,
    accepts,
    aspect,
    built,
    called,
    distance,
    drawn,
    listening,
    one_of,
    read,
    scramble,
)
from glassformer.proof.check.file import HOME
from glassformer.proof.check.measures import EXCHANGED_AXES, Instrument
from glassformer.proof.check.property import CrashError, Fault, Mistake, NotTestedError, ask, crash_of, law

# --- a head programmed by hand

COPIES = Mistake(
    "it copies instead of reversing",
    "Position i reads position i: query i and key i are alike.",
    "Which row of k must look like row i of q?",
)
NEIGHBOUR = Mistake(
    "off by one: it reads a neighbour",
    "Position i reads one place beside n-1-i.",
    "For i = 0, which position must be read?",
)
SOFT = Mistake(
    "the weights are not sharp",
    "The right key gets the largest weight, but far less than 0.99.",
    "By what must the queries be multiplied, so that one score stands far above the others?",
)
ONE_LENGTH = Mistake(
    "it works for one length only",
    "For another n the result has another shape, or fails.",
    "Where in your function does n enter?",
)


def reversal(function: Callable[..., Any], n: int) -> Tensor | str:
    """Return the weights [n, n] of the learner's queries and keys by our reference, or what is wrong with them."""
    answer = called(function, {"length": n})
    if not isinstance(answer, tuple | list) or len(answer) != 2 or not all(isinstance(x, Tensor) for x in answer):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        return f"It returns {type(answer).__name__} and must return (q, k)."
    q, k = (x.detach().double() for x in answer)  # pyright: ignore[reportUnknownVariableType]
    if q.ndim != 2 or q.shape != k.shape or q.shape[0] != n:
        return f"q is {tuple(q.shape)} and k {tuple(k.shape)}; both must be ({n}, K)."
    return attention_weights(q[None, None], k[None, None], Mask(), scale=q.shape[1] ** -0.5)[0, 0]


class Reversing:
    """The learner's `reversing_head`, for 8 positions."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.weights = reversal(function, 8)

    @law("q and k are [n, K].")
    def form(self) -> Fault | None:
        if not isinstance(self.weights, str):
            return None
        other = next((n for n in (2, 3, 4, 5, 6, 7, 10, 16, 32) if isinstance(reversal(self.function, n), Tensor)), 0)
        return Fault(ONE_LENGTH if other else UNKNOWN, f"For n = 8: {self.weights}")

    @law("Position i reads position n-1-i most.", "form")
    def reads(self) -> Fault | None:
        assert isinstance(self.weights, Tensor)
        found, wanted = self.weights.argmax(1), torch.arange(7, -1, -1)
        evidence = f"The largest weights are at {found.tolist()} and must be at {wanted.tolist()}."
        if torch.equal(found, wanted):
            return None
        if torch.equal(found, torch.arange(8)):
            return Fault(COPIES, evidence)
        beside = any(torch.equal(found, (wanted + step) % 8) for step in (1, -1))
        return Fault(NEIGHBOUR if beside else UNKNOWN, evidence)

    @law("With a weight of at least 0.99.", "reads")
    def sharp(self) -> Fault | None:
        assert isinstance(self.weights, Tensor)
        least = self.weights.flip(1).diagonal().min().item()
        return Fault(SOFT, f"For n = 8 a right key gets {least:.2f}.") if not least >= 0.99 else None

    @law("It works for n from 2 to 32.", "sharp")
    def lengths(self) -> Fault | None:
        for n in (2, 3, 5, 16, 31, 32):
            try:
                weights = reversal(self.function, n)
            except CrashError as crash:
                return Fault(ONE_LENGTH, f"For n = {n}: {crash_of(crash)}")
            if isinstance(weights, str):
                return Fault(ONE_LENGTH, f"For n = {n}: {weights}")
            least = weights.flip(1).diagonal().min().item()
            if not least >= 0.99:
                return Fault(ONE_LENGTH if least < 0.5 else SOFT, f"For n = {n} a right key gets {least:.2f}.")
        return None


# --- maps and scores of heads

ONE_LAYER = Mistake(
    "only one layer is seen",
    "The list holds the weights of one layer alone.",
    "How many attentions has the model, and how many does your loop visit?",
)
OTHER_LAYERS = Mistake(
    "layers stand in another order",
    "The list does not begin with the first layer.",
    "In which order does a model list its parts?",
)
DROPPED = Mistake(
    "weights are dropped ones",
    "The model runs in training mode, so some weights are 0 and the others larger.",
    "What must a row of weights sum to, and in which mode does it?",
)
AVERAGED = Mistake(
    "heads are averaged",
    "The maps have lost the axis of the heads.",
    "How many maps has a layer of 4 heads?",
)
SAME_MAP = Mistake(
    "all maps are the same one",
    "Every entry of the list is the same tensor.",
    "Which part of the model does each round of your loop look at?",
)
HOLDS_GRAPH = Mistake(
    "gradients are recorded",
    "The maps are part of a computation that could go backwards, although they are only looked at.",
    "Which context tells torch that nothing will go backwards?",
)
IDS, LAYERS, HEADS = torch.tensor([[3, 1, 4, 1, 5], [2, 6, 5, 3, 5]]), 3, 2
B, T = IDS.shape


def own_attention(function: Callable[..., Any]) -> type[nn.Module] | None:
    """Return the learner's own class of attention, if the file of a function or class has one."""
    methods = (
        [each for each in vars(function).values() if inspect.isfunction(each)] if inspect.isclass(function) else ()
    )
    globals_ = getattr(inspect.unwrap(next(iter(methods), function)), "__globals__", {})
    found = [
        each for name, each in globals_.items() if HOME.get(name) == "MultiHeadAttention" and isinstance(each, type)
    ]
    return next((each for each in found if issubclass(each, nn.Module)), None)


def double_of(own: type[nn.Module] | None) -> type[nn.Module]:
    """Return our attention with kept weights, as a subclass of the learner's own class if there is one.

    The learner may look for modules of that class.
    """
    base = own or nn.Module

    class Attending(base):  # pyright: ignore[reportGeneralTypeIssues, reportUntypedBaseClass]
        """Attention with fixed maps, which keeps its weights."""

        def __init__(self, layer: int) -> None:
            nn.Module.__init__(self)
            self.scale = nn.Parameter(torch.tensor(float(layer + 1), dtype=torch.float64))
            self.drop = nn.Dropout(0.5)
            self.weights: Tensor | None = None

        def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
            """Return x plus what the heads read."""
            q = x.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            scores = q @ q.mT * self.scale
            if mask is not None:
                scores = scores.masked_fill(~mask, float("-inf"))
            weights = self.drop(scores.softmax(-1))
            self.weights = weights if torch.is_grad_enabled() else weights.detach()
            return x + (weights @ q).transpose(1, 2).flatten(2)

    return Attending


class Looked(nn.Module):
    """A model of three layers with `double_of`'s attention."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.table = nn.Parameter(drawn(8, 2 * HEADS))
        self.layers = nn.ModuleList([nn.ModuleDict({"attention": kind(layer)}) for layer in range(LAYERS)])  # pyright: ignore[reportCallIssue]

    def attentions(self) -> list[Any]:
        """Return the attentions in order."""
        return [each["attention"] for each in self.layers]  # pyright: ignore[reportIndexIssue]

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return vectors, as an encoder does."""
        x = self.table[ids]
        for each in self.attentions():
            x = each(x, mask)
        return x


class Maps(Instrument):
    """The learner's `attention_maps`."""

    laws = "maps evaluation graph restored"
    given = IDS

    def __init__(self, function: Callable[..., Any]) -> None:
        self.kind = double_of(own_attention(function))
        self.call = lambda model, ids: called(function, {"model": model, "ids": ids})
        model = Looked(self.kind).eval()
        with torch.no_grad():
            model(IDS)
        self.right = [each.weights.clone() for each in model.attentions()]
        for each in model.attentions():
            each.weights = None
        self.found = self.call(model, IDS.clone())

    def fresh(self) -> nn.Module:
        """Return a model that it can be called with."""
        return Looked(self.kind)

    @law("There is one map [B, H, T, S] a layer, in order.")
    def maps(self) -> Fault | None:
        found, right = self.found, self.right
        if not isinstance(found, list | tuple) or not all(isinstance(each, Tensor) for each in found):  # pyright: ignore[reportUnknownVariableType]
            return Fault(UNKNOWN, f"It returns {type(found).__name__} and must return a list of tensors.")
        maps: Sequence[Tensor] = [*found]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        evidence = f"The model has {LAYERS} layers; the list holds {[tuple(each.shape) for each in maps]}."
        if len(maps) != LAYERS:
            return Fault(ONE_LAYER if len(maps) == 1 else UNKNOWN, evidence)
        if all(each.ndim == 3 for each in maps) and maps[0].shape[-2:] == right[0].shape[-2:]:
            return Fault(AVERAGED, evidence)
        if all(distance(each, maps[0]) == 0 for each in maps[1:]):
            return Fault(SAME_MAP, "All three are equal.")
        if all(distance(one, other) < 1e-9 for one, other in zip(maps, right[::-1], strict=True)):
            return Fault(OTHER_LAYERS, "The first map is that of the last layer.")
        gap = max(distance(one, other) for one, other in zip(maps, right, strict=True))
        return Fault(WEIGHTS, f"They differ from the weights that the model used by {gap:.2g}.") if gap > 1e-9 else None

    @law("The weights are those of evaluation mode.", "maps")
    def evaluation(self) -> Fault | None:
        torch.manual_seed(0)
        maps = self.call(Looked(self.kind).train(), IDS.clone())
        gap = max(distance(each.sum(-1), torch.ones_like(each.sum(-1))) for each in maps)
        return Fault(DROPPED, f"A row of weights differs from a sum of 1 by {gap:.2g}.") if gap > 1e-9 else None

    @law("The maps hold no graph.", "maps")
    def graph(self) -> Fault | None:
        holds = any(each.requires_grad for each in self.found)
        return Fault(HOLDS_GRAPH, "A map requires a gradient.") if holds else None


NO_CHANCE = Mistake(
    "chance is not subtracted",
    "Even weights get 1/S instead of 0.",
    "What do even weights give?",
)
BELOW_ONE = Mistake(
    "the score does not reach 1",
    "Chance is subtracted, but a head that always reads the predicted key gets 1 - 1/S.",
    "By what must the difference be divided, so that the best head gets 1?",
)
MINUS_ONE = Mistake(
    "queries without a prediction are counted",
    "-1 is used as an index, which means the last key.",
    "What do torch and Python read at index -1?",
)
HITS = Mistake(
    "hits are counted instead of weight",
    "The share of queries whose largest weight is at the predicted key is returned.",
    "Does a head with 0.34, 0.33, 0.33 read its first key as much as one with 1, 0, 0?",
)
KEYS = torch.tensor([4, 0, -1, 1, 2])
HEAD_WEIGHTS = torch.stack(
    [
        torch.eye(T, dtype=torch.float64).flip(0).expand(B, T, T),
        torch.full((B, T, T), 1 / T, dtype=torch.float64),
        torch.eye(T, dtype=torch.float64).roll(1, 0).expand(B, T, T),
        (drawn(B, T, T) + 2 * torch.eye(T).flip(0)).softmax(-1),
    ],
    1,
)
"""Weights [B, H, T, S]: an anti-diagonal, even ones, a shifted diagonal, and some in between."""


REQUESTED = (KEYS >= 0).nonzero()[:, 0]


def above_chance(picked: Tensor) -> Tensor:
    """Return the score of each head for the weights [B, H, queries] at its predicted keys."""
    return (picked.mean((0, 2)) - 1 / T) / (1 - 1 / T)


PICKED = HEAD_WEIGHTS[..., REQUESTED, KEYS[REQUESTED]]
SCORES = [
    Choice(above_chance(PICKED)),
    Choice(PICKED.mean((0, 2)), "the mean weight", NO_CHANCE),
    Choice(PICKED.mean((0, 2)) - 1 / T, "the mean weight less chance", BELOW_ONE),
    Choice(above_chance(HEAD_WEIGHTS[..., torch.arange(T), KEYS]), "-1 as an index", MINUS_ONE),
    Choice(
        above_chance((HEAD_WEIGHTS.argmax(-1)[..., REQUESTED] == KEYS[REQUESTED]).double()), "the share of hits", HITS
    ),
    Choice(above_chance(HEAD_WEIGHTS[..., KEYS[REQUESTED], REQUESTED]), "queries and keys exchanged", EXCHANGED_AXES),
]
HEAD_SCORE = one_of(
    "score",
    "1 for always, 0 for even weights.",
    lambda function: called(function, {"weights": HEAD_WEIGHTS.clone(), "keys": KEYS.clone()}),
    SCORES,
)


# --- a head that is silent for a while

NONE_SILENT = Mistake(
    "no head is silent",
    "Inside the context the model gives what it gives without it.",
    "Through which map do the numbers of a head reach the rest of the model?",
)
MORE_SILENT = Mistake(
    "more than one head is silent",
    "Other heads of the layer, or the same head of other layers, are lost too.",
    "Which columns of the joined heads belong to this head, and in which layer?",
)
OTHER_SILENT = Mistake(
    "another head is silent",
    "What is lost belongs to another head or another layer.",
    "Head 0 of layer 0 is the first: which columns are those of head h?",
)
STAYS_SILENT = Mistake(
    "the head stays silent",
    "After the context the model does not give what it gave before.",
    "What must run when the context ends, also if an error ends it?",
)
NO_CONTEXT = Mistake(
    "it is no context manager",
    "What it returns cannot stand behind `with`.",
    "Which decorator of contextlib makes a context of a function with one yield?",
)
WIDTH, LAYER, HEAD = 4 * HEADS, 1, 1
EVERY = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
LOST: list[tuple[Choice, list[tuple[int, int]]]] = [
    (Choice("right"), [(LAYER, HEAD)]),
    (Choice("none", "all heads heard", NONE_SILENT), []),
    (Choice("layer", "all heads of the layer silent", MORE_SILENT), [each for each in EVERY if each[0] == LAYER]),
    (Choice("head", "the head silent in every layer", MORE_SILENT), [each for each in EVERY if each[1] == HEAD]),
    (Choice("all", "all heads silent", MORE_SILENT), EVERY),
    *(
        (Choice(f"{layer}.{head}", f"head {head} of layer {layer} silent", OTHER_SILENT), [(layer, head)])
        for layer, head in EVERY
        if (layer, head) != (LAYER, HEAD)
    ),
]
"""Which heads are silent under each reading."""


class Joining(nn.Module):
    """Attention as the stub of the course describes it, for a file without its own: `output` maps the joined heads."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.query, self.key, self.value, self.output = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """Return what the heads read."""
        q, k, v = (
            each(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for each in (self.query, self.key, self.value)
        )
        return self.output(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2))


class Talking(nn.Module):
    """A model of attentions, one after another, each added to what there was."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.table = nn.Parameter(drawn(8, WIDTH))
        self.layers = nn.ModuleList([built(kind, {"d_model": WIDTH, "n_heads": HEADS}) for _ in range(LAYERS)])

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return vectors, as an encoder does."""
        x = self.table[ids]
        for each in self.layers:
            answer = each(x) if accepts(each.forward, "x") else each(x, x, x)
            x = x + (answer[0] if isinstance(answer, tuple) else answer)
        return x


class Silencing:
    """The learner's `ablated`, around a model of the learner's own attentions, or of ours."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.model = scramble(Talking(own_attention(function) or Joining))
        self.reading: Reading | None = None
        self.given = self.result_for(copy.deepcopy(self.model))
        if not (hasattr(self.given, "__enter__") and hasattr(self.given, "__exit__")):
            return
        used = copy.deepcopy(self.model)
        context = self.result_for(used)
        ask(context.__enter__)
        self.seen = gives(used)
        ask(context.__exit__, None, None, None)
        self.after = gives(used)
        self.reading = read(self.seen, {"way": [each for each, _ in LOST]}, self.without)

    def result_for(self, model: nn.Module) -> Any:
        """Return what the learner's function gives for a model."""
        return called(self.function, {"model": model, "layer": LAYER, "head": HEAD})

    def without(self, way: str) -> Tensor:
        """Return the output under a reading, of a copy whose last maps read nothing of the lost heads."""
        model, each = copy.deepcopy(self.model), WIDTH // HEADS
        for layer, head in next(heads for choice, heads in LOST if choice.value == way):
            with listening(model.layers[layer]) as heard:  # pyright: ignore[reportIndexIssue, reportArgumentType]
                gives(model)
            last = [call.module for call in heard if isinstance(call.module, nn.Linear)]
            if not last:
                raise NotTestedError("the map behind the heads of its attention (nn.Linear) could not be found")
            with torch.no_grad():
                last[-1].weight[:, head * each : (head + 1) * each] = 0
        return gives(model)

    @law("It can stand behind `with`.")
    def context(self) -> Fault | None:
        evidence = f"It returns {type(self.given).__name__}."
        return None if hasattr(self, "after") else Fault(NO_CONTEXT, evidence)

    @law("A head's part of the output is lost, and nothing else.", "context")
    def equation(self) -> Fault | None:
        gap = distance(self.seen, gives(self.model))
        evidence = f"Inside the context the output differs by {gap:.2g}, as no head of the model explains."
        return None if self.reading is not None else Fault(UNKNOWN, evidence)

    silent = aspect("way", "This head of this layer is silent, and no other.", name="silent")

    @law("Afterwards, also after an error, the model is as before.", "context")
    def restored(self) -> Fault | None:
        before = gives(self.model)
        gap = distance(self.after, before)
        if gap > 1e-12:
            return Fault(STAYS_SILENT, f"After the context, the output differs by {gap:.2g} from that before.")
        used = copy.deepcopy(self.model)
        with suppress(ZeroDivisionError), self.result_for(used):
            raise ZeroDivisionError
        gap = distance(gives(used), before)
        evidence = f"After an error inside the context, the output differs by {gap:.2g} from that before."
        return Fault(STAYS_SILENT, evidence) if gap > 1e-12 else None


def gives(model: nn.Module) -> Tensor:
    """Return a model's output."""
    with torch.no_grad():
        return ask(model, IDS)
