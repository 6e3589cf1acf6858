"""Making a run of a model that another library trained, so that every command for runs takes it."""

from __future__ import annotations

import shutil
from pathlib import Path

from glassformer.base.settings import flattened
from glassformer.data.config import DataConfig, TokenizerConfig
from glassformer.data.dataset import Tokenizers
from glassformer.data.kinds import LAYOUTS
from glassformer.data.running.text_settings import TEXT
from glassformer.nn.config import ModelConfig
from glassformer.nn.recipe import ModelRecipe
from glassformer.store.checkpoint import save
from glassformer.store.files import write_text_atomically
from glassformer.store.folders import step_folder
from glassformer.store.lock import RunLock
from glassformer.store.pretrained import Pretrained, read_pretrained
from glassformer.train.recipe import Recipe, dumps_recipe
from glassformer.train.run.resumable import IMPORTED
from glassformer.train.settings import TrainingConfig

LONGEST = 4096
"""The longest window of an imported run, in tokens: training and scoring need memory that grows with it."""


def import_run(folder: Path, out: Path) -> Pretrained:
    """Read a model that another library saved, and write it as a run that has made no step.

    Errors: those of `read_pretrained` and of writing.
    """
    found = read_pretrained(folder)
    recipe = recipe_for(found, out.name, folder)
    found = found._replace(notes=[*found.notes, *told(found.model.config, recipe)])
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


def told(config: ModelConfig, recipe: Recipe) -> list[str]:
    """What a user should know about the window of a run, if the model reads more."""
    longest, window = config.stack.max_len, recipe.data.window
    if longest == window:
        return []
    return [f"window: {window:,} of the {longest:,} tokens that the model reads (data.window in recipe.toml)"]
