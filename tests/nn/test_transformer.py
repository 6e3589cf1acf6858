"""The whole model: its names, its calls, what it refuses, and that evaluation is a function of the input."""

import pytest
import torch
from torch import nn

from glassformer import Transformer
from glassformer.base.errors import ConfigError, DataError
from glassformer.nn.count import count_parameters
from glassformer.nn.observe import Evaluation, attentions, watch_attention
from glassformer.nn.positions import POSITIONS
from specimens import SHAPES, VOCAB, close, config, model, padded, production, tokens

ATTENTION = [f"{map}.{kind}" for map in ("query", "key", "value", "output") for kind in ("weight", "bias")]
FEED_FORWARD = [f"{map}.{kind}" for map in ("up", "down") for kind in ("weight", "bias")]


def block_names(stack, i, branches, norm):
    """The golden names of one block: a public format, which a file on somebody's disk relies on."""
    inside = {"self_attention": ATTENTION, "cross_attention": ATTENTION, "feed_forward": FEED_FORWARD}
    for branch in branches:
        yield from (f"{stack}.blocks.{i}.{branch}.branch.{name}" for name in inside[branch])
        yield from (f"{stack}.blocks.{i}.{branch}.{norm}.{kind}" for kind in ("weight", "bias"))


def stack_names(stack, branches, norm, final):
    yield f"{stack}.embedding.weight"
    for i in range(2):
        yield from block_names(stack, i, branches, norm)
    if final:
        yield from (f"{stack}.norm.{kind}" for kind in ("weight", "bias"))


@pytest.mark.parametrize(("placement", "norm", "final"), [("pre", "norm_in", True), ("post", "norm_sum", False)])
@pytest.mark.parametrize("shape", SHAPES)
def test_names_in_the_state_dict(shape, placement, norm, final):
    both = ("self_attention", "cross_attention", "feed_forward")
    branches = {"encoder": both[::2], "decoder": both if shape == "encoder-decoder" else both[::2]}
    expected = {"head.weight"}
    for stack in shape.split("-"):
        expected |= {*stack_names(stack, branches[stack], norm, final)}
    assert set(Transformer(config(shape, norm_placement=placement)).state_dict()) == expected


def test_names_that_some_models_have():
    named = Transformer(config("decoder", positions="learned", head_bias=True, bias=False)).state_dict()
    assert {"decoder.positions.weight", "head.bias"} <= named.keys()
    assert not [name for name in named if ".branch." in name and name.endswith("bias")]
    assert named["decoder.positions.weight"].shape == (24, 16)


@pytest.mark.parametrize(("settings", "names"), [
    ({"norm": "rms"}, {"norm.weight", "blocks.0.self_attention.norm_in.weight"}),
    ({"norm_placement": "output"}, {"norm.weight", "blocks.0.self_attention.norm_out.weight"}),
    ({"norm_placement": "sandwich"},
        {"norm.weight", *(f"blocks.1.feed_forward.norm_{where}.bias" for where in ("in", "out"))}),
    ({"feed_forward": "gated"}, {f"blocks.0.feed_forward.branch.{map}.weight" for map in ("gate", "up", "down")}),
    ({"feed_forward": "experts", "n_experts": 3, "expert": "gated"},
        {"blocks.0.feed_forward.branch.router.weight",
         *(f"blocks.0.feed_forward.branch.experts.2.{map}.bias" for map in ("gate", "up", "down"))}),
    ({"qk_norm": "rms"}, {f"blocks.0.self_attention.branch.{map}_norm.weight" for map in ("query", "key")}),
])  # fmt: skip
def test_names_that_variants_have(settings, names):
    """Of what differs from the plain model, the golden names; and they are all that differ in kind."""
    made = Transformer(config("decoder", **settings)).state_dict()
    assert {f"decoder.{name}" for name in names} <= made.keys()
    kinds = {name.rpartition(".branch.")[2] for name in made if ".branch." in name}
    plain = {*ATTENTION, *FEED_FORWARD}
    spare = {each for each in kinds - plain if not any(each in name for name in names)}
    assert not [each for each in spare if each.split(".")[0] not in ("gate", "experts", "query_norm", "key_norm")]


def test_a_model_without_norms_has_none():
    assert not [name for name in Transformer(config(norm="none")).state_dict() if "norm" in name]


@pytest.mark.parametrize(("settings", "equal"), [
    ({}, {"encoder.embedding", "decoder.embedding", "head"}),
    ({"tie_embeddings": False}, {"encoder.embedding", "decoder.embedding"}),
    ({"share_embeddings": False}, {"decoder.embedding", "head"}),
    ({"source_vocab_size": 7}, {"decoder.embedding", "head"}),
    ({"source_vocab_size": VOCAB}, {"encoder.embedding", "decoder.embedding", "head"}),
    ({"tie_embeddings": False, "share_embeddings": False}, set()),
])  # fmt: skip
def test_which_matrices_are_one(settings, equal):
    rows, _ = count_parameters(Transformer(config(**settings)))
    one = {name.removesuffix(".weight") for row in rows if row.same_as for name in (row.name, row.same_as)}
    assert one == equal


def test_embeddings_are_scaled_by_the_root_of_the_width():
    for scaled, scale in ((True, 4.0), (False, 1.0)):  # d_model is 16
        made = model(scale_embeddings=scaled)
        assert (made.encoder.embedding.scale, made.decoder.embedding.scale) == (scale, scale)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("positions", POSITIONS)
def test_evaluation_is_deterministic(shape, positions):
    made = model(
        shape, positions=positions, dropout=0.5, attention_dropout=0.5, feed_forward_dropout=0.5, stochastic_depth=0.9
    )
    given = {"tokens": tokens(2, 6), **({"source": tokens(2, 5)} if shape == "encoder-decoder" else {})}
    first, state = made(**given), torch.get_rng_state()
    assert torch.equal(made(**given), first)
    assert torch.equal(torch.get_rng_state(), state), "no random number is drawn"


def test_encode_and_decode_are_forward():
    made = model()
    (source, keep), ids = padded([tokens(3), tokens(5)], 6, "left"), tokens(2, 4)
    memory = made.encode(source, keep)
    expected = made(ids, source=source, source_keep=keep)
    close(made(ids, memory=memory, source_keep=keep), expected, tolerance=0)
    close(made.head(made.hidden(ids, source=source, source_keep=keep)), expected, tolerance=0)


@pytest.mark.parametrize(("shape", "given", "message"), [
    ("encoder-decoder", {}, r"exactly one of source= \(token ids\) and memory= .*; got neither\. Give one"),
    ("encoder-decoder", {"source": tokens(1, 2), "memory": torch.zeros(1, 2, 16)}, "exactly one of .* got both"),
    ("decoder", {"source_keep": torch.ones(1, 3).bool()}, "source_keep .* belong to an encoder-decoder"),
    ("decoder", {"source": tokens(1, 3)}, "belong to an encoder-decoder; this model has one stack"),
    ("encoder", {"memory": torch.zeros(1, 3, 16)}, "belong to an encoder-decoder; this model has one stack"),
])  # fmt: skip
def test_sources_where_they_belong(shape, given, message):
    with pytest.raises(ConfigError, match=message):
        model(shape)(tokens(1, 3), **given)


@pytest.mark.parametrize("capacity", [None, 5])
def test_a_model_that_reads_both_ways_has_no_cache(capacity):
    with pytest.raises(ConfigError, match=r"this one reads both ways\. Give it all tokens at once, without a cache"):
        model("encoder").new_cache(capacity)


@pytest.mark.parametrize("shape", ["encoder", "decoder"])
def test_encode_belongs_to_two_stacks(shape):
    with pytest.raises(ConfigError, match=r"this model has one stack\. Call hidden\(tokens\)"):
        model(shape).encode(tokens(1, 3))


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_longer_than_max_len_is_refused_not_cut(shape, positions):
    made = model(shape, positions=positions, max_len=5)
    given = {"source": tokens(2, 5)} if shape == "encoder-decoder" else {}
    made(tokens(2, 5), **given)
    with pytest.raises(DataError, match=r"at most max_len=5 tokens; got one of 6\. Shorten it"):
        made(tokens(2, 6), **given)
    if given:
        with pytest.raises(DataError, match="got one of 7"):
            made(tokens(2, 5), source=tokens(2, 7))


@pytest.mark.parametrize("capacity", [None, 20])
def test_max_len_counts_tokens_not_columns(capacity):
    """Padding takes no position; a step through the cache is part of a longer sequence."""
    made = model("decoder", max_len=5, positions="learned")
    ids, keep = padded([tokens(5), tokens(2)], 9, "holes")
    made(ids, keep=keep)
    with pytest.raises(DataError, match="got one of 6"):
        made(*padded([tokens(6)], 9, "left")[:1], keep=padded([tokens(6)], 9, "left")[1])
    cache = made.new_cache(capacity)
    made(tokens(1, 5), cache=cache)
    with pytest.raises(DataError, match="got one of 6"):
        made(tokens(1, 1), cache=cache)


def test_without_max_len_any_length_goes():
    assert model("decoder", max_len=None)(tokens(1, 300)).shape == (1, 300, VOCAB)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
@pytest.mark.parametrize("name", ["keep", "source_keep"])
def test_a_keep_of_numbers_is_refused(name, dtype):
    """Also where shapes go unchecked: 1.0 for real and 0.0 for added-to-scores look alike."""
    given = {name: torch.ones(2, 4, dtype=dtype)}
    with production(), pytest.raises(ConfigError, match=r"keep must be boolean.*keep\.bool\(\)"):
        model()(tokens(2, 4), source=tokens(2, 4), **given)
    made = model("decoder")
    with production(), pytest.raises(ConfigError, match=r"keep must be boolean"):
        made(tokens(2, 4), keep=torch.ones(2, 4, dtype=dtype), cache=made.new_cache())


@pytest.mark.parametrize("shape", [(2, 1), (1, 4), (1, 1), (4,), (2, 5), (2, 3), (4, 2), (2, 1, 4)])
def test_a_keep_of_another_shape_is_refused(shape):
    """Stretched over the tokens, one of [B, 1] puts all keys at position 0, where every query reads them."""
    keep = torch.ones(shape, dtype=torch.bool)
    both = model()
    ids, memory = tokens(2, 4), both.encode(tokens(2, 4))
    calls = {
        r"keep .*got keep": lambda: model("decoder")(ids, keep=keep),
        r"tokens.*got keep": lambda: both(ids, source=ids, source_keep=keep),
        r"memory_keep .*memory.*got memory_keep": lambda: both(ids, memory=memory, source_keep=keep),
    }
    for words, call in calls.items():
        with production(), pytest.raises(DataError, match=words) as error:
            call()
        assert f"{list(shape)} and" in str(error.value)
        assert "[2, 4]" in str(error.value)


# --- Evaluation mode for as long as something is computed


def test_each_module_gets_its_own_mode_back():
    """A part that its owner froze stays as it was, and so does one in training within a model in evaluation mode."""
    model = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.5))).train()
    model[0].eval()
    before = [each.training for each in model.modules()]
    evaluation = Evaluation(model)
    for _ in range(2):
        with evaluation:
            assert not any(each.training for each in model.modules())
        assert [each.training for each in model.modules()] == before
    model.train()
    with evaluation:
        assert not any(each.training for each in model.modules())
    assert all(each.training for each in model.modules())


def test_after_an_error_the_mode_is_back():
    """An error inside changes nothing about it."""
    model = nn.Sequential(nn.Dropout(0.5)).train()
    with pytest.raises(ZeroDivisionError), Evaluation(model):
        _ = 1 / 0
    assert model.training
    assert model[0].training


# --- Watching attention: every call is told of with its own output, and the model is as it was


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
