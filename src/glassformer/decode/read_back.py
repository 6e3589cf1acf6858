"""Scoring given answers in one forward pass: each token's log-probability, and its alignment to the source."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple

import torch

from glassformer.base.errors import ConfigError
from glassformer.data.batch import pad
from glassformer.data.tokens.vocabulary import BOS, EOS
from glassformer.decode.answer import Answer
from glassformer.decode.beam import reading
from glassformer.nn.observe import Evaluation
from glassformer.nn.transformer import Transformer

Link = tuple[int, int]
"""(token of the source, token of the answer), both counted from 0."""


class ReadBack(NamedTuple):
    """The model's own scores of an answer, before temperature, penalties and filters."""

    log_probabilities: list[float]
    """Of each token, in nats; the last one is that of <eos> if the answer is complete."""
    links: list[Link]
    """The source token that each answer token attends to most, in order; no link if that is the source's <eos>."""


@torch.no_grad()
def read_back(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    answers: Sequence[Answer],
    *,
    batch_size: int = 128,
    linked: bool = True,
) -> list[ReadBack]:
    """Score each answer to its source; with `linked`, also align it by the attention weights of `reading_layer`.

    A token is aligned by the weights of the position that predicts it, which is one before its own. Errors:
    `ConfigError` for a model that is not an encoder-decoder.
    """
    if model.encoder is None or model.decoder is None:
        raise ConfigError(
            "Scores of answers and alignments need an encoder-decoder; this model has one stack. Remove them."
        )
    found: list[ReadBack] = []
    device = next(model.parameters()).device
    for first in range(0, len(sources), batch_size):
        batch = sources[first : first + batch_size]
        written = [[*each.ids, *([EOS] if each.complete else [])] for each in answers[first : first + batch_size]]
        source, source_keep = pad([[*each, EOS] for each in batch])
        tokens, keep = pad([[BOS, *ids[:-1]] for ids in written])
        source_keep, keep = (None if each is None else each.to(device) for each in (source_keep, keep))
        with Evaluation(model), reading(model) if linked else nullcontext() as seen:
            logits = model(tokens.to(device), keep=keep, source=source.to(device), source_keep=source_keep)
        log_p = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
        for row, ids in enumerate(written):
            chances = log_p[row, : len(ids)].gather(-1, torch.tensor(ids, device=device)[:, None])[:, 0].tolist()
            links: list[Link] = []
            if seen is not None and seen.weights is not None:
                most = seen.weights[row].argmax(-1).tolist()
                links = [(most[j], j) for j, id in enumerate(ids) if id != EOS and most[j] < len(batch[row])]
            found.append(ReadBack(chances, links))
    return found


def pharaoh(links: Sequence[Link]) -> str:
    """Format links as "0-0 1-2 2-1", source token first (Pharaoh format)."""
    return " ".join(f"{i}-{j}" for i, j in links)
