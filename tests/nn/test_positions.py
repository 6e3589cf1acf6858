"""The position schemes against their papers: closed forms, slopes, and what a score may depend on."""

import math

import pytest
import torch

from glassformer.nn.positions import POSITIONS, Sizes, alibi_slopes
from specimens import ORDERS, close, model, scramble, tokens

LIKE = torch.zeros((), dtype=torch.float64)
PLACES = torch.tensor([[0, 1, 2, 63, 64, 511, 10_000], [7, 7, 3, 0, 9_999, 1, 0]])


def scheme(name, **room):
    return POSITIONS[name](Sizes(**{"d_model": 16, "n_heads": 4, "d_head": 4, "max_len": 32, **room})).double()


@pytest.mark.parametrize("D", [1, 2, 7, 16, 33])
def test_sinusoidal_is_the_papers_formula(D):
    """One number at a time, as section 3.5 writes it, for odd widths and positions far beyond any training."""
    expected = torch.empty(*PLACES.shape, D, dtype=torch.float64)
    for b, row in enumerate(PLACES.tolist()):
        for t, p in enumerate(row):
            for column in range(D):
                angle = p / 10_000 ** (2 * (column // 2) / D)
                expected[b, t, column] = math.cos(angle) if column % 2 else math.sin(angle)
    close(scheme("sinusoidal", d_model=D).embedding(PLACES, LIKE), expected)


@pytest.mark.parametrize("D", [1, 2, 7, 16, 33])
def test_sinusoidal_halves_are_the_same_numbers_in_another_order(D):
    """All even columns, which are sines, and then all odd ones."""
    paper = scheme("sinusoidal", d_model=D).embedding(PLACES, LIKE)
    halves = scheme("sinusoidal_halves", d_model=D).embedding(PLACES, LIKE)
    close(halves, torch.cat([paper[..., 0::2], paper[..., 1::2]], dim=-1))


def test_sinusoidal_in_narrow_numbers():
    """bfloat16 holds no position above 256 exactly: the angle must be computed wider, then rounded once."""
    places = torch.cat([torch.arange(2000), torch.tensor([100_000, 1_000_003])])
    exact = scheme("sinusoidal").embedding(places, LIKE)
    close(scheme("sinusoidal").embedding(places, LIKE.float()).double(), exact, tolerance=1e-7)
    close(scheme("sinusoidal").embedding(places, LIKE.bfloat16()).double(), exact, tolerance=5e-3)


def test_learned_positions_are_looked_up():
    learned = scramble(scheme("learned"))
    assert learned.weight.shape == (32, 16)
    places = torch.tensor([[0, 31, 4], [4, 4, 0]])
    added = learned.embedding(places, LIKE)
    assert all(torch.equal(added[b, t], learned.weight[places[b, t]]) for b in range(2) for t in range(3))


@pytest.mark.parametrize(("n_heads", "slopes"), [
    (1, [2**-8]),
    (2, [2**-4, 2**-8]),
    (8, [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]),  # the paper's own list
    (12, [2.0**-n for n in (1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5)]),  # its code: eight, then every other of 16
    (3, [2**-4, 2**-8, 2**-2]),
])  # fmt: skip
def test_alibi_slopes(n_heads, slopes):
    assert alibi_slopes(n_heads) == pytest.approx(slopes, abs=1e-15)


def test_alibi_lowers_a_score_by_slope_times_distance():
    queries, keys = torch.tensor([[5, 0]]), torch.tensor([[0, 4, 5, 9]])
    bias = scheme("alibi", n_heads=8).score_bias(queries, keys, LIKE)
    assert bias.shape == (1, 8, 2, 4)
    for h in range(8):
        slope = 2.0 ** -(h + 1)
        assert bias[0, h].tolist() == [[-5 * slope, -slope, 0.0, -4 * slope], [0.0, -4 * slope, -5 * slope, -9 * slope]]


@pytest.mark.parametrize("name", POSITIONS)
def test_a_scheme_enters_in_one_place_at_most(name):
    made, places = scheme(name), torch.arange(5)
    found = [made.embedding(places, LIKE), made.rotation(places, LIKE), made.score_bias(places, places, LIKE)]
    found.append(made.relation())
    assert sum(each is not None for each in found) == (name != "none")


@pytest.mark.parametrize("settings", ORDERS, ids=str)
@pytest.mark.parametrize("shape", ["encoder", "encoder-decoder"])
def test_order_matters_unless_there_are_no_positions(settings, shape):
    """Without positions a stack that is not causal permutes with its tokens, and a memory is a set."""
    made, ids, order = model(shape, **settings), tokens(2, 6), torch.tensor([3, 0, 5, 1, 4, 2])
    if shape == "encoder":
        straight, turned = made(ids)[:, order], made(ids[:, order])
    else:
        straight, turned = made(ids, source=ids), made(ids, source=ids[:, order])
    if settings["positions"] == "none":
        close(turned, straight)
    else:
        assert (straight - turned).abs().amax(-1).min() > 1e-6


def test_alibi_reaches_further_than_float16_counts():
    here, far = torch.tensor([[100_000]]), torch.tensor([[0, 100_000]])
    added = scheme("alibi", n_heads=8).score_bias(here, far, torch.zeros(1, dtype=torch.float16))
    assert added[0, -1, 0].tolist() == [-390.5, 0.0]
