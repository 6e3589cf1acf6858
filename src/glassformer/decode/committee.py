"""A committee of classifiers: an ensemble of models, trained separately, whose probabilities are averaged.

p(label | text) = 1/M Σ p_m(label | text), over the M members (Lakshminarayanan et al. 2017, section 2.4; Hansen and
Salamon 1990 with votes instead of probabilities). A random mistake of one member is seldom shared by the others. Each
member uses its own tokenizer. Sizes, vocabularies and devices may differ; the label set must be the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from glassformer.base.errors import ConfigError, DataError
from glassformer.base.shapes import Float, Tensor
from glassformer.data.dataset import Tokenizers
from glassformer.decode.classify import label_probabilities
from glassformer.nn.transformer import Transformer

Read = Sequence[Sequence[int]]
"""One text as ids, once per member."""


class Member(NamedTuple):
    """One classifier of a committee."""

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
                    f"The members of a committee (ensemble) must have the same labels; {two} lacks "
                    f"{missing[0][:40]!r}, which {one} has. Remove one of them, or train both on texts with "
                    "the same labels."
                )
    return labels


def committee_probabilities(
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
                "diverged: use an earlier checkpoint, or remove it from the committee."
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
