"""Features in place of tokens: what is read, what is refused, and by which words."""

import pytest
import torch
from torch import nn

from glassformer import ModelConfig, Transformer
from glassformer.base.errors import ConfigError, DataError
from glassformer.nn.embedding import FeatureMap
from glassformer.nn.outputs import Classify, Regress, Tag
from specimens import close, config, model, normal, production, scramble, tokens


def test_the_map_is_linear():
    ours, theirs = scramble(FeatureMap(3, 5).double()), nn.Linear(3, 5).double()
    theirs.load_state_dict(ours.state_dict())
    x = normal(2, 4, 3)
    close(ours(x), theirs(x))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_named(value):
    x = torch.zeros(2, 4, 3)
    x[1, 2, 0] = value
    with pytest.raises(DataError, match=rf"got {value} at row 1, place 2, feature 0 "):
        FeatureMap(3, 4)(x)


@pytest.mark.parametrize("shape", [(2, 4, 2), (4, 3)])
def test_another_width_is_refused(shape):
    with production(), pytest.raises(DataError, match=r"\[batch, positions, 3\].*n_features"):
        FeatureMap(3, 4)(torch.zeros(*shape))


def test_begins_with_the_variance_of_what_is_read():
    torch.manual_seed(0)
    network = Transformer(config("encoder", head=Tag(2), n_features=64, d_model=256, d_ff=16))
    found = network.encoder.embedding(torch.randn(8, 32, 64))
    assert found.std().item() == pytest.approx(1.0, abs=0.05)


def test_an_encoder_reads_features_for_a_decoder_of_tokens():
    """As of speech: the stacks read different things, and share no embedding."""
    listens, writes = config("encoder", n_features=5, head=Tag(2)).encoder, config("decoder").decoder
    speech = scramble(Transformer(ModelConfig(11, encoder=listens, decoder=writes)).double()).eval()
    ids, heard = tokens(2, 3), normal(2, 6, 5)
    assert speech(ids, source=heard).shape == (2, 3, 11)
    close(speech(ids, source=heard), speech.head(speech.hidden(ids, memory=speech.encode(heard))))


def test_order_enters_as_for_tokens():
    network = model("encoder", head=Regress(1, "mean"), n_features=4)
    x = normal(1, 5, 4)
    assert not torch.allclose(network(x), network(x.flip(1)))
    bag = model("encoder", head=Regress(1, "mean"), n_features=4, positions="none")
    close(bag(x), bag(x.flip(1)))


def test_a_sequence_longer_than_max_len_is_refused():
    network = model("encoder", head=Classify(2), n_features=4, max_len=3)
    with pytest.raises(DataError, match="max_len=3 tokens; got one of 4"):
        network(normal(1, 4, 4))


REFUSED = [
    ({"n_features": 0}, "n_features must be at least 1; got 0"),
    ({"n_features": 4}, r"reads features .*n_features=4.*tie_embeddings=False"),
    ({"n_features": 4, "vocab_size": None, "tie_embeddings": False}, "vocab_size must be given, as the model outputs"),
    ({"vocab_size": None, "head": Classify(2)}, "vocab_size must be given, as the model reads tokens"),
    ({"causal": True, "head": Classify(2, "first")}, r"pooling='first'.*causal.*'mean' or 'attention'"),
    ({"token_dropout": 1.0}, "token_dropout must be at least 0 and below 1; got 1.0"),
]


@pytest.mark.parametrize(("settings", "said"), REFUSED, ids=[said[:30] for _, said in REFUSED])
def test_what_contradicts_is_refused_when_configured(settings, said):
    with pytest.raises(ConfigError, match=said):
        config("encoder", **settings)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Classify(1), "n_labels must be at least 2"),
        (lambda: Tag(0), "n_labels must be at least 2"),
        (lambda: Regress(0), "n_numbers must be at least 1"),
        *(
            (lambda make=make: make(10**20), rf"head\.{name} must be at most 1048576; got 1{'0' * 20}")
            for make, name in ((Classify, "n_labels"), (Tag, "n_labels"), (Regress, "n_numbers"))
        ),
        (lambda: Classify(-(10**5000)), "n_labels must be at least 2.*got a number of 16610 bits"),
        (lambda: Classify(2, dropout=1.0), "head.dropout must be at least 0 and below 1; got 1.0"),
        (lambda: Transformer(config("encoder", head=Classify(2, "max"))), "pooling='max' is not known"),
    ],
)
def test_a_head_that_cannot_be_is_refused(make, said):
    with pytest.raises(ConfigError, match=said):
        make()


def test_dropped_tokens_are_whole_and_random_and_for_training_alone():
    network = model("encoder", head=Tag(2), token_dropout=0.5, positions="none")
    x = network.encoder.dropout
    seen = []
    x.register_forward_hook(lambda module, given, made: seen.append(given[0]))
    ids = tokens(4, 20)
    network(ids)
    network.train()
    network(ids)
    whole, thinned = seen
    gone = (thinned == 0).all(-1)
    assert 10 < int(gone.sum()) < 70
    close(thinned[~gone], 2 * whole[~gone])


def test_features_of_another_dtype_are_converted():
    """Data are in float32, whatever the model is in."""
    made, x = FeatureMap(3, 4).double(), torch.randn(2, 5, 3)
    torch.nn.init.normal_(made.weight)
    assert torch.equal(made(x), made(x.double()))
