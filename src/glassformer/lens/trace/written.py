"""Direct logit attribution for a trace: the terms of each token's logit, for the header and a buffer."""

from __future__ import annotations

from typing import Any

import torch

from glassformer.lens.attribute import attribute
from glassformer.lens.trace.quantise import Array
from glassformer.lens.trace.reading import Reading
from glassformer.nn.transformer import Transformer
from glassformer.nn.vocabulary import Head

BUFFER = "attribution"


def written(model: Transformer, reading: Reading) -> tuple[dict[str, Any], Array] | None:
    """Return the header's `attribution` and the terms [part, step], or None if the head is not linear in the stream."""
    if not isinstance(model.head, Head) or model.head.transform is not None:
        return None
    device = next(model.parameters()).device
    given = None if reading.source is None else torch.tensor([reading.source], device=device)
    asked = torch.tensor([0 if said is None else said for said in reading.said], device=device)
    found = attribute(model, torch.tensor([reading.tokens], device=device), asked, given)
    places = [place for place, said in enumerate(reading.said) if said is not None]
    return {"names": list(found.names), "buffer": BUFFER}, found.terms[:, places].float().cpu().numpy()
