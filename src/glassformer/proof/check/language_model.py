"""Tests a learner's language model by its inputs and outputs, its cache, and greedy decoding."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.proof.check.attention import first
from glassformer.proof.check.calling import (
    FUTURE,
    accepts,
    built,
    distance,
    forward_of,
    refuse_unlike,
    repeated,
    scramble,
    shaped,
)
from glassformer.proof.check.labels import OTHER_START
from glassformer.proof.check.property import (
    CrashError,
    Fault,
    Mistake,
    NotTestedError,
    ask,
    crash_of,
    law,
)
from glassformer.proof.check.training import LEFT_EVALUATING
from glassformer.train.cross_entropy import cross_entropy

VOCAB, MAX_LEN, LAYERS = 90, 12, 2
WIDE, NARROW = (64, 4), (8, 2)
"""d_model and heads: wide where the size of the first logits matters, narrow where only dependencies do."""
B, T = 3, 7
TOKENS = torch.randint(1, VOCAB, (B, T), generator=torch.Generator().manual_seed(9))
SAME = 1e-8
"""Rounding error of float64. The effect of a token on a logit is far larger."""


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
FAR = 1.0
"""Nats above ln V. torch's default initialisation stays within 0.5 of it; a head from N(0, 1) is off by tens."""

SHAPE = Mistake(
    "the output has the wrong shape",
    "There must be one logit for each id of the vocabulary, at each position.",
    "What is the last map of a language model for?",
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


def changed(tokens: Tensor, vocab: int, *places: int) -> Tensor:
    """Return the tokens with those at some places changed in every row."""
    tokens = tokens.clone()
    tokens[:, [*places]] = (tokens[:, [*places]] + 1) % vocab
    return tokens


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

    def reach(self, module: nn.Module, place: int, before: int) -> float:
        """Return how far changing the token at `place` moves the logits of the positions before `before`."""
        other = changed(self.tokens, self.vocab, place)
        return distance(self.logits(other, module)[:, :before], self.logits(self.tokens, module)[:, :before])

    @law("There is one logit for each id at each position.")
    def shape(self) -> Fault | None:
        rows, length = self.tokens.shape
        return shaped(self.seen, (rows, length, self.vocab), SHAPE, f", for {rows} rows of {length} tokens")

    repeatable = repeated(lambda learner: learner.logits(learner.tokens))

    @law("No token changes a logit before it.", "repeatable")
    def causal(self) -> Fault | None:
        last = self.tokens.shape[1] - 1
        gaps = {place: self.reach(self.module, place, place) for place in range(1, last + 1)}
        place = max(gaps, key=lambda each: gaps[each])
        if gaps[place] <= SAME:
            return None
        # In one layer, a mask that is off by one lets a token reach the position before it and none further back.
        only_next = self.reach(self.one_layer, last, last - 1) <= SAME < self.reach(self.one_layer, last, last)
        evidence = f"Another token at position {place} changes a logit before it by {gaps[place]:.2g}."
        return Fault(NEXT if only_next else FUTURE, evidence)

    @law("The order of the tokens matters.", "repeatable", "causal")
    def order(self) -> Fault | None:
        exchanged = self.tokens[:, [1, 0, *range(2, self.tokens.shape[1])]]
        seen, other = (self.logits(each, self.one_layer)[:, -1] for each in (self.tokens, exchanged))
        gap = distance(other, seen)
        evidence = f"Swapping tokens 0 and 1 changes the last logit by {gap:.1g}."
        return None if gap > SAME else Fault(UNORDERED, evidence)


class Network(TokenModel):
    """The learner's language model, also as its constructor leaves it."""

    laws = "shape repeatable rows first-loss causal order cache"
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

    def after_cache(self, *places: int) -> Tensor:
        """Return the logits of the first token that is read alone, where the tokens at some places are others."""
        return self.in_parts(SINGLE, changed(TOKENS, VOCAB, *places))[:, PLACE]

    def mistake(self) -> Mistake:
        """Return the mistake that explains what a single step reads."""
        step, before = self.after_cache(), range(PLACE)
        if distance(self.after_cache(*before), step) <= SAME:
            return UNREAD
        if distance(self.after_cache(*before[1:]), step) <= SAME:
            return TOP_LEFT
        return RESTART if self.skips_its_row(step) else OTHER

    def skips_its_row(self, step: Tensor) -> bool:
        """Whether the cached step reads another row of a position table than the forward pass does.

        If it does, changing the token's row of the table changes the forward pass but not the cached step.
        """
        tables = [each for each in (*self.module.parameters(), *self.module.buffers()) if MAX_LEN in each.shape]
        for table in tables:
            row = table.data.select(list(table.shape).index(MAX_LEN), PLACE)
            before = row.clone()
            row.add_(torch.linspace(0.5, 1.5, row.numel(), dtype=row.dtype).view_as(row))
            whole, again = self.logits(TOKENS)[:, PLACE], self.after_cache()
            row.copy_(before)
            if distance(whole, self.seen[:, PLACE]) > SAME >= distance(again, step):
                return True
        return False

    @law("No row of a batch affects another.", "repeatable")
    def rows(self) -> Fault | None:
        gap = distance(self.logits(TOKENS[:1]), self.seen[:1])
        evidence = f"The logits of row 0 alone differ by up to {gap:.2g} from those in the batch."
        return Fault(ROWS, evidence) if gap > SAME else None

    @law("An untrained model's loss is near ln vocab_size.", "shape")
    def first_loss(self) -> Fault | None:
        draw = torch.Generator().manual_seed(10)
        tokens, targets = (torch.randint(VOCAB, (16, MAX_LEN), generator=draw) for _ in range(2))
        return first_loss_of(self.logits(tokens, self.fresh), targets, self.fresh)

    @law("In parts, with the cache, the logits are the same.", "rows", "causal")
    def cache(self) -> Fault | None:
        try:
            gap = distance(self.in_parts(SINGLE), self.seen)
            if gap > SAME:
                evidence = f"Token by token after the first {PLACE}, logits are up to {gap:.2g} off."
                return Fault(self.mistake(), evidence)
            gap = distance(self.in_parts(CHUNKS), self.seen)
        except CrashError as crash:
            return Fault(OTHER, f"With a cache: {crash_of(crash)}")
        return Fault(TOP_LEFT, f"Two tokens at a time, logits are up to {gap:.2g} off.") if gap > SAME else None


def first_loss_of(logits: Tensor, targets: Tensor, module: nn.Module) -> Fault | None:
    """Compare the loss of an untrained model on random targets with that of a model that knows nothing."""
    vocab = logits.shape[-1]
    loss = cross_entropy(logits.float().flatten(0, 1), targets.flatten())[0].item() / targets.numel()
    if loss <= math.log(vocab) + FAR:
        return None
    evidence = f"The first loss on random tokens is {loss:.1f} nats; ln {vocab} is {math.log(vocab):.1f}."
    matrix, tied = head_of(module, vocab)
    if matrix is not None:
        evidence += f" The head's matrix begins with a standard deviation of {matrix.std():.2g}."
    return Fault(TIED if tied else HEAD, evidence)


def head_of(module: nn.Module, vocab: int) -> tuple[Tensor | None, bool]:
    """Return the matrix that gives the logits (None if no map has that shape), and whether the embedding shares it."""
    maps = [each for each in module.modules() if isinstance(each, nn.Linear) and each.weight.shape[0] == vocab]
    tables = [each for each in module.modules() if isinstance(each, nn.Embedding) and each.weight.shape[0] == vocab]
    if maps:
        return maps[-1].weight, any(maps[-1].weight is table.weight for table in tables)
    return (tables[-1].weight, True) if tables else (None, False)


# --- greedy decoding, on models whose answers are known

WORDS, EOS, MOST = 12, 9, 20
PROMPT = (4, 2)
"""The model predicts (last id + number of ids read - 1) modulo WORDS: 4 2 | 3 5 8 0 5 ... It needs the whole prefix."""

ENDLESS = Mistake(
    "it does not stop at the end token",
    "It goes on writing tokens after eos_id until it reaches the limit.",
    "Which of the tokens written do you compare with eos_id, and when?",
)
LIMIT = Mistake(
    "the limit is off by one",
    "The number of tokens written is not the one that max_new_tokens allows.",
    "For a limit of 1, how often must the model be asked?",
)
TOTAL = Mistake(
    "the limit counts the prompt",
    "max_new_tokens is compared with the length of prompt and answer together.",
    "Which tokens are new?",
)
LAST_ONLY = Mistake(
    "the model is given the last token alone",
    "Without a cache the model must read all that was written; it forgets the rest.",
    "What does your model know of the earlier tokens at the second step?",
)
FIRST = Mistake(
    "the logits of the wrong position are used",
    "The next token is taken from another position than the last one.",
    "Which position's logits predict the token after the last one?",
)
NO_PROMPT = Mistake(
    "the prompt is missing from the result",
    "The documented result is the prompt and what follows it.",
    "What do you put into your result before the loop begins?",
)
NO_END = Mistake(
    "the end token is missing from the result",
    "The documented result includes eos_id, so that a reader knows that it ended.",
    "In which order do you compare and append?",
)
NO_IDS = Mistake(
    "the result is not a row of ids",
    "The documented result is a list or a tensor of whole numbers.",
    "What does your function return at its end, if anything?",
)
OTHER_TOKENS = Mistake(
    "the tokens are not those of greedy decoding",
    "They differ, and no mistake known here explains it.",
    "Write down the ids that your model is given at each step.",
)


class Counting(nn.Module):
    """A model with known answers: at each position it predicts (id + ids up to there - 1) modulo the vocabulary.

    It is a module, so that a learner may put it into evaluation mode.
    """

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits [1, T, V]."""
        following = (ids + torch.arange(ids.shape[1])) % WORDS
        return nn.functional.one_hot(following, WORDS).float()


def greedy(limit: int, eos: int = EOS, prompt: Sequence[int] = PROMPT, how: str = "right") -> list[int]:
    """Return the documented result, or that of a known mistake."""
    ids, new = [*prompt], 0
    most = {"one more": limit + 1, "one less": limit - 1, "total": limit - len(prompt)}.get(how, limit)
    while new < most:
        given = ids[-1:] if how == "last only" else ids
        place = 0 if how == "first" else len(given) - 1
        ids.append((given[place] + place) % WORDS)
        new += 1
        if ids[-1] == eos and how != "endless":
            break
    if how == "no prompt":
        return ids[len(prompt) :]
    return ids[:-1] if how == "no end" and ids[-1] == eos else ids


MISTAKES = {
    "endless": ENDLESS,
    "last only": LAST_ONLY,
    "first": FIRST,
    "no prompt": NO_PROMPT,
    "no end": NO_END,
}
LIMITS = {"one more": LIMIT, "one less": LIMIT, "total": TOTAL}


Written = list[int] | str
"""The ids that were written, or the type of a result that has none."""


class Greedy:
    """The learner's function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        refuse_unlike(function, "model", "prompt", "eos", "n")
        self.function = function

    def ids(self, limit: int, eos: int) -> Written:
        """Return what the function writes."""
        return ids_of(ask(self.function, Counting(), torch.tensor([PROMPT]), eos, limit))

    @law("The tokens are the likeliest ones, up to the end token.")
    def ends(self) -> Fault | None:
        return compared(self.ids(MOST, END), MISTAKES, MOST, END)

    @law("At most max_new_tokens tokens are written.", "ends")
    def limit(self) -> Fault | None:
        return compared(self.ids(4, -1), LIMITS, 4, -1)


def ids_of(answer: object) -> Written:
    """Return the ids of a list or tensor as one list; for anything else, the name of its type."""
    try:
        return [int(each) for each in torch.as_tensor(answer).flatten()]
    except (TypeError, ValueError, RuntimeError):
        return type(answer).__name__


END = greedy(6, eos=-1)[5]
"""The fourth new token. It differs from all tokens before it."""


def compared(
    seen: Written, mistakes: dict[str, Mistake], limit: int, eos: int, prompt: Sequence[int] = PROMPT
) -> Fault | None:
    """Compare the tokens with the documented ones, and return the first known mistake that gives them."""
    wanted = greedy(limit, eos, prompt)
    if seen == wanted:
        return None
    if isinstance(seen, str):
        return Fault(NO_IDS, f"It returns {seen}, not {wanted}.")
    fitting = (mistake for how, mistake in mistakes.items() if greedy(limit, eos, prompt, how) == seen)
    return Fault(next(fitting, OTHER_TOKENS), f"It returns {seen[:10]}, not {wanted}.")


SOURCE, BOS = torch.tensor([[7, 5, 10]]), 3
TARGET_END = greedy(4, eos=-1, prompt=[BOS])[-1]
"""The fourth token that the model predicts. It differs from those before it, and depends on all of them."""

NO_SOURCE = Mistake(
    "the source does not reach the model",
    "The model is called with something other than the source that was given.",
    "How does the decoder learn what is to be translated?",
)


DROPPING = Mistake(
    "dropout is active in evaluation",
    "The model is asked in training mode, so parts of it are missing at every token.",
    "Which mode must a model be in while it writes?",
)


class Translating(Counting):
    """A model that predicts what `Counting` does for the target, and records its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.requested: list[tuple[Tensor, Tensor]] = []
        self.trained: list[bool] = []

    def forward(self, source: Tensor, target: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return logits [1, T, V]."""
        self.requested.append((source, target))
        self.trained.append(self.training)
        return super().forward(target)


class Translate:
    """The learner's function, called once with a generous limit, and everything it passed to the model."""

    def __init__(self, function: Callable[..., Any]) -> None:
        refuse_unlike(function, "model", "source", "bos", "eos", "n")
        self.function, self.model = function, Translating()
        self.ids = self.written(MOST, TARGET_END)

    def written(self, limit: int, eos: int) -> Written:
        """Return what the function writes."""
        return ids_of(ask(self.function, self.model, SOURCE, BOS, eos, limit))

    @law("The model reads the source.")
    def source(self) -> Fault | None:
        other = [source for source, _ in self.model.requested if not torch.equal(source, SOURCE)]
        if self.model.requested and not other:
            return None
        got = other[0].tolist() if other else "nothing"
        return Fault(NO_SOURCE, f"The source is {SOURCE.tolist()}; the model was given {got}.")

    @law("Decoding begins with bos_id, as training does.", "source")
    def start(self) -> Fault | None:
        first = self.model.requested[0][1].flatten().tolist()
        if first == [BOS]:
            return None
        meaning = {
            TARGET_END: ", which is eos_id",
            0: ", which is often padding",
            SOURCE[0, -1].item(): ", the source's last token",
        }
        evidence = meaning.get(first[0], "") if len(first) == 1 else ""
        return Fault(OTHER_START, f"bos_id is {BOS}, and the model first reads {first}{evidence}.")

    @law("The tokens are the likeliest ones, up to the end token.", "start")
    def ends(self) -> Fault | None:
        return compared(self.ids, MISTAKES, MOST, TARGET_END, [BOS])

    @law("At most max_new_tokens tokens are written.", "ends")
    def limit(self) -> Fault | None:
        return compared(self.written(3, -1), LIMITS, 3, -1, [BOS])

    @law("The model is asked in evaluation mode.", optional=True)
    def mode(self) -> Fault | None:
        evidence = f"In {sum(self.model.trained)} of {len(self.model.trained)} calls model.training is True."
        return Fault(DROPPING, evidence) if any(self.model.trained) else None

    @law("The model goes in the mode in which it came.", optional=True)
    def restored(self) -> Fault | None:
        evidence = "It came with model.training True and goes with False."
        return None if self.model.training else Fault(LEFT_EVALUATING, evidence)
