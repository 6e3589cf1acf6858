"""Tagged sentences: a tag for each word, such as the kind of name that it is part of."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from glassformer.base.errors import ConfigError
from glassformer.data.dataset import Encoded, Sequences, Tokenizers, build_tokenizers, columns_of
from glassformer.data.pairs import Loaded, Pair
from glassformer.data.tagged import first_pieces, make_tagged, read_tagged
from glassformer.data.tokens.vocabulary import FIRST_LABEL
from glassformer.data.tokens.vocabulary import Labels as LabelSet
from glassformer.train.records import Metric
from glassformer.train.sample_lengths import Untrained
from glassformer.train.tasks.labels import Labels, label_set, label_sizes
from glassformer.train.tasks.pairs import PairsSplit
from glassformer.train.tasks.task import EXPLORE, LOSS, LineAnswer, LineVerb, Measure, ReadLine

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from glassformer.data.batch import Batch
    from glassformer.data.config import DataConfig
    from glassformer.data.dataset import Count
    from glassformer.decode.answer import Member
    from glassformer.train.evaluate import Scores, Scoring
    from glassformer.train.settings import Settings

TAG = LineVerb(
    "tag",
    "tags no words",
    "tag the words of text line by line",
    "Read lines from standard input, each a sentence whose words are separated by white space; write the tag of each "
    "word to standard output, separated by spaces, in their order. A blank line stays blank; no line is truncated.",
    (
        ("words", "Write word/tag for each word, in place of the tag alone."),
        ("json", "One JSON object per line, with words, tags and the probability of each tag; null for a blank line."),
    ),
    (
        "glassformer tag runs/tag < lines.txt > tags.txt",
        "glassformer tag runs/tag --words < lines.txt",
        "glassformer tag runs/tag --json < lines.txt",
    ),
)
IGNORED = 0
"""In place of the id of a tag, where a word goes on: only its first piece has one."""
NAMED = "BIES"
"""How tags of spans begin: a span's first word, one inside, its last, or its only one."""


@dataclass(frozen=True)
class Tagged(LineAnswer):
    """The words of a line with the likeliest tag of each, and its probability."""

    words: list[str]
    tags: list[str]
    probabilities: list[float]
    unknown: Sequence[str] = ()
    untrained: Untrained | None = None

    def text(self, switches: Container[str]) -> str:
        both = zip(self.words, self.tags, strict=True)
        return " ".join(f"{word}/{tag}" if "words" in switches else tag for word, tag in both)

    def record(self) -> dict[str, object]:
        return {"words": self.words, "tags": self.tags, "probabilities": self.probabilities}


class Tags(Labels):
    """A tagger. A sample is a sentence: its words, and its tags. The tag belongs to the first piece of its word."""

    samples = "sentences"
    metrics = (
        Measure("span_f1", share=True),
        Measure("accuracy", share=True),
        Measure("macro_f1", share=True),
        LOSS,
    )
    line_verb = TAG
    averages = joins = False

    def __init__(self, data: DataConfig) -> None:
        super().__init__(data)
        self.does, self.verb = "tags words", TAG.name
        self.uses = frozenset({TAG, EXPLORE})

    # --- settings

    def check(self, recipe: Settings) -> None:
        self.refuse_metric(recipe, "a tag for each word")
        self.refuse_made_and_read()

    # --- samples

    def load(self, split: str, seed: int, tokenizers: Tokenizers | None) -> Loaded:
        data, labels = self.data, label_set(tokenizers)
        path = self.file_of(split)
        if path is None:
            return Loaded(make_tagged(data, split, seed), skipped=0)
        known = None if labels is None else labels.entries
        return read_tagged(path, columns_of(data), known, skip_empty=data.skip_empty)

    def learn(self, recipe: Settings, pairs: Sequence[Pair], given: Tokenizers | None) -> Tokenizers:
        """The vocabulary of the words, and the set of tags. Errors: `ConfigError` for a metric that these have not."""
        tags = sorted({tag for pair in pairs for tag in pair.target.split()})
        if recipe.training.metric == "span_f1" and not spanned(tags):
            raise ConfigError(
                "training.metric='span_f1' needs tags of spans, O or such as B-LOC and I-LOC; there is the tag "
                f"{next(tag for tag in tags if not spanned([tag]))[:40]!r}. Try training.metric='accuracy'."
            )
        if len(tags) < 2:
            raise ConfigError(
                f"A tagger needs at least two tags, but all words have {''.join(tags)[:40]!r}. Set data.label_column "
                "to the right column, or give sentences with another tag."
            )
        if label_set(given) is not None:
            assert given is not None
            return given
        source = build_tokenizers(recipe.tokenizer, pairs, labelled=True).source if given is None else given.source
        return Tokenizers(source, LabelSet(tags))

    def encode(self, pairs: Sequence[Pair], tokenizers: Tokenizers) -> Encoded:
        """Pieces of words, and beside each first one the id of its tag."""
        ids = {tag: FIRST_LABEL + number for number, tag in enumerate(tokenizers.labels)}
        sources: list[list[int]] = []
        targets: list[list[int]] = []
        for text, tags in pairs:
            pieces, firsts = first_pieces(tokenizers.source, text)
            row = [IGNORED] * len(pieces)
            for at, tag in zip(firsts, tags.split(), strict=True):
                row[at] = ids[tag]
            sources.append(pieces)
            targets.append(row)
        return Encoded(Sequences(sources), Sequences(targets))

    def batch(self, encoded: Encoded, rows: Sequence[int] | NDArray[np.int64]) -> Batch:
        """The pieces alone, with the number of a tag at the first one of each word."""
        import torch

        from glassformer.data.batch import Batch, pad

        numbers = [int(row) for row in rows]
        tokens, keep = pad([encoded.source[row] for row in numbers])
        ids, _ = pad([encoded.target[row] for row in numbers])
        return Batch(tokens, keep, labels=(ids - FIRST_LABEL).clamp(min=0), label_keep=torch.ne(ids, IGNORED))

    def sizes(self, pairs: Sequence[Pair], tokenizers: Tokenizers) -> str:
        return label_sizes(chain.from_iterable(pair.target.split() for pair in pairs), tokenizers)

    def places(self, source: Count, target: Count) -> tuple[Count, Count]:
        """The pieces take all places there are."""
        return source * 0, source

    def target_length(self, source: int, wide: int) -> int:
        """Each piece has a tag, where samples are made of ids."""
        return source

    # --- scores

    def counted(self, encoded: Encoded, n_targets: int) -> dict[str, int]:
        """Words, and sentences."""
        return {"n": n_targets, "sentences": len(encoded)}

    def found(self, encoded: Encoded, scoring: Scoring) -> dict[int, list[int]]:
        from glassformer.train.evaluate import outputs

        own: dict[int, list[int]] = {}
        for given in outputs(scoring.model, scoring.batches(encoded.source.lengths, partial(self.batch, encoded))):
            assert given.batch.label_keep is not None
            for row, best, keep in zip(given.rows, given.output.argmax(-1), given.batch.label_keep, strict=True):
                own[row] = best[keep].tolist()
        return own

    def compared(self, found: list[list[int]], split: PairsSplit, tokenizers: Tokenizers) -> Scores:
        from glassformer.train.evaluate import Scores

        given = [[tokenizers.labels[tag] for tag in row] for row in found]
        metrics, details = tag_scores(given, [pair.target.split() for pair in split.pairs])
        return Scores(metrics, [" ".join(tags) for tags in given], details)

    # --- the use of a run

    def read_line(self, line: str, tokenizers: Tokenizers) -> ReadLine:
        """The words of a line; white space of any kind separates them."""
        found = super().read_line(" ".join(line.split()), tokenizers)
        first_pieces(tokenizers.source, found.text)
        return found

    def answer(
        self, members: Sequence[Member], lines: Sequence[Sequence[ReadLine]], batch_size: int
    ) -> Iterator[LineAnswer]:
        from glassformer.data.batch import Batch, pad
        from glassformer.train.evaluate import batches_of, outputs

        model, tokenizers = members[0].model, members[0].tokenizers
        read = [line for (line,) in lines]
        ids = [line.ids for line in read]
        batches = batches_of([*map(len, ids)], lambda rows: Batch(*pad([ids[row] for row in rows])), batch_size)
        chances = {
            row: each
            for given in outputs(model, batches)
            for row, each in zip(given.rows, given.output.softmax(-1), strict=True)
        }
        for row, line in enumerate(read):
            _, firsts = first_pieces(tokenizers.source, line.text)
            best = chances[row][firsts].max(-1)
            tags = [tokenizers.labels[tag] for tag in best.indices.tolist()]
            yield Tagged(line.text.split(), tags, best.values.tolist(), line.unknown, line.untrained)


# --- figures


def spanned(tags: Sequence[str]) -> bool:
    """Whether all of these are tags of spans: O, or B-, I-, E- or S- and a kind."""
    return all(tag == "O" or (tag[0] in NAMED and tag[1:2] == "-" and len(tag) > 2) for tag in tags)


def spans_of(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """The spans (kind, first word, last word) in the tags of a sentence, as conlleval and seqeval's default find them.

    A span goes on where I- or E- of its kind follows B- or I-. So I- without a beginning begins one, as in IOB1.
    """
    found: set[tuple[str, int, int]] = set()
    kind, first, before = "", 0, "O"
    for at, tag in enumerate([*tags, "O"]):
        goes_on = tag[0] in "IE" and before[0] in "BI" and tag[2:] == before[2:]
        if kind and not goes_on:
            found.add((kind, first, at - 1))
            kind = ""
        if tag != "O" and not goes_on:
            kind, first = tag[2:], at
        before = tag
    return found


def tag_scores(
    given: Sequence[Sequence[str]], wanted: Sequence[Sequence[str]]
) -> tuple[dict[str, Metric], dict[str, dict[str, dict[str, Metric]]]]:
    """Compare tags, sentence by sentence: metrics, and tables with a row for each kind of span and for each tag.

    `accuracy`: share of words with the right tag. `macro_f1`: mean F1 of the tags that occur. Where all tags are of
    spans, `span_f1` = 2 · right / (given + wanted), over all spans; one is right if kind, first and last word are.
    """
    from glassformer.train.evaluate import accuracy, class_scores, confusion, macro_f1, rates

    names = sorted({tag for row in (*given, *wanted) for tag in row})
    number = {name: place for place, name in enumerate(names)}
    ours, theirs = ([number[tag] for row in side for tag in row] for side in (given, wanted))
    counts = confusion(ours, theirs, len(names))
    metrics: dict[str, Metric] = {}
    tables: dict[str, dict[str, dict[str, Metric]]] = {}
    if spanned(names):
        found, right = ([spans_of(row) for row in side] for side in (given, wanted))
        sides = [[one & other for one, other in zip(found, right, strict=True)], right, found]

        def compared(kind: str | None) -> dict[str, Metric]:
            """The figures of the spans of one kind, or of all."""
            return rates(*(sum(kind in (None, each[0]) for row in side for each in row) for side in sides))

        every, kinds = compared(None), sorted({kind for side in sides for row in side for kind, _, _ in row})
        metrics |= {"span_f1": every["f1"], "span_precision": every["precision"], "span_recall": every["recall"]}
        tables["spans"] = {kind: compared(kind) for kind in kinds}
    metrics |= {"accuracy": accuracy(counts), "macro_f1": macro_f1(counts)}
    tables["tags"] = dict(zip(names, class_scores(counts), strict=True))
    return metrics, {name: rows for name, rows in tables.items() if rows}
