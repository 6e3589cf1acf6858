"""The traces of one launch: those of the run's examples, and the last that were asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from glassformer.decode.answer import nothing
from glassformer.foundation.errors import GlassformerError
from glassformer.lens.blocks import head_id
from glassformer.lens.server.requests import TraceRequest
from glassformer.lens.server.stream import Poll
from glassformer.lens.server.subject import Head, Subject
from glassformer.lens.trace.answering import USUAL_MANNER, Manner
from glassformer.lens.trace.container import header_text
from glassformer.lens.trace.reading import Text
from glassformer.lens.trace.value import Trace

MOST_TRACES = 32
"""Kept at once; the oldest of those that were asked for goes first."""
UNKNOWN = f"There is no such trace any more, as {MOST_TRACES} are kept: those of the run, and the last ones. Ask again."


class Asked(NamedTuple):
    """What the model answered, and how."""

    source: Text
    gold: Text | None = None
    manner: Manner = USUAL_MANNER
    without: tuple[Head, ...] = ()
    """Heads that gave something else meanwhile."""
    kind: str = "zero"
    """What they gave: nothing, or their mean."""

    def without_too(self, heads: Sequence[Head], kind: str) -> Asked:
        """The same, without these heads, either. Errors: `GlassformerError` for two kinds."""
        if self.without and kind != self.kind:
            raise GlassformerError(f"This trace is without heads by {self.kind} already. Take a trace with all heads.")
        return self._replace(without=tuple(dict.fromkeys([*self.without, *heads])), kind=kind)

    @property
    def note(self) -> str:
        """What tells it from other answers to the same text, but for how it was begun."""
        names = [head_id(*each) for each in self.without]
        how = "without" if self.kind == "zero" else "with the mean of"
        notes = [f"{how} {', '.join(names) if len(names) < 4 else f'{len(names)} heads'}"] if names else []
        return ", ".join([*notes, f"beam {self.manner.search.beam}"] if self.manner.search.beam > 1 else notes)


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
        self.own = len(subject.examples)
        for example in subject.examples:
            asked = Asked(*example)
            self.keep(self.run(asked), asked)

    def keep(self, made: Trace, asked: Asked) -> str:
        """The id under which a trace is known from now on."""
        name = str(self.made)
        self.made += 1
        notes = [asked.note] if asked.note else []
        if asked.manner.begin:
            (last,) = self.subject.tokenizers.target.tokens(asked.manner.begin[-1:])
            notes.append(f"with {last} as token {len(asked.manner.begin)}")
        made.header["run"] |= {"id": name} | ({"note": ", ".join(notes)} if notes else {})
        self.known[name] = Kept(made, header_text(made.header, made.buffers), asked)
        while len(self.known) > max(MOST_TRACES, self.own):
            del self.known[list(self.known)[self.own]]
        return name

    def run(self, asked: Asked, manner: Manner | None = None, *, poll: Poll = nothing) -> Trace:
        """The model's answer, or what it writes in another manner, without the heads that are left out."""
        manner = (manner or asked.manner)._replace(poll=poll)
        with self.fewer(asked):
            return self.subject.trace(asked.source, asked.gold, manner)

    def score(self, asked: Asked, *, poll: Poll = nothing) -> tuple[str, float, int] | None:
        """The figure of the subject without the heads that are left out; None where it has none."""
        with self.fewer(asked):
            return None if self.subject.score is None else self.subject.score(poll)

    def fewer(self, asked: Asked) -> AbstractContextManager[None]:
        """While it lasts, the model is without some heads. Errors: `GlassformerError` where it cannot be."""
        if not asked.without:
            return nullcontext()
        if self.subject.silence is None:
            raise GlassformerError("This model is shown as it is, and no head can be taken out.")
        return self.subject.silence(self.subject.model, asked.without, asked.kind)

    def answer(self, given: TraceRequest, heard: Callable[[int], None] | None = None, *, poll: Poll = nothing) -> str:
        """The id of the trace that a request asks for. Errors: `GlassformerError` where it names one not known."""
        if given.trace is None:
            asked = Asked(given.source, given.gold)
        elif (kept := self.known.get(given.trace)) is not None:
            asked = kept.asked
        else:
            raise GlassformerError(UNKNOWN)
        asked = asked._replace(manner=(given.manner or asked.manner)._replace(begin=given.begin))
        return self.keep(self.run(asked, asked.manner._replace(heard=heard), poll=poll), asked)


def repeated(known: Kept) -> Manner:
    """The manner in which the model writes once more, token by token, what it wrote."""
    target = known.trace.header["sequences"].get("target")
    if target is None:
        return known.asked.manner
    said = target["ids"][target["n_prompt"] :]
    return Manner(most=len(said), begin=said)


def answered(trace: Trace) -> list[str]:
    """The model's own answer: its label; the tokens that it wrote; of tokens that were given, the likeliest."""
    header = trace.header
    if "labels" in header:
        return [header["labels"][0][0]]
    if header["run"]["mode"] == "forced":
        return [header["vocab"][str(step["top"][0][0])] for step in header["steps"]]
    return trace.output


def title(trace: Trace) -> str:
    """The first words that were read, and the note."""
    sequences = trace.header["sequences"]
    side = sequences.get("source") or sequences["target"]
    words = [text for text, special in zip(side["text"], side["special"], strict=True) if not special][:24]
    text = ("" if all(len(word) <= 1 for word in words) else " ").join(words)[:60] or "(empty)"
    note = trace.header["run"].get("note")
    return f"{text} · {note}" if note else text
