"""What a model thought at each step: the token taken, its chance and rank, the likeliest others, and the logit lens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from glassformer.foundation.shapes import Float, Tensor
from glassformer.lens.trace.reading import Reading
from glassformer.model.transformer import Transformer

TOP = 10
"""The likeliest tokens that a step lists."""
LENS_TOP = 3


def steps_of(reading: Reading, logits: Float[Tensor, "T V"]) -> list[dict[str, Any]]:
    """One entry for each place at which a token was taken; chances are those of the model itself, at temperature 1.

    Entropy and loss are in nats; `rank` counts the tokens that were likelier than the one taken.
    """
    log_p = logits.double().log_softmax(-1)
    p = log_p.exp()
    entropy = -(p * log_p.clamp(min=-1e9)).sum(-1)
    values, ids = p.sort(dim=-1, descending=True, stable=True)
    found: list[dict[str, Any]] = []
    for t, said in enumerate(reading.said):
        if said is None:
            continue
        gold = reading.gold[t]
        right = said if gold is None else gold
        top = [[int(i), brief(float(p[t, i])), brief(float(logits[t, i]))] for i in ids[t, :TOP]]
        found.append(
            {
                "pos": t,
                "input": reading.tokens[t],
                "chosen": said,
                "p": brief(float(p[t, said])),
                "rank": int((p[t] > p[t, said]).sum()),
                "entropy": brief(float(entropy[t])),
                "gold": gold,
                "gold_p": None if gold is None else brief(float(p[t, gold])),
                "loss": brief(-float(log_p[t, right])),
                "top": top,
                "rest": brief(float(values[t, TOP:].sum())),
            }
        )
    return found


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
        p = model.head(stack.norm(stream[None]))[0].double().softmax(-1).cpu()
        values, ids = p.topk(min(LENS_TOP, p.shape[-1]))
        top.append(
            [
                [[i, brief(v)] for i, v in zip(row_ids, row, strict=True)]
                for row_ids, row in zip(ids.tolist(), values.tolist(), strict=True)
            ]
        )
        chances.append([None if s is None else brief(float(p[t, s])) for t, s in enumerate(reading.said)])
    return {"names": names, "top": top, "p": chances}


def brief(value: float) -> float:
    """Six significant digits: what is shown has fewer."""
    return float(f"{value:.6g}")
