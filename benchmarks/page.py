"""The explorer's page in Chromium: time until the heads are painted, for a hover and for another head, and its sizes.

A separate server gives the page a synthetic trace: `--layers` by `--heads` causal maps of `--tokens`. Each round is a
fresh browser context. `painted` is the page's own mark in the Performance API, after the first frame with the heads;
`hover` lasts from a movement of the pointer until after the frame that shows it; `head` lasts from a click on another
head, of another layer, until after its frame.
"""

from __future__ import annotations

import json
import threading
import zlib
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
from common import arguments, begin, fail

from glassformer import ModelConfig, StackConfig, Transformer
from glassformer.data.config import TokenizerConfig
from glassformer.data.dataset import Tokenizers
from glassformer.data.tokenizer import TOKENIZERS
from glassformer.lens.page.bundle import script, standalone, style
from glassformer.lens.server.app import listen, make_app, make_server, new_token
from glassformer.lens.server.subject import Subject
from glassformer.lens.trace.file import encode
from glassformer.lens.trace.make import Trace
from glassformer.lens.trace.sight import SIDE, decided, shrunk
from glassformer.study.result import markdown

CHROMIUM = "/usr/bin/chromium"
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
TELL = """
  new PerformanceObserver(list => {
    for (const { startTime } of list.getEntriesByName("painted")) console.log("painted", startTime);
  }).observe({ type: "mark" });
"""
"""The page reports its mark itself, because polling for it would add a script to what is measured."""
FRAME = """() => new Promise(done => {
  const began = performance.now();
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
})"""
HOVERS = 120
SWITCHES = 20
WATCH = """() => {
  window.seen = [];
  document.addEventListener("pointermove", () => {
    const began = performance.now();
    requestAnimationFrame(() => {
      const after = new MessageChannel();
      after.port1.onmessage = () => window.seen.push(performance.now() - began);
      after.port2.postMessage(0);
    });
  }, true);
}"""
SWITCH = """at => new Promise(done => {
  const began = performance.now();
  document.querySelector(`.thumb[data-at="${at}"]`).click();
  const look = () => document.body.dataset.busy ? requestAnimationFrame(look)
    : requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
  look();
})"""


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = arguments("page", __doc__ or "", rounds=9)
    parser.add_argument("--layers", type=int, default=12, help="layers (default: %(default)s)")
    parser.add_argument("--heads", type=int, default=12, help="heads of a layer (default: %(default)s)")
    parser.add_argument("--tokens", type=int, nargs="+", default=(128, 512), help="of the text (default: 128 512)")
    parser.add_argument("--sizes", action="store_true", help="sizes alone, without a browser")
    options = parser.parse_args(words)
    if not options.sizes and (find_spec("playwright") is None or not Path(CHROMIUM).exists()):
        return fail("This needs playwright and Chromium: pip install 'glassformer[dev]', apt-get install chromium.")
    begin("page: the explorer in Chromium", options)
    traces = {tokens: drawn(options.layers, options.heads, tokens) for tokens in options.tokens}
    times = {} if options.sizes else timed_in_browser(traces, options)
    rows = [{"tokens": tokens, **times.get(tokens, {}), **sizes(made)} for tokens, made in traces.items()]
    if options.json:
        print(json.dumps({"benchmark": "page", "rows": rows}))
        return 0
    print(markdown([*rows[0]], [[f"{value:.4g}" for value in row.values()] for row in rows]))
    weight = len(zlib.compress((script() + style()).encode(), 9))
    print(f"\nScripts and styles: {weight / 1e3:.1f} kB compressed. Times in ms, sizes in MB.")
    return 0


def timed_in_browser(traces: dict[int, Trace], options: Namespace) -> dict[int, dict[str, float]]:
    """Return the times of each trace, in one browser."""
    from playwright.sync_api import sync_playwright

    found: dict[int, dict[str, float]] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS])
        for tokens, made in traces.items():
            with served(made) as (address, token):
                found[tokens] = seen(browser, address, token, options)
        browser.close()
    return found


def seen(browser: Any, address: str, token: str, options: Namespace) -> dict[str, float]:
    """Return the figures of one trace."""
    painted: list[float] = []
    for _ in range(options.rounds):
        context = browser.new_context(viewport={"width": 1280, "height": 860})
        context.add_init_script(f"sessionStorage.setItem('token', '{token}')")
        context.add_init_script(TELL)
        page = context.new_page()
        with page.expect_console_message(lambda found: found.text.startswith("painted ")) as error:
            page.goto(address, wait_until="commit")
        painted.append(float(error.value.text.split()[1]))
        if len(painted) < options.rounds:
            context.close()
    page.evaluate(WATCH)
    box = page.locator(".map-body").bounding_box()
    width, height = (min(box[side], room) for side, room in (("width", 500), ("height", 400)))
    for i in range(HOVERS):
        page.mouse.move(box["x"] + (i * 37) % width, box["y"] + (i * 23) % height)
        page.evaluate(FRAME)
    hovers = page.evaluate("() => window.seen")
    places = [f"{(i * 5 + 1) % options.layers} {i % options.heads}" for i in range(SWITCHES)]
    switches = [page.evaluate(SWITCH, at) for at in places]
    heap = page.evaluate("() => performance.memory?.usedJSHeapSize ?? 0")
    context.close()
    return {
        "painted": median(painted),
        "slowest": max(painted),
        "hover": median(hovers),
        "hover p95": quantiles(hovers, n=20)[-1],
        "head": median(switches),
        "heap": heap / 1e6,
    }


def sizes(made: Trace) -> dict[str, float]:
    """Return megabytes of the trace, of the compressed trace, and of the page as one file."""
    data = made.to_bytes()
    packed = len(zlib.compress(data, 6))
    return {"trace": len(data) / 1e6, "compressed": packed / 1e6, "one file": len(standalone([data], {})) / 1e6}


def drawn(layers: int, heads: int, tokens: int) -> Trace:
    """Return a causal trace with random scores, like that of a decoder."""
    draw = np.random.default_rng(0)
    scores = draw.normal(size=(layers, heads, tokens, tokens)).astype(np.float32) * 2
    weights = np.exp(scores) * np.tril(np.ones((tokens, tokens), np.float32))
    weights /= weights.sum(-1, keepdims=True)
    names = [f"w{i}" for i in range(50)]
    ids = draw.integers(50, size=tokens + 1).tolist()
    group = {
        "block": "decoder", "q": "target_in", "k": "target_in", "layers": layers, "heads": heads, "q_len": tokens,
        "k_len": tokens, "mask": "causal", "buffer": "a.decoder", **decided(weights),
    }  # fmt: skip
    buffers = {"a.decoder": ("sqrt255", encode(weights, "sqrt255"))}
    if tokens > SIDE:
        buffers["t.decoder"] = ("sqrt255", encode(shrunk(weights), "sqrt255"))
        group["thumb"] = "t.decoder"
    top = [[i, 0.1, 1.0] for i in range(10)]
    steps = [
        {"pos": t, "input": ids[t], "chosen": ids[t + 1], "p": 0.1, "rank": 0, "entropy": 2.0, "top": top, "rest": 0.0}
        for t in range(tokens)
    ]
    lens = {"names": [str(i) for i in range(layers + 1)], "p": [[0.1] * tokens] * (layers + 1)}
    lens["top"] = [[[[1, 0.5], [2, 0.2], [3, 0.1]]] * tokens] * (layers + 1)
    header = {
        "model": {
            "name": "drawn", "kind": "decoder", "layers": {"decoder": layers}, "n_heads": heads, "d_model": 768,
            "d_ff": 3072, "vocab_size": 50, "params": 1,
        },
        "run": {"mode": "generate"}, "vocab": {str(i): name for i, name in enumerate(names)},
        "sequences": {"target": {"ids": ids, "text": [names[i] for i in ids], "special": [False] * len(ids)}},
        "attention": [group], "steps": steps, "lens": lens,
    }  # fmt: skip
    return Trace(header, buffers)


@dataclass(frozen=True)
class Given(Subject):
    """A subject that answers every text with one trace."""

    made: Trace | None = None

    def trace(self, *_: object, **__: object) -> Trace:
        """Return the one trace."""
        assert self.made is not None
        return self.made


@contextmanager
def served(made: Trace) -> Iterator[tuple[str, str]]:
    """Yield the address of a server that knows only this trace, and its token."""
    letters = TOKENIZERS["character"].train(["ab"], TokenizerConfig())
    model = Transformer(ModelConfig(letters.vocab_size, decoder=StackConfig(d_model=8, n_heads=1, n_layers=1, d_ff=8)))
    with ExitStack() as closing:
        listeners = [closing.enter_context(each) for each in listen(0)]
        port, token = listeners[0].getsockname()[1], new_token()
        subject = Given("drawn", model, Tokenizers(letters, letters), examples=[("a", None)], made=made)
        server = make_server(make_app(subject, token))
        thread = threading.Thread(target=lambda: server.run(sockets=listeners))
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}/#attention", token
        finally:
            server.should_exit = True
            thread.join()
