"""Numbers of a text, or of a row of features: regression."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from glassformer.base.errors import ConfigError, DataError
from glassformer.data.dataset import Encoded, Tokenizers, columns_of, tokenizer_of
from glassformer.data.pairs import Loaded, Pair
from glassformer.train.records import Metric
from glassformer.train.sample_lengths import Untrained
from glassformer.train.tasks.labels import Labels
from glassformer.train.tasks.pairs import PairsSplit
from glassformer.train.tasks.task import EXPLORE, LOSS, LineAnswer, LineVerb, Measure, ReadLine

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from glassformer.data.batch import Batch
    from glassformer.data.config import DataConfig
    from glassformer.data.dataset import Count
    from glassformer.data.regression import Scale
    from glassformer.decode.answer import Member
    from glassformer.nn.config import ModelConfig
    from glassformer.train.evaluate import Scores, Scoring
    from glassformer.train.settings import Settings

PREDICT = LineVerb(
    "predict",
    "predicts no numbers",
    "predict the numbers of lines",
    "Read lines from standard input: texts, or features as rows of CSV (in the order of training, without the line of "
    "names) or as JSON objects. Write the numbers of each to standard output, with commas between them. A blank line "
    "stays blank.",
    (("json", "One JSON object per line, with numbers by name; null for a blank line."),),
    (
        "glassformer predict runs/regression < rows.csv > numbers.csv",
        "tail -n +2 houses.csv | cut -d, -f1-4 | glassformer predict runs/regression",
        "glassformer predict runs/regression --json < objects.jsonl",
    ),
)


@dataclass(frozen=True)
class Predicted(LineAnswer):
    """The numbers of a line, by name."""

    numbers: dict[str, float]
    unknown: Sequence[str] = ()
    untrained: Untrained | None = None

    def text(self, switches: Container[str]) -> str:
        return ",".join(f"{each:.7g}" for each in self.numbers.values())

    def record(self) -> dict[str, object]:
        return {"numbers": self.numbers}


class Regression(Labels):
    """A model that gives numbers. A sample is a text, or a row of features, with its numbers: see data/regression.py.

    What it gives is standardised; scores and answers are in the units of the data.
    """

    samples = "samples"
    metrics = (Measure("r2"), Measure("mse", falls=True), Measure("mae", falls=True), LOSS)
    usual_metric = "loss"
    line_verb = PREDICT
    averages = joins = False

    def __init__(self, data: DataConfig) -> None:
        super().__init__(data)
        self.of_text = self.layout.tokens
        self.reads_objects = not self.of_text
        self.does, self.verb = "predicts numbers", PREDICT.name
        self.uses = frozenset({PREDICT, EXPLORE} if self.of_text else {PREDICT})

    # --- settings

    def check(self, recipe: Settings) -> None:
        self.refuse_metric(recipe, "numbers")
        self.refuse_made_and_read()
        if not self.of_text:
            self.refuse_tokenizer(recipe, "Features")
        if recipe.training.label_smoothing:
            raise ConfigError(
                "training.label_smoothing is for labels and tokens, not for numbers; got "
                f"{recipe.training.label_smoothing}. Remove it."
            )

    # --- samples

    def load(self, split: str, seed: int, tokenizers: Tokenizers | None) -> Loaded:
        from glassformer.data.regression import Chosen, make_numbers, read_numbers

        data, path = self.data, self.file_of(split)
        if path is None:
            return Loaded(make_numbers(data, split, seed, as_text=self.of_text), skipped=0)
        features, numbers = scales_in(tokenizers)
        known = None if numbers is None else Chosen([*(features.entries if features else ())], [*numbers.entries])
        columns = columns_of(data)
        return read_numbers(path, columns, as_text=self.of_text, known=known, skip_empty=data.skip_empty)

    def learn(self, recipe: Settings, pairs: Sequence[Pair], given: Tokenizers | None) -> Tokenizers:
        """The scale of the numbers, and that of the features or the vocabulary of the texts, of these samples alone.

        Errors: `DataError` for a number that is the same in all of them.
        """
        from glassformer.data.regression import Scale, names_in, values_of

        sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
        names = names_in(targets[0])
        values = values_of(targets, names)
        for name, low, high in zip(names, values.min(0).tolist(), values.max(0).tolist(), strict=True):
            if low == high:
                raise DataError(
                    f"A model learns how a number differs, but {name} is {low:g} in all {len(pairs):,} training "
                    f"{self.samples}. Choose another data.label_column, or give samples that differ."
                )
        features, numbers = scales_in(given)
        if given is not None and numbers is not None:
            return given
        numbers = Scale.fit(names, values)
        if not self.of_text:
            own = names_in(sources[0])
            same = features is not None and [*features.entries] == own
            return Tokenizers(features if features and same else Scale.fit(own, values_of(sources, own)), numbers)
        if given is not None:
            return Tokenizers(given.source, numbers)
        config = recipe.tokenizer
        return Tokenizers(tokenizer_of(config.source_kind or config.kind, lambda _: sources, config), numbers)

    def encode(self, pairs: Sequence[Pair], tokenizers: Tokenizers) -> Encoded:
        from glassformer.data.regression import encode_numbers

        return encode_numbers(pairs, tokenizers)

    def batch(self, encoded: Encoded, rows: Sequence[int] | NDArray[np.int64]) -> Batch:
        """The texts behind <bos>, or a place for each feature; and the numbers of each sample."""
        from glassformer.data.regression import batch_of, cut

        return batch_of(*cut(encoded, rows))

    def of_ids(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], tokenizers: Tokenizers) -> Batch:
        """The batch of samples that are ids already; features, and the numbers of a sample, are made of them."""
        from glassformer.data.regression import batch_of

        features, numbers = scales_in(tokenizers)
        assert numbers is not None
        sources = [[*source] for source, _ in pairs]
        targets = [[math.sin(sum(target) + k) for k in range(len(numbers.entries))] for _, target in pairs]
        values = [[math.sin(id * (at + 1)) for at, id in enumerate(source)] for source in sources]
        return batch_of(sources, targets, values if features else None, len(features.entries) if features else 0)

    def shortened(self, encoded: Encoded, tokenizers: Tokenizers, n: int, most: int) -> Batch:
        """The batch of the first `n` samples, each cut to at most `most` ids, with the numbers of the whole."""
        from glassformer.data.regression import batch_of, cut

        return batch_of(*cut(encoded, range(min(n, len(encoded))), most))

    def sizes(self, pairs: Sequence[Pair], tokenizers: Tokenizers) -> str:
        features, numbers = scales_in(tokenizers)
        assert numbers is not None
        read = f"features {', '.join(features.entries)}" if features else f"{tokenizers.source.vocab_size:,} tokens"
        each = zip(numbers.entries, numbers.means, numbers.spreads, strict=True)
        return f"{read}; numbers {', '.join(f'{name} ({mean:.4g} ± {spread:.4g})' for name, mean, spread in each)}"

    def places(self, source: Count, target: Count) -> tuple[Count, Count]:
        """A place for each feature; of a text, its tokens and <bos>."""
        return source * 0, source + self.of_text

    # --- data and model

    def config(self, recipe: Settings, tokenizers: Tokenizers) -> ModelConfig:
        """A head with as many numbers as there are; features take two numbers each at their place."""
        features, numbers = scales_in(tokenizers)
        assert numbers is not None
        count = len(numbers.entries)
        if features:
            return recipe.model.build(self.layout, None, n_features=2 * len(features.entries), n_numbers=count)
        return recipe.model.build(self.layout, tokenizers.source.vocab_size, n_numbers=count)

    # --- scores

    def found(self, encoded: Encoded, scoring: Scoring) -> dict[int, list[int]]:
        """The standardised numbers, by their bits, which are exact between processes."""
        import numpy as np

        from glassformer.train.evaluate import outputs

        own: dict[int, list[int]] = {}
        for given in outputs(scoring.model, scoring.batches(encoded.source.lengths, partial(self.batch, encoded))):
            own |= dict(zip(given.rows, given.output.numpy().view(np.int32).tolist(), strict=True))
        return own

    def compared(self, found: list[list[int]], split: PairsSplit, tokenizers: Tokenizers) -> Scores:
        """Compare the numbers of each sample, in the units of the data: see `number_scores`."""
        import numpy as np

        from glassformer.data.regression import as_object, values_of
        from glassformer.train.evaluate import Scores

        _, numbers = scales_in(tokenizers)
        assert numbers is not None
        given = [numbers.in_units(row) for row in np.array(found, np.int32).view(np.float32).tolist()]
        wanted = values_of([pair.target for pair in split.pairs], numbers.entries)
        metrics, details = number_scores(np.array(given), wanted, numbers.entries)
        return Scores(metrics, [as_object(numbers.entries, row) for row in given], details)

    # --- the use of a run

    def read_line(self, line: str, tokenizers: Tokenizers) -> ReadLine:
        if self.of_text:
            return super().read_line(line, tokenizers)
        return ReadLine(line, tokenizers.source.encode(line))

    def answer(
        self, members: Sequence[Member], lines: Sequence[Sequence[ReadLine]], batch_size: int
    ) -> Iterator[LineAnswer]:
        import numpy as np

        from glassformer.data.regression import batch_of
        from glassformer.train.evaluate import batches_of, outputs

        model, (features, numbers) = members[0].model, scales_in(members[0].tokenizers)
        assert numbers is not None
        read = [line for (line,) in lines]
        values = features.standardised(np.array([features.row(line.text) for line in read])) if features else None

        def batch(rows: list[int]) -> Batch:
            own = None if values is None else values[rows].tolist()
            return batch_of([read[row].ids for row in rows], None, own, len(features.entries) if features else 0)

        found: dict[int, list[float]] = {}
        for given in outputs(model, batches_of([len(line.ids) for line in read], batch, batch_size)):
            found |= dict(zip(given.rows, given.output.tolist(), strict=True))
        for row, line in enumerate(read):
            predicted = dict(zip(numbers.entries, numbers.in_units(found[row]), strict=True))
            yield Predicted(predicted, line.unknown, line.untrained)


def scales_in(tokenizers: Tokenizers | None) -> tuple[Scale | None, Scale | None]:
    """The scales of the features and of the numbers of a run, as far as there are any yet.

    A run that starts from another one has only what is read, on both sides.
    """
    from glassformer.data.regression import Scale

    source, target = (None, None) if tokenizers is None else tokenizers
    numbers = target if isinstance(target, Scale) and target is not source else None
    return source if isinstance(source, Scale) else None, numbers


# --- figures


def number_scores(
    given: NDArray[np.float64], wanted: NDArray[np.float64], names: Sequence[str]
) -> tuple[dict[str, Metric], dict[str, dict[str, dict[str, Metric]]]]:
    """Compare numbers [N, K]: metrics, each the mean over the K numbers, and a table with a row for each of them.

    `mse`: mean of (given - wanted)^2. `mae`: mean of |given - wanted|. `r2`: 1 - mse / variance of the wanted ones, so
    that always giving their mean has 0. It is not defined for a number that is the same in all samples: such ones are
    named in `constant`, and left out of the mean; if all are, there is no `r2`.
    """
    apart = given - wanted
    mse, mae, variance = (apart**2).mean(0), abs(apart).mean(0), wanted.var(0)
    table: dict[str, dict[str, Metric]] = {}
    for k, name in enumerate(names):
        varies = bool(wanted[:, k].max() > wanted[:, k].min())
        r2: Metric = float(1 - mse[k] / variance[k]) if varies else "constant"
        table[name] = {"mse": float(mse[k]), "mae": float(mae[k]), "r2": r2}
    defined = [row["r2"] for row in table.values() if isinstance(row["r2"], float)]
    metrics: dict[str, Metric] = {"r2": sum(defined) / len(defined)} if defined else {}
    metrics |= {"mse": float(mse.mean()), "mae": float(mae.mean())}
    if constant := [name for name, row in table.items() if row["r2"] == "constant"]:
        metrics["constant"] = ", ".join(constant)
    return metrics, {"numbers": table} if len(names) > 1 else {}
