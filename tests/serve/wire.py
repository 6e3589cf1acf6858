"""A server without a network: its application on a loop of its own, asked as a web server would ask it."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from glassformer.serve.app import application
from glassformer.serve.service import Service
from glassformer.serve.settings import ServeConfig
from glassformer.train.finished.writing import Writer
from glassformer.train.recipe import load_recipe
from specimens import scramble

ADVICE = re.compile(
    r"[.;] (Ask|Ban|Change|Correct|Encode|Give|Install|Read|Remove|Send|Set|Shorten|Tell|Train|Try|Use)\b[^.]*"
)
"""What to do, in a sentence of a message that comes after the rule."""
KEY = "0123456789abcdefXYZ"
"""A key that a server may ask for."""
SEED = 7
"""Of weights whose texts end at several lengths, and whose greedy texts are long and varied."""
PATIENCE = 60
"""Seconds after which a test gives up; nothing waits so long where all is well."""


def writer_of(run: Path) -> Writer:
    """The run's model with random numbers of float64 in place of what it learned: no two tokens are as likely.

    They are the same whichever test asks first: tests in several processes come in an order that depends on the load.
    """
    writer = Writer(run, load_recipe(run / "recipe.toml"))
    writer.model = writer.loaded.model.double()  # not prepared: packed weights would stay what was learned
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        scramble(writer.model)
    return writer


@dataclass
class Heard:
    """A response."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    parts: list[bytes] = field(default_factory=list)
    ended: bool = False

    @property
    def json(self) -> Any:
        return json.loads(b"".join(self.parts))

    @property
    def error(self) -> dict[str, Any]:
        """The error object; whatever is refused, its message says what to do."""
        error = self.json["error"]
        assert ADVICE.search(error["message"]), error
        return error

    @property
    def events(self) -> list[Any]:
        """The events of a stream; [DONE] is its last."""
        lines = b"".join(self.parts).decode().split("\n\n")
        assert lines.pop() == ""
        assert all(line.startswith("data: ") for line in lines)
        return [json.loads(line[6:]) if line != "data: [DONE]" else "DONE" for line in lines]


class Wire:
    """`ask` is a client; `with` starts and ends the server."""

    def __init__(self, writer: Writer, **settings: Any) -> None:
        self.said: list[str] = []
        self.service = Service(writer, "tiny", ServeConfig(**settings), self.said.append)
        self.app = application(self.service)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)

    def __enter__(self) -> Wire:
        self.thread.start()
        self.loop.call_soon_threadsafe(self.service.start)
        return self

    def __exit__(self, *_: object) -> None:
        self.service.stop()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(PATIENCE)
        self.loop.close()

    @property
    def engine(self):
        return self.service.runner.engine

    def ask(self, path: str, body: Any = None, **more: Any) -> Heard:
        return self.begin(path, body, **more).result(PATIENCE)

    def begin(self, path: str, body: Any = None, **more: Any) -> Future[Heard]:
        """The same without waiting for the answer."""
        return asyncio.run_coroutine_threadsafe(self.exchange(path, body, **more), self.loop)

    async def exchange(
        self,
        path: str,
        body: Any = None,
        *,
        method: str | None = None,
        headers: Iterable[tuple[str, str]] = (("host", "localhost:8000"),),
        chunks: Iterable[bytes] | None = None,
        leave: Callable[[Heard], bool] = lambda heard: False,
        send: Callable[[Heard], Any] | None = None,
    ) -> Heard:
        """One request, whole. The client leaves when `leave` says so of what it heard so far; `send` may wait."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        pieces, removed, heard = list(chunks or [data]), asyncio.Event(), Heard()
        scope = {
            "type": "http", "method": method or ("GET" if body is None and chunks is None else "POST"), "path": path,
            "raw_path": path.encode(), "query_string": b"", "root_path": "", "scheme": "http",
            "headers": [(name.encode(), value.encode()) for name, value in headers],
        }  # fmt: skip

        async def receive() -> dict[str, Any]:
            if pieces:
                return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}
            await removed.wait()
            return {"type": "http.disconnect"}

        async def sent(message: Any) -> None:
            assert not heard.ended, "nothing comes behind the end"
            if message["type"] == "http.response.start":
                assert not heard.status, "one status"
                heard.status = message["status"]
                heard.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
                return
            heard.parts.append(message.get("body", b""))
            heard.ended = not message.get("more_body", False)
            if leave(heard):
                removed.set()
            if send is not None:
                await send(heard)

        await self.app(scope, receive, sent)
        if heard.status == 500:
            print(*self.said)  # pytest shows it where the test fails
        return heard
