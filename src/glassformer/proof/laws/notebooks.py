"""The five tutorial notebooks and our models, with the same weights, agree in outputs and gradients.

The notebooks' code is run from a folder that the user names; none of it is copied here.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import math
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from glassformer.base.errors import DataError
from glassformer.base.shapes import Bool, Float
from glassformer.data.batch import Batch
from glassformer.data.tokens.vocabulary import PAD
from glassformer.nn.attention import Attention
from glassformer.nn.block import Block
from glassformer.nn.build import build_block, build_norm
from glassformer.nn.mask import Mask
from glassformer.nn.positions import POSITIONS, Sizes
from glassformer.nn.rules import ATTEND
from glassformer.nn.stack import Stack
from glassformer.proof.laws.law import (
    VOCAB,
    Law,
    NotHere,
    Setting,
    apart,
    gradients,
    model,
    normal,
    same_gradients,
    scramble,
    stack,
    tokens,
)
from glassformer.store.family import Table, join_projections, rename
from glassformer.train.loss import loss_of
from glassformer.train.objective import next_token

B, T, S, D, H, F = 2, 6, 5, 16, 4, 24
NUMBERS = ("000", "001", "002", "003", "004")
POST, PRE = {"norm_placement": "post"}, {"norm_placement": "pre", "activation": "gelu"}

SPLIT: Table = [(rf"branch\.{ours}\b", f"W_{ours[0]}") for ours in ("query", "key", "value", "output")]
NORMS: Table = [(r"self_attention\.norm_(in|sum)", "norm1"), (r"cross_attention\.norm_sum", "norm2")]
TWO_NORMS: Table = [*NORMS, (r"feed_forward\.norm_(in|sum)", "norm2")]
LINEAR: Table = [(r"branch\.up\b", "linear1"), (r"branch\.down\b", "linear2")]

NAMES: dict[str, Table] = {
    "000": [*TWO_NORMS, *SPLIT, (r"feed_forward\.branch\.up", "ffn.fc1"), (r"feed_forward\.branch\.down", "ffn.fc2"),
            ("self_attention", "self_attn")],
    "001": [(r"self_attention\.norm_sum", "ln1"), (r"feed_forward\.norm_sum", "ln2"), ("blocks", "layers"),
            (r"self_attention\.branch\.output", "attn.out"), (r"self_attention\.branch", "attn"),
            (r"feed_forward\.branch\.up", "ff.net.0"), (r"feed_forward\.branch\.down", "ff.net.2"),
            ("embedding", "embed")],
    "002": [*TWO_NORMS, *SPLIT, *LINEAR, ("self_attention", "attention"), (r"^head\.", "output."), ("^encoder.", "")],
    "003": [*TWO_NORMS, (r"self_attention\.branch\.output", "attn.out_proj"), (r"self_attention\.branch", "attn"),
            *LINEAR, (r"feed_forward\.", "ff.")],
    "003 decoder": [*NORMS, (r"feed_forward\.norm_sum", "norm3"), (r"branch\.output", "out_proj"),
                    (r"(self|cross)_attention\.(branch\.)?", r"\1_attn."), (r"feed_forward\.branch\.up", "ffn.0"),
                    (r"feed_forward\.branch\.down", "ffn.2")],
    "004": [*SPLIT, *LINEAR, (r"(encoder_layers\.\d+\.)feed_forward\.norm_sum", r"\1norm2"), *NORMS,
            (r"feed_forward\.norm_sum", "norm3"), ("(self|cross)_attention", r"\1_attn"), ("feed_forward", "ffn")],
}  # fmt: skip
NAMES["004 whole"] = [(r"encoder\.blocks", "encoder_layers"), (r"decoder\.blocks", "decoder_layers"),
                      (r"encoder\.embedding", "src_embed"), (r"decoder\.embedding", "tgt_embed"),
                      (r"^head\.", "output_proj."), *NAMES["004"]]  # fmt: skip


def tables(setting: Setting) -> Iterator[float]:
    """The table of positions: the notebooks compute its angles in float32, so the two differ in the sixth digit."""
    for number in NUMBERS:
        theirs = cast(Any, notebook(setting, number)["PositionalEncoding"](D, 200))
        ours = POSITIONS["sinusoidal"](Sizes(D, H, D // H, None)).embedding(torch.arange(200), torch.zeros(()))
        assert ours is not None
        yield apart(ours, theirs.pe[0])


def encoders(setting: Setting) -> Iterator[float]:
    """000, 001 and 002 from ids to vectors or logits: separate and fused projections, post- and pre-norm.

    000 and 002 are also tested with padding, leaving out the vectors at padding; 003's stack is tested on vectors.
    """
    keep = torch.ones(B, T, dtype=torch.bool, device=setting.device)
    keep[0, 4:] = False
    own = {"head_bias": True, "tie_embeddings": False}
    full = model(setting, "encoder", own=own, **PRE)
    cases: list[tuple[str, nn.Module, dict[str, Any]]] = [
        ("000", Stack(stack(**POST, final_norm=True), VOCAB), {"n_layers": 2, "max_len": 20, "dropout": 0.0}),
        ("001", Stack(stack(**POST), VOCAB, scale_embeddings=False), {"num_layers": 2, "max_len": 20}),
        ("002", full, {"n_layers": 2, "max_len": 20, "dropout": 0.0}),
    ]
    for number, ours, sizes in cases:
        heads = "num_heads" if number == "001" else "n_heads"
        theirs = notebook(setting, number)["TransformerEncoder"](VOCAB, D, d_ff=F, **{heads: H}, **sizes)
        ours = scramble(ours, setting)
        names = NAMES[number]
        carry_over(setting, ours, theirs, names, fused="qkv." if number == "001" else None)
        ids = tokens(setting, B, T)
        yield compared(ours(ids), ours, theirs(ids), theirs, names, "qkv." if number == "001" else None)
        if number != "001":  # 001 takes no mask
            expected = theirs(ids, keep[:, None, None, :])
            yield compared(ours(ids, keep=keep)[keep], ours, expected[keep], theirs, names)
    yield from stack_of_vectors(setting)


def stack_of_vectors(setting: Setting) -> Iterator[float]:
    """003's stack: two blocks and a norm."""
    config = stack(**POST)
    layers = nn.ModuleList(build_block(config, reads_memory=False) for _ in range(2))
    ours = scramble(nn.ModuleDict({"layers": layers, "norm": build_norm(config)}), setting)
    theirs = notebook(setting, "003")["TransformerEncoder"](2, D, H, F)
    names = [*TWO_NORMS, *NAMES["003"]]
    carry_over(setting, ours, theirs, names, "qkv_proj.")
    answer = x = normal(setting, B, T, D)
    for layer in layers:
        answer = layer(answer, mask=Mask())
    yield compared(ours["norm"](answer), ours, theirs(x), theirs, names, "qkv_proj.")


def blocks(setting: Setting) -> Iterator[float]:
    """Encoder blocks, without a mask and causal with padding. 001's block takes no mask."""
    keep = torch.ones(B, T, dtype=torch.bool, device=setting.device)
    keep[0, 4:] = False
    readable = torch.ones(T, T, dtype=torch.bool, device=setting.device).tril() & keep[:, None, None, :]
    for number, name, placement in (
        ("000", "TransformerBlock", POST),
        ("001", "TransformerBlock", POST),
        ("002", "TransformerBlock", PRE),
        ("003", "TransformerEncoderBlock", POST),
        ("004", "EncoderLayer", POST),
    ):
        theirs = notebook(setting, number)[name](D, H, F)
        ours = scramble(build_block(stack(**placement), reads_memory=False), setting)
        names = [*NAMES[number]] if number == "001" else [*TWO_NORMS, *NAMES[number]]
        fused = {"001": "qkv.", "003": "qkv_proj."}.get(number)
        carry_over(setting, ours, theirs, names, fused)
        x = normal(setting, B, T, D)
        yield compared(ours(x, mask=Mask()), ours, theirs(x), theirs, names, fused)
        if number == "001":
            continue
        answer = ours(x, mask=Mask(causal=True, keep=keep))
        yield compared(answer, ours, theirs(x, readable), theirs, names, fused)


def decoder_blocks(setting: Setting) -> Iterator[float]:
    """003's decoder block (sequence-first, as written there) and 004's: causal, over a memory with padding.

    In 003's decoder, a mask says what is hidden; everywhere else, it says what may be read.
    """
    future = torch.ones(T, T, dtype=torch.bool, device=setting.device).triu(1)
    x, memory = normal(setting, B, T, D), normal(setting, B, S, D)
    ours = scramble(build_block(stack(**POST), reads_memory=True), setting)
    theirs = notebook(setting, "003")["TransformerDecoderBlock"](D, H, F, dropout=0.0)
    names = NAMES["003 decoder"]
    carry_over(setting, ours, theirs, names, "in_proj_")
    expected = theirs(x.transpose(0, 1), memory.transpose(0, 1), tgt_mask=future).transpose(0, 1)
    yield compared(ours(x, mask=Mask(causal=True), memory=memory), ours, expected, theirs, names, "in_proj_")
    keep = torch.ones(B, S, dtype=torch.bool, device=setting.device)
    keep[:, 3:] = False  # 003 has one mask for all rows
    hidden = (~keep[0]).expand(T, S)
    expected = theirs(x.transpose(0, 1), memory.transpose(0, 1), future, hidden).transpose(0, 1)
    answer = ours(x, mask=Mask(causal=True), memory=memory, memory_mask=Mask(keep=keep))
    yield compared(answer, ours, expected, theirs, names, "in_proj_")

    keep = torch.ones(B, S, dtype=torch.bool, device=setting.device)
    keep[1, 3:] = False
    theirs = notebook(setting, "004")["DecoderLayer"](D, H, F, dropout=0.0)
    carry_over(setting, ours, theirs, NAMES["004"])
    answer = ours(x, mask=Mask(causal=True), memory=memory, memory_mask=Mask(keep=keep))
    yield compared(answer, ours, theirs(x, memory, keep[:, None, None], ~future), theirs, NAMES["004"])


def whole(setting: Setting) -> Iterator[float]:
    """004 from source and target ids to logits, without a source mask and with its padding masked."""
    own = {"head_bias": True, "tie_embeddings": False, "share_embeddings": False, "source_vocab_size": VOCAB + 2}
    ours = model(setting, "encoder-decoder", own=own, **POST)
    theirs = notebook(setting, "004")["Transformer"](VOCAB + 2, VOCAB, D, H, 2, 2, F, dropout=0.0)
    names = NAMES["004 whole"]
    carry_over(setting, ours, theirs, names)
    ids, source = tokens(setting, B, T), tokens(setting, B, S)
    readable = torch.ones(T, T, dtype=torch.bool, device=setting.device).tril()
    yield compared(ours(ids, source=source), ours, theirs(source, ids, None, readable), theirs, names)
    keep = torch.ones(B, S, dtype=torch.bool, device=setting.device)
    keep[0, 2:] = False
    expected = theirs(source, ids, keep[:, None, None], readable)
    yield compared(ours(ids, source=source, source_keep=keep), ours, expected, theirs, names)


def notebook(setting: Setting, number: str) -> dict[str, Callable[..., nn.Module]]:
    """Return the classes of one notebook. Errors: `NotHere` without them, or for a file that cannot be read."""
    if setting.notebooks is None:
        raise NotHere("give --notebooks FOLDER with the tutorial notebooks as .ipynb, .txt or .py")
    found = notebook_file(setting.notebooks, number)
    if found is None:
        raise NotHere(looked_for(setting.notebooks, number))
    try:
        there = definitions(found)
    except Exception as error:  # whatever a file of somebody else raises
        raise NotHere(
            f"{found} cannot be read: {type(error).__name__}: {str(error)[:80]}; correct it or move it away"
        ) from None
    if missing := MARKS[number] - there.keys():
        raise NotHere(f"{found} does not define {', '.join(sorted(missing))}; give the whole tutorial, or rename it")
    return there


def carry_over(setting: Setting, ours: nn.Module, theirs: nn.Module, names: Table, fused: str | None = None) -> None:
    """Copy our weights and our table of positions (theirs is float32) into their module; set it to evaluation mode."""
    theirs.to(setting.device, setting.dtype).eval()
    left = theirs.load_state_dict(translated(dict(ours.named_parameters()), names, fused), strict=False)
    missing = [name for name in left.missing_keys if not name.endswith(".pe")]
    assert not [*missing, *left.unexpected_keys], left
    for name, table in theirs.named_buffers():
        if name.endswith("pe"):
            scheme = POSITIONS["sinusoidal"](Sizes(D, H, D // H, None))
            exact = scheme.embedding(torch.arange(table.shape[1], device=setting.device), table)
            assert exact is not None
            table.copy_(exact)


def translated(tensors: dict[str, Tensor], names: Table, fused: str | None) -> dict[str, Tensor]:
    """Return our tensors under the notebook's names."""
    return rename(join_projections(tensors, fused) if fused else tensors, names)


def compared(
    answer: Tensor, ours: nn.Module, expected: Tensor, theirs: nn.Module, names: Table, fused: str | None = None
) -> float:
    """Return the larger of the errors of outputs and gradients, matched by the notebook's names."""
    mine = translated(gradients(answer, ours), names, fused)
    return max(apart(answer, expected), same_gradients(mine, gradients(expected, theirs)))


WHOLE_LAWS = [
    Law("notebooks", "000-004: the table of positions", tables, narrow=True),
    Law("notebooks", "000-003: encoders, split and fused projections", encoders),
    Law("notebooks", "000-004: encoder blocks, with masks", blocks),
    Law("notebooks", "003, 004: decoder blocks", decoder_blocks),
    Law("notebooks", "004: the whole encoder-decoder", whole),
]


# Tests parts of the five tutorial notebooks on their own: attention and the feed-forward branch.

PART_SPLIT: Table = [(rf"^{ours}\b", f"W_{ours[0]}") for ours in ("query", "key", "value", "output")]
ATTENTIONS: dict[str, tuple[str, Table, str | None]] = {
    "000": ("MultiHeadSelfAttention", PART_SPLIT, None),
    "001": ("MultiHeadAttention", [("^output", "out")], "qkv."),
    "002": ("MultiHeadAttention", PART_SPLIT, None),
    "003": ("MultiHeadSelfAttention", [("^output", "out_proj")], "qkv_proj."),
    "004": ("MultiHeadAttention", PART_SPLIT, None),
}
"""Class, parameter names, and the prefix of the fused projections (None if they are separate)."""
PART_LINEAR: Table = [("^up", "linear1"), ("^down", "linear2")]
FEED_FORWARDS: dict[str, tuple[str, Table, str]] = {
    "000": ("PositionwiseFFN", [("^up", "fc1"), ("^down", "fc2")], "relu"),
    "001": ("FeedForward", [("^up", "net.0"), ("^down", "net.2")], "relu"),
    "002": ("FeedForward", PART_LINEAR, "gelu"),
    "003": ("PositionwiseFeedForward", PART_LINEAR, "relu"),
    "004": ("FeedForward", PART_LINEAR, "relu"),
}
"""Class, parameter names and activation."""


def attentions(setting: Setting) -> Iterator[float]:
    """Separate and fused projections: unmasked, causal with padding, and reading a memory; also 001's single head."""
    x, memory = normal(setting, B, T, D), normal(setting, B, S, D)
    keep = torch.ones(B, T, dtype=torch.bool, device=setting.device)
    keep[1, 3:] = False
    readable = torch.ones(T, T, dtype=torch.bool, device=setting.device).tril() & keep[:, None, None, :]
    for number, (_, names, fused) in ATTENTIONS.items():
        ours, theirs = pair(setting, number)
        yield compared(ours(x, mask=Mask()), ours, read(number, theirs, x), theirs, names, fused)
        if number == "001":
            continue  # this attention takes no mask
        answer = ours(x, mask=Mask(causal=True, keep=keep))
        yield compared(answer, ours, read(number, theirs, x, readable), theirs, names, fused)
    ours, theirs = pair(setting, "004")
    expected = theirs(x, memory, memory, keep[:, None, None, :S])[0]
    answer = ours(x, mask=Mask(keep=keep[:, :S]), source=memory)
    yield compared(answer, ours, expected, theirs, PART_SPLIT)
    yield from one_head(setting)


def one_head(setting: Setting) -> Iterator[float]:
    """001's attention function, and its single-head attention."""
    q, k, v = (normal(setting, B, T, D) for _ in range(3))
    equation = cast(Any, notebook(setting, "001")["scaled_dot_product_attention"])
    answer = ATTEND["softmax"]["reference"](q[:, None], k[:, None], v[:, None], Mask(), scale=D**-0.5)
    yield apart(answer[:, 0], equation(q, k, v))
    module = notebook(setting, "001")["SelfAttention"](D)
    ours = scramble(Attention(D, 1, ATTEND["softmax"]["auto"]), setting)
    names: Table = [("^output", "out")]
    carry_over(setting, ours, module, names, "qkv.")
    yield compared(ours(q, mask=Mask()), ours, module(q), module, names, "qkv.")


def pair(setting: Setting, number: str) -> tuple[Attention, nn.Module]:
    """Return our attention and a notebook's, with the same weights."""
    kind, names, fused = ATTENTIONS[number]
    ours = scramble(Attention(D, H, ATTEND["softmax"]["auto"]), setting)
    theirs = notebook(setting, number)[kind](D, H)
    carry_over(setting, ours, theirs, names, fused)
    return ours, theirs


def read(
    number: str, theirs: nn.Module, x: Float[Tensor, "B T D"], readable: Bool[Tensor, "B 1 #T T"] | None = None
) -> Float[Tensor, "B T D"]:
    """Return the output of a notebook's attention for x. 004's takes x three times and also returns its weights."""
    if number == "004":
        return theirs(x, x, x, readable)[0]
    return theirs(x) if readable is None else theirs(x, readable)


def feed_forwards(setting: Setting) -> Iterator[float]:
    """The feed-forward branch, with relu and with gelu."""
    for number, (kind, names, activation) in FEED_FORWARDS.items():
        theirs = notebook(setting, number)[kind](D, F)
        block = build_block(stack(activation=activation), reads_memory=False)
        assert isinstance(block, Block)
        ours = scramble(block.feed_forward.branch, setting)
        carry_over(setting, ours, theirs, names)
        x = normal(setting, B, T, D)
        yield compared(ours(x), ours, theirs(x), theirs, names)


PART_LAWS = [
    Law("notebooks", "000-004: attention, split and fused projections", attentions),
    Law("notebooks", "000-004: the feed-forward branch", feed_forwards),
]


# Flaws of the tutorial notebooks: both sides run; the notebook must show the flaw and our code must be right.

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


FLAW_LAWS = [
    Law("notebooks", "000, 002-004 give NaN where nothing may be read, ours zeros", nothing_to_read),
    Law("notebooks", "000-004 stop at an odd d_model, ours drops a cosine", odd_width),
    Law("notebooks", "000-004 break past max_len, ours goes on or names it", past_max_len),
    Law("notebooks", "004 trains on padding, ours counts each pair as alone", trained_on_padding),
]

LAWS = [*WHOLE_LAWS, *PART_LAWS, *FLAW_LAWS]


# --- the code of the notebooks, from `.ipynb`, `.py` or exported `.txt` files, without running their demos

KINDS = (".ipynb", ".txt", ".py")
CELL = "In [None]:"
"""What stands before each code cell in an export as text."""
MARKS = {
    "000": {"MultiHeadSelfAttention", "PositionwiseFFN", "TransformerEncoder"},
    "001": {"scaled_dot_product_attention", "SelfAttention", "MultiHeadAttention", "FeedForward"},
    "002": {"CopyDataset", "MultiHeadAttention", "TransformerEncoder"},
    "003": {"TransformerEncoderBlock", "TransformerDecoderBlock"},
    "004": {"EncoderLayer", "DecoderLayer", "Transformer", "create_causal_mask"},
}
"""What each tutorial defines, by which it is known in a file of any name."""


def notebook_file(folder: Path, number: str) -> Path | None:
    """Return the file of a tutorial: one whose name begins with its number, else one that defines its parts."""
    files = [each for each in sorted(folder.iterdir()) if each.suffix in KINDS]
    named = [each for each in files if each.name.startswith(number)]
    known = (each for each in files if not each.name[:3].isdigit() and {*defined(each)} >= MARKS[number])
    return named[0] if named else next(known, None)


def looked_for(folder: Path, number: str) -> str:
    """Say what was looked for in a folder, and what is in it."""
    files = [each.name for each in sorted(folder.iterdir()) if each.suffix in KINDS]
    found = f"it holds {', '.join(files[:8])}{' ...' if len(files) > 8 else ''}" if files else "it holds none of these"
    return (
        f"tutorial {number} is not in {folder}: looked for {' or '.join(f'{number}*{kind}' for kind in KINDS)}, or a "
        f"file that defines {', '.join(sorted(MARKS[number]))}; {found}"
    )


def source(path: Path) -> str:
    """Return the code cells of a notebook, in order."""
    text = path.read_text("utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        code = ("".join(each["source"]) for each in cells if each["cell_type"] == "code")
    elif CELL in text:
        code = (python_part(cell) for cell in text.split(CELL)[1:])
    elif "```python" in text:
        code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    else:
        code = [text]
    return "\n\n".join(map(without_commands, code))


def without_commands(code: str) -> str:
    """Return the code without a notebook's shell and magic lines."""
    return "\n".join(line for line in code.split("\n") if not line.lstrip().startswith(("!", "%")))


def python_part(cell: str) -> str:
    """Return the longest beginning of a cell that is Python: in an export as text, prose follows without a mark."""
    lines = without_commands(cell).split("\n")
    while lines:
        try:
            ast.parse("\n".join(lines))
        except SyntaxError as error:
            lines = lines[: max(0, min(error.lineno or 1, len(lines)) - 1)]
        else:
            break
    return "\n".join(lines)


def parts(path: Path) -> Iterator[ast.stmt]:
    """Yield the imports, classes and functions of a notebook, except what draws pictures. Errors: `SyntaxError`."""
    for node in ast.parse(source(path), str(path)).body:
        drawing = isinstance(node, ast.Import | ast.ImportFrom) and "matplotlib" in ast.unparse(node)
        if isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef | ast.FunctionDef) and not drawing:
            yield node


def defined(path: Path) -> list[str]:
    """Return the names of a file's classes and functions; none for a file that is no Python."""
    try:
        return [each.name for each in parts(path) if isinstance(each, ast.ClassDef | ast.FunctionDef)]
    except (SyntaxError, ValueError, LookupError, TypeError, OSError):
        return []


def definitions(path: Path) -> dict[str, Any]:
    """Return a notebook's classes and functions by name. They are imported as a module; nothing else of it runs."""
    with tempfile.TemporaryDirectory(prefix="glassformer-notebook-") as folder:
        copy = Path(folder) / "notebook.py"
        copy.write_text(ast.unparse(ast.Module([*parts(path)], [])), "utf-8")
        spec = importlib.util.spec_from_file_location("notebook", copy)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return {name: thing for name, thing in vars(module).items() if callable(thing) and not name.startswith("_")}
