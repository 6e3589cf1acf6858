"""Probabilities of labels: those of one classifier for many texts, and the mean over an ensemble of several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from glassformer.base.errors import ConfigError, DataError
from glassformer.base.shapes import Float, Tensor
from glassformer.data.batch import pad
from glassformer.data.dataset import Tokenizers
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


# An ensemble of classifiers, trained separately, whose probabilities are averaged.

Read = Sequence[Sequence[int]]
"""One text as ids, once per member."""


class Member(NamedTuple):
    """One classifier of an ensemble."""

    name: str
    """The member's name in errors."""
    model: Transformer
    tokenizers: Tokenizers
    state: Mapping[str, Any] = {}
    """Its checkpoint's state."""


def shared_labels(members: Sequence[Member]) -> list[str]:
    """The members' common labels, in the order of the first. Errors: `ConfigError` naming a label that one lacks."""
    (first, labels), *others = ((each.name, each.tokenizers.labels) for each in members)
    for name, own in others:
        for one, some, two, all_of_two in ((first, labels, name, {*own}), (name, own, first, {*labels})):
            if missing := [label for label in some if label not in all_of_two]:
                raise ConfigError(
                    f"The members of an ensemble must have the same labels; {two} lacks "
                    f"{missing[0][:40]!r}, which {one} has. Remove one of them, or train both on texts with "
                    "the same labels."
                )
    return labels


def ensemble_probabilities(
    members: Sequence[Member], texts: Sequence[Read], *, batch_size: int = 128
) -> Float[Tensor, "N L"]:
    """Return the mean probability of each of `shared_labels` for each text, in float64.

    Errors: `ConfigError` for members with different labels, `DataError` for a member whose probabilities are not
    finite, and those of `label_probabilities`.
    """
    labels = shared_labels(members)
    tables = [
        label_probabilities(member.model, [text[place] for text in texts], batch_size=batch_size)
        for place, member in enumerate(members)
    ]
    for member, table in zip(members, tables, strict=True):
        if not bool(table.isfinite().all()):
            raise DataError(
                f"The probabilities of labels must be finite numbers; those of {member.name} are not. Its training "
                "diverged: use an earlier checkpoint, or remove it from the ensemble."
            )
    return mean_by_name(tables, [member.tokenizers.labels for member in members], labels)


def mean_by_name(
    tables: Sequence[Float[Tensor, "N L"]], columns: Sequence[Sequence[str]], labels: Sequence[str]
) -> Float[Tensor, "N L"]:
    """Average tables with named columns, in float64; the columns of the result are `labels`."""
    aligned = [
        table.double()[:, [names.index(label) for label in labels]]
        for table, names in zip(tables, columns, strict=True)
    ]
    return torch.stack(aligned).mean(0)
