"""What was read of the source: the coverage penalty of a beam, and alignments, beside a whole forward."""

import math

import pytest
import torch

from glassformer import Transformer, observe
from glassformer.base.errors import ConfigError
from glassformer.data.tokens.vocabulary import BOS, EOS
from glassformer.decode.answer import Answer, answer
from glassformer.decode.beam import beam_search, reading_layer
from glassformer.decode.hypotheses import Hypothesis
from glassformer.decode.read_back import pharaoh, read_back
from glassformer.decode.settings import BeamSettings
from train.examples import model, sequences


@torch.no_grad()
def read(network: Transformer, source: list[int], ids: list[int], layer: int) -> torch.Tensor:
    """How much each token of `ids` read each token of the source, [T, S] without <eos>: alone and without a cache."""
    with observe(network.eval()) as seen:
        network(torch.tensor([[BOS, *ids[:-1]]]), source=torch.tensor([[*source, EOS]]))
    return seen[f"decoder.blocks.{layer}.cross_attention"][0].mean(0)[:, :-1]


def covered(network: Transformer, source: list[int], each: Hypothesis, beta: float, layer: int) -> float:
    """Wu et al. 2016, equation 14, written out."""
    ids = [*each.ids, *([EOS] if each.complete else [])]
    score = each.log_probability / ((5 + len(ids)) / 6) ** 0.6
    return score + beta * sum(math.log(min(float(p), 1.0)) for p in read(network, source, ids, layer).sum(0))


@pytest.mark.parametrize(("n_layers", "layer"), [(1, 0), (3, 1)])
def test_scores_are_the_equation_and_ranked_by_it(n_layers, layer):
    """A beam that holds all answers ranks them as all of them scored by hand; rows have sources of unequal length."""
    network, sources = model(seed=3, vocab=8, n_layers=n_layers), sequences([3, 1, 2], 3, 8)
    found = beam_search(network, sources=sources, max_new_tokens=2, beam=60, n_best=57, coverage=0.7)
    plain = beam_search(network, sources=sources, max_new_tokens=2, beam=60, n_best=57)
    for source, ranked, all_of_them in zip(sources, found, plain, strict=True):
        assert len(all_of_them) == 1 + 7 + 49
        by_hand = {tuple(each.ids): covered(network, source, each, 0.7, layer) for each in all_of_them}
        assert [each.score for each in ranked] == pytest.approx(sorted(by_hand.values(), reverse=True), abs=1e-10)
        assert all(by_hand[tuple(each.ids)] == pytest.approx(each.score, abs=1e-10) for each in ranked)
    assert [[each.ids for each in best] for best in found] != [[each.ids for each in best] for best in plain]


@torch.no_grad()
def test_links_are_what_each_token_read_most():
    network, sources = model(seed=5, n_layers=2), sequences([4, 1, 6, 3])
    given = answer(network, sources, max_new_tokens=7)
    for source, each, told in zip(sources, given, read_back(network, sources, given, batch_size=3), strict=True):
        ids = [*each.ids, *([EOS] if each.complete else [])]
        whole = read(network, source, ids, 0)
        rest = 1 - whole.sum(-1)  # what <eos> of the source got
        expected = [(int(whole[j].argmax()), j) for j in range(len(each.ids)) if float(whole[j].max()) > float(rest[j])]
        assert told.links == expected
        logits = network(torch.tensor([[BOS, *ids[:-1]]]), source=torch.tensor([[*source, EOS]]))[0].log_softmax(-1)
        assert told.log_probabilities == pytest.approx([float(logits[j, id]) for j, id in enumerate(ids)], abs=1e-12)
    assert pharaoh([(0, 0), (2, 1)]) == "0-0 2-1"


def test_a_model_of_one_stack_reads_no_source():
    for layout in ("decoder", "encoder"):
        with pytest.raises(ConfigError, match="this model has one stack"):
            reading_layer(model(layout))
        with pytest.raises(ConfigError, match="this model has one stack"):
            read_back(model(layout), [[7]], [Answer([7], True)])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"beam": 4, "beam_groups": 3}, "beam_groups must divide beam evenly; got beam=4"),
        ({"coverage_penalty": 0.2}, "coverage_penalty needs beam-search decoding; got beam=1"),
        ({"early_stop": True}, "early_stop needs beam-search decoding; got beam=1"),
        ({"beam": 10**9}, "beam must be at most 1024"),
        ({"beam": 2, "coverage_penalty": math.nan}, "coverage_penalty must be at least 0"),
        ({"beam": 2, "diversity": -1.0}, "diversity must be at least 0"),
        ({"beam": 2, "length_penalty": math.nan}, "length_penalty must be at least -10 and at most 10"),
    ],
    ids=["groups", "coverage", "early", "wide", "not a number", "negative", "no length"],
)
def test_settings_that_cannot_be(given, says):
    with pytest.raises(ConfigError, match=says):
        BeamSettings(**given)
