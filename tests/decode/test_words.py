"""Constraints: what is banned is nowhere in the text, however its tokens are cut; what begins it, and biases."""

import math
import random

import pytest
import torch

from data.tokens.published_examples import json_of
from glassformer.base.errors import ConfigError, DataError
from glassformer.data.config import TokenizerConfig
from glassformer.data.tokenizer import TOKENIZERS
from glassformer.data.tokens.exported import adopt
from glassformer.data.tokens.vocabulary import BOS, EOS, SPECIALS, UNK
from glassformer.decode.answer import answer, answers
from glassformer.decode.beam import beam_search
from glassformer.decode.choose import chooser, refuse_certain
from glassformer.decode.constraints import Constraints, banned_texts, begins_with, can_spell, matches
from glassformer.decode.filters import Context, banned
from glassformer.decode.generate import generate
from glassformer.decode.settings import GREEDY, BeamSettings, Sampling
from glassformer.decode.stream import TextStream, check_stops
from train.examples import model, sequences

TEXTS = ["the cat sat on the mat, the cats scattered", "a cation is no cat; naïve déjà vu", "concatenate the caterer"]


def tokenizer(kind: str):
    return TOKENIZERS[kind].train(TEXTS, TokenizerConfig(kind=kind, vocab_size=540))


@pytest.mark.parametrize("kind", sorted(TOKENIZERS))
def test_the_bytes_of_the_ids_are_the_text(kind):
    """So a text is the bytes of its ids put together; of words with the space before the first one."""
    made = tokenizer(kind)
    spelled = made.spelling()
    assert len(spelled) == made.vocab_size
    assert spelled[: len(SPECIALS)] == [b""] * len(SPECIALS)
    for text in TEXTS:
        whole = b"".join(spelled[id] for id in made.encode(text)).decode()
        assert whole == (" " + text if kind == "word" else text)


@pytest.mark.parametrize("kind", ["bpe", "byte", "character", "unigram"])
def test_what_is_banned_is_nowhere_in_the_text(kind):
    """Random texts over all tokens: a token is forbidden just where it would complete what is banned."""
    made, draw = tokenizer(kind), random.Random(1)
    words, spelled = ["cat", "the", "ï", " s"], made.spelling()
    spelled[UNK] = b"<unk>"
    step = banned_texts(made, words)
    refused = 0
    for _ in range(150):
        prompt = [draw.randrange(len(SPECIALS), made.vocab_size) for _ in range(2)]
        if any(word in made.decode(prompt) for word in words):
            continue
        ids: list[int] = []
        for _ in range(12):
            logits = step(torch.zeros(1, made.vocab_size), Context([0], [prompt], [ids]))[0]
            before = b"".join(spelled[id] for id in (*prompt, *ids))
            for id, value in enumerate(logits.tolist()):
                completes = any(word.encode() in before + spelled[id] for word in words)
                assert (value != 0) == completes
                refused += completes
            ids.append(draw.choice([id for id, value in enumerate(logits.tolist()) if value == 0]))
    assert refused > 10


@pytest.mark.parametrize("kind", ["character", "word"])
def test_an_unknown_part_is_banned_as_it_is_shown(kind):
    """Answers show <unk>: it can be banned, and what stands around it is not one text."""
    made = tokenizer(kind)
    step = banned_texts(made, ["<unk>", "thecat"])
    assert step(torch.zeros(1, made.vocab_size), Context([0], [[BOS]], [[]]))[0].isneginf().nonzero().tolist() == [
        [UNK]
    ]
    [*parted, last] = [*made.encode("the")[:1], UNK, made.encode("cat")[-1]]
    again = banned_texts(made, [made.decode([parted[0], last])])
    assert again(torch.zeros(1, made.vocab_size), Context([0], [[BOS]], [parted]))[0, last] == 0


HALF = "x\udcff"
"""What an argument that is not UTF-8 comes as."""


@pytest.mark.parametrize("made", [
    lambda: Constraints(banned=[HALF]),
    lambda: Constraints(forced=[HALF]),
    lambda: Constraints(begin=HALF),
    lambda: Constraints(biases={HALF: 1.0}),
    lambda: Constraints(regex=HALF),
    lambda: Constraints(schema=HALF),
    lambda: banned_texts(tokenizer("character"), [HALF]),
    lambda: matches(tokenizer("character"), HALF),
    lambda: check_stops([HALF]),
], ids=["banned", "forced", "begin", "bias", "regex", "schema", "filter", "grammar", "stop"])  # fmt: skip
def test_half_a_character_is_no_text(made):
    with pytest.raises(DataError, match=r"must be Unicode .* character 2 is the lone surrogate U\+DCFF"):
        made()


def test_a_text_begins_as_it_is_told():
    network, sources = model(seed=3), sequences([3, 1, 4])
    for search in (BeamSettings(), BeamSettings(beam=3)):
        for each in answer(network, sources, max_new_tokens=5, search=search, filters=[begins_with([9, 7])]):
            assert each.ids[:2] == [9, 7]
    plain = answer(network, sources, max_new_tokens=5, filters=[begins_with([9, 7])])
    for source, each in zip(sources, plain, strict=True):
        steps = generate(network, sources=[source], prompts=[[1, 9, 7]], max_new_tokens=3)
        rest = [step.tokens[0] for step in steps]
        assert each.ids[2:] == [id for id in rest if id != EOS]


def test_biases_and_their_order():
    made = tokenizer("character")
    filters = Constraints(begin="ca", biases={"t": 50.0}).filters(made)
    choose = chooser(Sampling(temperature=1.0), filters)
    ids: list[int] = []
    for _ in range(4):
        ids.append(int(choose(torch.zeros(1, made.vocab_size), Context([0], [[1]], [ids]))))
    assert made.decode(ids) == "catt"


def test_a_beam_of_which_nothing_may_go_on_is_refused():
    network, (source,) = model(seed=3), sequences([3])
    everything = banned([[id] for id in range(13)])
    with pytest.raises(ConfigError, match="all hypotheses came to a step without one"):
        beam_search(network, BeamSettings(beam=2), sources=[source], max_new_tokens=5, filters=[everything])
    found = answers(network, [source], n_best=2, max_new_tokens=3, search=BeamSettings(beam=2), filters=[banned([[7]])])
    assert all(7 not in each.ids and abs(each.score) < 99 for each in found[0])


@pytest.mark.parametrize(("made", "message"), [
    (lambda: Constraints([""]), "A banned text must have at least one character"),
    (lambda: Constraints(begin="Ω").filters(tokenizer("character")), "parts of 'Ω' are not"),
    (lambda: Constraints(biases={"cat": 1.0}).filters(tokenizer("character")), "is for one token; 'cat' is 3 tokens"),
], ids=["empty", "unknown", "several tokens"])  # fmt: skip
def test_wishes_that_cannot_be(made, message):
    with pytest.raises(ConfigError, match=message):
        made()


def test_texts_are_compared_as_they_are_encoded():
    """By a tokenizer that composes characters: with an accent of its own, é is banned, forced and stops, too."""
    made, apart, whole = adopt(json_of("GPT-NeoX"), {}).tokenizer, "cafe\u0301", "caf\u00e9"
    stream = TextStream(made, [apart])
    assert "".join(map(stream.add, made.encode(f"un {whole} noir"))) == "un "
    assert stream.stopped
    context = Context([0], [made.encode(f"un {whole}")[:-1]], [[]])
    free = torch.zeros(1, made.vocab_size)
    left = banned_texts(made, [apart])(free, context)
    assert torch.equal(left, banned_texts(made, [whole])(free, context))
    assert left.isneginf().any()
    assert [*Constraints(forced=[apart]).held(made).texts] == [whole]


@pytest.mark.parametrize(
    ("text", "can"),
    [("abc", True), ("bcbc", True), ("bcabcab", True), ("bb", True), ("d", False), ("bd", False), ("ac", False)],
)
def test_what_tokens_can_spell_by_hand(text, can):
    """Of the tokens ab, cab and bc, one after another: the text may begin and end inside of one."""
    assert can_spell([b"", b"ab", b"cab", b"bc"], text) is can


# --- Settings that together forbid every token: they are named, and no others; and early, where it is certain


TEXT = "abcdz"
MADE = TOKENIZERS["character"].train([TEXT], TokenizerConfig())


def refusal(constraints: Constraints, written: str, sampling: Sampling = GREEDY) -> str:
    """The error of the second of two rows; the first, still empty, may go on."""
    ids = [list[int](), MADE.encode(written)]
    logits, context = torch.zeros(2, MADE.vocab_size), Context([3, 8], [[1], [1]], ids)
    with pytest.raises(ConfigError) as error:
        chooser(sampling, constraints.filters(MADE))(logits, context)
    return str(error.value)


@pytest.mark.parametrize(("constraints", "written", "sampling", "names"), [
    (Constraints(banned=["c"], begin="zc"), "z", {}, "Constraints.banned and Constraints.begin"),
    (Constraints(banned=["d"], begin="zzc"), "zz", {"no_repeat_ngram": 1}, None),
    (Constraints(banned=["d"], begin="zzcc"), "zzc", {"no_repeat_ngram": 1}, "Constraints.begin and no_repeat_ngram"),
    (Constraints(biases={"c": -math.inf, "d": 2.0}, begin="zc"), "z", {}, "Constraints.biases and Constraints.begin"),
    (Constraints(biases={"d": 2.0}, banned=["c"], begin="zc"), "z", {"top_k": 2},
     "Constraints.banned and Constraints.begin"),
])  # fmt: skip
def test_the_settings_that_forbid_are_named_and_no_others(constraints, written, sampling, names):
    chosen = Sampling(**sampling)
    if names is None:
        filters = constraints.filters(MADE)
        context = Context([8], [[1]], [MADE.encode(written)])
        assert chooser(chosen, filters)(torch.zeros(1, MADE.vocab_size), context).tolist() == MADE.encode("c")
    else:
        assert f" tokens of row 8 (counted from 0) all are forbidden by {names}. Change" in refusal(
            constraints, written, chosen
        )


def test_a_grammar_is_named():
    pytest.importorskip("llguidance", reason="llguidance is not installed")
    both = Constraints(regex="zabc|zd", banned=["b"])
    assert "forbidden by Constraints.banned and Constraints.regex. Change or remove one of them." in refusal(both, "za")
    longer = refusal(Constraints(regex="z(ab)?"), "zab", Sampling(min_new_tokens=9, no_repeat_ngram=9))
    assert "forbidden by Constraints.regex and min_new_tokens. Change or remove one of them." in longer
    stuck = Constraints(regex="zabc", banned=["b"], biases={"d": 1.0}).filters(MADE)
    network = model("encoder-decoder", vocab=MADE.vocab_size, max_len=20)
    with pytest.raises(ConfigError, match=r"as Constraints\.banned and Constraints\.regex forbid them\. Raise beam"):
        answer(network, [[7]], search=BeamSettings(beam=2), filters=stuck)


def test_filters_without_names_and_a_model_that_allows_nothing():
    step, context = banned([[id] for id in range(MADE.vocab_size)]), Context([0], [[1]], [[]])
    with pytest.raises(ConfigError, match=r"forbidden by the filters\. Change or remove it"):
        chooser(GREEDY, [step])(torch.zeros(1, MADE.vocab_size), context)
    with pytest.raises(ConfigError, match=r"the model, whose logits are all -inf\. Check its weights"):
        chooser(GREEDY)(torch.full((1, MADE.vocab_size), -math.inf), context)


def test_what_is_certain_is_refused_and_nothing_else():
    """As far as each next token is the only one; not beyond the limit, and not where a model could go elsewhere."""

    def follow(constraints: Constraints, most: int = 9, prompt: str = "d") -> None:
        refuse_certain(constraints.filters(MADE), MADE.vocab_size, MADE.encode(prompt), most)

    contrary = Constraints(banned=["ab"], begin="zab")
    with pytest.raises(ConfigError, match="after 2 tokens of row 0"):
        follow(contrary)
    follow(contrary, most=2)
    follow(Constraints(banned=["dz"], begin="zab"), prompt="c")
    with pytest.raises(ConfigError, match="after 0 tokens of row 0"):
        follow(Constraints(banned=["dz"], begin="zab"))
    follow(Constraints(banned=["c"], begin="zab"))
    pytest.importorskip("llguidance", reason="llguidance is not installed")
    with pytest.raises(ConfigError, match="after 1 tokens of row 0"):
        follow(Constraints(regex="abc", banned=["b"]))
    follow(Constraints(regex="ab"))
    follow(Constraints(regex="a(bc|d)", banned=["c"]))
