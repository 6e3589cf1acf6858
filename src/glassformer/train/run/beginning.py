"""Start a run: from fresh weights, or from those of another run (fine-tuning)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from glassformer.base.errors import ConfigError, some
from glassformer.base.settings import flattened
from glassformer.data.config import DataConfig, TokenizerConfig
from glassformer.data.dataset import Tokenizers
from glassformer.data.kinds import LAYOUTS, TEXT
from glassformer.data.tokens.vocabulary import Labels
from glassformer.nn.config import ModelConfig
from glassformer.nn.recipe import ModelRecipe, unread
from glassformer.nn.transformer import Transformer
from glassformer.store.checkpoint import Loaded, load, save
from glassformer.store.files import write_text_atomically
from glassformer.store.folders import RunLock, step_folder
from glassformer.store.pretrained import Pretrained, read_pretrained
from glassformer.train.breaks import BREAKS, break_names
from glassformer.train.objective import Objective, objective_for
from glassformer.train.optimizer import build_optimizer
from glassformer.train.recipe import Recipe, dumps_recipe, load_recipe
from glassformer.train.run.resumable import IMPORTED, refuse_other_model
from glassformer.train.run_data import RunData, Split
from glassformer.train.sample_lengths import LENGTHS, SampleLengths, joined
from glassformer.train.settings import Settings, TrainingConfig
from glassformer.train.tasks import task_of

Speed = Callable[..., Any]
"""Exchanges parts of a model, and of its optimizer if one is given, for faster equals, as `fast.for_training` does.

What it returns has `notes`, lines for the user."""


class Plain(NamedTuple):
    """Nothing was exchanged: the `Speed` that leaves model and optimizer as they are."""

    model: Transformer
    optimizer: torch.optim.Optimizer | None = None
    notes: list[str] = []  # noqa: RUF012  (never changed)


def new_model(recipe: Recipe, tokenizers: Tokenizers) -> Transformer:
    """The model before its first step, on the CPU; it depends only on the recipe and the vocabularies."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(recipe.training.seed)  # not `torch.manual_seed`: it seeds other devices too
        model = Transformer(model_config(recipe, tokenizers))
        if names := break_names(recipe.training.broken):
            from glassformer.train.surgery import WEIGHTS  # here: only runs with mistakes need it

            for name in names:
                if name in WEIGHTS:
                    WEIGHTS[name](model)
        return as_recipe(model, recipe)


def as_recipe(model: Transformer, recipe: Recipe) -> Transformer:
    """Make the mistakes that the recipe asks for in a model that was built right."""
    if names := break_names(recipe.training.broken):
        from glassformer.train.surgery import SURGERY

        for name in names:
            if name in SURGERY:
                SURGERY[name](model)
    return model


def refuse_changed(run: Path, loaded: Loaded, recipe: Recipe) -> None:
    """Refuse a run whose recipe now asks for another model than its checkpoint holds."""
    refuse_other_model(run, loaded.model.config, model_config(recipe, loaded.tokenizers))


def objective_of(model: Transformer, recipe: Settings) -> Objective:
    """The objective of the model's head, with the mistakes that the recipe asks for."""
    objective = objective_for(model)
    if names := break_names(recipe.training.broken):
        from glassformer.train.surgery import OBJECTIVE

        for name in names:
            objective = OBJECTIVE[name](objective) if name in OBJECTIVE else objective
    return objective


def optimizer_of(model: Transformer, recipe: Settings) -> torch.optim.Optimizer:
    """The optimizer that the recipe asks for; it computes its own products in bfloat16 if the run does."""
    training = recipe.training
    dtype = torch.bfloat16 if training.precision == "bfloat16" else None
    return build_optimizer(model, recipe.optimizer, learning_rate=training.learning_rate, dtype=dtype)


def broken_notes(recipe: Settings) -> list[str]:
    """Lines for the user: each mistake that the run makes on purpose, and the symptom to watch for."""
    return [
        f"broken on purpose ({name}): {BREAKS[name].what} Watch: {BREAKS[name].symptom}"
        for name in break_names(recipe.training.broken)
    ]


OWN = (
    *("dropout", "attention_dropout", "feed_forward_dropout", "token_dropout", "stochastic_depth", "head_dropout"),
    *("pooling", "head_transform", "init", "attention", "balance_loss", "router_z_loss"),
)
"""Model settings that a run keeps when it starts from another one; they fit weights that were learned with others."""


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
    taken = take_over(model, before, fresh_labels(data.tokenizers, before.tokenizers))
    settings = [f"as {run.name} has it: {', '.join(changed)}"] if changed else []
    passed = [f"skipped: {each.reason}" for each in before.skipped]
    lengths = joined(before.state.get(LENGTHS, {}), data.lengths())
    return Beginning(data, model, [*passed, f"starts from {before.folder}", *settings, *taken], lengths)


def refuse_overruled(recipe: Recipe, requested: Collection[str]) -> None:
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
    for section, _, key in (name.partition(".") for name in requested):
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


# A run of a model that another library trained, so that every command for runs takes it.

LONGEST = 4096
"""The longest window of an imported run, in tokens: training and scoring need memory that grows with it."""


def import_run(folder: Path, out: Path) -> Pretrained:
    """Read a model that another library saved, and write it as a run that has made no step.

    Errors: those of `read_pretrained` and of writing.
    """
    found = read_pretrained(folder)
    recipe = recipe_for(found, out.name, folder)
    if (longest := found.model.config.stack.max_len) != (window := recipe.data.window):
        note = f"window: {window:,} of the {longest:,} tokens that the model reads (data.window in recipe.toml)"
        found = found._replace(notes=[*found.notes, note])
    new, lock = not out.exists(), RunLock(out)
    lock.take()
    try:
        write_text_atomically(out / "recipe.toml", dumps_recipe(recipe))
        tokenizers = Tokenizers(found.tokenizer, found.tokenizer)
        save(step_folder(out, 0), found.model, tokenizers, state={IMPORTED: found.family})
    except BaseException:
        if new:
            shutil.rmtree(out, ignore_errors=True)
        raise
    finally:
        lock.release()
    return found


def recipe_for(found: Pretrained, name: str, folder: Path) -> Recipe:
    """The recipe that such a run would have: a language model of documents, if it knows where one ends."""
    config = found.model.config
    assert config.stack.max_len is not None  # each family has a setting for it
    window = min(config.stack.max_len, LONGEST)
    recipe = Recipe(
        name,
        f"{found.family}, imported from {folder.name}.",
        data=DataConfig(task=TEXT, layout="decoder", window=window, documents=found.documents),
        tokenizer=TokenizerConfig(kind=found.tokenizer.kind, vocab_size=found.tokenizer.vocab_size),
        model=ModelRecipe(**flattened(config.stack) | flattened(config)),
        training=TrainingConfig(batch_tokens=window, metric="loss", precision="float32"),
    )
    built = recipe.model.build(LAYOUTS["decoder"], found.tokenizer.vocab_size)
    assert built == config, (built, config)
    return recipe


def prepare(recipe: Recipe, tokenizers: Tokenizers | None = None) -> RunData:
    """Read and encode the training and dev splits; train tokenizers on the training split unless they are given."""
    return task_of(recipe.data).prepare(recipe, tokenizers)


def prepare_split(recipe: Recipe, tokenizers: Tokenizers, name: str) -> Split:
    """Prepare one split for scoring. Errors: those of reading; `DataError` for data that the model does not take."""
    return task_of(recipe.data).split(recipe, tokenizers, name)


def model_config(recipe: Recipe, tokenizers: Tokenizers) -> ModelConfig:
    """The configuration of the model that the recipe asks for, with the vocabularies of the data."""
    return task_of(recipe.data).config(recipe, tokenizers)
