"""Turn a batch into what the model reads and what it must predict. Labels are shifted here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from glassformer.base.errors import DataError
from glassformer.base.shapes import Bool, Float, Int, Tensor
from glassformer.data.batch import Batch
from glassformer.nn.outputs import Lm
from glassformer.nn.transformer import Transformer


class Targets(NamedTuple):
    """What the model reads and must predict: `inputs`, and the `ids` at the places where `keep` is True (None: all).

    For a head that answers once per sequence, the targets are one label per row, or N numbers per row. Numbers at each
    place are `ids` of three dimensions.
    """

    inputs: Int[Tensor, "B T"] | Float[Tensor, "B T I"]
    inputs_keep: Bool[Tensor, "B T"] | None
    ids: Int[Tensor, "B T"] | Int[Tensor, " B"] | Float[Tensor, "B N"] | Float[Tensor, "B T N"]
    keep: Bool[Tensor, "B T"] | None
    counted: Bool[Tensor, "B T"] | None = None
    """Inputs that count in a mean over tokens, such as that of a router's balance; None: all. Whether the last token of
    a row is among the inputs depends on its neighbours' lengths, so an input without a next token does not count."""
    documents: Int[Tensor, "B T"] | None = None
    """The document that each input belongs to."""
    prefix: Int[Tensor, " B"] | None = None
    """How many inputs at the start of each row every input of the row may read."""

    @property
    def n_targets(self) -> int:
        """The number of targets: labels, or single numbers."""
        return self.ids.numel() if self.keep is None else int(self.keep.sum()) * self.ids.shape[2:].numel()


def next_token(batch: Batch) -> Targets:
    """Each position predicts the next token (teacher forcing): language models and sequence-to-sequence models.

    Some tokens are inputs but never targets: the first token of a document, which has no predecessor in it, and the
    tokens of a prefix, which the positions that would predict them can already read.
    """
    tokens, keep, documents, prefix = batch.tokens, batch.keep, batch.documents, batch.prefix
    target_keep = None if keep is None else keep[:, 1:]
    if documents is not None:
        target_keep = both(target_keep, documents[:, 1:] == documents[:, :-1])
    if prefix is not None:
        target_keep = both(target_keep, torch.arange(1, tokens.shape[1], device=tokens.device) >= prefix[:, None])
        prefix = prefix.clamp(max=tokens.shape[1] - 1)
    counted = None if keep is None else keep[:, :-1] & keep[:, 1:]
    belongs = None if documents is None else documents[:, :-1]
    return Targets(
        tokens[:, :-1], None if keep is None else keep[:, :-1], tokens[:, 1:], target_keep, counted, belongs, prefix
    )


def both(one: Bool[Tensor, "B T"] | None, other: Bool[Tensor, "B T"]) -> Bool[Tensor, "B T"]:
    """The positions where both are True; None means True everywhere."""
    return other if one is None else one & other


def masked_token(batch: Batch) -> Targets:
    """Marked positions predict the label that belongs there (Devlin et al. 2019, section 3.1)."""
    labels = labels_of(batch, "masked_token", "Batch.blanks")
    return Targets(batch.tokens, batch.keep, labels, batch.label_keep, batch.keep, batch.documents, batch.prefix)


def tag(batch: Batch) -> Targets:
    """Every real token, or every marked one, has a label of its own."""
    labels = labels_of(batch, "tag", "Batch.tagged")
    target_keep = batch.label_keep if batch.label_keep is not None else batch.keep
    return Targets(batch.tokens, batch.keep, labels, target_keep, batch.keep, batch.documents, batch.prefix)


def classify(batch: Batch) -> Targets:
    """Every row has one label."""
    return Targets(batch.tokens, batch.keep, labels_of(batch, "classify", "Batch.labelled"), None, batch.keep)


def regress(batch: Batch) -> Targets:
    """Every row, or every real (or marked) place, has its numbers. Errors: `DataError` for labels."""
    numbers = labels_of(batch, "regress", "Batch.labelled")
    if not numbers.is_floating_point():
        raise DataError(f"The regress objective needs numbers of a float type; got {numbers.dtype}. Write 3.0 for 3.")
    in_places = numbers.ndim == 3
    target_keep = (batch.label_keep if batch.label_keep is not None else batch.keep) if in_places else None
    return Targets(batch.tokens, batch.keep, numbers, target_keep, batch.keep, batch.documents, batch.prefix)


def labels_of(batch: Batch, objective: str, maker: str) -> Tensor:
    """Return the labels of a batch. Errors: `DataError` if it has none."""
    if batch.labels is None:
        raise DataError(
            f"The {objective} objective needs a batch with labels; this one has none. Make it with {maker}."
        )
    return batch.labels


Objective = Callable[[Batch], Targets]
OBJECTIVES: dict[str, Objective] = {
    "next_token": next_token,
    "masked_token": masked_token,
    "classify": classify,
    "tag": tag,
    "regress": regress,
}


def objective_for(model: Transformer) -> Objective:
    """The objective that fits the model's head.

    A head over tokens predicts the next token if the model is causal, and fills in masked tokens if it reads both ways.
    Tokens that it never predicts (`silent`) are no targets.
    """
    head, silent = model.config.head, model.config.silent_ids
    if not isinstance(head, Lm):
        return OBJECTIVES[head.kind]
    objective = OBJECTIVES["next_token" if model.config.stack.causal else "masked_token"]
    return without(objective, silent) if silent else objective


def without(objective: Objective, silent: Sequence[int]) -> Objective:
    """The objective without the targets that are `silent`: an imported model, for one, never writes <bos>.

    Their probability is 0 by construction, so the loss of one would outweigh that of a whole text. For the same reason
    label smoothing leaves them out (`Head.prior`).
    """

    def spoken(batch: Batch) -> Targets:
        targets = objective(batch)
        never = torch.isin(targets.ids, torch.tensor(silent, device=targets.ids.device))
        return targets._replace(keep=both(targets.keep, ~never))

    return spoken
