"""Checking untrusted JSON bodies: an object of known fields, each of the right type and within its bounds."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import Any, NoReturn, cast

from glassformer.base.errors import DataError
from glassformer.base.registry import suggestion
from glassformer.data.tokens.vocabulary import utf8
from glassformer.serve.refusal import RefusalError

MOST_LEVELS = 100
"""How deep lists and objects may nest. JSON read just within Python's own limit could fail to be written again."""


def read_object(body: bytes) -> dict[str, Any]:
    """Parse a body as a JSON object. Errors: `RefusalError` for anything else, and for repeated names."""
    rule = f"The body must be a JSON object of at most {MOST_LEVELS} levels"
    too_deep = RefusalError(400, f"{rule}; this one is nested deeper. Send a flatter one.")
    try:
        value: object = json.loads(body.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise RefusalError(
            400, f"The body must be JSON in UTF-8; byte {error.start} of this one is not UTF-8. Encode it as UTF-8."
        ) from None
    except RecursionError:
        raise too_deep from None
    except ValueError as error:
        raise RefusalError(
            400, f"The body must be a JSON object; this one cannot be read: {str(error)[:200]}. Send valid JSON."
        ) from None
    if deeper(value, MOST_LEVELS):
        raise too_deep
    if not isinstance(value, dict):
        raise RefusalError(
            400, f"The body must be a JSON object; this one is {shown(value)}. Send an object of fields."
        )
    return cast("dict[str, Any]", value)


def deeper(value: object, levels: int) -> bool:
    """Whether lists and objects are nested more than `levels` deep."""
    within: list[Any] = [value]
    for _ in range(levels):
        inside = [each.values() if isinstance(each, dict) else each for each in within if isinstance(each, dict | list)]
        within = list(chain.from_iterable(cast("list[Iterable[Any]]", inside)))
    return any(isinstance(each, dict | list) for each in within)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise ValueError(f"the name {twice[:40]!r} occurs twice in one object")
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def shown(value: object) -> str:
    """Return a short text of a JSON value, for messages."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 99:
        return f"a number of {value.bit_length()} bits"
    text = (
        json.dumps(value)
        if not isinstance(value, dict | list) or len(cast("Any", value)) < 9
        else "a long list or object"
    )
    return text if len(text) <= 60 else text[:57] + "..."


def give(name: str) -> str:
    """Return what to do about the wrong value of a field that may be left out."""
    return f"Give such a value, or leave {name} out."


def all_texts(values: Iterable[object]) -> bool:
    """Whether all values are strings."""
    return all(isinstance(each, str) for each in values)


class Fields:
    """The fields of one body; each getter checks what it returns. Errors: `RefusalError` 400 naming the field."""

    def __init__(
        self,
        body: Mapping[str, Any],
        known: Collection[str],
        neutral: Collection[str] = (),
        *,
        of: str = "this request",
    ) -> None:
        """`neutral`: fields that may be there with a value that asks for nothing; the caller checks it."""
        self.body = body
        for name in body:
            if name not in known and name not in neutral:
                what = f"{name[:60]!r} is not a field of {of}. Remove it, or use another."
                self.refuse(name[:60], f"{what} {suggestion(name[:60], known)}")

    def refuse(self, name: str, message: str, code: str | None = None) -> NoReturn:
        """Raise `RefusalError` 400 for a field."""
        raise RefusalError(400, message, param=name, code=code)

    def given(self, name: str) -> bool:
        """Whether a field is present and not null."""
        return self.body.get(name) is not None

    def number(self, name: str, least: int, most: int, usual: float) -> float:
        """Return a number within bounds, both inclusive; `usual` if the field is absent."""
        if not self.given(name):
            return usual
        value = self.body[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            self.refuse(name, f"{name} must be a number from {least:g} to {most:g}; got {shown(value)}. {give(name)}")
        return float(value)

    def whole(self, name: str, least: int, most: int, usual: int) -> int:
        """Return an integer within bounds, both inclusive; `usual` if the field is absent."""
        if not self.given(name):
            return usual
        value = self.body[name]
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.refuse(name, f"{name} must be a whole number from {least} to {most}; got {shown(value)}. {give(name)}")
        return value

    def switch(self, name: str) -> bool:
        """Return a boolean; False if the field is absent."""
        value = self.body.get(name)
        if value is not None and not isinstance(value, bool):
            self.refuse(name, f"{name} must be true or false; got {shown(value)}. {give(name)}")
        return bool(value)

    def text(self, name: str) -> str | None:
        """Return a string; None if the field is absent."""
        value = self.body.get(name)
        if value is not None and not isinstance(value, str):
            self.refuse(name, f"{name} must be a string; got {shown(value)}. {give(name)}")
        return value

    def texts(self, name: str, most: int) -> list[str]:
        """Return the list of at most `most` strings; one string becomes a list, and an absent field an empty one."""
        value = self.body.get(name)
        if value is None:
            return []
        values: Any = [value] if isinstance(value, str) else value
        rule = f"{name} must be a string or a list of at most {most} strings"
        if not isinstance(values, list) or not all_texts(cast("list[object]", values)):
            self.refuse(name, f"{rule}; got {shown(value)}. Change it.")
        found = cast("list[str]", values)
        if len(found) > most:
            self.refuse(name, f"{rule}; got {len(found)}. Give fewer.")
        try:
            for each in found:
                utf8(each)
        except DataError as error:
            self.refuse(name, f"{name}: {error}")
        return found

    def biases(self, name: str, size: int, most: int) -> dict[int, float]:
        """Return numbers from -100 to 100 by token id; JSON writes the ids as strings."""
        value = self.body.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict) or len(cast("Any", value)) > most:
            rule = f"{name} must be an object of at most {most} numbers by token id"
            self.refuse(name, f"{rule}; got {shown(value)}. {give(name)}")
        found: dict[int, float] = {}
        for id, bias in cast("dict[str, object]", value).items():
            if not (id.isascii() and id.isdecimal() and len(id) < 10 and int(id) < size):
                rule = f"Token ids in {name} must be from 0 to {size - 1}"
                self.refuse(name, f"{rule}; got {id[:40]!r}. Use the ids of this model's tokenizer.")
            if isinstance(bias, bool) or not isinstance(bias, int | float) or not -100 <= bias <= 100:
                came = f"got {shown(bias)} for id {id}"
                self.refuse(
                    name, f"Numbers in {name} must be from -100 to 100; {came}. Change it, or leave the id out."
                )
            if int(id) in found:
                self.refuse(name, f"{name} has id {int(id)} twice. Give it once.")
            assert math.isfinite(bias)
            found[int(id)] = float(bias)
        return found
