"""What is lost without some heads: answers, computed from the first silenced block on, and their intervals."""

import random

import pytest
import torch

from glassformer import Transformer
from glassformer.data.tokens.vocabulary import EOS
from glassformer.decode.answer import answer
from glassformer.lens.ablate import Scored, all_heads, compare, keep, outcomes, resampled, silence
from glassformer.train.loss import hidden
from glassformer.train.objective import Targets
from lens.learners import IDS, LAYOUTS, VOCAB, backwards, probe_of, untrained

TOLERANCE = {"atol": 1e-12, "rtol": 0.0}


def model_of(shape: str, **settings: object) -> Transformer:
    return untrained(shape, d_model=16, n_heads=4, **settings).double().eval()


@pytest.mark.parametrize("layers", ["", "1 window=2"])
@pytest.mark.parametrize("shape", LAYOUTS)
def test_what_is_computed_once_changes_no_answer(shape, layers):
    """From the first block on that holds a silenced head, all vectors are those of a whole forward."""
    model, probe = model_of(shape, n_layers=2, layers=layers), probe_of(shape, backwards, 12)
    (batch,) = probe.scored
    targets = probe.objective(batch)
    kept, scored = keep(model, batch, targets), Scored(model, [batch], probe.objective)
    every = all_heads(model)
    for heads in ([], *([head] for head in every[::4]), [every[-1], every[0]], every[5:7]):
        with silence(model, heads), torch.no_grad():
            found = scored._vectors(heads, batch, targets, kept)
            torch.testing.assert_close(found, hidden(model, batch, targets), **TOLERANCE)


def test_an_answer_is_right_where_all_that_is_asked_is():
    """Three rows of which the last place is not asked for: right, right but there, wrong in one of two."""
    model = model_of("decoder")
    with torch.no_grad():
        model.head.weight.copy_(torch.eye(VOCAB, 16))
    ids = torch.tensor([[6, 7, 8]] * 3)
    answers = torch.tensor([[6, 7, 8], [6, 7, 9], [6, 9, 8]])
    targets = Targets(ids, None, ids, torch.tensor([[True, True, False]] * 3))
    found = outcomes(model, torch.eye(16, dtype=torch.float64)[answers], targets)
    assert found.exact.tolist() == [1, 1, 0]
    assert found.places.tolist() == [1, 1, 0.5]


def test_the_head_reads_no_more_than_is_asked_for():
    """Of 4 places of a row the last: of a large vocabulary all logits would be four times what is needed."""
    model, read = model_of("decoder"), []
    model.head.register_forward_pre_hook(lambda _, given: read.append(given[0].shape))
    ids = torch.full((3, 4), 6)
    targets = Targets(ids, None, ids, torch.tensor([[False, False, False, True]] * 3))
    outcomes(model, torch.zeros(3, 4, 16, dtype=torch.float64), targets)
    assert read == [(3, 16)]


def test_exact_match_is_that_of_greedy_decoding():
    """The first wrong token comes at the same place, whether the right ones before it are given or its own."""
    model = model_of("encoder-decoder")
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.xavier_uniform_(parameter, gain=2.0)
    with torch.no_grad():
        model.decoder.embedding.weight[EOS] *= 5  # so that some answers end
    draw = random.Random(4)
    sources = [draw.choices(IDS, k=3) for _ in range(60)]
    targets = [each.ids for each in answer(model, sources, max_new_tokens=8)]
    pairs = [
        (source, target if place % 2 else [*target[:-1], IDS.start])
        for place, (source, target) in enumerate(zip(sources, targets, strict=True))
        if target
    ]
    found = Scored(model, [LAYOUTS["encoder-decoder"][0](pairs)], LAYOUTS["encoder-decoder"][1]).outcomes()
    written = [each.ids for each in answer(model, [source for source, _ in pairs], max_new_tokens=8)]
    ends = [each.complete for each in answer(model, [source for source, _ in pairs], max_new_tokens=8)]
    expected = [own == target and end for (_, target), own, end in zip(pairs, written, ends, strict=True)]
    assert found.exact.bool().tolist() == expected
    assert {*expected} == {True, False}


def test_bootstrap_by_hand():
    """Draws of equal figures have no width; pairs are drawn together, so a constant loss has no spread."""
    base, value = torch.tensor([1.0, 0.0, 1.0, 0.0] * 25), torch.tensor([1.0, 0.0, 1.0, 0.0] * 25)
    same = compare(base, value, "zero", "exact_match")
    assert same.drop == (0, 0)
    assert same.interval[0] < 0.5 < same.interval[1]
    spread = (0.25 / 100) ** 0.5 * 1.96  # of a mean of 100 coins
    assert same.interval == pytest.approx((0.5 - spread, 0.5 + spread), abs=0.02)
    none = compare(base, torch.zeros(100), "zero", "exact_match")
    assert (none.value, none.interval, none.n) == (0, (0, 0), 100)
    assert compare(base, torch.zeros(100), "zero", "exact_match") == none, "the draws are those of a seed"
    assert torch.equal(resampled(7).sum(1).round(decimals=9), torch.ones(2000, dtype=torch.float64))
