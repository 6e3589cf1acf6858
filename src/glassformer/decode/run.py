"""The rows of a batch between two steps: what the next step reads, and what the model has read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from glassformer.base.errors import ConfigError
from glassformer.base.shapes import Float, Tensor
from glassformer.data.rows import pad
from glassformer.data.tokens.vocabulary import EOS
from glassformer.decode.rows import Rows
from glassformer.nn.cache import Cache
from glassformer.nn.transformer import Transformer


def begin_of(length: int, max_context: int | None, drop: int) -> int:
    """How many of `length` tokens to leave out at the front, so that at most `max_context` are read."""
    over = 0 if max_context is None else max(0, length - max_context)
    return -(-over // drop) * drop


def check_context(model: Transformer, max_context: int | None, drop: int) -> None:
    """Refuse a `max_context` longer than the model takes, and a `drop` out of bounds. Errors: `ConfigError`."""
    longest = model.config.stack.max_len
    if max_context is not None and longest is not None and max_context > longest:
        raise ConfigError(f"max_context must be at most max_len={longest}; got {max_context}. Try {longest}.")
    if max_context is None and drop != 1:
        raise ConfigError(f"drop belongs to max_context, which is not set; got drop={drop}. Set it, or remove drop.")
    if max_context is not None and not 1 <= drop <= max_context:
        raise ConfigError(f"drop must be from 1 to max_context={max_context}; got {drop}. Try drop=1.")


class Run(NamedTuple):
    """The state that one step passes to the next."""

    going: list[int]
    """The rows in the batch, by their places in the call."""
    begins: list[int]
    """How many tokens were left out at the front of each."""
    tokens: Tensor
    keep: Tensor | None
    cache: Cache
    memory: Tensor | None
    memory_keep: Tensor | None
    prefix: Tensor | None
    """How many tokens at the start of each row are read in both directions; None means none."""
    alike: list[int] | None = None
    """For each row of the call, which row here stands for it and others that begin alike; None: each for itself."""

    def select(self, rows: Sequence[int]) -> Run:
        """Keep these rows of the batch, in this order; one that comes twice is copied."""
        at = torch.tensor(rows, device=self.tokens.device)
        self.cache.select(at)
        keep, prefix = (None if each is None else each[at] for each in (self.keep, self.prefix))
        going, begins = [self.going[i] for i in rows], [self.begins[i] for i in rows]
        return Run(going, begins, self.tokens[at], keep, self.cache, *self.memory_of(rows), prefix)

    def memory_of(self, rows: Sequence[int]) -> tuple[Tensor | None, Tensor | None]:
        """The memory that these rows of the batch read, and its `memory_keep`; not copied where it is all as it was."""
        if [self.going[i] for i in rows] == self.going:  # rows of one source read the same, in whichever order
            return self.memory, self.memory_keep
        at = torch.tensor(rows, device=self.tokens.device)
        memory, keep = (None if each is None else each[at] for each in (self.memory, self.memory_keep))
        return memory, keep


def read_first(
    model: Transformer, rows: Rows, max_context: int | None = None, drop: int = 1, *, whole: bool = False
) -> Run:
    """Prepare the first step: encode the sources; the step will read the prompts. What several rows read, one reads.

    `whole`: as in `Transformer.new_cache`.
    """
    sources = [()] * len(rows.prompts) if rows.sources is None else rows.sources
    texts = [(tuple(source), tuple(prompt)) for source, prompt in zip(sources, rows.prompts, strict=True)]
    first: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    firsts = [first.setdefault(text, row) for row, text in enumerate(texts)]
    once = list(first.values())
    read = None if rows.sources is None else [rows.sources[row] for row in once]
    run = read_anew(model, rows, once, max_context, drop, *memories(model, read), whole=whole)
    places = {row: place for place, row in enumerate(once)}
    return run if len(once) == len(texts) else run._replace(alike=[places[row] for row in firsts])


def forward(model: Transformer, run: Run) -> tuple[Run, Float[Tensor, "B T D"]]:
    """Read a run's tokens; return it, and their last vectors. Rows that begin alike part with this step."""
    of_source = {"memory": run.memory, "source_keep": run.memory_keep}
    hidden = model.hidden(run.tokens, keep=run.keep, prefix=run.prefix, cache=run.cache, **of_source)
    if run.alike is None:
        return run, hidden
    return run.select(run.alike)._replace(going=list(range(len(run.alike)))), hidden[run.alike]


def memories(model: Transformer, sources: Sequence[Sequence[int]] | None) -> tuple[Tensor | None, Tensor | None]:
    """Encode the sources; return (memory, keep). Memory is None without sources, keep is None without padding."""
    if sources is None:
        return None, None
    device = next(model.parameters()).device
    source, keep = pad([[*source, EOS] for source in sources])
    keep = None if keep is None else keep.to(device)
    return model.encode(source.to(device), keep), keep


def read_anew(
    model: Transformer,
    rows: Rows,
    going: list[int],
    max_context: int | None,
    drop: int,
    memory: Tensor | None,
    memory_keep: Tensor | None,
    *,
    whole: bool = False,
) -> Run:
    """Prepare a step that reads these rows from their begin, into a new cache."""
    texts = rows.context(going).read
    begins = [begin_of(len(ids), max_context, drop) for ids in texts]
    tokens, keep = _pad_left([ids[begin:] for ids, begin in zip(texts, begins, strict=True)])
    device = next(model.parameters()).device
    keep = None if keep is None else keep.to(device)
    lengths = [max(0, len(rows.prompts[row]) - begin) for row, begin in zip(going, begins, strict=True)]
    prefix = torch.tensor(lengths, device=device) if rows.prefix else None
    return Run(going, begins, tokens.to(device), keep, model.new_cache(whole=whole), memory, memory_keep, prefix)


def _pad_left(prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor | None]:
    """Pad prompts on the left, so that the last column holds the last token of every row."""
    tokens, keep = pad([list(reversed(prompt)) for prompt in prompts])
    return tokens.flip(1), None if keep is None else keep.flip(1)
