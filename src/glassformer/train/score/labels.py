"""Score a classifier: its loss, and its labels compared with the right ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

from glassformer.data.dataset import Encoded, Tokenizers
from glassformer.data.tokens.vocabulary import UNK
from glassformer.data.tokens.words import FIRST_LABEL
from glassformer.decode.answer import nothing
from glassformer.decode.classify import label_probabilities
from glassformer.decode.committee import Member, Read, committee_probabilities, shared_labels
from glassformer.nn.transformer import Transformer
from glassformer.train.ranks.distributed import ALONE, Ranks
from glassformer.train.ranks.team import own_batches, rows_of_all
from glassformer.train.record.events import Metric
from glassformer.train.score.scores import Counts, accuracy, class_scores, confusion, macro_f1

Details = dict[str, dict[str, dict[str, Metric]]]
"""Metrics that need a table rather than a line."""


class LabelScores(NamedTuple):
    """The metrics, the predicted labels, and details for each label."""

    metrics: dict[str, Metric]
    outputs: list[str]
    details: Details


def evaluate_labels(
    model: Transformer,
    encoded: Encoded,
    tokenizers: Tokenizers,
    loss: float,
    *,
    batch_size: int = 128,
    poll: Callable[[], None] = nothing,
    ranks: Ranks = ALONE,
) -> LabelScores:
    """Score a classifier by `accuracy`, `macro_f1` (the mean F1 of the labels), `loss` (nats per text) and `n` texts.

    `unknown`, if there are any: tokens of the texts that the vocabulary lacks.
    """
    rows = sorted(chain.from_iterable(own_batches(encoded.source.lengths, batch_size, ranks)))
    texts = [encoded.source[row] for row in rows]
    own = label_probabilities(model, texts, batch_size=batch_size, poll=poll).argmax(-1).tolist()
    given = [label for (label,) in rows_of_all(rows, [[label] for label in own], ranks)]
    unknown = sum(text.count(UNK) for text in encoded.source)
    return label_scores(given, right_labels(encoded), tokenizers.labels, loss, unknown)


def evaluate_committee(members: Sequence[Member], encoded: Sequence[Encoded], *, batch_size: int = 128) -> LabelScores:
    """The metrics of `evaluate_labels` for an ensemble; `encoded` are the same texts as each member reads them.

    `loss`: the mean over texts of -ln of the mean probability of the right label; it is at most the mean of the
    members' losses.
    """
    texts = list(zip(*(each.source for each in encoded), strict=True))
    found, wanted = committee_probabilities(members, texts, batch_size=batch_size), right_labels(encoded[0])
    loss = -found[range(len(wanted)), wanted].log().mean().item()
    return label_scores(found.argmax(-1).tolist(), wanted, shared_labels(members), loss, sum(map(lacking, texts)))


def lacking(text: Read) -> int:
    """The number of tokens of a text that the vocabulary lacks, for the member that lacks the most."""
    return max(ids.count(UNK) for ids in text)


def right_labels(encoded: Encoded) -> list[int]:
    """The number of each text's right label."""
    return [id - FIRST_LABEL for (id,) in encoded.target]


def label_scores(
    given: Sequence[int], wanted: Sequence[int], names: Sequence[str], loss: float, unknown: int
) -> LabelScores:
    """Compute the metrics from the numbers of the predicted and the right labels."""
    counts = confusion(given, wanted, len(names))
    metrics: dict[str, Metric] = {
        "accuracy": accuracy(counts),
        "macro_f1": macro_f1(counts),
        "loss": loss,
        "n": len(wanted),
    }
    if unknown:
        metrics["unknown"] = unknown
    return LabelScores(metrics, [names[label] for label in given], details(counts, names))


def details(counts: Counts, names: Sequence[str]) -> Details:
    """By label: counts, precision, recall and F1; and `confusion`, right label -> predicted label -> count."""
    rows = zip(names, counts, strict=True)
    return {
        "labels": dict(zip(names, class_scores(counts), strict=True)),
        "confusion": {name: dict(zip(names, row.tolist(), strict=True)) for name, row in rows},
    }
