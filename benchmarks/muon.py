"""What Muon does to the matrices of a step: our C++ against the matrix products that it stands for.

Eight matrices of each shape: those of attention are square, those of feed-forward blocks four times as long as wide.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import product

import torch
from common import Row, arguments, begin, compare, finish

from glassformer.fast.orthogonal import by_cpp, serves
from glassformer.train.muon import by_products, scaled

MATRICES = 8


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = arguments("muon", __doc__ or "", rounds=7)
    parser.add_argument("--widths", type=int, nargs="+", default=[128, 192, 768], help="default: 128 192 768")
    options = parser.parse_args(words)
    begin("muon: our C++ against matrix products", options)
    return finish("muon", list(measure(options)), options)


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for each shape that our C++ takes on this machine."""
    for width, (rows, columns) in product(options.widths, ((1, 1), (1, 4), (4, 1))):
        shape = f"{rows * width} x {columns * width}"
        x = scaled(torch.randn(MATRICES, rows * width, columns * width, device=options.device))
        if serves(x):
            ways = {"ours": lambda x=x: by_cpp(x.clone()), "products": lambda x=x: by_products(x)}
            yield compare({"matrices": shape}, ways, options.rounds)
        else:
            print(f"{shape}: products do it, as on other devices, without a compiler, or with over {MATRICES} threads")
