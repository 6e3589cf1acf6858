"""A validator for a small part of JSON Schema: enough for `schema.json`, which the explorer's page reads too.

It knows `type` (one or several), `enum`, `const`, `required`, `properties`, `additionalProperties` (a schema),
`items`, `minItems`, `maxItems`, `minimum` and `$ref` to `#/$defs/NAME`. Without `additionalProperties`, fields that
`properties` does not name are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from glassformer.base.errors import DataError

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}


@cache
def header_schema() -> Mapping[str, Any]:
    """Return the schema of a trace's header."""
    return json.loads(files("glassformer.lens.trace").joinpath("schema.json").read_text("utf-8"))


def check(value: object, schema: Mapping[str, Any], where: str = "header") -> None:
    """Raise `DataError`, naming the field like `header.steps[0].p`, for a value that does not fit the schema."""
    _check(value, schema, schema, where)


def _check(value: object, schema: Mapping[str, Any], root: Mapping[str, Any], where: str) -> None:
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is(value, kind) for kind in kinds):
        raise _wrong(where, f"must be of type {' or '.join(kinds)}", value)
    if "const" in schema and value != schema["const"]:
        raise _wrong(where, f"must be {schema['const']!r}", value)
    if "enum" in schema and value not in schema["enum"]:
        raise _wrong(where, f"must be one of {', '.join(map(repr, schema['enum']))}", value)
    if "minimum" in schema and isinstance(value, int | float) and value < schema["minimum"]:
        raise _wrong(where, f"must be at least {schema['minimum']}", value)
    if isinstance(value, dict):
        _check_object(value, schema, root, where)
    if isinstance(value, list):
        _check_array(value, schema, root, where)


def _check_object(value: Mapping[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any], where: str) -> None:
    known: Mapping[str, Any] = schema.get("properties", {})
    for name in schema.get("required", []):
        if name not in value:
            raise DataError(f"A trace must have the field {where}.{name}; this one has none. {REMEDY}")
    for name, each in value.items():
        if name in known:
            _check(each, known[name], root, f"{where}.{name}")
        elif "additionalProperties" in schema:
            _check(each, schema["additionalProperties"], root, f"{where}.{name}")


def _check_array(value: Sequence[Any], schema: Mapping[str, Any], root: Mapping[str, Any], where: str) -> None:
    least, most = schema.get("minItems", 0), schema.get("maxItems", len(value))
    if not least <= len(value) <= most:
        raise _wrong(where, f"must have from {least} to {most} entries", value)
    if "items" in schema:
        for i, each in enumerate(value):
            _check(each, schema["items"], root, f"{where}[{i}]")


REMEDY = "The file is damaged, or another program wrote it; make the trace again."


def _is(value: object, kind: str) -> bool:
    return isinstance(value, TYPES[kind]) and not (isinstance(value, bool) and kind in ("number", "integer"))


def _wrong(where: str, rule: str, value: object) -> DataError:
    return DataError(f"{where} of a trace {rule}; got {value!r:.60}. {REMEDY}")
