"""`glassformer generate --beam`: the best texts of each prompt; which settings it takes, refuses and turns off."""

import json
from pathlib import Path

import pytest

from glassformer.cli.arguments import read_arguments
from glassformer.cli.generate import note_of_cut
from glassformer.cli.verbs import VERBS
from glassformer.decode.answer import CONTEXTS
from glassformer.decode.stream import Piece
from glassformer.train.recipe import Recipe, dumps_recipe, override

OF_RUN = {"beam": 6, "length_penalty": 1.5, "temperature": 0.0}
NEEDING = {"beam_groups": 3, "coverage_penalty": 0.2, "early_stop": True}


@pytest.mark.parametrize(("of_run", "words", "expected"), [
    ({}, ("--beam", "4"), {"beam": 4}),
    ({}, ("--decode.beam", "4", "--decode.early-stop"), {"beam": 4, "early_stop": True}),
    ({"temperature": 0.7, "top_p": 0.9, "min_new_tokens": 2}, ("--beam", "4"), {"beam": 4, "min_new_tokens": 2}),
    ({"contrastive_alpha": 0.5}, ("--beam", "4"), {"beam": 4}),
    (OF_RUN, ("--beam", "4"), {"beam": 4, "length_penalty": 1.5}),
    (OF_RUN, ("--beam", "1"), {"length_penalty": 1.5}),
    (OF_RUN | NEEDING, ("--beam", "1"), {"length_penalty": 1.5}),
    (OF_RUN | NEEDING, ("--beam", "9"), {"beam": 9, "length_penalty": 1.5, **NEEDING}),
    (OF_RUN | NEEDING, ("--beam", "4", "--decode.beam-groups", "2"),
     {**OF_RUN, **NEEDING, "beam": 4, "beam_groups": 2}),
    (OF_RUN, (), {"temperature": 1.0}),
    (OF_RUN, ("--greedy",), {}),
    ({**OF_RUN, "beam_groups": 3, "early_stop": True}, (), {"temperature": 1.0}),
], ids=[str(i) for i in range(12)])  # fmt: skip
def test_settings(writes_as, of_run, words, expected):
    """Only a flag asks for a beam; then the recipe's other settings of a beam apply, and nothing is drawn."""
    writes_as(of_run, words, expected)


@pytest.mark.parametrize(("words", "message"), [
    (("--beam", "4", "--temperature", "1"), "--beam searches for the most probable text and does not sample; --"),
    (("--decode.beam", "4", "--top-k", "3"), "--decode.beam searches for the most probable text and does not"),
    (("--beam", "4", "--contrastive-alpha", "0.5"), "--contrastive-alpha chooses in another way. Give only one"),
    (("--beam", "4", "--greedy"), "--greedy takes the most probable token at each step; --beam searches for"),
    (("--beam", "4", "--seed", "3"), "Beam search draws nothing, so --seed 3 would have no effect"),
    (("--beam", "4", "--decode.beam", "4"), "--beam and --decode.beam are the same setting. Give only one of them"),
    (("--beam", "4", "--n", "5"), "--n can be at most the beam width; got 5 with a beam of 4. Give --beam 5 or"),
    (("--beam", "1", "--n", "2"), "Greedy decoding draws nothing and writes the same text each time; got --n 2"),
    (("--greedy", "--n", "3"), "--beam 3 searches for the 3 most probable texts"),
    (("--beam", "0"), "--beam must be at least 1; got 0"),
    (("--beam", "x"), "--beam takes a whole number; got 'x'"),
    (("--beam", "4", "--decode.beam-groups", "3"), "--decode.beam-groups must divide --beam evenly"),
    (("--decode.length-penalty", "1"), "ranks the answers of a beam, but --beam is 1, so 1.0 would have no effect"),
    (("--decode.early-stop",), "--decode.early-stop needs beam-search decoding; got --beam 1. Try --beam 4"),
    (("--beam", "4", "--decode.diversity", "1"), "there is only one, so 1.0 would have no effect"),
], ids=[str(i) for i in range(15)])  # fmt: skip
def test_mistakes(refused, writing, a_run, words, message):
    assert message in refused("generate", "runs/old", "--prompt", "a", *words)


@pytest.mark.parametrize("verb", ["generate", "translate"])
def test_groups_that_the_recipe_has_are_told_of(refused, writing, verb):
    """Nobody typed them; so it is said where they come from, and how to change them."""
    recipe = override(Recipe("one"), {f"decode.{name}": value for name, value in (OF_RUN | NEEDING).items()})
    Path("runs/one").mkdir(parents=True)
    Path("runs/one/recipe.toml").write_text(dumps_recipe(recipe))
    assert (
        "--decode.beam-groups must divide --beam evenly; got --beam 5, and the recipe of this run has 3 groups. Set "
        "--decode.beam-groups 1, or try --beam 3."
    ) in refused(verb, "runs/one", *["--prompt", "a"] * (verb == "generate"), "--beam", "5")


def test_texts_that_the_context_ends_are_told_of(run, writing, a_run):
    Path("prompts.txt").write_text("ab\nc\nd\n", "utf-8")
    words = ("generate", "runs/old", "--file", "prompts.txt", "--beam", "3", "--n", "2")
    assert run(*words).err == ""
    writing.full = {1, 4, 5}
    message = (
        "A beam search reads a prompt and its text together. {} tokens, as the prompt leaves no more of the context. "
    )
    message += "For longer texts shorten the prompt, or give --max-new-tokens with --crop.\n"
    assert run(*words).err == message.format("3 of 6 texts behind prompt 1, 3 ended at 2 to 4")
    writing.full = {0}
    assert run("generate", "runs/old", "--prompt", "ab", "--beam", "3").err == message.format("The text ended at 3")


def test_what_the_context_cut_is_not_advised_to_be_longer():
    """A larger --max-new-tokens would be refused."""
    given = read_arguments("generate", VERBS["generate"], ["run", "--json-schema", "s.json"])
    pieces = [Piece(row, "a", 5, "max_new_tokens", whole, limit=CONTEXTS) for row, whole in ((0, False), (1, True))]
    note = "A text matches --json-schema only when it is complete; 1 of 2 texts (1) was cut before that, at 5 tokens."
    assert note_of_cut(pieces, given, continues=True) == note
    pieces += [pieces[0]._replace(row=2, limit="max_new_tokens")]
    assert note_of_cut(pieces, given, continues=True).endswith(" Raise --max-new-tokens.")


def test_texts_that_were_not_found_shift_no_other(run, writing, a_run):
    """Each stands behind its own prompt, with a line between two; and it is said where there are fewer."""
    Path("prompts.txt").write_text("ab\nc\nd\n", "utf-8")
    words = ("generate", "runs/old", "--file", "prompts.txt", "--beam", "3", "--n", "3")
    assert run(*words).err == ""
    writing.not_found = {1, 2, 8}
    answer = run(*words)
    assert answer.out == "abba\n---\ncc\n---\ncc1\n---\ncc2\n---\ndd\n---\ndd1\n"
    message = "The search found fewer than 3 texts that differ{}. Raise --beam or lower --n: there may be no more.\n"
    assert answer.err == message.format(" behind prompt 1, 3")
    prompts = [json.loads(line)["prompt"] for line in run(*words, "--json").out.splitlines()]
    assert prompts == ["ab", "c", "c", "c", "d", "d"]
    assert run("generate", "runs/old", "--prompt", "ab", "--beam", "3", "--n", "3").err == message.format("")


def test_an_encoder_decoder_answers_as_in_translate(trained, run, refused, tmp_path):
    """Texts, order and figures are those of `translate --n-best`, however many are searched for together."""
    (tmp_path / "in").write_text("a b c d\nb a\n")
    search = ("--beam", "4", "--decode.length-penalty", "1.2")
    words = ("generate", str(trained), "--file", str(tmp_path / "in"), *search, "--n", "3")
    output = run("translate", str(trained), *search, "--n-best", "3", "--json", stdin=b"a b c d\nb a\n").out
    answers = [each for line in output.splitlines() for each in json.loads(line)["answers"]]
    texts = [json.loads(line) for line in run(*words, "--json").out.splitlines()]
    assert [each["text"] for each in texts] == [each["text"] for each in answers]
    for each, answer in zip(texts, answers, strict=True):
        assert each["score"] == pytest.approx(answer["score"], abs=1e-6)
        assert each["log_probability"] == pytest.approx(answer["log_probability"], abs=1e-6)
        assert each["end"] == ("eos" if answer["complete"] else "max_new_tokens")
    assert run(*words).out == "\n---\n".join(each["text"] for each in texts) + "\n"
    assert run(*words, "--decode.batch-size", "1").out == run(*words).out
    forced = run("generate", str(trained), "--prompt", "a b c d", "--beam", "3", "--force", "d c").out
    assert "d c" in forced
    unsearched = ("generate", str(trained), "--prompt", "a", "--force", "b")
    assert "Forced texts need a beam of at least 2" in refused(*unsearched)
    assert "Remove the guesses, or set --beam 1" in refused(*words, "--lookup", "2")
