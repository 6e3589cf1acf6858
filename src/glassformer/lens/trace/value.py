"""The `Trace` object: its contents, its file and its page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from glassformer.base.errors import DataError
from glassformer.decode.answer import nothing
from glassformer.lens.observe import head_id
from glassformer.lens.page.bundle import framed, standalone
from glassformer.lens.patch import Input, Patching, patch
from glassformer.lens.trace.file import Array, decode, pack, unpack
from glassformer.nn.transformer import Transformer
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
    """Read a trace from a file. Errors: `DataError` naming the damaged field, or for a file that cannot be read.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from glassformer import ModelConfig, StackConfig, Transformer, read_trace, trace
    >>> from glassformer.data.config import TokenizerConfig
    >>> from glassformer.data.tokenizer import TOKENIZERS
    >>> letters = TOKENIZERS["character"].train(["abc"], TokenizerConfig())
    >>> stack = StackConfig(d_model=8, n_heads=2, n_layers=1, d_ff=8)
    >>> model = Transformer(ModelConfig(letters.vocab_size, encoder=stack, decoder=stack))
    >>> with TemporaryDirectory() as folder:
    ...     path = trace(model, letters, "abc", target="cba").save(Path(folder) / "seen.gft")
    ...     read_trace(path).attention("cross").shape
    (1, 2, 4, 4)
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}. Give a file that trace.save() wrote.") from None
    return from_bytes(data)


def from_bytes(data: bytes) -> Trace:
    """Read a trace from the bytes of a file. Errors: `DataError` naming the damaged field."""
    header, buffers = unpack(data)
    return Trace(header, {name: (encoding, np.asarray(stored)) for name, (encoding, stored) in buffers.items()})


# Activation patching between two traces: which parts of one bring its answer back on the other's text (`patch`).


class Asked(NamedTuple):
    """The arguments of `patch`."""

    one: Input
    other: Input
    said: list[int | None]


def patch_traces(model: Transformer, one: Trace, other: Trace, *, poll: Callable[[], None] = nothing) -> Patching:
    """Patch activations of one trace into a pass over the other's text with the first one's answer; return the effects.

    `poll` is that of `patch`. Errors: `DataError` if the texts differ in length or the model writes no tokens.
    """
    return patch(model, *asked(one.header, other.header, next(model.parameters()).device), poll=poll)


def asked(one: Mapping[str, Any], other: Mapping[str, Any], device: torch.device) -> Asked:
    """Put the answer of one trace after the texts of both. Errors: `DataError` for a model that writes no tokens."""
    if not one["steps"]:
        raise DataError("Patching needs a model that writes tokens; this one gives labels. See `glassformer heads`.")
    texts, others = one["sequences"], other["sequences"]
    said = {step["pos"]: step["chosen"] for step in one["steps"]}
    if "target" not in texts:
        rows = texts["source"]["ids"], others["source"]["ids"]
        inputs = [Input(torch.tensor([ids], device=device)) for ids in rows]
    elif "source" in texts:
        tokens = torch.tensor([texts["target"]["ids"][:-1]], device=device)
        inputs = [Input(tokens, torch.tensor([each["source"]["ids"]], device=device)) for each in (texts, others)]
    else:
        begun = texts["target"]["n_prompt"]
        answer = texts["target"]["ids"][begun:-1]
        prompts = (each["target"]["ids"][: each["target"]["n_prompt"]] for each in (texts, others))
        inputs = [Input(torch.tensor([[*prompt, *answer]], device=device)) for prompt in prompts]
        said = {place: token for place, token in said.items() if place >= begun - 1}
    return Asked(inputs[0], inputs[1], [said.get(place) for place in range(inputs[0].tokens.shape[1])])


def patching_as_json(found: Patching) -> dict[str, Any]:
    """Return the effects as JSON: heads with the strongest first, streams by stack and blocks."""
    heads: list[dict[str, Any]] = [
        {"id": head_id(*where, head), "block": where[0], "layer": where[1], "head": head, "effect": float(effect)}
        for where, effects in found.heads.items()
        for head, effect in enumerate(effects)
    ]
    streams = [{"side": side, "effects": effects.tolist()} for side, effects in found.streams.items()]
    return {
        "one": found.one,
        "other": found.other,
        "heads": sorted(heads, key=lambda each: -abs(each["effect"])),
        "streams": streams,
    }
