"""Direct logit attribution: how much each head, each feed-forward and the input contribute directly to a token's logit.

The output head reads a sum, the residual stream: the input of the first block plus what every branch adds (Elhage et
al. 2021, "A Mathematical Framework for Transformer Circuits"). The norms in between are not linear; each is frozen at
the statistics (mean and scale) of the vector that it saw, which makes it linear. A token's logit is then a sum with
one term for each part, and the terms add up to it. The attribution is direct: a part gets no credit for its
effect through other parts (as that of an encoder's head, or of a head whose output later heads read).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from typing import NamedTuple, cast

import torch
from torch import nn

from glassformer.base.errors import ConfigError
from glassformer.base.shapes import Float, Int, Tensor
from glassformer.lens.ablate import LETTERS, columns_of, head_id, recorded_stream
from glassformer.nn.attention import Attention
from glassformer.nn.block import Block, Residual
from glassformer.nn.heads import Head
from glassformer.nn.norm import LayerNorm, RMSNorm
from glassformer.nn.observe import Attended, Evaluation, watch_attention
from glassformer.nn.stack import Stack
from glassformer.nn.transformer import Transformer

INPUT, BIASES, FEED_FORWARD = "input", "biases", "feed_forward"


class Attribution(NamedTuple):
    """The terms of one logit per position."""

    names: tuple[str, ...]
    """"input" (embedding and positions), heads as "d.0.1", "d.0.feed_forward" and so on, "biases"."""
    terms: Float[Tensor, "P T"]
    """A row for each part; each column sums to the logit."""


class Written(NamedTuple):
    """The output of one branch."""

    kind: str
    """"encoder", "decoder", "cross" or "feed_forward"."""
    layer: int
    branch: Residual
    output: Float[Tensor, "T D"]
    """The branch's own output, before any norm after it."""
    heads: Float[Tensor, "H T K"] | None
    """For an attention: the output of each head, before the output projection."""


@torch.no_grad()
def attribute(
    model: Transformer,
    tokens: Int[Tensor, "1 T"],
    answer_ids: Int[Tensor, " T"],
    source: Int[Tensor, "1 S"] | None = None,
) -> Attribution:
    """Compute the terms of the logit of token `answer_ids[t]` at each position t, for one sequence without padding.

    The model is read in evaluation mode. Errors: `ConfigError` for an output head that is not linear in the stream (one
    that labels whole sequences; BERT's with its transform).
    """
    head = model.head
    if not isinstance(head, Head) or head.transform is not None:
        raise ConfigError(
            "Direct logit attribution needs a linear head over tokens; this model's output head pools the vectors, or "
            "transforms them first. To see what attention heads do, remove them with silence()."
        )
    stack = model.reader
    streams: list[Tensor] = []
    with Evaluation(model), recorded_writers(model, stack) as written, recorded_stream(stack, streams):
        model.hidden(tokens, source=source)
    side = "decoder" if stack is model.decoder else "encoder"
    first = last = streams[0][0]
    sums: list[Tensor] = []
    for each in written:
        sums.append(last * each.branch.scale + each.branch.norm_out(each.output))
        last = each.branch.norm_sum(sums[-1])
    biases = (
        torch.zeros_like(answer_ids, dtype=head.weight.dtype) if head.bias is None else head.bias[answer_ids].clone()
    )
    pull = head.weight[answer_ids] * head.scale
    pull, less = through_norm(stack.norm, last, pull)
    biases += less
    found: dict[str, Tensor] = {}
    for each, summed in zip(reversed(written), reversed(sums), strict=True):
        pull, less = through_norm(each.branch.norm_sum, summed, pull)
        inner, more = through_norm(each.branch.norm_out, each.output, pull)
        own, constant = terms_of(each, inner, side)
        biases += less + more + constant
        found = own | found
        pull = pull * each.branch.scale
    found = {INPUT: (first * pull).sum(-1), **found, BIASES: biases}
    return Attribution(tuple(found), torch.stack([*found.values()]))


@contextmanager
def recorded_writers(model: Transformer, stack: Stack) -> Generator[list[Written]]:
    """Record what each branch of a stack writes, in order, for the length of the `with`."""
    found: list[Written] = []
    heads: dict[nn.Module, Tensor] = {}

    def note(call: Attended) -> None:
        heads[call.attention] = call.output[0]

    def keeping(kind: str, layer: int, branch: Residual) -> Callable[[nn.Module, object, Tensor], None]:
        def keep(module: nn.Module, given: object, output: Tensor) -> None:
            found.append(Written(kind, layer, branch, output[0], heads.get(module)))

        return keep

    side = "decoder" if stack is model.decoder else "encoder"
    with ExitStack() as hooks:
        for layer, block in enumerate(cast(Iterable[Block], stack.blocks)):
            kinds = {side: block.self_attention, "cross": block.cross_attention, FEED_FORWARD: block.feed_forward}
            for kind, branch in kinds.items():
                if branch is not None:
                    hooks.callback(branch.branch.register_forward_hook(keeping(kind, layer, branch)).remove)
        hooks.enter_context(watch_attention(model, note))
        yield found


def terms_of(of: Written, pull: Float[Tensor, "T D"], side: str) -> tuple[dict[str, Tensor], Tensor]:
    """Return a term for each head of an attention and the term of its bias, or one term for a whole feed-forward."""
    module, none = of.branch.branch, pull.new_zeros(len(pull))
    if not isinstance(module, Attention) or of.heads is None:
        return {f"{LETTERS[side]}.{of.layer}.{of.kind}": (of.output * pull).sum(-1)}, none
    each = torch.einsum("htk,dhk,td->ht", of.heads, columns_of(module), pull)
    bias = cast("Tensor | None", module.output.bias)
    constant = none if bias is None else pull @ bias
    return {head_id(of.kind, of.layer, head): row for head, row in enumerate(each)}, constant


def through_norm(norm: nn.Module, seen: Float[Tensor, "T D"], pull: Float[Tensor, "T D"]) -> tuple[Tensor, Tensor]:
    """Pull a linear functional back through a norm frozen at `seen`; return the new functional and a constant.

    For every x, norm(x) · pull = x · new + constant. LayerNorm: w (x - mean(x)) / s + b with s of `seen`; RMSNorm:
    w x / r with r of `seen`. Errors: `ConfigError` for another norm.
    """
    none = pull.new_zeros(len(pull))
    match norm:
        case nn.Identity():
            return pull, none
        case LayerNorm():
            scale = (seen.var(-1, unbiased=False, keepdim=True) + norm.eps).rsqrt()
            weighted = pull * norm.weight * scale
            return weighted - weighted.mean(-1, keepdim=True), pull @ norm.bias
        case RMSNorm():
            return pull * norm.weight * (seen.square().mean(-1, keepdim=True) + norm.eps).rsqrt(), none
        case _:
            raise ConfigError(
                f"Attribution can freeze the norms layer, rms and none; this model has {type(norm).__name__}. "
                "Add a case for it to through_norm() in glassformer/lens/attribute.py."
            )
