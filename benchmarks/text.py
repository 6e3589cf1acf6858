"""The cost of making a token file of a large text: the memory of a process that does nothing else, and the speed.

The text consists of words drawn by Zipf's law, in lines and documents, and is written to a temporary folder. A separate
process then does with it what training does: it measures the text, trains the tokenizer, makes the token files of train
and dev, opens them again and takes 100 batches of 32 random windows of 257 tokens from each. It notes the most memory
that it held (VmHWM, from Linux).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

BOUND = 300e6
"""The most bytes that the process may hold, whatever the size of the text."""
KINDS = ("character", "byte", "word", "bpe")
WORDS = 50_000
DOCUMENTS = 2_000
"""How many documents are made. A text draws from them, with repetition."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark, or with --file the part that is measured."""
    parser = argparse.ArgumentParser(prog="benchmarks/run.py text", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--megabytes", type=int, default=200, help="size of the text (default: %(default)s)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="tokenizers (default: all)")
    parser.add_argument("--form", choices=("txt", "jsonl"), default="txt", help="of the text (default: %(default)s)")
    parser.add_argument("--file", help="a text to read in this process, with the first of --kinds")
    options = parser.parse_args(words)
    if options.file:
        print(json.dumps(work(options.file, options.kinds[0])))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"text.{options.form}"
        size = write(path, options.megabytes * 10**6)
        rows = [measured(path, kind) for kind in options.kinds]
    print(json.dumps({"bytes": size, "rows": rows}) if options.json else table(size, rows))
    return 0 if max(row["peak"] for row in rows) <= BOUND else 3


def write(path: Path, size: int) -> int:
    """Write a text of about so many bytes, the same each time: lines of ten words, documents of a hundred lines."""
    draw = np.random.default_rng(0)
    documents = made(draw, path.suffix == ".jsonl")
    written = 0
    with path.open("w", encoding="utf-8") as file:
        while written < size:
            written += file.write(documents[draw.integers(len(documents))])
    return written


def made(draw: np.random.Generator, in_json: bool) -> list[str]:
    """Return documents to draw from, made of words of 2 to 10 letters. Later words in the list are rarer."""
    letters = np.array([*"etaoinshrdlucmfwypvbgkqjxz"])
    known = ["".join(letters[draw.integers(0, 26, length)]) for length in draw.integers(2, 11, WORDS)]
    shares = 1 / np.arange(1, WORDS + 1)
    drawn = draw.choice(WORDS, DOCUMENTS * 1000, p=shares / shares.sum()).tolist()
    lines = [" ".join([known[word] for word in drawn[first : first + 10]]) for first in range(0, len(drawn), 10)]
    texts = ["\n".join(lines[first : first + 100]) + "\n" for first in range(0, len(lines), 100)]
    return [json.dumps({"text": each}) + "\n" for each in texts] if in_json else texts


def measured(path: Path, kind: str) -> dict[str, float | str]:
    """Measure one kind of tokenizer in a separate process, with an empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, __file__, "--file", str(path), "--kinds", kind]
        done = subprocess.run(
            command, env={**os.environ, "GLASSFORMER_CACHE": cache}, stdout=subprocess.PIPE, text=True, check=True
        )
    return {"kind": kind, **json.loads(done.stdout)}


def work(path: str, kind: str) -> dict[str, float]:
    """Do everything that comes before the first step of a run. Return the seconds of each part and the peak memory."""
    from glassformer.data.config import DataConfig, TokenizerConfig  # imported only in the measured process
    from glassformer.data.running.text import has_documents, read_parts
    from glassformer.data.running.token_file import Windows, tokens_of
    from glassformer.data.tokenizer import TOKENIZERS

    started = time.perf_counter()
    config = DataConfig(task="text", layout="decoder", text=path)
    parts = read_parts(config)
    read = time.perf_counter()
    tokenizer = TOKENIZERS[kind].train(parts["train"].texts(), TokenizerConfig(kind=kind))
    trained = time.perf_counter()
    documents = has_documents(config, parts["train"])
    found = {split: tokens_of(part, tokenizer, documents=documents) for split, part in parts.items()}
    made = time.perf_counter()
    again = {split: tokens_of(part, tokenizer, documents=documents) for split, part in parts.items()}
    opened = time.perf_counter()
    for tokens in again.values():
        for step in range(100):
            tokens.take(Windows(len(tokens), 256).starts(step, 32), 257)
    windows = time.perf_counter()
    assert "torch" not in sys.modules
    return {
        "tokens": sum(len(each) for each in found.values()),
        "read": read - started,
        "train": trained - read,
        "make": made - trained,
        "open": opened - made,
        "windows": (windows - opened) / 200,
        "peak": peak(),
    }


def peak() -> float:
    """Return the most bytes that this process held. getrusage would include what its parent held when it started."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def table(size: int, rows: Sequence[dict[str, float | str]]) -> str:
    """Return the figures as a table."""
    from common import machine, markdown  # here, because the measured process must not load torch

    head = [
        "tokenizer",
        "tokens",
        "measure",
        "train tokenizer",
        "make token files",
        "open them",
        "a batch",
        "at most held",
    ]
    body = [
        [
            str(row["kind"]),
            f"{row['tokens']:,}",
            *(f"{row[part]:.1f} s ({size / 1e6 / row[part]:.0f} MB/s)" for part in ("read", "train", "make", "open")),
            f"{row['windows'] * 1e3:.2f} ms",
            f"{row['peak'] / 1e6:.0f} MB",
        ]
        for row in rows
    ]
    return f"{size / 1e6:,.0f} MB of text (bound: {BOUND / 1e6:.0f} MB held)\n\n{markdown(head, body)}\n\n{machine()}"


if __name__ == "__main__":
    sys.exit(main())
