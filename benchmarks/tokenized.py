"""BLEU of lower-cased, tokenized text, as papers on Multi30k give it, beside that of sacrebleu without case.

Both texts are normalised and tokenized as the Moses scripts do, by sacremoses (pip install sacremoses), and scored
without further tokenization. For French the score is higher: "l'homme" is two tokens there, and one in 13a.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from common import fail, markdown
from sacrebleu.metrics.bleu import BLEU


class Score(NamedTuple):
    """One row of the table."""

    measure: str
    bleu: float
    signature: str


def main(words: Sequence[str] | None = None) -> int:
    """Score one file of translations against one of references."""
    options = reader().parse_args(words)
    if options.translations is None or options.references is None:
        print("skipped: it needs files; give one of translations and one of references, line by line")
        return 0
    try:
        moses: Any = import_module("sacremoses")
        texts = [Path(each).read_text("utf-8").splitlines() for each in (options.translations, options.references)]
    except ImportError:
        return fail("sacremoses is not installed; pip install sacremoses")
    except (OSError, UnicodeDecodeError) as error:
        return fail(f"{error}. Give two files of UTF-8 text.")
    if len(texts[0]) != len(texts[1]) or not texts[0]:
        return fail(f"The files must have a translation for each reference; got {len(texts[0])} and {len(texts[1])}.")
    found = scores(moses, *texts, language=options.language)
    if options.json:
        print(json.dumps([each._asdict() for each in found]))
    else:
        body = [[each.measure, f"{each.bleu:.2f}", each.signature] for each in found]
        print(markdown(("measure", "BLEU", "signature"), body))
    return 0


def scores(moses: Any, translations: list[str], references: list[str], *, language: str) -> list[Score]:
    """Return both scores of the same translations."""
    normalizer, tokenizer = moses.MosesPunctNormalizer(), moses.MosesTokenizer(language)

    def cut(lines: list[str]) -> list[str]:
        plain = (normalizer.normalize(line.lower()) for line in lines)
        return [tokenizer.tokenize(line, return_str=True, escape=False) for line in plain]

    cases = {
        "sacrebleu, without case": (BLEU(lowercase=True), translations, references),
        "Moses tokens, lower case": (BLEU(tokenize="none", force=True), cut(translations), cut(references)),
    }
    return [
        Score(name, bleu.corpus_score(ours, [theirs]).score, str(bleu.get_signature()))
        for name, (bleu, ours, theirs) in cases.items()
    ]


def reader() -> argparse.ArgumentParser:
    """Return the parser of this command."""
    parser = argparse.ArgumentParser(
        prog="run.py tokenized", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("translations", nargs="?", metavar="TRANSLATIONS", help="a translation in each line")
    parser.add_argument("references", nargs="?", metavar="REFERENCES", help="what each should be")
    parser.add_argument("--language", default="de", metavar="CODE", help="of both files: de, fr, ... (default: de)")
    parser.add_argument("--json", action="store_true", help="the figures as JSON in place of the table")
    return parser


if __name__ == "__main__":
    sys.exit(main())
