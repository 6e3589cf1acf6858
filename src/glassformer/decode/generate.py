"""Decoding token by token: encode the source once, then yield one token per step for every unfinished row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch

from glassformer.data.rows import check_ids, pad
from glassformer.data.tokens.vocabulary import BLANK, BOS, EOS, SEP
from glassformer.decode.choose.context import Choose, Context
from glassformer.decode.choose.finite import check_numbers
from glassformer.decode.choose.greedy import greedy
from glassformer.decode.choose.penalties import ends_with
from glassformer.decode.choose.unwritten import forbid
from glassformer.foundation.errors import ConfigError, DataError
from glassformer.foundation.shapes import Tensor
from glassformer.foundation.typed import came, is_of
from glassformer.model.config import ModelConfig
from glassformer.model.outputs import Lm
from glassformer.model.transformer import Transformer
from glassformer.parts import Cache

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


def generate(
    model: Transformer,
    *,
    sources: Sequence[Sequence[int]] | None = None,
    prompts: Sequence[Sequence[int]] | None = None,
    max_new_tokens: int | Sequence[int],
    choose: Choose = greedy,
    eos: int = EOS,
    stop: Stop | None = None,
    max_context: int | None = None,
    drop: int = 1,
    numbers: Sequence[int] | None = None,
    prefix: bool = False,
) -> Iterator[Emitted]:
    """Yield the tokens of each step until every row has ended with `eos`, at a `stop`, or at its limit.

    An encoder-decoder takes `sources` (without special tokens) and begins each row with <bos> or its prompt; a decoder
    takes only `prompts`. Rows may differ in length, and each gets the tokens that it would get alone. Finished rows
    leave the batch. `max_new_tokens` is one limit, or one per row. `stop` is called after each step was yielded.

    With `max_context`, a longer row loses tokens at its front, as few multiples of `drop` as needed. drop=1 reads the
    last `max_context` tokens anew at each step; a larger `drop` keeps the cache for `drop` steps. Without, a row longer
    than the model takes is refused. `numbers` identify the rows to `choose` (None: their places in the call). With
    `prefix`, the tokens of a prompt read each other in both directions, as the objective "prefix" trains (Raffel et al.
    2020, section 3.2.1). Errors: `ConfigError`, `DataError`, also where a logit is NaN or +inf.
    """
    check_writes(model)
    check_context(model, max_context, drop)
    model.eval()
    with torch.no_grad():  # around no yield: whoever iterates keeps gradients as they are
        rows = begin_rows(model, sources, prompts, max_new_tokens, numbers)._replace(prefix=prefix)
        run = read_first(model, rows, max_context, drop)
    while True:
        live = [i for i, row in enumerate(run.going) if not rows.done[row]]
        going = [run.going[i] for i in live]
        with torch.no_grad():
            of_source = {"memory": run.memory, "source_keep": run.memory_keep}
            hidden = model.hidden(run.tokens, keep=run.keep, prefix=run.prefix, cache=run.cache, **of_source)
            logits = model.head(hidden.select(1, -1))
            chosen = choose(logits if len(live) == len(run.going) else logits[live], rows.context(going)).tolist()
        yield from rows.grow(Emitted(going, chosen), eos, stop)
        if all(rows.done):
            return
        with torch.no_grad():
            run = _next(model, rows, run, max_context, drop)


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
    n_rows = len(prompts)
    limits = list(max_new_tokens) if isinstance(max_new_tokens, Sequence) else [max_new_tokens] * n_rows
    if len(limits) != n_rows or any(not is_of(limit, (int,)) or limit < 1 for limit in limits):
        raise ConfigError(f"max_new_tokens must be at least 1, once or for each of {n_rows} rows; got {limits!r:.60}.")
    numbers = range(n_rows) if numbers is None else numbers
    if len(numbers) != n_rows:
        raise ConfigError(f"numbers must have one for each of the {n_rows} rows; got {len(numbers)}. Remove numbers.")
    return Rows(sources, prompts, limits, numbers, [[] for _ in prompts], [False] * n_rows)


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


def read_first(model: Transformer, rows: Rows, max_context: int | None = None, drop: int = 1) -> Run:
    """Prepare the first step: encode the sources; the step will read the prompts."""
    going = list(range(len(rows.prompts)))
    return read_anew(model, rows, going, max_context, drop, *memories(model, rows.sources))


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
) -> Run:
    """Prepare a step that reads these rows from their begin, into a new cache."""
    whole = rows.context(going).read
    begins = [begin_of(len(ids), max_context, drop) for ids in whole]
    tokens, keep = _pad_left([ids[begin:] for ids, begin in zip(whole, begins, strict=True)])
    device = next(model.parameters()).device
    keep = None if keep is None else keep.to(device)
    lengths = [max(0, len(rows.prompts[row]) - begin) for row, begin in zip(going, begins, strict=True)]
    prefix = torch.tensor(lengths, device=device) if rows.prefix else None
    return Run(going, begins, tokens.to(device), keep, model.new_cache(), memory, memory_keep, prefix)


def _next(model: Transformer, rows: Rows, run: Run, max_context: int | None, drop: int) -> Run:
    """Prepare the next step: read each row's newest token, or all tokens anew if a row lost some at its front."""
    lengths = [len(rows.prompts[row]) + len(rows.written[row]) for row in run.going]
    begins = [begin_of(length, max_context, drop) for length in lengths]
    live = [i for i, row in enumerate(run.going) if not rows.done[row]]
    if any(begins[i] != run.begins[i] for i in live):
        going = [run.going[i] for i in live]
        memory, memory_keep = (None if each is None else each[live] for each in (run.memory, run.memory_keep))
        return read_anew(model, rows, going, max_context, drop, memory, memory_keep)
    run = _leave(run, live, model.config.stack.max_len)
    newest = torch.tensor([[rows.written[row][-1]] for row in run.going], device=run.tokens.device)
    return run._replace(tokens=newest, keep=None, prefix=None)


def _pad_left(prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor | None]:
    """Pad prompts on the left, so that the last column holds the last token of every row."""
    if any(len(prompt) == 0 for prompt in prompts):
        row = next(i for i, prompt in enumerate(prompts) if len(prompt) == 0)
        raise DataError(
            f"A prompt needs at least one token; prompt {row} (counted from 0) is empty. Begin it with BOS."
        )
    tokens, keep = pad([list(reversed(prompt)) for prompt in prompts])
    return tokens.flip(1), None if keep is None else keep.flip(1)


def _leave(run: Run, live: list[int], max_len: int | None) -> Run:
    """Remove finished rows from the batch once they are a quarter of it, because copying the cache costs time too.

    If the cache is as long as the model takes, remove them at once: a finished row that stays would grow beyond that.
    """
    full = max_len is not None and run.cache.length >= max_len
    if len(run.going) - len(live) < (1 if full else max(1, len(run.going) // 4)):
        return run
    rows = torch.tensor(live, device=run.tokens.device)
    run.cache.select(rows)
    return run._replace(
        going=[run.going[i] for i in live],
        begins=[run.begins[i] for i in live],
        memory=None if run.memory is None else run.memory[rows],
        memory_keep=None if run.memory_keep is None else run.memory_keep[rows],
    )


@torch.no_grad()
def fill_blanks(
    model: Transformer, sources: Sequence[Sequence[int]], lengths: Sequence[int], never: Sequence[int] = ()
) -> list[list[int]]:
    """Answers of an encoder-only model: row i reads [source, <sep>, blanks] and fills its `lengths[i]` blanks at once.

    No blank gets an id of `never`. Errors: `DataError`, also if a logit is NaN or +inf.
    """
    check_writes(model)
    check_sources(model, sources)
    model.eval()
    device = next(model.parameters()).device
    rows = [[*source, SEP, *[BLANK] * length] for source, length in zip(sources, lengths, strict=True)]
    tokens, keep = pad(rows)
    logits = model(tokens.to(device), keep=None if keep is None else keep.to(device))
    ids = forbid(logits, never).argmax(-1)
    check_numbers(logits.gather(-1, ids[..., None])[..., 0], Context(range(len(rows)), sources, []))
    filled = zip(ids.tolist(), rows, lengths, strict=True)
    return [best[len(row) - length : len(row)] for best, row, length in filled]
