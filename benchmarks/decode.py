"""Decoding on a CPU beside transformers, CTranslate2 and nanoGPT, with the same shapes and, where possible, weights.

Works: `gpt2` (12 layers, d_model 768, 8,000 tokens; 128 tokens after prompts of 32), 1 text and 8 texts; `translate` (6
+ 6 layers, d_model 512; 32 sentences of 15 tokens, answers of 15), greedy and with a beam of 4; `character` (6 layers,
d_model 384, 65 tokens; 255 tokens after one), 1 text and 64 texts; `lines`, 1,000 sentences of mixed length, from text
to text: those of Multi30k with a run of that recipe (`--run RUN --data FOLDER`), else with random weights. With random
weights no text ends early, so all contestants write the same number of tokens. Before any timing each peer must write
in float32 what we write, except nanoGPT, which has its own weights. Tokens per second are those of the whole call,
which also reads prompts or sources. For single texts, the table also says how often per second the weights, in our
precision, can be read from memory, alone and with the keys and values that a step reads.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from common import Contestants, Row, arguments, begin, compare, fail, machine
from decode_lines import convert_lines, ctranslate_translates, lines_of, we_translate
from decode_memory import limits
from decode_peers import (
    Write,
    convert,
    ctranslate_writes,
    library,
    nanogpt_writes,
    transformers_writes,
    twin,
)
from engine import Engine, processor_time

from glassformer import ModelConfig, StackConfig, Transformer
from glassformer.base.errors import ConfigError
from glassformer.data.tokens.vocabulary import EOS, SPECIALS
from glassformer.decode.beam import beam_search
from glassformer.decode.generate import generate
from glassformer.decode.settings import BeamSettings
from glassformer.fast.decoding import for_decoding
from glassformer.study.result import markdown

REST = 0.3
"""Seconds between runs: the threads of CTranslate2's library wait busily for 0.2 s (KMP_BLOCKTIME)."""
NEVER = -1
"""An id that no token has, so that no text ends."""


class Way(NamedTuple):
    """One of our ways to decode."""

    bytes: int
    """Bytes per weight."""
    cache: int
    """Bytes per number of keys and values; the steps of those in 8 bits are not counted."""
    prepare: Callable[[Transformer], Transformer]
    """Sets the precision of the weights, how keys and values are stored, and whether steps are compiled."""


OURS = {
    "float32": Way(4, 4, partial(for_decoding, precision="float32")),
    "float32-compiled": Way(4, 4, partial(for_decoding, precision="float32", compile=True)),
    "bfloat16": Way(2, 4, partial(for_decoding, precision="bfloat16")),
    "bfloat16-int8-cache": Way(2, 1, partial(for_decoding, precision="bfloat16", cache="int8")),
    "int8": Way(1, 4, partial(for_decoding, precision="int8")),
    "int8-int8-cache": Way(1, 1, partial(for_decoding, precision="int8", cache="int8")),
    "int8-compiled": Way(1, 4, partial(for_decoding, precision="int8", compile=True)),
}

PEERS = ("transformers", "CTranslate2")
"""The peers that have our weights; all check ours, those chosen are timed."""


@dataclass(frozen=True)
class Work:
    """A task: the kind of model, how many rows, and how many tokens each reads and writes."""

    kind: str
    rows: int
    read: float
    written: float
    beam: int = 1

    @property
    def name(self) -> str:
        """The name in the table."""
        return f"{self.kind}, {self.rows} x {self.read} + {self.written}" + (f", beam {self.beam}" * (self.beam > 1))


WORKS = {
    "gpt2-1": Work("gpt2", 1, 32, 128),
    "gpt2-8": Work("gpt2", 8, 32, 128),
    "greedy": Work("translate", 32, 14, 15),
    "beam": Work("translate", 32, 14, 15, beam=4),
    "character-1": Work("character", 1, 1, 255),
    "character-64": Work("character", 64, 1, 255),
    "lines": Work("lines", 1_000, 14, 15),
}


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = arguments("decode", __doc__ or "", rounds=5)
    parser.add_argument("--works", nargs="+", choices=WORKS, default=list(WORKS), help="which (default: all)")
    parser.add_argument("--ours", nargs="+", choices=OURS, default=list(OURS), help="our ways (default: all)")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), help="beside which (default: all)")
    parser.add_argument("--nanogpt", metavar="CLONE", help="a folder with a clone of nanoGPT, for `character`")
    parser.add_argument(
        "--run", metavar="RUN", help="a run that translates captions, for `lines` (default: random weights)"
    )
    parser.add_argument("--data", metavar="FOLDER", help="where multi30k/ lies, for `lines` with --run")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to try the benchmark; figures mean nothing")
    parser.add_argument(
        "--processor-time", action="store_true", help="count the processor's time, for a machine that others use too"
    )
    options = parser.parse_args(words)
    if options.device != "cpu":
        return fail(f"decode compares processors; got --device {options.device}. Leave it out.")
    if options.processor_time and options.threads != 1:
        return fail("--processor-time adds up the time of all threads. Add --threads 1.")
    begin("decode: our decoding against transformers, CTranslate2 and nanoGPT", options)
    works = [shrunk(WORKS[each]) if options.small else WORKS[each] for each in options.works]
    found = [each for work in works for each in measure(work, options)]
    if options.json:
        rows = [asdict(row) for _, row in found]
        print(json.dumps({"benchmark": "decode", "machine": machine(), "rows": rows}))
    else:
        print(table([work for work, _ in found], [row for _, row in found]))
    return 0


def shrunk(work: Work) -> Work:
    """Return the same work with at most 2 rows of 3 tokens."""
    return Work(work.kind, min(work.rows, 2), min(work.read, 3), 3, work.beam)


def build(kind: str, *, small: bool) -> Transformer:
    """Return a model with random weights, in float32."""
    torch.manual_seed(0)
    sizes = {
        "gpt2": {"d_model": 768, "n_heads": 12, "n_layers": 12, "d_ff": 3072, "max_len": 256},
        "character": {"d_model": 384, "n_heads": 6, "n_layers": 6, "d_ff": 1536, "max_len": 256},
        "translate": {"d_model": 512, "n_heads": 8, "n_layers": 6, "d_ff": 2048, "max_len": 64},
    }[kind]
    if small:
        sizes |= {"d_model": 16, "n_heads": 2, "n_layers": 1, "d_ff": 32}
    size = {"gpt2": 8_000, "translate": 8_000, "character": 65}[kind] if not small else 64
    if kind == "translate":
        stack = StackConfig(positions="learned", norm_placement="post", embedding_norm=True, **sizes)  # as BART
        config = ModelConfig(size, encoder=stack, decoder=stack, scale_embeddings=False, init="normal")
    else:
        stack = StackConfig(positions="learned", activation="gelu_tanh", causal=True, **sizes)
        config = ModelConfig(size, decoder=stack, scale_embeddings=False, init="normal")
    model = Transformer(config).eval()
    with torch.no_grad():
        model.reader.embedding.weight[EOS] = 0.0  # tied to the head: its logit, 0, is never the highest
    return model


def we_write(model: Transformer, beam: int = 1) -> Write:
    """Return our contestant, which uses `generate` or `beam_search`."""

    def write(rows: Sequence[Sequence[int]], n: int) -> list[list[int]]:
        read = {"prompts": rows} if model.encoder is None else {"sources": rows}
        if beam > 1:
            return [best.ids for (best,) in beam_search(model, BeamSettings(beam), **read, max_new_tokens=n, eos=NEVER)]
        written: list[list[int]] = [[] for _ in rows]
        for step in generate(model, **read, max_new_tokens=n, eos=NEVER):
            for row, token in zip(step.rows, step.tokens, strict=True):
                written[row].append(token)
        return written

    return write


class Job(NamedTuple):
    """A work to measure: our model, how to make a run of it, and the runs of the peers."""

    work: Work
    model: Transformer
    ours: Callable[[Transformer], Callable[[], object]]
    rivals: Contestants


def measure(work: Work, options: argparse.Namespace) -> Iterator[tuple[Work, Row]]:
    """Yield one row for each of our ways that this machine supports. The peers run beside each of them."""
    with tempfile.TemporaryDirectory() as folder:
        job = (translated if work.kind == "lines" else written)(work, options, Path(folder))
        for way in options.ours:
            try:
                mine = job.ours(OURS[way].prepare(job.model))
            except ConfigError as lacking:
                print(f"{way} is left out: {lacking}", file=sys.stderr)
                continue
            mine()  # compiles, if anything is to be compiled
            clock = processor_time if options.processor_time else time.perf_counter
            case: dict[str, str | int] = {"work": job.work.name, "our precision": way}
            all_of_them = {"ours": mine, **job.rivals, **bound(job, way)}
            yield job.work, compare(case, all_of_them, options.rounds, clock=clock, rest=REST)


def bound(job: Job, way: str) -> Contestants:
    """For a single text, return the limits set by memory. Several texts share each read of the weights."""
    work = job.work
    alone = work.rows == work.beam == 1
    return limits(job.model, OURS[way].bytes, OURS[way].cache, work.read, int(work.written)) if alone else {}


def written(work: Work, options: argparse.Namespace, folder: Path) -> Job:
    """Make the job of a work on ids: rows of one length, each continued by the same number of tokens."""
    ours, n = build(work.kind, small=options.small), int(work.written)
    first = len(SPECIALS)
    size = (work.rows, int(work.read))
    rows = torch.randint(first, 60 if options.small else ours.config.vocab_size or 0, size).tolist()
    expected = we_write(ours, work.beam)(rows, n)
    rivals = peers(work, ours, options, folder, lambda write: check_same(write(rows, n), expected))

    def run(write: Write) -> Callable[[], object]:
        return lambda: write(rows, n)

    return Job(
        work, ours, lambda model: run(we_write(model, work.beam)), {name: run(each) for name, each in rivals.items()}
    )


def translated(work: Work, options: argparse.Namespace, folder: Path) -> Job:
    """Make the job of a work on lines of text."""
    lines, rivals = lines_of(options.run, options.data, small=options.small), dict[str, Callable[[], list[str]]]()
    ours = we_translate(lines, lines.model)
    if library("ctranslate2") is not None:
        convert_lines(lines.model, folder)
        for kind in ("float32", "int8"):
            engine = Engine(folder, kind, torch.get_num_threads(), whole=True)
            rivals[f"CTranslate2 {kind}"] = ctranslate_translates(lines, engine)
        check_same(rivals["CTranslate2 float32"](), ours())
    n, read, wrote = lines.sizes(ours)
    work = replace(work, rows=n, read=read, written=wrote)
    return Job(work, lines.model, lambda model: we_translate(lines, model), rivals)


def peers(
    work: Work, ours: Transformer, options: argparse.Namespace, folder: Path, check: Callable[[Write], None]
) -> dict[str, Write]:
    """Return the installed peers, each checked in float32 if it has our weights."""
    if work.kind == "character":
        return {"nanoGPT float32": nanogpt_writes(ours, options.nanogpt)} if options.nanogpt else {}
    if library("transformers") is None:
        return {}
    theirs, found = twin(ours), dict[str, Write]()
    check(transformers_writes(theirs, torch.float32, work.beam))
    if library("ctranslate2") is not None:
        convert(theirs, folder)
        for kind in ("float32", "int8"):
            whole = work.kind == "translate"
            engine = Engine(folder, kind, torch.get_num_threads(), whole=whole)
            found[f"CTranslate2 {kind}"] = ctranslate_writes(engine, whole=whole, beam=work.beam)
        check(found["CTranslate2 float32"])
    found = {"transformers bfloat16": transformers_writes(theirs, torch.bfloat16, work.beam), **found}
    return {name: write for name, write in found.items() if name.startswith(tuple(options.peers))}


def check_same(found: Sequence[Sequence[int] | str], expected: Sequence[Sequence[int] | str]) -> None:
    """Check that a peer writes in float32 what we write, without which its time means nothing.

    One row in 20 may differ, because ties may be broken differently.
    """
    same = sum(a == b for a, b in zip(found, expected, strict=True))
    assert same >= 0.95 * len(expected), f"only {same} of {len(expected)} rows are alike: {found[0]} {expected[0]}"


def table(works: Sequence[Work], rows: Sequence[Row]) -> str:
    """Return a table of tokens per second, and how many times as fast ours is as each peer."""
    rivals = list(dict.fromkeys(peer for row in rows for peer in row.times_as_fast))
    speeds, ratios = ([f"{each}, tokens/s" for each in ("ours", *rivals)], [f"over {each}" for each in rivals])
    body = [
        [str(each) for each in row.case.values()]
        + [speed(work, row, name) for name in ("ours", *rivals)]
        + [f"{row.times_as_fast[each]} ×" if each in row.times_as_fast else "" for each in rivals]
        for work, row in zip(works, rows, strict=True)
    ]
    return markdown([*rows[0].case, *speeds, *ratios], body)


def speed(work: Work, row: Row, name: str) -> str:
    """Return tokens per second of a whole call; empty if the contestant did not run."""
    if name not in row.milliseconds:
        return ""
    return f"{1e3 * work.rows * work.written / row.milliseconds[name].median:.0f}"
