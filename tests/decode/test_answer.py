"""Whole answers: in order whatever the batches, complete or cut, and as long as they may be."""

import random

import pytest
import torch

from glassformer.base.errors import ConfigError, DataError
from glassformer.data.tokens.vocabulary import EOS
from glassformer.decode.answer import USUAL, Answer, answer
from glassformer.decode.beam import Forced
from glassformer.decode.generate import generate
from glassformer.decode.settings import BeamSettings, Sampling
from train.examples import VOCAB, model, sequences

LENGTHS = random.Random(1).sample(range(1, 20), 12)


def favouring(network, eos: float):
    """The model with so much added to the score of <eos>."""
    network.head.register_forward_hook(lambda module, inputs, output: output + eos * (torch.arange(VOCAB) == EOS))
    return network


@pytest.mark.parametrize("batch_size", [1, pytest.param(5, marks=pytest.mark.slow), 99])
def test_order_is_kept_and_each_is_as_alone(batch_size):
    network, sources = model(seed=7, max_len=None), sequences(LENGTHS)
    answers = answer(network, sources, batch_size=batch_size)
    assert len({tuple(each.ids) for each in answers}) > 6
    for source, given in zip(sources, answers, strict=True):
        steps = generate(network, sources=[source], max_new_tokens=2 * len(source) + 10)
        alone = [token for step in steps for token in step.tokens]
        assert given[:2] == (Answer(alone[:-1], True) if alone[-1] == EOS else Answer(alone, False))[:2]


@pytest.mark.parametrize(("requested", "longest"), [(None, None), (3, None), (99, 9), (None, 9), (3, 9)])
def test_answers_that_do_not_end_are_cut_and_say_by_what(requested, longest):
    network = favouring(model(max_len=longest), -1e9)
    sources = sequences([1, 5, 2])
    limits = [requested or 2 * len(source) + 10 for source in sources]
    for given, limit in zip(answer(network, sources, max_new_tokens=requested), limits, strict=True):
        assert len(given.ids) == min(limit, longest or limit)
        assert EOS not in given.ids
        assert not given.complete
        assert given.limit == ("max_len" if longest and limit > longest else "max_new_tokens" if requested else USUAL)


def test_answer_that_ends_at_its_limit_is_complete():
    assert answer(favouring(model(), +1e9), sequences([3, 1]), max_new_tokens=1) == [Answer([], True)] * 2


def test_blanks_of_what_is_no_number_are_refused_by_the_place_of_their_source():
    network = model("encoder")
    network.head.register_forward_hook(lambda module, inputs, output: output.index_fill(0, torch.tensor(1), torch.nan))
    with pytest.raises(DataError, match=r"not numbers \(NaN\) in row 0 "):  # the longer one, behind in the batch
        answer(network, sequences([3, 1]))


@pytest.mark.parametrize(("requested", "message"), [
    ({"batch_size": 0}, "batch_size must be at least 1; got 0"),
    ({"batch_size": -1}, "batch_size must be at least 1; got -1"),
    ({"lengths": [3]}, "lengths needs one number of at least 0 for each source; got 1 for 2 sources"),
    ({"lengths": [3, -3]}, "the smallest -3"),
], ids=["none", "below none", "too few lengths", "a length below 0"])  # fmt: skip
def test_no_source_stays_unanswered(requested, message):
    with pytest.raises(ValueError, match=message):
        answer(model(), [[7], [8]], **requested)


def test_nothing_asked():
    assert answer(model(), []) == []


def test_encoder_fills_as_many_blanks_as_asked():
    network, sources = model("encoder"), sequences([3, 1, 2])
    free, answers = answer(network, sources), answer(network, sources, lengths=[1, 4, 2], batch_size=2)
    assert [len(each.ids) for each in free] == [3, 1, 2]
    assert [len(each.ids) for each in answers] == [1, 4, 2]
    assert all(each.complete for each in (*free, *answers))
    assert answers[2] == free[2]


@pytest.mark.parametrize(("layout", "requested", "message"), [
    ("encoder", {"max_new_tokens": 3}, "an encoder fills all blanks at once; got max_new_tokens=3"),
    ("encoder-decoder", {"lengths": [1, 2]}, "Only an encoder takes lengths"),
])  # fmt: skip
def test_a_length_that_the_model_does_not_go_by_is_refused(layout, requested, message):
    with pytest.raises(ConfigError, match=message):
        answer(model(layout), [[7], [8, 9]], **requested)


@pytest.mark.parametrize("layout", ["encoder-decoder", "encoder"])
def test_an_unknown_id_is_named_as_the_caller_has_it(layout):
    """Not by its place in the batch, where short sources come first and special tokens are added."""
    with pytest.raises(DataError, match=rf"sources must be from 0 to {VOCAB - 1}.*row 1, column 2 .*holds {VOCAB}\."):
        answer(model(layout), [[7] * 9, [7, 8, VOCAB, 7], [7]], batch_size=2)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("numbers", [None, [7, 3, 5]])
def test_a_beam_knows_its_rows_as_the_caller_has_them(numbers, groups):
    """Filters and errors name them by their numbers, not by their place in a batch that is sorted by length."""
    network, sources = model(), sequences([6, 1, 3])
    known = numbers or [0, 1, 2]
    seen: set[int] = set()

    def only(places: list[int]):
        def step(logits, context):
            for number, score in zip(context.numbers, logits, strict=True):
                seen.add(number)
                if known.index(number) not in places:
                    score[:] = -torch.inf
            return logits

        return step

    given = {"numbers": numbers, "search": BeamSettings(beam=4, beam_groups=groups), "max_new_tokens": 3}
    answer(network, sources, **given, filters=[only([0, 1, 2])])
    assert sorted(seen) == sorted(known)
    with pytest.raises(ConfigError, match=rf"in row {known[0]} \(counted from 0\) all hypotheses"):
        answer(network, sources, **given, filters=[only([1, 2])])
    if groups == 1:
        forced = Forced([b""] * 6 + [b"a"] * (VOCAB - 6), ["aaaa"])
        with pytest.raises(ConfigError, match=rf"none of row {known[1]} \(.* within its 3 tokens"):
            answer(network, sources, **given, forced=forced)


@pytest.mark.parametrize("batch_size", [1, 4, 99])
def test_drawn_answers_hang_on_seed_and_place_alone(batch_size):
    network, sources = model(seed=7, max_len=None), [*sequences(LENGTHS), *sequences([3] * 6, seed=2)[:1] * 6]
    drawn = Sampling(temperature=0.9, seed=5)
    whole = answer(network, sources, sampling=drawn)
    assert answer(network, sources, sampling=drawn, batch_size=batch_size) == whole
    assert (
        answer(network, sources[7:], sampling=drawn, batch_size=batch_size, numbers=range(7, len(sources))) == whole[7:]
    )
    assert len({tuple(each.ids) for each in whole[-6:]}) > 2, "equal sources, other numbers"
    assert answer(network, sources, sampling=Sampling(temperature=0.9, seed=6)) != whole


def test_blanks_are_not_drawn():
    for sampling in (Sampling(), Sampling(temperature=0.0, no_repeat_ngram=2)):
        with pytest.raises(ConfigError, match="fills all blanks at once"):
            answer(model("encoder"), sequences([3]), sampling=sampling)
