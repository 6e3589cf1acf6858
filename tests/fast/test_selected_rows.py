"""Rows that are selected stay where they are while C++ reads a cache: what they read is what copies would have."""

import pytest
import torch

from fast.natively import natively
from glassformer.nn.cache import Growing, Once
from specimens import close, model, native_cpp, tokens

ROWS = [[0, 0, 1, 1], [1, 0, 2, 2], [3, 3, 0], [2, 1, 0], [1, 1, 0, 2, 0], [0, 4, 2, 2, 1], [4, 3], [1, 1, 0, 0]]
"""Rows that follow those of the step before: they change places, end, come to be more, and share what is behind."""


def claimed(layer, k, v):
    """What C++ does: room is claimed, and filled in each row's own columns, and all columns are read."""
    layer.claim(k.shape, k.dtype)
    layer.stay()
    for held, new in zip(layer.buffers, (k, v), strict=True):
        held[: len(new), :, layer.used - new.shape[2] : layer.used] = new


def lying(layer):
    """Keys and values as C++ finds them."""
    found = [[]] * len(layer.buffers[0]) if layer.indirection is None else layer.stay().tolist()
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
        if read and step in (2, 6):
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
        layer.stay()
        stayed.append(layer.buffers[0].data_ptr() == before)
    assert stayed == [True, True, True, False, False]
    assert len(layer.buffers[0]) == 4


@torch.no_grad()
def test_a_short_answer_never_moves():
    """Nor does the answer to a longer prompt at its first step. A memory has no room for more, as none will come."""
    for cache, prompt, more in ((Growing(), 1, 14), (Growing(), 40, 41)):
        claimed(cache, *kv(2, prompt))
        before = cache.buffers[0].data_ptr()
        for _ in range(more):
            claimed(cache, *kv(2, 1))
        assert cache.buffers[0].data_ptr() == before
    claimed(memory := Once(), *kv(2, 5))
    assert memory.buffers[0].shape[2] == 5


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
@torch.no_grad()
def test_rows_that_are_not_there_are_refused():
    """As they are where rows are copied; C++ would read what lies behind the buffers."""
    ready = natively(model("decoder"))
    cache = ready.new_cache()
    for part in tokens(3, 3).split((2, 1), dim=1):  # then there is room for more
        ready(part, cache=cache)
    with pytest.raises(IndexError):
        cache.select(torch.tensor([0, 3]))
    cache.select(torch.tensor([0, 2, 1]))
    with pytest.raises(ValueError, match="a row for each of 2 texts, of 4 columns; got one of 3 by"):
        ready(tokens(2, 1), cache=cache)


@native_cpp
@torch.no_grad()
def test_layers_that_modules_have_read_are_not_taken_for_those_that_follow_others():
    ready = natively(model("decoder"))
    for part in tokens(3, 5).split((3, 1, 1), dim=1):
        if part.shape[1] == 3:
            cache = ready.new_cache()
        ready(part, cache=cache)
    cache.select(torch.tensor([1, 0, 1]))
    cache.layers[0].read()
    with pytest.raises(ValueError, match="All layers of a cache must lie alike"):
        ready(tokens(3, 1), cache=cache)


@native_cpp
@pytest.mark.parametrize("rounds", [False, True], ids=["", "8 bits"])
@torch.no_grad()
def test_texts_that_threads_share_read_what_others_wrote(rounds, steps):
    """So many texts that each thread has some of its own, which go on from texts of the other."""
    made, rows = model("encoder-decoder", convolution=2), torch.arange(130).flip(0) // 3
    made.rounds_cache = rounds
    memory, prompt, then = made.encode(tokens(130, 3)), tokens(130, 2), tokens(130, 1)

    def written(made):
        cache = made.new_cache()
        made(prompt, memory=memory, cache=cache)
        cache.select(rows)
        first = made(then, memory=memory[rows], cache=cache)
        cache.select(rows.flip(0))
        return first, made(then, memory=memory[rows][rows.flip(0)], cache=cache)

    for found, expected in zip(written(natively(made)), written(made), strict=True):
        close(found, expected)
    assert steps == [2]


@native_cpp
@pytest.mark.parametrize("rounds", [False, True], ids=["", "8 bits"])
@pytest.mark.parametrize("padded", [False, True], ids=["", "padded"])
@pytest.mark.parametrize("whole", [False, True], ids=["", "whole"])
@pytest.mark.parametrize(("shape", "variant"), [
    ("decoder", {}),
    ("decoder", {"convolution": 3, "n_kv_heads": 2, "positions": "rotary"}),
    ("encoder-decoder", {"convolution": 2, "positions": "rotary"}),
    ("encoder-decoder", {"d_head": 7}),
], ids=str)  # fmt: skip
@torch.no_grad()
def test_rows_that_follow_others_read_what_those_wrote(shape, variant, padded, rounds, whole, steps):
    """In C++ as by the modules, for rows like those of a beam. A whole cache keeps all that convolutions read."""
    made = model(shape, **variant)
    made.rounds_cache = rounds
    keep = torch.ones(2, 3, dtype=torch.bool)
    keep[1, : 2 if padded else 0] = False
    prompt, then = tokens(2, 3), [tokens(len(rows), 1) for rows in ROWS]
    memory = None if shape == "decoder" else made.encode(tokens(2, 5))
    source_keep = None if memory is None else torch.tensor([[True] * 5, [True] * 3 + [False] * 2])

    def written(made):
        cache, read, hides = made.new_cache(whole=whole), memory, source_keep
        yield made(prompt, memory=read, source_keep=hides, keep=keep if padded else None, cache=cache)[:, -1:]
        for rows, new in zip(ROWS, then, strict=True):
            cache.select(torch.tensor(rows))
            if read is not None:
                read, hides = read[rows], hides[rows]
            yield made(new, memory=read, source_keep=hides, cache=cache)

    for found, expected in zip(written(natively(made)), written(made), strict=True):
        close(found, expected)
    assert steps == [len(ROWS)]
