"""What a user may have meant by an unknown flag, setting or run. No suggestion is better than a wrong one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import SequenceMatcher
from pathlib import Path

from glassformer.base.errors import all_of
from glassformer.base.registry import suggestion
from glassformer.cli.verbs import VERBS, Verb
from glassformer.train.recipe import known_recipes

NEAR = 0.7
"""The least similarity, from 0 to 1, of a name that is suggested."""
CLOSE = 0.12
"""How much less similar than the nearest name a further one may be that is suggested, too."""
MOST = 3
"""The most names that are suggested."""
SAME_WORD = 0.1
"""Added to the similarity of two names that end in the same word."""
ELSEWHERE = {
    "adam_beta1": "optimizer.beta1",
    "adam_beta2": "optimizer.beta2",
    "adam_epsilon": "optimizer.epsilon",
    "batch": "training.batch_tokens",
    "batch_size": "training.batch_tokens decode.batch_size",
    "beam_size": "decode.beam",
    "bf16": "training.precision decode.precision",
    "block_size": "data.window",
    "context": "data.window",
    "context_length": "data.window",
    "cpu": "training.device",
    "cuda": "training.device",
    "depth": "model.n_layers",
    "dim": "model.d_model",
    "do_sample": "decode.temperature",
    "dtype": "training.precision decode.precision",
    "early_stopping": "training.patience decode.early_stop",
    "embed_dim": "model.d_model",
    "epoch": "training.steps",
    "epochs": "training.steps",
    "eval_every": "training.evaluate_every",
    "eval_interval": "training.evaluate_every",
    "eval_steps": "training.evaluate_every",
    "ffn_dim": "model.d_ff",
    "gpu": "training.device",
    "fp16": "training.precision decode.precision",
    "grad_accum": "training.accumulate",
    "grad_clip": "training.clip",
    "gradient_accumulation_steps": "training.accumulate",
    "half": "training.precision decode.precision",
    "heads": "model.n_heads",
    "hidden_dim": "model.d_model",
    "hidden_size": "model.d_model",
    "intermediate_size": "model.d_ff",
    "iterations": "training.steps",
    "iters": "training.steps",
    "lr": "training.learning_rate",
    "lr_schedule": "training.schedule",
    "lr_scheduler": "training.schedule",
    "max_epochs": "training.steps",
    "max_grad_norm": "training.clip",
    "max_iters": "training.steps",
    "max_length": "data.max_length decode.max_new_tokens",
    "max_seq_len": "model.max_len",
    "max_steps": "training.steps",
    "max_tokens": "decode.max_new_tokens",
    "n_embd": "model.d_model",
    "n_epochs": "training.steps",
    "n_head": "model.n_heads",
    "n_layer": "model.n_layers",
    "no_repeat_ngram_size": "decode.no_repeat_ngram",
    "num_attention_heads": "model.n_heads",
    "num_beams": "decode.beam",
    "num_epochs": "training.steps",
    "num_heads": "model.n_heads",
    "num_hidden_layers": "model.n_layers",
    "num_layers": "model.n_layers",
    "num_return_sequences": "n",
    "num_train_epochs": "training.steps",
    "o": "out",
    "optim": "optimizer.name",
    "optimizer": "optimizer.name",
    "output_dir": "out",
    "seq_len": "data.window",
    "temp": "decode.temperature",
    "tokenizer": "tokenizer.kind",
    "warmup_steps": "training.warmup",
    "wd": "optimizer.weight_decay",
    "width": "model.d_model",
}
"""Names of other tools, and what does here what they do there: a setting or flag, or several, the best one first."""
DEVICE_OF_RUN = (
    "A run is used on the device that `training.device` in its recipe.toml names; auto is an accelerator if there is "
    "one, else the CPU."
)


def meant_flag(word: str, verb: Verb, settings: Mapping[str, str]) -> str:
    """Return a sentence on what an unknown flag of a verb may mean, or "" if nothing is near.

    `word` is without `--`; `settings` are those that the verb takes, "section.key", each with its flag. In this order:
    another tool's name, a setting of that name, flags and settings with similar names, the device of a run, a flag of
    another verb.
    """
    key = word.replace("-", "_")
    flags = {option.name.replace("-", "_"): f"--{option.name}" for option in verb.options}
    of_key = {place.partition(".")[2]: flag for place, flag in reversed([*settings.items()])}  # the first section wins
    here = {place: flags.get(place.partition(".")[2], flag) for place, flag in settings.items()} | flags
    if best := translated(key, here) or of_key.get(key):
        return asked(best)
    if near := nearest(key, of_key | flags):
        return asked(*near)
    if "device" in (key, ELSEWHERE.get(key, "").partition(".")[2]) and "RUN" in (verb.target or ""):
        return DEVICE_OF_RUN
    elsewhere = [place.partition(".")[2] or place for place in ELSEWHERE.get(key, "").split()]
    for flag in (word, *(each.replace("_", "-") for each in elsewhere)):
        if others := [name for name, each in VERBS.items() if any(option.name == flag for option in each.options)]:
            return f"{'It' if flag == word else f'--{flag}'} is a flag of {', '.join(others)}."
    return ""


def meant_setting(section: str, key: str, settings: Mapping[str, str]) -> str:
    """Return a sentence on what an unknown setting of a section may mean, or "" if nothing is near.

    `settings` are as in `meant_flag`. In this order: another tool's name, first for a setting of this section; the same
    name in another section; a similar name in this section.
    """
    own = {place: flag for place, flag in settings.items() if place.startswith(f"{section}.")}
    of_key = {place.partition(".")[2]: flag for place, flag in reversed([*settings.items()])}
    in_own = {place.partition(".")[2]: flag for place, flag in own.items()}
    if best := translated(key, own) or translated(key, settings) or of_key.get(key):
        return asked(best)
    near = nearest(key, in_own)
    return asked(*near) if near else ""


def meant_run(target: str, runs: Collection[str], presets: Collection[str]) -> str:
    """Return what to do about a target that is no run folder; `runs` are those there are.

    In this order: the run of that name, training the recipe of that name, one of the known names, training any.
    """
    if named := sorted(each for each in runs if Path(each).name == target):
        return asked(*named)
    if target in known_recipes() or Path(target).suffix == ".toml":
        return f"It names a recipe, which must be trained first: `glassformer train {target}`."
    known = [*runs, *presets]
    return suggestion(target, known) if known else "Make one with `glassformer train RECIPE`."


def translated(key: str, here: Mapping[str, str]) -> str:
    """Return the flag for another tool's name, or "" if there is none among those that are `here`."""
    return next((here[place] for place in ELSEWHERE.get(key, "").split() if place in here), "")


def nearest(key: str, flags: Mapping[str, str]) -> list[str]:
    """Return the flags whose names are most similar to `key`, the best first. A last word in common counts."""
    scores = {name: SequenceMatcher(None, key, name).ratio() + SAME_WORD * ends_alike(key, name) for name in flags}
    least = max(NEAR, max(scores.values(), default=0) - CLOSE)
    near = sorted((name for name in scores if scores[name] >= least), key=scores.__getitem__, reverse=True)
    return [flags[name] for name in near[:MOST]]


def ends_alike(one: str, other: str) -> bool:
    """Whether two names of several words have the last one in common."""
    return "_" in one and "_" in other and one.rpartition("_")[2] == other.rpartition("_")[2]


def asked(*names: str) -> str:
    """Return the question whether one of these was meant."""
    return f"Did you mean {all_of([*map(repr, names)], 'or')}?"
