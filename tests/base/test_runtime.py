"""Device and threads: what is chosen and why; and a device that is not there."""

import os

import pytest
import torch

from fresh import printed
from glassformer.base.errors import ConfigError
from glassformer.base.runtime import USUAL_THREADS, choose_device, choose_threads, has_bfloat16


@pytest.fixture
def threads(monkeypatch):
    """The number of threads, where nobody says it and no other program is in the way."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("glassformer.base.runtime.share_of_threads", lambda threads: 1.0)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_the_processor_where_there_is_no_accelerator(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: None)
    device, why = choose_device()
    assert device == torch.device("cpu")
    assert "no accelerator" in why


def test_the_accelerator_where_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device("cuda"))
    assert choose_device() == (torch.device("cuda"), "cuda, the accelerator of this machine")


def test_as_asked():
    assert choose_device("cpu") == (torch.device("cpu"), "cpu, as asked")


@pytest.mark.parametrize("name", ["gpu", "cuda:99", "xpu", "meta", ""])
def test_a_device_out_of_reach(name):
    with pytest.raises(ConfigError, match=rf"got '{name}'\. Try auto or cpu"):
        choose_device(name)


def test_threads_as_many_as_processors(monkeypatch, threads):
    for allowed, expected in ((2, 2), (64, USUAL_THREADS)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, allowed=allowed: set(range(allowed)), raising=False)
        assert choose_threads() == (expected, f"{expected} threads, of {allowed} processors")
        assert torch.get_num_threads() == expected


@pytest.mark.parametrize(("share", "expected", "why"), [
    (0.8, 4, "4 threads, of 4 processors"),
    (0.6, 2, "2 threads, of 4 processors, as other programs use them"),
    (0.1, 1, "1 thread, of 4 processors, as other programs use them"),
])  # fmt: skip
def test_fewer_threads_beside_other_programs(monkeypatch, threads, share, expected, why):
    looked_at = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(4)), raising=False)
    monkeypatch.setattr("glassformer.base.runtime.share_of_threads", lambda threads: looked_at.append(threads) or share)
    assert choose_threads() == (expected, why)
    assert torch.get_num_threads() == expected
    assert choose_threads(4) == (4, "4 threads, as the settings say")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert choose_threads() == (3, "3 threads, as OMP_NUM_THREADS says")
    assert looked_at == [4]


def test_one_thread_of_one_processor(monkeypatch, threads):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5}, raising=False)
    assert choose_threads() == (1, "1 thread, of 1 processor")
    assert choose_threads(2) == (2, "2 threads, as the settings say, although this process may use only 1 processor")


@pytest.mark.parametrize(
    ("allowed", "few"), [(3, ""), (64, ""), (2, ", although this process may use only 2 processors")]
)
def test_threads_as_asked(monkeypatch, threads, allowed, few):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(allowed)), raising=False)
    assert choose_threads(3) == (3, f"3 threads, as the settings say{few}")
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize(("text", "threads_", "why"), [
    ("1", 1, "1 thread, as OMP_NUM_THREADS says"),
    ("3", 3, "3 threads, as OMP_NUM_THREADS says"),
    (" 2,4", 2, "2 threads, as OMP_NUM_THREADS says"),
    ("9", 9, "9 threads, as OMP_NUM_THREADS says, although this process may use only 4 processors"),
    ("", 4, "4 threads, of 4 processors"),
])  # fmt: skip
def test_threads_as_the_environment_says(monkeypatch, threads, text, threads_, why):
    """As any program that uses OpenMP; but what is asked for comes first."""
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(4)), raising=False)
    assert choose_threads() == (threads_, why)
    assert torch.get_num_threads() == threads_
    assert choose_threads(2) == (2, "2 threads, as the settings say")


@pytest.mark.parametrize("processes", [1, 2])
def test_a_wrong_environment_is_refused(monkeypatch, threads, processes):
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    with pytest.raises(ConfigError, match=r"OMP_NUM_THREADS must be a whole number"):
        choose_threads(2, processes)


@pytest.mark.parametrize(("requested", "text", "expected", "why"), [
    (0, "", 4, "4 a process, as 2 share 8 processors"),
    (0, "1", 4, "4 a process, as 2 share 8 processors"),
    (0, "3", 3, "3 a process, as 2 share 8 processors"),
    (6, "1", 4, "4 a process instead of 6, as 2 share 8 processors"),
    (1, "", 1, "1 a process, as 2 share 8 processors"),
])  # fmt: skip
def test_processes_share_the_processors(monkeypatch, threads, requested, text, expected, why):
    """torchrun sets OMP_NUM_THREADS to 1 where nobody has set it."""
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert choose_threads(requested, 2) == (expected, why)
    assert torch.get_num_threads() == expected


def test_bfloat16_on_a_device_that_nobody_knows():
    assert has_bfloat16(torch.device("meta")) is False
    assert isinstance(has_bfloat16(torch.device("cpu")), bool)


def own_processors():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0


@pytest.mark.skipif(own_processors() < 2, reason="needs Linux, which tells a process its processors, and two of them")
def test_threads_that_are_bound_have_all_processors_still():
    """OpenMP binds the first thread to one processor, which is all that Linux then tells."""
    code = "import torch; from glassformer.base.processors import free_processors as f; print(f())"
    assert int(printed("-c", code, env=os.environ | {"OMP_PROC_BIND": "true"}, timeout=120)) == own_processors()
