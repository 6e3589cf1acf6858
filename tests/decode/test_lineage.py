"""Rows that are selected stay where they are while C++ reads a cache: what they read is what copies would have."""

from __future__ import annotations

import pytest
import torch

from decode.natively import natively
from glassformer.parts.columns import Growing, Once
from specimens import close, model, native_cpp, tokens

ROWS = [[0, 0, 1, 1], [1, 0, 2, 2], [3, 3, 0], [2, 1, 0], [1, 1, 0, 2, 0], [0, 4, 2, 2, 1], [4, 3], [1, 1, 0, 0]]
"""Rows that follow those of the step before: they change places, end, come to be more, and share what is behind."""


def claimed(layer, k, v):
    """What C++ does: room is claimed, and filled in each row's own columns, and all columns are read."""
    layer.claim(k.shape, k.dtype)
    layer.find()
    for held, new in zip(layer.buffers, (k, v), strict=True):
        held[: len(new), :, layer.used - new.shape[2] : layer.used] = new


def lying(layer):
    """Keys and values as C++ finds them."""
    found = [[]] * len(layer.buffers[0]) if layer.lineage is None else layer.find().tolist()
    rows = [[*first, *[row] * (layer.used - len(first))] for row, first in enumerate(found)]
    return [
        torch.stack([torch.stack([held[at, :, s] for s, at in enumerate(row)], dim=1) for row in rows])
        for held in layer.buffers
    ]


def kv(B, T):
    return torch.randn(B, 2, T, 3), torch.randn(B, 2, T, 3)


@pytest.mark.parametrize("read", [False, True], ids=["read by C++ alone", "read by modules, too"])
@torch.no_grad()
def test_columns_are_found_where_they_lie(read):
    layer = Growing()
    wanted = new = kv(2, 3)
    claimed(layer, *new)
    for step, rows in enumerate(ROWS):
        layer.select(torch.tensor(rows))
        new = kv(len(rows), 1 + step % 2)
        wanted = [torch.cat([old[rows], more], dim=2) for old, more in zip(wanted, new, strict=True)]
        if read and step == 3:
            layer.append(*new)
        else:
            claimed(layer, *new)
        if step == 5:
            layer.truncate(6)
            wanted = [each[:, :, :6] for each in wanted]
        for found in (lying(layer), *([layer.read()] if read else [])):
            assert all(map(torch.equal, found, wanted))
    assert all(map(torch.equal, layer.read(), wanted))


@torch.no_grad()
def test_rows_stay_where_they_are():
    """As long as new columns find room there, and more than half of the rows are still read."""
    layer, stayed = Growing(), []
    claimed(layer, *kv(4, 3))
    claimed(layer, *kv(4, 1))  # moves, to a buffer that has room for what follows
    for rows in ([1, 0, 3, 3], [2, 2, 0], [0, 1, 1, 2], [0, 2], [0, 1, 1, 0]):
        before = layer.buffers[0].data_ptr()
        layer.select(torch.tensor(rows))
        stayed.append(layer.buffers[0].data_ptr() == before)
    assert stayed == [True, True, True, False, False]
    assert len(layer.buffers[0]) == 4


@torch.no_grad()
def test_a_memory_has_one_row_for_all_that_read_it():
    memory, new = Once(), kv(2, 5)
    claimed(memory, *new)
    before = memory.buffers[0]
    memory.select(torch.tensor([0, 0, 0, 1, 1]))
    assert memory.buffers[0] is before
    assert all(torch.equal(found, each[[0, 0, 0, 1, 1]]) for found, each in zip(lying(memory), new, strict=True))
    memory.select(torch.tensor([4]))
    assert len(memory.buffers[0]) == 1, "one of two rows is half of them"
    assert torch.equal(memory.read()[0], new[0][1:])


@native_cpp
@pytest.mark.parametrize("rounds", [False, True], ids=["", "8 bits"])
@pytest.mark.parametrize("padded", [False, True], ids=["", "padded"])
@pytest.mark.parametrize(
    ("shape", "variant"),
    [
        ("decoder", {}),
        ("decoder", {"convolution": 3, "n_kv_heads": 2, "positions": "rotary"}),
        ("encoder-decoder", {"convolution": 2, "positions": "rotary"}),
        ("encoder-decoder", {"d_head": 7}),
    ],
    ids=str,
)
@torch.no_grad()
def test_rows_that_follow_others_read_what_those_wrote(shape, variant, padded, rounds, steps):
    """In C++ as by the modules, for rows like those of a beam."""
    made = model(shape, **variant)
    made.rounds_cache = rounds
    keep = torch.ones(2, 3, dtype=torch.bool)
    keep[1, : 2 if padded else 0] = False
    prompt, then = tokens(2, 3), [tokens(len(rows), 1) for rows in ROWS]
    memory = None if shape == "decoder" else made.encode(tokens(2, 5))
    source_keep = None if memory is None else torch.tensor([[True] * 5, [True] * 3 + [False] * 2])

    def written(made):
        cache, read, hides = made.new_cache(), memory, source_keep
        yield made(prompt, memory=read, source_keep=hides, keep=keep if padded else None, cache=cache)[:, -1:]
        for rows, new in zip(ROWS, then, strict=True):
            cache.select(torch.tensor(rows))
            if read is not None:
                read, hides = read[rows], hides[rows]
            yield made(new, memory=read, source_keep=hides, cache=cache)

    for found, expected in zip(written(natively(made)), written(made), strict=True):
        close(found, expected)
    assert steps == [len(ROWS)]
