"""A real server in a process of its own, on a free port of this machine."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

PATIENCE = 120
"""Seconds."""


class Process:
    """`glassformer serve RUN`, from the line that says where it is to its end; what it said before is `before`."""

    def __init__(self, run: Path, *flags: str, **environment: str) -> None:
        self.words = [sys.executable, "-m", "glassformer", "serve", str(run), "--port", "0", *flags]
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}

    def __enter__(self) -> Process:
        self.process = subprocess.Popen(self.words, stderr=subprocess.PIPE, text=True, env=self.environment)
        self.before = ""
        while not (found := re.search(r"answers at (http://\S+:(\d+)/v1)", line := self.process.stderr.readline())):
            assert line, self.before  # it has ended
            self.before += line
        self.url, self.port = found[1], int(found[2])
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        self.process.stderr.close()

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """The exit code, and what it said, behind a signal."""
        self.process.send_signal(number)
        rest = self.process.stderr.read()
        return self.process.wait(PATIENCE), rest

    def connect(self) -> socket.socket:
        """A connection that says nothing yet."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def raw(self, data: bytes) -> bytes:
        """All that comes back on a connection that sends this and waits for its end."""
        with self.connect() as line:
            line.sendall(data)
            return everything(line)


def everything(line: socket.socket) -> bytes:
    """All that comes until the other side ends."""
    parts = []
    try:
        while part := line.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def post(body: bytes, *headers: str) -> bytes:
    """A request as it goes over the line."""
    head = ["POST /v1/completions HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body
