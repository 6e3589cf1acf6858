"""Speculative decoding: greedy it is the plain text, the same in any batch, whoever guesses."""

import math

import pytest
import torch

from decode.naive import written
from glassformer.base.errors import ConfigError
from glassformer.data.tokens.vocabulary import BOS, EOS
from glassformer.decode.choose import chooser
from glassformer.decode.filters import Context, logit_bias, no_repeat_ngram
from glassformer.decode.generate import generate
from glassformer.decode.settings import GREEDY, Sampling
from glassformer.decode.speculative import Guess, Tally, Wanted, looked_up, settle, speculative
from train.examples import model, sequences


def wordy(layout: str, seed: int, **settings):
    """A model that seldom ends."""
    network = model(layout, seed=seed, **settings)
    network.head.register_forward_hook(lambda _, inputs, output: output - 3.0 * (torch.arange(output.shape[-1]) == EOS))
    return network


@pytest.mark.parametrize("guesses", [1, 3, 6])
@pytest.mark.parametrize(
    ("layout", "positions", "taps"),
    [("encoder-decoder", "learned", 1), ("decoder", "rotary", 1), ("decoder", "none", 3)],
)
def test_greedy_is_the_plain_text(layout, positions, taps, guesses):
    """With a draft of its own, with a copy of the model, and with what stands in the text; penalties included."""
    network, draft = (
        wordy(layout, seed, positions=positions, n_layers=n, convolution=taps) for seed, n in ((3, 2), (4, 1))
    )
    given = {"prompts": [[BOS, *each] for each in sequences([0, 6, 2], 5)], "max_new_tokens": [9, 14, 1]}
    given |= {"sources": sequences([2, 4, 1], 7)} if layout == "encoder-decoder" else {}
    plain = written(generate(network, **given), 3)
    for guesser in ({"draft": draft}, {"draft": network}, {"lookup": 2}):
        tally = Tally()
        assert written(speculative(network, **guesser, **given, guesses=guesses, tally=tally), 3) == plain
        assert guesser.get("draft") is not network or tally.stayed == tally.guessed > 0
        assert not guesser.get("lookup") or tally.stayed > 0
    requested = Sampling(temperature=0.0, no_repeat_ngram=2, repetition_penalty=1.3)
    plain = written(generate(network, **given, choose=chooser(requested)), 3)
    assert written(speculative(network, draft=draft, sampling=requested, guesses=guesses, **given), 3) == plain


@pytest.mark.parametrize(("context", "drop"), [(5, 1), (8, 3)])
def test_a_text_longer_than_its_context(context, drop):
    network, draft = (wordy("decoder", seed, positions="rotary", max_len=8) for seed in (3, 4))
    given = {"prompts": [[BOS, *sequences([3])[0]]], "max_new_tokens": 16, "max_context": context, "drop": drop}
    plain = written(generate(network, **given), 1)
    for guesser in ({"draft": draft}, {"lookup": 3}):
        assert written(speculative(network, **guesser, **given, guesses=4), 1) == plain


@pytest.mark.parametrize("window", [{}, {"max_context": 8, "drop": 3}], ids=["whole", "window"])
def test_a_prefix_is_read_both_ways_also_where_guesses_are_taken_back(window):
    """And where its beginning leaves: less of the text is a prefix then."""
    network = wordy("decoder", 4, n_layers=2)
    given = {"prompts": [[BOS, *each] for each in sequences([5, 4], 4)], "max_new_tokens": 12, **window}
    found = written(speculative(network, lookup=1, prefix=True, **given), 2)
    assert found == written(generate(network, prefix=True, **given), 2)
    assert found != written(generate(network, **given), 2)


@pytest.mark.parametrize("guesser", ["draft", "lookup"])
@pytest.mark.parametrize("layout", ["encoder-decoder", "decoder"])
def test_a_text_is_the_same_in_any_batch(layout, guesser):
    """Drawn, with rows that end at other times, and contexts that move on at other times."""
    network, draft = (wordy(layout, seed, positions="rotary") for seed in (3, 4))
    prompts = [[BOS, *each] for each in sequences([0, 6, 2, 9], 5)]
    sources = sequences([2, 4, 1, 3], 7) if layout == "encoder-decoder" else None
    limits = [9, 14, 1, 12]
    given = {"draft": draft} if guesser == "draft" else {"lookup": 2}
    given |= {"sampling": Sampling(temperature=0.7, seed=6), "max_context": 8, "drop": 3}

    def texts(rows: list[int]) -> list[list[int]]:
        of = {"prompts": [prompts[row] for row in rows], "max_new_tokens": [limits[row] for row in rows]}
        of |= {"sources": [sources[row] for row in rows]} if sources else {}
        return written(speculative(network, numbers=rows, **of, **given), len(rows))

    together = texts([0, 1, 2, 3])
    assert together == [*texts([0]), *texts([1]), *texts([2]), *texts([3])]
    assert texts([3, 1]) == [together[3], together[1]]
    assert len({*map(len, together)}) > 1


def test_all_rows_are_read_together():
    """As often as the row that takes most rounds alone; and rows that ended leave."""
    network = wordy("decoder", 3)
    shapes: list[tuple[int, int]] = []
    network.decoder.register_forward_hook(lambda module, inputs, output: shapes.append((*inputs[0].shape,)))
    prompts, limits = [[BOS, *each] for each in sequences([4] * 5, 5)], [3, 9, 15, 6, 12]

    def rounds(rows: range) -> int:
        shapes.clear()
        given = {"prompts": [prompts[row] for row in rows], "max_new_tokens": [limits[row] for row in rows]}
        written(speculative(network, lookup=2, guesses=3, **given), len(rows))
        return len(shapes)

    alone = [rounds(range(row, row + 1)) for row in range(5)]
    assert rounds(range(5)) == max(alone)
    assert shapes[0][0] == 5
    assert shapes[-1][0] < 5
    assert all(width <= 4 for _, width in shapes[1:])


def test_up_to_the_last_token_that_the_model_takes():
    network, draft = wordy("decoder", 3, max_len=9), wordy("decoder", 4, max_len=6)
    given = {"prompts": [[BOS, 7]], "max_new_tokens": 8}
    assert written(speculative(network, draft=draft, **given), 1) == written(generate(network, **given), 1)


def test_without_a_guess_it_draws_what_is_drawn_without():
    """Where nothing stands twice nothing is guessed, and the numbers are those of the token itself."""
    network, prompts = model("decoder", seed=3), [[BOS, 6, 7], [BOS, 8]]
    sampling = Sampling(seed=4)
    filters = [no_repeat_ngram(1)]
    given = {"prompts": prompts, "max_new_tokens": 5}
    plain = written(generate(network, choose=chooser(sampling, filters), **given), 2)
    tally = Tally()
    assert written(speculative(network, lookup=2, sampling=sampling, filters=filters, tally=tally, **given), 2) == plain
    assert tally.guessed == 0


@pytest.mark.parametrize("guesser", ["draft", "itself", "lookup"])
def test_filters_are_not_asked_what_comes_behind_what_they_forbid(guesser):
    """Nor behind an end: what a grammar knows nothing of. The text is that without guesses."""
    network, draft = (model("decoder", seed=seed) for seed in (3, 4))
    odd = torch.arange(13) % 2 == 1

    def even(logits, context):
        assert not any(id % 2 or id == EOS for ids in context.written for id in ids)
        return logits.masked_fill(odd, -math.inf)

    prompts = [[BOS, 6, 7, 8, 9, 6, 7], [BOS, EOS, 8, 9, 8, 11, 8], *([BOS, 7, id] for id in range(6, 13))]
    given = {"prompts": prompts, "max_new_tokens": 12}
    plain, tally = written(generate(network, choose=chooser(GREEDY, [even]), **given), len(prompts)), Tally()
    guess = {"draft": {"draft": draft}, "itself": {"draft": network}, "lookup": {"lookup": 1}}[guesser]
    found = written(speculative(network, **guess, filters=[even], tally=tally, **given), len(prompts))
    assert found == plain
    assert tally.stayed > 0
    assert guesser == "itself" or tally.stayed < tally.guessed
    assert any(len(ids) % 5 and ids[-1] == EOS for ids in plain), "an end that is among five tokens guessed"


def test_no_guess_stands_behind_an_end():
    wanted = [Wanted(0, [8, 7, EOS, 9, 8], 4), Wanted(1, [8, 7, 9, 8], 1)]
    assert looked_up(wanted, Context([], [], []), most=2, eos=EOS) == [Guess([7, EOS]), Guess([7])]


@pytest.mark.parametrize(("given", "message"), [
    ({}, "got no draft and lookup=0"),
    ({"draft": "one", "lookup": 2}, "got a draft and lookup=2"),
    ({"lookup": -1}, "lookup=-1"),
    ({"lookup": 2, "guesses": 0}, "got guesses=0"),
    ({"draft": "other"}, "got 9 tokens without an encoder for 13 tokens without an encoder"),
    ({"draft": "encoder-decoder"}, "got 13 tokens with an encoder for 13 tokens without an encoder"),
    ({"draft": "linear"}, "a rejected guess cannot be removed"),
    ({"lookup": 1, "sampling": Sampling(temperature=0.0, contrastive_alpha=0.5)},
     "Contrastive search cannot use guesses"),
], ids=["nobody", "two", "negative", "no guesses", "vocabulary", "layout", "linear", "contrastive"])  # fmt: skip
def test_mistakes(given, message):
    drafts = {
        "one": lambda: model("decoder"),
        "other": lambda: model("decoder", vocab=9),
        "encoder-decoder": model,
        "linear": lambda: model("decoder", attention_rule="linear"),
    }
    given = {name: drafts[each]() if isinstance(each, str) else each for name, each in given.items()}
    with pytest.raises(ConfigError, match=message):
        next(speculative(model("decoder"), prompts=[[BOS]], max_new_tokens=3, **given))


# --- Speculative decoding draws with the plain distribution, whoever guesses and whatever filters apply


def chi_square(counts: list[int], p: list[float]) -> float:
    """How far counts are from expected ones, in standard deviations of the chi-square; cells below 5 together."""
    n = sum(counts)
    cells = [(count, n * share) for count, share in zip(counts, p, strict=True) if n * share >= 5]
    rare = (n - sum(count for count, _ in cells), n - sum(share for _, share in cells))
    cells += [rare] if rare[1] > 1 else []
    total = sum((count - share) ** 2 / share for count, share in cells)
    return (total - (len(cells) - 1)) / math.sqrt(2 * (len(cells) - 1))


@pytest.mark.parametrize("kind", ["drawn", "certain"])
def test_over_all_random_numbers_what_settles_has_the_shares_of_p(kind):
    """Without chance: both numbers go through a grid, so every share is exact to 1/200, for any p and q."""
    coin, grid = torch.Generator().manual_seed(2), [(i + 0.5) / 200 for i in range(200)]
    for vocab in (2, 3, 4, 6, 6):
        p, q = torch.rand(2, vocab, generator=coin, dtype=torch.float64) ** 2
        p, q = p / p.sum(), q / q.sum()
        p = p if vocab != 6 else torch.where(torch.arange(6) == 1, 0.0, p) / (1 - p[1])
        total = torch.zeros(vocab, dtype=torch.float64)
        guesses = q.tolist() if kind == "drawn" else [0.0, 1.0]
        for x, share in enumerate(guesses):
            guess = Guess([x], q[None] if kind == "drawn" else None)
            stayed = sum(settle(guess, 0, p, stays, 0.5) == (x, True) for stays in grid) / len(grid)
            total[x] += share * stayed
            if stayed < 1:
                rest = [settle(guess, 0, p, math.nextafter(1, 0), drawn) for drawn in grid]
                assert not any(each for _, each in rest)
                found = torch.tensor([token for token, _ in rest]).bincount(minlength=vocab)
                total += share * (1 - stayed) * found / len(grid)
        torch.testing.assert_close(total, p, rtol=0, atol=1 / 200)


SHAPES = {
    "plain": (Sampling(temperature=1.4, top_k=6, seed=5), []),
    "penalty": (Sampling(temperature=1.4, repetition_penalty=1.6, presence_penalty=0.4, seed=5), []),
    "filters": (Sampling(temperature=1.4, min_p=0.02, no_repeat_ngram=3, seed=5), [logit_bias({7: 1.5, 6: -1.0})]),
}
"""Settings and filters under which guesses are made and checked."""


def draws(count: int, guesser: str, shape: str = "plain") -> float:
    """The chi-square of whole texts of two tokens beside their probabilities, as the settings and filters have them."""
    network, draft = (model("decoder", seed=seed, vocab=8) for seed in (3, 4))
    (requested, filters), prompt = SHAPES[shape], [BOS, 7, 6, 7]
    guess = {"draft": draft} if guesser == "draft" else {"lookup": 1}
    given = {"sampling": requested, "filters": filters, "prompts": [prompt] * count, "max_new_tokens": 2}
    tally = Tally()
    found = written(speculative(network, **guess, guesses=2, tally=tally, **given), count)
    assert 0 < tally.stayed < tally.guessed
    mass = chooser(requested, filters).probabilities

    @torch.no_grad()
    def after(ids: list[int]) -> list[float]:
        return mass(network(torch.tensor([[*prompt, *ids]]))[:, -1], Context([0], [prompt], [ids]))[0].tolist()

    expected = {(EOS,): after([])[EOS]}
    for one, share in enumerate(after([])):
        if one != EOS:
            expected |= {(one, two): share * each for two, each in enumerate(after([one]))}
    counts = dict.fromkeys(expected, 0)
    for text in found:
        counts[tuple(text)] += 1
    assert all(expected[text] for text, n in counts.items() if n), "a text that no draw without guesses gives"
    return chi_square([*counts.values()], [*expected.values()])


MANY = [pytest.param(20_000, shape, marks=pytest.mark.slow) for shape in SHAPES]


@pytest.mark.parametrize("guesser", ["draft", "lookup"])
@pytest.mark.parametrize(("count", "shape"), [(1_000, "plain"), *MANY])
def test_drawn_texts_have_the_plain_distribution(guesser, count, shape):
    """Few show a coarse fault of the rounds, as what settles a token is shown without chance above.

    Many also where a penalty, or filters and a forbidden n-gram, make what is drawn hang on what was guessed before.
    """
    assert draws(count, guesser, shape) < 4
