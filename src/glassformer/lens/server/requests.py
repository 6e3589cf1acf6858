"""What a page may ask of the model: every field is checked, and none that is not known is let through."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from glassformer.decode.sampling import Sampling
from glassformer.foundation.errors import ConfigError, DataError
from glassformer.foundation.registry import suggestion

MOST_NEW = 256
"""Tokens that one request may ask for."""
DECODE = ("temperature", "top_k", "top_p", "seed", "max_new_tokens")


class TraceRequest(NamedTuple):
    """A text to answer, or to go on from."""

    text: str
    gold: str | None
    sampling: Sampling
    max_new_tokens: int | None


class AblateRequest(NamedTuple):
    """Heads to take out, and the trace that is to be made again without them."""

    trace: str
    heads: list[tuple[str, int, int]]


class PatchRequest(NamedTuple):
    """Two traces: what the model did in one is put into its reading of the other."""

    trace: str
    other: str


def patch_request(data: bytes) -> PatchRequest:
    """The fields of POST /api/patch. Errors: `DataError`, by field."""
    given = fields(data, PatchRequest._fields)
    for name in PatchRequest._fields:
        if not isinstance(given.get(name), str):
            raise DataError(f"{name} must be the id of a trace. Open one.")
    return PatchRequest(**given)


def trace_request(data: bytes) -> TraceRequest:
    """The fields of POST /api/trace. Errors: `DataError` and `ConfigError`, by field."""
    given = fields(data, ("text", "gold", "decode"))
    decode = given.get("decode", {})
    if not isinstance(given.get("text"), str):
        raise DataError("text must be a text. Type something for the model to read.")
    if not isinstance(given.get("gold", ""), str) or not isinstance(decode, dict):
        raise DataError("gold must be a text, and decode an object. Leave them out.")
    known(decode, DECODE, "decode.")
    most = decode.pop("max_new_tokens", None)
    if most is not None and (not isinstance(most, int) or not 1 <= most <= MOST_NEW):
        raise ConfigError(f"max_new_tokens must be a whole number from 1 to {MOST_NEW}; got {most!r:.20}.")
    for name, value in decode.items():
        if isinstance(value, bool) or not isinstance(value, int if name in ("top_k", "seed") else int | float):
            raise ConfigError(f"decode.{name} must be a number; got {value!r:.20}. Leave it out.")
    values: dict[str, Any] = {"temperature": 0.0} | decode
    values |= {name: float(values[name]) for name in ("temperature", "top_p") if name in values}
    return TraceRequest(given["text"], given.get("gold"), Sampling(**values), most)


def ablate_request(data: bytes) -> AblateRequest:
    """The fields of POST /api/ablate. Errors: `DataError`, by field."""
    given = fields(data, ("trace", "heads"))
    heads = given.get("heads")
    if not isinstance(given.get("trace"), str):
        raise DataError("trace must be the id of a trace. Open one.")
    if not isinstance(heads, list) or not 1 <= len(heads) <= 4096:
        raise DataError("heads must be a list of heads. Choose at least one.")
    found: list[tuple[str, int, int]] = []
    for each in heads:
        match each:
            case {"block": str(block), "layer": int(layer), "head": int(head)} if (
                0 <= layer < 4096 and 0 <= head < 4096
            ):
                found.append((block, layer, head))
            case _:
                raise DataError(f"A head is its block, layer and head, counted from 0; got {each!r:.60}.")
    return AblateRequest(given["trace"], found)


def fields(data: bytes, names: tuple[str, ...]) -> dict[str, Any]:
    """The JSON object of a body. Errors: `DataError` for anything else, and for an unknown field."""
    try:
        given = json.loads(data)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise DataError("A request is a JSON object; this one cannot be read as one.")
    known(given, names, "")
    return given


def known(given: Mapping[str, Any], names: tuple[str, ...], where: str) -> None:
    """Refuse a field that is none. Errors: `DataError` with the nearest name."""
    for name in given:
        if name not in names:
            raise DataError(f"{where}{name[:40]} is no field. {suggestion(name, names)}")
