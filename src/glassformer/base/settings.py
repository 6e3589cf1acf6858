"""Settings: each is one field of a frozen dataclass, with type, default, bounds and the sentence beneath it.

From this declaration come the check of a Python argument, the key in TOML, the flag, its help, and their errors. A
class that has a setting of another class says `like`; a flat section of a recipe derives its settings from nested
configs (`Section`). What contradicts what are rows of tables, in contradictions.py. Imports no torch.
"""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Collection, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from glassformer.base.errors import ConfigError
from glassformer.base.registry import one_of, suggestion
from glassformer.base.typed import annotations_of, check_types, placed, types_in

Config = TypeVar("Config")
Names = str | Collection[str]
Number = int | float


@dataclass(frozen=True)
class Rule:
    """What a setting may be, and its place in a recipe: the arguments of `setting`."""

    least: Number | None = None
    most: Number | None = None
    above: Number | None = None
    below: Number | None = None
    why: str = ""
    advice: str | None = None
    known: Names = ()
    recipe: bool | str = True
    after: str | None = None
    varies: bool = False

    def check(self, place: str, value: Any, default: Any, *, whole: bool) -> None:
        """Refuse a value out of bounds, or a name that is not known. Errors: `ConfigError`."""
        if value is not None and self.known and not isinstance(self.known, str):
            one_of(self.known, value, place)
        bounds = (self.least, self.most, self.above, self.below)
        if bounds == (None, None, None, None) or value is None:
            return
        low = (self.least is None or value >= self.least) and (self.above is None or value > self.above)
        high = (self.most is None or value <= self.most) and (self.below is None or value < self.below)
        if not (low and high and -math.inf < value < math.inf):
            raise ConfigError(
                f"{place} must be {self.in_words(low=low, whole=whole)}; got {in_digits(value)}. "
                f"{self.remedy(place, default, low=low, whole=whole)}",
                setting=place.rpartition(".")[2],
            )

    def in_words(self, *, low: bool, whole: bool) -> str:
        """The bounds: for a whole number the one that was broken, as the other is far away."""
        lower = f"at least {shown(self.least)}" if self.least is not None else f"above {shown(self.above)}"
        upper = f"at most {shown(self.most)}" if self.most is not None else f"below {shown(self.below)}"
        if self.above == -math.inf:
            return "a finite number"
        if whole:
            return upper if low else lower + self.why
        return f"{lower} and {upper if self.most is not None or self.below is not None else 'finite'}{self.why}"

    def remedy(self, place: str, default: Any, *, low: bool, whole: bool) -> str:
        """What to give instead."""
        if self.advice is not None:
            return f"Try {place}={self.advice}."
        if low and whole:
            return "Give a smaller number."
        return f"Try {place}={shown(self.least) if whole else default}."


PLAIN = Rule()


def setting(
    default: Any, least: Number | None = None, most: Number | None = None, *, kw_only: bool = False, **rule: Any
) -> Any:
    """Declare a setting: a field of a frozen dataclass, whose sentence stands beneath it as a string.

    - `least`, `most`, `above`, `below`: its bounds; a bounded number is finite. `why` follows them in the error, and
      `advice` is what to try ("0.8; 0 is greedy decoding").
    - `known`: the names that it may have; or, as "module:REGISTRY", the registry where it is looked up when the part is
      built, as that imports torch.
    - `recipe`: its name in a flat section of a recipe, if not by rule; False: recipes do not have it. `after`: the
      setting of another class that it follows there.
    - `varies`: whether blocks of one stack may have it differently.
    """
    return field(default=default, metadata={"rule": Rule(least, most, **rule)}, kw_only=kw_only)


def like(kind: type, name: str, *default: Any) -> Any:
    """Declare a setting that `kind` has too: with the same default (if none is given), bounds and sentence."""
    found = declared_in(kind)[name]
    origin = {**found.metadata, "of": (kind, name)}
    return field(default=default[0] if default else found.default, metadata=origin)


def declared_in(kind: type) -> dict[str, Field[Any]]:
    """The fields of a dataclass, by name."""
    return {each.name: each for each in fields(kind)}


def rule_of(kind: type, name: str) -> Rule:
    """The bounds and the place of a setting."""
    return declared_in(kind)[name].metadata.get("rule", PLAIN)


def check(config: object, section: str = "") -> None:
    """Refuse values of a wrong type, out of bounds or with an unknown name; first of all when a config is made.

    `section` is the prefix of the settings' names in a recipe. Errors: `ConfigError` naming the setting.
    """
    check_types(config, section)
    for each in fields(config):  # pyright: ignore[reportArgumentType] - a dataclass
        rule = each.metadata.get("rule", PLAIN)
        if rule is not PLAIN:
            whole = float not in types_in(annotations_of(type(config))[each.name])
            rule.check(placed(section, each.name), getattr(config, each.name), each.default, whole=whole)


class Flat(NamedTuple):
    """A setting of a nested config under its name in a flat section."""

    name: str
    path: tuple[str, ...]
    """The fields that lead to it."""
    kind: type
    """The class that declares it, as the last field of `path`."""


@cache
def flat(kind: type) -> tuple[Flat, ...]:
    """All settings of a config that recipes have: `rotary.base` is `rotary_base`."""
    found: dict[str, Flat] = {}
    for name, annotation in annotations_of(kind).items():
        rule = rule_of(kind, name)
        parts = [each for each in types_in(annotation) if is_dataclass(each)]
        for part in parts if rule.recipe is not False else ():
            for each in flat(part):
                renamed = rule_of(each.kind, each.path[-1]).recipe
                own = renamed if isinstance(renamed, str) else f"{name}_{each.name}"
                found.setdefault(own, Flat(own, (name, *each.path), each.kind))
        if not parts and rule.recipe is not False:
            own = rule.recipe if isinstance(rule.recipe, str) else name
            found[own] = Flat(own, (name,), kind)
    return tuple(found.values())


def nested(kind: type, source: object) -> dict[str, Any]:
    """The arguments that make a `kind` from the flat settings of a section, those of nested configs included."""
    made: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    kinds: dict[str, type] = {}
    for each in flat(kind):
        value = getattr(source, each.name)
        if len(each.path) == 1:
            made[each.path[0]] = value
        else:
            kinds[each.path[0]] = each.kind
            inner.setdefault(each.path[0], {})[each.path[1]] = value
    return made | {name: kinds[name](**values) for name, values in inner.items()}


def flattened(config: object) -> dict[str, Any]:
    """The inverse of `nested`: the flat settings of a config."""
    values: dict[str, Any] = {}
    for each in flat(type(config)):
        part: Any = config
        for name in each.path[:-1]:
            part = getattr(part, name)
        if isinstance(part, each.kind):
            values[each.name] = getattr(part, each.path[-1])
    return values


class Section:
    """A flat section of a recipe: beside its own settings it has, by rule, those of the configs that it makes.

    `class ModelRecipe(Section, of=(StackConfig, ModelConfig))`. The order is that of the classes, except where a
    setting says what it comes `after`; those behind it follow it.
    """

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Any]]

        def __init__(self, **settings: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

    def __init_subclass__(cls, of: tuple[type, ...] = ()) -> None:
        hints: dict[str, Any] = {}
        order: list[str] = []
        own = dict(cls.__annotations__)
        for kind in (*of, None):
            at = len(order)
            for each in flat(kind) if kind else [Flat(name, (name,), cls) for name in own]:
                there = cls.__dict__ if kind is None else declared_in(each.kind)
                declared: Any = there.get(each.path[-1])
                rule = getattr(declared, "metadata", {}).get("rule", PLAIN)
                at = order.index(rule.after) + 1 if rule.after else at
                order.insert(at, each.name)
                at += 1
                if kind is None:
                    hints[each.name] = own[each.name]
                    continue
                hints[each.name] = annotations_of(each.kind)[each.path[-1]]
                origin = {"rule": rule, "of": (each.kind, each.path[-1])}
                setattr(cls, each.name, field(default=declared.default, metadata=origin))
        cls.__annotations__ = {name: hints[name] for name in order}


def built(kind: type[Config], values: Mapping[str, Any], where: str) -> Config:
    """Return `kind(**values)`, nested configs included. Errors: `ConfigError` for a key that it does not have."""
    known = annotations_of(kind)
    made = dict(values)
    for key, value in values.items():
        if key not in known:
            raise ConfigError(f"{where}.{key} is not a setting. {suggestion(key, known)}")
        inner = [each for each in types_in(known[key]) if is_dataclass(each)]
        if len(inner) == 1 and isinstance(value, Mapping):
            made[key] = built(inner[0], value, f"{where}.{key}")
    return kind(**made)


def parse(annotation: Any, text: str) -> object:
    """Return `text` as a value of a setting's type; `none` unsets what may be unset. Errors: `ValueError`."""
    allowed = types_in(annotation)
    words: dict[str, bool | None] = {"none": None} if NoneType in allowed else {}
    words |= {"true": True, "false": False} if bool in allowed else {}
    if text.lower() in words:
        return words[text.lower()]
    for each in (int, float, str):
        if each in allowed:
            return each(text)
    raise ValueError(text)


def meaning_of(kind: type, name: str) -> str:
    """The sentence beneath a setting, in the class that declares it."""
    for each in kind.__mro__:
        if is_dataclass(each) and name in (texts := explanations(each.__module__).get(each.__name__, {})):
            return texts[name]
    origin = declared_in(kind)[name].metadata.get("of")
    return meaning_of(*origin) if origin else ""


@cache
def explanations(module: str) -> dict[str, dict[str, str]]:
    """Read the sentence under each field of each class from a module's source, by class and field."""
    tree = ast.parse(Path(str(sys.modules[module].__file__)).read_text("utf-8"))
    found: dict[str, dict[str, str]] = {}
    for each in tree.body:
        texts = found.setdefault(each.name, {}) if isinstance(each, ast.ClassDef) else {}
        for one, text in zip(body := getattr(each, "body", []), body[1:], strict=False):
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and isinstance(text, ast.Expr):
                texts[one.target.id] = " ".join(str(ast.literal_eval(text.value)).split())
    return found


def shown(bound: Number | None) -> Number | None:
    """A bound for a message: 1, not 1.0."""
    return int(bound) if bound is not None and math.isfinite(bound) and bound == int(bound) else bound


def in_digits(value: Number) -> str:
    """A number as text for a message; for a very long one only its length, as Python prints no 5,000 digits."""
    return (
        f"a number of {value.bit_length()} bits" if isinstance(value, int) and value.bit_length() > 99 else str(value)
    )
