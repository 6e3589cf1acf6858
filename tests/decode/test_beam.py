"""Beam search: with one beam it is greedy, its bound loses nothing, and no row hangs on its neighbours."""

import math
import random

import pytest
import torch

from decode.exhaustive import assert_same, log_p
from glassformer import Transformer, generate
from glassformer.base.errors import ConfigError, DataError
from glassformer.data.tokens.vocabulary import BOS, EOS, UNK
from glassformer.decode.answer import answer, answers
from glassformer.decode.beam import Rule, beam_search, extend, length_penalty
from glassformer.decode.filters import logit_bias
from glassformer.decode.hypotheses import Beginning, Candidates, Hypothesis, Search
from glassformer.decode.read_back import read_back
from glassformer.decode.settings import BeamSettings
from train.examples import SCHEMES, model, sequences


@pytest.mark.parametrize("layout", ["encoder-decoder", "decoder"])
@pytest.mark.parametrize("positions", SCHEMES)
def test_one_beam_is_greedy(layout, positions):
    network = model(layout, seed=6, positions=positions)
    if layout == "encoder-decoder":
        sources = sequences([3, 1, 5, 2, 4, 4, 1, 6])
        found = beam_search(network, sources=sources, max_new_tokens=9, beam=1)
        expected = answer(network, sources, max_new_tokens=9)
        assert [(best.ids, best.complete) for (best,) in found] == [(each.ids, each.complete) for each in expected]
        return
    prompts = [[BOS, *each] for each in sequences([3, 1, 5, 2])]
    for prompt, (best,) in zip(prompts, beam_search(network, prompts=prompts, max_new_tokens=9, beam=1), strict=True):
        ids = list(prompt)
        for _ in range(9):
            ids.append(int(network(torch.tensor([ids]))[0, -1].argmax()))
            if ids[-1] == EOS:
                break
        assert ids[len(prompt) :] == [*best.ids, *([EOS] if best.complete else [])]


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("positions", SCHEMES)
def test_one_beam_is_greedy_behind_a_prefix(positions, groups):
    """Prompts of unequal length are read in both directions, as `generate` reads them; no group reads another way."""
    network = model("decoder", seed=6, positions=positions, n_layers=2)
    given = {"prompts": [[BOS, *each] for each in sequences([5, 1, 7, 2], 4)], "max_new_tokens": 9}
    texts: dict[bool, list[list[int]]] = {}
    for prefix in (True, False):
        texts[prefix] = [[] for _ in given["prompts"]]
        for step in generate(network, **given, prefix=prefix, eos=-1):
            for row, token in zip(step.rows, step.tokens, strict=True):
                texts[prefix][row].append(token)
    found = beam_search(network, **given, beam=groups, groups=groups, diversity=0.0, prefix=True, eos=-1)
    assert [best.ids for (best,) in found] == texts[True]
    assert texts[True] != texts[False]


def test_a_source_is_no_prefix():
    with pytest.raises(ConfigError, match="the source is the prefix"):
        beam_search(model(), sources=[[7, 8]], max_new_tokens=2, beam=2, prefix=True)


def by_hand(network: Transformer, source, limit: int, beam: int, alpha: float) -> list[Hypothesis]:
    """The same search for one row, without cache, never done early: what is found is found."""
    going, found = [([], 0.0)], []
    for step in range(1, limit + 1):
        options = [
            (total + value, [*ids, token])
            for (ids, total), values in zip(going, log_p(network, source, [ids for ids, _ in going]), strict=True)
            for token, value in enumerate(values)
        ]
        options.sort(key=lambda each: -each[0])
        going = []
        for rank, (value, ids) in enumerate(options[: 2 * beam]):
            if len(going) == beam:
                break
            if ids[-1] != EOS and step < limit:
                going.append((ids, value))
            elif rank < beam:
                ended = ids[-1] == EOS
                found.append(Hypothesis(ids[:-1] if ended else ids, value, value / ((5 + step) / 6) ** alpha, ended))
    return sorted(found, key=lambda each: -each.score)


@pytest.mark.parametrize(("beam", "alpha"), [(2, 0.6), (4, 0.0), (4, 1.0), (3, -1.0), (4, 4.0)])
def test_stopping_early_loses_nothing(beam, alpha):
    """With its bound the search finds what it finds without one; the neighbours of a row change nothing."""
    draw = random.Random(beam)
    for seed in range(4):
        network = model("encoder-decoder", seed=seed, positions=draw.choice(SCHEMES)).eval()
        sources = sequences([draw.randint(1, 5) for _ in range(4)], seed)
        limits = [draw.randint(1, 10) for _ in sources]
        found = beam_search(
            network, sources=sources, max_new_tokens=limits, beam=beam, n_best=2, lengths=length_penalty(alpha)
        )
        for row, source in enumerate(sources):
            assert_same(found[row], by_hand(network, source, limits[row], beam, alpha)[: len(found[row])])
            assert len(found[row]) == 2 or limits[row] == 1


def diverse_by_hand(network: Transformer, source, limit: int, width: int, groups: int, strength: float):
    """Diverse beam search of one row, without cache or bound; what each group found, best first, without length."""
    going = [[([], 0.0)] for _ in range(groups)]
    found: list[list[Hypothesis]] = [[] for _ in range(groups)]
    for step in range(1, limit + 1):
        taken: list[int] = []
        for group in range(groups):
            options = [
                (total + value - strength * taken.count(token), total + value, [*ids, token])
                for ids, total in going[group]
                for token, value in enumerate(log_p(network, source, [ids])[0])
            ]
            options.sort(key=lambda each: -each[0])
            going[group] = []
            for rank, (_, value, ids) in enumerate(options[: 2 * width]):
                if len(going[group]) == width:
                    break
                if ids[-1] != EOS and step < limit:
                    going[group].append((ids, value))
                elif rank < width:
                    ended = ids[-1] == EOS
                    found[group].append(Hypothesis(ids[:-1] if ended else ids, value, value, ended))
            taken += [ids[-1] for ids, _ in going[group]]
    return [sorted(each, key=lambda one: -one.score)[:width] for each in found]


@pytest.mark.parametrize("strength", [0.0, 0.4, 3.0])
def test_groups_search_apart(strength):
    """Beside the search by hand: two rows, three groups of two; what several groups found stands once."""
    network, sources, limits = model("encoder-decoder", seed=4).eval(), sequences([3, 2], 4), [6, 4]
    flat = length_penalty(0.0)
    given = {"sources": sources, "max_new_tokens": limits, "beam": 6, "groups": 3, "diversity": strength}
    found = beam_search(network, **given, n_best=6, lengths=flat)
    for row, source in enumerate(sources):
        apart = diverse_by_hand(network, source, limits[row], 2, 3, strength)
        assert_same(found[row][:1], [max((each for one in apart for each in one), key=lambda each: each.score)])
        expected = {(each.complete, *each.ids) for one in apart for each in one}
        assert {(each.complete, *each.ids) for each in found[row]} == expected
        assert len(found[row]) == len(expected)
    if strength == 0:
        one = beam_search(network, sources=sources, max_new_tokens=limits, beam=2, n_best=2, lengths=flat)
        assert_same(found[0], one[0])
    assert (len(found[0]) > 2) == (strength > 1)


@pytest.mark.parametrize(("width", "seed"), [(1, 3), (2, 27)])
def test_groups_hang_on_no_bound(width, seed):
    """A group that found its answers keeps the others from its tokens until all of them did."""
    network, (source,) = model("encoder-decoder", seed=seed).eval(), sequences([3], seed)
    network.head.register_forward_hook(lambda module, inputs, output: output + 2.0 * (torch.arange(13) == EOS))
    given = {"sources": [source], "max_new_tokens": 10, "beam": 3 * width, "groups": 3, "diversity": 2.0}
    (found,) = beam_search(network, **given, n_best=3 * width, lengths=length_penalty(0.0))
    apart = diverse_by_hand(network, source, 10, width, 3, 2.0)
    expected = {(each.complete, *each.ids) for one in apart for each in one}
    assert {(each.complete, *each.ids) for each in found} == expected


def test_the_bound_saves_steps():
    network = model("encoder-decoder", seed=1)
    network.head.register_forward_hook(lambda module, inputs, output: output + 9.0 * (torch.arange(13) == EOS))
    steps = []
    network.head.register_forward_hook(lambda *_: steps.append(1))
    (found,) = beam_search(network, sources=[[7, 8]], max_new_tokens=20, beam=3)
    assert found[0].ids == []
    assert len(steps) < 6


@pytest.mark.parametrize("groups", [1, 2])
def test_scores_are_the_models_own_though_some_tokens_are_never_written(groups):
    """What they take of the probability is lost, as it is where the same answer is read back."""
    network, sources, never = model(seed=3), sequences([4, 2, 5]), [UNK, 7, 9]
    found = answers(network, sources, n_best=2, never=never, search=BeamSettings(beam=4, beam_groups=groups))
    flat = [(source, each) for source, best in zip(sources, found, strict=True) for each in best]
    again = read_back(network, [source for source, _ in flat], [each for _, each in flat])
    assert not {id for _, each in flat for id in each.ids} & {*never}
    for (_, each), read in zip(flat, again, strict=True):
        assert each.log_probability == pytest.approx(sum(read.log_probabilities), abs=1e-5)


def test_filters_count_in_float32_where_logits_are_rounded():
    network = model("decoder")
    network.head.register_forward_hook(lambda module, inputs, output: torch.full_like(output, 10.0).bfloat16())
    bias = [logit_bias({7: 0.01})]
    ((best,),) = beam_search(network, prompts=[[BOS]], max_new_tokens=1, beam=2, filters=bias)
    assert best.ids == [7]


def test_what_is_no_number_is_refused():
    network = model("decoder")
    network.head.register_forward_hook(lambda module, inputs, output: output * math.nan)
    with pytest.raises(DataError, match="are not numbers"):
        beam_search(network, prompts=[[BOS]], max_new_tokens=2, beam=2)


def test_answers_of_a_beam_come_in_order_whatever_the_batch():
    network, sources = model(seed=5), sequences([4, 1, 3, 2, 5, 2])
    three = BeamSettings(beam=3)
    whole = answer(network, sources, max_new_tokens=8, search=three)
    again = answer(network, sources, max_new_tokens=8, search=three, batch_size=2)
    assert [each[:3] for each in whole] == [each[:3] for each in again]
    alone = [beam_search(network, sources=[each], max_new_tokens=8, beam=3)[0][0] for each in sources]
    assert [each.ids for each in whole] == [each.ids for each in alone]
    assert [each.ids for each in whole] != [each.ids for each in answer(network, sources, max_new_tokens=8)]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"beam": 0}, "beam must be at least 1; got 0"),
        ({"beam": 2, "n_best": 3}, "n_best must be from 1 to beam=2; got 3"),
        ({"beam": 2, "n_best": 0}, "n_best must be from 1"),
        ({"beam": 4, "groups": 3}, "groups must divide beam evenly; got beam=4 and groups=3"),
        ({"beam": 4, "groups": 0}, "groups must divide beam"),
    ],
    ids=["no beam", "more than there are", "none", "unequal groups", "no groups"],
)
def test_mistakes(asked, says):
    with pytest.raises(ConfigError, match=says):
        beam_search(model(), sources=[[7]], max_new_tokens=2, **asked)


def test_a_search_with_fewer_hypotheses_is_extended_beside_others():
    """An end that is none of the two most likely continuations ends no answer. All is on the CPU, as candidates are."""
    many = Search(0, 9, [Beginning([7], -1.0, 0), Beginning([8], -2.0, 1)])
    one = Search(1, 9, [Beginning([9], -5.0, 2)])
    likely = Candidates(
        torch.tensor([[EOS, 11], [EOS, 13], [14, 15]]),
        torch.tensor([[-1.0, -2.5], [-2.0, -3.0], [-1.0, -4.0]], dtype=torch.float64),
    )
    with torch.device("meta"):
        extend([many, one], [0, 2], likely, Rule(2, EOS, 2, length_penalty(0.0), [0.0] * 3))
    assert many.going == [Beginning([7, 11], -3.5, 0), Beginning([8, 13], -5.0, 1)]
    assert many.found == [Hypothesis([7], -2.0, -2.0, True)]
    assert one.going == [Beginning([9, 14], -6.0, 2), Beginning([9, 15], -9.0, 2)]
