"""T5's buckets against the paper's rule by hand; Shaw's keys and values against equations 3 to 5 in plain loops."""

import itertools
import math

import pytest
import torch

from glassformer import ATTEND, Attention, Mask, Transformer, observe
from glassformer.base.contradictions import SHOWS_WEIGHTS
from glassformer.base.errors import ConfigError
from glassformer.base.schemes import RelativeConfig
from glassformer.nn.mask import ValueBias
from glassformer.nn.positions import POSITIONS, Sizes, bucket
from specimens import close, config, gradients, model, scramble, tokens

DISTANCES = range(-200, 201)

# The first distance of each range beyond those of a single distance, by hand: 8 * 16^(m/8) = 8 * 2^(m/2) for eight
# ranges up to 128, and 16 * 8^(m/16) = 16 * 2^(3m/16) for sixteen.
BOTH_WAYS = [8, 12, 16, 23, 32, 46, 64, 91]
CAUSAL = [16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]


def test_buckets_are_the_papers_table():
    for distance in DISTANCES:
        n = abs(distance)
        side = n if n < 8 else 7 + sum(n >= first for first in BOTH_WAYS)
        found = bucket(torch.tensor(distance), RelativeConfig(), causal=False).item()
        assert found == side + 16 * (distance > 0), distance
        back = max(-distance, 0)
        expected = back if back < 16 else 15 + sum(back >= first for first in CAUSAL)
        assert bucket(torch.tensor(distance), RelativeConfig(), causal=True).item() == expected, distance


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    ("n_buckets", "max_distance"), [(32, 128), (6, 5), (4, 2_000), (64, 65), (20, 37), (512, 4_096)]
)
def test_buckets_are_the_papers_logarithm(n_buckets, max_distance, causal):
    """Away from where the logarithm meets a whole number; there the rule of whole numbers decides."""
    side = n_buckets if causal else n_buckets // 2
    places = torch.arange(-3 * max_distance, 3 * max_distance)
    settings = RelativeConfig(n_buckets=n_buckets, max_distance=max_distance)
    for distance, found in zip(places.tolist(), bucket(places, settings, causal=causal).tolist(), strict=True):
        n, single = max(-distance, 0) if causal else abs(distance), side // 2
        expected = n
        if n >= single:
            step = math.log(n / single) / math.log(max_distance / single) * (side - single)
            expected = min(single + int(step + 1e-9), side - 1)
        assert found == expected + (0 if causal or distance <= 0 else side), distance


@pytest.mark.parametrize("causal", [True, False])
def test_a_bucket_has_a_number_for_each_head(causal):
    scheme = scramble(POSITIONS["t5"](Sizes(16, 3, 4, None, causal=causal)).double())
    assert scheme.weight.shape == (32, 3)
    queries, keys = torch.tensor([[5, 90], [0, 7]]), torch.tensor([[0, 5, 200], [1, 0, 60]])
    bias = scheme.score_bias(queries, keys, torch.zeros((), dtype=torch.float64))
    assert bias.shape == (2, 3, 2, 3)
    for b, h, t, s in itertools.product(range(2), range(3), range(2), range(3)):
        row = bucket(keys[b, s] - queries[b, t], RelativeConfig(), causal=causal)
        assert bias[b, h, t, s] == scheme.weight[row, h]


@pytest.mark.parametrize(
    ("shape", "read"), [("decoder", {*range(16), 16, 17}), ("encoder", {*range(11), *range(17, 27)})]
)
def test_a_stack_reads_the_buckets_of_its_sides(shape, read):
    """Of 20 tokens: a decoder has all its buckets for what lies back, an encoder half of them for each side."""
    made = model(shape, positions="t5", n_layers=1)
    table = gradients(made(tokens(1, 20)), made)[f"{shape}.positions.weight"]
    assert {row for row, slope in enumerate(table) if slope.abs().max() > 0} == read


def test_one_table_for_the_stack_and_none_for_cross_attention():
    made = Transformer(config(positions="t5"))
    assert [name for name, _ in made.named_parameters() if "positions" in name] == [
        "encoder.positions.weight",
        "decoder.positions.weight",
    ]
    shaw = Transformer(config(positions="shaw", n_layers=2))
    found = [name for name, each in shaw.state_dict().items() if "relation" in name and each.shape == (33, 4)]
    assert found == [
        f"{side}.blocks.{i}.self_attention.branch.relation.{part}"
        for side in ("encoder", "decoder")
        for i in range(2)
        for part in ("keys", "values")
    ]


def written_out(attention, x, clip, reads):
    """Equations 3 to 5, a pair at a time; `reads` says whether query i may read key j of a row."""
    B, T, _ = x.shape
    K, H, G = 4, 4, attention.key.out_features // 4
    q, k, v = (project(x).unflatten(-1, (-1, K)) for project in (attention.query, attention.key, attention.value))
    rows = []
    for b, i, h in itertools.product(range(B), range(T), range(H)):
        shared, scores, values = h * G // H, [], []
        for j in range(T):
            if reads(b, i, j):
                apart = max(-clip, min(clip, j - i))
                scores.append(q[b, i, h] @ (k[b, j, shared] + attention.relation.keys[apart + clip]) / math.sqrt(K))
                values.append(v[b, j, shared] + attention.relation.values[apart + clip])
        weights = torch.stack(scores).softmax(0) if scores else None
        rows.append(sum(w * value for w, value in zip(weights, values, strict=True)) if scores else q[b, i, h] * 0.0)
    return attention.output(torch.stack(rows).view(B, T, H * K))


def shaw_attention(backend, clip, n_kv_heads):
    relation = POSITIONS["shaw"](Sizes(16, 4, 4, None, relative=RelativeConfig(clip_distance=clip))).relation()
    made = Attention(16, 4, ATTEND["softmax"][backend], n_kv_heads=n_kv_heads, relation=relation)
    return scramble(made.double())


KEEP = torch.tensor([[True, False, True, True, True, False], [False] * 6])
READS = {
    "everything": ({}, lambda b, i, j: True),
    "causal": ({"causal": True}, lambda b, i, j: j <= i),
    "padded": ({"keep": KEEP}, lambda b, i, j: bool(KEEP[b, j])),
}


@pytest.mark.parametrize("backend", SHOWS_WEIGHTS)
@pytest.mark.parametrize("n_kv_heads", [4, 2])
@pytest.mark.parametrize("clip", [1, 3, 9])
@pytest.mark.parametrize("rules", READS.values(), ids=READS)
def test_shaw_is_equations_3_to_5(rules, clip, n_kv_heads, backend):
    """In value and in every gradient; a row that may read nothing gets zeros from the values' part, too."""
    settings, reads = rules
    attention, x = shaw_attention(backend, clip, n_kv_heads), torch.randn(2, 6, 16).double()
    ours, theirs = attention(x, mask=Mask(**settings)), written_out(attention, x, clip, reads)
    close(ours, theirs)
    expected = gradients(theirs, attention)
    for name, gradient in gradients(ours, attention).items():
        close(gradient, expected[name], name, 1e-11)


def test_backends_that_hide_their_weights_refuse():
    """At configuration already: none drops what is added to the values in silence."""
    hiding = ATTEND["softmax"].keys() - set(SHOWS_WEIGHTS)
    assert hiding
    assert ATTEND["softmax"].keys() >= set(SHOWS_WEIGHTS)
    for name in hiding:
        with pytest.raises(ConfigError, match=r"positions='shaw'.*Try attention='auto'"):
            config(positions="shaw", attention=name)


def test_observing_shows_the_weights_that_were_used():
    """They sum the values to what the layer gives; bits and masks stay."""
    made, ids = model("decoder", positions="shaw", n_layers=1, relative=RelativeConfig(clip_distance=2)), tokens(2, 6)
    held = []
    attention = made.decoder.blocks[0].self_attention.branch
    hook = attention.register_forward_hook(lambda module, given, output: held.append((given[0], output)))
    with observe(made) as seen:
        logits = made(ids)
    hook.remove()
    assert torch.equal(made(ids), logits)
    ((x, output),) = held
    weights = seen["decoder.blocks.0.self_attention"]
    v = attention.value(x).unflatten(-1, (4, 4)).transpose(1, 2)
    places = torch.arange(6)
    added = attention.relation.values[(places[None] - places[:, None]).clamp(-2, 2) + 2]  # [T, S, K]
    mixed = torch.einsum("bhts,bhtsk->bhtk", weights, v[:, :, None] + added)
    close(attention.output(mixed.transpose(1, 2).flatten(2)), output)


def test_sums_over_many_keys_are_wide():
    """257 weights of 1/256 against one of 1: in bfloat16 the first sum would be 1, and nothing were left."""
    weights = torch.tensor([[[[1 / 256] * 257 + [1.0]]]]).bfloat16()
    added = ValueBias(torch.tensor([[1.0], [-1.0]]).bfloat16(), torch.tensor([[0] * 257 + [1]]))
    assert added.read(weights).item() == 1 / 256


def test_a_bias_that_was_there_stays():
    """Keys' vectors are added to the scores beside whatever else is."""
    attention, x = shaw_attention("auto", 2, 4), torch.randn(2, 6, 16).double()
    hiding = torch.zeros(4, 6, 6).double().masked_fill(torch.ones(6, 6).triu(1).bool(), float("-inf"))
    close(attention(x, mask=Mask(bias=hiding)), attention(x, mask=Mask(causal=True)))
