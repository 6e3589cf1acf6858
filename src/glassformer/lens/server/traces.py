"""The traces in memory: those of the run's examples, and the latest ones that were requested."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from glassformer.base.errors import GlassformerError
from glassformer.decode.answer import nothing
from glassformer.lens.observe import head_id
from glassformer.lens.server.requests import Poll, TraceRequest
from glassformer.lens.server.subject import Head, Subject
from glassformer.lens.trace.file import header_text
from glassformer.lens.trace.reading import USUAL_MANNER, Manner, Text
from glassformer.lens.trace.value import Trace

MOST_TRACES = 32
"""The most traces in memory; beyond it, the oldest requested one is dropped."""
UNKNOWN = f"There is no such trace: only the run's own and the latest are kept, {MOST_TRACES} in all. Ask for it again."


class Asked(NamedTuple):
    """What the model was asked to answer, and how."""

    source: Text
    gold: Text | None = None
    manner: Manner = USUAL_MANNER
    without: tuple[Head, ...] = ()
    """Heads that are ablated."""
    kind: str = "zero"
    """What they output instead: nothing ("zero") or their mean ("mean")."""

    def without_too(self, heads: Sequence[Head], kind: str) -> Asked:
        """Return a copy with these heads ablated too. Errors: `GlassformerError` if the kinds differ."""
        if self.without and kind != self.kind:
            raise GlassformerError(
                f"Heads are replaced in one way only, and in this trace it is {self.kind!r}; got {kind!r}. Choose "
                f"{self.kind!r}, or a trace with all heads."
            )
        return self._replace(without=tuple(dict.fromkeys([*self.without, *heads])), kind=kind)

    @property
    def note(self) -> str:
        """A note that tells it from other answers to the same text, except for its forced prefix."""
        names = [head_id(*each) for each in self.without]
        how = "without" if self.kind == "zero" else "with the mean of"
        notes = [f"{how} {', '.join(names) if len(names) < 4 else f'{len(names)} heads'}"] if names else []
        return ", ".join([*notes, f"beam {self.manner.search.beam}"] if self.manner.search.beam > 1 else notes)


class Kept(NamedTuple):
    """A trace in memory, its header as sent, and what was asked."""

    trace: Trace
    header: bytes
    asked: Asked


class Traces:
    """The traces of one server, by ids that count up."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.known: dict[str, Kept] = {}
        self.made = 0
        self.own = len(subject.examples)
        for example in subject.examples:
            asked = Asked(*example)
            self.keep(self.run(asked), asked)

    def keep(self, made: Trace, asked: Asked) -> str:
        """Store a trace and return its id."""
        name = str(self.made)
        self.made += 1
        notes = [note for note in (asked.note, made.header["run"].get("note")) if note]
        if asked.manner.begin:
            (last,) = self.subject.tokenizers.target.tokens(asked.manner.begin[-1:])
            notes.append(f"with {last} as token {len(asked.manner.begin)}")
        made.header["run"] |= {"id": name} | ({"note": ", ".join(notes)} if notes else {})
        self.known[name] = Kept(made, header_text(made.header, made.buffers), asked)
        while len(self.known) > max(MOST_TRACES, self.own):
            del self.known[list(self.known)[self.own]]
        return name

    def run(self, asked: Asked, manner: Manner | None = None, *, poll: Poll = nothing) -> Trace:
        """Trace the model's answer without the ablated heads; `manner` replaces the one in `asked`."""
        manner = (manner or asked.manner)._replace(poll=poll)
        with self.fewer(asked):
            return self.subject.trace(asked.source, asked.gold, manner)

    def score(self, asked: Asked, *, poll: Poll = nothing) -> tuple[str, float, int] | None:
        """Measure the subject's score without the ablated heads; None if it has no score."""
        with self.fewer(asked):
            return None if self.subject.score is None else self.subject.score(poll)

    def fewer(self, asked: Asked) -> AbstractContextManager[None]:
        """Ablate the heads for the length of a `with`. Errors: `GlassformerError` if the subject does not allow it."""
        if not asked.without:
            return nullcontext()
        if self.subject.silence is None:
            raise GlassformerError("Heads cannot be removed on this page. Open the run with glassformer explore RUN.")
        return self.subject.silence(self.subject.model, asked.without, asked.kind)

    def answer(self, given: TraceRequest, heard: Callable[[int], None] | None = None, *, poll: Poll = nothing) -> str:
        """Make the trace that a request asks for and return its id. Errors: `GlassformerError` for an unknown trace."""
        if given.trace is None:
            asked = Asked(given.source, given.gold)
        elif (kept := self.known.get(given.trace)) is not None:
            asked = kept.asked
        else:
            raise GlassformerError(UNKNOWN)
        asked = asked._replace(manner=(given.manner or asked.manner)._replace(begin=given.begin))
        return self.keep(self.run(asked, asked.manner._replace(heard=heard), poll=poll), asked)


def repeated(known: Kept) -> Manner:
    """Return the manner that forces the model to write the same tokens again, one by one."""
    target = known.trace.header["sequences"].get("target")
    if target is None:
        return known.asked.manner
    said = target["ids"][target["n_prompt"] :]
    return Manner(most=len(said), begin=said)


def answered(trace: Trace) -> list[str]:
    """Return the model's own answer: its label, the tokens it wrote or, for a given target, its most likely tokens."""
    header = trace.header
    if header["run"]["mode"] == "number":
        return [f"{name}: {number:.6g}" for name, number in header["labels"]]
    if "labels" in header:
        return [header["labels"][0][0]]
    if header["run"]["mode"] == "forced":
        return [header["vocab"][str(step["top"][0][0])] for step in header["steps"]]
    return trace.output


def title(trace: Trace) -> str:
    """Return a title: the first words that the model read, and the note."""
    sequences = trace.header["sequences"]
    side = sequences.get("source") or sequences["target"]
    words = [text for text, special in zip(side["text"], side["special"], strict=True) if not special][:24]
    text = ("" if all(len(word) <= 1 for word in words) else " ").join(words)[:60] or "(empty)"
    note = trace.header["run"].get("note")
    return f"{text} · {note}" if note else text
