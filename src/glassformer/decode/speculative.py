"""Speculative decoding: guess tokens cheaply, then let the model check them all in one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import NamedTuple

import torch

from glassformer.base.errors import ConfigError
from glassformer.base.shapes import Float, Tensor
from glassformer.data.tokens.vocabulary import EOS
from glassformer.decode.choose.context import Context, Filter
from glassformer.decode.choose.draw import own_uniforms, pick, shares
from glassformer.decode.choose.sampling import GREEDY, Sampling
from glassformer.decode.draft import Draft, Guess, LookupDraft, ModelDraft, Wanted, grown
from glassformer.decode.reader import Reader, Text
from glassformer.decode.rows import Emitted, Rows, Stop, begin_rows, check_writes
from glassformer.decode.run import begin_of, check_context
from glassformer.nn.ensemble import members_of
from glassformer.nn.observe import Evaluation
from glassformer.nn.transformer import Transformer

Lanes = Callable[[Context, int], Sequence[float]]
"""A random number from [0, 1) for each row, for a purpose: drawing the token, drawing the guess, or accepting it."""
TOKEN, GUESS, STAYS = range(3)


@dataclass
class Tally:
    """How many tokens were guessed, and how many of them were accepted."""

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
    """Yield tokens as `generate` does and with the same distribution; each round gives a row one or more tokens.

    In a round (Leviathan et al. 2023, algorithm 1), up to `guesses` tokens x are guessed with probabilities q. The
    model reads them in one forward pass and accepts each with probability min(1, p(x) / q(x)), up to the first that it
    rejects. The next token is drawn from max(0, p - q), or from p if all were accepted. p and q include `sampling` and
    `filters`, so greedy text is exactly that of `generate`. Guesses come from a `draft` model with the same vocabulary;
    or, with q = 1, from what followed when the text last had its last `lookup` tokens (or fewer, down to one).

    The guesses of all rows are read together (`Reader`). Random numbers depend on (sampling.seed, number of the row,
    tokens written), as in `generate`, but sampled texts differ from its texts. `tally` counts guesses. The other
    arguments are those of `generate`. Errors: `ConfigError`, `DataError`.
    """
    check_writes(model)
    check_context(model, max_context, drop)
    check_guessing(model, draft, lookup, guesses, sampling)
    given = lanes or partial(own_uniforms, sampling.seed)
    rows = begin_rows(model, sources, prompts, max_new_tokens, numbers)._replace(prefix=prefix)
    mass, window = shares(sampling, filters), Window(model.config.stack.max_len, max_context, drop)
    evaluation = Evaluation(model, *([] if draft is None else [draft]))
    with torch.no_grad(), evaluation:  # never around a yield, which would change the caller's modes
        guess: Draft = LookupDraft(lookup, eos)
        if draft is not None:
            guess = ModelDraft(Reader(draft, sources), mass, lambda context: given(context, GUESS), eos)
        rounds = Rounds(rows, Reader(model, sources), guess, guesses, window, mass, given, eos, tally or Tally())
    while going := [row for row, done in enumerate(rows.done) if not done]:
        with torch.no_grad(), evaluation:
            found = rounds.one(going)
        for place in range(max(map(len, found))):
            step = [
                (row, tokens[place])
                for row, tokens in zip(going, found, strict=True)
                if place < len(tokens) and not rows.done[row]
            ]
            if not step:
                break
            yield from rows.grow(Emitted([row for row, _ in step], [token for _, token in step]), eos, stop)


class Window(NamedTuple):
    """How much of a text is read: the most that the model takes, and `max_context` and `drop` as in `generate`."""

    longest: int | None
    max_context: int | None
    drop: int

    def begin(self, length: int) -> int:
        """How many tokens are left out at the front."""
        return begin_of(length, self.max_context, self.drop)

    def room(self, length: int, most: int) -> int:
        """How many more tokens, up to `most`, can be read without leaving out more at the front."""
        begin = self.begin(length)
        room = most if self.longest is None else min(most, self.longest - length + begin)
        return max(takewhile(lambda n: self.begin(length + n) == begin, range(1, room + 1)), default=0)


@dataclass
class Rounds:
    """Runs the rounds: guess tokens for all unfinished rows, then read and check them together."""

    rows: Rows
    reader: Reader
    guess: Draft
    guesses: int
    window: Window
    mass: Callable[[Tensor, Context], Tensor]
    given: Lanes
    eos: int
    tally: Tally

    def one(self, going: list[int]) -> list[list[int]]:
        """Run one round; return the tokens of each row: its accepted guesses and one more."""
        self.reader.keep(going)
        context = self.rows.context(going)
        wanted = [self.wanted(row, whole) for row, whole in zip(going, context.read, strict=True)]
        guessed = self.guess(wanted, context)
        texts = [self.text(each, guess.tokens) for each, guess in zip(wanted, guessed, strict=True)]
        self.tally.guessed += sum(len(guess.tokens) for guess in guessed)
        return self.settled(guessed, self.reader.behind(texts), context)

    def settled(self, guessed: list[Guess], logits: list[Tensor], context: Context) -> list[list[int]]:
        """Check the guesses: return each row's tokens, from the logits [T, V] after its text and after each guess.

        It goes place by place, with only the rows whose guesses were all accepted so far. So filters never see a text
        that they forbid, which a grammar could not follow.
        """
        found: list[list[int]] = [[] for _ in guessed]
        live = [*range(len(guessed))]
        while live:
            here = grown(context, [(i, found[i]) for i in live])
            p = self.mass(torch.stack([logits[i][len(found[i])] for i in live]), here)
            numbers = zip(live, p, self.given(here, STAYS), self.given(here, TOKEN), strict=True)
            live = []
            for i, chances, stays, drawn in numbers:
                token, stayed = settle(guessed[i], len(found[i]), chances, stays, drawn)
                found[i].append(token)
                self.tally.stayed += stayed
                if stayed and token != self.eos:
                    live.append(i)
        return found

    def wanted(self, row: int, whole: Sequence[int]) -> Wanted:
        """Ask for guesses after all tokens of a row, but no more than it may still write."""
        left = self.rows.limits[row] - len(self.rows.written[row]) - 1
        return Wanted(
            row, whole[self.window.begin(len(whole)) :], self.window.room(len(whole), min(self.guesses, left))
        )

    def text(self, wanted: Wanted, guessed: Sequence[int]) -> Text:
        """What the model must read to check the guesses of a row."""
        gone = len(self.rows.prompts[wanted.row]) + len(self.rows.written[wanted.row]) - len(wanted.ids)
        both_ways = max(0, len(self.rows.prompts[wanted.row]) - gone) if self.rows.prefix else 0
        return Text(wanted.row, [*wanted.ids, *guessed], len(guessed) + 1, both_ways)


def settle(guessed: Guess, place: int, p: Float[Tensor, " V"], stays: float, drawn: float) -> tuple[int, bool]:
    """Return the token at a place of the guesses, and whether it is the accepted guess x.

    x is accepted with probability min(1, p(x) / q(x)). Otherwise the token is drawn from max(0, p - q), or from p after
    the last guess (Leviathan et al. 2023, algorithm 1).
    """
    if place == len(guessed.tokens):
        return int(pick(p[None], [drawn])), False
    token, q = guessed.tokens[place], None if guessed.shares is None else guessed.shares[place]
    if stays * (1.0 if q is None else float(q[token])) < float(p[token]):
        return token, True
    sure = torch.nn.functional.one_hot(torch.tensor(token, device=p.device), p.shape[-1])
    rest = (p - (sure if q is None else q)).clamp(min=0)
    return int(pick(rest[None], [drawn])), False


def check_guessing(
    model: Transformer, draft: Transformer | None, lookup: int, guesses: int, sampling: Sampling
) -> None:
    """Refuse settings and models with which guesses cannot be made or checked. Errors: `ConfigError`."""
    if sampling.contrastive_alpha:
        raise ConfigError(
            "Contrastive search cannot use guesses. Set contrastive_alpha=0.0, or remove draft and lookup."
        )
    if (draft is None) == (lookup == 0) or lookup < 0:
        raise ConfigError(
            "Guesses come from a draft model or from the text (lookup of at least 1 token); got "
            f"{'no' if draft is None else 'a'} draft and lookup={lookup}. Give exactly one of them."
        )
    if guesses < 1:
        raise ConfigError(
            f"guesses must be at least 1, the tokens guessed at a time; got guesses={guesses}. Try guesses=4."
        )
    for each in [model, *([] if draft is None else [draft])]:
        check_writes(each)
        if any(one.config.stack.attention_rule == "linear" for one in members_of(each)):
            raise ConfigError(
                "Linear attention caches sums, from which a rejected guess cannot be removed. Use generate(), without "
                "guesses."
            )
    sizes = [(each.config.vocab_size, each.encoder is None) for each in (model, draft or model)]
    if sizes[0] != sizes[1]:
        own, its = (f"{size} tokens with{'out' if alone else ''} an encoder" for size, alone in sizes)
        raise ConfigError(
            f"A draft needs the vocabulary of its model, and an encoder if the model has one; got {its} for {own}. "
            "Use one trained with the same tokenizer and layout."
        )
