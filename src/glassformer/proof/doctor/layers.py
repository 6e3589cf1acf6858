"""Probes how the blocks are assembled: residuals, layers that are the same, and the scale of the embeddings."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.nn.block import Block, Residual
from glassformer.nn.embedding import Embedding
from glassformer.nn.stack import Stack
from glassformer.nn.transformer import Transformer
from glassformer.proof.check.property import NotTestedError
from glassformer.proof.doctor.case import Case, logits, stack_of
from glassformer.proof.doctor.finding import Ailment, Probe, Seen
from glassformer.proof.laws.law import apart

EQUAL = 1e-9
NUDGE = 0.1
"""Added noise is this times N(0, 1), on the first block's weights, to see whether another block changes with it."""

NO_RESIDUAL = Ailment(
    "the residual is missing",
    "The branch's output replaces the stream instead of being added to it.",
    "Return x + branch(x): the input of the branch must also go around it.",
)
OTHER_SUM = Ailment(
    "a residual does not add up",
    "The output is not the sum of the stream and the branch, with the norms where the recipe has them.",
    "Compare the block's forward with nn/block.py.",
)
SHARED = Ailment(
    "layers are the same module",
    "One block runs again and again, and the weights of the others are never used.",
    "Make a new block for each layer, and run each of them: for block in blocks.",
)
COPIES = Ailment(
    "layers start identical",
    "One block was made and copied, so all start with the same weights.",
    "Make each block separately, so that each gets its own random weights.",
)
SAME = Ailment(
    "trained layers compute the same",
    "They were copied, or the checkpoint was assembled from another one.",
    "Train again with layers that start different, or use fewer layers.",
)
UNSCALED = Ailment(
    "embeddings are not scaled",
    "The token vectors are not multiplied by the factor of the recipe, so positions are too strong or too weak.",
    "Multiply by √d_model once, right after the lookup, or set model.scale_embeddings=false if you want no factor.",
)


class Called(NamedTuple):
    """One call of a module in a forward pass."""

    given: tuple[Any, ...]
    named: dict[str, Any]
    gave: Tensor


@contextmanager
def listening(modules: dict[str, nn.Module]) -> Generator[dict[str, Called]]:
    """Record the last call of each module by name, while the context lasts. Modules that are not called are missing."""
    heard: dict[str, Called] = {}

    def hook(name: str) -> Any:
        def note(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any], gave: Tensor) -> None:
            heard[name] = Called(given, named, gave)

        return note

    hooks = [module.register_forward_hook(hook(name), with_kwargs=True) for name, module in modules.items()]
    try:
        yield heard
    finally:
        for each in hooks:
            each.remove()


@torch.no_grad()
def residual(case: Case) -> Seen:
    """Compare the output of each residual with its input and the output of its branch."""
    model = case.model
    found = {name: module for name, module in model.named_modules() if isinstance(module, Residual)}
    branches = {f"{name}.branch": module.branch for name, module in found.items()}
    with listening(found | branches) as heard:
        logits(model, case.made([(5, 6)]))
    tried = 0
    for name, module in found.items():
        call, branch = heard.get(name), heard.get(f"{name}.branch")
        if call is None or branch is None:
            continue
        tried += 1
        scale = stack_of(model, name).config.residual_scale
        added = module.norm_out(branch.gave)
        gap = apart(call.gave, module.norm_sum(scale * call.given[0] + added))
        if gap > EQUAL:
            alone = apart(call.gave, module.norm_sum(added))
            told = f"the output of {name} differs from x + branch(x) by {gap:.2g}, and from branch(x) by {alone:.2g}"
            return Seen(told, NO_RESIDUAL if alone <= EQUAL else OTHER_SUM)
    return Seen(f"{tried} residuals add their branch to the stream")


def layers(case: Case) -> Iterator[Seen]:
    """Run every block on the input of its stack's first block, and compare the outputs."""
    fresh = case.untrained()  # a new one, because its weights are changed
    pairs = 0
    for name, module in fresh.named_children():
        if not isinstance(module, Stack):
            continue
        trained = same_as_first(case.model, name, case)
        for number, gap in enumerate(same_as_first(fresh, name, case), 1):
            pairs += 1
            if gap <= EQUAL:
                together = moves_together(fresh, name, number, case)
                told = f"untrained, blocks 0 and {number} of the {name} differ by {gap:.1g}"
                yield Seen(told, SHARED if together else COPIES)
                return
            if trained[number - 1] <= EQUAL:
                yield Seen(f"blocks 0 and {number} of the {name} differ by {trained[number - 1]:.1g}", SAME)
                return
    if not pairs:
        raise NotTestedError("each stack has one layer")
    yield Seen(f"compared with the first layer of their stack: {pairs}, all different")


@torch.no_grad()
def same_as_first(model: Transformer, name: str, case: Case) -> list[float]:
    """Return how far the output of each further block is from that of the first, for the first block's input."""
    blocks = model.get_submodule(f"{name}.blocks")
    outputs = on_first_input(model, blocks, case)
    return [apart(each, outputs[0]) for each in outputs[1:]]


def on_first_input(model: Transformer, blocks: nn.Module, case: Case) -> list[Tensor]:
    """Return the output of each block for the input of the first."""
    first = blocks.get_submodule("0")
    with listening({"first": first}) as heard:
        logits(model, case.made([(5, 6)]))
    call = heard["first"]
    return [block(*call.given, **call.named) for block in blocks.children() if isinstance(block, Block)]


@torch.no_grad()
def moves_together(model: Transformer, name: str, number: int, case: Case) -> bool:
    """Whether changing the weights of the first block alone changes this block too."""
    blocks = model.get_submodule(f"{name}.blocks")
    before = on_first_input(model, blocks, case)[number]
    with listening({"first": blocks.get_submodule("0")}) as heard:
        logits(model, case.made([(5, 6)]))
    call = heard["first"]
    for parameter in blocks.get_submodule("0").parameters():
        parameter += NUDGE * torch.randn_like(parameter)
    return apart(blocks.get_submodule(str(number))(*call.given, **call.named), before) > EQUAL


@torch.no_grad()
def embedding(case: Case) -> Seen:
    """Compare the vectors that enter each stack with the rows of its embedding matrix."""
    config, told = case.model.config, list[str]()
    wanted = math.sqrt(config.stack.d_model) if config.scale_embeddings else 1.0
    for name in ("encoder", "decoder"):
        stack = getattr(case.model, name)
        if stack is None or not isinstance(stack.embedding, Embedding):
            continue
        tokens = torch.arange(len(stack.embedding.weight))[None, :64]
        rows, vectors = F.embedding(tokens, stack.embedding.weight), stack.embedding(tokens)
        scale = ((vectors * rows).sum() / rows.square().sum()).item()
        told.append(f"{name}: {scale:.4g} times the matrix")
        if apart(vectors, wanted * rows) > EQUAL:
            return Seen(f"{told[-1]}, and the recipe asks for {wanted:.4g} times", UNSCALED)
    return Seen("; ".join(told))


PROBES = (
    Probe("embedding", "Embeddings are scaled as the recipe says.", embedding, ("repeatable",)),
    Probe("residual", "Each branch is added to the stream.", residual, ("repeatable",)),
    Probe("layers", "Each layer has its own weights.", layers, ("repeatable",)),
)
