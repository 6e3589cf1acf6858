"""Observing shows the attention weights and changes nothing."""

import pytest
import torch
from torch import nn

from glassformer import ATTEND, observe
from glassformer.nn.positions import POSITIONS
from glassformer.store.families import as_torch
from specimens import PADDINGS, PATTERNS, RULES, SHAPES, close, graph_where_it_can_be, model, padded, tokens


def given_for(shape, where="holes"):
    """A padded batch, with a row of nothing but padding."""
    ids, keep = padded([tokens(5), tokens(2), tokens(0)], 6, where)
    given = {"tokens": ids, "keep": keep}
    if shape == "encoder-decoder":
        given["source"], given["source_keep"] = padded([tokens(3), tokens(4), tokens(0)], 5, where)
    return given


def seams(made):
    return [module.attend for module in made.modules() if hasattr(module, "attend")]


@pytest.mark.parametrize("variant", [*({"attention": name} for name in ATTEND["softmax"]), *RULES, *PATTERNS], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_logits_are_bit_equal_and_the_model_as_before(shape, variant):
    for dtype in (torch.float32, torch.float64):
        made, given = model(shape, **variant, dtype=dtype), given_for(shape)
        with graph_where_it_can_be(variant.get("attention")):
            before, functions, names = made(**given), seams(made), list(made.state_dict())
            with observe(made) as seen:
                assert torch.equal(made(**given), before)
                assert list(made.state_dict()) == names
            assert seen
            assert all(one is two for one, two in zip(seams(made), functions, strict=True))
            seen.clear()
            assert torch.equal(made(**given), before)
        assert not seen, "nothing is recorded after the with"


@pytest.mark.parametrize("where", PADDINGS)
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_weights(shape, positions, where):
    """By name and shape; rows sum to 1, or to 0 where nothing may be read; what is hidden is exactly 0."""
    made, given = model(shape, positions=positions), given_for(shape, where)
    with observe(made) as seen:
        made(**given)
    expected = {f"{side}.blocks.{i}.self_attention" for side in shape.split("-") for i in range(2)}
    if shape == "encoder-decoder":
        expected |= {f"decoder.blocks.{i}.cross_attention" for i in range(2)}
    assert seen.keys() == expected
    for name, weights in seen.items():
        crossing, encoding = "cross" in name, name.startswith("encoder") and shape == "encoder-decoder"
        queries, keys = (
            given["source_keep" if encoding else "keep"],
            given["source_keep" if crossing or encoding else "keep"],
        )
        assert weights.shape == (3, 4, queries.shape[1], keys.shape[1])
        assert not weights.requires_grad
        may = keys[:, None, :].expand(weights[:, 0].shape)
        if name.startswith("decoder") and not crossing:
            order = queries.long().cumsum(1)
            may = may & (order[:, :, None] >= order[:, None, :])
        of_head = weights.movedim(1, -1)[queries]  # [real queries, S, H]
        assert ((of_head > 0.0) == may[queries][..., None]).all(), name
        sums = weights.sum(-1)
        close(sums, (sums > 0.5).double(), name)
        assert (sums[:, 0][queries] > 0.5).all() or crossing
        assert (sums[2] == 0.0).all(), "the row of padding reads nothing"


@pytest.mark.parametrize(
    "variant", [*RULES, *PATTERNS, {"attention_rule": "softcap", "softcap": 0.5}, {"attention": "flex"}], ids=str
)
def test_weights_are_those_that_the_rule_uses(variant):
    """What is shown, applied to the values, is what attention answers."""
    made, given = model("decoder", **variant), given_for("decoder")
    attention, met = made.decoder.blocks[0].self_attention.branch, []
    inner = attention.attend

    def listening(q, k, v, mask, **settings):
        met.append((v, inner(q, k, v, mask, **settings)))
        return met[-1][1]

    attention.attend = listening
    with observe(made) as seen, graph_where_it_can_be(variant.get("attention")):
        made(**given)
    [(values, answer)] = met
    close(seen["decoder.blocks.0.self_attention"] @ values, answer)


def test_weights_are_those_of_multihead_attention():
    made, ids = (
        model("decoder", positions="none", n_layers=1, norm_placement="post", scale_embeddings=False),
        tokens(2, 5),
    )
    attention = made.decoder.blocks[0].self_attention.branch
    theirs = nn.MultiheadAttention(16, 4, batch_first=True, dtype=torch.float64)
    theirs.load_state_dict(as_torch(dict(attention.named_parameters())))
    x, later = made.decoder.embedding(ids), torch.ones(5, 5, dtype=torch.bool).triu(1)
    _, expected = theirs(x, x, x, attn_mask=later, average_attn_weights=False, need_weights=True)
    with observe(made) as seen:
        made(ids)
    close(seen["decoder.blocks.0.self_attention"], expected)


def test_weights_are_before_dropout():
    made, given = model("decoder", attention_dropout=0.5), given_for("decoder")
    with observe(made) as still:
        made(**given)
    with observe(made.train()) as training:
        made(**given)
    name = "decoder.blocks.0.self_attention"
    close(training[name], still[name], tolerance=0)


def test_a_step_through_the_cache_shows_its_row():
    made, ids = model("encoder-decoder"), tokens(2, 4)
    source = tokens(2, 3)
    with observe(made) as whole:
        made(ids, source=source)
    cache, memory = made.new_cache(), made.encode(source)
    made(ids[:, :3], memory=memory, cache=cache)
    with observe(made) as step:
        made(ids[:, 3:], memory=memory, cache=cache)
    assert step.keys() == {name for name in whole if name.startswith("decoder")}
    for name, weights in step.items():
        close(weights, whole[name][:, :, -1:], name)
