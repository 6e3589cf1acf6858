"""Texts that every answer of a beam search must contain (lexically constrained decoding, Hokamp and Liu 2017).

The beam is divided among hypotheses by how much of the forced texts they contain (Post and Vilar 2018, dynamic beam
allocation). Hypotheses that took a less likely token to make progress are thus not pushed out by the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import zip_longest

import torch

from glassformer.base.errors import ConfigError, RowError
from glassformer.decode.choose.likely import Candidates, Scores

Held = tuple[int, ...]
"""How many bytes of each forced text are there: all once it is contained, else the part with which the answer ends."""


Option = tuple[float, int, int]
"""Log-probability, token, and index among the options of a step."""


class Forced:
    """Texts that each answer must contain, however they are split into tokens, possibly inside a longer word.

    `spelled` gives the bytes that an answer shows of each id, as from `shown_of`.
    """

    def __init__(self, spelled: Sequence[bytes], texts: Sequence[str]) -> None:
        self.texts, self.spelled, self.words = texts, spelled, [text.encode() for text in texts]
        self.whole: Held = tuple(map(len, self.words))
        self._after, self._nearer = lru_cache(2**18)(self._read_on), lru_cache(2**12)(self._tokens_on)

    def held(self, ids: Sequence[int]) -> Held:
        """How much of each forced text these ids contain."""
        now = (0,) * len(self.words)
        for id in ids:
            now = self._after(now, id)
        return now

    def _read_on(self, held: Held, id: int) -> Held:
        more = self.spelled[id]
        return tuple(prefix_at_end(word, word[:n] + more) for word, n in zip(self.words, held, strict=True))

    def _tokens_on(self, held: Held) -> list[int]:
        """The tokens that add to what is held of the forced texts."""
        ids = range(len(self.spelled))
        return [id for id in ids if self.spelled[id] and sum(self._after(held, id)) > sum(held)]

    def beside(self, likely: Candidates, scores: Scores, begun: Sequence[Sequence[int]]) -> Candidates:
        """Add to the most likely tokens of each row all others that make progress on a forced text."""
        nearer = [self._nearer(self.held(ids)) for ids in begun]
        most = max(map(len, nearer))
        if most == 0:
            return likely
        ids = torch.tensor([[*each, *[-1] * (most - len(each))] for each in nearer], device=scores.logits.device)
        log_p = scores.logits.gather(1, ids.clamp(min=0)).cpu().double() - scores.whole
        ids = ids.cpu()
        there = (ids[:, :, None] == likely.ids[:, None]).any(-1) | (ids < 0)
        log_p = log_p.masked_fill(there, -torch.inf)
        return Candidates(torch.cat([likely.ids, ids.clamp(min=0)], 1), torch.cat([likely.log_p, log_p], 1))

    def share(
        self,
        totals: Sequence[float],
        tokens: Sequence[int],
        begun: Sequence[Sequence[int]],
        last: bool,
        stop: Callable[[Sequence[int]], str | None] | None,
        *,
        k: int,
        eos: int,
    ) -> list[Option]:
        """Order the options (`k` per hypothesis) for the beam: grouped by bytes held, the best of each group in turn.

        The group that holds most comes first. An option that ends an answer, by `eos`, at a `stop` or because this is
        the `last` step, is left out unless the answer contains all forced texts; at a `stop` it is the text before it.
        """
        banks: dict[int, list[Option]] = {}
        held = [self.held(ids) for ids in begun]
        for place in sorted(range(len(held) * k), key=lambda place: -totals[place]):
            if totals[place] == -torch.inf:  # nor can one that comes after it be chosen, and a stop takes time
                break
            before, token = held[place // k], tokens[place]
            now = before if token == eos else self._after(before, token)
            text = None if token == eos or stop is None else stop([*begun[place // k], token])
            if text is not None:
                fits = all(each in text for each in self.texts)
            else:
                fits = now == self.whole or not (last or token == eos)
            if fits:
                banks.setdefault(sum(now), []).append((totals[place], token, place))
        turns = zip_longest(*(banks[count] for count in sorted(banks, reverse=True)))
        return [option for turn in turns for option in turn if option is not None]

    def refuse(self, row: int, limit: int, others: Sequence[str] = (), *, stops: bool = False) -> RowError:
        """The error for a row without an answer.

        `others` are the names of settings that forbid tokens; `stops` says whether something stops answers.
        """
        change = ", or stop at fewer" if stops else ""
        change += f", or change or remove {' or '.join(others)}" if others else ""
        return RowError(
            f"An answer must contain all forced texts, {', '.join(map(repr, self.texts)):.80}; none of ",
            row,
            f" did within its {limit} tokens. Raise max_new_tokens or beam, or force fewer texts{change}.",
        )


def check_forced(forced: Forced | None, beam: int, groups: int) -> None:
    """Refuse forced texts without a beam search in one group. Errors: `ConfigError`."""
    if forced is not None and (beam == 1 or groups > 1):
        raise ConfigError(
            f"Forced texts need a beam of at least 2 in one group; got beam={beam} and beam_groups={groups}. "
            "Try beam=5 with beam_groups=1."
        )


def prefix_at_end(word: bytes, text: bytes) -> int:
    """The length of `word` if `text` contains it, else of its longest prefix with which `text` ends."""
    if word in text:
        return len(word)
    return next(n for n in range(min(len(word), len(text)), -1, -1) if text.endswith(word[:n]))
