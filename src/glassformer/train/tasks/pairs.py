"""Pairs of texts, from files or made: a source is answered with a target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from glassformer.base.errors import ConfigError
from glassformer.data.config import SPLITS, DataConfig
from glassformer.data.kinds import EQUAL_LENGTHS, PAIRS
from glassformer.train.tasks.task import EXPLORE, GENERATE, LOSS, TRANSLATE, Measure, Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from glassformer.data.batch import Batch
    from glassformer.data.dataset import Encoded, Tokenizers
    from glassformer.data.pairs import Loaded, Pair
    from glassformer.nn.transformer import Transformer
    from glassformer.train.evaluate import Scores
    from glassformer.train.objective import Objective
    from glassformer.train.pairs_data import PairsData, PairsSplit
    from glassformer.train.ranks.distributed import Ranks
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

    # --- the samples, each a source and a target as text, and as ids

    def load(self, split: str, seed: int, tokenizers: Tokenizers | None) -> Loaded:
        """Read or make the samples of a split. `tokenizers`: those of the run, if there are any yet."""
        from glassformer.data.dataset import load_pairs

        return load_pairs(self.data, split, seed)

    def learn(self, recipe: Settings, pairs: Sequence[Pair], given: Tokenizers | None) -> Tokenizers:
        """Learn tokenizers from the training samples, as far as `given` has none that fit."""
        from glassformer.data.dataset import build_tokenizers

        return given or build_tokenizers(recipe.tokenizer, pairs)

    def encode(self, pairs: Sequence[Pair], tokenizers: Tokenizers) -> Encoded:
        """The samples as ids. Errors: `DataError` for one that the model cannot read."""
        from glassformer.data.dataset import encode_pairs

        return encode_pairs(pairs, tokenizers)

    def of_ids(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], tokenizers: Tokenizers) -> Batch:
        """The batch of samples that are ids of these tokenizers already, as tests of a model make them."""
        from glassformer.data.dataset import Encoded, Sequences

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
        """Score a model on a split: see `Split.score`."""
        from glassformer.train.evaluate import evaluate_model

        decode = recipe.decode
        return evaluate_model(
            model,
            split.encoded,
            tokenizers,
            [pair.target for pair in split.pairs],
            layout=self.data.layout,
            max_new_tokens=decode.max_new_tokens,
            batch_size=decode.batch_size,
            sampling=decode,
            search=decode,
            precision=decode.precision,
            compile=decode.compile,
            cache=decode.cache,
            bleu=split.bleu,
            objective=objective,
            poll=poll,
            ranks=ranks,
        )

    def prepare(self, recipe: Settings, tokenizers: Tokenizers | None = None) -> PairsData:
        """Read, encode and plan the pairs."""
        from glassformer.train.pairs_data import prepare_pairs

        return prepare_pairs(self, recipe, tokenizers)

    def split(self, recipe: Settings, tokenizers: Tokenizers, name: str) -> PairsSplit:
        """Read and encode the pairs of a split."""
        from glassformer.train.pairs_data import prepare_pairs_split

        return prepare_pairs_split(self, recipe, tokenizers, name)

    def scores(self, other: DataConfig) -> bool:
        """Files may replace the pairs that a task makes."""
        return other.task in (self.data.task, PAIRS)

    def batch(self, encoded: Encoded, rows: Sequence[int] | NDArray[np.int64]) -> Batch:
        """The batch of the samples in these rows, in their order."""
        from glassformer.data.batch import collate

        return collate(encoded, rows, self.data.layout)

    def lengths(self, encoded: Encoded) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How many places each sample takes in a batch, on the source side and in `tokens`."""
        return encoded.lengths(self.data.layout)

    def places(self, source: int, target: int) -> tuple[int, int]:
        """How many places so many ids take in a batch, on the source side and in `tokens`."""
        from glassformer.data.dataset import places

        return places(self.data.layout, source, target)

    def target_length(self, source: int, wide: int) -> int:
        """How many tokens a target may have, of at most `wide`, if its source has `source`."""
        return source if self.blanks else wide

    def read_length(self, n: int) -> int:
        """With the blanks of an encoder alone: as many as source tokens."""
        return 2 * n + 1 if self.blanks else n + 1

    @property
    def marks(self) -> str:
        """What is read besides a source."""
        return "<sep> and as many blanks" if self.blanks else "<eos>"

    @property
    def equal_lengths(self) -> bool:
        """Whether every answer has as many tokens as its source."""
        return self.data.task in EQUAL_LENGTHS

    @property
    def reads_files(self) -> bool:
        """Whether the pairs come from files."""
        return bool(self.data.kind.line)

    @property
    def written(self) -> bool:
        """Whether targets are texts that people wrote, to be scored by BLEU and chrF."""
        return self.data.task == PAIRS
