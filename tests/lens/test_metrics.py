"""Planted maps whose figures are computed by hand: pure, noisy, uniform, shifted, padded, of unequal lengths."""

import math

import pytest
import torch

from glassformer.lens.roles.roles import confidence, distance, divergence, entropy, largest_key, tally, value_weighted


def hot(*keys: int, of: int) -> torch.Tensor:
    """A map [1, 1, T, S] whose query i reads keys[i] alone."""
    return torch.eye(of, dtype=torch.float64)[list(keys)][None, None]


def everything(weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    N, _, T, S = weights.shape
    return torch.ones(N, T, S, dtype=torch.bool), torch.ones(N, T, dtype=torch.bool)


def at(*keys: int, of: int) -> torch.Tensor:
    return hot(*keys, of=of)[:, 0].bool()


def figures(weights, predicted, allowed=None, counted=None) -> tuple[float, float, float, float, int]:
    all_keys, all_queries = everything(weights)
    score = tally(
        weights, predicted, all_keys if allowed is None else allowed, all_queries if counted is None else counted
    ).score()
    return float(score.mass[0]), float(score.argmax[0]), score.chance, float(score.corrected[0]), score.n_queries


def test_a_noisy_map():
    """Query 0 puts 0.7 on its key, query 1 puts 0.4, where another has 0.6."""
    weights = torch.tensor([[[[0.7, 0.2, 0.1], [0.6, 0.4, 0.0]]]], dtype=torch.float64)
    mass, argmax, chance, corrected, _ = figures(weights, at(0, 1, of=3))
    assert mass == pytest.approx(0.55)
    assert argmax == 0.5
    assert corrected == pytest.approx((0.55 - 1 / 3) / (2 / 3))
    assert chance == pytest.approx(1 / 3)


def test_chance_of_a_causal_row_is_that_of_its_length():
    """Of "previous" in a causal map of 4: rows of 2, 3 and 4 keys; the row of one key says nothing."""
    weights = hot(0, 0, 1, 2, of=4)
    allowed = torch.ones(1, 4, 4, dtype=torch.bool).tril()
    previous = torch.eye(4, dtype=torch.bool).roll(-1, 1)[None]
    mass, argmax, chance, corrected, n = figures(weights, previous, allowed)
    assert (mass, argmax, corrected, n) == (1, 1, 1, 3)
    assert chance == pytest.approx((1 / 2 + 1 / 3 + 1 / 4) / 3)


def test_several_predicted_keys_are_added_up():
    weights = torch.tensor([[[[0.5, 0.3, 0.2]]]], dtype=torch.float64)
    mass, argmax, chance, corrected, _ = figures(weights, torch.tensor([[[False, True, True]]]))
    assert (mass, argmax) == (0.5, 0)
    assert chance == pytest.approx(2 / 3)
    assert corrected == pytest.approx((0.5 - 2 / 3) / (1 / 3))


def test_padding_and_special_queries_do_not_count():
    """The third query is padding, the third key may not be read: as if neither were there."""
    weights = torch.tensor([[[[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.5, 0.5, 0.0]]]], dtype=torch.float64)
    allowed = torch.tensor([[[True, True, False]] * 3])
    counted = torch.tensor([[True, True, False]])
    alone = figures(weights[:, :, :2, :2], at(0, 1, of=2))
    for third in (2, 0):  # also where a role would predict a key for it
        assert figures(weights, at(0, 1, third, of=3), allowed, counted) == alone
    assert alone[:3] == (pytest.approx(0.85), 1, 0.5)


def test_a_key_that_may_not_be_read_is_not_predicted():
    """Of "next" in a causal map no query is left."""
    allowed = torch.ones(1, 3, 3, dtype=torch.bool).tril()
    following = torch.eye(3, dtype=torch.bool).roll(1, 1).triu(1)[None]
    assert tally(hot(0, 1, 2, of=3), following, allowed, torch.ones(1, 3, dtype=torch.bool)).score() is None


def test_chance_that_is_all_there_is_corrects_to_nothing():
    assert figures(hot(0, 1, of=2), torch.ones(1, 2, 2, dtype=torch.bool))[3] == 0


def test_lengths_are_scored_apart_and_pooled_by_their_queries():
    """One sequence of 2 tokens with everything right, one of 4 with nothing: 2 of 6 queries."""
    weights = torch.zeros(2, 1, 4, 4, dtype=torch.float64)
    weights[0, 0, :2, :2] = torch.eye(2)
    weights[1, 0] = torch.eye(4).roll(1, 1)
    counted = torch.tensor([[True, True, False, False], [True] * 4])
    allowed = counted[:, None, :].expand(2, 4, 4)
    found = tally(weights, torch.eye(4, dtype=torch.bool).expand(2, 4, 4), allowed, counted)
    by_length = found.by_length(counted.sum(1))
    assert {n: float(score.mass[0]) for n, score in by_length.items()} == {2: 1, 4: 0}
    pooled = found.score()
    assert float(pooled.mass[0]) == pytest.approx(2 / 6)
    assert pooled.chance == pytest.approx((2 / 2 + 4 / 4) / 6)


def test_the_largest_key_is_an_allowed_one():
    weights = torch.tensor([[[[0.0, 0.0, 0.0]]]])
    assert int(largest_key(weights, torch.tensor([[[False, True, True]]]))) == 1


def test_entropy_of_even_weights_is_the_logarithm_of_the_keys_that_may_be_read():
    allowed = torch.ones(1, 4, 4, dtype=torch.bool).tril()
    even = allowed.double() / allowed.sum(-1, keepdim=True)
    counted = torch.ones(1, 4, dtype=torch.bool)
    assert float(entropy(even[None], allowed, counted)) == pytest.approx((math.log(2) + math.log(3) + math.log(4)) / 3)
    assert float(entropy(even[None], allowed, counted, normalised=True)) == pytest.approx(1)
    assert float(entropy(hot(0, 0, 1, 2, of=4), allowed, counted)) == 0


def test_confidence_leaves_the_end_out():
    weights = torch.tensor([[[[0.1, 0.3, 0.6], [0.8, 0.1, 0.1]]]], dtype=torch.float64)
    allowed, counted = everything(weights)
    ends = torch.tensor([[False, False, True]])
    assert float(confidence(weights, allowed, counted, ends)) == pytest.approx((0.3 + 0.8) / 2)


def test_distance_is_key_minus_query():
    """Query 0 reads two places on, query 1 one place back, query 2 half itself and half one back."""
    weights = torch.tensor([[[[0, 0, 1.0], [1.0, 0, 0], [0, 0.5, 0.5]]]], dtype=torch.float64)
    counted = torch.ones(1, 3, dtype=torch.bool)
    assert float(distance(weights, counted)) == pytest.approx((2 + 1 + 0.5) / 3)
    assert float(distance(weights, counted, signed=True)) == pytest.approx((2 - 1 - 0.5) / 3)
    assert float(distance(weights, torch.tensor([[True, False, False]]))) == 2


def test_a_key_whose_vector_is_nothing_moves_nothing():
    """Two heads share one value: |v W| is 0 for the first key, 5 and 10 for the others, whatever the sign."""
    weights = torch.tensor([[[[0.8, 0.1, 0.1]], [[0.2, 0.4, 0.4]]]], dtype=torch.float64)
    v = torch.tensor([[[[0.0, 0.0], [3.0, 4.0], [-6.0, -8.0]]]], dtype=torch.float64)
    moved = value_weighted(weights, v, torch.eye(2, dtype=torch.float64)[:, None, :].expand(2, 2, 2))
    third = [0, 1 / 3, 2 / 3]
    assert moved[0, 0, 0].tolist() == pytest.approx(third)
    assert moved[0, 1, 0].tolist() == pytest.approx(third)


def test_value_weights_are_the_norms_of_what_is_moved():
    torch.manual_seed(0)
    weights = torch.rand(2, 4, 3, 5, dtype=torch.float64).softmax(-1)
    v, output = torch.rand(2, 2, 5, 3, dtype=torch.float64), torch.rand(7, 4, 3, dtype=torch.float64)
    sizes = torch.einsum("nhts,nhsk,dhk->nhtsd", weights, v.repeat_interleave(2, 1), output).norm(dim=-1)
    torch.testing.assert_close(
        value_weighted(weights, v, output), sizes / sizes.sum(-1, keepdim=True), atol=1e-12, rtol=0
    )


def test_divergence_is_one_bit_where_nothing_is_shared_and_nothing_between_equals():
    one, other = hot(0, 1, of=3)[:, 0], hot(1, 2, of=3)[:, 0]
    allowed, counted = torch.ones(1, 2, 3, dtype=torch.bool), torch.ones(1, 2, dtype=torch.bool)
    assert divergence(one, other, allowed, counted) == pytest.approx(1)
    assert divergence(one, one, allowed, counted) == 0
    half = (one + other) / 2  # JS(p, m) of m = (p + q) / 2 with disjoint p, q: 3/4 log2(4/3) + 1/4 log2(2) ... by hand
    expected = 0.5 * (math.log2(1 / 0.75)) + 0.5 * (0.5 * math.log2(0.5 / 0.75) + 0.5 * math.log2(0.5 / 0.25))
    assert divergence(one, half, allowed, counted) == pytest.approx(expected)
    assert math.isnan(divergence(one, other, allowed, ~counted))
