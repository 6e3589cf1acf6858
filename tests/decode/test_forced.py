"""Answers that hold what is forced: the best of all that do, where the beam is wide; always some, where it is not."""

import math
import random

import pytest
import torch

from decode.exhaustive import SMALL, assert_same, exhaustive, small
from glassformer.base.errors import ConfigError
from glassformer.data.config import TokenizerConfig
from glassformer.data.tokenizer import TOKENIZERS, CharacterTokenizer
from glassformer.data.tokens.vocabulary import BOS, EOS, UNK
from glassformer.decode.answer import answers
from glassformer.decode.beam import Forced, beam_search, length_penalty, prefix_at_end
from glassformer.decode.constraints import Constraints
from glassformer.decode.filters import Named
from glassformer.decode.settings import BeamSettings
from train.examples import model, sequences


def spelling(*ends: str) -> list[bytes]:
    """Eight tokens: <unk> and the last of them spell something."""
    spells = [b""] * (SMALL - len(ends)) + [each.encode() for each in ends]
    spells[UNK] = b"<unk>"
    return spells


def text_of(spells: list[bytes], ids: list[int]) -> str:
    return b"".join(spells[id] for id in ids).decode()


@pytest.mark.parametrize("layout", ["encoder-decoder", "decoder"])
@pytest.mark.parametrize(
    ("ends", "texts"),
    [(("a", "b"), ["ab"]), (("a", "b"), ["b", "a"]), (("ab", "b"), ["bb"]), (("aa", "ab"), ["ba"])],
)
def test_wide_enough_it_is_the_best_of_all_that_hold_the_texts(layout, ends, texts):
    for seed in range(2):
        network, spells = small(layout, seed), spelling(*ends)
        network.double()
        limits = [3, 2, 3]
        sources = sequences([2, 4, 1], seed, SMALL) if layout == "encoder-decoder" else None
        given = {"prompts": [[BOS]] * 3} if sources is None else {"sources": sources}
        found = beam_search(
            network,
            **given,
            max_new_tokens=limits,
            beam=400,
            n_best=3,
            lengths=length_penalty(0.6),
            forced=Forced(spells, texts),
        )
        for row, limit in enumerate(limits):
            every = exhaustive(network, None if sources is None else sources[row], limit, 0.6)
            hold = [each for each in every if all(text in text_of(spells, each.ids) for text in texts)]
            assert 0 < len(hold) < len(every)
            assert_same(found[row], hold[:3])


KINDS = ["bpe", "byte", "character", "unigram", "wordpiece", "word"]
TEXTS = ["the cat sat on the mat, the cats scattered", "a cation is no cat; the caterer"]


@pytest.mark.parametrize(("kind", "beam"), [("character", 5), *((kind, 2) for kind in KINDS)])
def test_narrow_beams_hold_the_texts_too(kind, beam):
    made = TOKENIZERS[kind].train(TEXTS, TokenizerConfig(kind=kind, vocab_size=540))
    network = model("encoder-decoder", vocab=made.vocab_size, max_len=40)
    wanted = ["cat sat", "mat,"]
    forced = Constraints(forced=wanted).held(made)
    sources = sequences([2, 4, 1], 3, made.vocab_size)
    given = {"max_new_tokens": 18, "search": BeamSettings(beam=beam)}
    for best, *_ in answers(network, sources, **given, forced=forced):
        assert all(each in made.decode(best.ids) for each in wanted)
    free = answers(network, sources, **given)
    assert not all(each in made.decode(free[0][0].ids) for each in wanted)


def test_how_much_of_a_text_stands_there_is_its_longest_beginning_at_the_end():
    draw = random.Random(1)
    spells = spelling("a", "b", "ab", "aab")
    for _ in range(300):
        words = ["".join(draw.choices("ab", k=draw.randrange(1, 5))) for _ in range(2)]
        ids = draw.choices(range(SMALL), k=draw.randrange(7))
        text = text_of(spells, ids)
        for word, held in zip(words, Forced(spells, words).held(ids), strict=True):
            ends = [n for n in range(len(word)) if text.endswith(word[:n])]
            assert held == (len(word) if word in text else max(ends)) == prefix_at_end(word.encode(), text.encode())


def test_an_answer_that_has_no_room_is_refused():
    network, spells = small("decoder", 1), spelling("a", "b")
    with pytest.raises(ConfigError, match=r"'aaaa'; none of row 0 .* did within its 3 tokens"):
        beam_search(network, prompts=[[BOS]], max_new_tokens=3, beam=4, forced=Forced(spells, ["aaaa"]))


def test_forced_and_forbidden_is_refused_and_what_forbids_is_named():
    network, spells = small("decoder", 1), spelling("a", "b")
    with pytest.raises(ConfigError, match=r"none of row 0.* force fewer texts, or change or remove --ban\."):
        beam_search(
            network,
            prompts=[[BOS]],
            max_new_tokens=4,
            beam=4,
            forced=Forced(spells, ["b"]),
            filters=[Named(lambda logits, _: logits.index_fill(1, torch.tensor([SMALL - 1]), -math.inf), "--ban")],
        )


@pytest.mark.parametrize("search", [BeamSettings(), BeamSettings(beam=4, beam_groups=2)])
def test_it_needs_one_beam(search):
    network, spells = small("encoder-decoder", 1), spelling("a", "b")
    with pytest.raises(ConfigError, match="need a beam of at least 2 in one group"):
        answers(network, [[6]], search=search, forced=Forced(spells, ["b"]))


def test_an_empty_text_is_refused():
    with pytest.raises(ConfigError, match="A forced text must have at least one character"):
        Constraints(forced=[""])


def test_an_unknown_word_parts_a_text_and_the_end_does_not():
    """It is shown in the answer, as in any text."""
    made = CharacterTokenizer([*"ab<unk>"])
    for text, held in (("ab", {EOS: 2, UNK: 0}), ("<unk>b", {EOS: 0, UNK: 6})):
        forced = Constraints(forced=[text]).held(made)
        a, b = made.encode("ab")
        assert forced is not None
        assert {id: forced.held([a, id, b])[0] for id in held} == held
