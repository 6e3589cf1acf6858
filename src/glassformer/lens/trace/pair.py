"""Activation patching between two traces: which parts of one bring its answer back on the other's text (`patch`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from glassformer.base.errors import DataError
from glassformer.decode.answer import nothing
from glassformer.lens.blocks import head_id
from glassformer.lens.patch import Input, Patching, patch
from glassformer.lens.trace.value import Trace
from glassformer.nn.transformer import Transformer


class Asked(NamedTuple):
    """The arguments of `patch`."""

    one: Input
    other: Input
    said: list[int | None]


def patch_traces(model: Transformer, one: Trace, other: Trace, *, poll: Callable[[], None] = nothing) -> Patching:
    """Patch activations of one trace into a pass over the other's text with the first one's answer; return the effects.

    `poll` is that of `patch`. Errors: `DataError` if the texts differ in length or the model writes no tokens.
    """
    return patch(model, *asked(one.header, other.header, next(model.parameters()).device), poll=poll)


def asked(one: Mapping[str, Any], other: Mapping[str, Any], device: torch.device) -> Asked:
    """Put the answer of one trace after the texts of both. Errors: `DataError` for a model that writes no tokens."""
    if not one["steps"]:
        raise DataError("Patching needs a model that writes tokens; this one gives labels. See `glassformer heads`.")
    texts, others = one["sequences"], other["sequences"]
    said = {step["pos"]: step["chosen"] for step in one["steps"]}
    if "target" not in texts:
        rows = texts["source"]["ids"], others["source"]["ids"]
        inputs = [Input(torch.tensor([ids], device=device)) for ids in rows]
    elif "source" in texts:
        tokens = torch.tensor([texts["target"]["ids"][:-1]], device=device)
        inputs = [Input(tokens, torch.tensor([each["source"]["ids"]], device=device)) for each in (texts, others)]
    else:
        begun = texts["target"]["n_prompt"]
        answer = texts["target"]["ids"][begun:-1]
        prompts = (each["target"]["ids"][: each["target"]["n_prompt"]] for each in (texts, others))
        inputs = [Input(torch.tensor([[*prompt, *answer]], device=device)) for prompt in prompts]
        said = {place: token for place, token in said.items() if place >= begun - 1}
    return Asked(inputs[0], inputs[1], [said.get(place) for place in range(inputs[0].tokens.shape[1])])


def patching_as_json(found: Patching) -> dict[str, Any]:
    """Return the effects as JSON: heads with the strongest first, streams by stack and blocks."""
    heads: list[dict[str, Any]] = [
        {"id": head_id(*where, head), "block": where[0], "layer": where[1], "head": head, "effect": float(effect)}
        for where, effects in found.heads.items()
        for head, effect in enumerate(effects)
    ]
    streams = [{"side": side, "effects": effects.tolist()} for side, effects in found.streams.items()]
    return {
        "one": found.one,
        "other": found.other,
        "heads": sorted(heads, key=lambda each: -abs(each["effect"])),
        "streams": streams,
    }
