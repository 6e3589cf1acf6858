"""A search with stops: an answer ends where one comes, as with <eos>, and the best of all is found."""

import math
import random
from collections.abc import Sequence

import pytest
import torch

from decode.exhaustive import SMALL, assert_same, exhaustive, small
from decode.test_beam import spelling, text_of
from decode.test_stream import searched, tokenizer
from glassformer import Transformer
from glassformer.base.errors import ConfigError
from glassformer.data.tokenizer import TOKENIZERS, WordTokenizer
from glassformer.data.tokens.vocabulary import BOS, EOS, UNK
from glassformer.decode.beam import Cut, Forced, beam_search, stop_in
from glassformer.decode.constraints import Constraints, shown_of
from glassformer.decode.filters import Context
from glassformer.decode.rows import Stop
from glassformer.decode.settings import BeamSettings
from glassformer.decode.stream import TextStream, stop_of
from train.examples import model, sequences

STOPS = [
    lambda _, ids: ids[-1] == 6,
    lambda _, ids: ids[-1] == 3 or ids[-2:] == [7, 6],
    lambda _, ids: ids[-1] >= 3,
    lambda row, _: row == 1,
]
"""A token; a token behind another; most tokens; one row of the call, at once."""


def cut(stop: Stop) -> Cut:
    """A stop of a search, which nobody asks for the text before it."""
    return lambda row, ids: "" if stop(row, ids) else None


def given_to(layout: str, seed: int) -> tuple[Transformer, list[list[int]] | None, dict[str, object]]:
    """A model in float64, its sources, and its arguments, for three rows."""
    sources = sequences([2, 4, 1], seed, SMALL) if layout == "encoder-decoder" else None
    return small(layout, seed).double(), sources, {"prompts": [[BOS]] * 3} if sources is None else {"sources": sources}


@pytest.mark.parametrize("stop", STOPS, ids=["token", "tokens", "most", "row"])
@pytest.mark.parametrize("layout", ["encoder-decoder", "decoder"])
def test_wide_enough_it_is_exhaustive(layout, stop):
    """Also at the last step, where a stop completes what would only be cut."""
    for seed, alpha in enumerate((0.0, 0.6, 2.0, -0.5)):
        network, sources, given = given_to(layout, seed)
        limits = [3, 2, 1]
        given |= {"max_new_tokens": limits, "n_best": 9, "stop": cut(stop)}
        found = beam_search(network, BeamSettings(beam=400, length_penalty=alpha), **given)
        for row, limit in enumerate(limits):
            source = None if sources is None else sources[row]
            every = exhaustive(network, source, limit, alpha, stop=lambda ids, row=row: stop(row, ids))
            assert_same(found[row], every[: len(found[row])])
            assert len(found[row]) == min(9, len(every))


def test_where_everything_stops_the_best_are_found():
    """No continuation is left, and none is needed."""
    network = model("decoder", seed=2)
    log_p = network(torch.tensor([[BOS]]))[0, -1].log_softmax(-1)
    (found,) = beam_search(
        network, BeamSettings(beam=3), prompts=[[BOS]], max_new_tokens=9, n_best=3, eos=-1, stop=lambda *_: ""
    )
    assert [each.ids for each in found] == [[id] for id in log_p.argsort(descending=True)[:3].tolist()]
    assert all(each.complete and each.stopped for each in found)


@pytest.mark.parametrize("groups", [2, 3])
def test_groups_stop_in_their_rows(groups):
    """A group belongs to the row of the call that `stop` is told of; no answer goes on behind a stop."""
    network, _, given = given_to("encoder-decoder", 5)
    seen: set[int] = set()

    def stop(row: int, ids: list[int]) -> bool:
        seen.add(row)
        return row == 2 and len(ids) == 2

    settings = BeamSettings(beam=6, beam_groups=groups, length_penalty=0.0)
    found = beam_search(network, settings, **given, max_new_tokens=5, n_best=6, stop=cut(stop))
    assert seen == {0, 1, 2}
    assert not any(each.stopped for best in found[:2] for each in best)
    assert any(each.stopped for each in found[2])
    assert all(len(each.ids) == 2 if each.stopped else len(each.ids) < 2 for each in found[2])


@pytest.mark.parametrize(("texts", "stops"), [(["ab"], ["ba"]), (["b"], ["bb"]), (["a", "b"], ["bab"])])
@pytest.mark.parametrize("layout", ["encoder-decoder", "decoder"])
def test_what_is_forced_stands_before_the_stop(layout, texts, stops):
    """The best of all answers whose text up to the stop holds it, also where both texts share characters."""
    spells = spelling("a", "b")

    def shown(ids: list[int]) -> tuple[str, bool]:
        text = text_of(spells, ids)
        ends = [(text.find(each) + len(each), text.find(each)) for each in stops if each in text]
        return (text[: min(ends)[1]], True) if ends else (text, False)

    for seed in range(2):
        network, sources, given = given_to(layout, seed)
        given |= {"max_new_tokens": 4, "n_best": 3, "forced": Forced(spells, texts)}
        stop = lambda _, ids: shown(ids)[0] if shown(ids)[1] else None  # noqa: E731
        found = beam_search(network, BeamSettings(beam=1024), **given, stop=stop)
        for row in range(3):
            source = None if sources is None else sources[row]
            every = exhaustive(network, source, 4, 0.6, stop=lambda ids: shown(ids)[1])
            hold = [each for each in every if all(text in shown(each.ids)[0] for text in texts)]
            assert 0 < len(hold) < len(every)
            assert_same(found[row], hold[:3])


def test_a_stop_at_once_leaves_no_room_for_what_is_forced():
    network, spells = small("decoder", 1), spelling("a", "b")
    given = {"prompts": [[BOS]], "max_new_tokens": 3, "forced": Forced(spells, ["ab"])}
    with pytest.raises(ConfigError, match=r"none of row 0 .* or force fewer texts, or stop at fewer"):
        beam_search(network, BeamSettings(beam=4), **given, stop=lambda *_: "")


@pytest.mark.parametrize("groups", [1, 2])
def test_as_many_go_on_as_the_beam_is_wide(groups):
    """Though a stop ends most of the likeliest continuations, from the second token on."""
    network, wide = model("decoder", seed=2).double(), list[int]()

    def watched(logits: torch.Tensor, context: Context) -> torch.Tensor:
        wide.append(len(context.written))
        return logits

    settings = BeamSettings(beam=3 * groups, beam_groups=groups, length_penalty=5.0)  # long texts win: it goes on
    stop = cut(lambda _, ids: len(ids) > 1 and ids[-1] % 3 > 0)
    beam_search(network, settings, prompts=[[BOS]], max_new_tokens=4, filters=[watched], eos=-1, stop=stop)
    assert wide == [groups, *[3 * groups] * 3]


# --- Of several stop texts, the one that is complete first ends a text, however the text comes


@pytest.mark.parametrize(("text", "stops", "begin"), [
    ("xabcy", ["abc", "b"], 2),
    ("xabcy", ["bc", "abc"], 1),
    ("bxab", ["ab", "x"], 1),
    ("aab", ["ab"], 1),
    ("a", [], None),
])  # fmt: skip
def test_where_it_stands(text, stops, begin):
    assert stop_in(text, stops) == begin
    assert stop_in("none", ["x", "y"]) is None


# --- Texts that must be contained, where stop texts end an answer: what counts is the text that is told


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("kind", sorted(TOKENIZERS))
def test_what_is_forced_stands_in_the_text_that_is_told(kind, behind):
    """An answer that ends at a stop is left out only if the text that is told of it lacks what is forced."""
    made, draw = tokenizer(kind), random.Random(7)
    whole = made.decode([draw.randrange(6, made.vocab_size) for _ in range(400)])
    kept = {True: 0, False: 0}
    for trial in range(400):
        ids = draw.choices([UNK, *range(6, made.vocab_size)], k=4)
        text = made.decode(ids[:2]) if trial % 2 else whole
        at = draw.randrange(len(text))
        shown = made.adds(ids[draw.randrange(1, 4)]).decode(errors="replace")
        stop, forced = shown or "x", text[at : at + draw.randrange(1, 4)] or "y"
        share = Forced(shown_of(made), [forced]).share
        stream = TextStream(made, [stop], behind=behind)
        written = "".join(map(stream.add, ids))
        before = TextStream(made, [stop], behind=behind)
        if not stream.stopped or ([before.add(id) for id in ids[:-1]] and before.stopped):
            continue
        cut = stop_of(made, [stop], [behind])
        options = share([-1.0], ids[-1:], [ids[:-1]], False, lambda ids, cut=cut: cut(0, ids), k=1, eos=EOS)
        assert bool(options) == (forced in written)
        kept[bool(options)] += 1
    assert min(kept.values()) > 5


@pytest.mark.parametrize("behind", [False, True])
def test_the_blank_before_a_first_word_is_no_part_of_a_stop(behind):
    made = WordTokenizer(["the", "x"])
    network = model("decoder", seed=1, vocab=made.vocab_size).double()
    given = {"prompts": [[BOS]], "max_new_tokens": [4], "stops": [" the"], "behind": [behind]}
    never = [id for id in range(made.vocab_size) if id not in made.encode("the x")]
    forced = Constraints(forced=["x"]).held(made, [" the"])
    pieces = searched(network, made, BeamSettings(beam=8), 8, **given, never=never, forced=forced)
    assert any(each.text.startswith("the x") for each in pieces) == (not behind)
    assert all("x" in each.text for each in pieces)


def test_what_is_forbidden_stops_nothing():
    """It is looked for first whether an option can be chosen at all, as reading a text for its stops takes time."""
    requests: list[Sequence[int]] = []
    totals, tokens = [-1.0, -math.inf, -2.0, -math.inf], [6, 7, 6, 7]
    forced = Forced(spelling("a", "b"), ["a"])
    options = forced.share(totals, tokens, [[6], [7]], False, lambda ids: requests.append(ids), k=2, eos=EOS)
    assert requests == [[6, 6], [7, 6]]
    assert [place for _, _, place in options] == [0, 2]
