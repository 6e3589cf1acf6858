"""A server with 32 concurrent clients, beside the same server with one client after another.

A run of the recipe `lm` is trained for a step (its weights are as good as random, which costs as much as any others),
served by `glassformer serve` in a process of its own, and asked over HTTP. Each round requests the same texts twice: by
one client after another, and by all clients at once, who each send the next request as soon as they are answered. Each
text must come out the same. Figures: tokens per second of both, and the median of the ratios of neighbouring rounds.

Time to first token is measured on streams, with all clients at once. It is compared with the model of a queue with one
counter: the current step ends, and then all clients that arrived together are served one by one, each in the time to
first token of a client that is alone. Of n clients, 95 % are then served after 0.95 n such times.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr
from dataclasses import asdict
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from common import begin, markdown, spread

from glassformer.cli.main import main as glassformer

PATIENCE = 600
"""Seconds."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark. The exit code is 1 if a text came out different when served beside others."""
    parser = argparse.ArgumentParser(prog="benchmarks/run.py serve", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--rounds", type=int, default=3, help="of each (default: %(default)s)")
    parser.add_argument("--clients", type=int, default=32, help="at a time (default: %(default)s)")
    parser.add_argument("--requests", type=int, default=64, help="texts asked for (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=32, help="of each text (default: %(default)s)")
    parser.add_argument("--prompt", type=int, default=32, help="tokens of a prompt (default: %(default)s)")
    parser.add_argument("--d-model", type=int, default=256, help="width (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=4, help="blocks (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=0, help="of the server (default: as the library chooses)")
    options = parser.parse_args(words)
    options.device = "cpu"
    begin("serve: clients at once against one after another", options)
    with tempfile.TemporaryDirectory() as folder:
        row = measured(trained(Path(folder), options), options)
    print(json.dumps(row) if options.json else table(row))
    return 0 if row["identical"] else 1


def trained(folder: Path, options: argparse.Namespace) -> Path:
    """Return a run whose model has the requested size."""
    text = folder / "text.txt"
    text.write_text("".join(f"{i} {i * i} the quick brown fox\n" for i in range(2000)), "utf-8")
    sizes = {
        "model.d-model": options.d_model,
        "model.n-heads": max(1, options.d_model // 64),
        "model.n-layers": options.layers,
        "model.d-ff": 4 * options.d_model,
        "data.window": options.prompt + options.tokens,
        "data.text": text,
        "training.steps": 1,
        "training.warmup": 0,
        "training.evaluate-every": 0,
        "training.threads": options.threads,
    }
    flags = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
    with redirect_stderr(io.StringIO()):
        assert glassformer(["train", "lm", *flags, "--out", str(folder / "lm")]) == 0
    return folder / "lm"


def measured(run: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Start the server and return all figures."""
    command = [sys.executable, "-m", "glassformer", "serve", str(run), "--port", "0", "--rows", str(options.clients)]
    command += ["--decode.threads", str(options.threads)]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        message = ""
        while not (found := re.search(r"http://([\d.]+):(\d+)", line := server.stderr.readline())):
            assert line, f"the server did not start: {message}"
            message += line
        return measure(Clients(found[1], int(found[2]), options), options)
    finally:
        server.terminate()
        server.communicate(timeout=PATIENCE)


class Clients:
    """The clients of the server. Request i is the same whichever client sends it."""

    def __init__(self, host: str, port: int, options: argparse.Namespace) -> None:
        self.host, self.port, self.options = host, port, options
        self.work = range(options.requests)

    def body(self, i: int, **more: Any) -> str:
        """Return request i: a prompt of its own, as long as all others, greedy, to its full length."""
        n = self.options.tokens
        prompt = f"{i * 7919} the quick brown fox jumps over the lazy dog"[: self.options.prompt]
        exact = {"max_tokens": n, "min_new_tokens": n, "temperature": 0}
        return json.dumps({"prompt": prompt, **exact, **more})

    def ask(self, i: int) -> str:
        """Send request i and return its text."""
        line = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        line.request("POST", "/v1/completions", self.body(i))
        answer = json.loads(line.getresponse().read())
        line.close()
        assert answer["usage"]["completion_tokens"] == self.options.tokens, answer
        return str(answer["choices"][0]["text"])

    def first(self, i: int) -> float:
        """Return the seconds to the first token of a stream, which is then read to its end."""
        line = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        began = time.perf_counter()
        line.request("POST", "/v1/completions", self.body(i, stream=True))
        answer = line.getresponse()
        assert answer.readline().startswith(b"data: {")
        seconds = time.perf_counter() - began
        answer.read()
        line.close()
        return seconds

    def together(self, do: Any) -> tuple[float, list[Any]]:
        """Send all requests, with all clients at once. Return the seconds and the answers."""
        with ThreadPoolExecutor(self.options.clients) as clients:
            began = time.perf_counter()
            found = list(clients.map(do, self.work))
            return time.perf_counter() - began, found

    def one_after_another(self, do: Any) -> tuple[float, list[Any]]:
        """Send all requests one after another. Return the seconds and the answers."""
        began = time.perf_counter()
        found = [do(i) for i in self.work]
        return time.perf_counter() - began, found


def measure(clients: Clients, options: argparse.Namespace) -> dict[str, Any]:
    """Measure rounds of both in turn, then the first tokens."""
    clients.ask(0)
    total, ratios, rates, equal = options.requests * options.tokens, [], {"alone": [], "together": []}, True
    for _ in range(options.rounds):
        alone, texts = clients.one_after_another(clients.ask)
        together, same = clients.together(clients.ask)
        equal = equal and texts == same
        ratios.append(alone / together)
        rates["alone"].append(total / alone)
        rates["together"].append(total / together)
    step = options.clients / median(rates["together"])
    alone_first = median(clients.first(i) for i in clients.work[:8])
    firsts = [each for _ in range(options.rounds) for each in clients.together(clients.first)[1]]
    model = step + 0.95 * options.clients * alone_first
    p95 = quantiles(firsts, n=20)[-1] if len(firsts) > 1 else firsts[0]
    return {
        "clients": options.clients,
        "one after another, tokens/s": median(rates["alone"]),
        "at once, tokens/s": median(rates["together"]),
        "times as fast": asdict(spread(ratios)),
        "identical": equal,
        "first token alone, ms": 1e3 * alone_first,
        "first token p95, ms": 1e3 * p95,
        "queue model, ms": 1e3 * model,
        "p95 over the model": p95 / model,
    }


def table(row: dict[str, Any]) -> str:
    """Return the figures as a table."""
    fast = row["times as fast"]
    shown = row | {"times as fast": f"{fast['median']:.2f} ({fast['low']:.2f}–{fast['high']:.2f})"}
    shown["identical"] = "yes" if row["identical"] else "NO"
    return markdown(list(row), [[f"{each:.1f}" if isinstance(each, float) else str(each) for each in shown.values()]])


if __name__ == "__main__":
    sys.exit(main())
