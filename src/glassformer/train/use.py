"""What can be done with a run: score it, let it answer, see where its parameters are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from glassformer.data.vocabulary import UNK
from glassformer.decode.answer import answer
from glassformer.foundation.runtime import choose_device, choose_threads
from glassformer.model.count import Row, count_parameters
from glassformer.store.checkpoint import Loaded, load
from glassformer.train.evaluate import evaluate_model
from glassformer.train.events import Metric
from glassformer.train.prepare import prepare_split
from glassformer.train.recipe import Recipe, load_recipe


class Translated(NamedTuple):
    """One answer, and what is not quite right about it."""

    text: str
    complete: bool
    """False where it reached max_new_tokens before its end."""
    unknown: int
    """Tokens of the source that the vocabulary does not have; the model read <unk> in their place."""


def evaluate(run: Path, recipe: Recipe, split: str = "test") -> dict[str, Metric]:
    """The scores of the run's best checkpoint on a split; `recipe` is the run's own, with other data or decoding."""
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
    )
    return scores.metrics | ({"skipped": data.skipped} if recipe.data.skip_empty else {})


def translate(run: Path, lines: Iterable[str], batch_size: int) -> Iterator[Translated]:
    """The best checkpoint's answer to each line, in order, `batch_size` lines at a time."""
    recipe = load_recipe(run / "recipe.toml")
    loaded = _load(run, recipe)
    for group in groups(lines, batch_size):
        sources = [loaded.tokenizers.source.encode(line) for line in group]
        answers = answer(loaded.model, sources, max_new_tokens=recipe.decode.max_new_tokens, batch_size=batch_size)
        for source, each in zip(sources, answers, strict=True):
            yield Translated(loaded.tokenizers.target.decode(each.ids), each.complete, source.count(UNK))


def parameters(run: Path) -> tuple[list[Row], int]:
    """Where the parameters of the best checkpoint are, and how many; a tensor used twice stands once."""
    rows, total = count_parameters(load(run).model)
    return [row for row in rows if row.same_as is None], total


def groups(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    """Lines in groups of `size`; the last may be smaller."""
    group: list[str] = []
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
    return load(run, device=device)
