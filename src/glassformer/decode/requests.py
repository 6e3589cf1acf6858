"""The requests to an engine and its replies, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from glassformer.base.errors import ConfigError, DataError
from glassformer.base.settings import in_digits
from glassformer.base.typed import is_of
from glassformer.data.batch import check_ids
from glassformer.data.tokens.vocabulary import BOS
from glassformer.decode.choose import greedy
from glassformer.decode.filters import Choose
from glassformer.decode.rows import check_sources
from glassformer.nn.transformer import Transformer

FAILED = "error"
"""The reason for the end of a row that failed."""


@dataclass(frozen=True, eq=False)
class Request:
    """A caller's request for `n` texts after one prompt, which is read once for all of them.

    Text k has row number `first + k`, and its random numbers depend on (seed, that number, tokens written)
    (`decode/choose.py`). Rows with the same `choose` object choose their tokens in one call.
    """

    prompt: Sequence[int] = (BOS,)
    source: Sequence[int] | None = None
    """The source that an encoder-decoder answers, without special tokens."""
    max_new_tokens: int = 16
    n: int = 1
    choose: Choose = greedy
    seed: int = 1
    first: int = 0
    logprobs: int | None = None
    """How many most likely tokens to report with each token; None: not even the token's own log-probability."""
    scored: bool = False
    """Whether to report the tokens of the prompt too, as `logprobs` says, with the first token of each text."""
    tag: object = None
    """The caller's own name for the request."""


@dataclass(eq=False)
class Ticket:
    """A queued request: it identifies the request's tokens, and serves to cancel it."""

    request: Request
    ended: set[int] = field(default_factory=set[int])
    """Texts that ended or were cancelled."""

    @property
    def over(self) -> bool:
        """Whether all of its texts have ended."""
        return len(self.ended) == self.request.n


class Likely(NamedTuple):
    """The model's own log-probabilities at a step, before temperature, penalties and filters, in nats."""

    log_probability: float
    top: list[tuple[int, float]]
    """The most likely tokens of the step and their log-probabilities, best first."""


class Written(NamedTuple):
    """One token of one text; or, with `end` "error", the error that ended the text."""

    ticket: Ticket
    text: int
    """Which of the request's texts, from 0."""
    id: int
    end: str = ""
    """With the last token, why the text ended: "eos", "max_new_tokens" or "error"."""
    likely: Likely | None = None
    error: Exception | None = None
    prompt: Sequence[Likely] | None = None
    """With the first token of a text whose request is `scored`: one for each token of its prompt after the first."""


@dataclass(frozen=True)
class Limits:
    """How much an engine handles at a time. Errors: `ConfigError`."""

    rows: int = 32
    """Most texts written together."""
    tokens: int = 65_536
    """Cache size in tokens per layer: rows times (longest text plus longest source)."""
    waiting: int = 256
    """Most requests in the queue."""
    reading: int = 4_096
    """Most tokens of prompts, or of sources, read at once, padding included; a single one may be longer."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not is_of(value, (int,)) or value < 1:
                raise ConfigError(f"{name} must be a whole number of at least 1; got {value!r:.40}. Try {name}=32.")


def places_of(source: Sequence[int] | None) -> int:
    """Length of a source's memory, with its <eos>; 0 if there is no source."""
    return 0 if source is None else len(source) + 1


def check_request(model: Transformer, request: Request, columns: int) -> None:
    """Refuse what the model cannot write; rows read up to `columns` tokens. Errors: `ConfigError`, `DataError`."""
    check_counts(request)
    if (request.source is None) == (model.encoder is not None and model.decoder is not None):
        came = "no source. Give one." if request.source is None else "a source. Remove it."
        raise ConfigError(f"An encoder-decoder needs a source, a model of one stack takes none; got {came}")
    if not request.prompt:
        raise DataError("A prompt needs at least one token; got none. Begin it with BOS.")
    check_ids([request.prompt], model.config.vocab_size or 0, "prompt")
    longest = model.config.stack.max_len
    if longest is not None and columns > longest:
        raise DataError(
            f"Prompt and text may have {longest + 1} tokens together (max_len={longest}; the last is not read); got "
            f"{len(request.prompt)} and {request.max_new_tokens}. Shorten the prompt, or ask for fewer tokens."
        )
    if request.source is None:
        return
    check_sources(model, [request.source])
    reads = model.config.encoder.max_len if model.config.encoder is not None else None
    if reads is not None and len(request.source) >= reads:
        raise DataError(
            f"A source may have at most max_len={reads} tokens, <eos> included; got {len(request.source) + 1}. "
            "Shorten it."
        )


def check_counts(request: Request) -> None:
    """Refuse counts, seeds and row numbers out of bounds. Errors: `ConfigError`."""
    for name, least in (("max_new_tokens", 1), ("n", 1), ("seed", 0), ("first", 0)):
        value = getattr(request, name)
        if not is_of(value, (int,)) or value < least:
            raise ConfigError(f"{name} must be a whole number of at least {least}; got {value!r:.40}. Try {name}=1.")
    for name, last in (("seed", request.seed), ("first + n - 1", request.first + request.n - 1)):
        if last >= 2**64:
            raise ConfigError(
                f"{name} must be at most {2**64 - 1}, because random numbers are derived from it; got "
                f"{in_digits(last)}. Give a smaller one."
            )
    if request.scored and (request.logprobs is None or request.source is not None):
        came = "a source" if request.source is not None else "logprobs=None"
        raise ConfigError(f"scored reports the log-probabilities of a prompt; got {came}. Remove scored.")
    if request.logprobs is not None and (not is_of(request.logprobs, (int,)) or request.logprobs < 0):
        raise ConfigError(
            f"logprobs must be a whole number of at least 0, or None; got {request.logprobs!r:.40}. Try 5."
        )
