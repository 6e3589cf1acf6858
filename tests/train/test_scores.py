"""Scores of labels, on answers made by hand and against their definitions counted one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from glassformer.base.errors import DataError
from glassformer.train.evaluate import accuracy, class_scores, confusion


@given(rows=some.lists(some.tuples(some.integers(0, 3), some.integers(0, 3)), min_size=1, max_size=30))
def test_as_counted_one_by_one(rows):
    given_labels, wanted = [a for a, _ in rows], [b for _, b in rows]
    counts = confusion(given_labels, wanted, 4)
    assert accuracy(counts) == pytest.approx(sum(a == b for a, b in rows) / len(rows))
    for label, scores in enumerate(class_scores(counts)):
        right = sum(a == b == label for a, b in rows)
        assert (scores["n"], scores["given"]) == (wanted.count(label), given_labels.count(label))
        if right:
            precision, recall = right / given_labels.count(label), right / wanted.count(label)
            assert scores["precision"] == pytest.approx(precision)
            assert scores["recall"] == pytest.approx(recall)
            assert scores["f1"] == pytest.approx(2 * precision * recall / (precision + recall))
        else:
            assert scores["precision"] == scores["recall"] == scores["f1"] == 0.0


def test_as_many_answers_as_right_ones():
    with pytest.raises(DataError, match="got 1 answers and 2 right ones"):
        confusion([1], [1, 0], 2)
