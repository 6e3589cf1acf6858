"""Speculative decoding: greedy it is the plain text, the same in any batch, whoever guesses."""

import math

import pytest
import torch

from glassformer.base.errors import ConfigError
from glassformer.data.tokens.vocabulary import BOS, EOS
from glassformer.decode.choose import chooser
from glassformer.decode.filters import Context, no_repeat_ngram
from glassformer.decode.generate import generate
from glassformer.decode.settings import GREEDY, Sampling
from glassformer.decode.speculative import Guess, LookupDraft, Tally, Wanted, speculative
from train.examples import model, sequences


def written(steps, n: int) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(n)]
    for step in steps:
        for row, token in zip(step.rows, step.tokens, strict=True):
            found[row].append(token)
    return found


def wordy(layout: str, seed: int, **settings):
    """A model that seldom ends."""
    network = model(layout, seed=seed, **settings)
    network.head.register_forward_hook(
        lambda module, inputs, output: output - 3.0 * (torch.arange(output.shape[-1]) == EOS)
    )
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
    prompts = [[BOS, *each] for each in sequences([0, 6, 2], 5)]
    given = {"prompts": prompts, "max_new_tokens": [9, 14, 1]}
    given |= {"sources": sequences([2, 4, 1], 7)} if layout == "encoder-decoder" else {}
    plain = written(generate(network, **given), 3)
    for guesser in ({"draft": draft}, {"draft": network}, {"lookup": 2}):
        tally = Tally()
        assert written(speculative(network, **guesser, **given, guesses=guesses, tally=tally), 3) == plain
        assert guesser.get("draft") is not network or tally.stayed == tally.guessed > 0
        assert not guesser.get("lookup") or tally.stayed > 0
    asked = Sampling(temperature=0.0, no_repeat_ngram=2, repetition_penalty=1.3)
    plain = written(generate(network, **given, choose=chooser(asked)), 3)
    assert written(speculative(network, draft=draft, sampling=asked, guesses=guesses, **given), 3) == plain


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
    asked = Sampling(seed=4)
    filters = [no_repeat_ngram(1)]
    given = {"prompts": prompts, "max_new_tokens": 5}
    plain = written(generate(network, choose=chooser(asked, filters), **given), 2)
    tally = Tally()
    assert written(speculative(network, lookup=2, sampling=asked, filters=filters, tally=tally, **given), 2) == plain
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
    assert LookupDraft(2, EOS)(wanted, Context([], [], [])) == [Guess([7, EOS]), Guess([7])]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "got no draft and lookup=0"),
        ({"draft": "one", "lookup": 2}, "got a draft and lookup=2"),
        ({"lookup": -1}, "lookup=-1"),
        ({"lookup": 2, "guesses": 0}, "got guesses=0"),
        ({"draft": "other"}, "got 9 tokens without an encoder for 13 tokens without an encoder"),
        ({"draft": "encoder-decoder"}, "got 13 tokens with an encoder for 13 tokens without an encoder"),
        ({"draft": "linear"}, "a rejected guess cannot be removed"),
        (
            {"lookup": 1, "sampling": Sampling(temperature=0.0, contrastive_alpha=0.5)},
            "Contrastive search cannot use guesses",
        ),
    ],
    ids=["nobody", "two", "negative", "no guesses", "vocabulary", "layout", "linear", "contrastive"],
)
def test_mistakes(given, says):
    drafts = {
        "one": lambda: model("decoder"),
        "other": lambda: model("decoder", vocab=9),
        "encoder-decoder": model,
        "linear": lambda: model("decoder", attention_rule="linear"),
    }
    given = {name: drafts[each]() if isinstance(each, str) else each for name, each in given.items()}
    with pytest.raises(ConfigError, match=says):
        next(speculative(model("decoder"), prompts=[[BOS]], max_new_tokens=3, **given))
