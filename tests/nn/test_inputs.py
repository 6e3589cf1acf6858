"""Features in place of tokens: what is read, what is refused, and by which words."""

from typing import Any

import pytest
import torch
from torch import nn

from glassformer import ModelConfig, StackConfig, Transformer
from glassformer.base.errors import ConfigError, DataError
from glassformer.nn.embedding import FeatureMap, Segments
from glassformer.nn.initialize import INITS
from glassformer.nn.outputs import Classify, Regress, Tag
from specimens import PADDINGS, close, config, gradients, model, normal, production, scramble, stack, tokens


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
    assert network.encoder.embedding(torch.randn(8, 32, 64)).std().item() == pytest.approx(1.0, abs=0.05)


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


@pytest.mark.parametrize(("settings", "message"), REFUSED, ids=[message[:30] for _, message in REFUSED])
def test_what_contradicts_is_refused_when_configured(settings, message):
    with pytest.raises(ConfigError, match=message):
        config("encoder", **settings)


@pytest.mark.parametrize(("make", "message"), [
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
])  # fmt: skip
def test_a_head_that_cannot_be_is_refused(make, message):
    with pytest.raises(ConfigError, match=message):
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
    removed = (thinned == 0).all(-1)
    assert 10 < int(removed.sum()) < 70
    close(thinned[~removed], 2 * whole[~removed])


def test_features_of_another_dtype_are_converted():
    """Data are in float32, whatever the model is in."""
    made, x = FeatureMap(3, 4).double(), torch.randn(2, 5, 3)
    torch.nn.init.normal_(made.weight)
    assert torch.equal(made(x), made(x.double()))


# --- Vectors read a few at a time answer as read at once, whatever tells their order and wherever padding stands


SETTINGS = {
    "sinusoidal": {}, "learned": {"positions": "learned", "max_len": 90}, "window": {"window": 4},
    "learned, window": {"positions": "learned", "max_len": 90, "window": 4},
    "shaw, window": {"positions": "shaw", "window": 4}, "shaw": {"positions": "shaw"},
    "window, sinks": {"window": 4, "sinks": 2}, "linear": {"attention_rule": "linear"},
    "rotary, linear": {"positions": "rotary", "attention_rule": "linear"},
}  # fmt: skip


def reader(dtype: torch.dtype, n_layers: int = 2, **kwargs: Any) -> Transformer:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "n_heads": 2, "n_layers": n_layers, "d_ff": 16, "n_features": 5, "dropout": 0.0}
    stack = StackConfig(**sizes, causal=True, **kwargs)
    return Transformer(ModelConfig(vocab_size=11, decoder=stack, tie_embeddings=False)).to(dtype).eval()


def padded(T: int, where: str) -> torch.Tensor | None:
    """Which of two rows' vectors are real."""
    keep = torch.ones(2, T, dtype=torch.bool)
    match where:
        case "left":
            keep[0, :3] = False
        case "inside":
            keep[1, 12:17] = False
        case _:
            return None
    return keep


@torch.no_grad()
def by_and_by(model: Transformer, x: torch.Tensor, keep: torch.Tensor | None, first: int = 10) -> torch.Tensor:
    """What a cache answers that is given `first` vectors, and then one at a time."""
    cache = model.new_cache()
    cuts = [(0, first), *((t, t + 1) for t in range(first, x.shape[1]))]
    return torch.cat([model(x[:, a:b], keep=None if keep is None else keep[:, a:b], cache=cache) for a, b in cuts], 1)


@pytest.mark.parametrize("where", ["nowhere", "left", "inside"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_cache_changes_nothing(settings, where):
    model = reader(torch.float64, **settings)
    x, keep = torch.randn(2, 80, 5, dtype=torch.float64), padded(80, where)
    real = torch.ones(2, 80, dtype=torch.bool) if keep is None else keep
    with torch.no_grad():
        whole = model(x, keep=keep)
    torch.testing.assert_close(by_and_by(model, x, keep)[real], whole[real], rtol=0, atol=1e-12)


def test_single_precision_and_a_relative_window():
    model = reader(torch.float32, positions="shaw", window=4)
    x = torch.randn(2, 40, 5)
    with torch.no_grad():
        torch.testing.assert_close(by_and_by(model, x, None), model(x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("where", ["nowhere", "left"])
@pytest.mark.parametrize("settings", [{}, {"window": 8, "positions": "none"}], ids=["sinusoidal", "window"])
def test_places_beyond_256_in_bfloat16(settings, where):
    """bfloat16 has no 257, so places of that kind would stand in pairs."""
    model = reader(torch.bfloat16, n_layers=1, **settings)
    x, keep = torch.randn(2, 330, 5).bfloat16(), padded(330, where)
    with torch.no_grad():
        whole = model(x, keep=keep).float()
    apart = (by_and_by(model, x, keep, first=240).float() - whole).abs().amax((0, 2))
    assert apart[260:].max() <= 2 * apart[10:250].max() + 0.02


# --- Segments: a vector for each part of a text, under the laws of padding, causality and the cache


N = 3
shapes = pytest.mark.parametrize("shape", ["encoder", "decoder"])


def parts(*shape):
    return torch.randint(N, shape)


def test_the_vector_of_its_part_is_added_to_each_token():
    made, x, segments = scramble(Segments(N, 4).double()), normal(2, 5, 4), parts(2, 5)
    for row in range(2):
        for place in range(5):
            close(made(segments, x)[row, place], x[row, place] + made.weight[segments[row, place]])
    close(made(None, x), made(torch.zeros(2, 5, dtype=torch.long), x))


@shapes
@pytest.mark.parametrize("where", PADDINGS)
def test_each_row_gets_what_it_gets_alone(shape, where):
    made = model(shape, n_segments=N)
    rows = [(tokens(n), parts(n)) for n in (5, 1, 8)]
    keep = torch.zeros(3, 9, dtype=torch.bool)
    for real, (ids, _) in zip(keep, rows, strict=True):
        n = len(ids)
        real[{"right": torch.arange(n), "left": torch.arange(9 - n, 9), "holes": torch.randperm(9)[:n]}[where]] = True
    ids, segments = tokens(3, 9), parts(3, 9)
    ids[keep], segments[keep] = (torch.cat(each) for each in zip(*rows, strict=True))
    together = made(ids, keep=keep, segments=segments)[keep]
    alone = torch.cat([made(row[None], segments=its[None])[0] for row, its in rows])
    close(together, alone)
    apart = gradients(alone, made)
    for name, gradient in gradients(together, made).items():
        close(gradient, apart[name], name, 1e-11)


@shapes
def test_a_segment_tells_and_a_later_one_does_not(shape):
    made, ids, segments = model(shape, n_segments=N), tokens(1, 6), parts(1, 6)
    changed = segments.clone()
    changed[0, 3] = (segments[0, 3] + 1) % N
    before, after = made(ids, segments=segments), made(ids, segments=changed)
    assert (before[0, 3] != after[0, 3]).all()
    assert torch.equal(before[0, :3], after[0, :3]) == (shape == "decoder")


@pytest.mark.parametrize("capacity", [None, 9])
def test_steps_give_the_logits_of_one_forward(capacity):
    made, ids, segments = model("decoder", n_segments=N), tokens(2, 7), parts(2, 7)
    cache, cut = made.new_cache(capacity), (3, 1, 2, 1)
    pairs = zip(ids.split(cut, dim=1), segments.split(cut, dim=1), strict=True)
    steps = [made(part, segments=its, cache=cache) for part, its in pairs]
    close(torch.cat(steps, dim=1), made(ids, segments=segments))


def test_gradients():
    made, x = scramble(Segments(N, 4).double()), normal(2, 3, 4)
    segments = parts(2, 3)
    assert torch.autograd.gradcheck(lambda x, _: made(segments, x), (x, made.weight))


@pytest.mark.parametrize("init", INITS)
def test_begin_as_learned_positions_do(init):
    made = Transformer(config("encoder", d_model=64, n_segments=64, positions="learned", max_len=64, init=init))
    for table in (made.encoder.segments.weight, made.encoder.positions.weight):
        assert table.std().item() == pytest.approx(INITS[init].embedding(64), rel=0.1)


def test_wrong_segments_are_refused():
    made, ids = model("encoder", n_segments=N), tokens(2, 4)
    with pytest.raises(DataError, match=r"below n_segments=3; got 3 at row 1, column 2\. Number"):
        made(ids, segments=torch.tensor([[0, 1, 2, 0], [0, 1, 3, 0]]))
    with pytest.raises(DataError, match="got -1 at row 0, column 0"):
        made(ids, segments=torch.full((2, 4), -1))
    with production(), pytest.raises(DataError, match=r"the shape of the tokens, \[2, 4\]; got \[2, 3\]"):
        made(ids, segments=parts(2, 3))
    with pytest.raises(ConfigError, match=r"this one has none\. Remove segments"):
        model("encoder")(ids, segments=parts(2, 4))


def test_an_encoder_decoder_has_none():
    with pytest.raises(ConfigError, match="reads its two texts in two stacks"):
        ModelConfig(9, encoder=stack(n_segments=2), decoder=stack())
    with pytest.raises(ConfigError, match=r"^n_segments must be at least 1; got 0"):
        stack(n_segments=0)
