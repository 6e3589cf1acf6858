"""Tests a learner's encoder-decoder from outside: which id of source and target changes which logit, and padding."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.proof.check.attention import first
from glassformer.proof.check.block import Layered, adopt
from glassformer.proof.check.calling import FUTURE, built_either, distance, forward_of, means, parameters_of, scramble
from glassformer.proof.check.language_model import (
    LAYERS,
    MAX_LEN,
    NARROW,
    ROWS,
    SAME,
    WIDE,
    TokenModel,
    changed,
    first_loss_of,
)
from glassformer.proof.check.mask import FAILS, INVERTED, NO_BROADCAST, ROW_NAN
from glassformer.proof.check.property import CrashError, Fault, Mistake, NotTestedError, ask, crash_of, law

SOURCE_VOCAB, TARGET_VOCAB, B, S, F = 31, 23, 3, 7, 20
DRAW = torch.Generator().manual_seed(12)
SOURCE = torch.randint(1, TARGET_VOCAB, (B, S), generator=DRAW)
TARGET = torch.randint(1, TARGET_VOCAB, (B, 5), generator=DRAW)
LONG = torch.randint(1, TARGET_VOCAB, (B, S), generator=DRAW)
"""A target as long as the source. None has the id 0, the usual padding, which many models hide by themselves."""
KEEP = torch.arange(S) < torch.tensor([7, 4, 5])[:, None]
ALONE = 1
"""The row that is looked at alone: it has 4 real tokens."""

NO_SOURCE = Mistake(
    "the source changes nothing",
    "Another source gives the same logits: the decoder's blocks do not read the encoder's output.",
    "Which argument of a decoder block carries what the encoder found?",
)
SOURCE_ORDER = Mistake(
    "the order of the source is not seen",
    "The source in another order gives the same logits: the encoder has no positions.",
    "What tells the encoder that one token stands before another?",
)
ONE_TABLE = Mistake(
    "one embedding serves two vocabularies",
    "Source and target ids are looked up in the same table, though id 5 means another word in each.",
    "How many vocabularies has your model, and how many tables?",
)
HEADS_UNUSED = Mistake(
    "n_heads changes nothing",
    "With 2 and with 4 heads the same weights give the same logits.",
    "Follow n_heads from the constructor to the place where the width is cut.",
)
TWO_ANSWERS = Mistake(
    "forward and decode differ",
    "decode(target, encode(source)) gives other logits than forward(source, target).",
    "What does forward do besides calling the two?",
)
IN_ENCODER = Mistake(
    "padding is read in the encoder",
    "What stands in the padding behind the source changes the encoder's vectors at real tokens.",
    "Which attentions read the source, and which of them are given source_keep?",
)
IN_CROSS = Mistake(
    "padding is read in the cross-attention",
    "The encoder is right, but the decoder reads its vectors at the padding.",
    "Which attentions read the source, and which of them are given source_keep?",
)


class Translator(TokenModel, Layered):
    """The learner's model: as its constructor leaves it, and narrow ones in float64 with random parameters."""

    laws = (
        "registered shape repeatable rows vocabularies first-loss source used-layers source-order causal order "
        "own-layers fresh-layers heads parts keep keep-causal padding empty-source"
    )
    tokens, vocab = TARGET, TARGET_VOCAB

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.unregistered: list[str] = []
        self.start = parameters_of(self.made(LAYERS))
        self.module, self.one_layer = scramble(self.made(LAYERS)), scramble(self.made(1))
        after = [*inspect.signature(forward_of(self.module, "source", "target")).parameters][2:]
        self.own = next((name for name in after if means(name, "target_mask")), None)
        self.keep = next((name for name in after if means(name, "memory_mask")), None)
        if self.keep is None:
            self.keep = next((name for name in after if name != self.own and ("mask" in name or "keep" in name)), None)
        self.form: Callable[[Tensor], Tensor] | None = None
        self.seen: Any = self.logits(TARGET)

    def made(self, layers: int, size: tuple[int, int] = NARROW) -> nn.Module:
        """Return an instance as its constructor leaves it, with layers in plain lists registered."""
        vocabularies = {"source_vocab": SOURCE_VOCAB, "target_vocab": TARGET_VOCAB}
        sizes = {**vocabularies, "d_model": size[0], "n_heads": size[1], "n_layers": layers}
        module = built_either(self.kind, sizes, {"d_ff": F, "max_len": MAX_LEN}, {"decoder_layers": layers})
        self.unregistered = adopt(module)
        return module

    def logits(self, tokens: Tensor, module: nn.Module | None = None) -> Any:
        """Return the logits of a target, all rows or the first ones, for the fixed source."""
        return self.answer(SOURCE[: len(tokens)], tokens, module=module)

    def answer(
        self, source: Tensor, target: Tensor, keep: Tensor | None = None, module: nn.Module | None = None
    ) -> Any:
        """Return the logits without a graph. A model that takes the causal mask is given it."""
        with torch.no_grad():
            return first(ask(self.run, source, target, keep, module))

    def run(self, source: Tensor, target: Tensor, keep: Tensor | None, module: nn.Module | None = None) -> Any:
        """Run the model."""
        named: dict[str, Tensor] = {}
        if self.own is not None:
            named[self.own] = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).tril()
        if keep is not None and self.keep is not None:
            named[self.keep] = keep if self.form is None else self.form(keep)
        return (module or self.module)(source, target, **named)

    def output(self) -> Tensor:
        """Return the logits for the fixed ids, with their graph."""
        return first(ask(self.run, SOURCE, TARGET, None))

    shape = replace(TokenModel.shape, law="There is one logit for each id of the target's vocabulary.")
    used_layers = replace(Layered.used_layers, needs=("source", "vocabularies"))
    causal = replace(
        TokenModel.causal, law="No target token changes a logit before it.", needs=("repeatable", "source")
    )
    order = replace(TokenModel.order, law="The order of the target matters.", needs=("causal", "rows"))

    @law("No row of a batch affects another.", "repeatable")
    def rows(self) -> Fault | None:
        for row in range(B):
            gap = distance(self.answer(SOURCE[row : row + 1], TARGET[row : row + 1])[0], self.seen[row])
            if gap > SAME:
                return Fault(ROWS, f"The logits of row {row} alone differ by up to {gap:.2g} from those in the batch.")
        return None

    @law("Source and target have an embedding each.", "shape")
    def vocabularies(self) -> Fault | None:
        seen: dict[str, set[str]] = {}

        def note(name: str) -> Any:
            def hook(module: nn.Module, given: tuple[Any, ...], gave: Any) -> None:
                del module, gave
                for each in given:
                    for side, ids in (("source", SOURCE), ("target", TARGET)):
                        if isinstance(each, Tensor) and torch.equal(each, ids):
                            seen.setdefault(name, set()).add(side)

            return hook

        with ExitStack() as hooks:
            for name, each in self.module.named_modules():
                if name:
                    hooks.enter_context(each.register_forward_hook(note(name)))
            self.logits(TARGET)
        both = [name for name, sides in seen.items() if len(sides) == 2]
        if both:
            return Fault(ONE_TABLE, f"`{both[-1]}` is called with the source and with the target.")
        try:
            self.answer(SOURCE + (SOURCE_VOCAB - TARGET_VOCAB), TARGET)
        except CrashError as crash:
            return Fault(ONE_TABLE, f"Source ids up to {SOURCE_VOCAB - 1}: {crash_of(crash)}")
        return None

    @law("An untrained model's loss is near the logarithm of its vocabulary.", "shape")
    def first_loss(self) -> Fault | None:
        draw = torch.Generator().manual_seed(10)
        source, target, labels = (torch.randint(TARGET_VOCAB, (16, MAX_LEN), generator=draw) for _ in range(3))
        torch.manual_seed(0)
        fresh = self.made(LAYERS, WIDE).eval()
        return first_loss_of(self.answer(source, target, module=fresh), labels, fresh)

    @law("The source changes the logits.", "rows")
    def source(self) -> Fault | None:
        gap = distance(self.answer(SOURCE.flip(0), TARGET), self.seen)
        evidence = f"With the sources of other rows the logits differ by {gap:.0e}."
        return None if gap > SAME else Fault(NO_SOURCE, evidence)

    @law("The order of the source matters.", "used-layers")
    def source_order(self) -> Fault | None:
        gap = distance(self.answer(SOURCE.flip(1), TARGET), self.seen)
        evidence = f"With the source in reverse order the logits differ by {gap:.0e}."
        return None if gap > SAME else Fault(SOURCE_ORDER, evidence)

    @law("The number of heads matters.", "repeatable", "source")
    def heads(self) -> Fault | None:
        width, few = NARROW
        more = scramble(self.made(LAYERS, (width, 2 * few)))
        gap = distance(self.answer(SOURCE, TARGET, module=more), self.seen)
        evidence = f"With {few} and with {2 * few} heads the logits differ by {gap:.0e}."
        return None if gap > SAME else Fault(HEADS_UNUSED, evidence)

    @law("forward gives what decode gives for encode's memory.", "repeatable")
    def parts(self) -> Fault | None:
        encode, decode = (getattr(self.module, name, None) for name in ("encode", "decode"))
        if encode is None or decode is None or self.own is not None:
            raise NotTestedError("it has no encode(source) and decode(target, memory) that make their own masks")
        with torch.no_grad():
            try:
                logits = first(ask(lambda: decode(TARGET, encode(SOURCE))))
            except CrashError as crash:
                raise NotTestedError(f"decode(target, encode(source)) fails: {crash_of(crash)}") from None
        if not isinstance(logits, Tensor) or logits.shape != self.seen.shape:
            raise NotTestedError("decode does not give logits")
        gap = distance(logits, self.seen)
        return Fault(TWO_ANSWERS, f"They differ by up to {gap:.2g}.") if gap > SAME else None

    def needs_keep(self) -> None:
        """Raise `NotTestedError` for a model without source_keep."""
        if self.keep is None:
            raise NotTestedError("it takes no source_keep")

    @law("A source_keep [B, S] is accepted.", "rows", "source", name="keep")
    def takes_keep(self) -> Fault | None:
        self.needs_keep()
        forms = KEEP_FORMS[:1] if "keep" in str(self.keep) else KEEP_FORMS
        crash = "the logits have another shape"
        for self.form in reversed(forms):
            try:
                if self.answer(SOURCE, LONG, KEEP).shape == (B, S, TARGET_VOCAB):
                    return None
            except CrashError as error:
                crash = crash_of(error)
        return Fault(FAILS, f"With {self.keep} of shape [{B}, {S}]: {crash}")

    @law("With source_keep, the future stays hidden.", "keep", "causal")
    def keep_causal(self) -> Fault | None:
        self.needs_keep()
        before = self.answer(SOURCE, LONG, KEEP)
        for place in range(1, S):
            after = self.answer(SOURCE, changed(LONG, TARGET_VOCAB, place), KEEP)
            gap = distance(after[:, :place], before[:, :place])
            if gap > SAME:
                evidence = f"With source_keep, another target token {place} moves a logit before it by {gap:.2g}."
                return Fault(FUTURE, evidence)
        return None

    @law("The padding of the source changes nothing.", "keep-causal", "used-layers")
    def padding(self) -> Fault | None:
        self.needs_keep()
        one = slice(ALONE, ALONE + 1)
        source, target, keep = SOURCE[one], TARGET[one], KEEP[one]
        real = int(keep.sum())
        other = source.clone()
        other[:, real:] = (other[:, real:] + 1) % TARGET_VOCAB
        with along_the_source(self.module) as before:
            alone = self.answer(source, target, keep)
        with along_the_source(self.module) as after:
            gap = distance(self.answer(other, target, keep), alone)
        if gap > SAME:
            evidence = f"Other tokens in the padding move the logits by {gap:.2g}"
            if distance(self.answer((source + (torch.arange(S) < real)) % TARGET_VOCAB, target, keep), alone) <= SAME:
                return Fault(INVERTED, f"{evidence}, and other real tokens do not move them.")
            inside = max(distance(x[:, :real], y[:, :real]) for x, y in zip(before, after, strict=True))
            evidence = f"{evidence}, and vectors at real tokens by {inside:.2g}."
            return Fault(IN_ENCODER if inside > SAME else IN_CROSS, evidence)
        together = self.answer(SOURCE, TARGET, KEEP)
        for row in range(B):
            own = slice(row, row + 1)
            gap = distance(self.answer(SOURCE[own], TARGET[own], KEEP[own]), together[own])
            if gap > SAME:
                return Fault(NO_BROADCAST, f"Row {row} alone differs by {gap:.2g} from the same row in the batch.")
        return None

    @law("A source of padding alone gives numbers.", "padding", optional=True)
    def empty_source(self) -> Fault | None:
        self.needs_keep()
        nothing = KEEP.clone()
        nothing[0] = False
        broken = int((~self.answer(SOURCE, TARGET, nothing).isfinite()).sum())
        return Fault(ROW_NAN, f"With a source of padding alone, {broken} logits are not finite.") if broken else None


KEEP_FORMS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda keep: keep,
    lambda keep: keep[:, None],
    lambda keep: keep[:, None, None],
)
"""[B, S]; an argument that is called a mask may also be wanted as [B, 1, S] or [B, 1, 1, S]."""


@contextmanager
def along_the_source(module: nn.Module) -> Any:
    """Record, while the context lasts, what submodules return that has a vector for each place of the source."""
    found: list[Tensor] = []

    def note(part: nn.Module, given: Any, gave: Any) -> None:
        del part, given
        if isinstance(gave, Tensor) and gave.ndim == 3 and gave.shape[1] == S:
            found.append(gave.clone())

    with ExitStack() as hooks:
        for each in module.modules():
            if each is not module:
                hooks.enter_context(each.register_forward_hook(note))
        yield found
