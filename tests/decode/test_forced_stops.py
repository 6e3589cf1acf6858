"""Texts that must be contained, where stop texts end an answer: what counts is the text that is told."""

import math
import random
from collections.abc import Sequence

import pytest

from decode.test_forced import spelling
from decode.test_stream import tokenizer
from glassformer.data.tokenizer import TOKENIZERS, WordTokenizer
from glassformer.data.tokens.vocabulary import BOS, EOS, UNK
from glassformer.decode.constraints import Constraints, shown_of
from glassformer.decode.hypotheses import Forced
from glassformer.decode.settings import BeamSettings
from glassformer.decode.stream import TextStream, search_texts, stop_of
from train.examples import model


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
        told = "".join(map(stream.add, ids))
        before = TextStream(made, [stop], behind=behind)
        if not stream.stopped or ([before.add(id) for id in ids[:-1]] and before.stopped):
            continue
        cut = stop_of(made, [stop], [behind])
        options = share([-1.0], ids[-1:], [ids[:-1]], False, lambda ids, cut=cut: cut(0, ids), k=1, eos=EOS)
        assert bool(options) == (forced in told)
        kept[bool(options)] += 1
    assert min(kept.values()) > 5


@pytest.mark.parametrize("behind", [False, True])
def test_the_blank_before_a_first_word_is_no_part_of_a_stop(behind):
    made = WordTokenizer(["the", "x"])
    network = model("decoder", seed=1, vocab=made.vocab_size).double()
    pieces = [
        *search_texts(
            network,
            made,
            search=BeamSettings(beam=8),
            n=8,
            sources=None,
            prompts=[[BOS]],
            max_new_tokens=[4],
            stops=[" the"],
            filters=[],
            never=[id for id in range(made.vocab_size) if id not in made.encode("the x")],
            forced=Constraints(forced=["x"]).held(made, [" the"]),
            numbers=[0],
            prefix=False,
            poll=lambda: None,
            behind=[behind],
            complete=None,
        )
    ]
    assert any(each.text.startswith("the x") for each in pieces) == (not behind)
    assert all("x" in each.text for each in pieces)


def test_what_is_forbidden_stops_nothing():
    """It is looked for first whether an option can be chosen at all, as reading a text for its stops takes time."""
    asked: list[Sequence[int]] = []
    totals, tokens = [-1.0, -math.inf, -2.0, -math.inf], [6, 7, 6, 7]
    forced = Forced(spelling("a", "b"), ["a"])
    options = forced.share(totals, tokens, [[6], [7]], False, lambda ids: asked.append(ids), k=2, eos=EOS)
    assert asked == [[6, 6], [7, 6]]
    assert [place for _, _, place in options] == [0, 2]
