"""The mean of several classifiers, by hand and by each alone; labels are met by name, whatever their order."""

import pytest
import torch

from glassformer.base.errors import ConfigError, DataError
from glassformer.data.dataset import Tokenizers
from glassformer.data.tokens.vocabulary import Labels, WordTokenizer
from glassformer.decode.answer import Member, ensemble_probabilities, label_probabilities, mean_by_name, shared_labels
from train.examples import VOCAB, model, sequences

ORDERS = (("bad", "good", "so"), ("so", "bad", "good"), ("bad", "good", "so"))


def member(seed: int, labels: tuple[str, ...] = ORDERS[0]) -> Member:
    words = WordTokenizer([f"w{place}" for place in range(VOCAB - 6)])
    return Member(f"runs/{seed}", model("classify", seed=seed), Tokenizers(words, Labels(labels)))


def read(count: int) -> list[tuple[list[int], ...]]:
    """Five texts, each as `count` members read it: every one in its own way."""
    return list(zip(*(sequences([3, 9, 1, 5, 2], seed=number) for number in range(count)), strict=True))


def test_the_mean_of_two_tables_by_hand():
    """Exact in binary: what stands here is what must come."""
    one = torch.tensor([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]])
    two = torch.tensor([[0.75, 0.125, 0.125], [0.0, 0.5, 0.5]])  # so, bad, good
    found = mean_by_name([one, two], ORDERS[:2], ORDERS[0])
    assert found.dtype == torch.float64
    assert found.tolist() == [[0.3125, 0.1875, 0.5], [0.75, 0.25, 0.0]]


def test_a_ensemble_of_one_is_its_model_to_the_last_bit():
    one, texts = member(1), read(1)
    alone = label_probabilities(one.model, [text for (text,) in texts])
    assert torch.equal(ensemble_probabilities([one], texts), alone.double())


def test_every_member_reads_its_own_ids_and_counts_alike():
    members = [member(seed, labels) for seed, labels in enumerate(ORDERS)]
    texts = read(3)
    expected = sum(
        label_probabilities(each.model, [text[place] for text in texts]).double()[
            :, [each.tokenizers.labels.index(label) for label in ORDERS[0]]
        ]
        for place, each in enumerate(members)
    )
    found = ensemble_probabilities(members, texts, batch_size=2)
    torch.testing.assert_close(found, expected / 3, rtol=0, atol=1e-7)
    assert found.sum(-1).tolist() == pytest.approx([1.0] * 5, abs=1e-6)


@pytest.mark.parametrize(("labels", "message"), [
    (("bad", "good"), "runs/2 lacks 'so', which runs/1 has"),
    (("bad", "good", "odd", "so"), "runs/1 lacks 'odd', which runs/2 has"),
    (("bad", "Good", "so"), "runs/2 lacks 'good', which runs/1 has"),
], ids=["fewer", "more", "another"])  # fmt: skip
def test_other_labels_are_refused_by_name(labels, message):
    with pytest.raises(ConfigError, match=f"of an ensemble must have the same labels; {message}"):
        shared_labels([member(1), member(2, labels)])


@pytest.mark.parametrize("count", [1, 2])
def test_a_member_without_numbers_is_refused_by_name(count):
    """The largest of numbers that are none would be some label."""
    members = [member(seed) for seed in range(count)]
    with torch.no_grad():
        members[-1].model.head.bias[1] = torch.nan
    with pytest.raises(DataError, match=f"must be finite numbers; those of runs/{count - 1} are not"):
        ensemble_probabilities(members, read(count))
