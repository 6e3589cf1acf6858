"""The data of a run on pairs or on labelled texts: read pairs, encode them, plan batches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from glassformer.base.errors import TooLongError
from glassformer.data.batch import Batch
from glassformer.data.dataset import (
    Encoded,
    Tokenizers,
    refuse_missing_files,
)
from glassformer.data.pairs import Loaded, Origin, Pair
from glassformer.data.sampler import WarmingSampler
from glassformer.decode.answer import nothing
from glassformer.nn.transformer import Transformer
from glassformer.train.evaluate import Choice, Scores, bleu_choice
from glassformer.train.objective import Objective
from glassformer.train.ranks.distributed import ALONE, Ranks
from glassformer.train.records import Sample
from glassformer.train.run_data import RunData, Scored, Split, Summary
from glassformer.train.sample_lengths import SampleLengths
from glassformer.train.settings import Settings


@runtime_checkable
class Samples(Protocol):
    """What a kind of task knows of its samples, each a source and a target: see `Pairs`."""

    @property
    def samples(self) -> str:
        """What they are called."""
        ...

    @property
    def decoded(self) -> bool:
        """Whether the model writes its answers token by token."""
        ...

    @property
    def written(self) -> bool:
        """Whether answers are texts."""
        ...

    def load(self, split: str, seed: int, tokenizers: Tokenizers | None) -> Loaded:
        """Read or make the samples of a split."""
        ...

    def learn(self, recipe: Settings, pairs: Sequence[Pair], given: Tokenizers | None) -> Tokenizers:
        """Learn the tokenizers that `given` lacks."""
        ...

    def encode(self, pairs: Sequence[Pair], tokenizers: Tokenizers) -> Encoded:
        """The samples as ids."""
        ...

    def sizes(self, pairs: Sequence[Pair], tokenizers: Tokenizers) -> str:
        """Say how many there are, and how large."""
        ...

    def batch(self, encoded: Encoded, rows: Sequence[int] | NDArray[np.int64]) -> Batch:
        """The batch of these rows."""
        ...

    def lengths(self, encoded: Encoded) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The lengths of sources and targets."""
        ...

    def score(
        self,
        model: Transformer,
        split: PairsSplit,
        recipe: Settings,
        tokenizers: Tokenizers,
        objective: Objective,
        poll: Callable[[], None],
        ranks: Ranks,
    ) -> Scores:
        """Score a model on a split."""
        ...


@dataclass(frozen=True)
class PairsSplit(Split):
    """The pairs of one split, as text and as ids."""

    task: Samples
    pairs: list[Pair]
    encoded: Encoded
    skipped: int
    """Pairs with an empty side, skipped as asked."""
    origin: Origin | None
    """The file and line of each pair; None if a task made them."""
    bleu: Choice | None = None
    """How BLEU is computed, of pairs from files; None for other data."""

    def digest(self) -> str:
        """SHA-256 of the pairs as text."""
        return hashlib.sha256(json.dumps(self.pairs).encode("ascii")).hexdigest()

    def score(
        self,
        model: Transformer,
        recipe: Settings,
        tokenizers: Tokenizers,
        objective: Objective,
        poll: Callable[[], None] = nothing,
        ranks: Ranks = ALONE,
    ) -> Scored:
        """Score as the task says; the samples are the first ones."""
        scores = self.task.score(model, self, recipe, tokenizers, objective, poll, ranks)
        answered = islice(zip(self.pairs, scores.outputs, strict=True), recipe.training.samples)
        return Scored(scores.metrics, [Sample(*pair, output) for pair, output in answered], scores.details)


@dataclass(frozen=True)
class PairsData(RunData):
    """The data of a run on pairs or on labelled texts."""

    dev: PairsSplit
    train: PairsSplit
    sampler: WarmingSampler

    def batches(self, start: int) -> Iterator[tuple[int, Batch]]:
        """The epoch and the batch of each step after `start`, as the sampler plans them."""
        for epoch, indices in self.sampler.stream(start):
            yield epoch, self._batch(indices)

    def notes(self) -> list[str]:
        """Lines for the user: how much data, how large the vocabularies, how much padding."""
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
        """Digests of each side's texts in each split, such as "train source": they tell which file has changed."""
        return {
            f"{name} {side}": digest_of(getattr(pair, side) for pair in split.pairs)
            for name, split in (("train", self.train), ("dev", self.dev))
            for side in Pair._fields
        }

    def named_batch(self, step: int, most: int = 16) -> str:
        """Name the pairs in the batch of update `step`, by their numbers from 1 and the line of the first."""
        epoch, rows = self.sampler.at(step - 1)
        shown = ", ".join(str(row + 1) for row in sorted(rows.tolist())[:most])
        more = f" and {len(rows) - most} more" if len(rows) > most else ""
        first = f"; the first is {self.train.origin.place(int(rows.min()), 'source')}" if self.train.origin else ""
        return f"Its batch, in epoch {epoch}, is made of the training pairs {shown}{more}{first}."

    def lengths(self) -> SampleLengths:
        """Of source and target, or of the texts that get labels."""
        source, target = self.train.encoded.source.lengths, self.train.encoded.target.lengths
        sides = {"source": source, "target": target} if self.train.task.decoded else {"text": source}
        return {side: [int(each.min()), int(each.max())] for side, each in sides.items()}

    def extremes(self) -> list[Batch]:
        """The pair with the most tokens and the one with the fewest."""
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
        """The pairs in figures."""
        source, target = self.sampler.source, self.sampler.target
        batches = len(self.sampler.epoch(0))
        return Summary(
            what="pairs",
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
        """The settings of one file for both sides, or of one file for each side."""
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


def prepare_pairs(task: Samples, recipe: Settings, tokenizers: Tokenizers | None = None) -> PairsData:
    """Read and encode the training and dev splits; train tokenizers on the training split unless they are given.

    Given tokenizers without labels get the labels of this training text.
    """
    seed = recipe.training.seed
    refuse_missing_files(recipe.data, ("train", "dev"))
    train = task.load("train", seed, tokenizers)
    tokenizers = task.learn(recipe, train.pairs, tokenizers)
    encoded = task.encode(train.pairs, tokenizers)
    check_lengths(task, encoded, recipe, "train", train.origin)
    training = recipe.training
    sampler = WarmingSampler(
        *task.lengths(encoded),
        training.batch_tokens,
        seed,
        training.pool,
        lambda row, side: place(row, side if task.decoded else "text", "train", train.origin),
        training.growth,
    )
    return PairsData(
        recipe,
        tokenizers,
        prepare_pairs_split(task, recipe, tokenizers, "dev"),
        PairsSplit(task, train.pairs, encoded, train.skipped, train.origin),
        sampler,
    )


def prepare_pairs_split(task: Samples, recipe: Settings, tokenizers: Tokenizers, name: str) -> PairsSplit:
    """Read, encode and check a split. Errors: those of reading, `TooLongError` for a pair over the model's length."""
    split = read_pairs_split(task, recipe, tokenizers, name)
    check_lengths(task, split.encoded, recipe, name, split.origin)
    return split


def read_pairs_split(task: Samples, recipe: Settings, tokenizers: Tokenizers, name: str) -> PairsSplit:
    """Read and encode one split, whatever its lengths."""
    loaded = task.load(name, recipe.training.seed, tokenizers)
    bleu = None
    if task.written:
        references = [pair.target for pair in loaded.pairs]
        bleu = bleu_choice(references, recipe.data.bleu_tokenizer, recipe.data.bleu_order)
    return PairsSplit(task, loaded.pairs, task.encode(loaded.pairs, tokenizers), loaded.skipped, loaded.origin, bleu)


def check_lengths(task: Samples, encoded: Encoded, recipe: Settings, split: str, origin: Origin | None) -> None:
    """Refuse pairs longer than the model takes, before any training. Errors: `TooLongError`, naming the place."""
    limit = recipe.model.max_len
    if limit is None:
        return
    sides = ("source", "target" if task.decoded else "text")
    for side, lengths in zip(sides, task.lengths(encoded), strict=True):
        if len(lengths) and lengths.max() > limit:
            row = int((lengths > limit).argmax())
            where = place(row, side, split, origin)
            raise TooLongError(
                f"{where} has {lengths[row]} tokens, but a sequence may have at most model.max_len={limit}, special "
                f"tokens included. Raise model.max_len to {lengths.max()}, or remove the long pairs."
            )


def place(row: int, side: str, split: str, origin: Origin | None) -> str:
    """Where to find one side of a pair: its file and line, or its number if a task has made it."""
    if origin is None:
        return f"The {side} of pair {row + 1} of the {split} split"
    return f"{origin.place(row, 'source' if side == 'text' else side)}: the {side}"
