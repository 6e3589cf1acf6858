"""Texts that follow a grammar: every one matches, every text that matches can come, and bad grammars are told."""

import json
import math
import random
import re

import pytest
import torch

from decode.naive import written
from glassformer.base.errors import ConfigError, DataError
from glassformer.data.config import TokenizerConfig
from glassformer.data.tokenizer import TOKENIZERS
from glassformer.data.tokens.vocabulary import EOS
from glassformer.decode import constraints as constrained
from glassformer.decode import installed
from glassformer.decode.answer import answer
from glassformer.decode.beam import beam_search
from glassformer.decode.choose import chooser
from glassformer.decode.constraints import Constraints
from glassformer.decode.filters import Context
from glassformer.decode.generate import generate
from glassformer.decode.settings import GREEDY, BeamSettings
from glassformer.decode.speculative import Tally, speculative
from train.examples import model

pytest.importorskip("llguidance", reason="llguidance is not installed")

TEXTS = [
    'ok the cat sat {"name": "café", "n": 12}',
    "abc abcd 0123456789 true false null [1, 2]",
    "déjà vu, naïve-x: y_z",
]
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}, "ok": {"type": "boolean"}},
        "required": ["n", "ok"],
        "additionalProperties": False,
    }
)
KINDS = ["bpe", "byte", "character", "unigram", "wordpiece"]


def tokenizer(kind: str):
    return TOKENIZERS[kind].train(TEXTS, TokenizerConfig(kind=kind, vocab_size=540))


def random_text(made, step, seed: int, most: int = 60) -> str | None:
    """A text of random tokens that the filter leaves; none where it did not end."""
    draw, ids = random.Random(seed), []
    while len(ids) < most:
        logits = step(torch.zeros(1, made.vocab_size), Context([0], [[1]], [ids]))[0]
        ids.append(draw.choice([id for id, value in enumerate(logits.tolist()) if value == 0]))
        if ids[-1] == EOS:
            return made.decode(ids)
    return None


def random_ids(made, step, n: int) -> list[int]:
    """So many random tokens that the filter leaves, none the end."""
    draw, ids = random.Random(n), list[int]()
    while len(ids) < n:
        logits = step(torch.zeros(1, made.vocab_size), Context([0], [[1]], [ids]))[0].tolist()
        ids = [*ids, draw.choice([id for id, value in enumerate(logits) if value == 0 and id != EOS])]
    return ids


@pytest.mark.parametrize("kind", KINDS)
def test_every_text_matches(kind):
    made = tokenizer(kind)
    for expression in (r"(cat|dé+j[àa]) [0-9]{2,3}", r"a(b|cd)*x?", r"[^0-9]{3}"):
        step = constrained.matches(made, expression)
        found = [random_text(made, step, seed) for seed in range(12)]
        assert sum(each is not None for each in found) > 8
        assert all(re.fullmatch(expression, each, re.DOTALL) for each in found if each is not None)
        assert len({*found}) > 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_may_come_just_where_the_text_can_still_match(kind):
    """Beside all texts that match, of an expression with few of them."""
    made = tokenizer(kind)
    texts, spelled = [b"cat", b"ca", "caf\u00e9".encode(), b"the cat"], made.spelling()
    step = constrained.matches(made, "ca|cat|café|the cat")
    active: list[list[int]] = [[]]
    reached = set()
    while active:
        ids = active.pop()
        text = b"".join(spelled[id] for id in ids)
        logits = step(torch.zeros(1, made.vocab_size), Context([0], [[1]], [ids]))[0].tolist()
        for id, value in enumerate(logits):
            longer = text + spelled[id]
            may = text in texts if id == EOS else id > EOS and spelled[id] and any(t.startswith(longer) for t in texts)
            assert (value == 0) == bool(may), (ids, id)
            if value == 0 and id == EOS:
                reached.add(text)
            elif value == 0:
                active.append([*ids, id])
    assert reached == {*texts}


@pytest.mark.parametrize("kind", ["bpe", "byte", "character"])
def test_json_fits_its_schema(kind):
    made = tokenizer(kind)
    found = [random_text(made, constrained.fits(made, SCHEMA), seed, 99) for seed in range(12)]
    report = [json.loads(each) for each in found if each is not None]
    assert len(report) > 4
    assert all(each.keys() == {"n", "ok"} and 0 <= each["n"] <= 99 and each["ok"] in (True, False) for each in report)


NESTED = {
    "type": "object",
    "properties": {"a": {"type": "array", "items": {"type": ["integer", "null"]}}, "b": {"const": {"c": [1, "x  y"]}}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


def follows(schema: object, text: str) -> bool:
    """Whether a text may be written and end, under a schema."""
    made = tokenizer("byte")
    step, ids = constrained.fits(made, json.dumps(schema)), [*made.encode(text), EOS]
    steps = (step(torch.zeros(1, made.vocab_size), Context([0], [[1]], [ids[:n]]))[0] for n in range(len(ids)))
    return all(logits[id] == 0 for id, logits in zip(ids, steps, strict=True))


@pytest.mark.parametrize("value", [{"a": [], "b": {"c": [1, "x  y"]}}, {"a": [1, None, -20], "b": {"c": [1, "x  y"]}}])
def test_json_is_compact_and_any_value(value):
    """Blanks have an end, so that no limit is used up by them; those inside a string are of the value."""
    for separators in ((",", ":"), (", ", ": "), (", ", ":")):
        assert follows(NESTED, json.dumps(value, separators=separators))
    plain = json.dumps(value)
    for text in (" " + plain, plain + " ", plain.replace('"a":', '"a" :'), plain.replace('"a":', '"a": ')):
        assert not follows(NESTED, text)
    assert not follows(NESTED, json.dumps(value, indent=1))
    assert follows({"type": "object"}, plain), "also where a schema leaves values open"
    assert not follows({"type": "object"}, plain.replace('"b":', '"b":\n'))


def test_a_schema_may_have_options_of_its_own():
    flexible = {**NESTED, "x-guidance": {"whitespace_flexible": True}}
    spread = json.dumps({"a": [1], "b": {"c": [1, "x  y"]}}, indent=3)
    assert follows(flexible, spread)
    assert not follows({**NESTED, "x-guidance": {"lenient": True}}, spread)
    with pytest.raises(ConfigError, match="A JSON schema must be one that llguidance supports"):
        follows({**NESTED, "x-guidance": 3}, "")


@pytest.mark.parametrize("kept", [0, 1, 8])
def test_with_a_beam_and_with_states_forgotten(monkeypatch, kept):
    """A state that was forgotten is found again, so that a filter is a function of its row."""
    monkeypatch.setattr(constrained, "STATES_A_TEXT", kept)
    made = tokenizer("byte")
    network = model("decoder", vocab=made.vocab_size, max_len=40)
    filters = Constraints(regex="(ab|ba){1,4}").filters(made)
    found = beam_search(
        network, BeamSettings(beam=4), prompts=[[1], [1, 9]], max_new_tokens=12, n_best=4, filters=filters
    )
    for best in found:
        assert len({tuple(each.ids) for each in best}) == 4
        assert all(re.fullmatch("(ab|ba){1,4}", made.decode(each.ids)) for each in best)
        assert all(each.score > -math.inf for each in best)


def test_long_texts_of_several_grammars_leave_few_states():
    """As many as the texts need that are written at a time, in all grammars together; and the same texts as apart."""
    made = tokenizer("byte")
    states, expressions = constrained.States(made, 2), ["(ab|c)*", "[a-d ]*", "(x y?)+"]
    for expression in expressions:
        together = constrained.Constraint(states, constrained.of_regex(expression)).filter
        texts = [random_ids(made, step, 150) for step in (together, constrained.matches(made, expression))]
        assert texts[0] == texts[1]
        assert len(texts[0]) == 150
        assert len(states) <= 2 * constrained.STATES_A_TEXT
    rows, step = [[9] * n for n in range(99)], constrained.matches(made, made.decode([9]) + "*")
    for _ in range(2):
        step(torch.zeros(len(rows), made.vocab_size), Context([*range(99)], [[1]] * 99, rows))
    assert len(step.__self__._states) >= len(rows), "a step of many rows keeps those of all"


@pytest.mark.parametrize("expression", ["aé|b", "aaaé|b", "b|aé?c"])
def test_a_dead_end_ends_no_beam(expression):
    """A vocabulary without é cannot write all that matches: what began so ends, and the others go on."""
    made = TOKENIZERS["character"].train(["abcd"], TokenizerConfig())
    network = model("encoder-decoder", vocab=made.vocab_size, max_len=20)
    biases = {"a": 5.0, "b": 2.0}
    found = answer(
        network, [[7]], search=BeamSettings(beam=4), filters=Constraints(regex=expression, biases=biases).filters(made)
    )
    assert re.fullmatch(expression, made.decode(found[0].ids))
    stuck = Constraints(regex="aé", biases=biases).filters(made)
    with pytest.raises(ConfigError, match="small enough for llguidance; after 1 tokens"):
        answer(network, [[7]], filters=stuck)
    with pytest.raises(ConfigError, match=r"in row 0 .* a step without one, as Constraints\.regex forbids them"):
        answer(network, [[7]], search=BeamSettings(beam=4), filters=stuck)


@pytest.mark.parametrize("guesser", ["draft", "lookup"])
@pytest.mark.parametrize("expression", ["[0-9]+", "(ab|ba)(c|d)*", "(abc? ){2,9}"])
def test_guesses_that_leave_the_grammar_change_nothing(expression, guesser):
    made = tokenizer("byte")
    network, draft = (model("decoder", vocab=made.vocab_size, seed=seed, max_len=40) for seed in (1, 2))
    filters = Constraints(regex=expression).filters(made)
    given = {"prompts": [[1, *made.encode(each)] for each in ("abab", "ab ab", "00120")], "max_new_tokens": 12}
    guess, tally = {"draft": draft} if guesser == "draft" else {"lookup": 1}, Tally()
    plain = written(generate(network, choose=chooser(GREEDY, filters), **given), 3)
    assert written(speculative(network, **guess, filters=filters, tally=tally, **given), 3) == plain
    assert tally.guessed > 0


def test_without_the_library_it_says_what_to_install(monkeypatch):
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(installed, "import_module", missing)
    with pytest.raises(ConfigError, match=r"llguidance, which is not installed\. Install it: pip install '"):
        constrained.matches(tokenizer("byte"), "a")


@pytest.mark.parametrize(("made", "error", "message"), [
    (lambda: constrained.matches(tokenizer("byte"), "a(("), ConfigError, "A regular expression must be one.*unclosed"),
    (lambda: constrained.matches(tokenizer("word"), "a"), ConfigError, "this one has whole words only"),
    (lambda: constrained.fits(tokenizer("byte"), "{"), DataError, "is not JSON"),
    (lambda: constrained.fits(tokenizer("byte"), "[1]"), DataError, r"must be a JSON object; got '\[1\]'"),
    (lambda: constrained.fits(tokenizer("byte"), "[" * 10**5), DataError, "is not JSON"),
    (lambda: constrained.fits(tokenizer("byte"), '{"type": "objct"}'), ConfigError,
     "JSON schema: Invalid type: objct'"),
    (lambda: Constraints(regex="a", schema="{}"), ConfigError, "got both"),
], ids=["regex", "words", "no json", "no object", "deep", "no type", "both"])  # fmt: skip
def test_mistakes(made, error, message):
    with pytest.raises(error, match=message):
        made()


def test_logits_of_another_vocabulary():
    step = constrained.matches(tokenizer("byte"), "a")
    with pytest.raises(ConfigError, match="262 ids; got 9"):
        step(torch.zeros(1, 9), Context([0], [[1]], [[]]))


@pytest.mark.parametrize(("make", "text"), [
    (constrained.matches, "a?" * 500 + "a" * 500),
    (constrained.matches, "((a{1,100}){1,100}){1,100}b"),
    (constrained.fits,
     json.dumps({"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(700)}})),
], ids=["optional", "nested", "properties"])  # fmt: skip
def test_what_is_too_large_to_be_followed_is_refused_and_ends_nothing(make, text):
    """The library would let the text end there, whole or not."""
    with pytest.raises(ConfigError, match="small enough for llguidance; after"):
        first_of(tokenizer("byte"), make, text, 50)


def first_of(made, make, text: str, most: int) -> list[int]:
    """The first token each time that is not the end."""
    step, ids = make(made, text), list[int]()
    while len(ids) < most:
        logits = step(torch.zeros(1, made.vocab_size), Context([0], [[1]], [ids]))[0].tolist()
        ids.append(next(id for id, value in enumerate(logits) if value == 0 and id != EOS))
    return ids
