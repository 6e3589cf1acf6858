"""An engine that has written before anybody asks: who compiles its steps lets no client wait for the compiler."""

from __future__ import annotations

import torch

from glassformer.data.tokens.vocabulary import BOS
from glassformer.decode.choose.context import Context
from glassformer.decode.engine.batching import Engine
from glassformer.decode.engine.requests import Request
from glassformer.foundation.shapes import Float, Int, Tensor

READ, WRITTEN = (5, 2, 3), 2
"""Tokens read of texts that go on together, each longer than another; and tokens written, the last one by a step."""


def warm_up(engine: Engine) -> None:
    """Writes one short text and then several together, as code is compiled for each of both, and nothing else.

    To be called while nobody else steps. Fewer and shorter ones where the engine has no room. Errors: whatever a step
    fails with.
    """
    least = 2 if answers(engine) else 1  # tokens of the shortest text: itself, and the end of its source
    limits = engine.limits
    several = min(len(READ), limits.rows, limits.waiting, limits.tokens // least)
    for n in sorted({min(1, several), several}):
        for read in READ[:n]:
            engine.submit(request_of(engine, read, limits.tokens // n))
        while engine.busy:
            for each in engine.step():
                if each.error is not None:
                    raise each.error


def request_of(engine: Engine, read: int, room: int) -> Request:
    """A text that reads so many tokens, or as many as there is room for."""
    config, end = engine.model.config, int(answers(engine))
    most = min(each for each in (room - end, engine.max_context, config.stack.max_len) if each is not None)
    written = min(WRITTEN, most)
    if config.encoder is None or not end:
        return Request([BOS] * min(read, most - written + 1), max_new_tokens=written, choose=again)
    longest = min(room - written, config.encoder.max_len or room)
    return Request(source=[BOS] * min(read, longest - end), max_new_tokens=written, choose=again)


def answers(engine: Engine) -> bool:
    """Whether a text is an answer to a source."""
    return engine.model.config.encoder is not None and engine.model.config.decoder is not None


def again(logits: Float[Tensor, "B V"], context: Context) -> Int[Tensor, " B"]:
    """The same token for each row, which ends none before its time."""
    return torch.full((len(logits),), BOS, device=logits.device)
