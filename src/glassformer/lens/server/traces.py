"""The traces of one launch: those of the run's examples, and the last that were asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from glassformer.decode.answer import nothing
from glassformer.foundation.errors import GlassformerError
from glassformer.lens.server.requests import TraceRequest
from glassformer.lens.server.subject import Subject
from glassformer.lens.trace.answering import USUAL_MANNER, Manner
from glassformer.lens.trace.container import header_text
from glassformer.lens.trace.reading import Text
from glassformer.lens.trace.value import Trace

MOST_TRACES = 32
"""Kept at once; the oldest of those that were asked for goes first."""


class Asked(NamedTuple):
    """What the model answered, and how."""

    source: Text
    gold: Text | None = None
    manner: Manner = USUAL_MANNER


class Kept(NamedTuple):
    """A trace that is known, its header as it is sent, and what was asked."""

    trace: Trace
    header: bytes
    asked: Asked


class Traces:
    """What the model answered, by ids that count up."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.known: dict[str, Kept] = {}
        self.made = 0
        for example in subject.examples:
            self.keep(subject.trace(*example), Asked(*example))
        self.own = len(self.known)

    def keep(self, made: Trace, asked: Asked, note: str = "") -> str:
        """The id under which a trace is known from now on; a note tells it from others of the same text."""
        name = str(self.made)
        self.made += 1
        made.header["run"] |= {"id": name} | ({"note": note} if note else {})
        self.known[name] = Kept(made, header_text(made.header, made.buffers), asked)
        while len(self.known) > MOST_TRACES:
            del self.known[list(self.known)[self.own]]
        return name

    def answer(
        self, asked: TraceRequest, heard: Callable[[int], None] | None = None, poll: Callable[[], None] = nothing
    ) -> str:
        """The id of the trace that a request asks for. Errors: `GlassformerError` where it names one not known."""
        before = Asked(asked.text or "", asked.gold)
        if asked.text is None:
            kept = self.known.get(asked.trace or "")
            if kept is None:
                raise GlassformerError("A trace is gone on from that is known; open one of this launch.")
            before = kept.asked
        manner = (asked.manner or before.manner)._replace(begin=asked.begin)
        made = self.subject.trace(before.source, before.gold, manner._replace(heard=heard, poll=poll))
        notes = [f"beam {manner.search.beam}"] if manner.search.beam > 1 else []
        if manner.begin:
            (last,) = self.subject.tokenizers.target.tokens(manner.begin[-1:])
            notes.append(f"with {last} as token {len(manner.begin)}")
        return self.keep(made, before._replace(manner=manner), ", ".join(notes))


def repeated(known: Kept) -> Manner:
    """The manner in which the model writes once more, token by token, what it wrote."""
    target = known.trace.header["sequences"].get("target")
    if target is None:
        return known.asked.manner
    said = target["ids"][target["n_prompt"] :]
    return Manner(most=len(said), begin=said)


def title(trace: Trace) -> str:
    """The first words that were read, and the note."""
    sequences = trace.header["sequences"]
    side = sequences.get("source") or sequences["target"]
    words = [text for text, special in zip(side["text"], side["special"], strict=True) if not special][:24]
    text = ("" if all(len(word) <= 1 for word in words) else " ").join(words)[:60] or "(empty)"
    note = trace.header["run"].get("note")
    return f"{text} · {note}" if note else text
