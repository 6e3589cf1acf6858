"""What is asked of a batch: labels are shifted by one, and blanks alone count."""

from dataclasses import replace
from itertools import chain

import pytest
import torch

from glassformer import Batch, ModelConfig, StackConfig, Transformer
from glassformer.base.errors import DataError
from glassformer.data.tokens.vocabulary import BLANK, PAD, SEP
from glassformer.train.objective import OBJECTIVES, masked_token, next_token, objective_for
from train.examples import LAYOUTS, RAGGED, batch, model, sequences


def test_next_token_on_a_counting_sequence():
    counting = Batch(torch.tensor([[10, 11, 12, 13, 14], [20, 21, 22, 23, 24]]))
    targets = next_token(counting)
    assert targets.inputs.tolist() == [[10, 11, 12, 13], [20, 21, 22, 23]]
    assert torch.equal(targets.ids, targets.inputs + 1)
    assert (targets.keep, targets.inputs_keep, targets.n_targets) == (None, None, 8)


def test_next_token_counts_what_follows_a_real_token():
    padded = Batch(
        torch.tensor([[10, 11, 12, 13], [20, 21, PAD, PAD]]), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]) == 1
    )
    targets = next_token(padded)
    assert targets.ids[targets.keep].tolist() == [11, 12, 13, 21]
    assert targets.inputs[targets.inputs_keep].tolist() == [10, 11, 12, 20, 21]
    assert targets.n_targets == 4


def test_masked_token_counts_blanks_alone():
    sources, targets = sequences([3, 1, 4], 1), sequences([2, 5, 1], 2)
    wanted = masked_token(Batch.blanks(sources, targets))
    assert wanted.n_targets == 8
    assert torch.equal(wanted.inputs == BLANK, wanted.keep)
    assert wanted.ids[wanted.keep].tolist() == [*chain.from_iterable(targets)]
    assert [int((row == SEP).sum()) for row in wanted.inputs] == [1, 1, 1]


def test_masked_token_needs_labels():
    with pytest.raises(DataError, match=r"needs a batch with labels.*Batch\.blanks"):
        masked_token(Batch(torch.tensor([[7, 8]])))


@pytest.mark.parametrize("name", ["tag", "classify", "regress"])
def test_heads_of_other_kinds_need_labels(name):
    with pytest.raises(DataError, match=rf"The {name} objective needs a batch with labels"):
        OBJECTIVES[name](Batch(torch.tensor([[7, 8]])))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_objective_of_a_model(layout):
    names = {"encoder": "masked_token", "encoder-decoder": "next_token", "decoder": "next_token"}
    assert objective_for(model(layout)) is OBJECTIVES[names.get(layout, layout.split()[0])]


@pytest.mark.parametrize(("layout", "count"), [("classify", 4), ("tag", 12), ("regress", 8), ("regress in places", 24)])
def test_targets_are_counted(layout, count):
    """A label a row, a tag a real token, N numbers a row or a real token."""
    assert OBJECTIVES[layout.split()[0]](batch(layout, RAGGED)).n_targets == count


def test_marked_tokens_alone_are_tagged():
    data = batch("tag", RAGGED)
    marked = data.keep & (torch.arange(data.tokens.shape[1]) % 2 == 0)
    assert OBJECTIVES["tag"](replace(data, label_keep=marked)).n_targets == int(marked.sum())
    numbers = replace(batch("regress in places", RAGGED), label_keep=marked)
    assert OBJECTIVES["regress"](numbers).n_targets == 2 * int(marked.sum())


def test_tokens_that_a_model_never_writes_are_no_targets():
    stack = StackConfig(d_model=8, n_heads=2, n_layers=1, d_ff=8, causal=True)
    objective = objective_for(Transformer(ModelConfig(vocab_size=9, decoder=stack, silent="1,4")))
    targets = objective(
        Batch(torch.tensor([[5, 1, 6, 4, 7], [1, 6, 5, PAD, PAD]]), torch.tensor([[1] * 5, [1, 1, 1, 0, 0]]) == 1)
    )
    assert targets.ids[targets.keep].tolist() == [6, 7, 6, 5]
