"""Whether a head writes what it reads: on circuits planted by hand, and for all shapes."""

import pytest
import torch

from glassformer.lens.ablate import all_heads
from glassformer.lens.roles.probe import Circuit, circuit, read, written_share
from glassformer.nn.observe import attentions
from lens.learners import IDS, LAYOUTS, backwards, probe_of, untrained


def test_a_head_that_hands_tokens_on_copies():
    same = torch.eye(4, dtype=torch.float64)
    assert Circuit(same, same).eigenvalue_score() == pytest.approx(1)
    assert Circuit(same, same).diagonal_share() == 1
    assert Circuit(same, -same).eigenvalue_score() == pytest.approx(-1)
    assert Circuit(same, same.roll(1, 0)).diagonal_share() == 0
    assert Circuit(same, same.roll(1, 0)).eigenvalue_score() == pytest.approx(0, abs=1e-12)  # the roots of unity


def test_the_small_matrix_has_the_eigenvalues_of_the_large_one():
    torch.manual_seed(0)
    made = Circuit(torch.rand(9, 3, dtype=torch.float64), torch.rand(3, 9, dtype=torch.float64))
    values = torch.linalg.eigvals(made.read @ made.written)
    assert made.eigenvalue_score() == pytest.approx(float(values.sum().real / values.abs().sum()))


@pytest.mark.parametrize("shape", LAYOUTS)
def test_the_circuit_is_that_of_the_head(shape):
    model = untrained(shape).double().eval()
    probe = probe_of(shape, backwards, 6)
    seen = read(model, probe.own, probe.objective)
    found = {each.block: each for each in seen.maps if each.layer == 1}
    for block, each in found.items():
        made = circuit(model, each, 1, IDS)
        if shape == "encoder-decoder" and block == "encoder":
            assert made is None, "no head reads the encoder's vectors"
            assert written_share(model, each, seen.views[block]) is None
            continue
        side = model.encoder if block in ("encoder", "cross") else model.decoder
        K = each.attention.d_head
        token = side.embedding.weight[IDS.start]
        value = each.attention.value.weight[K : 2 * K] @ token
        expected = model.head.weight[IDS.start : IDS.stop] @ (each.attention.output.weight[:, K : 2 * K] @ value)
        torch.testing.assert_close(made.read[0] @ made.written, expected, atol=1e-12, rtol=0)


def test_what_a_planted_head_writes_is_what_it_reads():
    """One head whose values and output hand the stream on, and one that turns it round."""
    model = untrained("encoder-decoder", n_layers=1, n_heads=1, norm="none", positions="none").double().eval()
    probe = probe_of("encoder-decoder", backwards, 20)
    cross = attentions(model)["decoder.blocks.0.cross_attention"]
    encoder = attentions(model)["encoder.blocks.0.self_attention"]
    with torch.no_grad():
        for linear in (cross.value, cross.output):
            linear.weight.copy_(torch.eye(32))
            linear.bias.zero_()
        cross.query.weight.mul_(1000)  # one key has nearly all the weight
        encoder.output.weight.zero_()
        model.encoder.blocks[0].feed_forward.branch.down.weight.zero_()
    for sign, share in ((1, 1.0), (-1, 0.0)):
        with torch.no_grad():
            cross.output.weight.copy_(sign * torch.eye(32))
        seen = read(model, probe.own, probe.objective)
        found = next(each for each in seen.maps if each.block == "cross")
        assert float(written_share(model, found, seen.views["cross"])[0]) == pytest.approx(share, abs=0.2)
    assert len(all_heads(model)) == 3
