"""Processes side by side: never more than allowed, heard in full, stopped once, ended with the study."""

import os
import signal
import subprocess
import sys

import pytest

from glassformer.study import pool as pools
from glassformer.study.pool import THREADS, Begun, Ended, Pool, Task, Wrote, with_threads

ECHO = "import sys; print('got', input()); print('and more', end=''); sys.exit(len(sys.argv) - 1)"
# Says that it is ready; at the end of its input that it saves; a SIGTERM within half a second would be a fault.
SAVES = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("ready", flush=True)
while sys.stdin.readline():
    pass
again = signal.sigtimedwait([signal.SIGTERM], 0.5)
print("told twice" if again else "saved", flush=True)
sys.exit(143)
"""


@pytest.fixture
def task(tmp_path):
    def make(name: str, code: str, *words: str) -> Task:
        return Task(name, [sys.executable, "-c", code, *words], f"hello {name}", tmp_path / f"{name}.txt", os.environ)

    return make


def test_never_more_than_allowed_and_all_are_run(task):
    running, most, ended = 0, 0, []
    for event in Pool([task(str(number), ECHO) for number in range(7)], 3).run():
        running += isinstance(event, Begun)
        most = max(most, running)
        if isinstance(event, Ended):
            running -= 1
            ended.append((event.task.name, event.code))
    assert most == 3
    assert sorted(ended) == [(str(number), 0) for number in range(7)]


def test_lines_and_exit_code(task):
    events = list(Pool([task("a", ECHO, "x", "y")], 1).run())
    assert [type(each) for each in events] == [Begun, Wrote, Ended]
    assert events[1].line == "got hello a"
    assert events[2].code == 2


def test_complaints_are_kept(task, tmp_path):
    list(Pool([task("a", "import sys; print('oh', file=sys.stderr)")], 1).run())
    assert (tmp_path / "a.txt").read_text() == "oh\n"


def test_one_that_dies_at_once_stops_nobody(task):
    events = list(Pool([task("a", "import os; os.close(0); os._exit(9)"), task("b", ECHO)], 1).run())
    assert [(each.task.name, each.code) for each in events if isinstance(each, Ended)] == [("a", 9), ("b", 0)]


def test_interrupt_lets_those_that_run_save_and_starts_no_more(task, monkeypatch):
    monkeypatch.setattr(pools, "POLL", 0.01)
    pool = Pool([task(name, SAVES) for name in "abcd"], 2)
    ready, seen, ended = 0, [], []
    for event in pool.run():
        match event:
            case Wrote(line="ready"):
                ready += 1
                if ready == 2:
                    pool.interrupt()
            case Wrote(line=line):
                seen.append(line)
            case Ended(task=of, code=code):
                ended.append((of.name, code))
            case _:
                pass
    assert seen == ["saved", "saved"]
    assert sorted(ended) == [("a", 143), ("b", 143)]


def test_where_a_signal_would_end_them_at_once_they_save_all_the_same(task, monkeypatch):
    """As on Windows, which ends a process that is terminated."""
    monkeypatch.setattr(subprocess.Popen, "terminate", subprocess.Popen.kill)
    pool = Pool([task("a", SAVES)], 1)
    seen = []
    for event in pool.run():
        if isinstance(event, Wrote):
            seen.append(event.line)
            pool.interrupt()
    assert seen == ["ready", "saved"]


def test_a_second_request_ends_them_at_once(task):
    stays = "import sys, time; print('ready', flush=True); sys.stdin.read(); print('asked', flush=True); time.sleep(60)"
    pool = Pool([task("a", stays)], 1)
    events = pool.run()
    for event in events:
        if isinstance(event, Wrote) and event.line == "ready":
            pool.interrupt()
        if isinstance(event, Wrote) and event.line == "asked":
            break
    [process] = [child.process for child in pool.children.values()]
    events.close()
    assert process.poll() == -signal.SIGTERM


def test_leaving_early_ends_all(task):
    pool = Pool([task(name, SAVES) for name in "ab"], 2)
    events = pool.run()
    ready = 0
    while ready < 2:
        ready += isinstance(next(events), Wrote)
    processes = [child.process for child in pool.children.values()]
    events.close()
    assert [each.poll() for each in processes] == [143, 143]


def test_children_are_in_groups_of_their_own(task):
    """So Ctrl-C at a terminal reaches them from the study alone, and once."""
    [line] = [each for each in Pool([task("a", "import os; print(os.getpgrp())")], 1).run() if isinstance(each, Wrote)]
    assert int(line.line) != os.getpgrp()


def test_threads_of_all_libraries():
    environment = with_threads({"PATH": "x", "OMP_NUM_THREADS": "64"}, 3)
    assert environment["PATH"] == "x"
    assert {environment[name] for name in THREADS} == {"3"}
    assert {"OMP_NUM_THREADS", "MKL_NUM_THREADS"} < {*THREADS}


def test_end_of_the_study_ends_its_arms(monkeypatch):
    """The input of an arm ends with the process that holds it."""
    assert sent_at_the_end(monkeypatch) == [("kill", os.getpid(), signal.SIGTERM)]


def test_on_windows_an_arm_raises_the_signal_that_lets_it_save(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    assert sent_at_the_end(monkeypatch) == [("raise", signal.SIGTERM)]


def sent_at_the_end(monkeypatch):
    """The signals that an arm gives itself where its input ends."""
    from glassformer.cli import arm

    read, write = os.pipe()
    sent = []
    real = os.read
    monkeypatch.setattr(os, "read", lambda handle, size: real(read if handle == 0 else handle, size))
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append(("kill", pid, number)))
    monkeypatch.setattr(signal, "raise_signal", lambda number: sent.append(("raise", number)))
    os.write(write, b"more\n")
    os.close(write)
    arm.stop_with_the_study()
    os.close(read)
    return sent
