"""Tests a learner's decoder block: its three branches, what each of them reads, and which mask reaches which."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.proof.check.attention import first
from glassformer.proof.check.block import ASSEMBLED, FEED_FORWARD, Block, Branch, branch, feed_maps, in_order
from glassformer.proof.check.block import attention_maps as attention_calls
from glassformer.proof.check.calling import (
    Heard,
    Maps,
    distance,
    forward_of,
    in_some_form,
    is_norm,
    maps_of,
    mask_argument,
    means,
)
from glassformer.proof.check.heads import CAUSAL, ROWS, D, moved
from glassformer.proof.check.language_model import SAME
from glassformer.proof.check.mask import BATCH, BEFORE, IGNORED, KEEPS, T, wrong_keys
from glassformer.proof.check.mask import HIDDEN_KEYS as KEEP
from glassformer.proof.check.multi_head import CROSS, CROSS_LENGTH
from glassformer.proof.check.property import CrashError, Fault, Mistake, NotTestedError, ask, crash_of, law

Run = list[tuple[int, Heard]]
"""The calls of one attention's maps, each with its place among all calls."""

UNREAD = Mistake(
    "the memory is not read",
    "Another memory gives the same output: the second attention reads x again, or nothing.",
    "Of the second attention's three inputs, which come from the encoder?",
)
EXCHANGED = Mistake(
    "query and memory are exchanged",
    "The second attention asks with the memory and reads x, so its output has the memory's length.",
    "Who asks, and who is asked: the text being written, or its source?",
)
ORDER = Mistake(
    "the branches stand in another order",
    "A decoder block attends to itself, then to the memory, and ends with the feed-forward.",
    "Read the right half of the paper's figure 1 from the bottom up.",
)
ONE_ATTENTION = Mistake(
    "one attention stands in two places",
    "The same module, with the same weights, reads both the text and the memory.",
    "How many attentions does your constructor make?",
)
UNMASKED = Mistake(
    "queries read the future",
    "The mask does not reach self-attention, so a position reads those after it.",
    "Which of the two attentions must be given the causal mask?",
)
REACHES = Mistake(
    "the causal mask reaches the memory",
    "The mask of self-attention is also applied to the memory, all of which may be read.",
    "Is there anything in the memory that a position must not see yet?",
)
MASKS_EXCHANGED = Mistake(
    "the two masks are exchanged",
    "The causal mask reaches the attention to the memory, and not self-attention.",
    "Which sequence does each mask speak of, and which attention reads that sequence?",
)
MEMORY_UNMASKED = Mistake(
    "the memory's mask is ignored",
    "Places of the memory that the mask hides change the output.",
    "Follow memory_mask from the arguments to the place where it is used.",
)


class Decoder(Block):
    """The learner's decoder block, run with a fixed memory; the attention that is read is self-attention."""

    laws = (
        "shape repeatable equation order split softmax rows scale merge memory mask fill padding empty-row "
        f"empty-gradient float16 dropout own-attention lengths memory-mask {ASSEMBLED}"
    )
    sequence = ("self-attention", "cross-attention", FEED_FORWARD)
    memory_mask: str | None = None

    def __init__(self, kind: Any, **settings: Any) -> None:
        draw = torch.Generator().manual_seed(6)
        self.memory = torch.randn(BATCH, T, D, generator=draw, dtype=torch.float64)
        super().__init__(kind, **settings)

    def masks(self, module: nn.Module) -> str | None:
        """Find the arguments for both masks: by their usual names, else the first after the memory is x's own."""
        forward = forward_of(module, "x", "memory")
        after = [*inspect.signature(forward).parameters][2:]
        self.memory_mask = next((name for name in after if means(name, "memory_mask")), None)
        own = next((name for name in after if means(name, "target_mask")), None)
        if own is None:
            own = mask_argument(forward, 2)
            own = None if own == self.memory_mask else own
        if self.memory_mask is None and own in after:
            self.memory_mask = next(iter(after[after.index(own) + 1 :]), None)
        return own

    def call(self, x: Tensor, mask: Tensor | None, memory_mask: Tensor | None = None) -> Any:
        """Run the block on x and the memory."""
        named = {} if mask is None else self.named(mask)
        if memory_mask is not None and self.memory_mask is not None:
            named[self.memory_mask] = memory_mask
        return self.module(x, self.memory.to(x.dtype), **named)

    def runs(self, heard: list[Heard]) -> tuple[Run, Run]:
        """Return the calls of self-attention and of cross-attention, which is the one that is given the memory."""
        found: list[Run] = []
        width, parent = 4 * D, ""
        for place, each in attention_calls(heard):
            above = each.name.rpartition(".")[0]
            if width >= 4 * D or (width >= 3 * D and above != parent):
                found.append([])
                width = 0
            found[-1].append((place, each))
            width += 4 * D if isinstance(each.module, nn.MultiheadAttention) else each.widths[1]
            parent = above
        if len(found) != 2:
            return [], []
        one, other = found
        return (other, one) if self.reads(one, heard) and not self.reads(other, heard) else (one, other)

    def reads(self, run: Run, heard: list[Heard]) -> int:
        """Return how many maps of a run are given the memory."""
        return sum(self.is_memory(each.given, heard) for _, each in run)

    def is_memory(self, given: Tensor, heard: list[Heard]) -> bool:
        """Whether a tensor is the memory, or the memory after a norm."""
        norms = [each.gave for each in heard if is_norm(each.module) and distance(each.given, self.memory) == 0]
        return any(distance(given, each) == 0 for each in (self.memory, *norms))

    def attention(self, heard: list[Heard]) -> Maps | None:
        """Identify the maps of self-attention."""
        return maps_of([each for _, each in self.runs(heard)[0]], D)

    def parts(self, heard: list[Heard]) -> list[Branch]:
        """Return the three branches, as far as they are found, in the order of their calls."""
        own, cross = self.runs(heard)
        asking = [each for each in cross if not self.is_memory(each[1].given, heard)]
        second = branch(self.sequence[1], cross)
        if second is not None and asking:  # keys may have been called before the query
            second = second._replace(given=asking[0][1].given)
        return in_order(branch(self.sequence[0], own), second, branch(FEED_FORWARD, feed_maps(heard)))

    def with_memory(self, memory: Tensor, mask: Tensor | None = None, memory_mask: Tensor | None = None) -> Tensor:
        """Return the output for another memory."""
        before, self.memory = self.memory, memory
        try:
            with torch.no_grad():
                given = mask if mask is None or self.forms is None else self.forms(mask)
                return first(ask(lambda: self.call(self.x, given, memory_mask)))
        finally:
            self.memory = before

    def memory_reach(self, mask: Tensor | None = None, memory_mask: Tensor | None = None) -> Tensor:
        """Move one position of the memory at a time, and return [T, S], True where an output changes."""
        before = self.with_memory(self.memory, mask, memory_mask)
        after = [self.with_memory(moved(self.memory, place), mask, memory_mask) for place in range(T)]
        return torch.stack([((each - before).abs() > SAME).any(-1).any(0) for each in after], 1)

    structure = replace(Block.structure, needs=("shape", "rows", "memory"))

    @law("Self-attention comes first, then the memory, then the feed-forward.", "structure", name="branches")
    def in_order(self) -> Fault | None:
        return self.in_sequence(ORDER)

    @law("No row of a batch affects another.", "softmax")
    def rows(self) -> Fault | None:
        if (fault := self.mixed_rows()) is not None:
            return fault
        for row, other in ((1, 0), (0, 1)):
            memory = self.memory.clone()
            memory[row] *= -1.5
            gap = distance(self.with_memory(memory)[other], self.seen[other])
            if gap > 0:
                return Fault(ROWS, f"Changing row {row} of the memory changes row {other} of the output by {gap:.2g}.")
        return None

    @law("Queries come from x, keys and values from the memory.", "rows", name="memory")
    def reads_memory(self) -> Fault | None:
        if not self.memory_reach().any():
            return Fault(UNREAD, f"None of {T} positions of the memory changes the output.")
        maps = maps_of([each for _, each in self.runs(self.heard)[1]], D)
        if maps is None or len(maps.projections) != 3:
            return None
        query, *others = maps.projections
        if self.is_memory(query.given, self.heard):
            return Fault(EXCHANGED, f"The query map `{query.name}` receives the memory.")
        wrong = [each.name for each in others if not self.is_memory(each.given, self.heard)]
        return Fault(CROSS, f"`{wrong[0]}` does not receive the memory.") if wrong else None

    @law("The mask acts on self-attention alone.", *BEFORE, "memory", name="mask")
    def own_mask(self) -> Fault | None:
        self.needs_mask()
        fault = self.polarity()
        if fault is not None and fault.mistake is not IGNORED:
            return fault
        hidden = int((~self.memory_reach(mask=CAUSAL)).sum())
        evidence = f"Under a causal mask, {hidden} of {T * T} pairs of a position and a place of the memory are cut."
        if fault is None:
            return Fault(REACHES, evidence) if hidden else None
        return Fault(MASKS_EXCHANGED, evidence) if hidden else Fault(UNMASKED, fault.evidence)

    @law("Each attention has maps of its own.", "rows")
    def own_attention(self) -> Fault | None:
        own, cross = ({each.name for _, each in run} for run in self.runs(self.heard))
        if not own:
            raise NotTestedError("its two attentions could not be told apart")
        return Fault(ONE_ATTENTION, f"`{min(own & cross)}` is called in both.") if own & cross else None

    @law("The memory may have another length.", "memory")
    def lengths(self) -> Fault | None:
        draw = torch.Generator().manual_seed(8)
        longer = torch.randn(BATCH, T + 1, D, generator=draw, dtype=torch.float64)
        try:
            answer = self.with_memory(longer)
        except CrashError as crash:
            return Fault(CROSS_LENGTH, f"With {T} positions and a memory of {T + 1}: {crash_of(crash)}")
        fits = answer.shape == self.x.shape
        return None if fits else Fault(CROSS_LENGTH, f"With a memory of {T + 1} the output is {tuple(answer.shape)}.")

    @law("The memory's mask hides places of the memory.", "memory", "mask", name="memory-mask")
    def its_mask(self) -> Fault | None:
        if self.memory_mask is None:
            raise NotTestedError("it takes no mask for the memory")
        try:
            moves = in_some_form(KEEPS, lambda form: self.memory_reach(memory_mask=form(KEEP)).any(0))
        except CrashError as crash:
            raise NotTestedError(f"no known form of its mask is accepted: {crash_of(crash)}") from None
        evidence = f"Of 6 places, 2 are hidden; {int((moves & ~KEEP).sum())} of them are read."
        return None if (mistake := wrong_keys(moves, MEMORY_UNMASKED)) is None else Fault(mistake, evidence)
