"""No causal leak: what comes later changes nothing before it, not by one bit, and no gradient flows back in time.

Experts alone may differ in the last bits: how many positions one of them multiplies at once depends on the others, and
a product of another size may be rounded otherwise.
"""

import pytest
import torch

from glassformer import ATTEND
from glassformer.base.errors import ConfigError
from specimens import ENDS, FORWARD_ONLY, INSIDES, NO_BACKWARD, ORDERS, PATTERNS, RULES, VOCAB, close, model, tokens

VARIANTS = [
    *ORDERS, *({"attention": name} for name in ATTEND["softmax"]), *INSIDES, *ENDS, *RULES, *PATTERNS, {"window": 2},
]  # fmt: skip
CAUSAL = [("decoder", {}), ("encoder", {"causal": True}), ("encoder-decoder", {})]
variants = pytest.mark.parametrize("variant", VARIANTS, ids=str)
shapes = pytest.mark.parametrize(("shape", "causal"), CAUSAL, ids=[shape for shape, _ in CAUSAL])


def memory_for(made):
    """A source, where the model reads one."""
    return {} if made.decoder is None or made.encoder is None else {"source": tokens(2, 4)}


@pytest.mark.each_two
@shapes
@variants
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_changed_token_leaves_earlier_logits_bit_equal(shape, causal, variant, dtype):
    made = model(shape, dtype=dtype, **causal, **variant)
    ids, source = tokens(2, 7), memory_for(made)
    with torch.no_grad():
        before = made(ids, **source)
        for t in range(7):
            changed = ids.clone()
            changed[:, t] = (ids[:, t] + torch.randint(1, VOCAB, (2,))) % VOCAB
            after = made(changed, **source)
            if "n_experts" in variant:
                close(after[:, :t], before[:, :t], t, {torch.float32: 1e-5, torch.float64: 1e-12}[dtype])
            else:
                assert torch.equal(after[:, :t], before[:, :t]), f"token {t} was seen before it came"
            assert not torch.equal(after[:, t], before[:, t]), f"token {t} is not seen at all"


@shapes
@variants
def test_no_gradient_reaches_a_later_token(shape, causal, variant):
    made = model(shape, **causal, **variant)
    if variant.get("attention") in FORWARD_ONLY:
        with pytest.raises(ConfigError, match=NO_BACKWARD):
            made(tokens(2, 6), **memory_for(made))
        return
    held = []
    hook = made.reader.embedding.register_forward_hook(lambda module, given, vectors: held.append(vectors))
    logits = made(tokens(2, 6), **memory_for(made))
    hook.remove()
    for t in range(6):
        (gradient,) = torch.autograd.grad(logits[:, t].square().sum(), held, retain_graph=True)
        reached = gradient.abs().amax(-1)
        assert (reached[:, t + 1 :] == 0.0).all(), f"position {t} learns from later tokens"
        assert (reached[:, t] > 0.0).all()


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_a_model_that_reads_both_ways_does(order):
    """The law above says something: without `causal` the first logits depend on the last token."""
    made = model("encoder", **order)
    ids = tokens(1, 6)
    changed = ids.clone()
    changed[0, -1] = (ids[0, -1] + 1) % VOCAB
    assert (made(ids)[0, 0] != made(changed)[0, 0]).all()


@pytest.mark.parametrize("shape", ["decoder", "encoder"])
@pytest.mark.parametrize("window", [1, 2, 3])
def test_a_window_reaches_as_far_as_it_says(shape, window):
    """One block: position t reads positions t - window + 1 .. t, and as far ahead where it is not causal."""
    made = model(shape, window=window, n_layers=1)
    held = []
    hook = made.reader.embedding.register_forward_hook(lambda module, given, vectors: held.append(vectors))
    logits = made(tokens(1, 7))
    hook.remove()
    (gradient,) = torch.autograd.grad(logits[0, 3].square().sum(), held)
    reached = (gradient[0].abs().amax(-1) > 0).tolist()
    ahead = window if shape == "encoder" else 1
    assert reached == [3 - window < t < 3 + ahead for t in range(7)]


def test_every_position_reads_the_whole_source():
    made = model("encoder-decoder")
    source, ids = tokens(1, 5), tokens(1, 3)
    changed = source.clone()
    changed[0, -1] = (source[0, -1] + 1) % VOCAB
    assert (made(ids, source=source) != made(ids, source=changed)).all()
