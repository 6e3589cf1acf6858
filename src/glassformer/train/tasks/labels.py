"""Labelled texts: one label for each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from glassformer.data.config import DataConfig
from glassformer.data.dataset import Encoded, Tokenizers, build_tokenizers, load_pairs
from glassformer.data.pairs import Loaded, Pair
from glassformer.data.tokens.vocabulary import Labels as LabelSet
from glassformer.train.records import Metric
from glassformer.train.sample_lengths import Untrained
from glassformer.train.tasks.pairs import Pairs, PairsSplit
from glassformer.train.tasks.task import EXPLORE, LOSS, LineAnswer, LineVerb, Measure, ReadLine, Task

if TYPE_CHECKING:
    from glassformer.decode.answer import Member
    from glassformer.nn.config import ModelConfig
    from glassformer.train.evaluate import Scores, Scoring
    from glassformer.train.settings import Settings


CLASSIFY = LineVerb(
    "classify",
    "gives no labels",
    "label text line by line",
    "Read lines from standard input, write the label of each to standard output. A blank line stays blank; no "
    "line is truncated. Several RUNs with the same labels answer as an ensemble, by the mean of "
    "their probabilities, which is more often right than one model, as a rule.",
    (
        ("probabilities", "After the label, TAB and label=probability for every label."),
        ("json", "One JSON object per line, with label and probabilities; null for a blank line."),
    ),
    (
        "glassformer classify runs/classify < lines.txt > labels.txt",
        "glassformer classify runs/classify --json < lines.txt",
        "glassformer classify runs/a runs/b runs/c < lines.txt",
    ),
    many=True,
)


@dataclass(frozen=True)
class Classified(LineAnswer):
    """The most probable label of a text, the probability of each, and the parts that the vocabulary lacks."""

    label: str
    probabilities: dict[str, float]
    unknown: Sequence[str]
    untrained: Untrained | None = None

    def text(self, switches: Container[str]) -> str:
        shares = (f"\t{label}={share:.4f}" for label, share in self.probabilities.items())
        return self.label + ("".join(shares) if "probabilities" in switches else "")

    def record(self) -> dict[str, object]:
        return {"label": self.label, "probabilities": self.probabilities}


class Labels(Pairs):
    """A classifier; its samples are pairs of a text and a label."""

    decoded = False
    samples = "texts"
    metrics = (Measure("accuracy", share=True), Measure("macro_f1", share=True), LOSS)
    usual_metric = "accuracy"
    line_verb = CLASSIFY
    averages = True

    def __init__(self, data: DataConfig) -> None:
        super().__init__(data)
        self.does, self.verb = "gives labels", CLASSIFY.name
        self.uses = frozenset({CLASSIFY, EXPLORE})
        self.decode_settings = Task.decode_settings

    # --- settings

    def check(self, recipe: Settings) -> None:
        self.refuse_metric(recipe, "labels")

    # --- samples

    def load(self, split: str, seed: int, tokenizers: Tokenizers | None) -> Loaded:
        """The texts with their labels; where labels are known, no other is taken."""
        return load_pairs(self.data, split, seed, label_set(tokenizers))

    def learn(self, recipe: Settings, pairs: Sequence[Pair], given: Tokenizers | None) -> Tokenizers:
        """The target side is the set of labels."""
        if given is None:
            return build_tokenizers(recipe.tokenizer, pairs, labelled=True)
        if label_set(given) is not None:
            return given
        return Tokenizers(given.source, LabelSet(sorted({pair.target for pair in pairs})))

    def sizes(self, pairs: Sequence[Pair], tokenizers: Tokenizers) -> str:
        return label_sizes((pair.target for pair in pairs), tokenizers)

    def target_length(self, source: int, wide: int) -> int:
        return 1

    # --- data and model

    def config(self, recipe: Settings, tokenizers: Tokenizers) -> ModelConfig:
        return recipe.model.build(self.layout, tokenizers.source.vocab_size, n_labels=len(tokenizers.labels))

    def begins_with(self, before: Tokenizers) -> Tokenizers:
        """Only the tokenizer of the texts: labels are those of the new data."""
        return Tokenizers(before.source, before.source)

    # --- scores

    def score(self, split: PairsSplit, scoring: Scoring) -> Scores:
        """Score what a run gives for each sample: `compared`, `loss` (nats, or a squared error), `n` and `unknown`."""
        from glassformer.train.evaluate import Scores, mean_loss, unknown_in
        from glassformer.train.ranks.team import rows_of_all

        encoded = split.encoded
        loss, n = mean_loss(scoring, encoded.source.lengths, partial(self.batch, encoded))
        given: dict[str, Metric] = {"loss": loss, **self.counted(encoded, n)}
        if not math.isfinite(loss):  # such a model has no answers
            return Scores(given, [""] * len(encoded))
        own = self.found(encoded, scoring)
        rows = sorted(own)
        every = rows_of_all(rows, [own[row] for row in rows], scoring.ranks)
        scores = self.compared(every, split, scoring.tokenizers)
        return scores._replace(metrics=scores.metrics | given | unknown_in(encoded))

    def counted(self, encoded: Encoded, n_targets: int) -> dict[str, int]:
        """What the scores are means over."""
        return {"n": len(encoded)}

    def found(self, encoded: Encoded, scoring: Scoring) -> dict[int, list[int]]:
        """What the model gives for each row of this process's batches, in whole numbers: here a label."""
        from glassformer.decode.answer import label_probabilities
        from glassformer.train.ranks.team import own_batches

        size = scoring.recipe.decode.batch_size
        rows = sorted(chain.from_iterable(own_batches(encoded.source.lengths, size, scoring.ranks)))
        texts = [encoded.source[row] for row in rows]
        given = label_probabilities(scoring.model, texts, batch_size=size, poll=scoring.poll).argmax(-1).tolist()
        return {row: [label] for row, label in zip(rows, given, strict=True)}

    def compared(self, found: list[list[int]], split: PairsSplit, tokenizers: Tokenizers) -> Scores:
        """Compare what the model gave for each sample with what is right: see `label_scores`."""
        from glassformer.train.evaluate import label_scores, right_labels

        return label_scores([label for (label,) in found], right_labels(split.encoded), tokenizers.labels)

    def scores(self, other: DataConfig) -> bool:
        """Only texts with labels."""
        return Task.scores(self, other)

    # --- the use of a run

    @property
    def marks(self) -> str:
        return "<bos>"

    def answer(
        self, members: Sequence[Member], lines: Sequence[Sequence[ReadLine]], batch_size: int
    ) -> Iterator[LineAnswer]:
        from glassformer.decode.answer import ensemble_probabilities, shared_labels

        names = shared_labels(members)
        texts = [[each.ids for each in line] for line in lines]
        rows = ensemble_probabilities(members, texts, batch_size=batch_size)
        for line, row in zip(lines, rows.tolist(), strict=True):
            best = max(range(len(names)), key=row.__getitem__)
            unknown = max((each.unknown for each in line), key=len)
            new = line[0].untrained if all(each.untrained for each in line) else None
            yield Classified(names[best], dict(zip(names, row, strict=True)), unknown, new)


def label_set(tokenizers: Tokenizers | None) -> LabelSet | None:
    """The labels of a run, if there are any yet."""
    return tokenizers.target if tokenizers is not None and isinstance(tokenizers.target, LabelSet) else None


def label_sizes(labels: Iterable[str], tokenizers: Tokenizers) -> str:
    """The size of the vocabulary, and the commonest of the training labels."""
    counts = Counter(labels).most_common(6)
    shown = ", ".join(f"{label!r} ({count:,})" for label, count in counts)
    names = tokenizers.labels
    more = ", ..." if len(names) > len(counts) else ""
    return f"{tokenizers.source.vocab_size:,} tokens; {len(names)} labels: {shown}{more}"
