"""The answers to a line with their score, log-probability, and the source token that each token comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from glassformer.decode.answer import Answer
from glassformer.decode.beam import length_penalty
from glassformer.decode.read_back import Link, read_back
from glassformer.store.checkpoint import Loaded


class Asked(NamedTuple):
    """What is asked for with the answers to each line."""

    n_best: int = 1
    scores: bool = False
    alignments: bool = False


class Ranked(NamedTuple):
    """One of the answers to a line."""

    text: str
    log_probability: float | None
    score: float | None
    complete: bool
    tokens: list[str]
    links: list[Link]


def ranked(
    loaded: Loaded,
    sources: Sequence[Sequence[int]],
    answers: Sequence[Sequence[Answer]],
    asked: Asked,
    alpha: float,
    batch_size: int,
) -> list[list[Ranked]]:
    """The answers to each source, with what was asked for.

    A beam's scores are its own. Without a beam the log-probability is the model's, and the score is that divided by the
    length penalty with `alpha`. Errors: `ConfigError` if the model cannot give them.
    """
    flat = [(source, each) for source, found in zip(sources, answers, strict=True) for each in found]
    unscored = asked.scores and any(each.score is None for _, each in flat)
    again = None
    if asked.alignments or unscored:
        of, written = [source for source, _ in flat], [each for _, each in flat]
        again = read_back(loaded.model, of, written, batch_size=batch_size, linked=asked.alignments)
    penalty, target = length_penalty(alpha), loaded.tokenizers.target
    told: list[Ranked] = []
    for place, (_, each) in enumerate(flat):
        total, score = each.log_probability, each.score
        if again is not None and total is None:
            chances = again[place].log_probabilities
            total = sum(chances)
            score = total / penalty(len(chances))
        links = [] if again is None else again[place].links
        told.append(Ranked(target.decode(each.ids), total, score, each.complete, target.names(each.ids), links))
    rest = iter(told)
    return [[next(rest) for _ in found] for found in answers]
