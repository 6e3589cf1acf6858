"""What a command says of the library's choices and of slow work: on standard error, and never in what it answers."""

import json
import logging
import shutil

import pytest

from glassformer.cli.terminal import notes_to
from glassformer.train.run.session import start
from train.examples import follow, recipe

LOG = logging.getLogger("glassformer.somewhere")
CHOSEN = "decoding: float32, as decode.precision says; 1 thread, as OMP_NUM_THREADS says\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("notes") / "run"
    follow(start(recipe(), folder))
    return str(folder)


def test_notes_go_where_they_are_wanted_and_afterwards_where_they_went(caplog):
    before, outer, inner = logging.getLogger("glassformer").handlers, [], []
    LOG.info("nobody")
    with notes_to(outer.append):
        LOG.info("one")
        with notes_to(inner.append):
            LOG.info("two")
        LOG.info("three")
    LOG.info("nobody")
    assert (outer, inner) == (["one", "three"], ["two"])
    assert logging.getLogger("glassformer").handlers == before
    assert "nobody" not in caplog.text


def test_evaluate_says_how_it_decodes(trained, run):
    answer = run("evaluate", trained, "--json")
    assert json.loads(answer.out)["n"]
    assert answer.err.count(CHOSEN) == 1


def test_translate_says_how_it_decodes(trained, run):
    answer = run("translate", trained, "--decode.precision", "auto", stdin=b"a b\n")
    assert (answer.code, answer.out.count("\n")) == (0, 1)
    assert "decoding: " in answer.err
    assert " bfloat16 arithmetic; 1 thread, as OMP_NUM_THREADS says\n" in answer.err


def test_a_ensemble_says_it_once(trained, run, tmp_path):
    shutil.copytree(trained, other := tmp_path / "other")
    answer = run("generate", trained, str(other), "--prompt", "a b", "--json", "--decode.threads", "1")
    assert json.loads(answer.out)["prompt"] == "a b"
    assert answer.err == "decoding: float32, as decode.precision says; 1 thread, as the settings say\n"


def test_keys_in_8_bits_are_said(trained, run):
    answer = run("generate", trained, "--prompt", "a", "--decode.cache", "int8")
    assert "as decode.precision says; keys and values in 8 bits; 1 thread" in answer.err


def test_what_is_compiled_for_long_is_said_before_the_first_text(trained, run, monkeypatch):
    monkeypatch.setattr("glassformer.fast.decoding.compile_steps", lambda model: model)
    answer = run("generate", trained, "--prompt", "a", "--decode.compile")
    assert "; TorchInductor compiles the first steps" in answer.err


def test_a_note_in_training_is_shown_and_kept_as_what_else_is_said(session, run, tmp_path):
    session.at = {3: lambda: LOG.info("a note")}
    assert run("train", "reverse", "--out", "own").err.count("a note\n") == 1
    assert "  a note\n" in (tmp_path / "own" / "log.txt").read_text()
