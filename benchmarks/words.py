"""What words alone tell about the reviews of SST-2, and what vectors from WikiText-2 add: no order, no network.

Logistic regression scored on the dev split, in minutes. Features: which words are in a sentence (Pang et al. 2002); the
same times the words' log-count ratios (Wang and Manning 2012, equation 1); the mean of word vectors, which are the
positive pointwise mutual information with 6,000 context words, reduced to 150 dimensions (Levy and Goldberg 2014); and
both. The penalty is the one that does best on every tenth training sentence when trained on the others.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from common import fail, machine
from files import FILES, as_reviews, read
from torch import Tensor

from glassformer.base.runtime import choose_threads
from glassformer.study.result import markdown

PENALTIES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
WINDOW = 5
"""How many words on each side count as context. A word at distance d counts 1/d."""
CONTEXTS, WIDTH = 6000, 150
VECTORS = {"WikiText-2": ("wikitext-2",), "SST-2's own sentences": ("sst2",), "both": ("wikitext-2", "sst2")}
"""Sources of word vectors: a name for the table, and the folders of the texts."""
Sentences = list[list[str]]


class Features(NamedTuple):
    """Sentences as numbers: the known words of all sentences in one row, where each sentence starts, and its vector."""

    words: Tensor
    starts: Tensor
    vectors: Tensor


class Case(NamedTuple):
    """One row of the table."""

    features: str
    vectors: str
    penalty: float
    accuracy: float


def main(words: Sequence[str] | None = None) -> int:
    """Fit and score every case."""
    options = reader().parse_args(words)
    if options.data is None:
        print("skipped: it needs files; give --data, a folder that holds sst2/ and wikitext-2/")
        return 0
    data = Path(options.data)
    try:
        train, labels = labelled(data / FILES["sst2"][0] / "train.tsv", options.sentences)
        dev, wanted = labelled(data / FILES["sst2"][0] / "dev.tsv", options.sentences)
        texts = {"sst2": train, "wikitext-2": articles(data / FILES["wikitext-2 reviews"][0], options.sentences)}
    except FileNotFoundError as missing:
        return fail(f"{missing}. Give --data, a folder that holds sst2/ and wikitext-2/.")
    choose_threads(options.threads)
    torch.manual_seed(0)
    known = {word: number for number, word in enumerate(dict.fromkeys(word for each in train for word in each))}
    plain, ratios = torch.ones(len(known)), count_ratios(train, labels, known)
    cases: list[Case] = []

    def case(name: str, source: str, scale: Tensor, table: dict[str, Tensor]) -> None:
        learned, scored = features(train, known, table), features(dev, known, table)
        penalty = best_penalty(learned, scale, labels)
        right = (scores(scored, scale, fit(learned, scale, labels, penalty)) > 0) == (wanted > 0)
        cases.append(Case(name, source, penalty, float(right.float().mean())))

    case("words", "", plain, {})
    case("words times ratios", "", ratios, {})
    for source, folders in VECTORS.items():
        table = vectors([each for folder in folders for each in texts[folder]], {*known, *(w for s in dev for w in s)})
        case("vectors", source, torch.zeros(len(known)), table)
        case("words times ratios, vectors", source, ratios, table)
    print(json.dumps([each._asdict() for each in cases]) if options.json else as_table(cases, len(dev)))
    return 0


def labelled(path: Path, most: int | None) -> tuple[Sentences, Tensor]:
    """Return the words of each sentence, and its label, 1.0 or 0.0."""
    rows = [line.split("\t") for line in read(path)[:most]]
    return [text.split() for text, _ in rows], torch.tensor([float(label) for _, label in rows])


def articles(folder: Path, most: int | None) -> Sentences:
    """Return the words of each paragraph."""
    return [line.split() for line in as_reviews(read(folder / "wiki.train.tokens")[: most and 20 * most])]


def count_ratios(texts: Sentences, labels: Tensor, known: dict[str, int]) -> Tensor:
    """Return log((p / |p|) / (n / |n|)), where p and n count the texts of either label with a word, plus one."""
    counts = torch.ones(2, len(known))
    for text, label in zip(texts, labels.int().tolist(), strict=True):
        counts[label, [known[word] for word in {*text}]] += 1
    against, favour = counts / counts.sum(1, keepdim=True)
    return (favour / against).log()


def vectors(texts: Sentences, wanted: set[str]) -> dict[str, Tensor]:
    """Return a vector of length 1 for each wanted word that occurs at least twice in the texts."""
    counts = Counter(word for text in texts for word in text)
    rows = {word: row for row, word in enumerate(each for each in counts if each in wanted and counts[each] > 1)}
    contexts = {word: column for column, (word, _) in enumerate(counts.most_common(CONTEXTS))}
    gap = [(-1, -1)] * WINDOW
    places = torch.tensor(
        [place for text in texts for place in (*((rows.get(w, -1), contexts.get(w, -1)) for w in text), *gap)]
    )
    near = torch.zeros(len(rows) * len(contexts))
    for distance in range(1, WINDOW + 1):
        for word, context in (
            (places[:-distance, 0], places[distance:, 1]),
            (places[distance:, 0], places[:-distance, 1]),
        ):
            both = (word >= 0) & (context >= 0)
            where = word[both] * len(contexts) + context[both]
            near.index_add_(0, where, torch.full((len(where),), 1 / distance))
    near = near.view(len(rows), len(contexts))
    often = near.sum(0) ** 0.75  # smoothed as in Levy et al. 2015, section 3.1
    shares = near / near.sum(1, keepdim=True).clamp(min=1e-9)
    information = (shares / (often / often.sum()).clamp(min=1e-12)).clamp(min=1.0).log()
    left, strength, _ = torch.svd_lowrank(information, q=min(WIDTH + 20, *information.shape), niter=3)
    found = (left * strength.sqrt())[:, :WIDTH]
    found = F.normalize(found - found.mean(0), dim=1)
    return {word: found[row] for word, row in rows.items()}


def features(texts: Sentences, known: dict[str, int], table: dict[str, Tensor]) -> Features:
    """Return the features of texts, without unknown words.

    The sum of a text's vectors is divided by the root of their number.
    """
    bags = [sorted({known[word] for word in text if word in known}) for text in texts]
    starts = torch.tensor([0, *map(len, bags[:-1])]).cumsum(0)
    means = torch.zeros(len(texts), len(next(iter(table.values()))) if table else 0)
    for row, text in enumerate(texts):
        if own := [table[word] for word in text if word in table]:
            means[row] = torch.stack(own).sum(0) / len(own) ** 0.5
    return Features(torch.tensor([word for bag in bags for word in bag]), starts, means)


Weights = tuple[Tensor, ...]
"""Of the words, of the vectors' components, and the bias."""


def scores(given: Features, scale: Tensor, weights: Weights) -> Tensor:
    """Return the scores of texts. Above 0 means positive."""
    of_words, of_vectors, bias = weights
    summed = F.embedding_bag(given.words, (of_words * scale)[:, None], given.starts, mode="sum")[:, 0]
    return summed + given.vectors @ of_vectors + bias


def fit(given: Features, scale: Tensor, labels: Tensor, penalty: float, kept: Tensor | None = None) -> Weights:
    """Minimise the cross-entropy, summed over the texts (or those `kept`), plus penalty / 2 times squared weights."""
    weights = tuple(torch.zeros(n, requires_grad=True) for n in (len(scale), given.vectors.shape[1], 1))
    optimizer = torch.optim.LBFGS(weights, max_iter=60, line_search_fn="strong_wolfe")
    counted = torch.ones(len(labels)) if kept is None else kept.float()

    def loss() -> Tensor:
        optimizer.zero_grad()
        wrong = F.binary_cross_entropy_with_logits(scores(given, scale, weights), labels, counted, reduction="sum")
        total = wrong + penalty / 2 * sum(each.square().sum() for each in weights[:2])
        total.backward()
        return total

    optimizer.step(loss)
    return tuple(each.detach() for each in weights)


def best_penalty(given: Features, scale: Tensor, labels: Tensor) -> float:
    """Return the penalty that does best on every tenth text when trained on the others; among equals the largest."""
    held = torch.arange(len(labels)) % 10 == 9

    def right(penalty: float) -> int:
        found = scores(given, scale, fit(given, scale, labels, penalty, ~held))
        return int((((found > 0) == (labels > 0)) & held).sum())

    return max(reversed(PENALTIES), key=right)


def as_table(cases: Sequence[Case], scored: int) -> str:
    """Return the table, and what it was measured on."""
    body = [[each.features, each.vectors, f"{each.penalty:g}", f"{100 * each.accuracy:.2f} %"] for each in cases]
    head = ("logistic regression by", "vectors from", "penalty", "right on dev")
    return f"{markdown(head, body)}\n\n{scored} sentences; {machine()}."


def reader() -> argparse.ArgumentParser:
    """Return the parser of this command."""
    parser = argparse.ArgumentParser(
        prog="run.py words", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", metavar="FOLDER", help="where sst2/ and wikitext-2/ lie; without it nothing is done")
    parser.add_argument("--sentences", type=int, metavar="N", help="the first N of each split (default: all)")
    parser.add_argument("--threads", type=int, default=0, help="processor threads (default: as `glassformer` chooses)")
    parser.add_argument("--json", action="store_true", help="the figures as JSON in place of the table")
    return parser


if __name__ == "__main__":
    sys.exit(main())
