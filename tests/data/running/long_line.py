"""A process that reads one text and does nothing else: what it made of it or refused, and the most that it held.

`python long_line.py KIND PATH [WORDS]` prints JSON. KIND is a tokenizer, which learns from the text itself, or from
the file WORDS; or "pairs" or "labelled", for a TSV.
"""

import json
import sys
from pathlib import Path

from glassformer.base.errors import GlassformerError
from glassformer.data.config import DataConfig, TokenizerConfig
from glassformer.data.labelled import read_labelled
from glassformer.data.pairs import read_pairs
from glassformer.data.running.text import read_parts
from glassformer.data.running.token_file import tokens_of
from glassformer.data.tokenizer import TOKENIZERS

ENDS = 200
"""Tokens that are decoded at the beginning and at the end of the whole."""


def made(kind: str, path: str, words: str | None) -> dict[str, object]:
    """The token files of a text as training makes them, and what they hold."""
    parts = read_parts(DataConfig(task="text", layout="decoder", text=path))
    texts = parts["train"].texts() if words is None else [Path(words).read_text("utf-8")]
    tokenizer = TOKENIZERS[kind].train(texts, TokenizerConfig(kind=kind, vocab_size=400))
    files = [tokens_of(part, tokenizer, documents=False) for part in parts.values()]
    return {
        "bytes": sum(each.counts.n_bytes for each in files),
        "characters": sum(each.counts.n_characters for each in files),
        "unknown": sum(each.counts.n_unknown for each in files),
        "tokens": sum(map(len, files)),
        "begins": tokenizer.decode(files[0].tokens[:ENDS].tolist()),
        "ends": tokenizer.decode(files[-1].tokens[-ENDS:].tolist()),
    }


def held() -> int:
    """The most bytes that this process held. getrusage would count what its parent held when it started."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def main(kind: str, path: str, words: str | None = None) -> None:
    """Print what came of it."""
    try:
        match kind:
            case "pairs":
                found: dict[str, object] = {"pairs": len(read_pairs(path).pairs)}
            case "labelled":
                found = {"pairs": len(read_labelled(path).pairs)}
            case _:
                found = made(kind, path, words)
    except GlassformerError as error:
        found = {"refused": type(error).__name__, "says": str(error)}
    assert "torch" not in sys.modules, "its memory would be counted, too"
    print(json.dumps({**found, "held": held()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
