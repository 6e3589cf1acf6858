"""Beam search: with one beam it is greedy, its bound loses nothing, and no row hangs on its neighbours."""

import math
import random

import pytest
import torch

from decode.exhaustive import SMALL, assert_same, exhaustive, log_p, small
from decode.naive import written
from glassformer import Transformer, generate, observe
from glassformer.base.errors import ConfigError, DataError
from glassformer.data.config import TokenizerConfig
from glassformer.data.tokenizer import TOKENIZERS, CharacterTokenizer
from glassformer.data.tokens.vocabulary import BOS, EOS, UNK
from glassformer.decode.answer import Answer, answer, answers, pharaoh, read_back
from glassformer.decode.beam import (
    Beginning,
    Candidates,
    Forced,
    Hypothesis,
    Rule,
    Search,
    beam_search,
    done,
    extend,
    length_penalty,
    prefix_at_end,
    reading_layer,
)
from glassformer.decode.constraints import Constraints
from glassformer.decode.filters import Named, logit_bias
from glassformer.decode.settings import BeamSettings
from train.examples import SCHEMES, model, sequences


@pytest.mark.parametrize("layout", ["encoder-decoder", "decoder"])
@pytest.mark.parametrize("positions", SCHEMES)
def test_one_beam_is_greedy(layout, positions):
    network = model(layout, seed=6, positions=positions)
    if layout == "encoder-decoder":
        sources = sequences([3, 1, 5, 2, 4, 4, 1, 6])
        found = beam_search(network, BeamSettings(beam=1), sources=sources, max_new_tokens=9)
        expected = answer(network, sources, max_new_tokens=9)
        assert [(best.ids, best.complete) for (best,) in found] == [(each.ids, each.complete) for each in expected]
        return
    prompts = [[BOS, *each] for each in sequences([3, 1, 5, 2])]
    found = beam_search(network, BeamSettings(beam=1), prompts=prompts, max_new_tokens=9)
    for prompt, (best,) in zip(prompts, found, strict=True):
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
    texts = {prefix: written(generate(network, **given, prefix=prefix, eos=-1), 4) for prefix in (True, False)}
    settings = BeamSettings(beam=groups, beam_groups=groups, diversity=0.0)
    found = beam_search(network, settings, **given, prefix=True, eos=-1)
    assert [best.ids for (best,) in found] == texts[True]
    assert texts[True] != texts[False]


def test_a_source_is_no_prefix():
    with pytest.raises(ConfigError, match="the source is the prefix"):
        beam_search(model(), BeamSettings(beam=2), sources=[[7, 8]], max_new_tokens=2, prefix=True)


def by_hand(network: Transformer, source, limit: int, beam: int, alpha: float) -> list[Hypothesis]:
    """The same search for one row, without cache, never done early: what is found is found."""
    active, found = [([], 0.0)], []
    for step in range(1, limit + 1):
        options = [
            (total + value, [*ids, token])
            for (ids, total), values in zip(active, log_p(network, source, [ids for ids, _ in active]), strict=True)
            for token, value in enumerate(values)
        ]
        options.sort(key=lambda each: -each[0])
        active = []
        for rank, (value, ids) in enumerate(options[: 2 * beam]):
            if len(active) == beam:
                break
            if ids[-1] != EOS and step < limit:
                active.append((ids, value))
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
            network, BeamSettings(beam=beam, length_penalty=alpha), sources=sources, max_new_tokens=limits, n_best=2
        )
        for row, source in enumerate(sources):
            assert_same(found[row], by_hand(network, source, limits[row], beam, alpha)[: len(found[row])])
            assert len(found[row]) == 2 or limits[row] == 1


def diverse_by_hand(network: Transformer, source, limit: int, width: int, groups: int, strength: float):
    """Diverse beam search of one row, without cache or bound; what each group found, best first, without length."""
    active = [[([], 0.0)] for _ in range(groups)]
    found: list[list[Hypothesis]] = [[] for _ in range(groups)]
    for step in range(1, limit + 1):
        taken: list[int] = []
        for group in range(groups):
            options = [
                (total + value - strength * taken.count(token), total + value, [*ids, token])
                for ids, total in active[group]
                for token, value in enumerate(log_p(network, source, [ids])[0])
            ]
            options.sort(key=lambda each: -each[0])
            active[group] = []
            for rank, (_, value, ids) in enumerate(options[: 2 * width]):
                if len(active[group]) == width:
                    break
                if ids[-1] != EOS and step < limit:
                    active[group].append((ids, value))
                elif rank < width:
                    ended = ids[-1] == EOS
                    found[group].append(Hypothesis(ids[:-1] if ended else ids, value, value, ended))
            taken += [ids[-1] for ids, _ in active[group]]
    return [sorted(each, key=lambda one: -one.score)[:width] for each in found]


@pytest.mark.parametrize("strength", [0.0, 0.4, 3.0])
def test_groups_search_apart(strength):
    """Beside the search by hand: two rows, three groups of two; what several groups found stands once."""
    network, sources, limits = model("encoder-decoder", seed=4).eval(), sequences([3, 2], 4), [6, 4]
    given = {"sources": sources, "max_new_tokens": limits}
    settings = BeamSettings(beam=6, beam_groups=3, diversity=strength, length_penalty=0.0)
    found = beam_search(network, settings, **given, n_best=6)
    for row, source in enumerate(sources):
        apart = diverse_by_hand(network, source, limits[row], 2, 3, strength)
        assert_same(found[row][:1], [max((each for one in apart for each in one), key=lambda each: each.score)])
        expected = {(each.complete, *each.ids) for one in apart for each in one}
        assert {(each.complete, *each.ids) for each in found[row]} == expected
        assert len(found[row]) == len(expected)
    if strength == 0:
        one = beam_search(network, BeamSettings(beam=2, length_penalty=0.0), **given, n_best=2)
        assert_same(found[0], one[0])
    assert (len(found[0]) > 2) == (strength > 1)


@pytest.mark.parametrize(("width", "seed"), [(1, 3), (2, 27)])
def test_groups_hang_on_no_bound(width, seed):
    """A group that found its answers keeps the others from its tokens until all of them did."""
    network, (source,) = model("encoder-decoder", seed=seed).eval(), sequences([3], seed)
    network.head.register_forward_hook(lambda module, inputs, output: output + 2.0 * (torch.arange(13) == EOS))
    settings = BeamSettings(beam=3 * width, beam_groups=3, diversity=2.0, length_penalty=0.0)
    (found,) = beam_search(network, settings, sources=[source], max_new_tokens=10, n_best=3 * width)
    apart = diverse_by_hand(network, source, 10, width, 3, 2.0)
    expected = {(each.complete, *each.ids) for one in apart for each in one}
    assert {(each.complete, *each.ids) for each in found} == expected


def test_the_bound_saves_steps():
    network = model("encoder-decoder", seed=1)
    network.head.register_forward_hook(lambda module, inputs, output: output + 9.0 * (torch.arange(13) == EOS))
    steps = []
    network.head.register_forward_hook(lambda *_: steps.append(1))
    (found,) = beam_search(network, BeamSettings(beam=3), sources=[[7, 8]], max_new_tokens=20)
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
    ((best,),) = beam_search(network, BeamSettings(beam=2), prompts=[[BOS]], max_new_tokens=1, filters=bias)
    assert best.ids == [7]


def test_what_is_no_number_is_refused():
    network = model("decoder")
    network.head.register_forward_hook(lambda module, inputs, output: output * math.nan)
    with pytest.raises(DataError, match="are not numbers"):
        beam_search(network, BeamSettings(beam=2), prompts=[[BOS]], max_new_tokens=2)


def test_answers_of_a_beam_come_in_order_whatever_the_batch():
    network, sources = model(seed=5), sequences([4, 1, 3, 2, 5, 2])
    three = BeamSettings(beam=3)
    whole = answer(network, sources, max_new_tokens=8, search=three)
    again = answer(network, sources, max_new_tokens=8, search=three, batch_size=2)
    assert [each[:3] for each in whole] == [each[:3] for each in again]
    alone = [beam_search(network, BeamSettings(beam=3), sources=[each], max_new_tokens=8)[0][0] for each in sources]
    assert [each.ids for each in whole] == [each.ids for each in alone]
    assert [each.ids for each in whole] != [each.ids for each in answer(network, sources, max_new_tokens=8)]


@pytest.mark.parametrize("n_best", [3, 0])
def test_more_answers_than_the_beam_has_are_refused(n_best):
    with pytest.raises(ConfigError, match=f"n_best must be from 1 to beam=2; got n_best={n_best}"):
        beam_search(model(), BeamSettings(beam=2), sources=[[7]], max_new_tokens=2, n_best=n_best)


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
    assert many.active == [Beginning([7, 11], -3.5, 0), Beginning([8, 13], -5.0, 1)]
    assert many.found == [Hypothesis([7], -2.0, -2.0, True)]
    assert one.active == [Beginning([9, 14], -6.0, 2), Beginning([9, 15], -9.0, 2)]


# --- A beam that is wide enough finds what a search through all answers finds, on many models that all differ


LAYOUTS, ALPHAS = ("encoder-decoder", "decoder"), (0.0, 0.6, 2.0, -0.5)
PUSH, SLOW, PART = 40, 500, 10
"""Models of the push tier, models that only the slow tier has, and models of one test."""


def variant(number: int) -> tuple[str, float, str]:
    """Layout, alpha and positions of a model: all in turn, as the digits of its number."""
    rest, layout = divmod(number, len(LAYOUTS))
    rest, positions = divmod(rest, len(SCHEMES))
    return LAYOUTS[layout], ALPHAS[(rest + positions) % len(ALPHAS)], SCHEMES[positions]


def assert_exhaustive(number: int) -> None:
    """On the random model with this number: each number is a seed of its own.

    Several rows of unequal sources and limits at once; 3 tokens make 1 + 7 + 49 + 343 answers.
    """
    layout, alpha, positions = variant(number)
    network = small(layout, number, positions)
    limits = [3, 1, 2]
    sources = sequences([2, 4, 1], number, SMALL) if layout == "encoder-decoder" else None
    given = {"prompts": [[BOS]] * 3} if sources is None else {"sources": sources}
    found = beam_search(network, BeamSettings(beam=400, length_penalty=alpha), **given, max_new_tokens=limits, n_best=5)
    for row, limit in enumerate(limits):
        expected = exhaustive(network, None if sources is None else sources[row], limit, alpha)
        assert_same(found[row], expected[:5])


MANY = [pytest.param(first, marks=pytest.mark.slow) for first in range(PUSH, PUSH + SLOW, PART)]


@pytest.mark.parametrize("first", [*range(0, PUSH, PART), *MANY])
def test_wide_enough_it_is_exhaustive(first):
    """On 40 random models; the slow tier has 500 others."""
    for number in range(first, first + PART):
        assert_exhaustive(number)


@pytest.mark.parametrize("positions", ["rotary", "learned"])
def test_behind_a_prefix_it_is_exhaustive(positions):
    """Log-probabilities are those of the whole text read anew, with each prompt in both directions."""
    network, prompts = small("decoder", 3, positions, n_layers=2), [[BOS, 6, 7, 6], [BOS, 7]]
    found = beam_search(network, BeamSettings(beam=400), prompts=prompts, max_new_tokens=3, n_best=3, prefix=True)
    for prompt, best in zip(prompts, found, strict=True):
        assert_same(best, exhaustive(network, None, 3, 0.6, prompt, prefix=True)[:3])
    causal = beam_search(network, BeamSettings(beam=400), prompts=prompts, max_new_tokens=3, n_best=3)
    assert [each.score for each in causal[0]] != [each.score for each in found[0]]


# --- What was read of the source: the coverage penalty of a beam, and alignments, beside a whole forward


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
    found = beam_search(
        network, BeamSettings(beam=60, coverage_penalty=0.7), sources=sources, max_new_tokens=2, n_best=57
    )
    plain = beam_search(network, BeamSettings(beam=60), sources=sources, max_new_tokens=2, n_best=57)
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
    for source, each, back in zip(sources, given, read_back(network, sources, given, batch_size=3), strict=True):
        ids = [*each.ids, *([EOS] if each.complete else [])]
        whole = read(network, source, ids, 0)
        rest = 1 - whole.sum(-1)  # what <eos> of the source got
        expected = [(int(whole[j].argmax()), j) for j in range(len(each.ids)) if float(whole[j].max()) > float(rest[j])]
        assert back.links == expected
        logits = network(torch.tensor([[BOS, *ids[:-1]]]), source=torch.tensor([[*source, EOS]]))[0].log_softmax(-1)
        assert back.log_probabilities == pytest.approx([float(logits[j, id]) for j, id in enumerate(ids)], abs=1e-12)
    assert pharaoh([(0, 0), (2, 1)]) == "0-0 2-1"


def test_a_model_of_one_stack_reads_no_source():
    for layout in ("decoder", "encoder"):
        with pytest.raises(ConfigError, match="this model has one stack"):
            reading_layer(model(layout))
        with pytest.raises(ConfigError, match="this model has one stack"):
            read_back(model(layout), [[7]], [Answer([7], True)])


@pytest.mark.parametrize(("given", "message"), [
    ({"beam": 0}, "beam must be at least 1; got 0"),
    ({"beam": 4, "beam_groups": 3}, "beam_groups must divide beam evenly; got beam=4"),
    ({"coverage_penalty": 0.2}, "coverage_penalty needs beam-search decoding; got beam=1"),
    ({"early_stop": True}, "early_stop needs beam-search decoding; got beam=1"),
    ({"beam": 10**9}, "beam must be at most 1024"),
    ({"beam": 2, "coverage_penalty": math.nan}, "coverage_penalty must be at least 0"),
    ({"beam": 2, "diversity": -1.0}, "diversity must be at least 0"),
    ({"beam": 2, "length_penalty": math.nan}, "length_penalty must be at least -10 and at most 10"),
], ids=["none", "groups", "coverage", "early", "wide", "not a number", "negative", "no length"])  # fmt: skip
def test_settings_that_cannot_be(given, message):
    with pytest.raises(ConfigError, match=message):
        BeamSettings(**given)


# --- When a search is done: once no hypothesis can beat the answers found, at whatever length is the best for it


@pytest.mark.parametrize(
    ("alpha", "score", "is_done"),
    [(4.0, -0.9, False), (4.0, -0.06, True), (-4.0, -3.8, False), (-4.0, -3.6, True), (0.0, -2.1, False)],
)
def test_the_best_length_counts(alpha, score, is_done):
    """Of 2 to 9 tokens: (7/6)^4 = 1.85, (14/6)^4 = 29.6. One that goes on has a log-probability of -2."""
    search = Search(0, 9, [Beginning([6], -2.0, 0), Beginning([7], -3.0, 0)], [Hypothesis([], score, score, True)])
    assert done(search, 1, 1, length_penalty(alpha), None) == is_done
    assert done(search, 1, 1, length_penalty(alpha), 1), "enough answers"
    assert not done(search, 1, 2, length_penalty(alpha), None), "too few answers"


# --- Answers that hold what is forced: the best of all that do, where the beam is wide; always some, where it is not


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
        given |= {"max_new_tokens": limits, "n_best": 3, "forced": Forced(spells, texts)}
        found = beam_search(network, BeamSettings(beam=400), **given)
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
        beam_search(network, BeamSettings(beam=4), prompts=[[BOS]], max_new_tokens=3, forced=Forced(spells, ["aaaa"]))


def test_forced_and_forbidden_is_refused_and_what_forbids_is_named():
    network, spells = small("decoder", 1), spelling("a", "b")
    ban = Named(lambda logits, _: logits.index_fill(1, torch.tensor([SMALL - 1]), -math.inf), "--ban")
    given = {"prompts": [[BOS]], "max_new_tokens": 4, "forced": Forced(spells, ["b"]), "filters": [ban]}
    with pytest.raises(ConfigError, match=r"none of row 0.* force fewer texts, or change or remove --ban\."):
        beam_search(network, BeamSettings(beam=4), **given)


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
        assert {id: forced.held([a, id, b])[0] for id in held} == held
