"""The plain path is what an accelerator runs: one graph for a compiler, no wait for the device, few operations."""

import sys
from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fresh import printed
from glassformer import ModelConfig, Transformer
from glassformer.data.batch import Batch
from glassformer.nn.heads import Head
from glassformer.nn.outputs import Classify, Tag
from glassformer.train.loss import loss_in_places, loss_of
from glassformer.train.objective import objective_for
from specimens import VOCAB, stack

WAITS = {"nonzero", "_local_scalar_dense", "is_nonzero"}
IDS = torch.tensor([[4, 5, 6, 7, 8, 6], [5, 6, 7, 0, 0, 0], [6, 7, 4, 4, 0, 0]])
KEEP = torch.arange(6) < torch.tensor([[6], [3], [4]])
DOCUMENTS = torch.tensor([[0, 0, 0, 1, 1, 1]] * 3)
BATCHES = {
    "whole": Batch(IDS),
    "padded": Batch(IDS, KEEP),
    "packed": Batch(IDS, documents=DOCUMENTS),
    "a prefix": Batch(IDS, KEEP, prefix=torch.tensor([1, 2, 0])),
}
SETTINGS = {
    "learned": {}, "convolution": {"convolution": 3}, "ALiBi": {"positions": "alibi"}, "T5": {"positions": "t5"},
    "rotary": {"positions": "rotary", "norm": "rms", "qk_norm": "rms", "feed_forward": "gated"},
    "window": {"window": 3}, "stochastic depth": {"stochastic_depth": 0.2, "parallel_branches": True},
}  # fmt: skip


HEADS = {
    "classifier, mean": Classify(n_labels=3),
    "classifier, attention": Classify(n_labels=3, pooling="attention"),
    "tags": Tag(n_labels=3),
}
CASES = [
    *(f"lm, learned, {batch}" for batch in BATCHES),
    *(f"lm, {settings}, padded" for settings in SETTINGS if settings != "learned"),
    *("lm, window, packed", "lm, convolution, packed", "encoder-decoder, whole", "encoder-decoder, padded", *HEADS),
]
"""Without experts: which positions an expert gets depends on values."""

FEW = ["lm, ALiBi, padded", "lm, convolution, packed", "lm, window, padded", "encoder-decoder, padded", *HEADS]


def case(name: str) -> tuple[Transformer, Batch]:
    """A model and a batch."""
    torch.manual_seed(0)
    kind, *rest = name.split(", ")
    if kind == "lm":
        decoder = stack(causal=True, dropout=0.1, **SETTINGS[rest[0]])
        return Transformer(ModelConfig(VOCAB, decoder=decoder)), BATCHES[rest[1]]
    if kind == "encoder-decoder":
        keep = KEEP if rest == ["padded"] else None
        both = ModelConfig(VOCAB, encoder=stack(dropout=0.1), decoder=stack(causal=True))
        return Transformer(both), Batch(IDS, keep, IDS, keep)
    model = Transformer(ModelConfig(VOCAB, encoder=stack(), head=HEADS[name]))
    if kind == "tags":
        return model, Batch.tagged([[5, 6, 7], [5, 6]], [[0, 1, 2], [0, 1]])
    return model, Batch.labelled([[5, 6, 7], [5, 6]], [0, 2])


class Counted(TorchDispatchMode):
    """Counts operations by name."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.__name__.split(".")[0]
        self.seen[name] += name != "promote_types"  # of two dtypes; the device has nothing to do
        return func(*args, **(kwargs or {}))


def compare(name: str) -> None:
    """The loss of one case, compiled and not; backward with dropout."""
    model, batch = case(name)
    objective = objective_for(model)
    torch.compiler.reset()
    compiled = torch.compile(
        lambda: loss_of(model, batch, objective, label_smoothing=0.1), fullgraph=True, backend="eager"
    )
    compiled().objective.backward()
    model.eval()  # so that neither draws anything
    torch.testing.assert_close(compiled(), loss_of(model, batch, objective, label_smoothing=0.1), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("names", [FEW, pytest.param(CASES, marks=pytest.mark.slow)], ids=["few", "all"])
def test_losses_compile_as_one_graph_and_are_the_same(names):
    """In a process whose functions do not check shapes, as the tracer cannot follow these checks."""
    printed(__file__, *names, timeout=500)


@pytest.mark.parametrize("name", CASES)
def test_a_step_waits_for_nothing_before_the_optimizer(name):
    model, batch = case(name)
    model, batch = model.to("meta").train(), batch.to(torch.device("meta"))
    with Counted() as counted:
        loss_of(model, batch, objective_for(model), label_smoothing=0.1).objective.backward()
    assert not WAITS & {*counted.seen}, counted.seen


@pytest.mark.parametrize("padded", [False, True])
def test_a_loss_of_many_tokens_and_words_takes_few_operations(padded):
    rows, words = 16_384, 50_257
    head = Head(words, 64).to("meta")
    x = torch.empty(rows, 64, device="meta", requires_grad=True)
    ids = torch.empty(rows, dtype=torch.long, device="meta")
    keep = torch.empty(rows, dtype=torch.bool, device="meta") if padded else None
    with Counted() as counted:
        loss_in_places(head, x, ids, 0.1, keep).objective.backward()
    assert sum(counted.seen.values()) <= 150, counted.seen


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("name", ["lm, learned, padded", "lm, learned, packed", "tags"])
def test_places_that_do_not_count_weigh_nothing(name, smoothing, monkeypatch):
    """All places are read where their number would have to be waited for: the loss of those that are picked."""
    model, batch = case(name)
    model, objective = model.double().eval(), objective_for(model)

    def found():
        loss = loss_of(model, batch, objective, label_smoothing=smoothing)
        return [*loss, *torch.autograd.grad(loss.objective, list(model.parameters()))]

    picked = found()
    monkeypatch.setattr("glassformer.train.loss.picked", None)
    monkeypatch.setattr("glassformer.train.loss.picks", lambda x: False)
    torch.testing.assert_close(found(), picked, rtol=1e-11, atol=1e-12)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        compare(name)
