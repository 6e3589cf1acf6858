"""Starting several processes as torchrun does, on this machine, and waiting for all of them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PATIENCE = 600
"""Seconds in which even a busy machine has done what a test asks for; nothing waits for them in vain."""


class Ended(NamedTuple):
    """How a process ended, and what it wrote."""

    code: int
    text: str


def environment(number: int, count: int, port: int) -> dict[str, str]:
    """What torchrun would set, and one thread each."""
    places = {"RANK": number, "WORLD_SIZE": count, "LOCAL_RANK": number, "LOCAL_WORLD_SIZE": count}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    own = {"OMP_NUM_THREADS": "1", "TERM": "dumb"}
    return {**os.environ, **{name: str(value) for name, value in places.items()}, **meeting, **own}


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def begin(count: int, *words: str) -> list[subprocess.Popen[str]]:
    """`python WORDS` in so many processes."""
    port = free_port()
    return [
        subprocess.Popen(
            [sys.executable, *words],
            env=environment(number, count, port),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in range(count)
    ]


def ended(processes: list[subprocess.Popen[str]]) -> list[Ended]:
    """All of them, when they have ended; none outlives the test."""
    try:
        texts = [each.communicate(timeout=PATIENCE)[0] for each in processes]
    finally:
        for each in processes:
            each.kill()
            each.wait()
    return [Ended(each.returncode, text) for each, text in zip(processes, texts, strict=True)]


def work(count: int, folder: Path, *tasks: str, timeout: int = PATIENCE) -> list[Ended]:
    """The tasks of work.py in so many processes, which must end well."""
    found = ended(begin(count, str(Path(__file__).with_name("work.py")), str(folder), str(timeout), *tasks))
    assert [each.code for each in found] == [0] * count, "\n".join(each.text for each in found)
    return found
