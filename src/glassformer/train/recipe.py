"""A recipe: everything needed to repeat a run, as frozen values, read from TOML and written back equal.

Defaults live in the dataclasses and nowhere else; a TOML file and the command line say only what differs. Nothing here
imports torch, so that `--help` and a mistake in a file answer at once.
"""

from __future__ import annotations

import json
import math
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from glassformer.data.config import PAIRS, SPLITS, DataConfig, TokenizerConfig
from glassformer.foundation.errors import ConfigError
from glassformer.foundation.registry import lookup, suggestion
from glassformer.model.recipe import ModelRecipe
from glassformer.train.schedule import SCHEDULES

Section = TypeVar("Section")

NAMED = Path(__file__).parents[1] / "recipes"
PRECISIONS = ("auto", "bfloat16", "float32")
TEXT_METRICS = ("bleu", "chrf")
METRICS = (*TEXT_METRICS, "exact_match", "loss", "token_accuracy")
"""What a checkpoint may be called best by; the loss is better when it is smaller, the others when larger."""


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of `[training]`: how the weights are found."""

    steps: int = 2000
    """Updates of the weights in the whole run."""
    batch_tokens: int = 4096
    """Tokens in one batch, source and target, padding included."""
    accumulate: int = 1
    """Pieces each batch is cut into to save memory; same gradients without dropout, with it other coins fall."""
    seed: int = 1
    """Fixes the first weights, the data, its order and the dropout."""
    learning_rate: float = 1e-3
    """Highest learning rate, reached at the end of the warm-up."""
    schedule: str = "inverse_square_root"
    """After the warm-up: inverse_square_root, cosine, linear or constant."""
    warmup: int = 200
    """Steps in which the learning rate rises from 0."""
    min_learning_rate: float = 0.0
    """Learning rate that cosine and linear end at."""
    beta1: float = 0.9
    """AdamW: memory of the gradient."""
    beta2: float = 0.98
    """AdamW: memory of the squared gradient."""
    epsilon: float = 1e-9
    """AdamW: added to the denominator."""
    weight_decay: float = 0.0
    """AdamW: share of each matrix taken away per step, times the learning rate."""
    clip: float = 1.0
    """Largest norm of the gradient; longer ones are shortened to it; 0: off."""
    label_smoothing: float = 0.0
    """Share of the target probability spread over the whole vocabulary."""
    precision: str = "auto"
    """Arithmetic: auto (whichever is measured faster), float32 or bfloat16."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda, cuda:1, mps."""
    threads: int = 0
    """Processor threads; 0: as many as help, written down so that a resumed run has as many."""
    evaluate_every: int = 500
    """Steps between evaluations on the dev split; 0: at the end only."""
    patience: int = 0
    """Stop after this many evaluations without improvement; 0: never."""
    metric: str = "exact_match"
    """What the best checkpoint is best by: exact_match, token_accuracy, loss, bleu or chrf."""
    samples: int = 3
    """Sample outputs shown at each evaluation."""

    def __post_init__(self) -> None:
        at_least(self, "training", 1, "steps", "batch_tokens", "accumulate")
        at_least(self, "training", 0, "seed", "warmup", "min_learning_rate", "weight_decay", "clip", "threads")
        at_least(self, "training", 0, "evaluate_every", "patience", "samples")
        for name in ("learning_rate", "epsilon"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise ConfigError(f"training.{name} must be above 0 and finite; got {getattr(self, name)}.")
        for name in ("beta1", "beta2", "label_smoothing"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ConfigError(f"training.{name} must be at least 0 and below 1; got {getattr(self, name)}.")
        if self.min_learning_rate > self.learning_rate:
            raise ConfigError(
                f"training.min_learning_rate ({self.min_learning_rate}) must not be above training.learning_rate "
                f"({self.learning_rate}), which the schedule comes down from; lower the first or raise the second."
            )
        lookup(SCHEDULES, self.schedule, "training.schedule")
        one_of(PRECISIONS, self.precision, "training.precision")
        one_of(METRICS, self.metric, "training.metric")


@dataclass(frozen=True)
class CheckpointConfig:
    """Settings of `[checkpoint]`: what is kept on disk."""

    every: int = 500
    """Steps between checkpoints; 0: at the end only (and when interrupted)."""
    keep: int = 2
    """Newest checkpoints kept; the best one is kept besides."""

    def __post_init__(self) -> None:
        at_least(self, "checkpoint", 0, "every")
        at_least(self, "checkpoint", 1, "keep")


@dataclass(frozen=True)
class DecodeConfig:
    """Settings of `[decode]`: how answers are written."""

    max_new_tokens: int | None = None
    """Longest answer, in tokens; none: chosen from the length of the source."""
    batch_size: int = 128
    """Sequences decoded together."""

    def __post_init__(self) -> None:
        at_least(self, "decode", 1, "max_new_tokens", "batch_size")


@dataclass(frozen=True)
class Recipe:
    """A whole run: data, tokenizer, model, training, checkpoints, decoding."""

    name: str
    """What the run is called; runs/NAME is its folder unless --out says otherwise."""
    description: str = ""
    """One sentence on what is learned."""
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelRecipe = field(default_factory=ModelRecipe)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        if self.name in ("", ".", "..") or any(each in self.name for each in "/\\\0"):
            raise ConfigError(f"name must be a plain name without slashes, as it names a folder; got {self.name!r}.")
        self.model.build(self.data.layout, vocab_size=1)  # a model that cannot be is refused before any data is read
        if self.training.metric in TEXT_METRICS and self.data.task != PAIRS:
            raise ConfigError(
                f"training.metric={self.training.metric!r} is measured on text of files only, and data.task is "
                f"{self.data.task!r}, whose answers are right or wrong. Try training.metric='exact_match'."
            )


def at_least(config: object, section: str, least: int, *names: str) -> None:
    """Refuse a number below `least`, or one that is not finite; none is always allowed."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not least <= value < math.inf:
            raise ConfigError(f"{section}.{name} must be at least {least}; got {value}. Try {name}={least or 0}.")


def one_of(known: tuple[str, ...], value: str, what: str) -> None:
    """Refuse a name that is not known, with the nearest one that is."""
    lookup(dict.fromkeys(known), value, what)


def known_recipes() -> dict[str, Path]:
    """The named recipes and their files."""
    return {path.stem: path for path in sorted(NAMED.glob("*.toml"))}


def load_recipe(target: str | Path) -> Recipe:
    """The recipe of a known name, or of a TOML file. Errors: `ConfigError` naming file, key and nearest match."""
    named = known_recipes()
    if str(target) in named:
        return read_recipe(named[str(target)])
    path = Path(target)
    if path.suffix == ".toml" or path.is_file():
        return read_recipe(path)
    if (path / "recipe.toml").is_file():
        raise ConfigError(f"{path} is a run folder, not a recipe. To repeat it, name {path / 'recipe.toml'}.")
    raise ConfigError(f"There is no recipe {str(target)!r}. {suggestion(str(target), named)} A file ends in .toml.")


def read_recipe(path: Path) -> Recipe:
    """The recipe in a TOML file; what it leaves out has its default, and its name is the file's."""
    try:
        table = tomllib.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"The recipe {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8.") from None
    except (ValueError, RecursionError) as error:  # of TOML, or of Python for a number of 4,301 digits
        raise ConfigError(f"{path} is not valid TOML: {error}. Each line is `key = value` or `[section]`.") from None
    return read_table(Recipe, {"name": path.stem, **table}, str(path))


def read_table(kind: type[Section], table: Mapping[str, Any], file: str, section: str = "") -> Section:
    """`kind(**table)`, strictly: an unknown key and a wrong type are refused, naming the file and the key."""
    known = settings(kind)
    values: dict[str, Any] = {}
    for key, value in table.items():
        place = f"{section}.{key}" if section else key
        if key not in known:
            others = [name for name, each in settings(Recipe).items() if is_dataclass(each) and key in settings(each)]
            hint = f"It belongs to [{others[0]}]." if others else suggestion(key, known)
            raise ConfigError(f"{file}: {place} is not a setting. {hint}")
        if is_dataclass(known[key]) and isinstance(value, dict):
            values[key] = read_table(known[key], value, file, key)
        else:
            values[key] = read_value(known[key], value, f"{file}: {place}")
    try:
        return kind(**values)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None


def read_value(kind: Any, value: object, place: str) -> object:
    """`value` if it is of the type that the setting has; a whole number is good enough for a float."""
    allowed = get_args(kind) or (kind,)
    if type(value) in allowed:
        return value
    if type(value) is int and float in allowed and abs(value) <= sys.float_info.max:
        return float(value)
    words = {int: "a whole number", float: "a number", str: "text in quotes", bool: "true or false"}
    wanted = " or ".join(words.get(each, "a section") for each in allowed if each is not NoneType)
    raise ConfigError(f"{place} must be {wanted}; got {written(value)[:60]}.")


@cache
def settings(kind: type) -> dict[str, Any]:
    """The settings of a section and their types, in order."""
    hints = get_type_hints(kind)
    return {each.name: hints[each.name] for each in fields(kind)}


def override(recipe: Recipe, changes: Mapping[str, object]) -> Recipe:
    """The recipe with some settings changed, named as in `model.n_layers`. Errors: `ConfigError`, as in a file.

    The two ways to name the files of a split replace each other: a new `data.test` unsets the old `data.test_source`. A
    new `model.n_layers` unsets the recipe's `encoder_layers` and `decoder_layers`, which would hide it.
    """
    sections: dict[str, dict[str, object]] = {}
    for name, value in changes.items():
        section, _, key = name.partition(".")
        sections.setdefault(section, {})[key] = value
    data = sections.get("data", {})
    for split in SPLITS:
        pair = {f"{split}_source": None, f"{split}_target": None}
        sections["data"] = ({split: None} if pair.keys() & data else {}) | (pair if split in data else {}) | data
        data = sections["data"]
    if "n_layers" in sections.get("model", {}):
        sections["model"] = {"encoder_layers": None, "decoder_layers": None} | sections["model"]
    new = {name: replace(getattr(recipe, name), **values) for name, values in sections.items() if values}
    return replace(recipe, **new)


def anchored(recipe: Recipe) -> Recipe:
    """The recipe with its data files as absolute paths, so that a run can be resumed from any folder."""
    named = {
        name: getattr(recipe.data, name) for split in SPLITS for name in (split, f"{split}_source", f"{split}_target")
    }
    found = {name: str(Path(path).expanduser().absolute()) for name, path in named.items() if path is not None}
    return replace(recipe, data=replace(recipe.data, **found))


def dumps_recipe(recipe: Recipe) -> str:
    """The recipe as TOML with every setting written out; reading it gives an equal recipe."""
    lines: list[str] = []
    for name in settings(Recipe):
        value = getattr(recipe, name)
        if not is_dataclass(value):
            lines.append(f"{name} = {written(value)}")
            continue
        lines += ["", f"[{name}]"]
        for key in settings(type(value)):
            setting = getattr(value, key)
            lines.append(f"# {key} is not set" if setting is None else f"{key} = {written(setting)}")
    text = "\n".join(lines) + "\n"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"A recipe is UTF-8 text; {text[error.start - 20 : error.end]!r} is not. Rename it."
        ) from None
    return text


def written(value: object) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
