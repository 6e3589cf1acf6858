"""Draws follow the filtered distribution, and a row's text hangs on (seed, its number) and on nothing beside it."""

import math

import pytest
import torch

from decode import choices
from decode.naive import written
from glassformer import generate
from glassformer.base.errors import ConfigError, DataError
from glassformer.data.tokens.vocabulary import BOS
from glassformer.decode.choose import AT_ONCE, chooser, draw, greedy, numbers, own_uniforms
from glassformer.decode.filters import Context, banned, logit_bias
from glassformer.decode.settings import GREEDY, Sampling
from train.examples import VOCAB, model, sequences

LAYOUTS = ["encoder-decoder", "decoder"]


BIAS = {2: 0.9, 7: -math.inf}
SETTINGS = {
    "temperature": (Sampling(temperature=0.6), [(choices.temperature, 0.6)]),
    "top k": (Sampling(top_k=4), [(choices.top_k, 4)]),
    "top p": (Sampling(top_p=0.8), [(choices.top_p, 0.8)]),
    "typical": (Sampling(typical_p=0.7), [(choices.typical, 0.7)]),
    "min p": (Sampling(min_p=0.4), [(choices.min_p, 0.4)]),
    "repetition": (Sampling(repetition_penalty=1.6), [(choices.repetition_penalty, 1.6)]),
    "frequency": (Sampling(frequency_penalty=0.7), [(choices.frequency_penalty, 0.7)]),
    "presence": (Sampling(presence_penalty=0.7), [(choices.presence_penalty, 0.7)]),
    "n-gram": (Sampling(no_repeat_ngram=2), [(choices.no_repeat_ngram, 2)]),
    "bias": (Sampling(), [(lambda z, *_: [x + BIAS.get(i, 0.0) for i, x in enumerate(z)], None)]),
    "penalty, temperature and top p": (
        Sampling(repetition_penalty=1.6, temperature=0.7, top_p=0.9),
        [(choices.repetition_penalty, 1.6), (choices.temperature, 0.7), (choices.top_p, 0.9)],
    ),
}
"""Each setting by itself, and the definitions, in plain Python, that make its distribution."""


@pytest.mark.parametrize("name", SETTINGS)
def test_draws_follow_the_definition_of_each_setting(name, monkeypatch):
    """Chi-square of 100,000 draws that share a text; one generator gives all their numbers, which takes less time."""
    count, (prompt, text) = 100_000, ([1, 4, 0], [5, 4, 5])
    (sampling, definitions), coin = SETTINGS[name], torch.Generator().manual_seed(8)
    z = torch.randn(9, generator=coin, dtype=torch.float64)
    wanted = z.tolist()
    for define, value in definitions:
        wanted = define(wanted, prompt, text, value)
    uniforms = torch.rand(count, generator=coin, dtype=torch.float64).tolist()
    monkeypatch.setattr("glassformer.decode.choose.own_uniforms", lambda *_: uniforms)
    choose = chooser(sampling, [logit_bias(BIAS)] if name == "bias" else [])
    found = choose(z.expand(count, -1), Context(range(count), [prompt] * count, [text] * count))
    counts, shares = found.bincount(minlength=9).double(), torch.tensor(choices.softmax(wanted), dtype=torch.float64)
    drawn = shares > 0
    assert counts[~drawn].sum() == 0
    degrees = int(drawn.sum()) - 1
    limit = degrees + 3.72 * math.sqrt(2 * degrees) + 8.6
    near, far = (float(((counts - count * p)[drawn] ** 2 / (count * p[drawn])).sum()) for p in (shares, z.softmax(-1)))
    assert 0 < near < limit
    assert far > 10 * limit, "the setting hardly changes what is drawn"


def test_numbers_of_one_row_are_uniform_and_its_own():
    mine = [x for block in range(40) for x in numbers(3, 7, block)]
    assert min(mine) >= 0
    assert max(mine) < 1
    assert len({*mine}) == len(mine) == 40 * AT_ONCE
    tenths = torch.tensor(mine).mul(10).long().bincount(minlength=10)
    assert (tenths - len(mine) / 10).square().sum() / (len(mine) / 10) < 33.7  # 9 degrees, 99.99 %
    for seed, row in ((4, 7), (3, 8), (7, 3)):
        other = numbers(seed, row, 0)
        assert not {*other} & {*mine}
    written = [[5] * n for n in (0, AT_ONCE - 1, AT_ONCE, 3 * AT_ONCE + 2)]
    assert own_uniforms(3, Context([7] * 4, [[]] * 4, written)) == [mine[len(ids)] for ids in written]


def test_draw_is_the_inverse_of_the_cumulative_distribution():
    logits = torch.tensor([[0.1, 0.0, 0.2, 0.3, 0.4]], dtype=torch.float64).log()
    given = [0.0, 0.0999, 0.1001, 0.2999, 0.3001, 0.5999, 0.6001, math.nextafter(1, 0)]
    assert draw(logits.expand(len(given), -1), given).tolist() == [0, 0, 2, 2, 3, 3, 4, 4]
    assert draw(torch.zeros(1, 10), [math.nextafter(1, 0)]).tolist() == [9], "ten tenths sum to less than one"
    ends = torch.tensor([[-math.inf, 1.0, -math.inf], [-math.inf, -math.inf, -900.0]])
    for number in (0.0, 0.5, math.nextafter(1, 0)):
        assert draw(ends, [number, number]).tolist() == [1, 2]


def text(network, **settings) -> list[list[int]]:
    return written(generate(network, **settings), len(settings.get("sources") or settings["prompts"]))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sampling", [
    Sampling(seed=5),
    Sampling(temperature=0.7, top_k=6, top_p=0.9, min_p=0.01, typical_p=0.95, seed=2**64 - 1),
    Sampling(repetition_penalty=1.3, frequency_penalty=0.2, presence_penalty=0.1, no_repeat_ngram=3),
    Sampling(temperature=0.0, no_repeat_ngram=2, min_new_tokens=4),
], ids=["plain", "truncated", "penalties", "greedy"])  # fmt: skip
def test_a_row_gets_the_same_text_alone_and_beside_others(layout, sampling):
    """Whatever leaves the batch, and however the batch is cut."""
    network = model(layout, seed=4, max_len=None)
    n = 9
    prompts = [[BOS, *each] for each in sequences([1 + i % 4 for i in range(n)])]
    sources = sequences([1 + i % 3 for i in range(n)], seed=3) if layout == "encoder-decoder" else None
    limits = [3 + 5 * (i % 3) for i in range(n)]
    choose = chooser(sampling)

    def of(chosen: range | list[int]) -> list[list[int]]:
        given = {} if sources is None else {"sources": [sources[i] for i in chosen]}
        return text(
            network,
            **given,
            prompts=[prompts[i] for i in chosen],
            max_new_tokens=[limits[i] for i in chosen],
            choose=choose,
            numbers=list(chosen),
        )

    together = of(range(n))
    assert together == [of([i])[0] for i in range(n)]
    shuffled = [4, 8, 0, 2]
    assert of(shuffled) == [together[i] for i in shuffled]
    assert len({*map(tuple, together)}) > n // 2
    if sampling.temperature:
        same = text(network, **({} if sources is None else {"sources": [sources[0]] * 8}), prompts=[prompts[0]] * 8,
                    max_new_tokens=8, choose=choose)  # fmt: skip
        assert len({*map(tuple, same)}) > 3, "rows of one prompt must not share their numbers"


def test_temperature_zero_is_greedy():
    logits, context = choices.rows(300)
    assert torch.equal(chooser(GREEDY)(logits, context), greedy(logits, context))


def test_all_but_one_forbidden_and_all():
    logits, context = torch.zeros(2, VOCAB), Context([3, 8], [[1], [1]], [[], [5]])
    but_one = banned([[id] for id in range(VOCAB) if id != 6])
    for sampling in (Sampling(), Sampling(top_p=0.1), Sampling(temperature=0.3, top_k=2), GREEDY):
        assert chooser(sampling, [but_one])(logits, context).tolist() == [6, 6]
        with pytest.raises(ConfigError, match=r"after 1 tokens of row 8 .* all are forbidden"):
            chooser(sampling, [but_one, banned([[5, 6]])])(logits, context)


@pytest.mark.parametrize(("value", "message"), [(math.nan, "are not numbers"), (math.inf, "infinite")])
def test_logits_that_are_none_are_refused(value, message):
    logits = torch.zeros(2, 3)
    logits[1, 2] = value
    with pytest.raises(DataError, match=message + ".* in row 8"):
        chooser(Sampling())(logits, Context([3, 8], [[1], [1]], [[], []]))


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.7), Sampling(top_p=0.9), GREEDY])
def test_what_a_filter_leaves_is_numbers(value, sampling):
    """Before a temperature, which makes infinity no number."""

    def broken(logits, context):
        return torch.where(torch.tensor([[row == 8] for row in context.numbers]), value, logits)

    with pytest.raises(ConfigError, match=r"in row 8 .* returned NaN or \+inf"):
        chooser(sampling, [broken])(torch.zeros(2, 3), Context([3, 8], [[1], [1]], [[], []]))


def test_each_lane_has_numbers_of_its_own():
    """So that a guess, and whether it stays, hang on nothing else; the first lane is that of a plain draw."""
    context = Context([3], [[1]], [[7, 8]])
    found = [own_uniforms(5, context, lane)[0] for lane in range(3)]
    assert len({*found}) == 3
    assert found[0] == own_uniforms(5, context)[0]
