"""What a model predicted at each step: the chosen token, the top tokens, the logit lens, and the terms of a logit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from glassformer.base.shapes import Float, Tensor
from glassformer.lens.attribute import attribute
from glassformer.lens.trace.file import Array, brief
from glassformer.lens.trace.reading import Reading
from glassformer.nn.heads import Head
from glassformer.nn.transformer import Transformer

TOP = 10
"""How many of the most likely tokens a step lists."""
LENS_TOP = 3
ROWS = 64
"""How many positions have their probabilities over the vocabulary in memory at once."""
BUFFER = "attribution"


def steps_of(reading: Reading, logits: Float[Tensor, "T V"]) -> list[dict[str, Any]]:
    """Return one entry for each position at which a token was chosen; probabilities are the model's at temperature 1.

    Entropy and loss are in nats; `rank` counts the tokens that were more likely than the chosen one.
    """
    found: list[dict[str, Any]] = []
    for t, said in enumerate(reading.said):
        if said is not None:
            found.append(step_of(reading, t, said, logits[t]))
    return found


def step_of(reading: Reading, t: int, said: int, logits: Float[Tensor, " V"]) -> dict[str, Any]:
    """Return the entry of one position; one row of the vocabulary at a time, as all together may be large."""
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
    """Compute the logit lens (nostalgebraist 2020): final norm and head on the input and on every block's output.

    `top[layer][place]` are the most likely tokens with their probabilities, `p[layer][place]` that of the chosen token.
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


def terms_of_logits(model: Transformer, reading: Reading) -> tuple[dict[str, Any], Array] | None:
    """Return the header's `attribution` and the terms [part, step], or None if the head is not linear in the stream."""
    if not isinstance(model.head, Head) or model.head.transform is not None:
        return None
    device = next(model.parameters()).device
    given = None if reading.source is None else torch.tensor([reading.source], device=device)
    asked = torch.tensor([0 if said is None else said for said in reading.said], device=device)
    found = attribute(model, torch.tensor([reading.tokens], device=device), asked, given)
    places = [place for place, said in enumerate(reading.said) if said is not None]
    return {"names": list(found.names), "buffer": BUFFER}, found.terms[:, places].float().cpu().numpy()
