"""`glassformer generate`: which prompt, which settings, and how texts appear, on a made-up writer and on a real run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.conftest import Input
from glassformer.cli.generate import in_order
from glassformer.cli.main import main
from glassformer.decode.stream import Piece


class Out:
    """Standard output as bytes, and how often it was flushed."""

    def __init__(self) -> None:
        self.buffer = self
        self.data, self.flushed = b"", 0

    def write(self, data: bytes) -> None:
        self.data += data

    def flush(self) -> None:
        self.flushed += 1


def test_a_prompt_and_its_text(run, writing, a_run):
    answer = run("generate", "runs/old", "--prompt", "abc")
    assert (answer.code, answer.out, answer.err) == (0, "abccba\n", "")
    assert writing.requested == (["abc"], 1, [])
    assert not writing.crop
    assert run("generate", "runs/old", "--prompt", "abc", "--no-prompt", "--crop").out == "cba\n"
    assert writing.crop
    assert run("generate", "runs/old", "--prompt=").out == "\n"
    writing.continues = False
    assert run("generate", "runs/old", "--prompt", "abc").out == "cba\n"


def test_texts_stand_one_after_the_other(run, writing, a_run):
    assert run("generate", "runs/old", "--prompt", "ab", "--n", "3").out == "abba\n---\nabba1\n---\nabba2\n"
    assert run("generate", "runs/old", "--prompt", "\na", "--n", "2", "--no-prompt").out == "a\n---\na\n1\n"


def test_text_is_shown_as_it_comes(writing, a_run, monkeypatch):
    out = Out()
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["generate", "runs/old", "--prompt", "äöü"]) == 0
    assert out.data.decode() == "äöüüöä\n"
    assert out.flushed >= 4


def test_all_of_standard_input_is_one_prompt(run, refused, writing, a_run, monkeypatch):
    for data, prompt in ((b"\xef\xbb\xbfa\n\nb\r\n", "a\n\nb"), (b"", ""), (b"x", "x"), (b"x\n\n", "x\n")):
        assert run("generate", "runs/old", stdin=data).code == 0
        assert writing.requested == ([prompt], 1, [])
    monkeypatch.setattr(sys, "stdin", Input(b"", terminal=True))
    assert run("generate", "runs/old").code == 0
    assert writing.requested == ([""], 1, [])
    for data, message in ((b"gr\xfcn", "byte 3"), (b"a\0b", "NUL"), (b"a" * (2**24 + 2), "at most 16,777,216 bytes")):
        assert message in refused("generate", "runs/old", stdin=data)


def test_a_file_holds_one_prompt_a_line(run, refused, writing, a_run):
    Path("prompts.txt").write_text("ab\nc\n", "utf-8")
    answer = run(
        "generate", "runs/old", "--file", "prompts.txt", "--n", "2", "--no-prompt", "--stop", "x", "--stop=y z"
    )
    assert writing.requested == (["ab", "c"], 2, ["x", "y z"])
    assert answer.out == "ba\n---\nba1\n---\nc\n---\nc1\n"
    assert "Give only one of them" in refused("generate", "runs/old", "--file", "prompts.txt", "--prompt", "a")
    assert "there is no such file" in refused("generate", "runs/old", "--file", "none.txt")


def test_several_lines_are_one_source_and_that_is_said(run, writing, a_run):
    """Only where an answer to each line may have been wanted: of lines on standard input, with an encoder."""
    note = "All lines of standard input are one source; glassformer translate answers each line.\n"
    for continues, data, result in ((False, b"a\nb\n", note), (False, b"a\n", ""), (True, b"a\nb\n", "")):
        writing.continues = continues
        assert run("generate", "runs/old", stdin=data).err == result
    writing.continues = False
    assert run("generate", "runs/old", "--prompt", "a\nb").err == ""


def test_json(run, writing, a_run):
    lines = run("generate", "runs/old", "--prompt", "é\n", "--n", "3", "--json").out.splitlines()
    assert [json.loads(line) for line in lines] == [
        {"prompt": "é\n", "text": "\né", "tokens": 3, "end": "eos"},
        {"prompt": "é\n", "text": "\né1", "tokens": 4, "end": "max_new_tokens"},
        {"prompt": "é\n", "text": "\né2", "tokens": 4, "end": "stop"},
    ]


def test_what_the_vocabulary_lacks_is_said(run, writing, a_run):
    assert run("generate", "runs/old", "--prompt", "a?").err == "lacked\n"
    assert run("generate", "runs/old", "--prompt", "a").err == ""


def test_a_length_that_the_model_was_not_trained_on_is_said(run, writing, a_run):
    answer = run("generate", "runs/old", "--prompt", "a" * 31, "--json")
    assert answer.err == "prompt [1] untrained\n"
    assert json.loads(answer.out)["untrained_length"] == {"tokens": 31, "shortest": 1, "longest": 30}


@pytest.mark.parametrize(
    ("of_run", "words", "expected"),
    [
        ({}, (), {"temperature": 1.0}),
        ({}, ("--temperature", "0.5", "--top-k=9"), {"temperature": 0.5, "top_k": 9}),
        ({}, ("--decode.temperature", "0.5", "--decode.typical-p", "0.9"), {"temperature": 0.5, "typical_p": 0.9}),
        ({}, ("--greedy",), {"temperature": 0.0}),
        ({"temperature": 0.7, "top_p": 0.9}, (), {"temperature": 0.7, "top_p": 0.9}),
        ({"temperature": 0.7, "top_p": 0.9}, ("--greedy",), {"temperature": 0.0}),
        ({"temperature": 0.7, "top_p": 0.9}, ("--top-p", "1"), {"temperature": 0.7}),
        ({"max_new_tokens": 5}, ("--seed", "9"), {"temperature": 1.0, "seed": 9, "max_new_tokens": 5}),
        ({}, ("--no-repeat-ngram", "3", "--min-p=0.1", "--repetition-penalty", "1.2", "--max-new-tokens", "7"),
         {"temperature": 1.0, "no_repeat_ngram": 3, "min_p": 0.1, "repetition_penalty": 1.2, "max_new_tokens": 7}),
    ],
    ids=[str(i) for i in range(9)],
)  # fmt: skip
def test_settings(writes_as, of_run, words, expected):
    writes_as(of_run, words, expected)


@pytest.mark.parametrize(("words", "message"), [
    (("--temperature", "-1"),
     "--temperature must be at least 0 and finite; got -1. Try --temperature 0.8; 0 is greedy"),
    (("--temperature", "nan"), "--temperature must be at least 0 and finite; got nan"),
    (("--temperature", "0", "--top-k", "3"), "--top-k selects the tokens to sample from, but --temperature 0"),
    (("--top-p", "0"), "--top-p must be above 0 and at most 1; got 0. Try --top-p 0.9; 1 keeps all tokens."),
    (("--top-k", "x"), "--top-k takes a whole number or none; got 'x'"),
    (("--n", "1000000000"), "--n takes a whole number from 1 to 100000"),
    (("--n", "0"), "got '0'"),
    (("--max-new-tokens", "0"), "--max-new-tokens must be at least 1; got 0. Try --max-new-tokens 100, or"),
    (("--seed", "-1"), "--seed must be at least 0; got -1. Try --seed 0."),
    (("--greedy", "--temperature", "1"), "not sample; --temperature would have no effect. Give only one"),
    (("--greedy", "--min-p", "0.1"), "--greedy takes the most probable token and does not sample; --min-p"),
    (("--greedy", "--seed", "3"), "Greedy decoding draws nothing, so --seed 3 would have no effect. Remove --seed"),
    (("--temperature", "0", "--decode.seed", "3"), "so --decode.seed 3 would have no effect. Remove --decode.seed"),
    (("--contrastive-alpha", "0.5", "--seed", "3"), "Contrastive search draws nothing, so --seed 3 would have"),
    (("--greedy", "--n", "3"), "Greedy decoding draws nothing and writes the same text each time; got --n 3"),
    (("--temperature", "0", "--n", "2"), "Greedy decoding draws nothing"),
    (("--contrastive-alpha", "0.6", "--n", "2"), "Contrastive search draws nothing"),
    (("--top-p", "90"), "--top-p must be above 0 and at most 1; got 90. Try --top-p 0.9; 1 keeps all tokens."),
    (("--repetition-penalty", "0"), "Try --repetition-penalty 1.2; 1 turns it off."),
    (("--no-repeat-ngram", "0"), "Try --no-repeat-ngram 3, or leave it out"),
    (("--top-k", "3", "--decode.top-k", "4"), "--top-k and --decode.top-k are the same setting"),
    (("--bias", "x"), "--bias takes TEXT=X, a token and a number (-inf: never); got 'x'. Try --bias 'x=-2.5'."),
    (("--bias", "x=nan"), "--bias takes TEXT=X"),
    (("--bias", "x=inf"), "--bias takes TEXT=X"),
    (("--bias", "=3"), "--bias takes TEXT=X"),
    (("--decode.compile", "--decode.cache", "int8"), "Compiled steps need an exact KV cache; got --decode.compile"),
    (("--topk", "3"), "Did you mean '--top-k'?"),
], ids=[str(i) for i in range(27)])  # fmt: skip
def test_mistakes(refused, writing, a_run, words, message):
    assert message in refused("generate", "runs/old", "--prompt", "a", *words)


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (ValueError("bug"), None)])
def test_what_was_written_stays_and_ends_its_line(run, capsys, writing, a_run, error, code):
    writing.fails, writing.after = error, 3
    if code is None:
        with pytest.raises(ValueError, match="bug"):
            main(["generate", "runs/old", "--prompt", "abcdef"])
        assert capsys.readouterr().out == "abcdeffe\n"
    else:
        answer = run("generate", "runs/old", "--prompt", "abcdef")
        assert (answer.code, answer.out, answer.err) == (130, "abcdeffe\n", "glassformer: Stopped.\n")


def test_rows_come_in_turn():
    order = [(1, "a"), (0, "b"), (2, "c"), (2, "."), (1, "d"), (0, "."), (1, "."), (3, ".")]
    pieces = [Piece(row, text, 1, "eos" if text == "." else "") for row, text in order]
    result = ["".join(piece.text for piece in in_order(pieces[:n])) for n in range(len(pieces) + 1)]
    assert result == ["", "", "b", "b", "b", "b", "b.ad", "b.ad.c.", "b.ad.c.."]


def test_answers_of_an_encoder_decoder(trained, run, refused):
    words = ("generate", str(trained), "--prompt", "a b c d")
    texts = run(*words, "--n", "4", "--seed", "3").out
    assert texts == run(*words, "--n", "4", "--seed", "3", "--decode.batch-size", "3").out
    assert texts != run(*words, "--n", "4", "--seed", "4").out
    assert run(*words, "--seed", "3").out == texts[: texts.index("---")]
    assert run(*words, "--greedy").out == run("translate", str(trained), stdin=b"a b c d\n").out
    long = json.loads(run(*words, "--max-new-tokens", "2", "--json", "--decode.min-new-tokens", "2").out)
    assert (long["tokens"], long["end"]) == (2, "max_new_tokens")
    text = json.loads(run(*words, "--begin", "c d", "--ban", "a", "--bias", "b=9", "--json").out)["text"]
    assert text.startswith("c d b")
    assert "a" not in text
    assert "--bias takes TEXT=X" in refused(*words, "--bias", "b")
    greedy = run(*words, "--greedy")
    for guesser in (("--lookup", "2"), ("--draft", str(trained), "--guesses", "3")):
        guessed = run(*words, "--greedy", *guesser)
        assert (guessed.out, "guesses" in guessed.err, "guesses" in greedy.err) == (greedy.out, True, False)
    assert "Give exactly one of them" in refused(*words, "--draft", str(trained), "--lookup", "2")
    assert "Give exactly one of them" in refused(*words, "--guesses", "2")
    assert "--lookup takes a whole number from 1 to 1000" in refused(*words, "--lookup", str(10**9))
    assert "nowhere is not a run folder" in refused(*words, "--draft", "nowhere")
    assert "Contrastive search cannot use guesses" in refused(*words, "--lookup", "2", "--contrastive-alpha", "0.6")
    ahead = (*words, "--contrastive-alpha", "0.6", "--top-k", "3")
    assert run(*ahead).out == run(*ahead).out
    assert "Contrastive search does not sample" in refused(*ahead, "--temperature", "1")
    assert "--greedy" in refused(*ahead, "--greedy")
    assert "Beam search and contrastive search cannot be combined" in refused(
        "translate", str(trained), "--beam", "2", "--decode.contrastive-alpha", "0.5"
    )
    for nothing in ("", " \t"):
        assert "a source; prompt 1 is empty" in refused("generate", str(trained), "--prompt", nothing)


def test_who_reads_no_further_ends_it_quietly(trained):
    """The reader of a pipe that goes away is no error to be told of."""
    command = [sys.executable, "-m", "glassformer", "generate", str(trained), "--prompt", "a b", "--n", "3"]
    ours, theirs = os.pipe()
    os.close(ours)
    answer = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, text=True, check=False)
    os.close(theirs)
    assert answer.returncode == 141
    assert all(line.startswith(("Compiling ", "decoding: ")) for line in answer.stderr.splitlines())
