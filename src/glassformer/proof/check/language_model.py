"""Tests a learner's language model by its inputs and outputs, and its cache."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.proof.check.attention import first
from glassformer.proof.check.calling import accepts, built, forward_of, scramble
from glassformer.proof.check.reading import distance
from glassformer.proof.check.table import (
    CrashError,
    Fault,
    Mistake,
    NotTestedError,
    Property,
    Subject,
    ask,
    crash_of,
)
from glassformer.train.cross_entropy import cross_entropy

VOCAB, MAX_LEN, LAYERS = 90, 12, 2
WIDE, NARROW = (64, 4), (8, 2)
"""d_model and heads: wide where the size of the first logits matters, narrow where only dependencies do."""
B, T = 3, 7
TOKENS = torch.randint(VOCAB, (B, T), generator=torch.Generator().manual_seed(9))
SAME = 1e-8
"""Rounding error of float64. The effect of a token on a logit is far larger."""


class TokenModel:
    """A model that gives logits for tokens, with random parameters in float64: as it is, and with one layer alone."""

    module: nn.Module
    one_layer: nn.Module
    tokens: Tensor
    vocab: int
    seen: Any

    def logits(self, tokens: Tensor, module: nn.Module | None = None) -> Any:
        """Return the logits of tokens read at once."""
        with torch.no_grad():
            return first(ask(module or self.module, tokens))


class Network(TokenModel):
    """The learner's language model, also as its constructor leaves it."""

    tokens, vocab = TOKENS, VOCAB

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.fresh = self.made(LAYERS, WIDE).eval()
        self.takes_cache = accepts(forward_of(self.fresh, "tokens"), "tokens", "cache")
        self.module = scramble(self.made(LAYERS, NARROW))
        self.one_layer = scramble(self.made(1, NARROW))
        self.seen: Any = self.logits(TOKENS)

    def made(self, layers: int, size: tuple[int, int]) -> nn.Module:
        """Return an instance as its constructor leaves it."""
        width, heads = size
        sizes = {"vocab_size": VOCAB, "d_model": width, "n_heads": heads, "n_layers": layers, "max_len": MAX_LEN}
        return built(self.kind, sizes)

    def in_parts(self, sizes: Sequence[int], tokens: Tensor = TOKENS) -> Tensor:
        """Return the logits of tokens read part by part through the cache.

        Errors: `NotTestedError` for a model without a cache, `CrashError`.
        """
        if not self.takes_cache:
            raise NotTestedError("forward takes no cache")
        cache, found = None, list[Tensor]()
        with torch.no_grad():
            for part in tokens.split([*sizes], dim=1):
                answer: Any = ask(self.module, part, cache)
                if not isinstance(answer, tuple | list) or len(answer) != 2:  # pyright: ignore[reportUnknownArgumentType]
                    raise NotTestedError("forward takes a second argument, but does not return (logits, cache)")
                logits, cache = answer  # pyright: ignore[reportUnknownVariableType]
                found.append(logits)
        return torch.cat(found, dim=1)


def changed(tokens: Tensor, vocab: int, *places: int) -> Tensor:
    """Return the tokens with those at some places changed in every row."""
    tokens = tokens.clone()
    tokens[:, [*places]] = (tokens[:, [*places]] + 1) % vocab
    return tokens


PLACE = 3
"""The first token that is read by itself. Those before it are read at once."""
SINGLE, CHUNKS = (PLACE, 1, 1, 1, 1), (PLACE, 2, 2)

UNREAD = Mistake(
    "the cache is not read",
    "A cached step gives the same logits, whatever came before it.",
    "With which keys is the query of a single new token compared?",
)
TOP_LEFT = Mistake(
    "the mask of a cached step counts from the first key",
    "The queries belong to the last keys, but the mask treats them as the first, so it hides keys that may be read.",
    "With 3 keys in the cache and 1 new token, which row of the 4 x 4 mask is its row?",
)
RESTART = Mistake(
    "positions begin again at 0 in a cached step",
    "A new token gets the position that it has in its own short input, not the one that it has in the sequence.",
    "How does your model know how many tokens came before?",
)
OTHER = Mistake(
    "a cached step differs from one forward pass",
    "Part of a step depends on how many tokens are read at once: the order or shape of the cached keys and values, "
    "or a bias by distance.",
    "Print keys, values and scores of the same token in both ways of reading.",
)


def cached(learner: Network) -> Fault | None:
    """Check that reading part by part through the cache gives the logits of one forward pass."""
    try:
        gap = distance(learner.in_parts(SINGLE), learner.seen)
        if gap > SAME:
            told = f"Token by token after the first {PLACE}, logits are up to {gap:.2g} off."
            return Fault(mistake_of(learner), told)
        gap = distance(learner.in_parts(CHUNKS), learner.seen)
    except CrashError as crash:
        return Fault(OTHER, f"With a cache: {crash_of(crash)}")
    return Fault(TOP_LEFT, f"Two tokens at a time, logits are up to {gap:.2g} off.") if gap > SAME else None


def mistake_of(learner: Network) -> Mistake:
    """Return the mistake that explains what a single step reads."""
    step = learner.in_parts(SINGLE)[:, PLACE]

    def reads(*places: int) -> bool:
        return distance(learner.in_parts(SINGLE, changed(TOKENS, VOCAB, *places))[:, PLACE], step) > SAME

    before = range(PLACE)
    if not reads(*before):
        return UNREAD
    if not reads(*before[1:]):
        return TOP_LEFT
    return RESTART if skips_its_row(learner, step) else OTHER


def skips_its_row(learner: Network, step: Tensor) -> bool:
    """Whether the cached step reads another row of a position table than the forward pass does.

    If it does, changing the token's row of the table changes the forward pass but not the cached step.
    """
    tables = [each for each in (*learner.module.parameters(), *learner.module.buffers()) if MAX_LEN in each.shape]
    for table in tables:
        row = table.data.select(list(table.shape).index(MAX_LEN), PLACE)
        before = row.clone()
        row.add_(torch.linspace(0.5, 1.5, row.numel(), dtype=row.dtype).view_as(row))
        whole, again = learner.logits(TOKENS)[:, PLACE], learner.in_parts(SINGLE)[:, PLACE]
        row.copy_(before)
        if distance(whole, learner.seen[:, PLACE]) > SAME >= distance(again, step):
            return True
    return False


FAR = 1.0
"""Nats above ln V. torch's default initialisation stays within 0.5 of it; a head from N(0, 1) is off by tens."""

SHAPE = Mistake(
    "the output has the wrong shape",
    "There must be one logit for each id of the vocabulary, at each position.",
    "What is the last map of a language model for?",
)
RANDOM = Mistake(
    "dropout is active in evaluation",
    "Two calls with the same input give different output: something random runs although nothing is trained.",
    "Who tells your dropout whether the model is training?",
)
ROWS = Mistake(
    "rows of the batch are mixed",
    "A row gets another answer when it stands alone.",
    "Which axis of your tensors is the batch, at each step?",
)
TIED = Mistake(
    "the tied embedding starts too large",
    "Embedding and head share a matrix, and torch draws an embedding from N(0, 1): as a head it gives logits as large "
    "as the root of d_model, and a first loss of many times ln V.",
    "Which initial standard deviation must a matrix have to give logits near 0?",
)
HEAD = Mistake(
    "the head starts too large",
    "The first logits are large: the model starts out certain of nonsense, with a loss of many times ln V.",
    "How large are the logits of a model that knows nothing?",
)
FUTURE = Mistake(
    "queries read the future",
    "A later token changes an earlier logit, so in training the model can simply read the answer.",
    "Where does the causal mask enter, and is it given to every layer?",
)
NEXT = Mistake(
    "off by one: a query may read the next token",
    "Each position sees the very token that it must predict.",
    "What is the last key that the first query may read?",
)
UNORDERED = Mistake(
    "the order of the tokens is not seen",
    "In a model of one layer, swapping two earlier tokens changes nothing: positions are missing.",
    "What tells attention that one key stands before another?",
)


def shape(learner: TokenModel) -> Fault | None:
    """Check that there is a logit for each id at each position."""
    wanted = (*learner.tokens.shape, learner.vocab)
    got = tuple(learner.seen.shape) if isinstance(learner.seen, Tensor) else type(learner.seen).__name__
    told = f"It is {got} and must be {wanted}, for {wanted[0]} rows of {wanted[1]} tokens."
    return None if got == wanted else Fault(SHAPE, told)


def repeatable(learner: TokenModel) -> Fault | None:
    """Check that the same input gives the same output."""
    gap = max(distance(learner.logits(learner.tokens), learner.seen) for _ in range(4))
    return Fault(RANDOM, f"Five calls with the same input differ by up to {gap:.2g}.") if gap > 0 else None


def rows(learner: Network) -> Fault | None:
    """Check that a row does not depend on the other rows."""
    gap = distance(learner.logits(TOKENS[:1]), learner.seen[:1])
    return (
        Fault(ROWS, f"The logits of row 0 alone differ by up to {gap:.2g} from those in the batch.")
        if gap > SAME
        else None
    )


def first_loss(learner: Network) -> Fault | None:
    """Check that the untrained model gives all tokens about the same probability."""
    draw = torch.Generator().manual_seed(10)
    tokens, targets = (torch.randint(VOCAB, (16, MAX_LEN), generator=draw) for _ in range(2))
    with torch.no_grad():
        logits = first(ask(learner.fresh, tokens))
    return first_loss_of(logits, targets, learner.fresh)


def first_loss_of(logits: Tensor, targets: Tensor, module: nn.Module) -> Fault | None:
    """Compare the loss of an untrained model on random targets with that of a model that knows nothing."""
    vocab = logits.shape[-1]
    loss = cross_entropy(logits.float().flatten(0, 1), targets.flatten())[0].item() / targets.numel()
    if loss <= math.log(vocab) + FAR:
        return None
    told = f"The first loss on random tokens is {loss:.1f} nats; ln {vocab} is {math.log(vocab):.1f}."
    matrix, tied = head_of(module, vocab)
    if matrix is not None:
        told += f" The head's matrix begins with a standard deviation of {matrix.std():.2g}."
    return Fault(TIED if tied else HEAD, told)


def head_of(module: nn.Module, vocab: int) -> tuple[Tensor | None, bool]:
    """Return the matrix that gives the logits (None if no map has that shape), and whether the embedding shares it."""
    maps = [each for each in module.modules() if isinstance(each, nn.Linear) and each.weight.shape[0] == vocab]
    tables = [each for each in module.modules() if isinstance(each, nn.Embedding) and each.weight.shape[0] == vocab]
    if maps:
        return maps[-1].weight, any(maps[-1].weight is table.weight for table in tables)
    return (tables[-1].weight, True) if tables else (None, False)


def causal(learner: TokenModel) -> Fault | None:
    """Check that no token changes a logit before it."""
    T = learner.tokens.shape[1]
    gaps = {place: reach(learner, learner.module, place, place) for place in range(1, T)}
    place = max(gaps, key=lambda each: gaps[each])
    if gaps[place] <= SAME:
        return None
    # In one layer, a mask that is off by one lets a token reach the position before it and none further back.
    only_next = (
        reach(learner, learner.one_layer, T - 1, T - 2) <= SAME < reach(learner, learner.one_layer, T - 1, T - 1)
    )
    told = f"Another token at position {place} changes a logit before it by {gaps[place]:.2g}."
    return Fault(NEXT if only_next else FUTURE, told)


def reach(learner: TokenModel, module: nn.Module, place: int, before: int) -> float:
    """Return how far changing the token at `place` moves the logits of the positions before `before`."""
    tokens = learner.tokens
    seen, other = (learner.logits(each, module)[:, :before] for each in (tokens, changed(tokens, learner.vocab, place)))
    return distance(other, seen)


def ordered(learner: TokenModel) -> Fault | None:
    """Check that swapping two earlier tokens changes the last logit, even in one layer."""
    tokens = learner.tokens
    exchanged = tokens[:, [1, 0, *range(2, tokens.shape[1])]]
    seen, other = (learner.logits(each, learner.one_layer)[:, -1] for each in (tokens, exchanged))
    gap = distance(other, seen)
    return None if gap > SAME else Fault(UNORDERED, f"Swapping tokens 0 and 1 changes the last logit by {gap:.1g}.")


LANGUAGE_MODEL = Subject(
    Network,
    (
        Property("shape", "There is one logit for each id at each position.", shape),
        Property("repeatable", "In evaluation mode the same input gives the same output.", repeatable, ("shape",)),
        Property("rows", "No row of a batch affects another.", rows, ("repeatable",)),
        Property("first-loss", "An untrained model's loss is near ln vocab_size.", first_loss, ("shape",)),
        Property("causal", "No token changes a logit before it.", causal, ("repeatable",)),
        Property("order", "The order of the tokens matters.", ordered, ("repeatable", "causal")),
        Property("cache", "In parts, with the cache, the logits are the same.", cached, ("rows", "causal")),
    ),
)
