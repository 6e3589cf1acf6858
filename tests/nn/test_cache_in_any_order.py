"""What was read, removed and moved in any order leaves what a plain list of each row's columns holds."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import hypothesis
import pytest
import torch
from hypothesis import strategies as some

from glassformer.base.errors import ConfigError
from glassformer.nn.cache import Cache, cache_of
from glassformer.nn.compact_cache import rounding_cache
from specimens import close, model

ROOM = 24


class Plain:
    """For each row a list of columns: an id, or None at padding."""

    def __init__(self, n_rows: int) -> None:
        self.rows: list[list[int | None]] = [[] for _ in range(n_rows)]
        self.ids = itertools.count(1)

    def read(self, width: int, reals: list[int]) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Adds `width` columns, of which the first `reals[row]` are real; returns them as a model is given them."""
        new = [[next(self.ids) for _ in range(width)] for _ in self.rows]
        keep = torch.arange(width) < torch.tensor([reals[i % len(reals)] for i in range(len(self.rows))])[:, None]
        for row, ids, real in zip(self.rows, new, keep.tolist(), strict=True):
            row += [each if kept else None for each, kept in zip(ids, real, strict=True)]
        return torch.tensor(new), None if bool(keep.all()) else keep

    def truncate(self, length: int) -> None:
        self.rows = [row[:length] for row in self.rows]

    def take_back(self, lengths: list[int]) -> None:
        for i, row in enumerate(self.rows):
            counted = itertools.accumulate(each is not None for each in row)
            self.rows[i] = [each if n <= lengths[i] else None for each, n in zip(row, counted, strict=True)]
        used = [any(each is not None for each in column) for column in zip(*self.rows, strict=True)]
        self.truncate(max((i + 1 for i, each in enumerate(used) if each), default=0))

    def select(self, rows: list[int]) -> None:
        self.rows = [[*self.rows[row]] for row in rows]

    @property
    def positions(self) -> list[list[int]]:
        """Of each column, -1 at padding."""
        found = []
        for row in self.rows:
            counted = itertools.accumulate(each is not None for each in row)
            found.append([-1 if each is None else n - 1 for each, n in zip(row, counted, strict=True)])
        return found


class Act(NamedTuple):
    """`how` with an argument of which each row takes its own part."""

    how: str
    what: list[int]
    width: int = 0

    def on(self, plain: Plain, cache: Cache, read) -> None:
        """Does the same to both; `read` gives the cache what the plain model read."""
        n = len(plain.rows)
        if self.how == "read":
            read(*plain.read(self.width, self.what))
        elif self.how == "truncate":
            plain.truncate(self.what[0])
            cache.truncate(self.what[0])
        elif self.how == "take back":
            lengths = [self.what[i % len(self.what)] for i in range(n)]
            plain.take_back(lengths)
            cache.take_back(torch.tensor(lengths))
        else:
            rows = [row % n for row in self.what]
            plain.select(rows)
            cache.select(torch.tensor(rows))


ACTS = [
    Act("read", [2], 2), Act("read", [3, 1], 3), Act("truncate", [0]), Act("truncate", [2]), Act("truncate", [9]),
    Act("take back", [0]), Act("take back", [1, 3]), Act("take back", [4]), Act("select", [1]),
    Act("select", [1, 0, 0]),
]  # fmt: skip


def check_bare(cache: Cache, acts) -> None:
    """The only layer's keys are the ids themselves, so that what is read can be compared with what was given."""
    plain, layer = Plain(2), cache.layers[0]

    def read(ids, keep):
        step = cache.step(ids, keep)
        cache.advance(step)
        keys, _ = layer.append(ids[:, None, :, None].float(), ids[:, None, :, None].float())
        expected = torch.tensor(plain.positions)
        places = step.keys.expand(len(ids), -1)
        assert torch.equal(places[:, : cache.length], expected)
        assert (places[:, cache.length :] == -1).all()
        held = torch.tensor([[each or 0 for each in row] for row in plain.rows], dtype=keys.dtype)
        torch.testing.assert_close(torch.where(expected >= 0, keys[:, 0, : cache.length, 0], 0), held)
        new = expected[:, -ids.shape[1] :]
        assert torch.equal(torch.where(new >= 0, step.positions.expand_as(new), -1), new)

    for act in acts:
        act.on(plain, cache, read)
        assert cache.length == len(plain.rows[0])
    Act("read", [1], 1).on(plain, cache, read)


@pytest.mark.parametrize("capacity", [None, ROOM], ids=["growing", "fixed"])
@torch.no_grad()
def test_all_short_orders_leave_what_lists_hold(capacity):
    for acts in itertools.product(ACTS, repeat=3):
        check_bare(cache_of(1, capacity), (ACTS[1], *acts))


@pytest.mark.parametrize("make", [lambda: rounding_cache(Cache(1)), lambda: Cache(1)], ids=["8 bits", "gradients"])
def test_shorter_orders_of_other_layers_do_too(make):
    for acts in itertools.product(ACTS, repeat=2):
        check_bare(make(), (ACTS[1], *acts))


@hypothesis.given(
    capacity=some.sampled_from([None, ROOM]),
    positions=some.sampled_from(["rotary", "learned"]),
    convolution=some.sampled_from([1, 3]),
    acts=some.lists(
        some.one_of(
            some.builds(Act, some.just("read"), some.lists(some.integers(0, 3), min_size=1, max_size=3), some.just(3)),
            some.builds(Act, some.just("truncate"), some.lists(some.integers(0, 9), min_size=1, max_size=1)),
            some.builds(Act, some.just("take back"), some.lists(some.integers(0, 9), min_size=1, max_size=3)),
            some.builds(Act, some.just("select"), some.lists(some.integers(0, 2), min_size=1, max_size=3)),
        ),
        max_size=7,
    ),
)
@hypothesis.settings(max_examples=25)
@torch.no_grad()
def test_a_model_goes_on_in_each_row_as_if_it_had_read_only_what_is_left(capacity, positions, convolution, acts):
    made, plain = model("decoder", max_len=ROOM, positions=positions, convolution=convolution), Plain(3)
    cache = made.new_cache(capacity, whole=True)

    def of(ids):
        return 1 + ids % 10

    def read(ids, keep):
        logits = made(of(ids), keep=keep, cache=cache)
        for i, row in enumerate(plain.rows):
            text = torch.tensor([each for each in row if each is not None], dtype=torch.long)
            if n := ids.shape[1] if keep is None else int(keep[i].sum()):
                close(logits[i, :n], made(of(text)[None])[0, -n:])

    for act in (*acts, Act("read", [1], 1)):
        act.on(plain, cache, read)
        assert cache.length == len(plain.rows[0])


@pytest.mark.parametrize("capacity", [None, ROOM])
def test_fewer_than_no_tokens_cannot_be_kept(capacity):
    with pytest.raises(ConfigError, match=r"at least 0 tokens; got length=-1\. Try length=0"):
        cache_of(1, capacity).truncate(-1)
