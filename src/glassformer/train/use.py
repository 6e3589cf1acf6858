"""What can be done with a run: score it, let it answer, see where its parameters are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from glassformer.data.config import LABEL
from glassformer.data.vocabulary import UNK
from glassformer.data.words import FIRST_LABEL
from glassformer.decode.answer import answer
from glassformer.decode.classify import label_probabilities
from glassformer.foundation.errors import ConfigError, DataError
from glassformer.foundation.runtime import choose_device, choose_threads
from glassformer.model.count import Row, count_parameters
from glassformer.store.checkpoint import Loaded, load
from glassformer.train.build import as_recipe, objective_of
from glassformer.train.evaluate import evaluate_model
from glassformer.train.events import Metric
from glassformer.train.passed_over import told
from glassformer.train.prepare import prepare_split
from glassformer.train.recipe import Recipe, load_recipe

Line = TypeVar("Line")


class Translated(NamedTuple):
    """One answer, and what is not quite right about it."""

    text: str
    complete: bool
    """False where it reached max_new_tokens before its end."""
    unknown: int
    """Tokens of the source that the vocabulary does not have; the model read <unk> in their place."""


class Classified(NamedTuple):
    """The likeliest label of a text, the probability of each, and what the vocabulary did not know."""

    label: str
    probabilities: dict[str, float]
    unknown: int


Figures = dict[str, Metric | dict[str, dict[str, Metric]]]


def evaluate(run: Path, recipe: Recipe, split: str = "test") -> Figures:
    """The scores of the run's best checkpoint on a split; `recipe` is the run's own, with other data or decoding.

    Of a classifier also `labels` and `confusion`, label by label.
    """
    loaded = _load(run, recipe)
    data = prepare_split(recipe, loaded.tokenizers, split)
    scores = evaluate_model(
        loaded.model,
        data.encoded,
        loaded.tokenizers,
        [pair.target for pair in data.pairs],
        layout=recipe.data.layout,
        max_new_tokens=recipe.decode.max_new_tokens,
        batch_size=recipe.decode.batch_size,
        as_text=recipe.data.task == "pairs",
        objective=objective_of(loaded.model, recipe),
    )
    skipped: Figures = {"skipped": data.skipped} if recipe.data.skip_empty else {}
    return {**scores.metrics, **skipped, **scores.details}


def translate(run: Path, lines: Iterable[str], batch_size: int) -> Iterator[Translated]:
    """The best checkpoint's answer to each line, in order, `batch_size` lines at a time."""
    recipe = load_recipe(run / "recipe.toml")
    if recipe.data.layout == LABEL:
        raise ConfigError(f"{run} gives a label to a text and writes no answers. Use glassformer classify {run}.")
    loaded = _load(run, recipe)
    for group in groups(lines, batch_size):
        sources = [loaded.tokenizers.source.encode(line) for line in group]
        answers = answer(loaded.model, sources, max_new_tokens=recipe.decode.max_new_tokens, batch_size=batch_size)
        for source, each in zip(sources, answers, strict=True):
            yield Translated(loaded.tokenizers.target.decode(each.ids), each.complete, source.count(UNK))


def classify(run: Path, lines: Iterable[tuple[int, str]], batch_size: int) -> Iterator[Classified]:
    """The best checkpoint's label for each (number, line), in order, `batch_size` lines at a time.

    Errors: `DataError` naming the line that is longer than the model takes: no text is cut.
    """
    recipe = load_recipe(run / "recipe.toml")
    if recipe.data.layout != LABEL:
        raise ConfigError(f"{run} writes answers and gives no labels. Use glassformer translate {run}.")
    loaded = _load(run, recipe)
    source, target = loaded.tokenizers
    names = target.tokens(range(FIRST_LABEL, target.vocab_size))
    for group in groups(lines, batch_size):
        texts = [source.encode(line) for _, line in group]
        limit = loaded.model.config.stack.max_len
        for (number, line), text in zip(group, texts, strict=True):
            if limit is not None and len(text) + 1 > limit:
                raise DataError(
                    f"A text may have at most max_len={limit} tokens, <bos> included; line {number} has "
                    f"{len(text) + 1}: {line[:40]!r}. Shorten it, or train with a larger model.max_len."
                )
        rows = label_probabilities(loaded.model, texts, batch_size=batch_size)
        for text, row in zip(texts, rows.tolist(), strict=True):
            best = max(range(len(names)), key=row.__getitem__)
            yield Classified(names[best], dict(zip(names, row, strict=True)), text.count(UNK))


def parameters(run: Path) -> tuple[list[Row], int]:
    """Where the parameters of the best checkpoint are, and how many; a tensor used twice stands once."""
    rows, total = count_parameters(told(load(run)).model)
    return [row for row in rows if row.same_as is None], total


def groups(lines: Iterable[Line], size: int) -> Iterator[list[Line]]:
    """Lines in groups of `size`; the last may be smaller."""
    group: list[Line] = []
    for line in lines:
        group.append(line)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def _load(run: Path, recipe: Recipe) -> Loaded:
    device, _ = choose_device(recipe.training.device)
    choose_threads(recipe.training.threads)
    loaded = told(load(run, device=device))
    as_recipe(loaded.model, recipe)
    return loaded
