"""A real server: raw connections, slow ones, signals, and what is refused before it listens."""

import asyncio
import http.client
import json
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch

from glassformer.cli.verbs import VERBS
from glassformer.serve.app import AT_LEAST, Ending, on_signal
from glassformer.serve.settings import ServeConfig
from serve.process import Process, everything, post
from serve.wire import KEY

LONG = {"prompt": "ab", "max_tokens": 400, "temperature": 0, "min_new_tokens": 400, "stream": True}


RAW = [
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
    (b"nonsense\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: " + b"x" * 17_000 + b"\r\n\r\n", 431),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 900_000, 431),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
    (b"GET http://evil.example/health HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", 403),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close, Upgrade\r\nUpgrade: websocket\r\n\r\n", 200),
    (post(b"{}", "Connection: close"), 401),
    (post(b" " * 65_537, f"Authorization: Bearer {KEY}", "Connection: close"), 413),
]


@pytest.mark.parametrize(("data", "status"), RAW, ids=range(len(RAW)))
def test_raw_requests(server, data, status):
    assert server.raw(data).startswith(f"HTTP/1.1 {status} ".encode())


def test_requests_that_do_not_arrive_are_ended(server):
    """Each connection ends by itself; the test would hang if one did not."""
    keyed = post(b"x" * 99, f"Authorization: Bearer {KEY}")
    parts = [b"", b"GET", b"GET /health HTTP/1.1\r\nHost: lo", keyed[:-50]]
    with ThreadPoolExecutor(len(parts)) as clients:
        for message in clients.map(server.raw, parts):
            assert message.startswith(b"HTTP/1.1 408 ")
            assert json.loads(message.partition(b"\r\n\r\n")[2])["error"]["code"] == "too_slow"


@pytest.mark.parametrize("n", [50, pytest.param(500, marks=pytest.mark.slow)])
def test_slow_connections(server, n):
    """So many connections that send a byte and no more: others are served meanwhile, and all of them are ended."""
    lines = [server.connect() for _ in range(n)]
    for i, line in enumerate(lines):
        line.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"[: 1 + i % 48])
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    for _ in range(5):
        connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {KEY}"})
        assert connection.getresponse().read().startswith(b'{"object":"list"')
    connection.close()
    with ThreadPoolExecutor(16) as readers:
        output = list(readers.map(everything, lines))
    for line in lines:
        line.close()
    assert all(each.startswith(b"HTTP/1.1 408 ") for each in output)


@pytest.mark.slow  # a server of its own, as the next ones
def test_a_connection_too_many_is_sent_away(text_run):
    with Process(text_run, "--connections", "3") as server:
        lines = [server.connect() for _ in range(3)]
        for line in lines:  # each is known to the server once it has answered
            line.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert line.recv(99).startswith(b"HTTP/1.1 200 ")
        with server.connect() as one_more:
            output = everything(one_more)
        assert output.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 2" in output
        for line in lines:
            line.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_lets_what_was_begun_end(text_run, number):
    with Process(text_run) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        connection.request("POST", "/v1/completions", json.dumps(LONG))
        answer = connection.getresponse()
        first = answer.read(50)  # it is being written
        server.process.send_signal(number)
        whole = first + answer.read()
        connection.close()
        assert whole.endswith(b"data: [DONE]\n\n")
        assert b'"finish_reason":"length"' in whole
        rest = server.process.stderr.read()
        assert server.process.wait(120) == 0
        assert "Ending: 1 unfinished answer has 30 seconds left." in rest
        assert "Traceback" not in rest


@pytest.mark.slow
def test_a_second_signal_ends_at_once(text_run):
    with Process(text_run, "--max-new-tokens", "1000000") as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        endless = {**LONG, "max_tokens": 1_000_000, "min_new_tokens": 1_000_000}
        connection.request("POST", "/v1/completions", json.dumps(endless))
        connection.getresponse().read(50)
        server.process.send_signal(signal.SIGTERM)
        assert "Ending" in server.process.stderr.readline()
        assert server.end()[0] == 143
        connection.close()


@pytest.mark.slow
def test_who_reads_while_the_server_ends_gets_all(text_run):
    """An answer larger than what lies between both sides, read for longer than connections have to close."""
    with Process(text_run) as server, server.connect() as line:
        body = {**LONG, "max_tokens": 2048, "n": 32, "logprobs": 5, "min_new_tokens": 2048, "stream": False}
        line.sendall(post(json.dumps(body).encode()))
        received = line.recv(1024)  # it is finished, and handed over
        server.process.send_signal(signal.SIGTERM)
        assert server.process.stderr.readline() == "Ending.\n"
        ended = time.monotonic() + AT_LEAST + 1
        while time.monotonic() < ended:
            received += line.recv(1024)
            time.sleep(0.05)
        head, _, got = (received + everything(line)).partition(b"\r\n\r\n")
        assert len(got) == int(re.search(rb"content-length: (\d+)", head)[1])
        assert server.process.wait(120) == 0


@pytest.mark.shapes(False)  # neither a whole service nor a whole server is needed
@pytest.mark.parametrize(("took", "left"), [(0, 30), (10, 20), (29, AT_LEAST)])
def test_connections_close_in_what_is_left_of_the_drain(took, left):
    """However much of it answers took to finish."""

    async def ended() -> int:
        loop, now = asyncio.get_running_loop(), asyncio.get_running_loop().time()

        async def drain(seconds: float) -> int:
            loop.time = lambda: now + took
            return 0

        service = SimpleNamespace(config=ServeConfig(), unfinished=0, drain=drain, say=str)
        server = SimpleNamespace(config=SimpleNamespace())
        loop.time = lambda: now
        await Ending(service, server).drain()
        del loop.time
        assert server.should_exit
        return server.config.timeout_graceful_shutdown

    assert asyncio.run(ended()) == left


# --- what is refused before anything listens


@pytest.mark.parametrize(("flags", "message"), [
    (["--host", "0.0.0.0"], "needs a key"),
    (["--port", "x"], "--port takes a whole number"),
    (["--port", "70000"], "port must be at most 65535"),
    (["--seconds", "0"], "seconds must be above 0"),
    (["--key-file", "nowhere"], "--key-file names a file"),
    (["--host", "203.0.113.1", "--key-file", "KEY"], "The server cannot listen at 203.0.113.1"),
    (["--rows", "0"], "rows must be at least 1"),
    (["--decode.cache", "int8", "--decode.compile", "true"], "Compiled steps need an exact KV cache"),
    (["--decode.beam", "4"], "without beam search. Remove --decode.beam; glassformer generate takes it"),
    (["--decode.top-k", "4"], "serve takes no --decode.top-k: each request says how its tokens are chosen"),
    (["--decode.max-new-tokens", "4"], "serve takes no --decode.max-new-tokens: --max-new-tokens sets the longest"),
    (["--decode.batch-size", "4"], "serve takes no --decode.batch-size: --rows sets how many"),
    (["--decode.precision", "int9"], "decode.precision"),
    (["--model.n-layers", "4"], "there is no section 'model' here"),
])  # fmt: skip
def test_settings_that_cannot_be(text_run, tmp_path, flags, message, capsys, monkeypatch):
    from glassformer.cli.main import main
    from glassformer.serve import app

    monkeypatch.setattr(app, "listen", lambda service, found: 0)  # what is not refused ends at once
    monkeypatch.delenv("GLASSFORMER_KEY", raising=False)
    (tmp_path / "key").write_text(KEY)
    words = [str(tmp_path / "key") if word == "KEY" else word for word in flags]
    assert main(["serve", str(text_run), *words]) == 2
    assert message in capsys.readouterr().err


def test_steps_are_compiled_before_it_listens(text_run, capsys, monkeypatch):
    """Neither compiles nor listens here: what was asked for reaches the model, and in which order."""
    from glassformer.cli.main import main
    from glassformer.fast import decoding as prepare
    from glassformer.serve import app

    seen = []

    def compiled(model):
        seen.append("compiled")
        return model

    def listened(service, found):
        assert next(service.runner.engine.model.parameters()).dtype == torch.bfloat16
        assert not service.runner.engine.busy
        seen.append(capsys.readouterr().err)
        return 0

    monkeypatch.setattr(prepare, "compile_steps", compiled)
    monkeypatch.setattr(prepare, "has_cpp", lambda: False)  # which leaves other numbers wide
    monkeypatch.setattr(app, "listen", listened)
    settings = ["--decode.precision", "bfloat16", "--decode.cache", "exact"]
    assert main(["serve", str(text_run), "--port", "0", *settings, "--decode.compile"]) == 0
    assert seen.pop(0) == "compiled"
    chosen, *compiling = seen.pop().splitlines(keepends=True)
    assert "TorchInductor compiles the first steps, for up to a minute" in chosen
    assert re.fullmatch(r"Compiling the steps .* \.\.\.\nSteps were compiled in \d+ s\.\n", "".join(compiling))
    assert main(["serve", str(text_run), "--port", "0", *settings]) == 0
    assert seen == ["decoding: bfloat16, as decode.precision says; 1 thread, as OMP_NUM_THREADS says\n"]


def test_it_has_the_threads_that_were_asked_for(text_run):
    with Process(text_run, "--decode.threads", "2") as server:
        assert "; 2 threads, as the settings say" in server.before


def test_without_the_extra_it_says_what_to_install(text_run, capsys, monkeypatch):
    from glassformer.cli import serve
    from glassformer.cli.main import main

    monkeypatch.setattr(serve, "NEEDED", ("h11", "no_such_package"))
    assert main(["serve", str(text_run)]) == 2
    assert "needs no_such_package" in (output := capsys.readouterr().err)
    assert "pip install 'h11" in output


def test_the_help_says_the_defaults():
    """Each setting has a flag, and its help the value that it has without one."""
    usual = vars(ServeConfig())
    result = {option.name.replace("-", "_"): option.help for option in VERBS["serve"].options}
    assert {*usual} - {"key"} == {*result} - {"key_file"}
    for name, text in result.items():
        if found := re.search(r"default: ([\d.]+)", text):
            assert found[1] == str(usual[name]) or float(found[1]) == usual[name], name


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_where_event_loops_know_none(number):
    """As on Windows, where `add_signal_handler` is not implemented."""
    heard = []
    before = signal.getsignal(number)

    def act(number: int) -> None:
        heard.append(number)
        asyncio.get_running_loop().stop()

    class Loop(asyncio.SelectorEventLoop):
        def add_signal_handler(self, *_: object) -> None:
            raise NotImplementedError

    loop = Loop()
    try:
        on_signal(loop, number, act)
        loop.call_soon(signal.raise_signal, number)
        loop.run_forever()
    finally:
        loop.close()
        signal.signal(number, before)
    assert heard == [number]
