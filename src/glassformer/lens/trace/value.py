"""The `Trace` object: its contents, its file and its page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.base.errors import DataError
from glassformer.lens.page.bundle import framed, standalone
from glassformer.lens.trace.container import pack, unpack
from glassformer.lens.trace.quantise import Array, decode
from glassformer.store.files import write_bytes, write_text_atomically


@dataclass(frozen=True, eq=False)
class Trace:
    """One run of a model over one input. `schema.json` describes `header`; `buffers`: name to (encoding, elements)."""

    header: dict[str, Any]
    buffers: dict[str, tuple[str, Array]]

    def attention(self, block: str) -> Array:
        """Return the weights [layer, head, query, key] of "encoder", "decoder" or "cross".

        Errors: `DataError` if the trace has none of that kind.
        """
        for group in self.header["attention"]:
            if group["block"] == block:
                encoding, stored = self.buffers[group["buffer"]]
                return decode(stored, encoding)
        there = ", ".join(group["block"] for group in self.header["attention"])
        raise DataError(f"block must be one that this trace has ({there}); got {block!r}.")

    @property
    def sources(self) -> list[str]:
        """The tokens that the encoder read."""
        return self.header["sequences"].get("source", {"text": []})["text"]

    @property
    def output(self) -> list[str]:
        """The tokens that the model wrote, or those of the given target."""
        target = self.header["sequences"].get("target")
        if target is not None:
            return target["text"][target["n_prompt"] :]
        return [self.header["vocab"][str(step["chosen"])] for step in self.header["steps"]]

    def to_bytes(self) -> bytes:
        """Return the trace as the bytes of its file."""
        return pack({name: each for name, each in self.header.items() if name != "buffers"}, self.buffers)

    def save(self, path: Path | str) -> Path:
        """Write the trace as a file, by convention NAME.gft, and return its path."""
        path = Path(path)
        write_bytes(path, self.to_bytes())
        return path

    def to_html(self) -> str:
        """Return a self-contained HTML page that shows the trace; it works from disk, without a network."""
        return standalone([self.to_bytes()], {"name": self.header["model"]["name"]})

    def show(self) -> Page:
        """Return the page, for the last line of a notebook's cell."""
        return Page(self.to_html())

    def _repr_html_(self) -> str:
        return framed(self.to_html())


@dataclass(frozen=True)
class Page:
    """A page that a notebook shows in a sandboxed frame, from which nothing can reach the notebook."""

    html: str

    def _repr_html_(self) -> str:
        return framed(self.html)

    def save(self, path: Path | str) -> Path:
        """Write the page as a file that any browser opens, and return its path."""
        path = Path(path)
        write_text_atomically(path, self.html)
        return path


def read_trace(path: Path | str) -> Trace:
    """Read a trace from a file. Errors: `DataError` naming the damaged field, or for a file that cannot be read."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}. Give a file that trace.save() wrote.") from None
    return from_bytes(data)


def from_bytes(data: bytes) -> Trace:
    """Read a trace from the bytes of a file. Errors: `DataError` naming the damaged field."""
    header, buffers = unpack(data)
    return Trace(header, {name: (encoding, np.asarray(stored)) for name, (encoding, stored) in buffers.items()})
