"""What stands before the first block and behind the last: norms, scales and maps, each against its equation."""

import math

import pytest
import torch
import torch.nn.functional as F

from glassformer import Attention, Mask, Transformer
from glassformer.base.errors import ConfigError, DataError
from glassformer.data.kinds import LAYOUTS
from glassformer.nn.attention import reference
from glassformer.nn.embedding import Embedding, check_tokens
from glassformer.nn.feed_forward import ACTIVATIONS
from glassformer.nn.heads import Head, HeadTransform
from glassformer.nn.norm import LayerNorm
from glassformer.nn.outputs import Classify, Lm
from glassformer.nn.recipe import ModelRecipe
from specimens import SHAPES, VOCAB, close, config, model, normal, scramble, stack, tokens


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_embedding_norm_stands_behind_positions_and_before_the_first_block(placement):
    made, ids = model("encoder", embedding_norm=True, norm_placement=placement, positions="learned"), tokens(2, 5)
    encoder = made.encoder
    x = F.embedding(ids, encoder.embedding.weight) * 4.0 + encoder.positions.weight[:5]
    norm = encoder.embedding_norm
    x = F.layer_norm(x, (16,), norm.weight, norm.bias, norm.eps)
    for block in encoder.blocks:
        x = block(x, mask=Mask())
    close(made.hidden(ids), encoder.norm(x))


def test_embedding_norm_is_of_the_stacks_kind():
    named = Transformer(config(embedding_norm=True, norm="rms")).state_dict()
    assert {name for name in named if "embedding_norm" in name} == {
        f"{side}.embedding_norm.weight" for side in ("encoder", "decoder")
    }


@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_attention_scale_multiplies_the_scores(scale):
    made, x, source = scramble(Attention(8, 2, reference, scale=scale).double()), normal(2, 3, 8), normal(2, 5, 8)
    q, k, v = (made.heads(each) for each in (made.query(x), made.key(source), made.value(source)))
    mixed = ((q @ k.mT) * scale).softmax(-1) @ v
    close(made(x, mask=Mask(), source=source), made.output(mixed.transpose(1, 2).flatten(2)))


def test_attention_scale_reaches_every_attention():
    made = model(attention_scale=0.7)
    assert [module.scale for module in made.modules() if isinstance(module, Attention)] == [0.7] * 6


@pytest.mark.parametrize(("scale", "factor"), [(1.0, 0.5), (2.0, 0.25), (0.1, 1.0), (None, 1.0)])
def test_first_scores_are_as_large_as_ever(scale, factor):
    """Four numbers a head, so 1/2 is the usual scale; a smaller one is left to be smaller."""
    torch.manual_seed(0)
    usual = Transformer(config("decoder")).decoder.blocks[1].self_attention.branch
    torch.manual_seed(0)
    made = Transformer(config("decoder", attention_scale=scale)).decoder.blocks[1].self_attention.branch
    close(made.query.weight, usual.query.weight * factor, tolerance=1e-7)
    close(made.key.weight, usual.key.weight, tolerance=0)


def test_a_scaled_head_reads_its_vectors_over_the_root_of_the_width():
    made, plain, ids = model("decoder", scale_head=True), model("decoder"), tokens(2, 5)
    plain.load_state_dict(made.state_dict())
    close(made(ids), plain(ids) / math.sqrt(16))


@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_a_heads_transform_is_its_equation(activation):
    act = ACTIVATIONS[activation]
    head = scramble(Head(5, 4, bias=True, scale=0.5, transform=HeadTransform(4, act, LayerNorm(4, 1e-5))).double())
    x, t = normal(2, 3, 4), head.transform
    y = act(x @ t.dense.weight.T + t.dense.bias)
    y = (y - y.mean(-1, keepdim=True)) / (y.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    close(head(x), ((y * t.norm.weight + t.norm.bias) * 0.5) @ head.weight.T + head.bias)


def test_names_of_a_heads_transform():
    named = Transformer(config("encoder", head=Lm(transform="gelu"), head_bias=True)).state_dict()
    inside = {f"head.transform.{part}.{kind}" for part in ("dense", "norm") for kind in ("weight", "bias")}
    assert {name for name in named if name.startswith("head.")} == inside | {"head.weight", "head.bias"}


def test_a_heads_norm_is_of_the_stacks_kind():
    norm = Transformer(config("encoder", head=Lm(transform="gelu"), norm="rms", norm_eps=0.25)).head.transform.norm
    assert (type(norm).__name__, norm.eps) == ("RMSNorm", 0.25)


@pytest.mark.parametrize(("wrong", "message"), [
    ({"embedding_norm": True, "norm": "none"}, "embedding_norm=True needs a norm; got norm='none'. Set .*norm=False"),
    ({"attention_scale": 0.0}, "attention_scale must be above 0 and finite; got 0.0"),
    ({"attention_scale": float("inf")}, "attention_scale must be above 0 and finite; got inf"),
    ({"attention_scale": float("nan")}, "attention_scale must be above 0 and finite; got nan"),
    ({"attention_scale": 1.0, "attention_rule": "linear"}, "a scale would cancel out; got .*=1.0. Remove"),
])  # fmt: skip
def test_stacks_that_cannot_be(wrong, message):
    with pytest.raises(ConfigError, match=message):
        stack(**wrong)


@pytest.mark.parametrize(("wrong", "message"), [
    ({"scale_head": True, "tie_embeddings": False}, "tied to the embedding; got head.kind='lm' and tie"),
    ({"scale_head": True, "head": Classify(2)}, "tied to the embedding; got head.kind='classify'"),
    ({"silent": "0,-1"}, "must be token ids with commas between them; got '0,-1'. Try '0,1'"),
    ({"silent": "0", "head_bias": True}, "takes the place of the bias .*got head.kind='lm' and head_bias=True"),
    ({"silent": "0", "head": Classify(2)}, "got head.kind='classify' and head_bias=False"),
    ({"head": Lm(transform="gelu"), "norm": "none"}, "a norm, of the same kind as in the stack; got stack.norm='none'"),
])  # fmt: skip
def test_models_that_cannot_be(wrong, message):
    with pytest.raises(ConfigError, match=message):
        config("encoder", **wrong)


def test_an_unknown_activation_of_a_head_meets_the_nearest():
    with pytest.raises(ConfigError, match=r"^head\.transform='gleu' is not known\. .* Did you mean 'gelu'\?$"):
        Transformer(config("encoder", head=Lm(transform="gleu")))


def test_a_recipe_says_all_of_it():
    made = ModelRecipe(embedding_norm=True, attention_scale=1.0, scale_head=True, head_transform="gelu").build(
        LAYOUTS["encoder-decoder"], 9
    )
    assert all(each.embedding_norm and each.attention_scale == 1.0 for each in (made.encoder, made.decoder))
    assert (made.scale_head, made.head) == (True, Lm(transform="gelu"))
    assert ModelRecipe().build(LAYOUTS["encoder"], 9).head == Lm()
    with pytest.raises(ConfigError, match=r"a classifier does not have; got 'gelu'\. Remove model\.head_transform"):
        ModelRecipe(head_transform="gelu").build(LAYOUTS["label"], 9, n_labels=2)


@pytest.mark.parametrize("tied", [True, False])
def test_a_silent_token_is_never_predicted_and_nothing_is_learned_of_it(tied):
    made = model("decoder", silent="0,3", tie_embeddings=tied)
    ids = tokens(2, 5)
    logits = made(ids)
    close(logits[..., [1, 2, 4]], (made.hidden(ids) @ made.head.weight.T)[..., [1, 2, 4]])
    assert logits.softmax(-1)[..., [0, 3]].sum() == 0
    assert logits.isfinite().all()
    assert "head.bias" in made.state_dict()
    assert "head.bias" not in dict(made.named_parameters())
    assert not model("decoder").state_dict().keys() & {"head.bias"}
    with pytest.raises(ConfigError, match="silent must be ids of the vocabulary, below 11; got 99"):
        model("decoder", silent="99")


# --- Embedding and head: what they compute, and the id that is no token


def test_embedding_looks_up_and_scales():
    embedding = scramble(Embedding(5, 3, scale=1.5))
    close(embedding(torch.tensor([[4, 0]])), embedding.weight[[4, 0]][None] * 1.5, tolerance=0)


def test_head_is_a_product():
    head = scramble(Head(5, 3, bias=True).double())
    x = torch.randn(2, 4, 3).double()
    close(head(x), torch.einsum("btd,vd->btv", x, head.weight) + head.bias)


def test_a_tied_head_holds_the_embeddings_matrix():
    embedding = Embedding(5, 3)
    assert Head(5, 3, tied=embedding).weight is embedding.weight


@pytest.mark.parametrize("wrong", [-1, VOCAB, 10**9])
@pytest.mark.parametrize("shape", SHAPES)
def test_an_id_outside_the_vocabulary_is_named_by_row_and_column(shape, wrong):
    made, ids = model(shape), tokens(3, 4)
    given = {"source": tokens(3, 4)} if shape == "encoder-decoder" else {}
    for each in (ids, *given.values()):
        kept = each[1, 2].item()
        each[1, 2], each[2, 0] = wrong, wrong  # the first of them is named
        with pytest.raises(DataError, match=rf"below .* {VOCAB}; got {wrong} at row 1, column 2\. .*tokenizer"):
            made(ids, **given)
        each[1, 2], each[2, 0] = kept, 0


def test_the_source_has_a_vocabulary_of_its_own():
    made = model("encoder-decoder", source_vocab_size=5)
    made(torch.tensor([[VOCAB - 1]]), source=torch.tensor([[4]]))
    with pytest.raises(DataError, match="below the vocabulary's size, 5; got 5 at row 0, column 0"):
        made(torch.tensor([[1]]), source=torch.tensor([[5]]))


def test_no_tokens_are_no_mistake():
    check_tokens(torch.empty(0, 3, dtype=torch.long), 5)
    check_tokens(torch.empty(3, 0, dtype=torch.long), 5)
