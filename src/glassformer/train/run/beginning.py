"""Start a run: from fresh weights, or from those of another run (fine-tuning)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, replace
from pathlib import Path
from typing import NamedTuple

from glassformer.base.errors import ConfigError
from glassformer.data.dataset import Tokenizers
from glassformer.data.tokens.words import Labels
from glassformer.nn.recipe import ModelRecipe, unread
from glassformer.nn.transformer import Transformer
from glassformer.store.checkpoint import Loaded, load
from glassformer.train.recipe import Recipe, load_recipe
from glassformer.train.run.build import new_model
from glassformer.train.sample_lengths import LENGTHS, SampleLengths, joined
from glassformer.train.sources.prepare import prepare
from glassformer.train.sources.run_data import RunData
from glassformer.train.tasks import task_of

OWN = (
    *("dropout", "attention_dropout", "feed_forward_dropout", "token_dropout", "stochastic_depth", "head_dropout"),
    *("pooling", "head_transform", "init", "attention", "balance_loss", "router_z_loss"),
)
"""Model settings that a run keeps when it starts from another one; they fit weights that were learned with others."""
SHOWN = 4
"""How many names of weights a note shows."""


class Beginning(NamedTuple):
    """The data, the model before its first step, lines for the user, and the lengths of all that it is trained on."""

    data: RunData
    model: Transformer
    notes: list[str]
    lengths: SampleLengths


def begin(recipe: Recipe) -> Beginning:
    """Build the data and the model, on the CPU; both depend only on the recipe and the run that it starts from.

    The best checkpoint of that run gives the tokenizer and every weight whose name and shape are the same; its
    [tokenizer] and [model] replace the recipe's own, except for `OWN`, for settings that the recipe's layout does not
    use, and for `silent` where answers are written. Weights without a match, such as a classifier's head, start fresh.
    Errors: those of reading data and checkpoint; `ConfigError` if no weight fits.
    """
    if recipe.training.start_from is None:
        data = prepare(recipe)
        return Beginning(data, new_model(recipe, data.tokenizers), [], data.lengths())
    run = Path(recipe.training.start_from).expanduser()
    if not (run / "recipe.toml").is_file():
        raise ConfigError(
            f"training.start_from must be a run folder with a recipe.toml; {run} has none. Train that run first, or "
            "remove training.start_from."
        )
    before, theirs = load(run), load_recipe(run / "recipe.toml")
    task, other = task_of(recipe.data), task_of(theirs.data)
    if task.one_vocabulary and not theirs.tokenizer.shared:
        raise ConfigError(
            f"Running text needs only one vocabulary, but {run}, which training.start_from names, has one for each "
            "side (tokenizer.shared=False). Start from another run, or remove training.start_from."
        )
    if task.layout.tokens and not other.layout.tokens:
        raise ConfigError(
            f"training.start_from must be a run that reads tokens, as data.layout={recipe.data.layout!r} does; {run} "
            f"{other.does} and has no vocabulary. Start from another run, or remove "
            "training.start_from."
        )
    recipe, changed = as_before(recipe, theirs)
    data = prepare(recipe, task.begins_with(before.tokenizers))
    model = new_model(recipe, data.tokenizers)
    told = take_over(model, before, fresh_labels(data.tokenizers, before.tokenizers))
    settings = [f"as {run.name} has it: {', '.join(changed)}"] if changed else []
    passed = [f"skipped: {each.reason}" for each in before.skipped]
    lengths = joined(before.state.get(LENGTHS, {}), data.lengths())
    return Beginning(data, model, [*passed, f"starts from {before.folder}", *settings, *told], lengths)


def refuse_overruled(recipe: Recipe, asked: Collection[str]) -> None:
    """Refuse settings that were asked for where the run that this one starts from has others. Errors: `ConfigError`.

    `begin` takes that run's tokenizer and model settings in place of the recipe's, but nobody would ask for what is not
    taken.
    """
    if recipe.training.start_from is None:
        return
    there = Path(recipe.training.start_from).expanduser() / "recipe.toml"
    if not there.is_file():  # as `begin` will say
        return
    taken, _ = as_before(recipe, load_recipe(there))
    for section, _, key in (name.partition(".") for name in asked):
        wanted, found = (getattr(getattr(each, section), key) for each in (recipe, taken))
        if wanted != found:
            raise ConfigError(
                f"A run that starts from another one has its vocabulary and its weights; {there.parent}, which "
                f"training.start_from names, has {section}.{key}={found!r}, and {wanted!r} is asked for. Remove "
                f"{section}.{key}, or remove training.start_from."
            )


def as_before(recipe: Recipe, theirs: Recipe) -> tuple[Recipe, list[str]]:
    """Take tokenizer and model settings from another recipe. Returns the new recipe, and what this has changed."""
    layout = task_of(recipe.data).layout
    own = {*OWN, *unread(layout)}
    if layout.encoder and layout.decoder:
        own.add("silent")  # answers have special tokens, such as the <blank> before each span of `spans`
    model = replace(theirs.model, **{name: getattr(recipe.model, name) for name in own})
    changed = [
        f"model.{each.name}={getattr(model, each.name)!r}"
        for each in fields(ModelRecipe)
        if getattr(model, each.name) != getattr(recipe.model, each.name)
    ]
    if not layout.tokens:  # there is no text
        return replace(recipe, model=model), changed
    changed += [f"tokenizer.kind={theirs.tokenizer.kind!r}"] if theirs.tokenizer != recipe.tokenizer else []
    return replace(recipe, model=model, tokenizer=theirs.tokenizer), changed


def fresh_labels(now: Tokenizers, before: Tokenizers) -> bool:
    """Whether the head is for other labels, so that its weights mean something else even if their shapes agree."""
    labels = [each.target.entries if isinstance(each.target, Labels) else None for each in (now, before)]
    return labels[0] != labels[1]


def take_over(model: Transformer, before: Loaded, fresh_head: bool) -> list[str]:
    """Copy each weight whose name and shape are the same. Returns lines that tell the user which ones were.

    Errors: `ConfigError` if no weight outside the head was copied.
    """
    ours, theirs = model.state_dict(), before.model.state_dict()
    fits = {
        name: theirs[name].to(each.dtype)
        for name, each in ours.items()
        if name in theirs and theirs[name].shape == each.shape and not (fresh_head and name.startswith("head."))
    }
    fresh, unused = [name for name in ours if name not in fits], [name for name in theirs if name not in fits]
    if not any(not name.startswith("head.") for name in fits):
        raise ConfigError(
            f"training.start_from needs weights of the same names and shapes, but {before.folder} has none that fit: "
            f"it has {some(unused)}, and the new model {some(fresh)}. Start from a run with the same stacks, such as "
            "an encoder for an encoder."
        )
    model.load_state_dict(ours | fits)
    lines = [f"weights taken over: {len(fits)} of {len(ours)}"]
    lines += [f"weights that begin fresh: {some(fresh)}"] if fresh else []
    return lines + ([f"weights left behind: {some(unused)}"] if unused else [])


def some(names: list[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
