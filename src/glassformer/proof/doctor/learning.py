"""Probes what training needs: labels and padding, the first loss, gradients, one batch learned by heart."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import torch

from glassformer.base.errors import DivergedError
from glassformer.base.shapes import Tensor
from glassformer.data.batch import Batch
from glassformer.data.tokens.vocabulary import BOS, EOS
from glassformer.nn.block import Block
from glassformer.nn.heads import PlaceHead
from glassformer.nn.outputs import Regress
from glassformer.nn.stack import Stack
from glassformer.nn.transformer import Transformer
from glassformer.proof.check.property import NotTestedError
from glassformer.proof.doctor.case import Case, answers_once
from glassformer.proof.doctor.finding import Ailment, Probe, Seen
from glassformer.train.loop import make_update
from glassformer.train.loss import loss_of
from glassformer.train.optimizer import build_optimizer
from glassformer.train.ranks.team import Team
from glassformer.train.schedule import Schedule
from glassformer.train.settings import OptimizerConfig, Update

# --- targets: whether the label of position t is the token t + 1, and whether padding counts

COUNTING = [*range(11, 18)]
"""Tokens whose ids are all different. An objective does not look at the vocabulary."""

UNSHIFTED = Ailment(
    "labels are not shifted",
    "Each position must predict the token that it reads.",
    "Read tokens[:, :-1] and predict tokens[:, 1:], in one place.",
)
TWICE = Ailment(
    "labels are shifted twice",
    "Each position must predict the token after the next: the data are shifted, and the loss shifts again.",
    "Shift in one place only.",
)
ASKEW = Ailment(
    "labels belong to other positions",
    "A position must predict a token that belongs elsewhere.",
    "Print inputs and labels of one row side by side.",
)
WRONG_LABEL = Ailment(
    "a text has the label of another text",
    "Labels and texts of a batch are not in the same order.",
    "Sort texts and labels together.",
)
COUNTED = Ailment(
    "padding counts in the loss",
    "Padding is among the targets, so more padding makes the loss look better.",
    "Leave out targets where keep is False, and divide by the number of targets that remain.",
)


def labels(case: Case) -> Seen:
    """Find out, on a row of counting ids, which of its tokens each position has to predict."""
    if answers_once(case.model):
        numbers = isinstance(case.model.config.head, Regress)
        wanted, what = ([0.0, 2.0, 1.0], "numbers") if numbers else ([0, 2, 1], "labels")
        batch = Batch.labelled([[8], [9], [10]], wanted)
        same = torch.equal(case.objective(batch).ids.flatten(), torch.tensor(wanted))
        return Seen(f"3 texts must predict {'their own' if same else 'other'} {what}", None if same else WRONG_LABEL)
    if isinstance(case.model.head, PlaceHead):
        batch = Batch.tagged([COUNTING], [[100 + each for each in COUNTING]])
        assert batch.labels is not None
        return offset(case, batch, batch.labels, 0)
    if case.layout.blanks:
        batch = Batch.blanks([COUNTING], [[100 + each for each in COUNTING]])
        assert batch.labels is not None
        return offset(case, batch, batch.labels, 0)
    return offset(case, counting_batch(case), counting_batch(case).tokens, 1)


def counting_batch(case: Case) -> Batch:
    """Return a batch of one row of different tokens."""
    tokens = torch.tensor([[BOS, *COUNTING, EOS]])
    return Batch(tokens, source=tokens)


def offset(case: Case, batch: Batch, asked_for: Tensor, right: int) -> Seen:
    """Check how many positions after each position its label is."""
    requested = case.objective(batch)
    keep = torch.ones_like(requested.ids, dtype=torch.bool) if requested.keep is None else requested.keep
    positions = keep[0].nonzero().flatten().tolist()
    row = asked_for[0].tolist()
    found = {row.index(int(requested.ids[0, place])) - place for place in positions}
    evidence = (
        f"{len(positions)} positions must each predict the token at offset {' or '.join(map(str, sorted(found)))}"
    )
    if found == {right}:
        return Seen(evidence)
    one = found.pop() if len(found) == 1 else None
    return Seen(evidence, {right - 1: UNSHIFTED, right + 1: TWICE}.get(one, ASKEW) if one is not None else ASKEW)


def padded(case: Case) -> Seen:
    """Compare the number of targets of rows in one batch with that of each row alone."""
    together = case.made([(3, 3), (6, 7), (1, 2)])
    if together.pad_share == 0:
        raise NotTestedError("the model takes too few tokens for rows of unequal length")
    alone = [case.objective(row).n_targets for row in together.split(3)]
    counted = case.objective(together).n_targets
    evidence = f"rows of {', '.join(map(str, alone))} targets have {counted} targets in one batch"
    return Seen(evidence, COUNTED if counted != sum(alone) else None)


TARGETS = (
    Probe("labels", "Each position has the label that belongs to it.", labels),
    Probe("padding-in-loss", "Padding does not count in the loss.", padded),
)


# --- the start of training

NEAR, FAR = 0.25, 0.4
"""In nats: a first loss further than NEAR from that of guessing is a warning, further than FAR a failure."""
PAIRS = 64
FEW, STEPS, WARMUP, RATE = 8, 150, 10, 3e-3
"""The batch to memorise: its rows, and the most steps, the warm-up and the learning rate for it."""
WORK, LEAST = 1e12, 20
"""A budget of multiplications, which gives a large model fewer steps, and the least number of steps."""
LEARNED, HARDLY = 0.1, 0.7
"""Shares of the loss of guessing: below the first the batch counts as learned, above the second as not learned."""
VANISHES = 1e-4

FIRST = Ailment(
    "the first loss is not that of guessing",
    "Weights start too large (such as an embedding or head from N(0, 1)), or the head favours the token just read.",
    "Initialise embedding and head as nn/initialize.py does; the first loss should be ln V.",
)
WIDE_ENOUGH = 16
"""A narrower model may be too small for the batch, with nothing wrong."""
NEVER_LEARNS = Ailment(
    "one batch cannot be learned by heart",
    "The model lacks something (the source, the order or a gradient), or labels contradict each other.",
    "Fix the other failures first; then look at the batch itself, token by token.",
)
SLOW = Ailment(
    "one batch is learned slowly",
    "The model is too small or too deep for so few steps, or its norms or initial weights make learning slow.",
    "The model may still be right; norm_placement='pre' and a longer warm-up make learning easier.",
)
CUT = Ailment(
    "a layer gets no gradient",
    "It is not used, or cut off: detached, frozen, or multiplied by 0.",
    "Follow the layer's output to the loss: it must change the loss.",
)
FADES = Ailment(
    "the gradient fades between layers",
    "Some layers get a far smaller gradient than others, as in a deep stack without residuals or with post-norm.",
    "Try norm_placement='pre', a longer warm-up, or deepnorm for a deep post-norm stack.",
)


def guessing(model: Transformer) -> float:
    """Return the loss of guessing: ln V, or the logarithm of the number of labels; of standardised numbers, 1."""
    if isinstance(model.config.head, Regress):
        return 1.0
    return math.log(model.head.weight.shape[0])


@torch.no_grad()
def first_loss(case: Case) -> Seen:
    """Compare the loss of the untrained model with that of guessing."""
    batch = case.real(PAIRS)
    if isinstance(case.fresh.config.head, Regress):
        raise NotTestedError("the model tells numbers, and its first ones may be any")
    loss = loss_of(case.fresh, batch, case.objective).nll.item() / case.objective(batch).n_targets
    wanted = guessing(case.fresh)
    gap = abs(loss - wanted)
    evidence = f"{loss:.3f} nats; guessing among {case.fresh.head.weight.shape[0]:,} costs {wanted:.3f}"
    return Seen(evidence, FIRST if gap > NEAR else None, serious=gap > FAR)


def gradient(case: Case) -> Iterator[Seen]:
    """Check the gradient of the first batch, block by block."""
    model, batch = case.untrained(), case.real(PAIRS)
    (loss_of(model, batch, case.objective).objective / case.objective(batch).n_targets).backward()
    evidence: list[str] = []
    faint = 1.0
    for name, stack in model.named_children():
        if not isinstance(stack, Stack):
            continue
        norms: list[float] = []
        for number, block in enumerate(cast("list[Block]", list(stack.blocks))):
            for branch, module in block.named_children():
                size = norm(module)
                if not size > 0:
                    yield Seen(f"{name}.blocks.{number}.{branch} has a gradient of {size:g}", CUT)
                    return
            norms.append(norm(block))
        evidence.append(
            f"{name} {norms[0]:.2g} in the first block" + (f", {norms[-1]:.2g} in the last" * (len(norms) > 1))
        )
        faint = min(faint, min(norms) / max(norms))
    yield Seen("; ".join(evidence), FADES if faint < VANISHES else None, serious=False)


def norm(module: torch.nn.Module) -> float:
    """Return the norm of the gradient over all of a module's weights."""
    found = [parameter.grad.norm() for parameter in module.parameters() if parameter.grad is not None]
    return torch.stack(found).norm().item() if found else 0.0


def by_heart(case: Case) -> Seen:
    """Train a new model on a few pairs again and again, without dropout, in float32."""
    model, batch = case.begin().eval(), case.real(FEW)
    if batch.tokens.is_floating_point():
        batch = replace(batch, tokens=batch.tokens.float())
    if len(batch.tokens) < 2:
        raise NotTestedError("there is only one training pair")
    goal, team = guessing(model), Team(model, case.objective, 0.0)
    optimizer, schedule = (
        build_optimizer(model, OptimizerConfig(), learning_rate=RATE),
        Schedule("constant", RATE, STEPS, WARMUP, 0.0),
    )
    size = sum(parameter.numel() for parameter in model.parameters())
    most = max(LEAST, min(STEPS, int(WORK / (6 * size * batch.n_tokens))))
    loss, step = math.inf, 0
    for step in range(1, most + 1):
        for group in optimizer.param_groups:
            group["lr"] = schedule(step)
        try:
            loss, _ = make_update(model, batch, optimizer, step, Update(clip=1.0), team, None)
        except DivergedError as error:
            return Seen(f"step {step}: {error}", NEVER_LEARNS)
        if loss < LEARNED * goal:
            break
    unit = "squared error" if isinstance(model.config.head, Regress) else "nats"
    evidence = f"{len(batch.tokens)} {case.called}: {loss:.3f} {unit} after {step} steps; guessing costs {goal:.3f}"
    narrow = case.model.config.stack.d_model < WIDE_ENOUGH
    if loss >= HARDLY * goal and most == STEPS and not narrow:
        return Seen(evidence, NEVER_LEARNS)
    return Seen(evidence, SLOW if loss >= LEARNED * goal else None, serious=False)


LEARNING = (
    Probe("first-loss", "The first loss is that of guessing.", first_loss, ("repeatable", "labels")),
    Probe("gradient", "Every layer gets a gradient.", gradient, ("layers", "source")),
    Probe("overfit", "One batch can be learned by heart.", by_heart),
)
