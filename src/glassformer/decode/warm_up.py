"""An engine that has written before anybody asks: who compiles its steps lets no client wait for the compiler."""

from __future__ import annotations

import torch

from glassformer.data.vocabulary import BOS
from glassformer.decode.batching import Engine
from glassformer.decode.context import Context
from glassformer.decode.requests import Request
from glassformer.foundation.shapes import Float, Int, Tensor

READ, WRITTEN = (5, 2, 3), 2
"""Tokens read of texts that go on together, each longer than another; and tokens written, the last one by a step."""


def warm_up(engine: Engine) -> None:
    """Writes one short text and then several together, as code is compiled for each of both, and nothing else.

    To be called while nobody else steps. Fewer and shorter ones where the engine has no room. Errors: whatever a step
    fails with.
    """
    several = min(len(READ), engine.limits.rows, engine.limits.tokens)
    for n in sorted({1, several}):
        for read in READ[:n]:
            engine.submit(request_of(engine, read, engine.limits.tokens // n))
        while engine.busy:
            for each in engine.step():
                if each.error is not None:
                    raise each.error


def request_of(engine: Engine, read: int, room: int) -> Request:
    """A text that reads so many tokens, or as many as there is room for."""
    config = engine.model.config
    most = min(each for each in (room, engine.max_context, config.stack.max_len) if each is not None)
    written = min(WRITTEN, most)
    if config.encoder is None or config.decoder is None:
        return Request([BOS] * min(read, most - written + 1), max_new_tokens=written, choose=again)
    longest = config.encoder.max_len
    source = [BOS] * (read if longest is None else min(read, longest - 1))
    return Request(source=source, max_new_tokens=written, choose=again)


def again(logits: Float[Tensor, "B V"], context: Context) -> Int[Tensor, " B"]:
    """The same token for each row, which ends none before its time."""
    return torch.full((len(logits),), BOS, device=logits.device)
