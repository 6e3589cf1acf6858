"""Mistakes about which token is predicted from which: wrappers around the right objective."""

from __future__ import annotations

from collections.abc import Callable

from glassformer.data.batch import Batch
from glassformer.train.objective import Objective, Targets


def shifted_labels(objective: Objective) -> Objective:
    """Ask each position for the label of the next position."""

    def twice(batch: Batch) -> Targets:
        asked = objective(batch)
        return Targets(
            asked.inputs[:, :-1],
            None if asked.inputs_keep is None else asked.inputs_keep[:, :-1],
            asked.ids[:, 1:],
            None if asked.keep is None else asked.keep[:, 1:],
            None if asked.counted is None else asked.counted[:, :-1],
            None if asked.documents is None else asked.documents[:, :-1],
            None if asked.prefix is None else asked.prefix.clamp(max=asked.inputs.shape[1] - 1),
        )

    return twice


def unshifted_labels(objective: Objective) -> Objective:
    """Ask each position for the token that it reads."""

    def never(batch: Batch) -> Targets:
        asked = objective(batch)
        return asked._replace(ids=asked.inputs)

    return never


def pads_in_loss(objective: Objective) -> Objective:
    """Ask every padding position for <pad>."""

    def counted(batch: Batch) -> Targets:
        asked = objective(batch)
        if asked.keep is None or batch.keep is None:
            return asked
        return asked._replace(keep=None if batch.labels is None else asked.keep | ~batch.keep)

    return counted


OBJECTIVE: dict[str, Callable[[Objective], Objective]] = {
    "shifted-labels": shifted_labels,
    "unshifted-labels": unshifted_labels,
    "pads-in-loss": pads_in_loss,
}
