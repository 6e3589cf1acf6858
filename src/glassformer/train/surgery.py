"""Make the mistakes in a model that was built right, by replacing an attribute or method of one of its modules.

Names and shapes of the weights do not change, so that a broken run is saved, loaded and resumed like any other. For the
same reason a weight that is no longer used still gets a gradient of zero: the optimizer keeps a state for every weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.data.batch import Batch
from glassformer.nn.attention import Attend, Attention
from glassformer.nn.block import Block, Residual
from glassformer.nn.cache import Cache
from glassformer.nn.embedding import Embedding
from glassformer.nn.heads import SequenceHead
from glassformer.nn.mask import Mask
from glassformer.nn.observe import attentions
from glassformer.nn.positions import Relation
from glassformer.nn.stack import Stack
from glassformer.nn.transformer import Transformer
from glassformer.train.objective import Objective, Targets

Surgery = Callable[[Transformer], None]


def around(module: object, name: str, function: Callable[..., Any]) -> None:
    """Replace a method of an object: `function` gets the method that was there, and what it is called with."""
    setattr(module, name, partial(function, getattr(module, name)))


def stacks(model: Transformer) -> list[Stack]:
    """The model's one or two stacks."""
    return [each for each in (model.encoder, model.decoder) if each is not None]


def blocks(stack: Stack) -> list[Block]:
    """The stack's blocks, in order."""
    return cast("list[Block]", list(stack.blocks))


def unused(output: Tensor, tensors: Iterable[Tensor | None]) -> Tensor:
    """The output unchanged, with a gradient of zero for tensors that do not contribute to it."""
    return output + 0.0 * sum(each.sum() for each in tensors if each is not None)


def no_scale(model: Transformer) -> None:
    """Leave the scores unscaled."""
    for attention in attentions(model).values():
        attention.scale = 1.0


def wrong_scale(model: Transformer) -> None:
    """Divide the scores by the square root of the whole width."""
    for attention in attentions(model).values():
        attention.scale = attention.query.in_features**-0.5


def swapped_heads(model: Transformer) -> None:
    """Read the memory of [B, H, T, K] as if it were [B, T, H K]."""

    def mixed(attend: Attend, *read: Any, **how: Any) -> Tensor:
        output = attend(*read, **how)
        B, H, T, K = output.shape
        return output.reshape(B, T, H, K).transpose(1, 2)  # the attention's own transpose reverts this one

    for attention in attentions(model).values():
        around(attention, "attend", mixed)


def leaky_mask(model: Transformer) -> None:
    """Let self-attention of a causal stack read both ways."""

    def leaked(attend: Attend, q: Tensor, k: Tensor, v: Tensor, mask: Mask, **how: Any) -> Tensor:
        return attend(q, k, v, replace(mask, causal=False), **how)

    for attention in attentions(model).values():
        around(attention, "attend", leaked)  # the other attentions' masks are not causal anyway


def no_padding_mask(model: Transformer) -> None:
    """Tell no stack where padding is."""

    def without_keep(forward: Callable[..., Tensor], tokens: Tensor, **named: Any) -> Tensor:
        return forward(tokens, **named | dict.fromkeys({"keep", "memory_keep"} & named.keys()))

    for stack in stacks(model):
        around(stack, "forward", without_keep)


def no_positions(model: Transformer) -> None:
    """Add, rotate and bias nothing by position."""

    def zeros(method: Callable[..., Tensor | None], *inputs: Any) -> Tensor | None:
        found = method(*inputs)
        return None if found is None else 0.0 * found

    def unturned(rotation: Callable[..., Any], *inputs: Tensor) -> None:
        del rotation, inputs

    def plain(relation: Relation, forward: Callable[..., Mask], q: Tensor, k: Tensor, mask: Mask, **how: Any) -> Mask:
        del forward, how
        return replace(mask, bias=unused(q.new_zeros(1, q.shape[-2], k.shape[-2]), relation.parameters()))

    for positions in (each for stack in stacks(model) for each in stack.schemes):
        around(positions, "embedding", zeros)
        around(positions, "score_bias", zeros)
        around(positions, "rotation", unturned)
    for attention in attentions(model).values():
        if attention.relation is not None:
            around(attention.relation, "forward", partial(plain, attention.relation))


def no_residual(model: Transformer) -> None:
    """Multiply the input that bypasses a branch by 0."""
    for module in model.modules():
        if isinstance(module, Residual):
            module.scale = 0.0


def no_cross_attention(model: Transformer) -> None:
    """Skip the cross-attention branch."""

    def passed(
        branch: Residual, forward: Callable[..., Tensor], x: Tensor, *, source: Tensor | None = None, **rest: Any
    ) -> Tensor:
        del forward, rest
        return unused(x, [source, *branch.parameters()])

    for stack in stacks(model):
        for block in blocks(stack):
            if block.cross_attention is not None:
                around(block.cross_attention, "forward", partial(passed, block.cross_attention))


def shared_layers(model: Transformer) -> None:
    """Let every block of a stack compute what its first one does."""

    def again(first: Block, block: Block, forward: Callable[..., Tensor], *inputs: Any, **named: Any) -> Tensor:
        del forward
        return unused(first.forward(*inputs, **named), block.parameters())

    for stack in stacks(model):
        first, *others = blocks(stack)
        for block in others:
            around(block, "forward", partial(again, first, block))


def no_embedding_scale(model: Transformer) -> None:
    """Leave the embedding vectors unscaled."""
    for stack in stacks(model):
        if isinstance(stack.embedding, Embedding):
            stack.embedding.scale = 1.0


def dropout_in_evaluation(model: Transformer) -> None:
    """Let dropout ignore eval()."""

    def always(train: Callable[[bool], nn.Module], mode: bool = True) -> nn.Module:
        module = train(mode)  # the modules inside still follow it
        module.training = True
        return module

    for module in model.modules():
        if isinstance(module, nn.Dropout | Attention | Stack):
            around(module, "train", always)
    model.train(model.training)


def pads_in_pooling(model: Transformer) -> None:
    """Do not tell the pooling where padding is."""
    assert isinstance(model.head, SequenceHead)

    def without_keep(forward: Callable[[Tensor], Tensor], x: Tensor, keep: Tensor | None = None) -> Tensor:
        del keep
        return forward(x)

    around(model.head.pooling, "forward", without_keep)


def cache_off_by_one(model: Transformer) -> None:
    """Shift the positions of all tokens of a cache but the first ones by one."""

    def shifted(cache: Cache, step: Callable[..., Any], tokens: Tensor, keep: Tensor | None = None) -> Any:
        found = step(tokens, keep)
        return found if cache.length == 0 else found._replace(positions=found.positions - 1)

    def late(new_cache: Callable[..., Cache], capacity: int | None = None, *, whole: bool = False) -> Cache:
        cache = new_cache(capacity, whole=whole)
        around(cache, "step", partial(shifted, cache))
        return cache

    around(model, "new_cache", late)


@torch.no_grad()
def alike_heads(model: Transformer) -> None:
    """Give every head the first head's rows of the projections and columns of the output."""
    for attention in attentions(model).values():
        for linear in (attention.query, attention.key, attention.value):
            rows = linear.weight.unflatten(0, (-1, attention.d_head))
            rows.copy_(rows[:1].expand_as(rows).clone())
        columns = attention.output.weight.unflatten(1, (-1, attention.d_head))
        columns.copy_(columns[:, :1].expand_as(columns).clone())


def identical_layers(model: Transformer) -> None:
    """Give every block the weights of its stack's first block."""
    for stack in stacks(model):
        for block in blocks(stack)[1:]:
            block.load_state_dict(blocks(stack)[0].state_dict())


@torch.no_grad()
def unscaled_init(model: Transformer) -> None:
    """Initialise like torch's own embedding and norm."""
    for weight in {
        id(each): each for each in (*(s.embedding.weight for s in stacks(model)), model.head.weight)
    }.values():
        weight.normal_()
    read = getattr(model.reader.last_norm, "weight", None)
    if read is not None:
        read.fill_(1.0)


WEIGHTS: dict[str, Surgery] = {
    "alike-heads": alike_heads,
    "identical-layers": identical_layers,
    "unscaled-init": unscaled_init,
}
"""Applied once, to the weights of a new model."""

SURGERY: dict[str, Surgery] = {
    "no-scale": no_scale,
    "wrong-scale": wrong_scale,
    "swapped-heads": swapped_heads,
    "leaky-mask": leaky_mask,
    "no-padding-mask": no_padding_mask,
    "no-positions": no_positions,
    "no-residual": no_residual,
    "no-cross-attention": no_cross_attention,
    "shared-layers": shared_layers,
    "no-embedding-scale": no_embedding_scale,
    "dropout-in-evaluation": dropout_in_evaluation,
    "pads-in-pooling": pads_in_pooling,
    "cache-off-by-one": cache_off_by_one,
}
"""Applied each time the model is built, new or from a checkpoint."""


# Mistakes about which token is predicted from which: wrappers around the right objective.


def shifted_labels(objective: Objective) -> Objective:
    """Ask each position for the label of the next position."""

    def twice(batch: Batch) -> Targets:
        targets = objective(batch)
        return Targets(
            targets.inputs[:, :-1],
            None if targets.inputs_keep is None else targets.inputs_keep[:, :-1],
            targets.ids[:, 1:],
            None if targets.keep is None else targets.keep[:, 1:],
            None if targets.counted is None else targets.counted[:, :-1],
            None if targets.documents is None else targets.documents[:, :-1],
            None if targets.prefix is None else targets.prefix.clamp(max=targets.inputs.shape[1] - 1),
        )

    return twice


def unshifted_labels(objective: Objective) -> Objective:
    """Ask each position for the token that it reads."""

    def never(batch: Batch) -> Targets:
        targets = objective(batch)
        return targets._replace(ids=targets.inputs)

    return never


def pads_in_loss(objective: Objective) -> Objective:
    """Ask every padding position for <pad>."""

    def counted(batch: Batch) -> Targets:
        targets = objective(batch)
        if targets.keep is None or batch.keep is None:
            return targets
        return targets._replace(keep=None if batch.labels is None else targets.keep | ~batch.keep)

    return counted


OBJECTIVE: dict[str, Callable[[Objective], Objective]] = {
    "shifted-labels": shifted_labels,
    "unshifted-labels": unshifted_labels,
    "pads-in-loss": pads_in_loss,
}
