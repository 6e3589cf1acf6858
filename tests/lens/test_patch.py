"""Activation patching: with everything put in, a run is the other; with nothing, it is itself."""

import pytest
import torch

from glassformer.base.errors import ConfigError, DataError
from glassformer.lens.patch import Input, keep, patch, patched
from glassformer.nn.observe import attentions
from lens.explored import small

SHAPES = ("decoder", "encoder", "encoder-decoder")
SAID = [None, 9, 8, 2]


def two(shape):
    """A model of this shape, and two inputs that differ in one token."""
    model = small(shape).double()
    if shape == "encoder-decoder":
        tokens = torch.tensor([[1, 9, 8, 7]])
        return model, Input(tokens, torch.tensor([[7, 8, 9, 2]])), Input(tokens, torch.tensor([[7, 11, 9, 2]]))
    return model, Input(torch.tensor([[1, 9, 8, 7]])), Input(torch.tensor([[1, 11, 8, 7]]))


def logits(model, given):
    with torch.no_grad():
        return model(given.tokens, source=given.source)


@pytest.mark.parametrize("shape", SHAPES)
def test_with_all_inputs_of_the_streams_it_is_the_other_run(shape):
    model, one, other = two(shape)
    kept, wanted = keep(model, one), logits(model, one)
    sides = {side for side, _ in kept.streams}
    with patched(model, kept, streams=[(side, 0, None) for side in sides]):
        assert torch.equal(logits(model, other), wanted)
    with patched(model, kept, streams=[(side, depth, None) for side, depth in kept.streams]):
        assert torch.equal(logits(model, other), wanted)
    places = one.tokens.shape[1]
    with patched(model, kept, streams=[(side, 0, at) for side in sides for at in range(places)]):
        assert torch.equal(logits(model, other), wanted)


@pytest.mark.parametrize("shape", SHAPES)
def test_without_a_patch_it_is_itself_also_afterwards(shape):
    model, one, other = two(shape)
    seams = [each.attend for each in attentions(model).values()]
    before = logits(model, other)
    kept = keep(model, one)
    with patched(model, kept):
        assert torch.equal(logits(model, other), before)
    with patched(model, keep(model, other), heads=every(model), streams=[(*each, None) for each in kept.streams]):
        assert torch.equal(logits(model, other), before), "its own activations change nothing"
    with pytest.raises(RuntimeError), patched(model, kept, heads=every(model)):
        raise RuntimeError
    assert torch.equal(logits(model, other), before)
    assert [each.attend for each in attentions(model).values()] == seams


def every(model):
    kinds = {"encoder.blocks.0.self_attention": "encoder", "decoder.blocks.0.self_attention": "decoder"}
    kinds["decoder.blocks.0.cross_attention"] = "cross"
    blocks = [kind for name, kind in kinds.items() if name in attentions(model)]
    return [(block, layer, head) for block in blocks for layer in range(2) for head in range(4)]


@pytest.mark.parametrize("shape", SHAPES)
def test_each_effect_is_that_of_the_patch_alone(shape):
    """Rows of a batch have a patch each; one by one they come to the same."""
    model, one, other = two(shape)
    found = patch(model, one, other, SAID)
    kept = keep(model, one)

    def share():
        log_p = logits(model, other).log_softmax(-1)[0]
        return float((sum(log_p[t, id] for t, id in enumerate(SAID) if id) - found.other) / (found.one - found.other))

    for (block, layer), effects in found.heads.items():
        for head, effect in enumerate(effects):
            with patched(model, kept, heads=[(block, layer, head)]):
                assert share() == pytest.approx(float(effect), abs=1e-10)
    for side, effects in found.streams.items():
        for depth, row in enumerate(effects):
            for at, effect in enumerate(row):
                with patched(model, kept, streams=[(side, depth, at)]):
                    assert share() == pytest.approx(float(effect), abs=1e-10)


def test_the_place_that_differs_brings_all_back():
    """At the input, the one token in which the sources differ carries everything, and the others nothing."""
    model, one, other = two("encoder-decoder")
    found = patch(model, one, other, SAID)
    assert found.streams["encoder"][0].tolist() == pytest.approx([0, 1, 0, 0], abs=1e-10)
    assert found.streams["decoder"][0].tolist() == pytest.approx([0, 0, 0, 0], abs=1e-10)
    assert found.streams["encoder"].shape == (3, 4)


def test_what_is_run_at_once_is_bounded(monkeypatch):
    """By the tokens of all runs together; and it can be ended before each."""
    model, one, other = two("encoder-decoder")
    whole = patch(model, one, other, SAID)
    monkeypatch.setattr("glassformer.lens.patch.MOST_PLACES", 8)
    seen, requests = [], []
    model.encoder.register_forward_pre_hook(lambda module, given: seen.append(len(given[0])))
    found = patch(model, one, other, SAID, poll=lambda: requests.append(len(seen)))
    assert max(seen) == 2
    assert len(requests) == len(seen) - 3, "all but the runs that are patched"
    for where, effects in whole.heads.items():
        assert found.heads[where].tolist() == pytest.approx(effects.tolist(), abs=1e-10)

    def end():
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        patch(model, one, other, SAID, poll=end)


def test_mistakes():
    model, one, other = two("encoder-decoder")
    with pytest.raises(DataError, match="got 4 and 3"):
        patch(model, one, other._replace(source=other.source[:, 1:]), SAID)
    with pytest.raises(ConfigError, match="must be an Input; got"):
        patch(model, one.tokens, other.tokens, SAID)
    with pytest.raises(DataError, match="different probabilities; these give the same"):
        patch(model, one, one, SAID)
    with pytest.raises(ConfigError, match=r"x\.1\.3"), patched(model, keep(model, one), heads=[("cross", 7, 0)]):
        pass
    with pytest.raises(DataError, match="decoder 2"), patched(model, keep(model, one), streams=[("decoder", 3, None)]):
        pass
