"""What the environment tells OpenMP: what is read from it, and what is refused before torch reads it."""

import os

import pytest

from fresh import python
from glassformer.base.errors import ConfigError
from glassformer.base.processors import PATIENCE, SPINS, WAITING, check_environment, shorten_waits, threads_asked

THREADS, BIND = "OMP_NUM_THREADS", "OMP_PROC_BIND"


@pytest.mark.parametrize(("text", "threads"), [("", 0), (" ", 0), ("3", 3), (" 4, 2 ", 4), ("1024", 1024)])
def test_threads_that_are_asked_for(monkeypatch, text, threads):
    monkeypatch.setenv(THREADS, text)
    assert threads_asked() == threads


def test_none_are_asked_for(monkeypatch):
    monkeypatch.delenv(THREADS, raising=False)
    assert threads_asked() == 0


@pytest.mark.parametrize("text", ["0", "-1", "abc", "1.5", "1025", "4,", ",4", "4,many", "4 2", "²", "9" * 5000])
def test_what_is_no_number_of_threads(monkeypatch, text):
    monkeypatch.setenv(THREADS, text)
    with pytest.raises(ConfigError, match=r"must be a whole number from 1 to 1024, or a list.*unset it") as error:
        check_environment()
    assert f"got {text[:40]!r}. " in str(error.value)


@pytest.mark.parametrize("text", ["true", "FALSE", "close", "spread, close", "master", "primary,spread"])
def test_places_of_threads(monkeypatch, text):
    monkeypatch.setenv(BIND, text)
    check_environment()
    assert os.environ[BIND] == text


@pytest.mark.parametrize("text", ["bogus", "1", "true,close", "close,", "true,false"])
def test_what_is_no_place_of_threads(monkeypatch, text):
    monkeypatch.setenv(BIND, text)
    with pytest.raises(ConfigError, match=rf"OMP_PROC_BIND must be true, false, or a list .*got '{text}'\. Set it"):
        check_environment()


def test_what_is_empty_is_not_set(monkeypatch):
    monkeypatch.setenv(THREADS, "")
    monkeypatch.setenv(BIND, " ")
    check_environment()
    assert not {THREADS, BIND} & os.environ.keys()


@pytest.mark.parametrize(("name", "text", "code", "message"), [
    (THREADS, "abc", 2, "glassformer: The environment variable OMP_NUM_THREADS must be"),
    (BIND, "bogus", 2, "glassformer: The environment variable OMP_PROC_BIND must be"),
    (THREADS, "", 0, ""),
    (BIND, "", 0, ""),
    (THREADS, "2,1", 0, ""),
])  # fmt: skip
def test_a_command_speaks_before_openmp_does(name, text, code, message):
    """One message, ours: OpenMP complains, when torch is imported, of what is wrong and of what is empty."""
    answer = python("-m", "glassformer", "params", "gpt2", "--json", env=os.environ | {name: text}, timeout=120)
    assert (answer.returncode, answer.stderr.count("\n")) == (code, bool(message)), answer.stderr
    assert answer.stderr.startswith(message)


def test_threads_wait_less_long_unless_somebody_says_how(monkeypatch):
    monkeypatch.setenv(SPINS, "")
    monkeypatch.delenv(WAITING, raising=False)
    shorten_waits()
    assert os.environ[SPINS] == PATIENCE


@pytest.mark.parametrize(("name", "text"), [(SPINS, "infinite"), (SPINS, "0"), (WAITING, "active")])
def test_waits_stay_as_asked(monkeypatch, name, text):
    for each in (SPINS, WAITING):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(name, text)
    shorten_waits()
    assert {each: os.environ.get(each) for each in (SPINS, WAITING)} == {SPINS: None, WAITING: None, name: text}


AT_TORCH = """
import os, sys
from glassformer.cli.main import main

class Importing:
    def find_spec(self, name, *rest):
        if name == "torch":
            print(os.environ.get("GOMP_SPINCOUNT"), flush=True)
            os._exit(0)

sys.meta_path.insert(0, Importing())
main(sys.argv[1:])
"""


@pytest.mark.parametrize("words", [("train", "reverse"), ("demo",), ("params", "gpt2")])
def test_waits_are_set_before_torch_reads_them(tmp_path, words):
    environment = {name: value for name, value in os.environ.items() if name not in (SPINS, WAITING)}
    answer = python("-c", AT_TORCH, *words, env=environment, timeout=120, cwd=tmp_path)
    assert answer.stdout.splitlines()[-1] == PATIENCE, answer.stderr
