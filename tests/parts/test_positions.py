"""The position schemes against their papers: closed forms, slopes, and what a score may depend on."""

from __future__ import annotations

import math

import pytest
import torch

from glassformer import ATTEND, Attention, Mask
from glassformer.parts import POSITIONS
from glassformer.parts.positions import Room, rotate
from glassformer.parts.positions.bias import alibi_slopes
from specimens import close, model, scramble, tokens

LIKE = torch.zeros((), dtype=torch.float64)
PLACES = torch.tensor([[0, 1, 2, 63, 64, 511, 10_000], [7, 7, 3, 0, 9_999, 1, 0]])


def scheme(name, **room):
    return POSITIONS[name](Room(**{"d_model": 16, "n_heads": 4, "d_head": 4, "max_len": 32, **room})).double()


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


def test_sinusoidal_in_narrow_numbers():
    """bfloat16 holds no position above 256 exactly: the angle must be computed wider, then rounded once."""
    places = torch.arange(2000)
    exact = scheme("sinusoidal").embedding(places, LIKE)
    close(scheme("sinusoidal").embedding(places, LIKE.float()).double(), exact, tolerance=3e-4)
    close(scheme("sinusoidal").embedding(places, LIKE.bfloat16()).double(), exact, tolerance=5e-3)
    for part, wide in zip(
        scheme("rotary").rotation(places, LIKE.bfloat16()), scheme("rotary").rotation(places, LIKE), strict=True
    ):
        close(part.double(), wide, tolerance=5e-3)


def test_learned_positions_are_looked_up():
    learned = scheme("learned")
    assert learned.weight.shape == (32, 16)
    places = torch.tensor([[0, 31, 4], [4, 4, 0]])
    added = learned.embedding(places, LIKE)
    assert all(torch.equal(added[b, t], learned.weight[places[b, t]]) for b in range(2) for t in range(3))


def test_rotary_turns_pairs_by_their_angle():
    """Complex numbers: a head of width K is K/2 of them, each turned by position times its own speed."""
    K, x = 6, torch.randn(2, 3, 7, 6).double()
    turned = rotate(x, scheme("rotary", d_head=K).rotation(PLACES, LIKE))
    z = torch.complex(x[..., : K // 2], x[..., K // 2 :])
    for i in range(K // 2):
        speed = 10_000 ** (-2 * i / K)
        around = torch.polar(torch.ones(2, 1, 7).double(), PLACES[:, None].double() * speed)
        close(torch.view_as_real(z[..., i] * around), turned[..., [i, i + K // 2]])


def test_rotary_scores_depend_on_distance_alone():
    """q at 5 and k at 2 score as q at 1,005 and k at 1,002; and the further apart, the other the score."""
    rotary = scheme("rotary", d_head=8)
    q, k = torch.randn(2, 1, 1, 1, 8).double()

    def score(at, other):
        return (
            rotate(q, rotary.rotation(torch.tensor([at]), LIKE))
            @ rotate(k, rotary.rotation(torch.tensor([other]), LIKE)).mT
        ).item()

    for distance in (-3, 0, 1, 17):
        scores = [score(start + distance, start) for start in (3, 40, 1002)]
        assert scores == pytest.approx([scores[0]] * 3, abs=1e-11)
    assert len({round(score(distance, 0), 6) for distance in range(10)}) == 10
    assert score(0, 0) == pytest.approx((q * k).sum().item(), abs=1e-12)


def test_attention_with_rotary_reads_distances():
    """Both queries and keys are turned, and by nothing else: all positions 1,000 later, nothing changes."""
    rotary, x = scheme("rotary"), torch.randn(2, 6, 16).double()
    attention = scramble(Attention(16, 4, ATTEND["softmax"]["auto"], n_kv_heads=2).double())
    near, far, apart = (
        attention(x, mask=Mask(causal=True), rotation=rotary.rotation(places, LIKE))
        for places in (torch.arange(6), torch.arange(1000, 1006), torch.arange(6) * 2)
    )
    close(far, near, tolerance=1e-11)
    assert (apart - near).abs().max() > 1e-3


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
    assert sum(each is not None for each in found) == (name != "none")


@pytest.mark.parametrize("name", POSITIONS)
@pytest.mark.parametrize("shape", ["encoder", "encoder-decoder"])
def test_order_matters_unless_there_are_no_positions(name, shape):
    """Without positions a stack that is not causal permutes with its tokens, and a memory is a set."""
    made, ids, order = model(shape, positions=name), tokens(2, 6), torch.tensor([3, 0, 5, 1, 4, 2])
    if shape == "encoder":
        straight, turned = made(ids)[:, order], made(ids[:, order])
    else:
        straight, turned = made(ids, source=ids), made(ids, source=ids[:, order])
    if name == "none":
        close(turned, straight)
    else:
        assert (straight - turned).abs().amax(-1).min() > 1e-6
