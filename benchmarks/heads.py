"""How long it takes to diagnose the heads of a model: by default 48 heads on 400 sequences.

An untrained encoder-decoder and a probe of reversed sequences: `roles` scores every role of every head, `diagnosis`
also silences each head twice and takes gradients. Rows differ in how many sequences are answered with and without each
head.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from common import arguments, begin, compare, finish

from glassformer import Batch, ModelConfig, StackConfig, Transformer, diagnose
from glassformer.data.tokens.vocabulary import SPECIALS
from glassformer.lens.roles import Probe, pairs_probe
from glassformer.train.objective import next_token

SYMBOLS = 18


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = arguments("heads", __doc__ or "", rounds=3)
    parser.add_argument("--layers", type=int, default=4, help="blocks of each stack (default: %(default)s)")
    parser.add_argument("--heads", type=int, default=4, help="heads of an attention (default: %(default)s)")
    parser.add_argument("--d-model", type=int, default=64, help="width (default: %(default)s)")
    parser.add_argument("--sequences", type=int, default=400, help="in which roles are scored (default: %(default)s)")
    parser.add_argument("--scored", type=int, nargs="+", default=(400, 1000), help="answered (default: 400 1000)")
    options = parser.parse_args(words)
    begin("heads: what each of them does, and what is lost without it", options)
    stack = StackConfig(options.d_model, options.heads, options.layers, 2 * options.d_model, dropout=0.0)
    model = Transformer(ModelConfig(len(SPECIALS) + SYMBOLS, stack, stack)).eval()
    rows = []
    for scored in options.scored:
        probe = made(options.sequences, scored)
        case: dict[str, str | int] = {
            "heads": 3 * options.layers * options.heads,
            "sequences": options.sequences,
            "answered": scored,
        }
        contestants = {
            "diagnosis": lambda probe=probe: diagnose(model, probe),
            "roles": lambda probe=probe: diagnose(model, probe, effects=False),
        }
        rows.append(compare(case, contestants, options.rounds))
    return finish("heads", rows, options)


def made(sequences: int, scored: int) -> Probe:
    """Return a probe: sequences of 4 to 12 distinct symbols, a control with repeated ones, and sequences to answer."""
    draw = random.Random(0)
    ids = range(len(SPECIALS), len(SPECIALS) + SYMBOLS)

    def pairs(n: int, repeats: bool) -> list[tuple[list[int], list[int]]]:
        lengths = [4 + row % 9 for row in range(n)]
        sources = [draw.choices(ids, k=each) if repeats else draw.sample(ids, each) for each in lengths]
        return [(source, source[::-1]) for source in sources]

    def collate(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Batch:
        return Batch.pairs(*zip(*pairs, strict=True))

    own, control, last = (pairs(n, repeats) for n, repeats in ((sequences, False), (sequences, True), (scored, True)))
    return pairs_probe("reverse", own, control, last, collate, next_token, ids)
