"""The rows of a call that decodes: its checked arguments, what each row has written, and what one step reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch

from glassformer.base.errors import ConfigError, DataError
from glassformer.base.shapes import Float, Tensor
from glassformer.base.typed import came, is_of
from glassformer.data.batch import check_ids, pad
from glassformer.data.tokens.vocabulary import BOS, EOS
from glassformer.decode.filters import Context
from glassformer.nn.cache import Cache
from glassformer.nn.config import ModelConfig
from glassformer.nn.outputs import Lm
from glassformer.nn.transformer import Transformer

Stop = Callable[[int, Sequence[int]], bool]
"""Called with a row's place in the call and the ids that it wrote; returns whether the row ends there."""


class Emitted(NamedTuple):
    """One step: the rows that were unfinished, by their place in the call, and the token that each got."""

    rows: list[int]
    tokens: list[int]


def check_writes(model: Transformer) -> None:
    """Refuse anything but a model whose head predicts tokens. Errors: `ConfigError`."""
    if not isinstance(getattr(model, "config", None), ModelConfig):
        raise ConfigError(f"Only a Transformer can write tokens; got {came(model)}. Give the model first.")
    if not isinstance(model.config.head, Lm):
        raise ConfigError(
            f"Only a model with head=Lm() can write tokens; this one has head {model.config.head.kind!r}. "
            "Call model(tokens, keep=keep), or label_probabilities() for a classifier."
        )


def check_sources(model: Transformer, sources: Sequence[Sequence[int]]) -> None:
    """Refuse ids outside the source vocabulary. Errors: `DataError` with the row and column in `sources`."""
    size = model.config.source_vocab_size or model.config.vocab_size
    if size is not None:
        check_ids(sources, size, "sources")


class Rows(NamedTuple):
    """The rows of a call, with its arguments as in `generate`: what they have written, and which are done."""

    sources: Sequence[Sequence[int]] | None
    prompts: Sequence[Sequence[int]]
    limits: list[int]
    numbers: Sequence[int]
    written: list[list[int]]
    done: list[bool]
    prefix: bool
    max_context: int | None
    drop: int

    def begin(self, row: int, more: int = 0) -> int:
        """How many of a row's tokens are left out at the front, now or once it has so many `more`."""
        return begin_of(len(self.prompts[row]) + len(self.written[row]) + more, self.max_context, self.drop)

    def grow(self, step: Emitted, eos: int, stop: Stop | None) -> Iterator[Emitted]:
        """Append a step's tokens to its rows and yield it; then mark the rows that end by `eos`, limit or `stop`."""
        for row, token in zip(step.rows, step.tokens, strict=True):
            self.written[row].append(token)
        yield step
        for row, token in zip(step.rows, step.tokens, strict=True):
            ids = self.written[row]
            self.done[row] = token == eos or len(ids) >= self.limits[row] or (stop is not None and stop(row, ids))

    def context(self, active: Sequence[int]) -> Context:
        """Make the `Context` of these rows, for filters and `choose`."""
        return Context(
            [self.numbers[row] for row in active],
            [self.prompts[row] for row in active],
            [self.written[row] for row in active],
        )


def begin_rows(
    model: Transformer,
    max_new_tokens: int | Sequence[int],
    sources: Sequence[Sequence[int]] | None = None,
    prompts: Sequence[Sequence[int]] | None = None,
    numbers: Sequence[int] | None = None,
    prefix: bool = False,
    max_context: int | None = None,
    drop: int = 1,
) -> Rows:
    """Check the arguments of a call, which are those of `generate`, and make its rows.

    Errors: `ConfigError` and `DataError` for invalid arguments.
    """
    check_context(model, max_context, drop)
    if not model.config.stack.causal:
        raise ConfigError("generate() needs a causal model; this one reads in both directions. Use fill_blanks().")
    if (sources is None) == (model.encoder is not None and model.decoder is not None):
        came_with = "none. Give sources." if sources is None else "sources. Give only prompts."
        raise ConfigError(f"An encoder-decoder needs sources, a model of one stack takes none; got {came_with}")
    if sources is not None:
        check_sources(model, sources)
    if prompts is not None:
        check_ids(prompts, model.config.vocab_size or 0, "prompts")
    elif sources is None:
        raise ConfigError("A decoder continues prompts; got none. Give prompts; [[BOS]] begins a new text.")
    else:
        prompts = [[BOS]] * len(sources)
    if sources is not None and len(sources) != len(prompts):
        raise DataError(f"Each source needs one prompt; got {len(sources)} sources and {len(prompts)} prompts.")
    lengths = [len(prompt) for prompt in prompts]
    if 0 in lengths:
        raise DataError(
            "A prompt needs at least one token; prompt "
            f"{lengths.index(0)} (counted from 0) is empty. Begin it with BOS."
        )
    n_rows = len(prompts)
    limits = list(max_new_tokens) if isinstance(max_new_tokens, Sequence) else [max_new_tokens] * n_rows
    if len(limits) != n_rows or any(not is_of(limit, (int,)) or limit < 1 for limit in limits):
        raise ConfigError(f"max_new_tokens must be at least 1, once or for each of {n_rows} rows; got {limits!r:.60}.")
    numbers = range(n_rows) if numbers is None else numbers
    if len(numbers) != n_rows:
        raise ConfigError(f"numbers must have one for each of the {n_rows} rows; got {len(numbers)}. Remove numbers.")
    written = [list[int]() for _ in prompts]
    return Rows(sources, prompts, limits, numbers, written, [False] * n_rows, prefix, max_context, drop)


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

    active: list[int]
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
    shared: list[int] | None = None
    """For each row of the call, which row here stands for it and others with the same start; None: each for itself."""

    def select(self, rows: Sequence[int]) -> Run:
        """Keep these rows of the batch, in this order; one that comes twice is copied."""
        at = torch.tensor(rows, device=self.tokens.device)
        self.cache.select(at)
        keep, prefix = (None if each is None else each[at] for each in (self.keep, self.prefix))
        active, begins = [self.active[i] for i in rows], [self.begins[i] for i in rows]
        return Run(active, begins, self.tokens[at], keep, self.cache, *self.memory_of(rows), prefix)

    def memory_of(self, rows: Sequence[int]) -> tuple[Tensor | None, Tensor | None]:
        """The memory that these rows of the batch read, and its `memory_keep`; not copied where it is all as it was."""
        if [self.active[i] for i in rows] == self.active:  # rows of one source read the same, in whichever order
            return self.memory, self.memory_keep
        at = torch.tensor(rows, device=self.tokens.device)
        memory, keep = (None if each is None else each[at] for each in (self.memory, self.memory_keep))
        return memory, keep


def read_first(model: Transformer, rows: Rows, *, whole: bool = False) -> Run:
    """Prepare the first step: encode the sources; the step will read the prompts. What several rows read, one reads.

    `whole`: as in `Transformer.new_cache`.
    """
    sources = [()] * len(rows.prompts) if rows.sources is None else rows.sources
    texts = [(tuple(source), tuple(prompt)) for source, prompt in zip(sources, rows.prompts, strict=True)]
    first: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    firsts = [first.setdefault(text, row) for row, text in enumerate(texts)]
    once = list(first.values())
    read = None if rows.sources is None else [rows.sources[row] for row in once]
    run = read_anew(model, rows, once, *memories(model, read), whole=whole)
    places = {row: place for place, row in enumerate(once)}
    return run if len(once) == len(texts) else run._replace(shared=[places[row] for row in firsts])


def forward(model: Transformer, run: Run) -> tuple[Run, Float[Tensor, "B T D"]]:
    """Read a run's tokens; return it, and their last vectors. Rows that begin alike part with this step."""
    of_source = {"memory": run.memory, "source_keep": run.memory_keep}
    hidden = model.hidden(run.tokens, keep=run.keep, prefix=run.prefix, cache=run.cache, **of_source)
    if run.shared is None:
        return run, hidden
    return run.select(run.shared)._replace(active=list(range(len(run.shared)))), hidden[run.shared]


def memories(model: Transformer, sources: Sequence[Sequence[int]] | None) -> tuple[Tensor | None, Tensor | None]:
    """Encode the sources; return (memory, keep). Memory is None without sources, keep is None without padding."""
    if sources is None:
        return None, None
    source, keep = pad([[*source, EOS] for source in sources], next(model.parameters()).device)
    return model.encode(source, keep), keep


def read_anew(
    model: Transformer,
    rows: Rows,
    active: list[int],
    memory: Tensor | None,
    memory_keep: Tensor | None,
    *,
    whole: bool = False,
) -> Run:
    """Prepare a step that reads these rows from their begin, into a new cache."""
    begins, device = [rows.begin(row) for row in active], next(model.parameters()).device
    texts = [ids[begin:] for ids, begin in zip(rows.context(active).read, begins, strict=True)]
    tokens, keep = pad([ids[::-1] for ids in texts], device)
    keep = None if keep is None else keep.flip(1)  # padded on the left: each row's last token is in the last column
    lengths = [max(0, len(rows.prompts[row]) - begin) for row, begin in zip(active, begins, strict=True)]
    prefix = torch.tensor(lengths, device=device) if rows.prefix else None
    return Run(active, begins, tokens.flip(1), keep, model.new_cache(whole=whole), memory, memory_keep, prefix)
