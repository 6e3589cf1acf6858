"""What the environment tells OpenMP: what is read from it, and what is refused before torch reads it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from glassformer.base.errors import ConfigError
from glassformer.base.openmp import check_environment, threads_asked

SOURCE = Path(__file__).parents[2] / "src"
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
    with pytest.raises(ConfigError, match=r"must be a whole number from 1 to 1024, or a list.*unset it") as told:
        check_environment()
    assert f"got {text[:40]!r}. " in str(told.value)


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


@pytest.mark.parametrize(
    ("name", "text", "code", "said"),
    [
        (THREADS, "abc", 2, "glassformer: The environment variable OMP_NUM_THREADS must be"),
        (BIND, "bogus", 2, "glassformer: The environment variable OMP_PROC_BIND must be"),
        (THREADS, "", 0, ""),
        (BIND, "", 0, ""),
        (THREADS, "2,1", 0, ""),
    ],
)
def test_a_command_speaks_before_openmp_does(name, text, code, said):
    """One message, ours: OpenMP complains, when torch is imported, of what is wrong and of what is empty."""
    words = [sys.executable, "-m", "glassformer", "params", "gpt2", "--json"]
    environment = os.environ | {"PYTHONPATH": str(SOURCE), name: text}
    answer = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=120)
    assert (answer.returncode, answer.stderr.count("\n")) == (code, bool(said)), answer.stderr
    assert answer.stderr.startswith(said)
