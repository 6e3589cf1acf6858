"""Watching attention: every call is told of with its own output, and the model is as it was."""

import pytest
import torch

from glassformer.nn.observe import attentions, watch_attention
from specimens import model, tokens


def test_every_call_is_told_of_in_order_with_what_the_seam_gave():
    made, calls = model("encoder-decoder"), []
    with watch_attention(made, calls.append):
        answer = made(tokens(2, 4), source=tokens(2, 3))
    assert [call.name for call in calls] == [
        *(f"encoder.blocks.{i}.self_attention" for i in range(2)),
        *(f"decoder.blocks.{i}.{kind}_attention" for i in range(2) for kind in ("self", "cross")),
    ]
    assert {call.name: call.attention for call in calls} == attentions(made)
    for call in calls:
        weights = call.attention.weigh(call.q, call.k, call.mask, scale=call.scale)
        assert weights.shape[:3] == call.output.shape[:3] == call.q.shape[:3]
    assert answer.requires_grad


def test_an_attention_alone_has_no_name():
    [attention, *_] = attentions(model("encoder")).values()
    assert {*attentions(attention)} == {""}


@pytest.mark.parametrize("ends", ["well", "in an exception"])
def test_watching_within_watching_leaves_the_seams_as_they_were(ends):
    made, outer, inner = model("decoder"), [], []
    ids = tokens(2, 4)
    answer, seams = made(ids), [each.attend for each in attentions(made).values()]
    try:
        with watch_attention(made, outer.append):
            with watch_attention(made, inner.append):
                assert torch.equal(made(ids), answer)
                if ends != "well":
                    raise RuntimeError(ends)
            assert torch.equal(made(ids), answer)
    except RuntimeError:
        assert ends != "well"
    assert (len(outer), len(inner)) == ((4, 2) if ends == "well" else (2, 2))
    assert all(each.attend is seam for each, seam in zip(attentions(made).values(), seams, strict=True))
    assert torch.equal(made(ids), answer)
