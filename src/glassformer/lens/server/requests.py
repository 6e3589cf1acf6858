"""Parsing the page's requests: every field is checked, and unknown fields are refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from glassformer.base.errors import ConfigError, DataError
from glassformer.base.registry import suggestion
from glassformer.decode.beam_settings import BeamSettings
from glassformer.decode.choose.sampling import Sampling
from glassformer.lens.trace.answering import Manner
from glassformer.lens.trace.reading import MOST_TOKENS, Text

MOST_NEW = 256
"""The most tokens that one request may ask for."""
MOST_BEAM = 16
"""The largest beam of a request."""
KINDS = ("zero", "mean")
SOURCES = ("text", "ids", "trace")
"""The fields that name the input; a request has exactly one of them."""
DECODE = ("temperature", "top_k", "top_p", "seed", "max_new_tokens", "beam")


class TraceRequest(NamedTuple):
    """A text to answer or to continue, or a trace whose text to answer again; and how."""

    source: Text
    """A text or ids; unused if `trace` is given."""
    trace: str | None
    gold: str | None
    begin: tuple[int, ...]
    manner: Manner | None
    """None: as that trace was written, or the default."""


class AblateRequest(NamedTuple):
    """Heads to ablate, and the trace to make again without them."""

    trace: str
    heads: list[tuple[str, int, int]]
    kind: str


class PatchRequest(NamedTuple):
    """Two traces: activations of `trace` are patched into a pass over the input of `other`."""

    trace: str
    other: str


def patch_request(data: bytes) -> PatchRequest:
    """Parse the fields of POST /api/patch. Errors: `DataError` naming the field."""
    given = fields(data, PatchRequest._fields)
    for name in PatchRequest._fields:
        if not isinstance(given.get(name), str):
            raise DataError(f"{name} must be the id of a trace. Take one from GET /api/traces.")
    return PatchRequest(**given)


def trace_request(data: bytes) -> TraceRequest:
    """Parse the fields of POST /api/trace and /api/generate. Errors: `DataError` and `ConfigError` naming the field."""
    given = fields(data, (*SOURCES, "gold", "begin", "decode"))
    named = [name for name in SOURCES if name in given]
    if len(named) != 1 or (named[0] != "ids" and not isinstance(given[named[0]], str)):
        raise DataError(
            "A request needs text (a string), ids or trace (an id), one of them. Type a text for the model."
        )
    if not isinstance(given.get("gold", ""), str):
        raise DataError("gold, the correct answer, must be a string. Leave it out if you do not know it.")
    ids, begin = ids_of(given, "ids", MOST_TOKENS), ids_of(given, "begin", MOST_NEW)
    how = manner(given["decode"]) if "decode" in given else None
    return TraceRequest(given.get("text", ids), given.get("trace"), given.get("gold"), begin, how)


def ids_of(given: Mapping[str, Any], name: str, most: int) -> tuple[int, ...]:
    """Parse a field with token ids; empty if it is absent. Errors: `DataError`."""
    ids = given.get(name, [])
    if not isinstance(ids, list) or len(ids) > most or not all(type(id) is int and 0 <= id < 2**31 for id in ids):
        raise DataError(f"{name} must be a list of at most {most:,} token ids. Correct it or leave it out.")
    return tuple(ids)


def manner(decode: object) -> Manner:
    """Parse the field `decode`: how to write an answer. Errors: `DataError` and `ConfigError` naming the field."""
    if not isinstance(decode, dict):
        raise DataError("decode must be a JSON object of settings. Correct it or leave it out.")
    known(decode, DECODE, "decode.")
    whole = {"top_k", "seed", "max_new_tokens", "beam"}
    for name, value in decode.items():
        if isinstance(value, bool) or not isinstance(value, int if name in whole else int | float):
            kind = "a whole number" if name in whole else "a number"
            raise ConfigError(f"decode.{name} must be {kind}; got {value!r:.20}. Correct it or leave it out.")
    values: dict[str, Any] = {"temperature": 0.0} | decode
    most, beam = values.pop("max_new_tokens", None), values.pop("beam", 1)
    for name, value, highest in (("max_new_tokens", most, MOST_NEW), ("beam", beam, MOST_BEAM)):
        if value is not None and not 1 <= value <= highest:
            raise ConfigError(f"decode.{name} must be a whole number from 1 to {highest}; got {value!r:.20}.")
    try:
        values |= {name: float(values[name]) for name in ("temperature", "top_p") if name in values}
    except OverflowError:
        raise ConfigError("decode.temperature and decode.top_p must be finite. Try 1.0.") from None
    return Manner(Sampling(**values), most, BeamSettings(beam=beam))


def ablate_request(data: bytes) -> AblateRequest:
    """Parse the fields of POST /api/ablate. Errors: `DataError` naming the field."""
    given = fields(data, AblateRequest._fields)
    heads, kind = given.get("heads"), given.get("kind", "zero")
    if kind not in KINDS:
        raise DataError(f"kind, what replaces a head's output, must be {' or '.join(KINDS)}; got {kind!r:.40}.")
    if not isinstance(given.get("trace"), str):
        raise DataError("trace must be the id of a trace. Take one from GET /api/traces.")
    if not isinstance(heads, list) or not 1 <= len(heads) <= 4096:
        raise DataError("heads must be a list of heads. Choose at least one.")
    found: list[tuple[str, int, int]] = []
    for each in heads:
        match each:
            case {"block": str(block), "layer": int(layer), "head": int(head)} if (
                0 <= layer < 4096 and 0 <= head < 4096 and not isinstance(layer, bool) and not isinstance(head, bool)
            ):
                found.append((block, layer, head))
            case _:
                raise DataError(f"A head has the fields block, layer and head, counted from 0; got {each!r:.60}.")
    return AblateRequest(given["trace"], found, kind)


def fields(data: bytes, names: tuple[str, ...]) -> dict[str, Any]:
    """Parse a body as a JSON object. Errors: `DataError` for anything else, and for an unknown field."""
    try:
        given = json.loads(data)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise DataError("The body of a request must be a JSON object; this one is not.")
    known(given, names, "")
    return given


def known(given: Mapping[str, Any], names: tuple[str, ...], where: str) -> None:
    """Raise `DataError`, with the nearest name, for an unknown field."""
    for name in given:
        if name not in names:
            raise DataError(f"{where}{name[:40]} is not a field of this request. {suggestion(name, names)}")
