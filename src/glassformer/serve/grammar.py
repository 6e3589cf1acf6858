"""Grammars of requests: read from their fields and first built in a process of their own, where they do no harm."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple, cast

from glassformer.base.errors import GlassformerError
from glassformer.decode.choose.constrained import Constraint, States, of_regex, of_schema
from glassformer.decode.choose.context import Filter
from glassformer.serve import trial
from glassformer.serve.fields import Fields, give, shown
from glassformer.serve.refusal import RefusalError

LONGEST = 65_536
"""The most characters of an expression or a schema."""
SECONDS = 2.0
"""The time limit for building a grammar; a slower one is refused."""
KINDS = "text, json_object or json_schema"


class Wish(NamedTuple):
    """The grammar that a request asks for: a regular expression or a JSON schema (as JSON), and its field."""

    field: str
    regex: str = ""
    schema: str = ""


def wish_of(fields: Fields) -> Wish | None:
    """Return what `response_format` (OpenAI's field) or `structured_outputs` (vLLM's) asks for."""
    named = response_format(fields), structured_outputs(fields)
    if all(named):
        fields.refuse(
            "structured_outputs",
            "A text follows either response_format or structured_outputs; got both. Give only one.",
        )
    wish = named[0] or named[1]
    if wish is not None and len(wish.regex + wish.schema) > LONGEST:
        n = len(wish.regex + wish.schema)
        fields.refuse(wish.field, f"{wish.field} may have at most {LONGEST} characters; got {n}. Give a shorter one.")
    if wish is not None and any("\ud800" <= each <= "\udfff" for each in wish.regex + wish.schema):
        fields.refuse(
            wish.field, f"{wish.field} must be valid Unicode; this one has half of a surrogate pair. Remove it."
        )
    return wish


def response_format(fields: Fields) -> Wish | None:
    """Return the schema in {"type": "json_schema", "json_schema": {"name": ..., "schema": {...}}}.

    For {"type": "json_object"}, return the schema of any object; for {"type": "text"}, None.
    """
    name = "response_format"
    inner = inside(fields, name, {"type", "json_schema"})
    kind = None if inner is None else inner.text("type")
    if inner is None or kind == "text":
        return None
    if kind == "json_object":
        return Wish(name, schema='{"type": "object"}')
    if kind != "json_schema":
        fields.refuse(name, f"The type of response_format must be {KINDS}; got {shown(kind)}. Give one of these.")
    told = inside(inner, "json_schema", {"name", "description", "schema", "strict"})
    if told is None or not told.given("schema"):
        needs = '{"json_schema": {"name": ..., "schema": {...}}}'
        fields.refuse(name, f"response_format of type json_schema needs {needs}; got no schema. Give one.")
    for each in ("name", "description"):
        told.text(each)
    told.switch("strict")
    return Wish(name, schema=written_out(told, "schema"))


def structured_outputs(fields: Fields) -> Wish | None:
    """Return the expression in {"regex": ...} or the schema in {"json": ...}."""
    name = "structured_outputs"
    inner = inside(fields, name, {"regex", "json"})
    if inner is None:
        return None
    if inner.given("regex") == inner.given("json"):
        came = "both" if inner.given("json") else "none"
        fields.refuse(name, f"structured_outputs takes either regex or json; got {came}. Give exactly one of them.")
    if inner.given("json"):
        return Wish(name, schema=written_out(inner, "json"))
    return Wish(name, regex=inner.text("regex") or "()")


def inside(fields: Fields, name: str, known: set[str]) -> Fields | None:
    """Return the fields of an object that is a field's value, or None if the field is absent."""
    value: Any = fields.body.get(name)
    if value is None:
        return None
    if not isinstance(value, dict):
        fields.refuse(name, f"{name} must be an object; got {shown(value)}. {give(name)}")
    return Fields(cast("dict[str, Any]", value), known, of=name)


def written_out(fields: Fields, name: str) -> str:
    """Return a schema as JSON text, whether it was sent as JSON or as a string of JSON."""
    value = fields.body[name]
    return value if isinstance(value, str) else json.dumps(value)


def followed(wish: Wish, states: States) -> Filter:
    """Build the filter of a wish in up to `SECONDS`. Errors: `RefusalError` 400 for an invalid or too large grammar."""
    try:
        grammar = of_regex(wish.regex) if wish.regex else of_schema(wish.schema)
        check_small(wish.field, grammar.text)
        return Constraint(states, grammar).filter
    except GlassformerError as error:
        raise RefusalError(400, str(error), param=wish.field) from None


def check_small(field: str, grammar: str) -> None:
    """Build the grammar in a separate process first, as some small ones take hours and all memory.

    Errors: `RefusalError` 400.
    """
    command = [sys.executable, "-P", str(Path(trial.__file__))]
    try:
        quick = subprocess.run(command, input=grammar.encode(), timeout=SECONDS, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        quick = False
    if not quick:
        message = f"The grammar must be built within {SECONDS:g} seconds; this one was not. Use a simpler one."
        raise RefusalError(400, message, param=field, code="grammar_too_large")
