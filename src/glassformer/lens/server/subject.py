"""What a server shows: a model with its tokenizers, and what is known of its run. Every path stays in here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from glassformer.data.dataset import Tokenizers
from glassformer.lens.server.figures import figures
from glassformer.lens.server.samples import samples
from glassformer.lens.trace.answering import USUAL_MANNER, Manner
from glassformer.lens.trace.make import trace
from glassformer.lens.trace.reading import USUAL, Layout, Text
from glassformer.lens.trace.value import Trace
from glassformer.model.transformer import Transformer

MOST_PAIRS = 100
"""Of heads that read alike: so many are told of, and how many there are."""
Head = tuple[str, int, int]
"""(block, layer, head)."""
Example = tuple[Text, Text | None]
"""A source and, where it is known, the right answer."""


Score = Callable[[Callable[[], None]], tuple[str, float, int]]
"""Is given what is called now and then meanwhile, and ends it where it raises."""


@runtime_checkable
class Silence(Protocol):
    """silence(model, heads, kind): while the `with` lasts, these heads give nothing ("zero"), or their "mean"."""

    def __call__(self, model: Transformer, heads: Iterable[Head], kind: str = "zero") -> AbstractContextManager[None]:
        """The `with`."""
        ...


@dataclass(frozen=True)
class Subject:
    """A model to look into, and what is known of it."""

    name: str
    model: Transformer
    tokenizers: Tokenizers
    layout: Layout = USUAL
    examples: Sequence[Example] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    """For the header of traces: `name`, `task`, `step`."""
    run: Path | None = None
    """Its folder, where its figures are."""
    heads: Sequence[Mapping[str, Any]] = ()
    """What each head does, as the header of a trace has it."""
    sentences: Sequence[str] = ()
    history: Callable[[], dict[str, Any]] | None = None
    """Roles over checkpoints; may take seconds."""
    silence: Silence | None = None
    score: Score | None = None
    """A figure of the model as it is now: its name, its value, and of how many samples."""
    kept: Callable[[], Sequence[int]] = tuple
    """The steps of the checkpoints that there are now."""
    similar: Sequence[Sequence[Any]] | None = None
    """Pairs of heads that read alike, most alike first: (one, other, divergence in bits); None: not looked for."""
    others: Sequence[tuple[str, Path]] = ()
    """Runs whose curves are drawn beside its own: name and folder."""
    study: Mapping[str, Any] | None = None
    """The study that the run is an arm of: `name`, `metric`, `share`, `n`; of each arm `values`, `seed`, `figure`, and
    `data`, a digest."""

    def trace(self, source: Text, gold: Text | None = None, manner: Manner = USUAL_MANNER) -> Trace:
        """The model's answer to a source, as a trace that knows the heads' roles."""
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
        return made

    def facts(self) -> dict[str, Any]:
        """What the page is told of the run."""
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
        """The run's figures from line `since` on."""
        return [] if self.run is None else figures(self.run, since)

    def samples(self) -> list[dict[str, Any]]:
        """What the run wrote at its evaluations."""
        return [] if self.run is None else [each._asdict() for each in samples(self.run)]

    def beside(self) -> list[dict[str, Any]]:
        """Name and figures of each of the other runs."""
        return [{"name": name, "metrics": figures(run)} for name, run in self.others]
