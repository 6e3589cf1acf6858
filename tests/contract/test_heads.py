"""Every head, every pooling, tokens and features: padding and batch-mates change nothing, in value and in gradient."""

import math

import pytest
import torch
from torch import nn

from glassformer import Transformer
from glassformer.nn.heads import HEADS, POOLINGS
from glassformer.nn.initialize import INITS
from glassformer.nn.outputs import OUTPUTS, Classify, Lm, Regress, Tag
from specimens import PADDINGS, close, config, gradients, model, normal, scramble, tokens

HEAD_SPECIMENS = [
    Lm(),
    Lm(transform="gelu"),
    Tag(5),
    *(Classify(3, pooling) for pooling in POOLINGS),
    *(Regress(2, pooling) for pooling in (*POOLINGS, "none")),
]
LENGTHS = (5, 1, 8, 2)
FEATURES = 6
heads = pytest.mark.parametrize("head", HEAD_SPECIMENS, ids=str)
reads = pytest.mark.parametrize("n_features", [None, FEATURES], ids=["tokens", "features"])
paddings = pytest.mark.parametrize("where", PADDINGS)


def made(head, n_features=None, shape="encoder", **settings) -> Transformer:
    return model(shape, head=head, n_features=n_features, tie_embeddings=False, **settings)


def row(n_features, length):
    return tokens(length) if n_features is None else torch.randn(length, n_features, dtype=torch.float64)


def padded(rows, width, where):
    """Rows in one tensor, and where it is real; the padding holds what it may."""
    keep = torch.zeros(len(rows), width, dtype=torch.bool)
    for real, n in zip(keep, map(len, rows), strict=True):
        places = {"right": torch.arange(n), "left": torch.arange(width - n, width), "holes": torch.randperm(width)[:n]}
        real[places[where]] = True
    held = torch.stack([row(None if rows[0].ndim == 1 else rows[0].shape[1], width) for _ in rows])
    held[keep] = torch.cat(rows)
    return held, keep


def answers(network, held, keep):
    """What is answered of the real places, or of each row."""
    found = network(held, keep=keep)
    return found[keep] if found.ndim == 3 else found


def test_every_head_has_its_specimen():
    assert {head.kind for head in HEAD_SPECIMENS} == HEADS.keys() == OUTPUTS.keys()


@heads
@reads
@paddings
def test_each_row_gets_what_it_gets_alone(head, n_features, where):
    network, rows = made(head, n_features), [row(n_features, length) for length in LENGTHS]
    together = answers(network, *padded(rows, 10, where))
    alone = [network(each[None])[0] for each in rows]
    expected = torch.cat(alone) if alone[0].ndim == 2 else torch.stack(alone)
    close(together, expected)
    apart = gradients(expected, network)
    for name, gradient in gradients(together, network).items():
        close(gradient, apart[name], name, 1e-11)


@heads
@reads
def test_a_row_of_padding_alone_harms_nobody(head, n_features):
    network, rows = made(head, n_features), [row(n_features, 3), row(n_features, 0)]
    held, keep = padded(rows, 5, "right")
    found = network(held, keep=keep)
    assert found.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients(found, network).values())


@heads
@pytest.mark.parametrize("shape", ["decoder", "encoder-decoder"])
def test_hidden_and_head_are_two_calls(head, shape):
    if getattr(head, "pooling", None) == "first":
        head = type(head)(3, "mean")
    network = made(head, shape=shape)
    given = {"source": tokens(2, 4)} if shape == "encoder-decoder" else {}
    ids, keep = tokens(2, 5), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    hidden = network.hidden(ids, keep=keep, **given)
    whole = network.head(hidden, keep) if hasattr(network.head, "pooling") else network.head(hidden)
    close(network(ids, keep=keep, **given), whole)


@heads
def test_a_head_is_a_linear_map(head):
    """Of torch, on the vectors of the places, or on the pooled one."""
    network, x = made(head), normal(2, 4, 16)
    last = nn.Linear(16, len(network.head.weight)).double()
    bias = torch.zeros_like(last.bias) if network.head.bias is None else network.head.bias
    last.load_state_dict({"weight": network.head.weight, "bias": bias})
    if getattr(head, "transform", None) is not None:
        close(network.head(x), last(network.head.transform(x)))
    else:
        close(network.head(x), last(network.head.pooling(x) if hasattr(network.head, "pooling") else x))


@heads
def test_tokens_are_features_of_one_number_each(head):
    """An embedding is the map of one-hot vectors."""
    reader, mapper = made(head), made(head, 11)
    state = reader.state_dict()
    mapped = {
        **state,
        "encoder.embedding.weight": state["encoder.embedding.weight"].T * reader.encoder.embedding.scale,
        "encoder.embedding.bias": torch.zeros(16),
    }
    mapper.load_state_dict(mapped)
    ids, keep = padded([tokens(length) for length in LENGTHS], 10, "holes")
    close(mapper(nn.functional.one_hot(ids, 11).double(), keep=keep), reader(ids, keep=keep))


@heads
@pytest.mark.parametrize("init", INITS)
@reads
def test_first_answers_say_nothing(head, init, n_features):
    """Of labels the first loss is ln n within 0.05; numbers begin near 0."""
    torch.manual_seed(0)
    network = Transformer(
        config("encoder", head=head, n_features=n_features, tie_embeddings=False, init=init, d_model=64, d_ff=64)
    )
    given = row(n_features, 24 * 16)
    with torch.no_grad():
        found = network(given.view(16, 24, *given.shape[1:]).to(given.dtype if n_features is None else torch.float32))
    found = found.flatten(0, -2)
    if isinstance(head, Regress):
        assert found.square().mean() < 0.05
    else:
        n = found.shape[-1]
        targets = torch.arange(len(found)) % n
        assert abs(nn.functional.cross_entropy(found, targets).item() - math.log(n)) < 0.05


def written_out(pooling, x, keep, query):
    """The poolings once more, row by row."""
    rows = []
    for vectors, real in zip(x, keep, strict=True):
        there = vectors[real]
        match pooling:
            case "first":
                rows.append(there[0])
            case "mean":
                rows.append(sum(there) / len(there))
            case "attention":
                shares = torch.stack([(vector * query).sum() / math.sqrt(len(query)) for vector in there]).exp()
                rows.append(sum(s * v for s, v in zip(shares, there, strict=True)) / shares.sum())
    return torch.stack(rows)


@pytest.mark.parametrize("pooling", POOLINGS)
@paddings
def test_pooling_is_its_equation(pooling, where):
    pool = scramble(POOLINGS[pooling](4).double())
    x, keep = padded([torch.randn(length, 4, dtype=torch.float64) for length in LENGTHS], 9, where)
    close(pool(x, keep), written_out(pooling, x, keep, getattr(pool, "query", None)))
    close(pool(x), written_out(pooling, x, torch.ones_like(keep), getattr(pool, "query", None)))


@pytest.mark.parametrize("pooling", POOLINGS)
def test_pooling_ignores_padding_in_value_and_gradient(pooling):
    pool = scramble(POOLINGS[pooling](4).double())
    x, keep = normal(3, 5, 4), torch.tensor([[False, True, True, False, True], [True] * 5, [False] * 5])
    found = pool(x, keep)
    (slope,) = torch.autograd.grad((found * torch.randn(3, 4)).sum(), x)
    assert not slope[~keep].any()
    assert slope[keep].any()
    assert torch.equal(found[2], torch.zeros(4, dtype=torch.float64))
    assert torch.equal(pool(torch.where(keep[:, :, None], x, float("nan")), keep), found)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_gradients_of_poolings(pooling):
    pool = scramble(POOLINGS[pooling](4).double())
    keep = torch.tensor([[False, True, True], [True] * 3, [False] * 3])
    assert torch.autograd.gradcheck(lambda x, *_: pool(x, keep), (normal(3, 3, 4), *pool.parameters()))


def test_attention_pooling_begins_as_the_mean():
    x = torch.randn(2, 5, 4)
    close(POOLINGS["attention"](4)(x), x.mean(1), tolerance=1e-6)
