"""A recipe: all that is needed to repeat a run, as frozen dataclasses, read from TOML and written back equal.

Defaults live in the dataclasses and nowhere else; a TOML file and the command line name only what differs. Nothing here
imports torch, so that `--help` and the errors of a file appear at once.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, cast

from glassformer.base.contradictions import OPTIMIZER, STACK, TRAINING, ignored
from glassformer.base.errors import ConfigError, RecipeError
from glassformer.base.registry import lookup, suggestion
from glassformer.base.typed import TYPED, annotations_of, check_types, is_of, types_in
from glassformer.data.config import SPLITS, kind_of, names_file
from glassformer.data.kinds import LAYOUTS, TEXTS, unused
from glassformer.nn.recipe import ModelRecipe, unread
from glassformer.train.breaks import break_names, check_possible
from glassformer.train.settings import OptimizerConfig, Settings, TrainingConfig
from glassformer.train.tasks import METRICS, task_of

Section = TypeVar("Section")

LARGEST = 2**20
"""Largest size of a recipe in bytes; a device such as /dev/zero has no end."""
NAMED = Path(__file__).parents[1] / "recipes"


@dataclass(frozen=True)
class Recipe(Settings):
    """A whole run: data, tokenizer, model, training, optimizer, checkpoints, decoding, several processes."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.name.strip() in ("", ".", "..") or any(each in self.name for each in "/\\\0"):
            raise ConfigError(
                f"name must be a plain name without slashes, as it names a folder; got {self.name!r}. "
                'Try name = "my-run".'
            )
        lookup(METRICS, self.training.metric, "training.metric")
        self.model.refuse_unread(self.data.layout, LAYOUTS)
        check_possible(break_names(self.training.broken), task_of(self.data).sketch(self))
        if self.distributed.shard and self.optimizer.name != "adamw":
            raise ConfigError(
                f"distributed.shard splits each matrix over the processes, but optimizer.name={self.optimizer.name!r} "
                "needs whole matrices. Try optimizer.name='adamw', with a training.learning_rate such as 1e-3, or "
                "distributed.shard=False."
            )
        if self.distributed.shard and self.training.precision == "float16":
            raise ConfigError(
                "distributed.shard cannot be combined with float16, whose loss scale needs whole gradients. Try "
                "training.precision='bfloat16', or distributed.shard=False."
            )
        task_of(self.data).check(self)


def known_recipes() -> dict[str, Path]:
    """The named recipes and their files."""
    return {path.stem: path for path in sorted(NAMED.glob("*.toml"))}


def load_recipe(target: str | Path) -> Recipe:
    """Read a recipe by its name or from a TOML file. Errors: `ConfigError` naming file, key and nearest match."""
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
    """Read the recipe in a TOML file; a missing setting has its default, and a missing name is the file's."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise ConfigError(
            f"The recipe {path} cannot be read: {error.strerror}. Check the path, or take a recipe by its name; "
            "glassformer train --help lists them."
        ) from None
    if len(content) > LARGEST:
        raise ConfigError(f"A recipe may have at most {LARGEST:,} bytes; {path} has more. Give another file.")
    try:
        table = tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8.") from None
    except (ValueError, RecursionError) as error:  # from TOML, or from Python for a number of 4,301 digits
        text = f" To learn from this text: glassformer train lm --data.text {path}" if path.suffix != ".toml" else ""
        raise ConfigError(
            f"{path} is not valid TOML: {error}. Each line is `key = value` or `[section]`.{text}"
        ) from None
    return read_table(Recipe, {"name": path.stem, **table}, str(path))


def read_table(kind: type[Section], table: Mapping[str, Any], file: str, section: str = "") -> Section:
    """Build `kind(**table)` strictly: unknown keys and wrong types are refused, naming the file and the key."""
    known = annotations_of(kind)
    values: dict[str, Any] = {}
    for key, value in table.items():
        place = f"{section}.{key}" if section else key
        if key not in known:
            sections = {name: each for name, each in annotations_of(Recipe).items() if is_dataclass(each)}
            others = [name for name, each in sections.items() if key in annotations_of(each)]
            hint = f"It belongs to [{others[0]}]." if others else suggestion(key, known)
            raise RecipeError(f"{file}: {place} is not a setting. {hint}")
        if is_dataclass(known[key]) and isinstance(value, dict):
            values[key] = read_table(known[key], value, file, key)
        else:
            values[key] = read_value(known[key], value, f"{file}: {place}")
    try:
        return kind(**values)
    except ConfigError as error:
        raise RecipeError(f"{file}: {error}") from None


def read_value(kind: Any, value: object, place: str) -> object:
    """Return `value` if it has the setting's type; a whole number is accepted for a float and converted."""
    allowed = types_in(kind)
    as_float = type(value) is int and int not in allowed
    if not is_of(value, allowed) or (as_float and abs(cast("int", value)) > sys.float_info.max):
        words = {**TYPED, str: "text in quotes"}
        wanted = " or ".join(words.get(each, "a section") for each in allowed if each is not NoneType)
        raise RecipeError(f"{place} must be {wanted}; got {written(value)[:60]}.")
    return float(cast("int", value)) if as_float else value


def override(recipe: Recipe, changes: Mapping[str, object]) -> Recipe:
    """Return the recipe with some settings changed, named as in `model.n_layers`. Errors: `ConfigError`, as in a file.

    The two ways to name the files of a split replace each other: a new `data.test` unsets the old `data.test_source`,
    and the old `data.test_size`, as nothing is made then. A new `data.train` also unsets `data.environment`, of which
    it has no episodes. A new `data.task`, `data.layout`, `model.attention_rule`, `training.schedule` or
    `optimizer.name` unsets the settings that it does not read. A new `model.n_layers` unsets the recipe's
    `encoder_layers` and `decoder_layers`, which would override it.
    """
    sections: dict[str, dict[str, object]] = {}
    known = settings_of(recipe)
    for name, value in changes.items():
        if name not in known:
            raise ConfigError(f"{name} is not a setting. {suggestion(name, known)}")
        section, _, key = name.partition(".")
        sections.setdefault(section, {})[key] = value
    for section, left in _left_behind(sections).items():
        default = annotations_of(Recipe)[section]
        sections[section] = {name: getattr(default, name) for name in left} | sections.get(section, {})
    data = sections.get("data", {})
    for split in SPLITS:
        pair = {f"{split}_source": None, f"{split}_target": None}
        sections["data"] = ({split: None} if pair.keys() & data else {}) | (pair if split in data else {}) | data
        data = sections["data"]
    new = {name: replace(getattr(recipe, name), **values) for name, values in sections.items() if values}
    return replace(recipe, **new)


def _left_behind(sections: Mapping[str, Mapping[str, object]]) -> dict[str, list[str]]:
    """For each section, the settings that the new choices do not use, or that would override them."""
    chosen = {f"{section}.{key}": value for section, values in sections.items() for key, value in values.items()}
    model = unread(LAYOUTS[str(chosen["data.layout"])]) if chosen.get("data.layout") in LAYOUTS else []
    model += ["encoder_layers", "decoder_layers"] if "model.n_layers" in chosen else []
    rule = chosen.get("model.attention_rule")
    model += [] if rule is None else ignored(STACK, "attention_rule", rule)
    schedule, optimizer = chosen.get("training.schedule"), chosen.get("optimizer.name")
    left = {
        "data": [
            *(unused(kind_of(str(chosen["data.task"]))) if "data.task" in chosen else []),
            *(["environment"] if chosen.get("data.train") is not None else []),
            *(f"{split}_size" for split in SPLITS if chosen.get(f"data.{split}") is not None),
        ],
        "model": model,
        "training": [] if schedule is None else ignored(TRAINING, "schedule", schedule),
        "optimizer": [] if optimizer is None else ignored(OPTIMIZER, "name", optimizer),
    }
    return {section: names for section, names in left.items() if names}


def settings_of(recipe: Settings) -> list[str]:
    """The names of all settings of a recipe, as in `model.n_layers`."""
    parts = {name: type(getattr(recipe, name)) for name in annotations_of(Recipe)}
    return [f"{name}.{key}" for name, part in parts.items() if is_dataclass(part) for key in annotations_of(part)]


def anchored(recipe: Recipe) -> Recipe:
    """Make all paths (data files, tokenizers, `start_from`) absolute, so that the run can be resumed anywhere."""
    files = [name for split in SPLITS for name in (split, f"{split}_source", f"{split}_target", TEXTS[split])]
    named = {name: getattr(recipe.data, name) for name in files}
    found = {name: str(Path(path).expanduser().absolute()) for name, path in named.items() if path is not None}
    before = recipe.training.start_from
    before = None if before is None else str(Path(before).expanduser().absolute())
    training = replace(recipe.training, start_from=before)
    kinds = {name: getattr(recipe.tokenizer, name) for name in ("kind", "source_kind")}
    own = {name: str(Path(kind).expanduser().absolute()) for name, kind in kinds.items() if names_file(kind)}
    tokenizer = replace(recipe.tokenizer, **own)
    return replace(recipe, data=replace(recipe.data, **found), tokenizer=tokenizer, training=training)


def dumps_recipe(recipe: Settings) -> str:
    """The recipe as TOML with every setting written out; reading it gives an equal recipe."""
    lines: list[str] = []
    for name in annotations_of(Recipe):
        value = getattr(recipe, name)
        if not is_dataclass(value):
            lines.append(f"{name} = {written(value)}")
            continue
        lines += ["", f"[{name}]"]
        for key in annotations_of(type(value)):
            setting = getattr(value, key)
            lines.append(f"# {key} is not set" if setting is None else f"{key} = {written(setting)}")
    text = "\n".join(lines) + "\n"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"A recipe must be UTF-8 text; {text[error.start - 20 : error.end]!r} is not. Choose another name there."
        ) from None
    return text


def written(value: object) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


# The classic settings: those of Vaswani et al. 2017, in place of what a recipe has from later papers.

KEPT = (
    *("d_model", "n_heads", "d_head", "n_layers", "encoder_layers", "decoder_layers", "d_ff", "max_len"),
    *("dropout", "attention_dropout", "feed_forward_dropout", "token_dropout", "head_dropout"),
    *("pooling", "silent", "share_embeddings", "attention"),
)
"""Settings of [model] that a classic recipe keeps."""
RATE = ("learning_rate", "schedule", "warmup", "min_learning_rate", "cooldown")
"""Settings of [training] that a classic recipe does not keep."""


def classic(recipe: Recipe) -> Recipe:
    """The recipe with the classic settings; its data, sizes, steps, dropout and decoding stay."""
    usual = {
        **{f"model.{each.name}": each.default for each in fields(ModelRecipe) if each.name not in KEPT},
        **{f"training.{each.name}": each.default for each in fields(TrainingConfig) if each.name in RATE},
        **{f"optimizer.{each.name}": each.default for each in fields(OptimizerConfig)},
    }
    return override(recipe, usual)
