"""Asking the application of a subject, without a socket."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import torch

from lens.explored import small

PORT, TOKEN = 8642, "the-token"
with torch.random.fork_rng():
    torch.manual_seed(0)  # the same weights in whatever order tests run
    MODEL = small()
HEADS = [{"id": "x.0.1", "block": "cross", "layer": 0, "head": 1, "role": {"label": "reversal", "strength": "strong"}}]


class Answer:
    """What came back."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)


def ask(app, method, path, body=b"", *, leaves=False, **more):
    """One request, given to the application itself; who `leaves` does so before all of it is sent."""
    with ThreadPoolExecutor(1) as thread:  # this one may have a loop already, that of a browser
        return thread.submit(asyncio.run, response_to(app, method, path, body, leaves=leaves, **more)).result()


def ask_all(app, many, path, body, other):
    """As many POSTs at once, and then a GET, which must be answered before them; answers of all, the GET's last."""

    async def run():
        posts = [asyncio.create_task(response_to(app, "POST", path, body)) for _ in range(many)]
        await asyncio.sleep(0)
        last = await response_to(app, "GET", other)
        assert not all(each.done() for each in posts), "it waited for all of them"
        return [*await asyncio.gather(*posts), last]

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, run()).result()


async def response_to(app, method, path, body=b"", *, leaves=False, token=TOKEN, host=f"127.0.0.1:{PORT}", **headers):
    """The answer to one request."""
    path, _, query = path.partition("?")
    names = {"host": host, "x-glassformer-token": token} | ({"content-type": "application/json"} if body else {})
    names |= {name.replace("_", "-"): value for name, value in headers.items()}
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
        "raw_path": path.encode(), "query_string": query.encode(), "scheme": "http", "server": ("127.0.0.1", PORT),
        "headers": [(n.encode(), v.encode("latin-1")) for n, v in names.items() if v is not None], "root_path": "",
    }  # fmt: skip
    sent = []
    given = [{"type": "http.request", "body": body, "more_body": leaves}]

    async def receive():
        if given:
            return given.pop(0)
        if not leaves:
            await asyncio.Event().wait()  # the browser is still there
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)
    started = next(each for each in sent if each["type"] == "http.response.start")
    content = b"".join(each.get("body", b"") for each in sent if each["type"] == "http.response.body")
    return Answer(started["status"], {n.decode(): v.decode() for n, v in started["headers"]}, content)
