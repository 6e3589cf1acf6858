"""Speculative decoding: tokens are guessed cheaply, and the model reads them all at once and keeps what it may."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import NamedTuple

import torch

from glassformer.data.vocabulary import EOS
from glassformer.decode.context import Context, Filter
from glassformer.decode.draft import Draft, Guess, LookupDraft, ModelDraft, Wanted, grown
from glassformer.decode.draw import own_uniforms, pick, shares
from glassformer.decode.generate import Emitted, Rows, Stop, begin_of, begin_rows, check_context, check_writes
from glassformer.decode.reader import Reader, Text
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
    """Yields tokens as `generate` does, each distributed as without guessing; a round gives a row one or several.

    Leviathan et al. 2023, algorithm 1: up to `guesses` tokens x are guessed with probabilities q, the model reads them
    in one forward, and the first so many stay: each with probability min(1, p(x) / q(x)). The token behind them is
    drawn from max(0, p - q), or from p where all stayed. p and q are those that `sampling` and `filters` make, so a
    greedy text is the very one of `generate`. Who guesses: a `draft` model with the same vocabulary; or what followed
    the last time where the text last had the same `lookup` tokens (or fewer, down to one), which is sure of itself.

    The guesses of all rows are read together (`Reader`), and each row keeps its own. Random numbers hang on
    (sampling.seed, number of the row, tokens written), as without; but a drawn text is another.
    `tally` counts. The other arguments are those of `generate`. Errors: `ConfigError`, `DataError`.
    """
    check_writes(model)
    check_context(model, max_context, drop)
    check_guessing(model, draft, lookup, guesses, sampling)
    given = lanes or partial(own_uniforms, sampling.seed)
    rows = begin_rows(model, sources, prompts, max_new_tokens, numbers)._replace(prefix=prefix)
    mass, window = shares(sampling, filters), Window(model.config.stack.max_len, max_context, drop)
    with torch.no_grad():  # around no yield: whoever iterates keeps gradients as they are
        guess: Draft = LookupDraft(lookup)
        if draft is not None:
            guess = ModelDraft(Reader(draft, sources), mass, lambda context: given(context, GUESS))
        rounds = Rounds(rows, Reader(model, sources), guess, guesses, window, mass, given, tally or Tally())
    while going := [row for row, done in enumerate(rows.done) if not done]:
        with torch.no_grad():
            found = rounds.one(going)
        for place in range(max(map(len, found))):
            step = [
                (row, tokens[place])
                for row, tokens in zip(going, found, strict=True)
                if place < len(tokens) and not rows.done[row]
            ]
            if not step:
                break
            for row, token in step:
                rows.written[row].append(token)
            yield Emitted([row for row, _ in step], [token for _, token in step])
            for row, token in step:
                ids = rows.written[row]
                rows.done[row] = token == eos or len(ids) >= rows.limits[row] or (stop is not None and stop(row, ids))


class Window(NamedTuple):
    """How much of a text is read: what the model takes at most, and `max_context` and `drop` of `generate`."""

    longest: int | None
    max_context: int | None
    drop: int

    def begin(self, length: int) -> int:
        """How many tokens are left out in front."""
        return begin_of(length, self.max_context, self.drop)

    def room(self, length: int, most: int) -> int:
        """How many tokens more, up to `most`, are read without another beginning."""
        begin = self.begin(length)
        room = most if self.longest is None else min(most, self.longest - length + begin)
        return max(takewhile(lambda n: self.begin(length + n) == begin, range(1, room + 1)), default=0)


@dataclass
class Rounds:
    """In each round tokens are guessed for all rows that go on, and read together."""

    rows: Rows
    reader: Reader
    guess: Draft
    guesses: int
    window: Window
    mass: Callable[[Tensor, Context], Tensor]
    given: Lanes
    tally: Tally

    def one(self, going: list[int]) -> list[list[int]]:
        """The tokens of one round, row by row: the guesses that stay, and one more."""
        self.reader.keep(going)
        context = self.rows.context(going)
        wanted = [self.wanted(row, whole) for row, whole in zip(going, context.read, strict=True)]
        guessed = self.guess(wanted, context)
        texts = [self.text(each, guess.tokens) for each, guess in zip(wanted, guessed, strict=True)]
        logits = torch.cat(self.reader.behind(texts))
        behind = grown(
            context, [(i, guess.tokens[:n]) for i, guess in enumerate(guessed) for n in range(texts[i].last)]
        )
        p, stays, drawn = self.mass(logits, behind), self.given(behind, STAYS), self.given(behind, TOKEN)
        found: list[list[int]] = []
        end = 0
        for text, guess in zip(texts, guessed, strict=True):
            here = slice(end, end := end + text.last)
            found.append(settle(guess, p[here], stays[here], drawn[here]))
        self.tally.guessed += sum(len(guess.tokens) for guess in guessed)
        self.tally.stayed += sum(len(tokens) - 1 for tokens in found)
        return found

    def wanted(self, row: int, whole: Sequence[int]) -> Wanted:
        """What is to be guessed behind all that the row has: no more than it may write yet."""
        left = self.rows.limits[row] - len(self.rows.written[row]) - 1
        return Wanted(
            row, whole[self.window.begin(len(whole)) :], self.window.room(len(whole), min(self.guesses, left))
        )

    def text(self, wanted: Wanted, guessed: Sequence[int]) -> Text:
        """What the model reads of it."""
        gone = len(self.rows.prompts[wanted.row]) + len(self.rows.written[wanted.row]) - len(wanted.ids)
        both_ways = max(0, len(self.rows.prompts[wanted.row]) - gone) if self.rows.prefix else 0
        return Text(wanted.row, [*wanted.ids, *guessed], len(guessed) + 1, both_ways)


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
