"""The loss of a batch: cross-entropy of tokens or labels, or a squared error."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from glassformer.base.errors import DataError
from glassformer.base.shapes import Bool, Float, Int, Tensor
from glassformer.data.batch import Batch
from glassformer.nn.ensemble import MeanHead
from glassformer.nn.heads import Head, PlaceHead, SequenceHead
from glassformer.nn.transformer import Transformer
from glassformer.train.cross_entropy import PLAIN, Kernel, cross_entropy, cross_entropy_of_vectors
from glassformer.train.objective import Objective, Targets
from glassformer.train.routing_loss import routing_loss, watch_routers

ROWS = 64
"""Where a batch has padding, the number of vectors that the head reads is rounded up to a multiple of this. In bfloat16
the processor's library compiles a product for each new shape, which takes longer than the product itself (1,024 x 4,000
times 4,000 x 256 on Intel AMX: 19 ms against 0.9)."""
WHOLE = 1 << 25
"""Largest number of logits that exist at a time where only the likeliest is looked for, or an ensemble is scored."""


class Loss(NamedTuple):
    """Sums over the targets of a batch, so that sums over batches are exact however they were split."""

    objective: Float[Tensor, ""]
    """What is minimised: label-smoothed cross-entropy in nats, or the squared error for numbers; plus the loss of the
    routers, once per target."""
    nll: Float[Tensor, ""]
    """What is reported, without gradient: the negative log-likelihood of the targets in nats, or the squared error for
    numbers."""


def loss_of(model: Transformer, batch: Batch, objective: Objective, *, label_smoothing: float = 0.0) -> Loss:
    """The loss over the batch's targets; padding has no influence on it, not even through label smoothing.

    Mixtures of experts add their routers' penalty, a mean over the tokens of this batch. It is counted once per target,
    so that it keeps its weight when the loss is divided by the number of targets.
    """
    targets = objective(batch)
    with watch_routers(model) as seen:
        x = hidden(model, batch, targets)
    if isinstance(model.head, SequenceHead):
        scores, ids, keep = model.head(x, targets.inputs_keep), targets.ids, None
        loss = token_or_number_loss(scores, ids, label_smoothing, kernel=kernel_of(model.head))
    else:
        vectors, ids, keep = targets_of(x, targets)
        loss = loss_in_places(model.head, vectors, ids, label_smoothing, keep)
    main = "encoder" if model.decoder is None else "decoder"
    penalty = routing_loss(seen, {"encoder": batch.source_keep, main: targets.counted})
    if penalty is None:
        return loss
    counted = ids.numel() if keep is None else keep.sum() * ids.shape[1:].numel()
    return Loss(loss.objective + counted * penalty, loss.nll)


def hidden(
    model: Transformer, batch: Batch, targets: Targets, memory: Float[Tensor, "B S D"] | None = None
) -> Float[Tensor, "B T D"]:
    """The vectors that the head reads; `memory` is the encoder's output, if it is computed already."""
    return model.hidden(
        targets.inputs,
        keep=targets.inputs_keep,
        source=batch.source if memory is None else None,
        source_keep=batch.source_keep,
        memory=memory,
        documents=targets.documents,
        prefix=targets.prefix,
    )


def targets_of(
    x: Float[Tensor, "B T D"], targets: Targets
) -> tuple[Float[Tensor, "M D"], Int[Tensor, " N"] | Float[Tensor, "N J"], Bool[Tensor, " N"] | None]:
    """The vectors that the head reads, the targets of the first N, and which of these count (None: all).

    On a CPU those that count are picked. Elsewhere their number would have to be waited for, so all are read.
    """
    if targets.keep is None or picks(x):
        return (*picked(x, targets), None)
    return x.flatten(0, 1), targets.ids.flatten(0, 1), targets.keep.flatten()


def picks(x: Tensor) -> bool:
    """Whether places can be picked here without a wait."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def picked(
    x: Float[Tensor, "B T D"], targets: Targets
) -> tuple[Float[Tensor, "M D"], Int[Tensor, " N"] | Float[Tensor, "N J"]]:
    """The vectors that the head reads, and the targets of the first N of them; padding is never a target.

    Up to `ROWS` - 1 more vectors follow, so that the widest matrix product of the model has few shapes.
    """
    vectors, ids = x.flatten(0, 1), targets.ids.flatten(0, 1)
    if targets.keep is None:
        return vectors, ids
    places = targets.keep.flatten().nonzero()[:, 0]
    return vectors.index_select(0, F.pad(places, (0, -len(places) % ROWS))), ids[places]


def loss_in_places(
    head: Head | PlaceHead | MeanHead,
    x: Float[Tensor, "M D"],
    ids: Int[Tensor, " N"] | Float[Tensor, "N J"],
    label_smoothing: float,
    keep: Bool[Tensor, " N"] | None = None,
) -> Loss:
    """The loss of the head's scores for M vectors; the logits of a large vocabulary never exist all at once."""
    if isinstance(head, MeanHead):
        rows = rows_at_once(head)
        parts = [
            token_or_number_loss(head(part), some, label_smoothing)
            for part, some in zip(x[: len(ids)].split(rows), ids.split(rows), strict=True)
        ]
        return Loss(*(torch.stack(each).sum() for each in zip(*parts, strict=True)))
    if not isinstance(head, Head):
        return token_or_number_loss(head(x), ids, label_smoothing, None, kernel_of(head), keep)
    prior, kernel = head.prior() if label_smoothing else None, kernel_of(head)
    if len(x) * len(head.weight) <= kernel.whole:
        return token_or_number_loss(head(x), ids, label_smoothing, prior, kernel, keep)
    check_labels(ids, len(head.weight))
    x, ids = head.turned(x), in_range(ids, keep)
    return Loss(*cross_entropy_of_vectors(x, head.weight, head.bias, ids, label_smoothing, prior, kernel, keep))


def kernel_of(head: nn.Module) -> Kernel:
    """The head's own faster kernel, if one was put on it."""
    return getattr(head, "loss_kernel", PLAIN)


def likeliest(head: Head | PlaceHead | MeanHead, x: Float[Tensor, "M D"]) -> Int[Tensor, " M"]:
    """Return the id with the highest score for each vector; a large vocabulary's logits never exist all at once."""
    return torch.cat([head(part).argmax(-1) for part in x.split(rows_at_once(head))])


def rows_at_once(head: Head | PlaceHead | MeanHead) -> int:
    """The number of vectors whose logits may exist at a time."""
    return max(1, WHOLE // (head.n_tokens if isinstance(head, MeanHead) else len(head.weight)))


def token_or_number_loss(
    outputs: Tensor,
    ids: Tensor,
    label_smoothing: float,
    prior: Tensor | None = None,
    kernel: Kernel = PLAIN,
    keep: Bool[Tensor, " N"] | None = None,
) -> Loss:
    """Cross-entropy if the targets are ids, squared error if they are numbers; `prior` is that of `cross_entropy`."""
    if ids.is_floating_point():
        return squared_error(outputs[: len(ids)], ids, keep)
    check_labels(ids, outputs.shape[-1])
    return Loss(*cross_entropy(outputs, in_range(ids, keep), label_smoothing, prior, kernel, keep))


def in_range(ids: Int[Tensor, " N"], keep: Bool[Tensor, " N"] | None) -> Int[Tensor, " N"]:
    """The ids, 0 where they do not count: what stands there may be no id at all."""
    return ids if keep is None else ids.masked_fill(~keep, 0)


def squared_error(
    outputs: Float[Tensor, "B M"], numbers: Float[Tensor, "B N"], keep: Bool[Tensor, " B"] | None = None
) -> Loss:
    """The sum of (output - number)^2 of the rows that count, in float32 or wider.

    Errors: `DataError` if a row has too many or few numbers.
    """
    if outputs.shape != numbers.shape:
        raise DataError(
            f"The batch must have as many numbers per row as the model outputs, {outputs.shape[-1]} (head.n_numbers); "
            f"it has {numbers.shape[-1]}. Correct the batch, or change head.n_numbers."
        )
    wide = torch.promote_types(outputs.dtype, torch.float32)
    apart = outputs.to(wide) - numbers.to(wide)
    total = (apart if keep is None else apart.masked_fill(~keep[:, None], 0.0)).square().sum()
    return Loss(total, total.detach())


def check_labels(ids: Int[Tensor, " N"], n_labels: int) -> None:
    """Refuse a label that the head has no score for, naming its place among the targets."""
    if ids.device.type != "cpu" or torch.compiler.is_compiling():  # on other devices the check would cost a wait
        return
    wrong = ((ids < 0) | (ids >= n_labels)).nonzero()
    if len(wrong):
        place = int(wrong[0])
        raise DataError(
            f"Targets must be from 0 to {n_labels - 1}, as the head scores {n_labels} labels; got {int(ids[place])} at "
            f"target {place} (counted from 0). Make the model with more labels, or correct the batch."
        )
