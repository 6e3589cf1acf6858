"""Turning a checked request into requests to the engine: token ids, limits, and how tokens are chosen."""

from __future__ import annotations

import secrets
from functools import lru_cache

from glassformer.base.errors import GlassformerError, TooLongError
from glassformer.data.tokens.vocabulary import BOS
from glassformer.decode.answer import limit_of
from glassformer.decode.choose.constrained import States
from glassformer.decode.choose.context import Choose, Filter, Named
from glassformer.decode.choose.draw import chooser
from glassformer.decode.choose.penalties import logit_bias
from glassformer.decode.choose.sampling import Sampling
from glassformer.decode.choose.unwritten import without
from glassformer.decode.engine.requests import Request
from glassformer.serve.grammar import Wish, followed
from glassformer.serve.job import Echoed, Job
from glassformer.serve.refusal import RefusalError
from glassformer.serve.settings import ServeConfig
from glassformer.serve.wanted import USUAL_TOKENS, Wanted
from glassformer.train.finished.writing import Writer, note_of

TOO_LONG = "context_length_exceeded"


class Texts:
    """Makes jobs for a run's model."""

    def __init__(self, writer: Writer, config: ServeConfig) -> None:
        self.writer, self.config = writer, config
        self.states = States(writer.tokenizers.target, config.rows)
        """Shared by all grammars."""

        @lru_cache(maxsize=64)
        def follow(wish: Wish) -> Filter:
            return followed(wish, self.states)

        @lru_cache(maxsize=64)
        def choice(sampling: Sampling, biases: tuple[tuple[int, float], ...], wish: Wish | None) -> Choose:
            own: list[Filter] = [Named(logit_bias(dict(biases)), "logit_bias")] if biases else []
            never = writer.never(constrained=wish is not None)
            own += [without(never), *writer.ends(never)]
            return chooser(sampling, own if wish is None else [*own, Named(follow(wish), wish.field)])

        self.choice, self.unwritable = choice, lru_cache(maxsize=256)(writer.unwritable)
        """Equal settings give the same function object, so the engine chooses for rows of several clients together."""

    def job(self, wanted: Wanted) -> Job:
        """Make the job for a request. Errors: `RefusalError` 400 for prompts that the model cannot read, or score.

        Tokenises the texts, which may be slow: do not call it on the server's event loop.
        """
        scored = wanted.echo and wanted.logprobs is not None
        if scored and self.writer.recipe.data.objective == "prefix":
            rule = "This model reads a prompt in both directions, so its tokens have no log-probabilities"
            raise RefusalError(400, f"{rule}; got echo and logprobs. Remove one of them.", param="echo")
        read = [self._ids(prompt, place, wanted.field) for place, prompt in enumerate(wanted.prompts)]
        behind = [self.writer.goes_on(*each) for each in zip(read, wanted.prompts, strict=True)]
        job = Job(
            self.writer.tokenizers.target,
            behind,
            wanted.n,
            wanted.stops,
            whole=not wanted.stream,
            echoed=[self._echoed(*each) for each in zip(read, wanted.prompts, strict=True)] if wanted.echo else (),
            nothing=wanted.max_tokens == 0,
        )
        if unknown := self.writer.unknown(wanted.prompts, wanted.field):
            job.warnings.append(unknown)
        if note := note_of(self.writer.untrained(read), wanted.field):
            job.warnings.append(note)
        job.warnings += [f"stop: {each}." for each in self.unwritable(wanted.stops)]
        choose = self.choice(wanted.sampling, tuple(sorted((wanted.biases or {}).items())), wanted.wish)
        seed = secrets.randbits(63) if wanted.seed is None else wanted.seed
        for place, ids in enumerate(read):
            prompts: dict[str, list[int]] = {"prompt" if self.writer.continues else "source": ids}
            request = Request(
                **prompts,
                max_new_tokens=max(1, self._most(ids, wanted.max_tokens)),
                n=wanted.n,
                choose=choose,
                seed=seed,
                first=place * wanted.n,
                logprobs=wanted.logprobs,
                scored=scored,
                tag=(job, place),
            )
            job.requests.append(request)
        return job

    def _ids(self, prompt: str | list[int], place: int, field: str) -> list[int]:
        ids = prompt if isinstance(prompt, list) else self._encoded(prompt, place, field)
        self._check_ids(ids, place, field)
        return ids

    def _encoded(self, prompt: str, place: int, field: str) -> list[int]:
        try:
            return self.writer.ids(prompt, place + 1, called=field)
        except GlassformerError as error:
            code = TOO_LONG if isinstance(error, TooLongError) else None
            raise RefusalError(400, str(error), param=field, code=code) from None

    def _check_ids(self, ids: list[int], place: int, field: str) -> None:
        size, most = self.writer.tokenizers.source.vocab_size, self.config.max_prompt
        if max(ids) >= size:
            came = f"{field} {place + 1} has {max(ids)}"
            message = f"Token ids must be from 0 to {size - 1}; {came}. Use this model's tokenizer, or give a text."
            raise RefusalError(400, message, param=field)
        most = min(most, self.writer.max_context or most)
        if len(ids) > most:
            message = f"A {field} may have at most {most} tokens here; {field} {place + 1} has {len(ids)}. Shorten it."
            raise RefusalError(400, message, param=field, code=TOO_LONG)

    def _most(self, ids: list[int], asked: int | None) -> int:
        """Return the most tokens that a text may have. Past its context, the model reads only a completion's end."""
        most = self.config.max_new_tokens
        if not self.writer.continues:
            return min(limit_of(self.writer.model, ids, asked).tokens, most)
        return min(USUAL_TOKENS, most) if asked is None else asked

    def _echoed(self, ids: list[int], prompt: str | list[int]) -> Echoed:
        if isinstance(prompt, str):
            return Echoed(prompt, ids[1:] if ids[:1] == [BOS] else ids, typed=True)
        return Echoed(self.writer.tokenizers.target.decode(ids), ids)
