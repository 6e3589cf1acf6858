"""What the explorer shows: a model with its tokenizers, and facts of its run. No file path is sent to the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from glassformer.data.dataset import Tokenizers
from glassformer.lens.server.run_logs import figures, samples
from glassformer.lens.trace.answering import USUAL_MANNER, Manner
from glassformer.lens.trace.make import trace
from glassformer.lens.trace.reading import USUAL, Layout, Text, as_ids
from glassformer.lens.trace.value import Trace
from glassformer.nn.transformer import Transformer
from glassformer.train.sample_lengths import Untrained, compared

MOST_PAIRS = 100
"""How many pairs of similar heads the page gets, besides their total number."""
Head = tuple[str, int, int]
"""(block, layer, head)."""
Example = tuple[Text, Text | None]
"""A source and, if known, the correct answer."""


Score = Callable[[Callable[[], None]], tuple[str, float, int]]
"""Takes a function to call repeatedly during the work, which ends the work if it raises."""


@runtime_checkable
class Silence(Protocol):
    """silence(model, heads, kind): within the `with`, these heads output nothing ("zero") or their mean ("mean")."""

    def __call__(self, model: Transformer, heads: Iterable[Head], kind: str = "zero") -> AbstractContextManager[None]:
        """Return the context manager."""
        ...


@dataclass(frozen=True)
class Subject:
    """A model to inspect, and facts of its run."""

    name: str
    model: Transformer
    tokenizers: Tokenizers
    layout: Layout = USUAL
    examples: Sequence[Example] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    """For the header of traces: `name`, `task`, `step`."""
    run: Path | None = None
    """The run's folder, which has its metrics."""
    heads: Sequence[Mapping[str, Any]] = ()
    """What each head does, in the format of a trace's header."""
    sentences: Sequence[str] = ()
    history: Callable[[], dict[str, Any]] | None = None
    """Returns head roles over checkpoints; may take seconds."""
    silence: Silence | None = None
    score: Score | None = None
    """Measures the model in its current state: the metric's name, its value, and the number of samples."""
    kept: Callable[[], Sequence[int]] = tuple
    """Returns the steps of the current checkpoints."""
    similar: Sequence[Sequence[Any]] | None = None
    """Pairs of heads with similar attention, most similar first: (one, other, divergence in bits); None: unknown."""
    others: Sequence[tuple[str, Path]] = ()
    """Runs whose curves are drawn beside its own: name and folder."""
    untrained: Callable[[int], Untrained | None] = lambda _: None
    """Whether a source of so many tokens is shorter or longer than every one in training."""
    study: Mapping[str, Any] | None = None
    """The study that the run is an arm of: `name`, `metric`, `share`, `split`, `n`; for each arm `values`, `seed`,
    `figure` and `data`, a digest."""

    def trace(self, source: Text, gold: Text | None = None, manner: Manner = USUAL_MANNER) -> Trace:
        """Trace the model's answer to a source; the trace includes the heads' roles."""
        made = trace(
            self.model,
            self.tokenizers,
            source,
            gold=gold,
            sampling=manner.sampling,
            search=manner.search,
            max_new_tokens=manner.most,
            begin=manner.begin,
            heard=manner.heard,
            poll=manner.poll,
            layout=self.layout,
            about={"name": self.name, **self.about},
        )
        made.header["heads"] = [dict(each) for each in self.heads]
        if new := self.untrained(len(as_ids(source, self.tokenizers.source))):
            made.header["run"]["note"] = compared([new])
        return made

    def facts(self) -> dict[str, Any]:
        """Return the facts of the run for the page."""
        ids = self.tokenizers.source.decode
        examples = [source if isinstance(source, str) else ids(source) for source, _ in self.examples]
        told: dict[str, Any] = {
            "name": self.name,
            "sentences": list(self.sentences),
            "examples": examples,
            "alike": len(self.similar or ()),
        }
        told["similar"] = None if self.similar is None else list(self.similar[:MOST_PAIRS])
        told["study"] = self.study
        told["others"] = [name for name, _ in self.others]
        return told | {"live": True, "checkpoints": self.history is not None, "kept": list(self.kept())}

    def lines(self, since: int = 0) -> list[dict[str, Any]]:
        """Return the run's metrics from line `since` on."""
        return [] if self.run is None else figures(self.run, since)

    def samples(self) -> list[dict[str, Any]]:
        """Return what the model wrote at the run's evaluations."""
        return [] if self.run is None else [each._asdict() for each in samples(self.run)]

    def beside(self) -> list[dict[str, Any]]:
        """Return name and metrics of each of the other runs."""
        return [{"name": name, "metrics": figures(run)} for name, run in self.others]
