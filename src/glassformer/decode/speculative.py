"""Speculative decoding: guess tokens cheaply, then let the model check them all in one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

import torch

from glassformer.base.errors import ConfigError
from glassformer.base.shapes import Float, Int, Tensor
from glassformer.data.batch import pad
from glassformer.data.tokens.vocabulary import EOS
from glassformer.decode.choose import chooser, own_uniforms, pick
from glassformer.decode.filters import Context, Filter, suffix_lengths
from glassformer.decode.rows import Emitted, Rows, Stop, begin_rows, check_writes, memories
from glassformer.decode.settings import GREEDY, Sampling
from glassformer.nn.cache import Cache
from glassformer.nn.ensemble import members_of
from glassformer.nn.observe import Evaluation
from glassformer.nn.transformer import Transformer


class Text(NamedTuple):
    """What a row is to read now, and after how many of its last ids logits are wanted."""

    row: int
    ids: Sequence[int]
    last: int = 1
    both_ways: int = 0
    """How many tokens at its start a prefix model reads in both directions."""


class Together:
    """Rows that began together and share a cache. A finished row is padding until it is removed."""

    def __init__(self, rows: list[int], cache: Cache, memory: Tensor | None, memory_keep: Tensor | None) -> None:
        self.rows, self.cache, self.memory, self.memory_keep = rows, cache, memory, memory_keep

    def select(self, places: Int[Tensor, " rows"]) -> None:
        """Keeps the rows at these places."""
        self.rows = [self.rows[place] for place in places.tolist()]
        self.cache.select(places)
        self.memory = None if self.memory is None else self.memory[places]
        self.memory_keep = None if self.memory_keep is None else self.memory_keep[places]


class Reader:
    """A model that reads several texts at once and reads no token twice that is still at the same place.

    Each forward pass reads the new tokens of all rows that share a cache, with padding after the shorter ones. Tokens
    that a row no longer has are removed from that row's part of the cache. Rows that must start anew, because they lost
    their first tokens, share another cache from then on.
    """

    def __init__(self, model: Transformer, sources: Sequence[Sequence[int]] | None) -> None:
        self.model, self.device = model, next(model.parameters()).device
        self._memory, self._memory_keep = memories(model, sources)
        self._read: dict[int, Text] = {}
        self._of: dict[int, Together] = {}

    def behind(self, texts: Sequence[Text]) -> list[Float[Tensor, "T V"]]:
        """Return the logits after each of the `last` ids of each text."""
        starts = {text.row: self._stands(text) for text in texts}
        if anew := [row for row, start in starts.items() if start == 0]:
            memory, keep = (None if each is None else each[anew] for each in (self._memory, self._memory_keep))
            self._of |= dict.fromkeys(anew, Together(anew, self.model.new_cache(whole=True), memory, keep))
        requested: dict[Together, list[Text]] = {}
        for text in texts:
            requested.setdefault(self._of[text.row], []).append(text)
        found: dict[int, Tensor] = {}
        for together, these in requested.items():
            found |= self._go_on(together, {text.row: text for text in these}, starts)
        return [found[text.row] for text in texts]

    def keep(self, rows: Collection[int]) -> None:
        """Keep only these rows. The others are removed once they are a quarter, as copying a cache costs time too."""
        self._of = {row: together for row, together in self._of.items() if row in rows}
        for together in {*self._of.values()}:
            places = [i for i, row in enumerate(together.rows) if self._of.get(row) is together]
            if len(places) <= 0.75 * len(together.rows):
                together.select(torch.tensor(places, device=self.device))

    def _stands(self, text: Text) -> int:
        """How many of a text's ids are already in the cache and can be kept."""
        before = self._read.get(text.row)
        if before is None or before.both_ways != text.both_ways:
            return 0
        return min(same(before.ids, text.ids), len(text.ids) - text.last)

    def _go_on(self, together: Together, texts: dict[int, Text], starts: dict[int, int]) -> dict[int, Tensor]:
        """Read what is new of these texts in one forward pass; return the logits by row."""
        cache, begins = together.cache, together.cache.length == 0
        if not begins and any(starts[row] < len(self._read[row].ids) for row in texts):
            lengths = [starts.get(row, cache.length) for row in together.rows]
            cache.take_back(torch.tensor(lengths, device=self.device))
        new = [texts[row].ids[starts[row] :] if row in texts else () for row in together.rows]
        tokens, keep = pad(new, self.device)
        both_ways = [texts[row].both_ways for row in together.rows] if begins else []
        hidden = self.model.hidden(
            tokens,
            keep=keep,
            memory=together.memory,
            source_keep=together.memory_keep,
            prefix=torch.tensor(both_ways, device=self.device) if any(both_ways) else None,
            cache=cache,
        )
        self._read |= texts
        requested = [(i, row, texts[row].last) for i, row in enumerate(together.rows) if row in texts]
        logits = self.model.head(torch.cat([hidden[i, len(new[i]) - last : len(new[i])] for i, _, last in requested]))
        return dict(zip([row for _, row, _ in requested], logits.split([last for *_, last in requested]), strict=True))


def same(one: Sequence[int], other: Sequence[int]) -> int:
    """The length of the common prefix."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


class Guess(NamedTuple):
    """Guessed tokens, and the distributions from which they were drawn; None: each had probability 1."""

    tokens: list[int]
    shares: Float[Tensor, "T V"] | None = None


class Wanted(NamedTuple):
    """A request for a guess: the row of the call, the ids that it reads, and the most tokens to guess."""

    row: int
    ids: Sequence[int]
    most: int


Draft = Callable[[Sequence[Wanted], Context], list[Guess]]
"""Returns a guess for each wanted row, possibly with fewer tokens or none; the context describes the same rows."""


@dataclass
class ModelDraft:
    """A smaller model that draws its guesses as the larger one draws its tokens, for all rows together."""

    reader: Reader
    mass: Callable[[Tensor, Context], Tensor]
    uniforms: Callable[[Context], Sequence[float]]
    eos: int

    def __call__(self, wanted: Sequence[Wanted], context: Context) -> list[Guess]:
        """Guess up to as many tokens as wanted: fewer if the draft model's context is full, and none after `eos`."""
        self.reader.keep({each.row for each in wanted})
        longest = self.reader.model.config.stack.max_len
        most = [each.most if longest is None else min(each.most, longest - len(each.ids) + 1) for each in wanted]
        tokens: list[list[int]] = [[] for _ in wanted]
        drawn: list[list[Tensor]] = [[] for _ in wanted]
        for n in range(max(most, default=0)):
            live = [i for i in range(len(wanted)) if most[i] > n]
            if not live:
                break
            now = grown(context, [(i, tokens[i]) for i in live])
            logits = self.reader.behind([Text(wanted[i].row, [*wanted[i].ids, *tokens[i]]) for i in live])
            q = self.mass(torch.cat(logits), now)
            for i, token, share in zip(live, pick(q, self.uniforms(now)).tolist(), q, strict=True):
                tokens[i].append(token)
                drawn[i].append(share)
                most[i] = n + 1 if token == self.eos else most[i]
        return [Guess(ids, torch.stack(q) if q else None) for ids, q in zip(tokens, drawn, strict=True)]


def looked_up(wanted: Sequence[Wanted], context: Context, *, most: int, eos: int) -> list[Guess]:
    """Prompt lookup (Saxena 2023): guess what followed when the text last had its present last `most` ids, or fewer.

    The guess has probability 1. There is no guess if the last id is new, and none after `eos`.
    """
    guessed = (followed(each.ids, each.most, most) for each in wanted)
    return [Guess(ids[: ids.index(eos) + 1] if eos in ids else ids) for ids in guessed]


def followed(ids: Sequence[int], n: int, most: int) -> list[int]:
    """Up to `n` ids after the earlier place whose preceding ids best match the end of `ids` (up to `most` ids)."""
    if n == 0:
        return []
    lengths = [min(length, most) for length in suffix_lengths(ids)]
    back = max(range(1, len(lengths)), key=lengths.__getitem__, default=0)  # among equals, the nearest to the end
    return [*ids[len(ids) - back :][:n]] if lengths[back] else []


def grown(context: Context, more: Sequence[tuple[int, Sequence[int]]]) -> Context:
    """Select rows of a context by their places (repeats allowed), and append these tokens to what each wrote."""
    return Context(
        [context.numbers[i] for i, _ in more],
        [context.prompts[i] for i, _ in more],
        [[*context.written[i], *tokens] for i, tokens in more],
    )


TOKEN, GUESS, STAYS = range(3)
"""What a random number is for: drawing the token, drawing the guess, or accepting it."""


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
    eos: int = EOS,
    stop: Stop | None = None,
    tally: Tally | None = None,
    **given: Any,
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
    check_guessing(model, draft, lookup, guesses, sampling)
    rows, uniforms = begin_rows(model, **given), partial(own_uniforms, sampling.seed)
    mass = chooser(sampling, filters).probabilities
    evaluation = Evaluation(model, *([] if draft is None else [draft]))
    with torch.no_grad(), evaluation:  # never around a yield, which would change the caller's modes
        guess: Draft = partial(looked_up, most=lookup, eos=eos)
        if draft is not None:
            guess = ModelDraft(Reader(draft, rows.sources), mass, lambda context: uniforms(context, GUESS), eos)
        rounds = Rounds(rows, Reader(model, rows.sources), guess, guesses, mass, uniforms, eos, tally or Tally())
    while active := [row for row, done in enumerate(rows.done) if not done]:
        with torch.no_grad(), evaluation:
            found = rounds.one(active)
        for place in range(max(map(len, found))):
            step = [
                (row, tokens[place])
                for row, tokens in zip(active, found, strict=True)
                if place < len(tokens) and not rows.done[row]
            ]
            if not step:
                break
            yield from rows.grow(Emitted([row for row, _ in step], [token for _, token in step]), eos, stop)


@dataclass
class Rounds:
    """Runs the rounds: guess tokens for all unfinished rows, then read and check them together."""

    rows: Rows
    reader: Reader
    guess: Draft
    guesses: int
    mass: Callable[[Tensor, Context], Tensor]
    uniforms: Callable[[Context, int], Sequence[float]]
    """A random number from [0, 1) for each row, for one of these purposes."""
    eos: int
    tally: Tally

    def one(self, active: list[int]) -> list[list[int]]:
        """Run one round; return the tokens of each row: its accepted guesses and one more."""
        self.reader.keep(active)
        context = self.rows.context(active)
        wanted = [self.wanted(row, whole) for row, whole in zip(active, context.read, strict=True)]
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
            numbers = zip(live, p, self.uniforms(here, STAYS), self.uniforms(here, TOKEN), strict=True)
            live = []
            for i, chances, stays, drawn in numbers:
                token, stayed = settle(guessed[i], len(found[i]), chances, stays, drawn)
                found[i].append(token)
                self.tally.stayed += stayed
                if stayed and token != self.eos:
                    live.append(i)
        return found

    def wanted(self, row: int, whole: Sequence[int]) -> Wanted:
        """Ask for guesses after all tokens of a row: no more than it may still write, or read from where it begins."""
        begin, longest = self.rows.begin(row), self.reader.model.config.stack.max_len
        most = min(self.guesses, self.rows.limits[row] - len(self.rows.written[row]) - 1)
        most = most if longest is None else min(most, longest - len(whole) + begin)
        room = takewhile(lambda more: self.rows.begin(row, more) == begin, range(1, most + 1))
        return Wanted(row, whole[begin:], max(room, default=0))

    def text(self, wanted: Wanted, guessed: Sequence[int]) -> Text:
        """What the model must read to check the guesses of a row."""
        both_ways = len(self.rows.prompts[wanted.row]) - self.rows.begin(wanted.row) if self.rows.prefix else 0
        return Text(wanted.row, [*wanted.ids, *guessed], len(guessed) + 1, max(0, both_ways))


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
