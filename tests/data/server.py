"""A server on this machine that behaves as servers do: well, or not."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CONTENT = bytes(range(256)) * 1_000


class Server(ThreadingHTTPServer):
    """What it does is set by `way`; what it was asked for is in `ranges`."""

    daemon_threads = True

    def __init__(self, way: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.way, self.ranges, self.done = way, [], threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/file"

    def handle_error(self, *_: object) -> None:
        """A client that goes away is no error."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        way, byte_range = self.server.way, self.headers.get("Range")
        self.server.ranges.append(byte_range)
        first = int(re.findall(r"\d+", byte_range)[0]) if byte_range and way != "knows no range" else 0
        content = CONTENT[::-1] if way == "wrong bytes" else CONTENT
        if way == "not there":
            self.send_error(404)
            return
        if "://" in way:
            self.send_response(302)
            self.send_header("Location", way)
            self.end_headers()
            return
        if way == "silent":
            self.server.done.wait()
            return
        self.send_response(206 if first else 200)
        if first:
            start = first - 1 if way == "begins elsewhere" else first
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if way == "announces too much":
            self.send_header("Content-Length", str(len(content) + 1))
        elif way not in ("never ends", "says no length"):
            self.send_header("Content-Length", str(len(content) - first))
        if way == "packs":
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        end = first + 100_000 if way == "cuts" else len(content)
        self.wfile.write(content[first:end])
        if way == "never ends":
            for _ in range(1_000):
                self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(way: str) -> Iterator[Server]:
    server = Server(way)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.done.set()
        server.shutdown()
        thread.join()
        server.server_close()
