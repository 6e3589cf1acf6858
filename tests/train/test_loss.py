"""What is minimised: the sum over the targets, in which padding takes no part."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import specimens
from glassformer import Batch, Transformer
from glassformer.base.errors import DataError
from glassformer.nn.outputs import Lm
from glassformer.train import loss as module
from glassformer.train.loss import Loss, likeliest, loss_of
from glassformer.train.objective import next_token, objective_for
from train.examples import LAYOUTS, RAGGED, SCHEMES, VOCAB, assert_close, assert_same, batch, gradients, model


def learned(network: Transformer, data: Batch, smoothing: float = 0.1) -> tuple[Loss, dict[str, torch.Tensor]]:
    """The loss, and the gradients it gives."""
    network.zero_grad()
    loss = loss_of(network, data, objective_for(network), label_smoothing=smoothing)
    loss.objective.backward()
    return loss, gradients(network)


def rows_of(data: Batch) -> list[Batch]:
    """Each row in a batch of its own, without padding."""
    return data.split(len(data.tokens))


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("layout", ["classify", "tag"])
def test_loss_of_labels_is_torchs(layout, smoothing):
    network, data = model(layout), batch(layout, RAGGED)
    scores = network(data.tokens, keep=data.keep)
    scores, labels = (scores, data.labels) if layout == "classify" else (scores[data.keep], data.labels[data.keep])
    expected = F.cross_entropy(scores, labels, reduction="sum", label_smoothing=smoothing)
    loss = loss_of(network, data, objective_for(network), label_smoothing=smoothing)
    torch.testing.assert_close(loss.objective, expected, rtol=1e-12, atol=1e-12)


def test_loss_of_numbers_is_the_squared_error():
    network, data = model("regress"), batch("regress", RAGGED)
    rows = zip(network(data.tokens, keep=data.keep).tolist(), data.labels.tolist(), strict=True)
    expected = sum((a - b) ** 2 for row, wanted in rows for a, b in zip(row, wanted, strict=True))
    loss = loss_of(network, data, objective_for(network))
    assert loss.objective.item() == pytest.approx(expected, rel=1e-12)
    assert (loss.nll.item(), loss.nll.requires_grad) == (loss.objective.item(), False)


@pytest.mark.parametrize("marked", [False, True])
def test_loss_of_numbers_in_places_is_the_squared_error_of_each(marked):
    """Also where more vectors are read than are asked for, and nothing of the places that are not."""
    network, data = model("regress in places"), batch("regress in places", RAGGED)
    data = replace(data, label_keep=data.keep & (torch.arange(data.tokens.shape[1]) % 2 == 0) if marked else None)
    given, counts = network(data.tokens, keep=data.keep), data.keep if data.label_keep is None else data.label_keep
    expected = sum(
        (given[row, place, n].item() - data.labels[row, place, n].item()) ** 2
        for row, place in counts.nonzero().tolist()
        for n in range(2)
    )
    loss = loss_of(network, data, objective_for(network))
    assert loss.objective.item() == pytest.approx(expected, rel=1e-12)
    assert (loss.nll.item(), loss.nll.requires_grad) == (loss.objective.item(), False)


def test_targets_that_the_head_does_not_have_are_refused():
    network = model("classify")
    with pytest.raises(DataError, match=r"from 0 to 2, as the head scores 3 labels; got 3 at target 1"):
        loss_of(network, Batch.labelled([[7], [8]], [0, 3]), objective_for(network))
    numbers = model("regress")
    with pytest.raises(DataError, match=r"as the model outputs, 2 \(head\.n_numbers\); it has 1"):
        loss_of(numbers, Batch.labelled([[7], [8]], [0.5, 3.0]), objective_for(numbers))
    with pytest.raises(DataError, match=r"numbers of a float type; got torch\.int64"):
        loss_of(numbers, Batch.labelled([[7], [8]], [1, 3]), objective_for(numbers))
    places, three = model("regress in places"), torch.zeros(2, 1, 3).double()
    with pytest.raises(DataError, match=r"as the model outputs, 2 \(head\.n_numbers\); it has 3"):
        loss_of(places, Batch(torch.tensor([[7], [8]]), labels=three), objective_for(places))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("positions", SCHEMES)
@pytest.mark.parametrize("norm_placement", ["pre", "post"])
def test_padded_batch_is_the_sum_of_its_rows(layout, positions, norm_placement):
    network, data = model(layout, positions=positions, norm_placement=norm_placement), batch(layout, RAGGED)
    assert data.keep is not None
    together, of_together = learned(network, data)
    alone = [learned(network, row) for row in rows_of(data)]
    assert all(row.keep is None for row in rows_of(data))
    for name in Loss._fields:
        total = sum(getattr(loss, name) for loss, _ in alone)
        torch.testing.assert_close(getattr(together, name), total, rtol=1e-12, atol=1e-12)
    assert_close(of_together, {name: sum(each[name] for _, each in alone) for name in of_together})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_stands_in_padding_changes_no_bit(layout):
    network, data = model(layout), batch(layout, RAGGED)
    loss, of_loss = learned(network, data)
    written = data.tokens.clone(), None if data.source is None else data.source.clone()
    for tokens, keep in zip(written, (data.keep, data.source_keep), strict=True):
        if tokens is not None:
            tokens[~keep] = torch.randint(12, (int((~keep).sum()),))
    counts = data.keep if layout in ("tag", "regress in places") else data.label_keep
    labels = data.labels
    if counts is not None:
        labels = torch.where(counts.view(*counts.shape, *[1] * (labels.ndim - 2)), labels, 9)
    other = Batch(written[0], data.keep, written[1], data.source_keep, labels, data.label_keep)
    assert not torch.equal(other.tokens, data.tokens)
    again, of_again = learned(network, other)
    assert torch.equal(loss.objective, again.objective)
    assert_same(of_loss, of_again)


@pytest.mark.parametrize("layout", ["encoder-decoder", "encoder", "decoder"])
def test_loss_is_that_of_the_logits_at_the_targets(layout):
    """Written out once more, with torch's loss and no shortcut."""
    network, data = model(layout), batch(layout, RAGGED)
    targets = objective_for(network)(data)
    logits = network(targets.inputs, keep=targets.inputs_keep, source=data.source, source_keep=data.source_keep)
    total = sum(
        -logits[row, column].log_softmax(-1)[targets.ids[row, column]].item()
        for row, column in targets.keep.nonzero().tolist()
    )
    loss = loss_of(network, data, objective_for(network), label_smoothing=0.3)
    assert loss.nll.item() == pytest.approx(total, rel=1e-12)
    assert loss.objective.item() != pytest.approx(total, rel=1e-3)


@pytest.mark.parametrize("rows", [3, 64])
def test_the_head_reads_few_numbers_of_vectors(rows, monkeypatch):
    """Behind the vectors that are asked for stand others, and the loss and its gradients are those without them."""
    network, data, read = model(), batch("encoder-decoder", RAGGED), []
    network.head.register_forward_pre_hook(lambda head, inputs: read.append(len(inputs[0])))
    monkeypatch.setattr(module, "ROWS", 1)
    loss, expected = learned(network, data)
    monkeypatch.setattr(module, "ROWS", rows)
    more, found = learned(network, data)
    targets = next_token(data).n_targets
    assert read[0] == targets < read[1] < targets + rows
    assert read[1] % rows == 0
    assert_close(more._asdict(), loss._asdict())
    assert_close(found, expected)


@pytest.mark.parametrize("settings", [
    {"tie_embeddings": True},
    {"tie_embeddings": False},
    {"head_bias": True, "scale_head": True, "head": Lm(transform="gelu")},
    {"feed_forward": "experts", "n_experts": 3},
], ids=["tied", "untied", "transform", "experts"])  # fmt: skip
@pytest.mark.parametrize("layout", ["encoder-decoder", "encoder", "decoder"])
def test_a_large_vocabulary_costs_what_its_whole_logits_would(layout, settings, monkeypatch):
    network, data = specimens.model(layout, vocab_size=VOCAB, **settings), batch(layout, RAGGED)
    loss, expected = learned(network, data)
    monkeypatch.setattr(module, "PLAIN", module.PLAIN._replace(whole=0, chunk=3 * VOCAB))
    monkeypatch.setattr(network.head, "forward", None)  # the logits are not made whole
    chunked, found = learned(network, data)
    torch.testing.assert_close(chunked, loss, rtol=1e-12, atol=1e-12)
    assert_close(found, expected)
    with pytest.raises(DataError, match="as the head scores"):
        module.loss_in_places(network.head, torch.zeros(1, 8).double(), torch.tensor([VOCAB]), 0.0)


@pytest.mark.parametrize("layout", ["decoder", "tag"])
def test_the_likeliest_of_a_large_vocabulary_are_found_some_vectors_at_a_time(layout, monkeypatch):
    network, x, rows = model(layout), torch.randn(11, 8).double(), []
    expected = network.head(x).argmax(-1)
    monkeypatch.setattr(module, "WHOLE", 4 * network.head.weight.shape[0])
    network.head.register_forward_hook(lambda head, inputs, logits: rows.append(len(logits)))
    assert likeliest(network.head, x).tolist() == expected.tolist()
    assert rows == [4, 4, 3]
    assert likeliest(network.head, x[:0]).tolist() == []
