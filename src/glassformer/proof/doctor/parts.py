"""Probes the parts of the model: attention and its heads, residuals, layers that are the same, scaled embeddings."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from glassformer.base.shapes import Bool, Float, Queries, Tensor, Weights
from glassformer.nn.attention import Attention, dot_products
from glassformer.nn.block import Block, Residual
from glassformer.nn.config import StackConfig
from glassformer.nn.embedding import Embedding
from glassformer.nn.mask import Mask
from glassformer.nn.observe import Attended, attentions, watch_attention
from glassformer.nn.rules import choose
from glassformer.nn.stack import Stack
from glassformer.nn.transformer import Transformer
from glassformer.proof.check.attention import scales
from glassformer.proof.check.calling import Choice, Reading, distance, read
from glassformer.proof.check.heads import MERGE, SPLIT
from glassformer.proof.check.property import Mistake, NotTestedError
from glassformer.proof.doctor.case import Case, logits, stack_of
from glassformer.proof.doctor.finding import Ailment, Probe, Seen
from glassformer.proof.laws.law import apart

# --- whether attention computes its equation, its heads differ, and each of them has an effect, layer by layer

SPLITS = [Choice("right", "heads split as documented"), Choice("reshaped", "a reshape to [B, H, T, K]", SPLIT)]
MERGES = [Choice("right", "heads merged as documented"), Choice("reshaped", "a reshape from [B, H, T, K]", MERGE)]
SAME, ADDS_NOTHING, DECIDED, EVEN = 1e-6, 1e-3, 1e-12, 1e-4
"""Thresholds. SAME: heads whose outputs differ by less are the same.

ADDS_NOTHING: a head with a smaller share of its layer's output has no effect. DECIDED: if the second-largest weight is
smaller, no gradient reaches the scores. EVEN: weights this close to uniform tell nothing.
"""
ROWS = 24
EXACTLY = "donot_use_mm_for_euclid_dist"

OTHER = Ailment(
    "an attention does not compute its equation",
    "Its output is not that of softmax(q kᵀ/√K) v for its own weights, and no mistake known here explains it.",
    "Compare it step by step with nn/attention.py: scores, scale, softmax, values, merging of the heads.",
)
ALIKE = Ailment(
    "heads are alike",
    "They started with the same weights, so they get the same gradients and stay the same.",
    "Initialise the whole projection with random numbers at once, or each head with its own.",
)
IDLE = Ailment(
    "heads do nothing",
    "What they add to their layer is negligible beside the other heads.",
    "This costs time but no accuracy; n_heads may be too large, or training too short.",
)
FROZEN = Ailment(
    "heads are saturated",
    "Each query puts all its weight on one key, so no gradient reaches the scores any more.",
    "Try a lower learning rate, a longer warm-up, or model.qk_norm='rms'.",
)
UNDECIDED = Ailment(
    "heads read all keys equally",
    "Their weights are the same for every key, so they return the mean of the values.",
    "They may not have learned yet; train longer, and check that the probe `gradient` is ok.",
)


class Place(NamedTuple):
    """One attention module of the model."""

    name: str
    module: Attention
    config: StackConfig
    """The config of its stack."""


def places(model: Transformer) -> list[Place]:
    """Return every attention of the model, with names such as "decoder.blocks.1.cross_attention"."""
    return [Place(name, module, stack_of(model, name).config) for name, module in attentions(model).items()]


@torch.no_grad()
def mixed(case: Case) -> Seen:
    """Compare each module with the equation for its own weights, on random vectors without a mask."""
    found = places(case.model)
    for place in found:
        reading, gap = reading_of(place)
        if reading is None:
            return Seen(f"{place.name}: its output is {gap:.2g} off", OTHER)
        if (fault := reading.fault("split") or reading.fault("merge")) is not None:
            return Seen(f"{place.name}: {fault.evidence}", ailment_of(fault.mistake))
    return Seen(f"{len(found)} attention modules split and merge their heads as in the equation")


@torch.no_grad()
def scaled(case: Case) -> Seen:
    """Check what each module multiplies its scores by, and report how large the scores are before training."""
    found = places(case.model)
    for place in found:
        reading, _ = reading_of(place)
        if reading is not None and (fault := reading.fault("scale")) is not None:
            return Seen(f"{place.name}: {fault.evidence}", ailment_of(fault.mistake))
    with working(case.fresh) as seen:
        logits(case.fresh, case.real(ROWS))
    factors = ", ".join(sorted({scale_of(place)[1] for place in found}))
    sizes = sorted(work.size for work in seen.values())
    spread = f"{sizes[0]:.2g} to {sizes[-1]:.2g}" if len(sizes) > 1 else f"{sizes[0]:.2g}"
    return Seen(
        f"{len(found)} attention modules multiply by {factors}; untrained scores have a standard deviation of {spread}"
    )


def reading_of(place: Place) -> tuple[Reading | None, float]:
    """Return the reading that reproduces the module's output, if any does, and its distance from the right reading."""
    module, D = place.module, place.module.query.in_features
    draw = torch.Generator().manual_seed(7)
    x, memory = (0.5 * torch.randn(2, n, D, generator=draw, dtype=torch.float64) for n in (6, 4))
    source = memory if place.name.endswith("cross_attention") else x
    seen = module(x, source=source, mask=Mask())
    aspects = {
        "split": SPLITS,
        "merge": MERGES,
        "scale": scales(module.d_head, {"d_model": D}, place.config.attention_scale),
    }
    right = attended(place, x, source, split="right", merge="right", scale=scale_of(place)[0])
    return read(seen, aspects, partial(attended, place, x, source)), distance(seen, right)


def scale_of(place: Place) -> tuple[float, str]:
    """Return the right factor of the scores, as a number and in words: 1/√K, or what the recipe sets."""
    K, set_to = place.module.d_head, place.config.attention_scale
    return (K**-0.5, f"1/√{K}") if set_to is None else (set_to, f"{set_to:.4g}, as set")


def ailment_of(mistake: Mistake) -> Ailment:
    """Return the ailment for a mistake known from learners' code."""
    return Ailment(mistake.name, mistake.cause, f"Fix the attention and train again. {mistake.hint}")


def attended(place: Place, x: Tensor, source: Tensor, *, split: str, merge: str, scale: float) -> Tensor:
    """Compute the module's output under a reading, from its own weights."""
    _, module, config = place
    specified, _ = choose(config.attention_rule, "reference", cap=config.softcap)
    q = module.query_norm(divided(module.query(x), module.d_head, split))
    k = module.key_norm(divided(module.key(source), module.d_head, split))
    v = divided(module.value(source), module.d_head, split)
    mask = Mask() if module.relation is None else module.relation(q, k, Mask(), scale=scale)
    output = specified(q, k, v, mask, scale=scale)
    B, _, T, _ = output.shape
    return module.output((output if merge == "reshaped" else output.transpose(1, 2)).reshape(B, T, -1))


def divided(x: Float[Tensor, "B T HK"], d_head: int, how: str) -> Queries:
    """Split one vector per position into one per head, correctly or by a plain reshape."""
    B, T, _ = x.shape
    return x.reshape(B, -1, T, d_head) if how == "reshaped" else x.reshape(B, T, -1, d_head).transpose(1, 2)


class Work(NamedTuple):
    """What the heads of one attention computed in one forward pass."""

    q: Queries
    weights: Weights
    allowed: Bool[Tensor, "B H T S"]
    """What each query may read. A weight may be 0 there all the same."""
    output: Queries
    size: float
    """Standard deviation of the scores."""


@contextmanager
def working(model: Transformer) -> Generator[dict[str, Work]]:
    """While the context lasts, record the `Work` of every attention: what `observe` records, and the heads' outputs."""
    seen: dict[str, Work] = {}

    def note(call: Attended) -> None:
        weights = call.attention.weigh(call.q, call.k, call.mask, scale=call.scale)
        size = dot_products(call.q, call.k, scale=call.scale).std(correction=0).item()
        mask = call.mask.allowed(call.q.shape[-2], call.k.shape[-2], weights.device)
        allowed = torch.ones_like(weights, dtype=torch.bool) if mask is None else mask.expand_as(weights)
        seen[call.name] = Work(call.q, weights, allowed, call.output, size)

    with watch_attention(model, note):
        yield seen


def alike(case: Case) -> Iterator[Seen]:
    """Compare queries and outputs of the heads of each layer, before and after training.

    Outputs alone are not enough: heads that share their values give the same output wherever each may read only one
    key. Pruned heads give nothing, which `idle` reports.
    """
    batch, pairs, models = case.real(ROWS), 0, {"untrained": case.fresh, "trained": case.model}
    for when, model in models.items():
        with working(model) as seen, torch.no_grad():
            logits(model, batch)
        for name, work in seen.items():
            gaps = torch.maximum(gaps_of_heads(work.q), gaps_of_heads(work.output))
            same = (gaps < SAME).triu(1).nonzero().tolist()
            pairs += len(gaps) * (len(gaps) - 1) // 2
            if same:
                one, other = same[0]
                yield Seen(f"{when}, heads {one} and {other} of {name} differ by {gaps[one, other]:.1g}", ALIKE)
                return
    if not pairs:
        raise NotTestedError("each layer has one head")
    yield Seen(f"{pairs} pairs of heads all differ")


def gaps_of_heads(x: Queries) -> Float[Tensor, "H H"]:
    """Return the distance between the vectors of each two heads, relative to the size of the vectors."""
    heads = x.transpose(0, 1).flatten(1)
    sizes = heads.norm(dim=1)
    gaps = torch.cdist(heads, heads, compute_mode=EXACTLY) / sizes.clamp(min=1e-300)
    return gaps.masked_fill((sizes == 0) & (sizes == 0)[:, None], 1.0)


def idle(case: Case) -> Iterator[Seen]:
    """Check how much each head of the trained model adds to its layer, and how its weights are distributed."""
    with working(case.model) as seen, torch.no_grad():
        logits(case.model, case.real(ROWS))
    found: dict[Ailment, list[str]] = {}
    total = 0
    for place in places(case.model):
        if place.name not in seen:
            continue
        shares, states = shares_of(place.module, seen[place.name]), spread(seen[place.name])
        total += len(shares)
        for head, (share, ailment) in enumerate(zip(shares, states, strict=True)):
            if (wrong := IDLE if share < ADDS_NOTHING else ailment) is not None:
                found.setdefault(wrong, []).append(f"head {head} of {place.name}")
    for ailment, heads in found.items():
        yield Seen(
            f"{len(heads)} of {total}: {', '.join(heads[:3])}{', ...' if len(heads) > 3 else ''}", ailment, False
        )
    if not found:
        yield Seen(f"{total} heads all have an effect, and none is saturated")


@torch.no_grad()
def shares_of(module: Attention, work: Work) -> list[float]:
    """Return the size of what each head adds, as a share of what the layer adds."""
    columns = module.output.weight.unflatten(1, (-1, module.d_head))  # [D, H, K]
    added = torch.einsum("bhtk,dhk->hbtd", work.output, columns).flatten(1)
    return (added.norm(dim=1) / added.sum(0).norm().clamp(min=1e-300)).tolist()


def spread(work: Work) -> list[Ailment | None]:
    """For each head, say if all its weight is on one key, or uniform, wherever it may read several keys."""
    weights, readable = work.weights, work.allowed
    several = readable.sum(-1) > 1
    if not bool(several.any()):
        return [None] * weights.shape[1]
    second = weights.topk(2).values[..., 1]
    largest, n = weights.amax(-1), readable.sum(-1).clamp(min=1)
    found: list[Ailment | None] = []
    for head in range(weights.shape[1]):
        here = several[:, head]
        frozen = bool((second[:, head][here] < DECIDED).all())
        even = bool(((largest - weights.sum(-1) / n)[:, head][here].abs() < EVEN).all())
        found.append(FROZEN if frozen else UNDECIDED if even else None)
    return found


EQUATION = (
    Probe("heads", "Each attention head computes its equation.", mixed, ("repeatable",)),
    Probe("scale", "Scores are divided by the root of the head's width.", scaled, ("repeatable", "heads")),
)
HEADS = (
    Probe("alike-heads", "The heads of a layer differ.", alike, ("repeatable", "heads")),
    Probe("idle-heads", "Every head has an effect.", idle, ("repeatable", "heads", "alike-heads")),
)


# --- how the blocks are assembled

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
SAME_LAYERS = Ailment(
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

    with ExitStack() as hooks:
        for name, module in modules.items():
            hooks.enter_context(module.register_forward_hook(hook(name), with_kwargs=True))
        yield heard


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
            evidence = (
                f"the output of {name} differs from x + branch(x) by {gap:.2g}, and from branch(x) by {alone:.2g}"
            )
            return Seen(evidence, NO_RESIDUAL if alone <= EQUAL else OTHER_SUM)
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
                evidence = f"untrained, blocks 0 and {number} of the {name} differ by {gap:.1g}"
                yield Seen(evidence, SHARED if together else COPIES)
                return
            if trained[number - 1] <= EQUAL:
                yield Seen(f"blocks 0 and {number} of the {name} differ by {trained[number - 1]:.1g}", SAME_LAYERS)
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
    config, evidence = case.model.config, list[str]()
    wanted = math.sqrt(config.stack.d_model) if config.scale_embeddings else 1.0
    for name in ("encoder", "decoder"):
        stack = getattr(case.model, name)
        if stack is None or not isinstance(stack.embedding, Embedding):
            continue
        tokens = torch.arange(len(stack.embedding.weight))[None, :64]
        rows, vectors = F.embedding(tokens, stack.embedding.weight), stack.embedding(tokens)
        scale = ((vectors * rows).sum() / rows.square().sum()).item()
        evidence.append(f"{name}: {scale:.4g} times the matrix")
        if apart(vectors, wanted * rows) > EQUAL:
            return Seen(f"{evidence[-1]}, and the recipe asks for {wanted:.4g} times", UNSCALED)
    return Seen("; ".join(evidence))


LAYERS = (
    Probe("embedding", "Embeddings are scaled as the recipe says.", embedding, ("repeatable",)),
    Probe("residual", "Each branch is added to the stream.", residual, ("repeatable",)),
    Probe("layers", "Each layer has its own weights.", layers, ("repeatable",)),
)
