"""Asking the application of a subject, without a socket."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

from lens.explored import small

PORT, TOKEN = 8642, "the-token"
MODEL = small()
HEADS = [{"id": "x.0.1", "block": "cross", "layer": 0, "head": 1, "role": {"label": "reversal", "strength": "strong"}}]


class Answer:
    """What came back."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)


def ask(app, method, path, body=b"", *, token=TOKEN, host=f"127.0.0.1:{PORT}", **headers):
    """One request, given to the application itself."""
    path, _, query = path.partition("?")
    names = {"host": host, "x-glassformer-token": token} | ({"content-type": "application/json"} if body else {})
    names |= {name.replace("_", "-"): value for name, value in headers.items()}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "scheme": "http",
        "server": ("127.0.0.1", PORT),
        "headers": [(n.encode(), v.encode("latin-1")) for n, v in names.items() if v is not None],
        "root_path": "",
    }
    sent = []
    given = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        if not given:
            await asyncio.Event().wait()  # the browser is still there
        return given.pop(0)

    async def send(message):
        sent.append(message)

    with ThreadPoolExecutor(1) as thread:  # this one may have a loop already, that of a browser
        thread.submit(asyncio.run, app(scope, receive, send)).result()
    started = next(each for each in sent if each["type"] == "http.response.start")
    content = b"".join(each.get("body", b"") for each in sent if each["type"] == "http.response.body")
    return Answer(started["status"], {n.decode(): v.decode() for n, v in started["headers"]}, content)
