"""Storing attention weights in few bytes, and decoding them.

| encoding | bytes per weight | largest error | what becomes 0 |
| sqrt255 | 1 | 0.004, and 1e-5 where weights are small | below 1e-6 |
| u16 | 2 | 0.000008 | below 0.000008 |
| f32 | 4 | none | nothing |

The square root puts most of the 256 levels near 0, where most weights of a softmax are.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from glassformer.base.errors import DataError
from glassformer.base.registry import lookup
from glassformer.store.files import refuse_constant

Array = NDArray[Any]


class Encoding(NamedTuple):
    """How numbers become the elements of a buffer, and back."""

    dtype: str
    """In numpy's notation; always little-endian."""
    levels: int | None = None
    """Weights in [0, 1] become whole numbers up to this one; None: numbers stay as they are."""
    root: bool = False
    """Whether the square root of a weight is stored."""


ENCODINGS: dict[str, Encoding] = {
    "sqrt255": Encoding("|u1", 255, root=True),
    "u16": Encoding("<u2", 65535),
    "f32": Encoding("<f4"),
    "flag": Encoding("|u1"),
}
"""`flag`: 1 for yes, 0 for no."""


def encode(numbers: Array, encoding: str) -> Array:
    """Return the elements to store; `sqrt255` and `u16` need weights in [0, 1]. Errors: `ConfigError` for the name."""
    dtype, levels, root = lookup(ENCODINGS, encoding, "encoding")
    if levels is not None:
        numbers = np.rint(levels * (np.sqrt(numbers) if root else numbers))
    return numbers.astype(dtype)


def decode(stored: Array, encoding: str) -> Array:
    """Return the numbers that the elements encode."""
    _, levels, root = lookup(ENCODINGS, encoding, "encoding")
    numbers = stored.astype(np.float32)
    if levels is not None:
        numbers = numbers / levels
    return np.square(numbers) if root else numbers


def brief(value: float) -> float:
    """Round to six significant digits, more than is ever shown."""
    return float(f"{value:.6g}")


# A validator for a small part of JSON Schema: enough for `schema.json`, which the explorer's page reads too.

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


def check(value: object, schema: Mapping[str, Any], where: str, root: Mapping[str, Any]) -> None:
    """Raise `DataError`, naming the field like `header.steps[0].p`, for a value that does not fit the schema.

    `root`: the whole schema, which has the definitions.
    """
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is(value, kind) for kind in kinds):
        raise wrong(where, f"must be of type {' or '.join(kinds)}", value)
    if "const" in schema and value != schema["const"]:
        raise wrong(where, f"must be {schema['const']!r}", value)
    if "enum" in schema and value not in schema["enum"]:
        raise wrong(where, f"must be one of {', '.join(map(repr, schema['enum']))}", value)
    if "minimum" in schema and isinstance(value, int | float) and value < schema["minimum"]:
        raise wrong(where, f"must be at least {schema['minimum']}", value)
    if isinstance(value, dict):
        known: Mapping[str, Any] = schema.get("properties", {})
        for name in schema.get("required", []):
            if name not in value:
                raise DataError(f"A trace must have the field {where}.{name}; this one has none. {REMEDY}")
        for name, each in value.items():
            if name in known:
                check(each, known[name], f"{where}.{name}", root)
            elif "additionalProperties" in schema:
                check(each, schema["additionalProperties"], f"{where}.{name}", root)
    if isinstance(value, list):
        least, most = schema.get("minItems", 0), schema.get("maxItems", len(value))
        if not least <= len(value) <= most:
            raise wrong(where, f"must have from {least} to {most} entries", value)
        if "items" in schema:
            for i, each in enumerate(value):
                check(each, schema["items"], f"{where}[{i}]", root)


REMEDY = "The file is damaged, or another program wrote it; make the trace again."


def _is(value: object, kind: str) -> bool:
    return isinstance(value, TYPES[kind]) and not (isinstance(value, bool) and kind in ("number", "integer"))


def wrong(where: str, rule: str, value: object) -> DataError:
    """The error for a part of the header."""
    return DataError(f"{where} of a trace {rule}; got {value!r:.60}. {REMEDY}")


# The file format of a trace: `GFT1`, header length (u32), header (JSON in UTF-8), buffers aligned to 8 bytes.

MAGIC = b"GFT1"
ALIGNED = 8
VERSION = 1


Buffers = Mapping[str, tuple[str, Array]]
"""Name to encoding and elements, as stored."""


def pack(header: Mapping[str, Any], buffers: Buffers) -> bytes:
    """Return the bytes of a trace file with this header (without `buffers`) and these buffers."""
    text = header_text(header, buffers)
    text += b" " * (-(len(MAGIC) + 4 + len(text)) % ALIGNED)
    stored = (piece(buffers, name) for name in buffers)
    return b"".join(
        [MAGIC, struct.pack("<I", len(text)), text, *(each + bytes(-len(each) % ALIGNED) for each in stored)]
    )


def header_text(header: Mapping[str, Any], buffers: Buffers) -> bytes:
    """Return the complete header as JSON, with `buffers`. Errors: `DataError` if it does not fit the schema."""
    entries: dict[str, Any] = {}
    offset = 0
    for name, (encoding, stored) in buffers.items():
        size = stored.size * np.dtype(ENCODINGS[encoding].dtype).itemsize
        entries[name] = {"encoding": encoding, "shape": list(stored.shape), "offset": offset, "nbytes": size}
        offset += size + -size % ALIGNED
    whole = finite({**header, "format": "gft", "version": VERSION, "buffers": entries})
    check_header(whole, offset)
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def piece(buffers: Buffers, name: str, layer: int | None = None) -> bytes:
    """Return the bytes of a buffer or of one layer of it."""
    encoding, stored = buffers[name]
    return np.ascontiguousarray(stored if layer is None else stored[layer], ENCODINGS[encoding].dtype).tobytes()


def cut(data: bytes) -> tuple[bytes, dict[str, list[bytes]]]:
    """Split the bytes of a file into its header, as stored, and its buffers: attention in one piece for each layer."""
    begin = 8 + struct.unpack("<I", data[4:8])[0]
    header = json.loads(data[8:begin])
    by_layer = {group["buffer"]: group["layers"] for group in header["attention"]}
    pieces: dict[str, list[bytes]] = {}
    for name, entry in header["buffers"].items():
        at, size = begin + entry["offset"], entry["nbytes"] // by_layer.get(name, 1)
        pieces[name] = [data[at + i * size : at + (i + 1) * size] for i in range(by_layer.get(name, 1))]
    return data[8:begin], pieces


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, tuple[str, Array]]]:
    """Parse and check the header and the buffers of a file. Errors: `DataError` naming the damaged field."""
    if data[:4] != MAGIC:
        raise DataError(
            f"A trace file begins with GFT1; this one begins with {data[:4]!r}. Give a file that trace.save() wrote."
        )
    (length,) = struct.unpack("<I", data[4:8]) if len(data) >= 8 else (-1,)
    begin = 8 + length
    if not 0 <= length <= len(data) - 8:
        raise DataError(
            f"The header of a trace must fit into its file; got {length} bytes in a file of {len(data)}. {REMEDY}"
        )
    try:
        header = json.loads(data[8:begin].decode("utf-8"), parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise DataError(f"The header of a trace must be JSON; this one is not ({error!s:.80}). {REMEDY}") from None
    check_header(header, len(data) - begin)
    buffers: dict[str, tuple[str, Array]] = {}
    for name, entry in header["buffers"].items():
        dtype = ENCODINGS[entry["encoding"]].dtype
        at = begin + entry["offset"]
        flat = np.frombuffer(data[at : at + entry["nbytes"]], dtype)
        buffers[name] = (entry["encoding"], flat.reshape(entry["shape"]))
    return header, buffers


def check_header(header: object, room: int) -> None:
    """Raise `DataError` for a header that contradicts the schema, itself, or the `room` bytes after it."""
    version = cast("dict[str, object]", header).get("version") if isinstance(header, dict) else None
    if isinstance(version, int) and version != VERSION:
        raise DataError(
            f"This glassformer reads traces of version {VERSION} (header.version); got {version}. Open it "
            "with the version that wrote it."
        )
    check(header, header_schema(), "header", header_schema())
    known = cast("dict[str, Any]", header)
    for name, entry in known["buffers"].items():
        where = f"header.buffers.{name}"
        size = math.prod(entry["shape"]) * np.dtype(ENCODINGS[entry["encoding"]].dtype).itemsize
        if entry["nbytes"] != size:
            raise wrong(f"{where}.nbytes", f"must be {size}, by its shape and encoding", entry["nbytes"])
        if entry["offset"] % ALIGNED or entry["offset"] + size > room:
            rule = f"must be a multiple of {ALIGNED}, followed by {size} bytes"
            raise wrong(f"{where}.offset", rule, entry["offset"])
    for i, group in enumerate(known["attention"]):
        _check_group(f"header.attention[{i}]", group, known)
    if (terms := known.get("attribution")) is not None:
        shape, there = [len(terms["names"]), len(known["steps"])], known["buffers"].get(terms["buffer"])
        if there is None or there["shape"] != shape:
            raise wrong("header.attribution.buffer", f"must be a buffer of shape {shape}, parts by steps", there)
    for side, sequence in known["sequences"].items():
        for field in ("text", "special"):
            if len(sequence[field]) != len(sequence["ids"]):
                rule = f"must be a list of {len(sequence['ids'])} entries, one for each id"
                raise wrong(f"header.sequences.{side}.{field}", rule, len(sequence[field]))


def _check_group(where: str, group: Mapping[str, Any], header: Mapping[str, Any]) -> None:
    for side in ("q", "k"):
        length = length_of(header, group[side])
        if group[f"{side}_len"] != length:
            raise wrong(f"{where}.{side}_len", f"must be {length}, the length of {group[side]}", group[f"{side}_len"])
    shape = [group["layers"], group["heads"], group["q_len"], group["k_len"]]
    wanted = {
        "buffer": shape,
        "mask_buffer": shape[2:],
        "thumb": None,
        "value_sizes": [*shape[:2], shape[3]],
        "log_sums": shape[:3],
    }
    for field, expected in wanted.items():
        name = group.get(field)
        if name is None and not (field == "mask_buffer" and group["mask"] == "explicit"):
            continue
        entry = header["buffers"].get(name)
        if entry is None:
            raise wrong(f"{where}.{field}", "must be the name of a buffer", name)
        if expected is not None and entry["shape"] != expected:
            raise wrong(f"header.buffers.{name}.shape", f"must be {expected}, by {where}", entry["shape"])


def length_of(header: Mapping[str, Any], sequence: str) -> int:
    """Return the length of `source` or `target_in`; the latter is the target without its last token, never read."""
    side, less = ("target", 1) if sequence == "target_in" else ("source", 0)
    return len(header["sequences"].get(side, {"ids": []})["ids"]) - less


def finite(value: Any) -> Any:
    """Replace every number that is not finite with None, as JSON has no such numbers."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(each) for key, each in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in cast("list[Any]", value)]
    return value
