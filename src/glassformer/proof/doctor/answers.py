"""Probes what may change an answer and what may not: future tokens, padding, batch-mates, order, source and cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from glassformer.base.shapes import Bool, Float, Int, Tensor
from glassformer.data.batch import Batch
from glassformer.data.tokens.vocabulary import PAD
from glassformer.nn.heads import SequenceHead
from glassformer.nn.transformer import Transformer
from glassformer.proof.check.property import NotTestedError
from glassformer.proof.doctor.case import Case, answers_once, hidden, logits
from glassformer.proof.doctor.finding import Ailment, Probe, Seen
from glassformer.proof.laws.law import apart

EQUAL = 1e-9
"""The largest difference between equal float64 answers.

Rounding errors are a thousandth of it; the effect of a mistake is a million times as large.
"""
PADS = 3
Read = Int[Tensor, "B T"] | Float[Tensor, "B T I"]

NOISY = Ailment(
    "evaluation is random",
    "Dropout, or something else that draws random numbers, is active in evaluation.",
    "Every module with dropout must check `self.training`; call model.eval() before every evaluation.",
)
LEAK = Ailment(
    "a position reads tokens after it",
    "The causal mask of the decoder's self-attention is missing, inverted or off by one.",
    "Use Mask(causal=True) in every self-attention of the decoder: query t may read the keys 0 to t, itself included.",
)
PADDED = Ailment(
    "padding changes the answer",
    "A stack, or the cross-attention, attends to padding as if it were tokens.",
    "Pass keep= (and source_keep= for the memory) to every forward pass; it is True at real tokens.",
)
POOLED = Ailment(
    "padding is pooled",
    "The pooled vector of a text includes its padding.",
    "Pass keep to the pooling, so that only real tokens count.",
)
MIXED = Ailment(
    "other rows of the batch change the answer",
    "Rows of a batch are mixed: two axes are confused, or something is normalised over the batch.",
    "The batch comes first in every tensor; check each reshape, transpose and mean.",
)
BLIND = Ailment(
    "the source changes nothing",
    "The decoder does not read the encoder's memory: cross-attention is missing, or reads something else.",
    "Each block of the decoder needs cross-attention whose keys and values come from the memory.",
)
UNORDERED = Ailment(
    "order is not seen",
    "Where the source is read, the model has no position information, so it sees a set of tokens.",
    "Add position vectors to the embeddings, or use the rotation or the bias in every self-attention.",
)
BY_WISH = Ailment(
    "order is not seen",
    "The recipe sets model.positions='none'.",
    "Choose another value of model.positions, unless order does not matter in this task.",
)
STALE = Ailment(
    "decoding token by token gives another answer",
    "With the cache, a new token gets another position, or reads other keys, than without it.",
    "Add the number of cached tokens to the position of a new token, and let it read all of them and itself.",
)


@torch.no_grad()
def repeatable(case: Case) -> Seen:
    """Run two forward passes in evaluation mode, and check that the logits agree and that no random numbers are drawn.

    The second check matters because a rare dropout may leave a small batch as it is, but it still draws random numbers.
    """
    batch = case.made([(5, 6), (3, 4)])
    case.model.eval()
    before = torch.get_rng_state()
    gap = apart(logits(case.model, batch), logits(case.model, batch))
    drawn = not torch.equal(torch.get_rng_state(), before)
    evidence = (
        f"two forward passes in evaluation mode differ by {gap:.2g} and draw {'' if drawn else 'no '}random numbers"
    )
    return Seen(evidence, NOISY if gap or drawn else None)


@torch.no_grad()
def causality(case: Case) -> Seen:
    """Change a token; the logits before it must not change."""
    if not case.model.config.stack.causal:
        raise NotTestedError("this model is bidirectional, so it has no causal mask")
    batch = case.made([(5, 8)])
    before = logits(case.model, batch)
    worst, evidence = 0.0, ""
    for place in range(1, batch.tokens.shape[1]):
        moved = (logits(case.model, replace(batch, tokens=other_token(case, batch.tokens, place))) - before).abs()
        gap, where = moved[0, :place].amax(-1).max(0)
        if gap > worst:
            worst, evidence = (
                gap.item(),
                f"another token at position {place} changes the logits at position {int(where)} by",
            )
    if worst <= EQUAL:
        return Seen(f"{batch.tokens.shape[1] - 1} tokens changed in turn; earlier logits change by {worst:.1g} at most")
    return Seen(f"{evidence} {worst:.2g}", LEAK)


def other_token(case: Case, tokens: Read, place: int) -> Read:
    """Return the tokens (or features) with the one at a given position changed."""
    changed = tokens.clone()
    if tokens.is_floating_point():  # features
        changed[:, place] += 1.0
        return changed
    _, ordinary = case.ids
    changed[:, place] = next(id for id in (*ordinary, PAD) if id != int(tokens[0, place]))
    return changed


@torch.no_grad()
def padding(case: Case) -> Seen:
    """Append padding to a text; the vectors of its tokens must not change."""
    batch = replace(case.made([(4, 5)]), labels=None, label_keep=None)  # labels would have to grow with the tokens
    before = hidden(case.model, batch)
    tokens, keep = with_pads(batch.tokens)
    gaps = {"text": apart(hidden(case.model, replace(batch, tokens=tokens, keep=keep))[:, : before.shape[1]], before)}
    if batch.source is not None:
        source, keep = with_pads(batch.source)
        gaps = {
            "target": gaps["text"],
            "source": apart(hidden(case.model, replace(batch, source=source, source_keep=keep)), before),
        }
    gap_text = " and ".join(f"{gap:.2g} after the {side}" for side, gap in gaps.items())
    evidence = f"{PADS} padding tokens change the vectors of real tokens by {gap_text}"
    return Seen(evidence, PADDED if max(gaps.values()) > EQUAL else None)


def with_pads(tokens: Read) -> tuple[Int[Tensor, "B U"] | Float[Tensor, "B U I"], Bool[Tensor, "B U"]]:
    """Return the tokens (or features) with padding appended, and a mask of the real ones."""
    longer = torch.nn.functional.pad(tokens, (*(0, 0) * (tokens.ndim - 2), 0, PADS), value=PAD)
    return longer, torch.arange(longer.shape[1]).expand(longer.shape[:2]) < tokens.shape[1]


@torch.no_grad()
def pooling(case: Case) -> Seen:
    """Append random vectors as padding; the output of the head must not change."""
    head = case.model.head
    if not isinstance(head, SequenceHead):
        raise NotTestedError("this model has no pooling")
    x = torch.randn(1, 5 + PADS, case.model.config.stack.d_model, dtype=torch.float64)
    keep = torch.arange(5 + PADS)[None] < 5
    gap = apart(head(x, keep), head(x[:, :5]))
    return Seen(f"{PADS} vectors of padding change the scores by {gap:.2g}", POOLED if gap > EQUAL else None)


@torch.no_grad()
def neighbours(case: Case) -> Seen:
    """Run rows of one length together and alone; the logits must agree."""
    together = case.made([(4, 5)] * 3)
    rows = together.split(3)
    gap = apart(logits(case.model, together), torch.cat([logits(case.model, row) for row in rows]))
    return Seen(f"{len(rows)} rows together and alone differ by {gap:.2g}", MIXED if gap > EQUAL else None)


@torch.no_grad()
def source(case: Case) -> Seen:
    """Replace the source; the answer must change."""
    batch = case.made([(6, 5)])
    if batch.source is None:
        raise NotTestedError("this model is not an encoder-decoder")
    before = logits(case.model, batch)
    sources = [case.made([(6, 5)], seed).source for seed in range(1, 5)]
    gap = max(apart(logits(case.model, replace(batch, source=each)), before) for each in sources)
    return Seen(f"{len(sources)} other sources change the logits by {gap:.2g} at most", BLIND if gap <= EQUAL else None)


@torch.no_grad()
def order(case: Case) -> Seen:
    """Reverse the source; the answer must change."""
    ordinary = case.ids[0]
    n = min(len(ordinary), case.room, 6)
    if n < 2:
        raise NotTestedError("there is no room for two tokens to swap")
    forwards, target = list(ordinary[:n]), [case.ids[1][0]] * case.target_length(n, n)
    given, turned = (case.batch([(each, target)]) for each in (forwards, forwards[::-1]))
    gap = apart(answer_logits(case, given), answer_logits(case, turned))
    evidence = f"reversing {n} tokens changes the answer by {gap:.2g}"
    if gap > EQUAL:
        return Seen(evidence)
    if case.model.config.stack.positions == "none":
        return Seen(evidence, BY_WISH, serious=False)
    return Seen(evidence, UNORDERED)


def answer_logits(case: Case, batch: Batch) -> Tensor:
    """Return the logits of the answer only, leaving out those of a source that is in the same sequence."""
    found = logits(case.model, batch)
    if not case.layout.encoder:
        return found[:, -1]
    return found if batch.label_keep is None or answers_once(case.model) else found[batch.label_keep]


@torch.no_grad()
def cache(case: Case) -> Seen:
    """Compare one forward pass with token by token through each kind of cache."""
    model = case.model
    if not model.config.stack.causal:
        raise NotTestedError("this model does not write token by token")
    batch = case.made([(5, 7)])
    memory = {"memory": model.encode(batch.source)} if batch.source is not None else {}
    whole = model(batch.tokens, **memory)
    gaps = {kind: apart(stepped(model, batch.tokens, memory, capacity), whole) for kind, capacity in KINDS.items()}
    gap_text = ", ".join(f"{gap:.2g} ({kind})" for kind, gap in gaps.items())
    evidence = f"{batch.tokens.shape[1]} tokens one by one and at once: the logits differ by {gap_text}"
    return Seen(evidence, STALE if max(gaps.values()) > EQUAL else None)


KINDS = {"growing": None, "fixed": 32}
"""The two kinds of cache, with the argument of `new_cache` for each."""


def stepped(model: Transformer, tokens: Tensor, memory: dict[str, Tensor], capacity: int | None) -> Tensor:
    """Return the logits, computed token by token."""
    held = model.new_cache(capacity)

    def steps() -> Iterator[Tensor]:
        for token in tokens.split(1, dim=1):
            yield model(token, cache=held, **memory)

    return torch.cat(list(steps()), dim=1)


BEFORE = ("repeatable", "heads")
PROBES = (
    Probe("causality", "No position reads a token after it.", causality, BEFORE),
    Probe("padding", "Padding changes no answer.", padding, BEFORE),
    Probe("pooling", "Padding is not pooled.", pooling, BEFORE),
    Probe("neighbours", "Other rows of the batch change no answer.", neighbours, BEFORE),
    Probe("source", "The answer depends on the source.", source, BEFORE),
    Probe("order", "The answer depends on the order of the source.", order, (*BEFORE, "source")),
    Probe("cache", "Decoding token by token gives the same as one forward pass.", cache, (*BEFORE, "causality")),
)
REPEATABLE = Probe(
    "repeatable", "In evaluation mode the same text gets the same answer, without randomness.", repeatable
)
