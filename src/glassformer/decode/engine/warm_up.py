"""Warming up an engine with compiled steps, so that no client has to wait for the compiler."""

from __future__ import annotations

import torch

from glassformer.base.shapes import Float, Int, Tensor
from glassformer.data.tokens.vocabulary import BOS
from glassformer.decode.choose.context import Context
from glassformer.decode.engine.batching import Engine
from glassformer.decode.engine.requests import Request

READ, WRITTEN = (5, 2, 3), 2
"""Tokens read by each of the texts written together, all different; and tokens written, the last one by a step."""


def warm_up(engine: Engine) -> None:
    """Write one short text and then several together, because each of these two cases is compiled separately.

    Call it while nothing else calls `step`. Texts are fewer and shorter if the engine has little room. Errors: whatever
    a step fails with.
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
    """Make a request that reads `read` tokens, or as many as there is room for."""
    config, end = engine.model.config, int(answers(engine))
    most = min(each for each in (room - end, engine.max_context, config.stack.max_len) if each is not None)
    written = min(WRITTEN, most)
    if config.encoder is None or not end:
        return Request([BOS] * min(read, most - written + 1), max_new_tokens=written, choose=again)
    longest = min(room - written, config.encoder.max_len or room)
    return Request(source=[BOS] * min(read, longest - end), max_new_tokens=written, choose=again)


def answers(engine: Engine) -> bool:
    """Whether the engine's model is an encoder-decoder, so that a text answers a source."""
    return engine.model.config.encoder is not None and engine.model.config.decoder is not None


def again(logits: Float[Tensor, "B V"], context: Context) -> Int[Tensor, " B"]:
    """Choose <bos> for every row, so that none ends early."""
    return torch.full((len(logits),), BOS, device=logits.device)
