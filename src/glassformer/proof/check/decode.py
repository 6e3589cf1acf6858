"""Tests greedy decoding on models whose answers are known."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.proof.check.calling import accepts
from glassformer.proof.check.labels import OTHER_START
from glassformer.proof.check.table import Fault, Mistake, Property, SignatureError, Subject, ask

VOCAB, EOS, MOST = 12, 9, 20
PROMPT = (4, 2)
"""The model predicts (last id + number of ids read - 1) modulo VOCAB: 4 2 | 3 5 8 0 5 ... It needs the whole prefix."""

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
OTHER = Mistake(
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
        following = (ids + torch.arange(ids.shape[1])) % VOCAB
        return nn.functional.one_hot(following, VOCAB).float()


def greedy(limit: int, eos: int = EOS, how: str = "right", prompt: Sequence[int] = PROMPT) -> list[int]:
    """Return the documented result, or that of a known mistake."""
    ids, new = [*prompt], 0
    most = {"one more": limit + 1, "one less": limit - 1, "total": limit - len(prompt)}.get(how, limit)
    while new < most:
        given = ids[-1:] if how == "last only" else ids
        place = 0 if how == "first" else len(given) - 1
        ids.append((given[place] + place) % VOCAB)
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
        if not accepts(function, "model", "prompt", "eos", "n"):
            raise SignatureError(f"{inspect.signature(function)}")
        self.function = function

    def ids(self, limit: int, eos: int) -> Written:
        """Return what the function writes."""
        return ids_of(ask(self.function, Counting(), torch.tensor([PROMPT]), eos, limit))


def ids_of(answer: object) -> Written:
    """Return the ids of a list or tensor as one list; for anything else, the name of its type."""
    try:
        return [int(each) for each in torch.as_tensor(answer).flatten()]
    except (TypeError, ValueError, RuntimeError):
        return type(answer).__name__


END = greedy(6, eos=-1)[5]
"""The fourth new token. It differs from all tokens before it."""


def ends(learner: Greedy) -> Fault | None:
    """Check that it writes the greedy tokens up to the end token."""
    return compared(learner.ids(MOST, END), lambda how: greedy(MOST, END, how), MISTAKES)


def limited(learner: Greedy) -> Fault | None:
    """Check that it writes no more than it may."""
    return compared(learner.ids(4, -1), lambda how: greedy(4, -1, how), LIMITS)


def compared(seen: Written, made: Callable[[str], list[int]], mistakes: dict[str, Mistake]) -> Fault | None:
    """Compare the tokens with the documented ones, and return the first known mistake that gives them."""
    wanted = made("right")
    if seen == wanted:
        return None
    if isinstance(seen, str):
        return Fault(NO_IDS, f"It returns {seen}, not {wanted}.")
    said = f"It returns {seen[:10]}, not {wanted}."
    return Fault(next((mistake for how, mistake in mistakes.items() if made(how) == seen), OTHER), said)


GREEDY = Subject(
    Greedy,
    (
        Property("ends", "The tokens are the likeliest ones, up to the end token.", ends),
        Property("limit", "At most max_new_tokens tokens are written.", limited, ("ends",)),
    ),
)


SOURCE, BOS = torch.tensor([[7, 5, 10]]), 3
TARGET_END = greedy(4, eos=-1, prompt=[BOS])[-1]
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
        self.trained: list[bool] = []

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return logits [1, T, V]."""
        self.asked.append((source, target))
        self.trained.append(self.training)
        return self.counting(target)


class Translate:
    """The learner's function, called once with a generous limit, and everything it passed to the model."""

    def __init__(self, function: Callable[..., Any]) -> None:
        if not accepts(function, "model", "source", "bos", "eos", "n"):
            raise SignatureError(f"{inspect.signature(function)}")
        self.function, self.model = function, Translating()
        self.ids = self.written(MOST, TARGET_END)

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
        TARGET_END: ", which is eos_id",
        0: ", which is often padding",
        SOURCE[0, -1].item(): ", the source's last token",
    }
    told = meaning.get(first[0], "") if len(first) == 1 else ""
    return Fault(OTHER_START, f"bos_id is {BOS}, and the model first reads {first}{told}.")


def target_ends(learner: Translate) -> Fault | None:
    """Check that it writes the greedy tokens up to the end token."""
    return compared(learner.ids, lambda how: greedy(MOST, TARGET_END, how, [BOS]), MISTAKES)


def target_limited(learner: Translate) -> Fault | None:
    """Check that it writes no more than it may."""
    return compared(learner.written(3, -1), lambda how: greedy(3, -1, how, [BOS]), LIMITS)


DROPPING = Mistake(
    "dropout is active in evaluation",
    "The model is asked in training mode, so parts of it are missing at every token.",
    "Which mode must a model be in while it writes?",
)
STAYS = Mistake(
    "the model stays in evaluation mode",
    "A model that came in training mode is given back in evaluation mode, and trains without dropout from then on.",
    "In which mode did the model come, and in which does it go?",
)


def evaluating(learner: Translate) -> Fault | None:
    """Check that a model in training mode is asked in evaluation mode."""
    told = f"In {sum(learner.model.trained)} of {len(learner.model.trained)} calls model.training is True."
    return Fault(DROPPING, told) if any(learner.model.trained) else None


def restored(learner: Translate) -> Fault | None:
    """Check that the model has the mode in which it came."""
    told = "It came with model.training True and goes with False."
    return None if learner.model.training else Fault(STAYS, told)


TRANSLATE = Subject(
    Translate,
    (
        Property("source", "The model reads the source.", reads_source),
        Property("start", "Decoding begins with bos_id, as training does.", begins, ("source",)),
        Property("ends", "The tokens are the likeliest ones, up to the end token.", target_ends, ("start",)),
        Property("limit", "At most max_new_tokens tokens are written.", target_limited, ("ends",)),
        Property("mode", "The model is asked in evaluation mode.", evaluating, optional=True),
        Property("restored", "The model goes in the mode in which it came.", restored, optional=True),
    ),
)
