"""What is minimised: the cross-entropy of the right tokens. Labels are shifted here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from glassformer.data.batch import Batch
from glassformer.foundation.errors import DataError
from glassformer.foundation.shapes import Bool, Float, Int, Tensor
from glassformer.model.transformer import Transformer
from glassformer.train.balance import routing_loss, watch_routers
from glassformer.train.cross_entropy import cross_entropy


class Loss(NamedTuple):
    """Sums over the targets of a batch, so that sums over batches are exact however they were split."""

    objective: Float[Tensor, ""]
    """What is minimised: label-smoothed cross-entropy, in nats; and, for each target, the loss of the routers."""
    nll: Float[Tensor, ""]
    """Negative log-likelihood of the targets, in nats; without gradient."""


class Targets(NamedTuple):
    """What a batch asks for: read `inputs`, predict `ids` where `keep` is True (None: everywhere)."""

    inputs: Int[Tensor, "B T"]
    inputs_keep: Bool[Tensor, "B T"] | None
    ids: Int[Tensor, "B T"]
    keep: Bool[Tensor, "B T"] | None
    counted: Bool[Tensor, "B T"] | None = None
    """Inputs that count in a mean over tokens, as that of a router's balance; None: all. Whether the last token of a
    row is among the inputs depends on its neighbours' lengths, so a token that predicts no token does not count."""

    @property
    def n_targets(self) -> int:
        """How many targets there are."""
        return self.ids.numel() if self.keep is None else int(self.keep.sum())


def next_token(batch: Batch) -> Targets:
    """Each position predicts the token after it (teacher forcing): language models and sequence to sequence."""
    keep = batch.keep
    if keep is None:
        return Targets(batch.tokens[:, :-1], None, batch.tokens[:, 1:], None)
    return Targets(batch.tokens[:, :-1], keep[:, :-1], batch.tokens[:, 1:], keep[:, 1:], keep[:, :-1] & keep[:, 1:])


def masked_token(batch: Batch) -> Targets:
    """Marked positions predict the label that belongs there (Devlin et al. 2019, section 3.1)."""
    if batch.labels is None:
        raise DataError("The masked_token objective needs a batch with labels; this one has none. See Batch.blanks.")
    return Targets(batch.tokens, batch.keep, batch.labels, batch.label_keep, batch.keep)


Objective = Callable[[Batch], Targets]
OBJECTIVES: dict[str, Objective] = {"next_token": next_token, "masked_token": masked_token}


def objective_for(model: Transformer) -> Objective:
    """A model that is causal predicts the next token; one that reads both ways fills marked positions."""
    return OBJECTIVES["next_token" if model.config.stack.causal else "masked_token"]


def loss_of(model: Transformer, batch: Batch, objective: Objective, *, label_smoothing: float = 0.0) -> Loss:
    """The loss over the batch's targets; padding takes no part in it, not even through label smoothing.

    Experts add their routers' penalty, a mean over the tokens of this batch; it is counted once for each target, so
    that it keeps its weight beside a loss that is divided by the number of targets.
    """
    asked = objective(batch)
    with watch_routers(model) as seen:
        hidden = model.hidden(asked.inputs, keep=asked.inputs_keep, source=batch.source, source_keep=batch.source_keep)
    ids = asked.ids.flatten() if asked.keep is None else asked.ids[asked.keep]
    vectors = hidden.flatten(0, 1) if asked.keep is None else hidden[asked.keep]  # padding never reaches the head
    minimised, nll = cross_entropy(model.head(vectors), ids, label_smoothing)
    main = "encoder" if model.decoder is None else "decoder"
    penalty = routing_loss(seen, {"encoder": batch.source_keep, main: asked.counted})
    return Loss(minimised if penalty is None else minimised + len(ids) * penalty, nll)
