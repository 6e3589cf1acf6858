"""Label probabilities for many texts: sort them by length, read in batches, return the results in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from glassformer.base.errors import ConfigError
from glassformer.base.shapes import Float, Tensor
from glassformer.data.rows import pad
from glassformer.data.tokens.vocabulary import BOS
from glassformer.decode.answer import nothing
from glassformer.nn.observe import Evaluation
from glassformer.nn.outputs import Classify
from glassformer.nn.transformer import Transformer


@torch.no_grad()
def label_probabilities(
    model: Transformer,
    texts: Sequence[Sequence[int]],
    *,
    batch_size: int = 128,
    poll: Callable[[], None] = nothing,
) -> Float[Tensor, "N L"]:
    """Return the probability of each label for each text, in order.

    Batches do not affect the result. `poll` is called before each batch; an exception from it ends the work. Errors:
    `ConfigError` for a model without a classify head, `DataError` for a text longer than the model takes.
    """
    if not isinstance(model.config.head, Classify):
        raise ConfigError(
            f"Labels need a model with a classification head; this one has head {model.config.head.kind!r}. "
            "Train one with head=Classify(n_labels)."
        )
    device, evaluation = next(model.parameters()).device, Evaluation(model)
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    found = torch.zeros(len(texts), model.config.head.n_labels)
    for first in range(0, len(order), batch_size):
        poll()
        rows = order[first : first + batch_size]
        tokens, keep = pad([[BOS, *texts[row]] for row in rows])
        with evaluation:
            scores = model(tokens.to(device), keep=None if keep is None else keep.to(device))
        found[rows] = scores.float().softmax(-1).cpu()
    return found
