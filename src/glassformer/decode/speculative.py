"""Speculative decoding: tokens are guessed cheaply, and the model reads them all at once and keeps what it may."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

import torch

from glassformer.data.vocabulary import EOS
from glassformer.decode.context import Context, Filter
from glassformer.decode.draft import Draft, Guess, ModelDraft, Reader, lookup_draft, nobody
from glassformer.decode.draw import own_uniforms, pick, shares
from glassformer.decode.generate import Emitted, Rows, Stop, begin_of, begin_rows, check_context, check_writes
from glassformer.decode.sampling import GREEDY, Sampling
from glassformer.foundation.errors import ConfigError
from glassformer.foundation.shapes import Float, Tensor
from glassformer.model.transformer import Transformer

Lanes = Callable[[Context, int], Sequence[float]]
"""A number from [0, 1) for each row of a context, for a purpose: the token itself, the guess, or whether it stays."""
TOKEN, GUESS, STAYS = range(3)


@dataclass
class Tally:
    """How many tokens were guessed, and how many of them stayed."""

    guessed: int = 0
    stayed: int = 0


def speculative(
    model: Transformer,
    *,
    draft: Transformer | None = None,
    lookup: int = 0,
    guesses: int = 4,
    sampling: Sampling = GREEDY,
    filters: Sequence[Filter] = (),
    sources: Sequence[Sequence[int]] | None = None,
    prompts: Sequence[Sequence[int]] | None = None,
    max_new_tokens: int | Sequence[int],
    eos: int = EOS,
    stop: Stop | None = None,
    max_context: int | None = None,
    drop: int = 1,
    numbers: Sequence[int] | None = None,
    prefix: bool = False,
    lanes: Lanes | None = None,
    tally: Tally | None = None,
) -> Iterator[Emitted]:
    """Yields tokens as `generate` does, a row after the other, each distributed as without guessing.

    Leviathan et al. 2023, algorithm 1: up to `guesses` tokens x are guessed with probabilities q, the model reads them
    in one forward, and the first so many stay: each with probability min(1, p(x) / q(x)). The token behind them is
    drawn from max(0, p - q), or from p where all stayed. p and q are those that `sampling` and `filters` make, so a
    greedy text is the very one of `generate`. Who guesses: a `draft` model with the same vocabulary; or what followed
    the last time where the text last had the same `lookup` tokens (or fewer, down to one), which is sure of itself.

    Random numbers hang on (sampling.seed, number of the row, tokens written), as without; but a drawn text is another.
    `tally` counts. The other arguments are those of `generate`. Errors: `ConfigError`, `DataError`.
    """
    check_writes(model)
    check_context(model, max_context, drop)
    check_guessing(model, draft, lookup, guesses, sampling)
    given = lanes or partial(own_uniforms, sampling.seed)
    rows = begin_rows(model, sources, prompts, max_new_tokens, numbers)._replace(prefix=prefix)
    mass, counted = shares(sampling, filters), tally or Tally()
    for row in range(len(rows.prompts)):
        source = None if sources is None else sources[row]
        with torch.no_grad():
            reader = Reader(model, source, len(rows.prompts[row]) if prefix else 0)
            guess: Draft = partial(lookup_draft, most=lookup) if lookup else nobody
            if draft is not None:
                guess = ModelDraft(Reader(draft, source), mass, lambda context: given(context, GUESS))
        while not rows.done[row]:
            with torch.no_grad():
                tokens = round_of(reader, guess, rows, row, guesses, mass, given, max_context, drop, counted)
            for token in tokens:
                rows.written[row].append(token)
                yield Emitted([row], [token])
                ids = rows.written[row]
                rows.done[row] = token == eos or len(ids) >= rows.limits[row] or (stop is not None and stop(row, ids))
                if rows.done[row]:
                    break


def round_of(
    reader: Reader,
    guess: Draft,
    rows: Rows,
    row: int,
    guesses: int,
    mass: Callable[[Tensor, Context], Tensor],
    given: Lanes,
    max_context: int | None,
    drop: int,
    tally: Tally,
) -> list[int]:
    """The tokens of one round: the guesses that stay, and one more."""
    context = rows.context([row])
    (whole,) = context.read
    begin, left = begin_of(len(whole), max_context, drop), rows.limits[row] - len(rows.written[row]) - 1
    longest = reader.model.config.stack.max_len
    room = guesses if longest is None else min(guesses, longest - len(whole) + begin)
    fits = takewhile(lambda n: begin_of(len(whole) + n, max_context, drop) == begin, range(1, min(room, left) + 1))
    guessed = guess(whole[begin:], max(fits, default=0), context)
    n = len(guessed.tokens)
    behind = ahead_of(context, guessed.tokens)
    p = mass(reader.behind([*whole[begin:], *guessed.tokens], n + 1), behind)
    tokens = settle(guessed, p, given(behind, STAYS), given(behind, TOKEN))
    tally.guessed, tally.stayed = tally.guessed + n, tally.stayed + len(tokens) - 1
    return tokens


def settle(guessed: Guess, p: Float[Tensor, "T V"], stays: Sequence[float], drawn: Sequence[float]) -> list[int]:
    """The guesses that stay, each with probability min(1, p(x) / q(x)), and one token more; `p` has a row for it.

    It is drawn from max(0, p - q) in place of the first guess that does not stay, else from p (Leviathan et al. 2023,
    algorithm 1).
    """
    for i, token in enumerate(guessed.tokens):
        q = None if guessed.shares is None else guessed.shares[i]
        if stays[i] * (1.0 if q is None else float(q[token])) < float(p[i, token]):
            continue
        sure = torch.nn.functional.one_hot(torch.tensor(token, device=p.device), p.shape[-1])
        rest = (p[i] - (sure if q is None else q)).clamp(min=0)
        return [*guessed.tokens[:i], int(pick(rest[None], drawn[i : i + 1]))]
    n = len(guessed.tokens)
    return [*guessed.tokens, int(pick(p[n][None], drawn[n : n + 1]))]


def ahead_of(context: Context, tokens: Sequence[int]) -> Context:
    """One row again and again, each time with one guess more."""
    (number,), (prompt,), (written,) = context[:3]
    n = len(tokens) + 1
    return Context([number] * n, [prompt] * n, [[*written, *tokens[:i]] for i in range(n)])


def check_guessing(
    model: Transformer, draft: Transformer | None, lookup: int, guesses: int, sampling: Sampling
) -> None:
    """Refuse guesses that cannot be checked. Errors: `ConfigError`."""
    if sampling.contrastive_alpha:
        raise ConfigError("Contrastive search looks ahead by itself; guesses are for tokens that are drawn. Leave one.")
    if (draft is None) == (lookup == 0) or lookup < 0:
        raise ConfigError(
            "Either a draft model guesses, or what stands in the text (lookup, at least 1 token); got "
            f"{'no' if draft is None else 'a'} draft and lookup={lookup}. Give one of them."
        )
    if guesses < 1:
        raise ConfigError(f"At least one token is guessed at a time; got guesses={guesses}. Try guesses=4.")
    for each in [model, *([] if draft is None else [draft])]:
        check_writes(each)
        if each.config.stack.attention_rule == "linear":
            raise ConfigError("Linear attention keeps sums, from which no guess can be taken back. Use generate().")
    sizes = [(each.config.vocab_size, each.encoder is None) for each in (model, draft or model)]
    if sizes[0] != sizes[1]:
        raise ConfigError(
            f"A draft has the vocabulary of its model, and an encoder where that has one; got {sizes[1][0]} tokens "
            f"for {sizes[0][0]}. Take one trained with the same tokenizer and layout."
        )
