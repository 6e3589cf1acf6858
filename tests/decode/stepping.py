"""Compiled steps beside steps: `python tests/decode/stepping.py KIND` tells how they differ, as JSON.

A program of its own, for what executes the shapes in our signatures would be compiled with them.
"""

import json
import sys
from functools import partial
from pathlib import Path
from threading import Thread

import torch
from torch._dynamo.utils import counters

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from glassformer.decode.beam import beam_search
from glassformer.decode.engine import Engine, warm_up
from glassformer.decode.generate import generate
from glassformer.decode.requests import Limits, Request
from glassformer.decode.settings import BeamSettings
from glassformer.fast.decoding import for_decoding
from specimens import model, tokens

ROWS = [[5, 6, 7, 8, 9, 10], [8, 9], [9, 10, 7]]
SHAPES = {
    "decoder": ("decoder", {}),
    "encoder-decoder": ("encoder-decoder", {}),
    "rotary": ("decoder", {"positions": "rotary", "n_kv_heads": 2, "qk_norm": "rms"}),
    "t5": ("decoder", {"positions": "t5"}),
    "window": ("decoder", {"window": 3}),
    "linear": ("decoder", {"attention_rule": "linear"}),
    "convolution": ("decoder", {"convolution": 3}),
}


def graphs() -> int:
    return counters["stats"]["unique_graphs"]


def read_by(made, rows):
    return {"prompts": rows} if made.encoder is None else {"sources": rows}


def written(made, rows):
    return [step.tokens for step in generate(made, **read_by(made, rows), max_new_tokens=9, eos=-1)]


def best_of(made):
    found = beam_search(made, BeamSettings(beam=3), **read_by(made, ROWS), max_new_tokens=7)
    return [best.ids for (best, *_) in found]


def together(made):
    """Three texts of unequal length, whose rows come and go."""
    engine, texts = Engine(made, eos=-1), {}
    for row, n in zip(ROWS, (8, 4, 6), strict=True):
        given = {"prompt": row} if made.encoder is None else {"source": row}
        texts[id(engine.submit(Request(max_new_tokens=n, **given)))] = []
    while engine.busy:
        for each in engine.step():
            texts[id(each.ticket)].append(each.id)
    return [*texts.values()]


def lengths():
    """Logits of steps, of 3 rows and then of 2, and what was compiled for them."""
    made = model("decoder", max_len=40)
    ready, ids, counts = for_decoding(made, "float32", compile=True), tokens(3, 40), [graphs()]
    with torch.no_grad():
        cache = ready.new_cache()
        steps = [ready(ids[:, :5], cache=cache)]
        counts.append(graphs())
        steps += [ready(ids[:, at : at + 1], cache=cache) for at in range(5, 40)]
        counts.append(graphs())
        worst = (torch.cat(steps, dim=1) - made(ids)).abs().max().item()
        cache = ready.new_cache()
        for at in range(4):
            ready(ids[:2, at : at + 1], cache=cache)
    return {"worst": worst, "graphs": [each - counts[0] for each in (*counts, graphs())]}


def padded():
    """The same of rows with padding; a second code is an error, so that nothing is compiled for each length."""
    made = model("decoder", max_len=40)
    ready, ids, keep = for_decoding(made, "float32", compile=True), tokens(3, 40), torch.ones(3, 40, dtype=torch.bool)
    keep[1, :2] = False
    with torch.no_grad():
        cache = ready.new_cache()
        steps = [ready(ids[:, :5], keep=keep[:, :5], cache=cache)]
        for at in range(5, 40):
            steps.append(ready(ids[:, at : at + 1], cache=cache))
            torch.compiler.set_stance("fail_on_recompile")
        apart = torch.cat(steps, dim=1) - made(ids, keep=keep)
    return {"worst": apart[keep].abs().max().item(), "graphs": graphs()}


def warmed(shape):
    """What is compiled before anybody asks, and what all kinds of texts, on another thread, have compiled then.

    Among them those that fill 64 columns: of their own tokens, and of their memory.
    """
    made = for_decoding(model(shape, max_len=90), "float32", compile=True)
    engine, counts = Engine(made, Limits(rows=8), eos=-1), []
    warm_up(engine)
    counts.append(graphs())

    def ask():
        for rows in ([3], [1], [5, 1], [40, 2, 3], [6] * 8, [70], [51], [63, 63]):
            for n in rows:
                given = {"prompt": [5] * n} if made.encoder is None else {"source": [5] * n}
                engine.submit(Request(max_new_tokens=14, **given))
            while engine.busy:
                assert not any(each.error for each in engine.step())
        counts.append(graphs())

    connection = Thread(target=ask)
    connection.start()
    connection.join()
    return {"graphs": counts}


def rounded(precision):
    """The worst of the logits of prepared weights, and what was compiled for two rows and more."""
    made = model("decoder").float()
    eager, ready, ids = for_decoding(made, precision), for_decoding(made, precision, compile=True), tokens(2, 8)
    with torch.no_grad():
        caches, worst = (eager.new_cache(), ready.new_cache()), 0.0
        for part in ids.split((3, 1, 1, 1, 1, 1), dim=1):
            apart = eager(part, cache=caches[0]).float() - ready(part, cache=caches[1]).float()
            worst = max(worst, apart.abs().max().item())
        for rows in (3, 5, 8):
            cache = ready.new_cache()
            for part in tokens(rows, 4).split((3, 1), dim=1):
                ready(part, cache=cache)
    return {"worst": worst, "graphs": graphs()}


def texts(kind):
    """Whether all ways to write give the same."""
    shape, settings = SHAPES[kind]
    made = model(shape, **settings)
    ready = for_decoding(made, "float32", compile=True)
    same = {
        "rows": written(ready, ROWS) == written(made, ROWS),
        "one": written(ready, ROWS[:1]) == written(made, ROWS[:1]),
        "engine": together(ready) == together(made),
        "beam": kind == "linear" or best_of(ready) == best_of(made),
    }
    return {**same, "graphs": graphs()}


if __name__ == "__main__":
    (name,) = sys.argv[1:]
    torch.set_num_threads(1)
    kind, _, of = name.partition(" ")
    what = {"lengths": lengths, "padded": padded, "warmed": partial(warmed, of)}
    what |= {each: partial(texts, each) for each in SHAPES}
    print(json.dumps(what.get(kind, partial(rounded, name))()))
