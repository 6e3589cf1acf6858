"""Direct logit attribution: the terms of a logit add up to it, and each is what its part writes."""

import pytest
import torch

from glassformer import ModelConfig, StackConfig, Transformer, silence
from glassformer.base.errors import ConfigError
from glassformer.lens.attribute import attribute
from glassformer.nn.block import PLACEMENTS
from glassformer.nn.norm import NORMS
from glassformer.nn.observe import attentions
from glassformer.nn.outputs import Classify, Lm
from lens.explored import LETTERS, small

TOKENS, SOURCE = torch.tensor([[1, 7, 9, 8, 7, 11]]), torch.tensor([[8, 7, 9, 12, 2]])
TARGETS = torch.tensor([7, 9, 8, 7, 11, 2])
SHAPES = ("decoder", "encoder", "encoder-decoder")


def shaken(model):
    """Weights as training leaves them: no norm is 1, no bias is 0."""
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for each in model.parameters():
            each.add_(0.3 * torch.randn(each.shape, generator=draw))
    return model.double().eval()


def terms(model):
    source = SOURCE if model.encoder is not None and model.decoder is not None else None
    found = attribute(model, TOKENS, TARGETS, source)
    return found, model(TOKENS, source=source)[0].gather(1, TARGETS[:, None])[:, 0].detach()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_terms_sum_to_the_logit(shape, norm, placement):
    found, logits = terms(shaken(small(shape, norm=norm, norm_placement=placement)))
    assert (found.terms.sum(0) - logits).abs().max() < 1e-10 * max(1.0, float(logits.abs().max()))


@pytest.mark.parametrize(
    "settings",
    [{"bias": False}, {"n_kv_heads": 2}, {"positions": "rotary"}, {"final_norm": False}, {"parallel_branches": True}],
    ids=str,
)
def test_terms_sum_to_the_logit_of_other_models(settings):
    found, logits = terms(shaken(small("decoder", **settings)))
    assert (found.terms.sum(0) - logits).abs().max() < 1e-10 * float(logits.abs().max())


@pytest.mark.parametrize(
    "settings", [{"head_bias": True, "scale_head": True}, {"deepnorm": True}], ids=["head", "deepnorm"]
)
def test_scales_and_the_bias_of_the_head_count(settings):
    stack = StackConfig(d_model=16, n_heads=2, n_layers=2, d_ff=16, dropout=0.0, norm_placement="post")
    found, logits = terms(shaken(Transformer(ModelConfig(LETTERS.vocab_size, stack, stack, **settings))))
    assert (found.terms.sum(0) - logits).abs().max() < 1e-10 * max(1.0, float(logits.abs().max()))


def test_names_are_those_of_the_parts():
    found, _ = terms(shaken(small("encoder-decoder", n_layers=1, n_heads=2)))
    assert found.names == ("input", "d.0.0", "d.0.1", "x.0.0", "x.0.1", "d.0.feed_forward", "biases")


def test_a_head_of_the_last_block_is_its_term():
    """Without norms, nothing reads what the last cross head writes: with it gone, its logit is less by its term."""
    stack = {"norm": "none", "n_layers": 1, "activation": "identity", "d_ff": 4}
    model = shaken(small("encoder-decoder", **stack))
    with torch.no_grad():
        for each in model.decoder.blocks[0].feed_forward.branch.parameters():
            each.zero_()
    found, logits = terms(model)
    with silence(model, [("cross", 0, 2)]):
        without = model(TOKENS, source=SOURCE)[0].gather(1, TARGETS[:, None])[:, 0]
    assert (logits - without - found.terms[found.names.index("x.0.2")]).abs().max() < 1e-12


def test_the_model_is_as_before():
    model = shaken(small("encoder-decoder"))
    seams = [each.attend for each in attentions(model).values()]
    before = model(TOKENS, source=SOURCE)
    terms(model)
    assert [each.attend for each in attentions(model).values()] == seams
    assert not any(each._forward_hooks for each in model.modules())
    assert torch.equal(model(TOKENS, source=SOURCE), before)


@pytest.mark.parametrize("head", [Classify(3), Lm(transform="gelu")])
def test_a_head_that_is_not_linear_is_refused(head):
    stack = StackConfig(d_model=16, n_heads=2, n_layers=1, d_ff=16)
    model = Transformer(ModelConfig(LETTERS.vocab_size, encoder=stack, head=head)).double()
    with pytest.raises(ConfigError, match="a linear head over tokens"):
        attribute(model, TOKENS, TARGETS)
