"""What is minimised: cross-entropy of the right tokens or labels, or a squared error. Labels are shifted here alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F

from glassformer.data.batch import Batch
from glassformer.foundation.errors import DataError
from glassformer.foundation.shapes import Bool, Float, Int, Tensor
from glassformer.model.heads import PlaceHead, SequenceHead
from glassformer.model.joint import MeanHead
from glassformer.model.outputs import Lm
from glassformer.model.transformer import Transformer
from glassformer.parts import Head
from glassformer.train.balance import routing_loss, watch_routers
from glassformer.train.cross_entropy import cross_entropy, cross_entropy_of_vectors

ROWS = 64
"""Where there is padding the head reads a multiple of so many vectors. In bfloat16 a processor's library compiles a
product for each new shape, which takes longer than the product (1,024 x 4,000 times 4,000 x 256 on Intel AMX: 19 ms
beside 0.9)."""
WHOLE = 1 << 25
"""Logits up to which they exist whole: beyond, chunks are as fast and hold a fraction (`make bench
ARGS=cross_entropy`)."""


class Loss(NamedTuple):
    """Sums over the targets of a batch, so that sums over batches are exact however they were split."""

    objective: Float[Tensor, ""]
    """What is minimised: label-smoothed cross-entropy, in nats; of numbers the squared error; and, for each target, the
    loss of the routers."""
    nll: Float[Tensor, ""]
    """What is reported: negative log-likelihood of the targets, in nats; of numbers the squared error. No gradient."""


class Targets(NamedTuple):
    """What a batch asks for: read `inputs`, predict `ids` where `keep` is True (None: everywhere).

    A head that answers once a sequence is asked for one label a row, or for N numbers.
    """

    inputs: Int[Tensor, "B T"] | Float[Tensor, "B T I"]
    inputs_keep: Bool[Tensor, "B T"] | None
    ids: Int[Tensor, "B T"] | Int[Tensor, " B"] | Float[Tensor, "B N"]
    keep: Bool[Tensor, "B T"] | None
    counted: Bool[Tensor, "B T"] | None = None
    """Inputs that count in a mean over tokens, as that of a router's balance; None: all. Whether the last token of a
    row is among the inputs depends on its neighbours' lengths, so a token that predicts no token does not count."""
    documents: Int[Tensor, "B T"] | None = None
    """To which document each input belongs."""
    prefix: Int[Tensor, " B"] | None = None
    """How many inputs at the start of a row all others may read."""

    @property
    def n_targets(self) -> int:
        """How many targets there are."""
        return self.ids.numel() if self.keep is None else int(self.keep.sum())


def next_token(batch: Batch) -> Targets:
    """Each position predicts the token after it (teacher forcing): language models and sequence to sequence.

    The first token of a document follows none of its own, and a token of a prefix could be read by what predicts it:
    both are read and not asked for.
    """
    tokens, keep, documents, prefix = batch.tokens, batch.keep, batch.documents, batch.prefix
    asked = None if keep is None else keep[:, 1:]
    if documents is not None:
        asked = both(asked, documents[:, 1:] == documents[:, :-1])
    if prefix is not None:
        asked = both(asked, torch.arange(1, tokens.shape[1], device=tokens.device) >= prefix[:, None])
        prefix = prefix.clamp(max=tokens.shape[1] - 1)
    counted = None if keep is None else keep[:, :-1] & keep[:, 1:]
    belongs = None if documents is None else documents[:, :-1]
    return Targets(
        tokens[:, :-1], None if keep is None else keep[:, :-1], tokens[:, 1:], asked, counted, belongs, prefix
    )


def both(one: Bool[Tensor, "B T"] | None, other: Bool[Tensor, "B T"]) -> Bool[Tensor, "B T"]:
    """Where both are True; None is True everywhere."""
    return other if one is None else one & other


def masked_token(batch: Batch) -> Targets:
    """Marked positions predict the label that belongs there (Devlin et al. 2019, section 3.1)."""
    labels = labels_of(batch, "masked_token", "Batch.blanks")
    return Targets(batch.tokens, batch.keep, labels, batch.label_keep, batch.keep, batch.documents, batch.prefix)


def tag(batch: Batch) -> Targets:
    """Every real token, or every marked one, has a label of its own."""
    labels = labels_of(batch, "tag", "Batch.tagged")
    asked = batch.label_keep if batch.label_keep is not None else batch.keep
    return Targets(batch.tokens, batch.keep, labels, asked, batch.keep, batch.documents, batch.prefix)


def classify(batch: Batch) -> Targets:
    """Every row has one label."""
    return Targets(batch.tokens, batch.keep, labels_of(batch, "classify", "Batch.labelled"), None, batch.keep)


def regress(batch: Batch) -> Targets:
    """Every row has its numbers. Errors: `DataError` for whole numbers, which are labels."""
    numbers = labels_of(batch, "regress", "Batch.labelled")
    if not numbers.is_floating_point():
        raise DataError(f"The regress objective needs numbers of a float type; got {numbers.dtype}. Write 3.0 for 3.")
    return Targets(batch.tokens, batch.keep, numbers, None, batch.keep)


def labels_of(batch: Batch, objective: str, maker: str) -> Tensor:
    """The labels of a batch. Errors: `DataError` for one without."""
    if batch.labels is None:
        raise DataError(f"The {objective} objective needs a batch with labels; this one has none. See {maker}.")
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
    """What the head is for. Of one over tokens: a causal model predicts the next, one that reads both ways fills in."""
    head = model.config.head
    if not isinstance(head, Lm):
        return OBJECTIVES[head.kind]
    return OBJECTIVES["next_token" if model.config.stack.causal else "masked_token"]


def loss_of(model: Transformer, batch: Batch, objective: Objective, *, label_smoothing: float = 0.0) -> Loss:
    """The loss over the batch's targets; padding takes no part in it, not even through label smoothing.

    Experts add their routers' penalty, a mean over the tokens of this batch; it is counted once for each target, so
    that it keeps its weight beside a loss that is divided by the number of targets.
    """
    asked = objective(batch)
    with watch_routers(model) as seen:
        x = hidden(model, batch, asked)
    if isinstance(model.head, SequenceHead):
        ids = asked.ids
        loss = token_or_number_loss(model.head(x, asked.inputs_keep), ids, label_smoothing)
    else:
        vectors, ids = asked_for(x, asked)
        loss = loss_in_places(model.head, vectors, ids, label_smoothing)
    main = "encoder" if model.decoder is None else "decoder"
    penalty = routing_loss(seen, {"encoder": batch.source_keep, main: asked.counted})
    return loss if penalty is None else Loss(loss.objective + ids.numel() * penalty, loss.nll)


def hidden(
    model: Transformer, batch: Batch, asked: Targets, memory: Float[Tensor, "B S D"] | None = None
) -> Float[Tensor, "B T D"]:
    """The vectors before the head; `memory`: what an encoder has made of the source already."""
    return model.hidden(
        asked.inputs,
        keep=asked.inputs_keep,
        source=batch.source if memory is None else None,
        source_keep=batch.source_keep,
        memory=memory,
        documents=asked.documents,
        prefix=asked.prefix,
    )


def asked_for(x: Float[Tensor, "B T D"], asked: Targets) -> tuple[Float[Tensor, "M D"], Int[Tensor, " N"]]:
    """The vectors that the head reads, and what it should say of the first N; padding is never asked for.

    Up to `ROWS` - 1 more vectors stand behind those, so that the widest product of the model has few shapes.
    """
    vectors, ids = x.flatten(0, 1), asked.ids.flatten()
    if asked.keep is None:
        return vectors, ids
    places = asked.keep.flatten().nonzero()[:, 0]
    return vectors.index_select(0, F.pad(places, (0, -len(places) % ROWS))), ids[places]


def loss_in_places(
    head: Head | PlaceHead | MeanHead, x: Float[Tensor, "M D"], ids: Int[Tensor, " N"], label_smoothing: float
) -> Loss:
    """What the head's scores of M vectors cost; the logits of a large vocabulary never exist whole."""
    if isinstance(head, MeanHead):
        rows = rows_at_once(head)
        parts = [
            token_or_number_loss(head(part), some, label_smoothing)
            for part, some in zip(x[: len(ids)].split(rows), ids.split(rows), strict=True)
        ]
        return Loss(*(torch.stack(each).sum() for each in zip(*parts, strict=True)))
    if not isinstance(head, Head) or len(x) * len(head.weight) <= WHOLE:
        return token_or_number_loss(head(x), ids, label_smoothing)
    check_labels(ids, len(head.weight))
    return Loss(*cross_entropy_of_vectors(head.turned(x), head.weight, head.bias, ids, label_smoothing))


def likeliest(head: Head | PlaceHead | MeanHead, x: Float[Tensor, "M D"]) -> Int[Tensor, " M"]:
    """The id with the highest score for each vector; the logits of a large vocabulary never exist whole."""
    return torch.cat([head(part).argmax(-1) for part in x.split(rows_at_once(head))])


def rows_at_once(head: Head | PlaceHead | MeanHead) -> int:
    """For how many vectors the logits may exist."""
    return max(1, WHOLE // (head.n_tokens if isinstance(head, MeanHead) else len(head.weight)))


def token_or_number_loss(outputs: Tensor, ids: Tensor, label_smoothing: float) -> Loss:
    """Cross-entropy where ids are asked for, squared error where numbers are."""
    if ids.is_floating_point():
        return squared_error(outputs, ids)
    check_labels(ids, outputs.shape[-1])
    return Loss(*cross_entropy(outputs, ids, label_smoothing))


def squared_error(outputs: Float[Tensor, "B M"], numbers: Float[Tensor, "B N"]) -> Loss:
    """The sum of (output - number)^2, in float32 at least. Errors: `DataError` for another count of numbers a row."""
    if outputs.shape != numbers.shape:
        raise DataError(
            f"The model answers {outputs.shape[-1]} numbers a row, but the batch has {numbers.shape[-1]}. "
            "Give as many as head.n_numbers says."
        )
    wide = torch.promote_types(outputs.dtype, torch.float32)
    total = (outputs.to(wide) - numbers.to(wide)).square().sum()
    return Loss(total, total.detach())


def check_labels(ids: Int[Tensor, " N"], n_labels: int) -> None:
    """Refuse a label that the head has no score for, by its place among the targets."""
    if ids.device.type != "cpu" or torch.compiler.is_compiling():  # elsewhere the look would cost a wait
        return
    wrong = ((ids < 0) | (ids >= n_labels)).nonzero()
    if len(wrong):
        place = int(wrong[0])
        raise DataError(
            f"Targets must be from 0 to {n_labels - 1}, as the head scores {n_labels}; got {int(ids[place])} at target "
            f"{place} (counted from 0). Make the model with more labels, or mend the batch."
        )
