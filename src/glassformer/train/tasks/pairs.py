"""Pairs of texts, from files or made: a source is answered with a target. Imports no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from glassformer.base.errors import ConfigError, TooLongError, some
from glassformer.data.config import SPLITS, DataConfig
from glassformer.data.dataset import (
    Encoded,
    Sequences,
    Tokenizers,
    build_tokenizers,
    encode_pairs,
    load_pairs,
    places,
    refuse_missing_files,
)
from glassformer.data.kinds import EQUAL_LENGTHS, PAIRS
from glassformer.data.pairs import Loaded, Origin, Pair
from glassformer.train.records import Sample
from glassformer.train.run_data import RunData, Scored, Split, Summary
from glassformer.train.tasks.task import EXPLORE, GENERATE, LOSS, TRANSLATE, Measure, Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from glassformer.data.batch import Batch
    from glassformer.data.dataset import Count
    from glassformer.data.sampler import BatchSampler
    from glassformer.train.evaluate import Choice, Scores, Scoring
    from glassformer.train.sample_lengths import SampleLengths
    from glassformer.train.settings import Settings

OF_TEXT = (Measure("bleu"), Measure("chrf", decides=True))
"""Metrics of texts that people wrote."""
OF_BLANKS = ("batch_size", "precision", "compile", "threads")
"""The settings of [decode] that matter to a model that fills in blanks, all at once."""


class Pairs(Task):
    """Answers, written token by token or, by an encoder alone, in the blanks behind the source."""

    decoded = True
    samples = "pairs"
    """What its samples are called."""
    metrics = (
        *OF_TEXT,
        Measure("exact_match", share=True, decides=True),
        Measure("token_accuracy", share=True),
        LOSS,
    )
    usual_metric = "exact_match"

    def __init__(self, data: DataConfig) -> None:
        super().__init__(data)
        self.blanks = self.layout.blanks
        self.does = "fills all blanks at once" if self.blanks else "writes answers"
        self.verb = TRANSLATE.name
        self.uses = frozenset({TRANSLATE, EXPLORE} if self.blanks else {TRANSLATE, GENERATE, EXPLORE})
        self.decode_settings = OF_BLANKS if self.blanks else None

    # --- settings

    def check(self, recipe: Settings) -> None:
        """Refuse metrics of labels, and blanks for answers whose length the source does not tell."""
        metric, task = recipe.training.metric, self.data.task
        self.refuse_metric(recipe, "answers of several tokens")
        if metric in {each.name for each in OF_TEXT} and task != PAIRS:
            raise ConfigError(
                f"training.metric={metric!r} belongs to data.task={PAIRS!r}; got data.task={task!r}, whose answers are "
                "right or wrong. Try training.metric='exact_match'."
            )
        if not self.blanks:
            return
        if task not in EQUAL_LENGTHS:
            raise ConfigError(
                "data.layout='encoder' fills one blank for each token of the source, so answers must be as long as "
                f"their sources, as they are in {', '.join(EQUAL_LENGTHS)}; got data.task={task!r}. "
                "Try data.layout='encoder-decoder'."
            )
        if not recipe.tokenizer.shared:  # one stack reads source and blanks through one embedding
            raise ConfigError(
                "data.layout='encoder' needs one vocabulary for source and target; got tokenizer.shared=False, which "
                "makes two. Try tokenizer.shared=True, or data.layout='encoder-decoder'."
            )

    def refuse_made_and_read(self) -> None:
        """Refuse sizes of samples that are read and not made, for a task that may do either; and a file alone."""
        data, what = self.data, self.samples
        for split in SPLITS:
            size, path = f"{split}_size", getattr(data, split)
            if path is not None and getattr(data, size) != getattr(type(data), size):
                raise ConfigError(
                    f"data.{size} is the number of {what} to make, but data.{split} names a file; got data.{size}="
                    f"{getattr(data, size)}. Remove data.{size}."
                )
        named = [split for split in ("train", "dev") if getattr(data, split) is not None]
        if len(named) == 1:
            raise ConfigError(
                f"{what.capitalize()} are read from files or made, but data.{named[0]} alone names a file. Set "
                "data.train and data.dev, or neither."
            )

    def file_of(self, split: str) -> str | None:
        """The file of a split, for a task that may make its samples; None: they are made. Errors: `ConfigError`."""
        path: str | None = getattr(self.data, split)
        if path is None and self.data.train is not None:
            raise ConfigError(f"There is no file for the {split} {self.samples}. Set data.{split} to a file.")
        return path

    # --- samples

    def load(self, split: str, seed: int, tokenizers: Tokenizers | None) -> Loaded:
        """Read or make the samples of a split. `tokenizers`: those of the run, if there are any yet."""
        return load_pairs(self.data, split, seed)

    def learn(self, recipe: Settings, pairs: Sequence[Pair], given: Tokenizers | None) -> Tokenizers:
        """Learn tokenizers from the training samples, as far as `given` has none that fit."""
        return given or build_tokenizers(recipe.tokenizer, pairs)

    def learned(self, recipe: Settings) -> Tokenizers:
        return self.learn(recipe, self.load("train", recipe.training.seed, None).pairs, None)

    def encode(self, pairs: Sequence[Pair], tokenizers: Tokenizers) -> Encoded:
        """The samples as ids. Errors: `DataError` for one that the model cannot read."""
        return encode_pairs(pairs, tokenizers)

    def batch(self, encoded: Encoded, rows: Sequence[int] | NDArray[np.int64]) -> Batch:
        """The batch of the samples in these rows, in their order."""
        from glassformer.data.batch import collate

        return collate(encoded, rows, self.data.layout)

    def of_ids(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], tokenizers: Tokenizers) -> Batch:
        """The batch of samples that are ids of these tokenizers already, as tests of a model make them."""
        encoded = Encoded(Sequences([each for each, _ in pairs]), Sequences([each for _, each in pairs]))
        return self.batch(encoded, range(len(pairs)))

    def shortened(self, encoded: Encoded, tokenizers: Tokenizers, n: int, most: int) -> Batch:
        """The batch of the first `n` samples with different sources, each cut to at most `most` ids a side."""
        found: dict[tuple[int, ...], list[int]] = {}
        for source, target in zip(encoded.source, encoded.target, strict=True):
            if source and target:
                read = source[:most]
                found.setdefault(tuple(read), target[: self.target_length(len(read), most)])
            if len(found) == n:
                break
        return self.of_ids([(list(source), target) for source, target in found.items()], tokenizers)

    def sizes(self, pairs: Sequence[Pair], tokenizers: Tokenizers) -> str:
        """How large the vocabularies are, for the user."""
        source, target = tokenizers
        if source is target:
            return f"one vocabulary of {target.vocab_size:,} tokens"
        return f"two vocabularies of {source.vocab_size:,} and {target.vocab_size:,} tokens"

    def lengths(self, encoded: Encoded) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How many places each sample takes in a batch, on the source side and in `tokens`."""
        return self.places(encoded.source.lengths, encoded.target.lengths)

    def places(self, source: Count, target: Count) -> tuple[Count, Count]:
        """How many places so many ids take in a batch, on the source side and in `tokens`."""
        return places(self.data.layout, source, target)

    def target_length(self, source: int, wide: int) -> int:
        """How many tokens a target may have, of at most `wide`, if its source has `source`."""
        return source if self.blanks else wide

    @property
    def equal_lengths(self) -> bool:
        """Whether every answer has as many tokens as its source."""
        return self.data.task in EQUAL_LENGTHS

    @property
    def reads_files(self) -> bool:
        return bool(self.data.kind.line)

    @property
    def written(self) -> bool:
        """Whether targets are texts that people wrote, to be scored by BLEU and chrF."""
        return self.data.task == PAIRS

    # --- data and model

    def prepare(self, recipe: Settings, tokenizers: Tokenizers | None = None) -> PairsData:
        """Read, encode and plan the pairs. Given tokenizers without labels get the labels of this training text."""
        from glassformer.data.sampler import BatchSampler

        seed, training = recipe.training.seed, recipe.training
        refuse_missing_files(recipe.data, ("train", "dev"))
        train = self.load("train", seed, tokenizers)
        tokenizers = self.learn(recipe, train.pairs, tokenizers)
        encoded = self.encode(train.pairs, tokenizers)
        self.check_lengths(encoded, recipe, "train", train.origin)
        sampler = BatchSampler(
            *self.lengths(encoded),
            training.batch_tokens,
            seed,
            training.pool,
            lambda row, side: place(row, side if self.decoded else "text", "train", train.origin),
            training.growth,
        )
        dev = self.split(recipe, tokenizers, "dev")
        return PairsData(
            recipe, tokenizers, dev, PairsSplit(self, train.pairs, encoded, train.skipped, train.origin), sampler
        )

    def split(self, recipe: Settings, tokenizers: Tokenizers, name: str) -> PairsSplit:
        """Read and encode the pairs of a split. Errors: also `TooLongError` for a pair over the model's length."""
        split = self.read(recipe, tokenizers, name)
        self.check_lengths(split.encoded, recipe, name, split.origin)
        return split

    def read(self, recipe: Settings, tokenizers: Tokenizers, name: str) -> PairsSplit:
        """Read and encode one split, whatever its lengths."""
        from glassformer.train.evaluate import bleu_choice

        loaded = self.load(name, recipe.training.seed, tokenizers)
        bleu = None
        if self.written:
            references = [pair.target for pair in loaded.pairs]
            bleu = bleu_choice(references, recipe.data.bleu_tokenizer, recipe.data.bleu_order)
        return PairsSplit(
            self, loaded.pairs, self.encode(loaded.pairs, tokenizers), loaded.skipped, loaded.origin, bleu
        )

    def check_lengths(self, encoded: Encoded, recipe: Settings, split: str, origin: Origin | None) -> None:
        """Refuse pairs longer than the model takes, before any training. Errors: `TooLongError`, naming the place."""
        limit = recipe.model.max_len
        if limit is None:
            return
        sides = ("source", "target" if self.decoded else "text")
        for side, lengths in zip(sides, self.lengths(encoded), strict=True):
            if len(lengths) and lengths.max() > limit:
                row = int((lengths > limit).argmax())
                where = place(row, side, split, origin)
                raise TooLongError(
                    f"{where} has {lengths[row]} tokens, but a sequence may have at most model.max_len={limit}, "
                    f"special tokens included. Raise model.max_len to {lengths.max()}, or remove the long pairs."
                )

    # --- scores

    def score(self, split: PairsSplit, scoring: Scoring) -> Scores:
        """Score a model on a split: see `Split.score`."""
        from glassformer.train.evaluate import evaluate_model

        return evaluate_model(scoring, split.encoded, [pair.target for pair in split.pairs], split.bleu)

    def scores(self, other: DataConfig) -> bool:
        """Files may replace the pairs that a task makes."""
        return other.task in (self.data.task, PAIRS)

    # --- the use of a run

    def read_length(self, n: int) -> int:
        """On the side where it is read, with blanks for an answer as long as it may be."""
        return max(self.places(n, self.target_length(n, 0)))

    @property
    def marks(self) -> str:
        return "<sep> and as many blanks" if self.blanks else "<eos>"


# The data of a run: samples of each split as text and as ids, and the batches of the training samples.


@dataclass(frozen=True)
class PairsSplit(Split):
    """The pairs of one split, as text and as ids."""

    task: Pairs
    pairs: list[Pair]
    encoded: Encoded
    skipped: int
    """Pairs with an empty side, skipped as asked."""
    origin: Origin | None
    """The file and line of each pair; None if a task made them."""
    bleu: Choice | None = None
    """How BLEU is computed, of pairs from files; None for other data."""

    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.pairs).encode("ascii")).hexdigest()

    def score(self, scoring: Scoring) -> Scored:
        scores = self.task.score(self, scoring)
        answered = islice(zip(self.pairs, scores.outputs, strict=True), scoring.recipe.training.samples)
        return Scored(scores.metrics, [Sample(*pair, output) for pair, output in answered], scores.details)


@dataclass(frozen=True)
class PairsData(RunData):
    """The data of a run on pairs or on labelled texts."""

    dev: PairsSplit
    train: PairsSplit
    sampler: BatchSampler

    def batches(self, start: int) -> Iterator[tuple[int, Batch]]:
        for epoch, indices in self.sampler.stream(start):
            yield epoch, self._batch(indices)

    def notes(self) -> list[str]:
        task = self.train.task
        what, sizes = task.samples, task.sizes(self.train.pairs, self.tokenizers)
        lines = [
            f"data: {len(self.train.pairs):,} training {what}, {len(self.dev.pairs):,} dev {what}; {sizes}",
            f"batches: {len(self.sampler.epoch(0)):,} per epoch, {self.sampler.padding_share(0):.1%} padding",
            *self.sampler.notes(),
            *([f"bleu: {self.dev.bleu.reason}"] if self.dev.bleu else []),
        ]
        for name, split in (("training", self.train), ("dev", self.dev)):
            if split.skipped:
                lines.append(f"skipped: {split.skipped:,} {name} {what} with an empty side, as data.skip_empty asks")
        return lines

    def fingerprints(self) -> dict[str, str]:
        """A digest of the training ids, and one of the dev pairs as text, which the scores are computed from."""
        return {"train": self.train.encoded.digest(), "dev": self.dev.digest()}

    def sides(self) -> dict[str, str]:
        return {
            f"{name} {side}": digest_of(getattr(pair, side) for pair in split.pairs)
            for name, split in (("train", self.train), ("dev", self.dev))
            for side in ("source", "target")
        }

    def named_batch(self, step: int, most: int = 16) -> str:
        epoch, rows = self.sampler.at(step - 1)
        shown = some([str(row + 1) for row in sorted(rows.tolist())], most)
        first = f"; the first is {self.train.origin.place(int(rows.min()), 'source')}" if self.train.origin else ""
        return f"Its batch, in epoch {epoch}, is made of the training pairs {shown}{first}."

    def lengths(self) -> SampleLengths:
        source, target = self.train.encoded.source.lengths, self.train.encoded.target.lengths
        sides = {"source": source, "target": target} if self.train.task.decoded else {"text": source}
        return {side: [int(each.min()), int(each.max())] for side, each in sides.items()}

    def extremes(self) -> list[Batch]:
        source, target = self.train.task.lengths(self.train.encoded)
        return [self._batch([int(row)]) for row in ((source + target).argmax(), (source + target).argmin())]

    def largest(self) -> list[Batch]:
        """The largest batches by tokens with padding, by attention and by targets."""
        source, target = self.sampler.source, self.sampler.target
        every = self.sampler.epoch(0)

        def measures(rows: NDArray[np.int64]) -> tuple[int, int, int]:
            S, T = int(source[rows].max()), int(target[rows].max())
            return len(rows) * (S + T), len(rows) * (S * S + T * T), int(target[rows].sum())

        measured = [measures(rows) for rows in every]
        places = {max(range(len(every)), key=[each[law] for each in measured].__getitem__) for law in range(3)}
        return [self._batch(every[place]) for place in sorted(places)]

    def summary(self) -> Summary:
        source, target = self.sampler.source, self.sampler.target
        batches = len(self.sampler.epoch(0))
        return Summary(
            what=self.train.task.samples,
            samples=len(self.train.pairs),
            dev_samples=len(self.dev.pairs),
            tokens=int(source.sum() + target.sum()),
            longest=int(max(source.max(), target.max())),
            batches=batches,
            padding=self.sampler.padding_share(0),
            epochs=self.sampler.epochs(self.recipe.training.steps),
        )

    def differing(self, split: str, before: Mapping[str, str], now: Mapping[str, str]) -> str:
        """Name the files of a split whose texts differ: all if that is unknown, none if a task makes the pairs."""
        what = f"the {'training' if split == 'train' else split} pairs"
        origin = (self.train if split == "train" else self.dev).origin
        if origin is None:
            return what
        both = zip(("source", "target"), origin.paths, strict=True)
        paths = [str(path) for side, path in both if before.get(f"{split} {side}") != now[f"{split} {side}"]]
        return f"{what} ({' and '.join(dict.fromkeys(paths))})"

    def settings(self, split: str) -> list[str]:
        return [f"data.{split}{side}" for side in ("", "_source", "_target")]

    def _batch(self, rows: Sequence[int] | NDArray[np.int64]) -> Batch:
        return self.train.task.batch(self.train.encoded, rows)


def digest_of(texts: Iterable[str]) -> str:
    """SHA-256 of texts and of where each ends."""
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def place(row: int, side: str, split: str, origin: Origin | None) -> str:
    """Where to find one side of a pair: its file and line, or its number if a task has made it."""
    if origin is None:
        return f"The {side} of pair {row + 1} of the {split} split"
    return f"{origin.place(row, 'source' if side == 'text' else side)}: the {side}"
