"""Probes the targets: whether the label of position t is the token t + 1, and whether padding counts."""

from __future__ import annotations

import torch

from glassformer.base.shapes import Tensor
from glassformer.data.batch import Batch
from glassformer.data.tokens.vocabulary import BOS, EOS
from glassformer.nn.heads import PlaceHead
from glassformer.nn.outputs import Regress
from glassformer.proof.check.property import NotTestedError
from glassformer.proof.doctor.case import Case, answers_once
from glassformer.proof.doctor.finding import Ailment, Probe, Seen

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
    asked = case.objective(batch)
    keep = torch.ones_like(asked.ids, dtype=torch.bool) if asked.keep is None else asked.keep
    positions = keep[0].nonzero().flatten().tolist()
    row = asked_for[0].tolist()
    found = {row.index(int(asked.ids[0, place])) - place for place in positions}
    told = f"{len(positions)} positions must each predict the token at offset {' or '.join(map(str, sorted(found)))}"
    if found == {right}:
        return Seen(told)
    one = found.pop() if len(found) == 1 else None
    return Seen(told, {right - 1: UNSHIFTED, right + 1: TWICE}.get(one, ASKEW) if one is not None else ASKEW)


def padded(case: Case) -> Seen:
    """Compare the number of targets of rows in one batch with that of each row alone."""
    together = case.made([(3, 3), (6, 7), (1, 2)])
    if together.pad_share == 0:
        raise NotTestedError("the model takes too few tokens for rows of unequal length")
    alone = [case.objective(row).n_targets for row in together.split(3)]
    counted = case.objective(together).n_targets
    told = f"rows of {', '.join(map(str, alone))} targets have {counted} targets in one batch"
    return Seen(told, COUNTED if counted != sum(alone) else None)


PROBES = (
    Probe("labels", "Each position has the label that belongs to it.", labels),
    Probe("padding-in-loss", "Padding does not count in the loss.", padded),
)
