"""Segments: a vector for each part of a text, under the laws of padding, causality and the cache."""

import pytest
import torch

from glassformer import ModelConfig
from glassformer.base.errors import ConfigError, DataError
from glassformer.nn.embedding import Segments
from glassformer.nn.initialize import INITS
from glassformer.nn.transformer import Transformer
from specimens import PADDINGS, close, config, gradients, model, normal, production, scramble, stack, tokens

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
