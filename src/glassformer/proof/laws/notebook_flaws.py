"""Flaws of the tutorial notebooks: both sides run; the notebook must show the flaw and our code must be right."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from glassformer.base.errors import DataError
from glassformer.data.batch import Batch
from glassformer.data.tokens.vocabulary import PAD
from glassformer.nn.mask import Mask
from glassformer.nn.positions import POSITIONS, Sizes
from glassformer.nn.stack import Stack
from glassformer.proof.laws.law import Law, Setting, apart, gradients, same_gradients
from glassformer.proof.laws.notebook_parts import ATTENTIONS, pair, read
from glassformer.proof.laws.notebooks import (
    NAMES,
    NUMBERS,
    POST,
    B,
    D,
    F,
    H,
    T,
    carry_over,
    compared,
    notebook,
    translated,
)
from glassformer.proof.laws.specimens import VOCAB, model, normal, scramble, stack, tokens
from glassformer.train.loss import loss_of
from glassformer.train.objective import next_token

LIMIT = 8
"""max_len, one less than the length of the tested sequence."""
ODD = 7
"""An odd width, which has one more sine than cosines."""
VISIBLE = 1e-5
"""A difference far larger than any rounding error."""


def shows(flaw: bool) -> float:
    """Return the error of a case about a notebook: 0 if the flaw is there, infinite if it is not."""
    return 0.0 if flaw else math.inf


def stops(call: Callable[[], object]) -> bool:
    """Whether the call fails with a RuntimeError of torch."""
    try:
        call()
    except RuntimeError:
        return True
    return False


def nothing_to_read(setting: Setting) -> Iterator[float]:
    """A sequence of only padding: the notebooks give NaN, also in the other sequence's gradients; ours gives zeros.

    For the other sequence, our output and its gradients equal the notebook's for that sequence alone.
    """
    keep = torch.ones(B, T, dtype=torch.bool, device=setting.device)
    keep[1] = False
    for number, (_, names, fused) in ATTENTIONS.items():
        if number == "001":
            continue  # this attention takes no mask
        ours, theirs = pair(setting, number)
        x = normal(setting, B, T, D)
        expected, alone = read(number, theirs, x, keep[:, None, None]), read(number, theirs, x[:1])
        yield shows(bool(expected[1].isnan().all()))
        yield shows(any(bool(slope.isnan().any()) for slope in gradients(expected[:1], theirs).values()))
        answer = ours(x, mask=Mask(keep=keep))
        yield apart(answer[1], ours.output.bias.expand(T, D))  # zeros, mapped
        yield compared(answer[:1], ours, alone, theirs, names, fused)


def odd_width(setting: Setting) -> Iterator[float]:
    """The sinusoidal table at an odd width: the notebooks fail in torch; ours equals the paper's entry by entry."""
    for number in NUMBERS:
        yield shows(stops(lambda number=number: notebook(setting, number)["PositionalEncoding"](ODD, LIMIT)))
    ours = sinusoidal(ODD, LIMIT, setting.dtype)
    for place in range(LIMIT):
        for i in range(ODD):
            angle = place / 10_000 ** (i // 2 * 2 / ODD)
            wanted = torch.tensor(math.cos(angle) if i % 2 else math.sin(angle), dtype=setting.dtype)
            yield apart(ours[place, i], wanted)


def past_max_len(setting: Setting) -> Iterator[float]:
    """A sequence longer than max_len: the notebooks fail in torch; ours continues, or names the limit if one is set."""
    for number in NUMBERS:
        theirs = notebook(setting, number)["PositionalEncoding"](D, LIMIT).eval()
        yield shows(stops(lambda theirs=theirs: theirs(torch.zeros(1, LIMIT + 1, D))))
    ids, names = tokens(setting, B, LIMIT + 1), NAMES["001"]
    short, long = (notebook(setting, "001")["TransformerEncoder"](VOCAB, D, H, F, 2, n) for n in (LIMIT, LIMIT + 1))
    yield shows(stops(lambda: short.to(setting.device)(ids)))
    free, limited = (Stack(stack(**POST, max_len=n), VOCAB, scale_embeddings=False) for n in (None, LIMIT))
    scramble(free, setting)
    carry_over(setting, free, long, names, "qkv.")
    yield compared(free(ids), free, long(ids), long, names, "qkv.")
    try:
        limited.to(setting.device)(ids)
    except DataError as refused:
        yield 0.0 if f"max_len={LIMIT}" in str(refused) else math.inf
    else:
        yield math.inf


def trained_on_padding(setting: Setting) -> Iterator[float]:
    """004's training loop does not mask padding, so a pair's loss depends on its batch-mates; ours does not.

    A pair alone has no padding, and 004 is right on it. Our loss on the batch equals the sum of these losses, and so do
    its gradients.
    """
    own = {"head_bias": True, "tie_embeddings": False, "share_embeddings": False, "source_vocab_size": VOCAB + 2}
    ours = model(setting, "encoder-decoder", own=own, **POST)
    theirs = notebook(setting, "004")["Transformer"](VOCAB + 2, VOCAB, D, H, 2, 2, F, dropout=0.0)
    names = NAMES["004 whole"]
    carry_over(setting, ours, theirs, names)
    sources, targets = [[6, 7, 8, 9, 10], [7], [9, 6, 8]], [[10, 9, 8], [7, 6], [8]]
    batch = Batch.pairs(sources, targets).to(setting.device)
    alone = [
        Batch.pairs([source], [target]).to(setting.device) for source, target in zip(sources, targets, strict=True)
    ]
    apiece = [as_004_trains(setting, theirs, each) for each in alone]
    together = as_004_trains(setting, theirs, batch)
    yield shows(apart(together, sum(apiece, torch.zeros_like(together))) > VISIBLE)
    loss = loss_of(ours, batch, next_token).objective
    expected = sum(apiece, torch.zeros_like(loss))
    yield apart(loss, expected)
    yield same_gradients(translated(gradients(loss, ours), names, None), gradients(expected, theirs))


def as_004_trains(setting: Setting, theirs: Callable[..., Tensor], batch: Batch) -> Tensor:
    """Return 004's training loss, summed: source and causal target, no padding mask, pads not counted as targets."""
    readable = cast(Any, notebook(setting, "004")["create_causal_mask"])(batch.tokens.shape[1] - 1)
    logits = theirs(batch.source, batch.tokens[:, :-1], tgt_mask=readable.to(setting.device))
    return cross_entropy(logits.flatten(0, 1), batch.tokens[:, 1:].flatten(), ignore_index=PAD, reduction="sum")


def sinusoidal(width: int, length: int, dtype: torch.dtype) -> Tensor:
    """Return our table of positions."""
    scheme, like = POSITIONS["sinusoidal"](Sizes(width, 1, width, None)), torch.zeros((), dtype=dtype)
    table = scheme.embedding(torch.arange(length), like)
    assert table is not None
    return table


LAWS = [
    Law("notebooks", "000, 002-004 give NaN where nothing may be read, ours zeros", nothing_to_read),
    Law("notebooks", "000-004 stop at an odd d_model, ours drops a cosine", odd_width),
    Law("notebooks", "000-004 break past max_len, ours goes on or names it", past_max_len),
    Law("notebooks", "004 trains on padding, ours counts each pair as alone", trained_on_padding),
]
