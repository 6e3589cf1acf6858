"""An engine that has written before anybody asks: who compiles its steps lets no client wait for the compiler."""

from __future__ import annotations

import torch

from glassformer.data.vocabulary import BOS
from glassformer.decode.batching import Engine
from glassformer.decode.context import Context
from glassformer.decode.requests import Request
from glassformer.foundation.shapes import Float, Int, Tensor

ROWS = ((5, 2), (2, 3), (3, 4))
"""Tokens read and tokens written of texts that go on together: each is longer than another, and ends at another step.

So some steps are of several rows and others of one, as code is compiled for each of both.
"""


def warm_up(engine: Engine) -> None:
    """Writes a few short texts to their ends, and nothing else; to be called while nobody else steps.

    Fewer and shorter ones where the engine has no room. Errors: whatever a step fails with.
    """
    n = min(len(ROWS), engine.limits.rows, engine.limits.tokens)
    for read, written in ROWS[:n]:
        engine.submit(request_of(engine, read, written, engine.limits.tokens // n))
    while engine.busy:
        for each in engine.step():
            if each.error is not None:
                raise each.error


def request_of(engine: Engine, read: int, written: int, room: int) -> Request:
    """A text of so many tokens, or of as many as there is room for."""
    config = engine.model.config
    most = min(each for each in (room, engine.max_context, config.stack.max_len) if each is not None)
    written = min(written, most)
    if config.encoder is None or config.decoder is None:
        return Request([BOS] * min(read, most - written + 1), max_new_tokens=written, choose=again)
    longest = config.encoder.max_len
    source = [BOS] * (read if longest is None else min(read, longest - 1))
    return Request(source=source, max_new_tokens=written, choose=again)


def again(logits: Float[Tensor, "B V"], context: Context) -> Int[Tensor, " B"]:
    """The same token for each row, which ends none before its time."""
    return torch.full((len(logits),), BOS, device=logits.device)
