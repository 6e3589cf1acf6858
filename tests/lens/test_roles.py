"""What queries and keys stand for in each layout, and which keys each role predicts there."""

import pytest
import torch

from glassformer import Batch
from glassformer.base.errors import ConfigError
from glassformer.data.tokens.vocabulary import BLANK, BOS, EOS, SEP
from glassformer.lens.ablate import all_heads, place
from glassformer.lens.roles.probe import Circuit, circuit, drawn, induction_probe, next_of_repeated, read, written_share
from glassformer.lens.roles.roles import ROLES, THRESHOLDS, Figures, View, label, tallies, views
from glassformer.nn.observe import attentions
from glassformer.train.objective import masked_token, next_token
from lens.learners import IDS, LAYOUTS, backwards, decoder_rows, next_of_answer, probe_of, untrained

A, B, C, D = 10, 11, 12, 13
PAIRS = [([A, B, C], [C, B, A]), ([A, B], [B, A])]  # the second is padded


def view(shape: str, block: str) -> View:
    sources, targets = zip(*PAIRS, strict=True)
    if shape == "encoder-decoder":
        batch, objective = Batch.pairs(sources, targets), next_token
    elif shape == "encoder":
        batch, objective = Batch.blanks(sources, targets), masked_token
    else:
        batch, objective = decoder_rows(PAIRS), next_of_answer
    return views(batch, objective(batch))[block]


def keys(name: str, seen: View) -> list[list[list[int]]]:
    """The predicted keys of each counted query, sequence by sequence; [] where there are none."""
    predicted = ROLES[name].predict(seen)
    return [
        [row.nonzero()[:, 0].tolist() if requests else [] for row, requests in zip(rows, counted, strict=True)]
        for rows, counted in zip(predicted, seen.counted, strict=True)
    ]


def test_cross_attention_of_the_row_that_writes_a_token():
    """Rows read <bos> C B A and write C B A <eos>; columns are A B C <eos>. The row that writes <eos> has no step."""
    seen = view("encoder-decoder", "cross")
    assert seen.step.tolist() == [[0, 1, 2, -1], [0, 1, -1, -1]]
    assert seen.rank.tolist() == [[0, 1, 2, -1], [0, 1, -1, -1]]
    assert keys("reversal", seen) == [[[2], [1], [0], []], [[1], [0], [], []]]
    assert keys("diagonal", seen) == [[[0], [1], [2], []], [[0], [1], [], []]]
    assert keys("reversal +1", seen) == [[[], [2], [1], []], [[], [1], [], []]]
    assert keys("reversal -1", seen) == [[[1], [0], [], []], [[0], [], [], []]]
    assert keys("lookup", seen) == keys("reversal", seen)
    assert keys("eos", seen)[1][:2] == [[2], [2]]
    assert [name for name in ROLES if ROLES[name].predict(seen) is None] == [
        *("previous", "current", "next", "offset -2", "offset +2", "offset -3", "offset +3", "duplicate", "induction")
    ]


def test_the_encoder_of_two_stacks_mirrors_its_own_places():
    seen = view("encoder-decoder", "encoder")
    assert keys("reversal", seen) == [[[2], [1], [0], []], [[1], [0], [], []]]
    assert keys("current", seen)[1] == [[0], [1], [], []]
    assert ROLES["diagonal"].predict(seen) is None, "it would be the current token"


def test_the_decoder_of_two_stacks_holds_no_source():
    seen = view("encoder-decoder", "decoder")
    assert not bool(ROLES["reversal"].predict(seen).any())
    assert keys("previous", seen)[0] == [[], [0], [1], [2]]
    assert seen.counted.tolist() == [[True] * 4, [True] * 3 + [False]]


def test_blanks_of_an_encoder_read_the_source_before_the_separator():
    """A B C <sep> _ _ _, and A B <sep> _ _ with padding."""
    seen = view("encoder", "encoder")
    assert keys("reversal", seen) == [[[], [], [], [], [2], [1], [0]], [[], [], [], [1], [0], [], []]]
    assert seen.counted.tolist() == [[True] * 3 + [False] + [True] * 3, [True] * 2 + [False] + [True] * 2 + [False] * 2]
    assert seen.sinks.tolist()[0] == [False, False, False, True, False, False, False]
    assert int(seen.queries[0, 4]) == BLANK


def test_a_decoder_alone_writes_from_the_separator_on():
    """<bos> A B C <sep> C B A and writes, from <sep> on, C B A <eos>: b = 1, n = 3; query b+n+t reads b+n-1-t."""
    seen = view("decoder", "decoder")
    assert keys("reversal", seen)[0] == [[], [], [], [], [3], [2], [1], []]
    assert keys("diagonal", seen)[0] == [[], [], [], [], [1], [2], [3], []]
    assert keys("lookup", seen)[0] == keys("reversal", seen)[0]
    assert keys("reversal", seen)[1][3:5] == [[2], [1]]
    assert seen.counted[0].tolist() == [False, True, True, True, True, True, True, True]
    assert [int(seen.queries[0, place]) for place in (0, 4)] == [BOS, SEP]


def test_tokens_that_answer_in_their_own_place_are_mirrored():
    batch = Batch.tagged([[BOS, A, B, C], [BOS, A, B]], [[0, 1, 2, 3], [0, 1, 2]])
    seen = views(batch, masked_token(batch))["encoder"]
    assert keys("reversal", seen) == [[[], [3], [2], [1]], [[], [2], [1], []]]  # 2 s + n-1-i, s = 1


def test_offsets_are_key_minus_query():
    """The law that is easily turned round: -1 is the token before."""
    seen = view("decoder", "decoder")
    assert keys("previous", seen)[0][3] == [2]
    assert keys("next", seen)[0][3] == [4]
    assert keys("offset -3", seen)[0][5] == [2]
    assert keys("offset +2", seen)[0][1] == [3]


def test_duplicates_and_induction():
    """<bos> A B A C A B: what came before, and what came behind it."""
    batch = Batch(torch.tensor([[BOS, A, B, A, C, A, B]]))
    seen = views(batch, next_token(batch))["decoder"]
    assert keys("induction", seen)[0] == [[], [], [], [2], [], [2, 4]]
    assert keys("duplicate", seen)[0] == [[], [3, 5], [], [1, 5], [], [1, 3]]  # of a causal map those before count
    assert not bool((seen.step != -1).any())


def test_the_standard_probe_asks_for_what_was_seen():
    probe = induction_probe(range(A, A + 9), (3, 4), 8)
    seen = views(probe.own, probe.objective(probe.own))["decoder"]
    requested = next_of_repeated(probe.own)
    T = [3, 4] * 4
    for row, half in enumerate(T):
        tokens = probe.own.tokens[row, : 2 * half + 1].tolist()
        assert tokens[0] == BOS
        assert tokens[1 : half + 1] == tokens[half + 1 :]
        assert len({*tokens[1 : half + 1]}) == half
        found = keys("induction", seen)[row]
        for i in range(half + 1, 2 * half):
            assert found[i] == [i - (half - 1)]
        assert requested.keep[row].nonzero()[:, 0].tolist() == list(range(half + 1, 2 * half))


def test_a_small_vocabulary_comes_again_in_a_longer_row():
    import random

    row = drawn(random.Random(0), range(5, 8), 5)
    assert len(row) == 5
    assert {*row} == {5, 6, 7}


def test_without_special_tokens_the_first_key_is_the_sink():
    batch = Batch(torch.tensor([[A, B, C, D]]))
    seen = views(batch, next_token(batch))["decoder"]
    assert keys("sink", seen)[0] == [[0], [0], [0]]
    assert int((seen.keys == EOS).sum()) == 0


def test_roles_of_repeats_are_told_of_maps_that_have_some_on_purpose():
    """An answer repeats its source, which says nothing of a head that looks for what came before."""
    seen = view("decoder", "decoder")
    T = seen.queries.shape[1]
    allowed = torch.ones(2, T, T, dtype=torch.bool).tril()
    weights = (allowed / allowed.sum(-1, keepdim=True))[:, None]
    assert not {"duplicate", "induction"} & {*tallies(seen, weights, allowed, repeats=False)}
    assert {"duplicate", "induction"} < {*tallies(seen, weights, allowed, repeats=True)}


def test_features_are_no_tokens():
    batch = Batch(torch.zeros(1, 3, 2), labels=torch.zeros(1, 3, dtype=torch.long))
    with pytest.raises(ConfigError, match="reads features"):
        views(batch, masked_token(batch))


# --- labels


def figures(score: float, argmax: float = 1.0, **more) -> Figures:
    return Figures(score, argmax, 0.1, score, 100, **more)


@pytest.mark.parametrize(("scores", "wanted"), [
    ({"reversal": figures(0.97), "diagonal": figures(0.1)}, ("reversal", "strong")),
    ({"reversal": figures(0.59)}, ("reversal", "partial")),
    ({"reversal": figures(0.97, argmax=0.89)}, ("reversal", "partial")),
    ({"reversal": figures(0.9, by_length={4: 0.9, 8: 0.74})}, ("reversal", "partial")),
    ({"reversal": figures(0.9, control=0.74)}, ("reversal", "partial")),
    ({"reversal": figures(0.9, by_length={4: 0.8}, control=0.99)}, ("reversal", "strong")),
    ({"reversal -1": figures(0.9), "reversal": figures(0.2)}, ("reversal", "strong")),
    ({"sink": figures(0.9), "eos": figures(0.5)}, ("sink", "sink")),
    ({"eos": figures(0.9), "sink": figures(0.9)}, ("eos", "strong")),
    ({"reversal": figures(0.29)}, ("mixed", "mixed")),
    ({}, ("none", "none")),
], ids=str)  # fmt: skip
def test_labels(scores, wanted):
    labels = label(scores, sink=0.1, entropy=0.4)
    assert (labels.label, labels.strength) == wanted


def test_heads_without_a_role():
    weak = {"reversal": figures(0.1)}
    assert label(weak, sink=0.51, entropy=0.9).label == "sink"
    assert label(weak, sink=0.2, entropy=0.81).label == "diffuse"
    assert label(weak, sink=0.2, entropy=0.79).label == "mixed"
    assert label(weak, sink=0.2, entropy=float("nan")).label == "none"


def test_the_runner_up_is_another_role_that_reads_other_keys():
    """On a reversal task reading in reverse and looking the token up are one and the same."""
    found = label(
        {"reversal": figures(0.9), "reversal +1": figures(0.8), "lookup": figures(0.9), "diagonal": figures(0.2)},
        0.1,
        0.4,
    )
    assert found.runner_up == ("diagonal", 0.2)
    assert label({"reversal -1": figures(0.9)}, 0.1, 0.4).shift == -1


def test_equal_scores_are_decided_by_the_order_of_the_table():
    assert label({"lookup": figures(0.9), "reversal": figures(0.9)}, 0.1, 0.4).label == "reversal"
    assert next(iter(ROLES)) == "previous"
    assert THRESHOLDS.strong_argmax == 0.9


# --- Whether a head writes what it reads: on circuits planted by hand, and for all shapes


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
        value = each.attention.value.weight[K : 2 * K] @ side.embedding.weight[IDS.start]
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


# --- The short name of a head, and what it is read from


@pytest.mark.parametrize("name", ["encoder.blocks.0.cross_attention", "decoder.blocks.x.self_attention", "head", ""])
def test_another_name_is_refused(name):
    with pytest.raises(ConfigError, match=r"the name that observe\(\) gives"):
        place(name)
