"""What a model thought at each step: the token taken, its chance and rank, the likeliest others, and the logit lens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from glassformer.foundation.shapes import Float, Tensor
from glassformer.lens.trace.quantise import brief
from glassformer.lens.trace.reading import Reading
from glassformer.model.transformer import Transformer

TOP = 10
"""The likeliest tokens that a step lists."""
LENS_TOP = 3
ROWS = 64
"""Places whose chances over the vocabulary are in memory together."""


def steps_of(reading: Reading, logits: Float[Tensor, "T V"]) -> list[dict[str, Any]]:
    """One entry for each place at which a token was taken; chances are those of the model itself, at temperature 1.

    Entropy and loss are in nats; `rank` counts the tokens that were likelier than the one taken.
    """
    found: list[dict[str, Any]] = []
    for t, said in enumerate(reading.said):
        if said is not None:
            found.append(step_of(reading, t, said, logits[t]))
    return found


def step_of(reading: Reading, t: int, said: int, logits: Float[Tensor, " V"]) -> dict[str, Any]:
    """The entry of one place: a row of the vocabulary at a time, as all of them together may be large."""
    log_p = logits.double().log_softmax(-1)
    p = log_p.exp()
    gold = reading.gold[t]
    values, ids = p.topk(min(TOP, len(p)))
    return {
        "pos": t,
        "input": reading.tokens[t],
        "chosen": said,
        "p": brief(float(p[said])),
        "rank": int((p > p[said]).sum()),
        "entropy": brief(-float((p * log_p.clamp(min=-1e9)).sum())),
        "gold": gold,
        "gold_p": None if gold is None else brief(float(p[gold])),
        "loss": brief(-float(log_p[said if gold is None else gold])),
        "top": [[i, brief(v), brief(float(logits[i]))] for i, v in zip(ids.tolist(), values.tolist(), strict=True)],
        "rest": brief(max(0.0, 1.0 - float(values.sum()))),
    }


@torch.no_grad()
def lens_of(model: Transformer, reading: Reading, streams: Sequence[Float[Tensor, "T D"]]) -> dict[str, Any]:
    """The logit lens (nostalgebraist 2020): what norm and head make of the stream before the last block has written.

    `top[layer][place]` are the likeliest tokens with their chances, `p[layer][place]` the chance of the token taken.
    """
    stack = model.reader
    names = ["input", *(f"block {i}" for i in range(len(streams) - 1))]
    top: list[list[list[list[float]]]] = []
    chances: list[list[float | None]] = []
    for stream in streams:
        rows: list[list[list[float]]] = []
        of_said: list[float | None] = []
        for part in stream.split(ROWS):
            p = model.head(stack.norm(part[None]))[0].cpu().double().softmax(-1)
            values, ids = p.topk(min(LENS_TOP, p.shape[-1]))
            for row, best in zip(ids.tolist(), values.tolist(), strict=True):
                rows.append([[i, brief(v)] for i, v in zip(row, best, strict=True)])
            for said, row in zip(reading.said[len(of_said) : len(of_said) + len(part)], p, strict=True):
                of_said.append(None if said is None else brief(float(row[said])))
        top.append(rows)
        chances.append(of_said)
    return {"names": names, "top": top, "p": chances}
