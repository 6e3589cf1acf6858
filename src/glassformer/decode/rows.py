"""The rows of a call: what they read, what they have written, and which are done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from glassformer.base.errors import ConfigError, DataError
from glassformer.base.typed import came, is_of
from glassformer.data.rows import check_ids
from glassformer.data.tokens.vocabulary import BOS
from glassformer.decode.choose.context import Context
from glassformer.decode.choose.penalties import ends_with
from glassformer.nn.config import ModelConfig
from glassformer.nn.outputs import Lm
from glassformer.nn.transformer import Transformer

Stop = Callable[[int, Sequence[int]], bool]
"""Called with a row's place in the call and the ids that it wrote; returns whether the row ends there."""


class Emitted(NamedTuple):
    """One step: the rows that were unfinished, by their place in the call, and the token that each got."""

    rows: list[int]
    tokens: list[int]


def stops_at(sequences: Sequence[Sequence[int]]) -> Stop:
    """Make a `Stop` that ends a row once it wrote one of these sequences. Errors: `ConfigError` for an empty one."""
    if any(len(each) == 0 for each in sequences):
        raise ConfigError("A stop sequence must have at least one token; got an empty one. Remove it.")
    return lambda _, ids: any(ends_with(ids, each) for each in sequences)


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
    """The rows of a call: what they read, what they have written, and which are done."""

    sources: Sequence[Sequence[int]] | None
    prompts: Sequence[Sequence[int]]
    limits: list[int]
    numbers: Sequence[int]
    written: list[list[int]]
    done: list[bool]
    prefix: bool = False

    def grow(self, step: Emitted, eos: int, stop: Stop | None) -> Iterator[Emitted]:
        """Append a step's tokens to its rows and yield it; then mark the rows that end by `eos`, limit or `stop`."""
        for row, token in zip(step.rows, step.tokens, strict=True):
            self.written[row].append(token)
        yield step
        for row, token in zip(step.rows, step.tokens, strict=True):
            ids = self.written[row]
            self.done[row] = token == eos or len(ids) >= self.limits[row] or (stop is not None and stop(row, ids))

    def context(self, going: Sequence[int]) -> Context:
        """Make the `Context` of these rows, for filters and `choose`."""
        return Context(
            [self.numbers[row] for row in going],
            [self.prompts[row] for row in going],
            [self.written[row] for row in going],
        )


def begin_rows(
    model: Transformer,
    sources: Sequence[Sequence[int]] | None,
    prompts: Sequence[Sequence[int]] | None,
    max_new_tokens: int | Sequence[int],
    numbers: Sequence[int] | None = None,
) -> Rows:
    """Check the arguments of a call and make its rows. Errors: `ConfigError` and `DataError` for invalid arguments."""
    if not model.config.stack.causal:
        raise ConfigError("generate() needs a causal model; this one reads in both directions. Use fill_blanks().")
    if (sources is None) == (model.encoder is not None and model.decoder is not None):
        came_with = "none. Give sources." if sources is None else "sources. Give only prompts."
        raise ConfigError(f"An encoder-decoder needs sources, a model of one stack takes none; got {came_with}")
    if sources is not None:
        check_sources(model, sources)
    if prompts is not None:
        check_ids(prompts, model.config.vocab_size or 0, "prompts")
    if prompts is None:
        if sources is None:
            raise ConfigError("A decoder continues prompts; got none. Give prompts; [[BOS]] begins a new text.")
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
    return Rows(sources, prompts, limits, numbers, [[] for _ in prompts], [False] * n_rows)
