"""Metrics of labels: accuracy, F1 and the confusion matrix, in plain arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from glassformer.base.errors import DataError
from glassformer.train.record.events import Metric

Counts = NDArray[np.int64]


def confusion(given: Sequence[int], wanted: Sequence[int], n_labels: int) -> Counts:
    """Confusion matrix [n_labels, n_labels]: how often the row's label was right and the column's was predicted."""
    check_same_number(given, wanted)
    counts = np.zeros((n_labels, n_labels), np.int64)
    np.add.at(counts, (np.asarray(wanted, np.int64), np.asarray(given, np.int64)), 1)
    return counts


def accuracy(counts: Counts) -> float:
    """The share of right labels."""
    return float(np.trace(counts) / counts.sum())


def class_scores(counts: Counts) -> list[dict[str, Metric]]:
    """For each label: how often it was right (`n`) and predicted (`given`), precision, recall, F1; 0 if undefined.

    F1 = 2 * right / (n + given), the harmonic mean of precision and recall (van Rijsbergen 1979, chapter 7).
    """
    rows: list[dict[str, Metric]] = []
    for label in range(len(counts)):
        right, n, given = int(counts[label, label]), int(counts[label].sum()), int(counts[:, label].sum())
        rows.append(
            {
                "n": n,
                "given": given,
                "precision": right / given if given else 0.0,
                "recall": right / n if n else 0.0,
                "f1": 2 * right / (n + given) if n + given else 0.0,
            }
        )
    return rows


def macro_f1(counts: Counts) -> float:
    """The mean F1 over the labels that occur, right or predicted; each has equal weight, however rare."""
    met = [float(row["f1"]) for row in class_scores(counts) if row["n"] or row["given"]]
    return sum(met) / len(met)


def check_same_number(given: Sequence[object], wanted: Sequence[object]) -> None:
    """Refuse lists of different lengths."""
    if len(given) != len(wanted):
        raise DataError(
            f"Each answer is compared with the right one, so both lists must have the same length; got {len(given)} "
            f"answers and {len(wanted)} right ones. Give one right answer for each."
        )
