"""Public names given something else than they take: named by rule and remedy, before any arithmetic."""

import pytest
import torch

from glassformer import (
    ATTEND,
    NORMS,
    Attention,
    Batch,
    Block,
    Mask,
    ModelConfig,
    Residual,
    Schedule,
    StackConfig,
    Transformer,
    Update,
    answer,
    diagnose,
    generate,
    heat_map,
    observe,
    plot_positions,
    preset,
    recompute,
    save,
    sharpest_head,
    trace,
    train_steps,
)
from glassformer.base.errors import ArgumentError, ConfigError, DataError
from glassformer.data.batch import check_ids, pad
from glassformer.data.config import TokenizerConfig
from glassformer.data.tokenizer import TOKENIZERS
from glassformer.nn.build import build_block
from glassformer.nn.cache import cache_of
from glassformer.nn.convolution import ShortConvolution
from glassformer.nn.embedding import Embedding, FeatureMap, Segments
from glassformer.nn.ensemble import Ensemble
from glassformer.nn.feed_forward import Experts, FeedForward, GatedFeedForward
from glassformer.nn.heads import Head, PlaceHead, SequenceHead
from glassformer.nn.positions import Alibi, Learned, Rotary, Sizes
from glassformer.nn.stack import Stack
from specimens import config, model, production

FEATURES = {"n_features": 3, "tie_embeddings": False}
IDS, ROW = torch.tensor([[1, 2, 3]]), torch.tensor([1, 2, 3])


def watch(model):
    with observe(model):
        pass


def run(**given):
    network = model("decoder" if "prompts" in given and "sources" not in given else "encoder-decoder")
    return list(generate(network, **{"max_new_tokens": 2, **given}))


AUTO, X = ATTEND["softmax"]["auto"], torch.randn(2, 3, 8)


def gated():
    return GatedFeedForward(8, 9, torch.relu)


def experts():
    return Experts(8, 9, torch.relu, n_experts=2, experts_per_token=1)


def block(reads_memory=False, **settings):
    return build_block(StackConfig(d_model=8, n_heads=2, d_ff=9, n_layers=1, **settings), reads_memory=reads_memory)


PARTS = {
    "a width that heads do not divide": (lambda: Attention(30, 4, AUTO), r"multiple of n_heads; got d_model=30"),
    "heads in words": (lambda: Attention(8, "2", AUTO), r"n_heads of Attention must be a whole.*got '2' \(str\)"),
    "no head": (lambda: Attention(8, 0, AUTO), "n_heads of Attention must be a whole number of at least 1; got 0"),
    "groups of no size": (lambda: Attention(8, 4, AUTO, n_kv_heads=3), "multiple of n_kv_heads; got 4 and 3"),
    "a backend by name": (lambda: Attention(8, 2, "auto"), "attend of Attention must be a function; got 'auto'"),
    "attention of another width": (lambda: Attention(8, 2, AUTO)(X[..., :6]),
        r"x of Attention must be a tensor of floats \[B, T, 8\]; .* \[2, 3, 6\]"),
    "a source of another width": (lambda: Attention(8, 2, AUTO)(X, source=X[..., :6]),
        r"source of Attention must be a tensor of floats \[2, S, 8\] or None; got"),
    "ids for vectors": (lambda: Attention(8, 2, AUTO)(X.long()),
        r"floats \[B, T, 8\]; got torch\.int64 .* Give x\.float\(\)"),
    "a mask of another shape": (lambda: Attention(8, 2, AUTO)(X, mask=X[..., 0, None] > 0),
        r"2 rows, 2 heads, 3 queries and 3 keys cannot have shape \[2, 3, 1\].*Mask\(keep=keep\)"),
    "a mask with two meanings": (lambda: Attention(8, 2, AUTO)(X[:, :2], mask=torch.ones(2, 2) > 0),
        r"could be \[B, S\].*mask\[:, None\] for the first, mask\[None\] for the second"),
    "a mask of twos": (lambda: Attention(8, 2, AUTO)(X, mask=torch.full((3, 3), 2)),
        "holds 1 where a key may be read"),
    "a list as mask": (lambda: Attention(8, 2, AUTO)(X, mask=[1, 0]), r"a Mask or a tensor; got \[1, 0\] \(list\)"),
    "a block of numbers": (lambda: Block(8, 2, 32), r"self_attention of Block must be a Residual; got 8 \(int\)"),
    "a network of another width": (lambda: FeedForward(8, 9, torch.relu)(X[..., :6]),
        r"x of FeedForward must be a tensor of floats \[\.\.\., 8\]; got"),
    "a row for a batch": (lambda: Attention(8, 2, AUTO)(X[0]),
        r"floats \[B, T, 8\]; got .* \[3, 8\].* give x\[None\]"),
    "no position": (lambda: Attention(8, 2, AUTO)(X[:, :0]), r"got .* \[2, 0, 8\]\. Give at least one position"),
    "a list of vectors": (lambda: Attention(8, 2, AUTO)(X.tolist()),
        r"floats \[B, T, 8\]; .*\(list\)\. Use torch\.tensor"),
    "an array of vectors": (lambda: FeedForward(8, 9, torch.relu)(X.numpy()), r"\(ndarray\)\. .*from_numpy"),
    "a source of a row": (lambda: Attention(8, 2, AUTO)(X, source=X[0]),
        r"source of Attention .* give source\[None\]"),
    "a source of other rows": (lambda: Attention(8, 2, AUTO)(X, source=X[:1]),
        r"floats \[2, S, 8\] or None; .* \[1, 3, 8\]"),
    "wide vectors": (lambda: Attention(8, 2, AUTO)(X.double()),
        r"torch\.float32; got torch\.float64.*x\.to\(torch\.fl"),
    "a wide source": (lambda: Attention(8, 2, AUTO)(X, source=X.double()), "source of Attention must have the dtype"),
    "narrow vectors": (lambda: gated().double()(X),
        r"of GatedFeedForward .* weights, torch\.float64; got torch\.float3"),
    "vectors of 16 bits": (lambda: gated()(x=X.half()),
        r"x of GatedFeedForward .*convert its weights with \.to\(torch\.fl"),
    "experts of another width": (lambda: experts()(X[..., :6]),
        r"x of Experts must be a tensor of floats \[\.\.\., 8\]"),
    "experts in float64": (lambda: experts().double()(X), "x of Experts must have the dtype"),
    "a block of another width": (lambda: block(norm="rms")(X[..., :1]),
        r"x of Block .*floats \[B, T, 8\]; .*\[2, 3, 1\]"),
    "a block in float64": (lambda: block().double()(X), r"x of Block must have the dtype of its weights"),
    "a block of rms norms": (lambda: block(norm="rms")(X.double()), "x of Block must have the dtype of its weigh"),
    "a block of ids": (lambda: block(norm="none")(X.long()), r"x of Block .*; got torch\.int64"),
    "a row for a block": (lambda: block()(X[0]), r"x of Block must be .*\[3, 8\]\. For a batch of one row"),
    "a memory of other rows": (lambda: block(True)(X, memory=X[[0, 1, 1]]),
        r"memory of Block must be a tensor of floats \[2, S, 8\] .* \[3, 3, 8\]"),
    "a memory of another width": (lambda: block(True)(X, memory=X[..., :6]), r"memory of Block must be .*\[2, S, 8\]"),
    "a memory that nobody reads": (lambda: block()(X, memory=X), r"Only a block with cross-attention reads a memory"),
    "a mask of other keys": (lambda: block()(X, mask=Mask(keep=torch.ones(2, 1, dtype=bool))),
        r"2 rows and 3 keys its shape is \[2, 3\]; got \[2, 1\]"),
    "a bias of other scores": (lambda: block(True)(X, memory=X, memory_mask=Mask(bias=torch.zeros(2, 3, 1))),
        r"its shape is \[2, 3, 3\] or \[2, 2, 3, 3\].*; got \[2, 3, 1\]\. Give a value for each key"),
    "a bias without heads": (lambda: block()(X, mask=Mask(bias=torch.zeros(3, 3))),
        r"got \[3, 3\]\. For the same in all heads, give bias\[None\]"),
    "a mask of NaN": (lambda: block()(X, mask=torch.full((3, 3), torch.nan)), r"or -inf; got NaN or inf"),
    "branches of two widths": (
        lambda: Block(block().self_attention, None, Residual(FeedForward(6, 9, torch.relu), torch.nn.Identity)),
        r"same d_model; got \[8, 6\]"),
    "a norm in place of its maker": (lambda: Residual(gated(), torch.nn.LayerNorm(8)),
        "norm of Residual must be a fu"),
    "a branch of another width": (lambda: block().feed_forward(X[..., :6]),
        r"x of Residual must be .*floats \[B, T, 8\]"),
    "a list to a branch": (lambda: block().feed_forward(X.tolist()), r"x of Residual must be a tensor of floats"),
    "a number for a branch": (lambda: Residual(3, lambda: None),
        r"branch of Residual must be a Module; got 3 \(int\)"),
    "ids to a stack": (lambda: model("decoder").decoder(X[..., 0]),
        r"tokens must be token ids.*float32 of shape \[2,"),
    "a memory in a list": (lambda: model()(IDS, memory=[1.0]),
        r"memory of Transformer must be a tensor of floats \[1, S, D\]"),
    "a memory of 16 bits": (lambda: model()(IDS, memory=torch.zeros(1, 2, model().config.stack.d_model).bfloat16()),
        r"memory of Transformer must have the dtype"),
    "a number for a cache": (lambda: model("decoder")(IDS, cache=3), r"The cache of a model must be a Cache; got 3"),
    "an activation by name": (lambda: FeedForward(8, 9, "relu"), "activation of FeedForward must be a function"),
    "a gate of no width": (lambda: GatedFeedForward(8, 0, torch.relu), "d_ff of GatedFeedForward .*at least 1; got 0"),
}  # fmt: skip


@pytest.mark.shapes(False)
@pytest.mark.parametrize(("wrong", "message"), PARTS.values(), ids=PARTS)
def test_a_part_alone_refuses_by_name(wrong, message):
    with pytest.raises((ConfigError, DataError), match=message):
        wrong()


WIDE = {
    "list": X.tolist(),
    "text": "a b",
    "nothing": None,
    "array": X.numpy(),
    "ids": torch.tensor([[1, 2, 3]]),
    "whole numbers": X.long(),
    "another width": X[..., :6],
    "another device": X.to("meta"),
    "wide": X.double(),
}  # fmt: skip
READERS = {
    "LayerNorm": lambda: NORMS["layer"](8, 1e-5),
    "Attention": lambda: Attention(8, 2, AUTO),
    "FeedForward": lambda: FeedForward(8, 9, torch.relu),
    "Experts": experts,
    "Head": lambda: Head(7, 8, bias=True),
    "PlaceHead": lambda: PlaceHead(8, 3),
    "SequenceHead": lambda: SequenceHead(8, 3),
    "Block": block,
    "Residual": lambda: block().feed_forward,
}  # fmt: skip


@pytest.mark.shapes(False)
@pytest.mark.parametrize("given", WIDE.values(), ids=WIDE)
@pytest.mark.parametrize("owner", READERS)
def test_vectors_that_a_part_cannot_read_are_named(owner, given):
    with pytest.raises(ArgumentError, match=f"^x of {owner} must (be a tensor of floats|have the d)") as refused:
        READERS[owner]()(given)
    assert isinstance(refused.value.__cause__, Exception)


Q = torch.randn(2, 2, 3, 4)
POSITION = Sizes(8, 2, 4, 5)
ALONE = {
    "norm in words": (lambda: NORMS["rms"]("8", 1e-5), r"width of RMSNorm must be a whole number; got '8'"),
    "norm of no width": (lambda: NORMS["layer"](0, 1e-5), "width of LayerNorm must be a whole number of at least 1"),
    "whole numbers for a norm": (lambda: NORMS["rms"](8, 1e-5)(X.long()), r"x of RMSNorm must .* Give x\.float"),
    "a norm of another width": (lambda: Residual(gated(), lambda: torch.nn.LayerNorm(6)),
        "norm of Residual must be for vectors of 8 numbers; got one for 6"),
    "a convolution of another width": (
        lambda: Residual(gated(), torch.nn.Identity, convolution=ShortConvolution(3, 6)),
        "convolution of Residual must be for vectors of 8"),
    "a norm of keys of another width": (lambda: Attention(8, 2, AUTO, qk_norm=lambda _: NORMS["rms"](8, 1e-5)),
        "qk_norm of Attention must be for vectors of 4"),
    "a convolution of ids": (lambda: ShortConvolution(3, 8)(IDS),
        r"x of ShortConvolution .* \[B, T, 8\]; .* \[1, 3\]"),
    "a convolution near a number": (lambda: ShortConvolution(3, 8)(X, 3),
        "nearby of ShortConvolution must be a Nearby"),
    "floats for ids": (lambda: Embedding(9, 8)(X[..., 0]), r"tokens of Embedding must .* Give tokens\.long\(\)"),
    "a list of ids": (lambda: Embedding(9, 8)([[1]]),
        r"tokens of Embedding must be a tensor of whole numbers \[B, T\]"),
    "a large id": (lambda: Embedding(9, 8)(torch.tensor([[1, 9]])), "got 9 at row 0, column 1"),
    "segments in a list": (lambda: Segments(2, 8)([[0]], X),
        r"segments of Segments must be .* numbers \[B, T\] or None"),
    "features in a list": (lambda: FeatureMap(3, 8)([[0.0]]),
        r"x of FeatureMap must be a tensor of floats \[B, T, I\]"),
    "a number as rotation": (lambda: Attention(8, 2, AUTO)(X, rotation=3),
        "rotation of Attention must be a Rotation or"),
    "text as rotation": (lambda: block()(X, rotation="a"), "rotation of Block must be a Rotation or None; got 'a'"),
    "a rotation of other positions": (
        lambda: Attention(8, 2, AUTO)(X, rotation=Rotary(POSITION).rotation(torch.arange(2), X)),
        r"rotation\.cos of Attention must be a tensor of floats \[\.\.\., 3, pairs\]"),
    "text as cache": (lambda: Attention(8, 2, AUTO)(X, cache="a"),
        r"cache of Attention .*; got 'a'.* Try cache=model\."),
    "a cache of all layers": (lambda: Attention(8, 2, AUTO)(X, cache=cache_of(1, None)),
        "cache of Attention must be a LayerCach"),
    "text as positions": (lambda: Learned(POSITION).embedding("a", X),
        "positions of Learned must be a tensor of whole"),
    "floats as positions": (lambda: Learned(POSITION).embedding(torch.ones(2), X), r"Give positions\.long"),
    "too many positions": (lambda: Learned(POSITION).embedding(torch.arange(6), X), "below max_len=5; got 0 to 5"),
    "learned without a length": (lambda: Learned(Sizes(8, 2, 4, None)), "Learned positions need max_len"),
    "positions in a list": (lambda: Alibi(POSITION).score_bias([0], [0], X),
        "queries of Alibi must be a tensor of whole"),
    "sizes in words": (lambda: Rotary(Sizes("8", 2, 4, 5)),
        r"sizes\.d_model of Rotary must be a whole number; got '8'"),
    "keep in numbers": (lambda: SequenceHead(8, 3)(X, X[..., 0]), "keep must be boolean"),
    "keep of other rows": (lambda: SequenceHead(8, 3)(X, X[:1, :, 0] > 0), r"got keep \[1, 3\] and x \[2, 3\]"),
    "a head of words": (lambda: Head(7, "8"),
        r"d_model of Head must be a whole number; got '8' \(str\)\. Try d_model=8"),
    "a silent token beyond": (lambda: Head(7, 8, silent=[7]), "silent must be ids of the vocabulary, below 7; got 7"),
    "no such expert": (lambda: Experts(8, 9, torch.relu, n_experts=2, experts_per_token=1, expert="x"),
        "expert='x' is"),
    "too few experts": (lambda: Experts(8, 9, torch.relu, n_experts=2, experts_per_token=3),
        "at most n_experts=2; got 3"),
    "a mask that says yes": (lambda: Mask(causal="yes"), r"causal of Mask must be True or False; got 'yes'"),
    "a list as bias": (lambda: Mask(bias=[1.0]), "bias of Mask must be a tensor of floats"),
    "a bias of truth": (lambda: Mask(bias=torch.ones(1, 3, 3) > 0), r"bias of Mask must be .* Give bias\.float\(\)"),
    "documents in a list": (lambda: Mask(documents=[0, 1]), r"documents of Mask must be a tensor of whole numbers"),
    "a pattern in words": (lambda: Mask(pattern="a"), "pattern of Mask must be a Pattern or None"),
    "documents of other keys": (lambda: Attention(8, 2, AUTO)(X, mask=Mask(documents=torch.arange(2))),
        r"mask\.documents of auto must be a tensor of whole numbers \[\.\.\., 3\]"),
    "a mask as a tensor to linear attention": (lambda: ATTEND["linear"]["sums"](Q, Q, Q, X, scale=1.0),
        "mask of sums must be a Mask"),
    "keys of another width": (lambda: ATTEND["softmax"]["sdpa"](Q, Q[..., :3], Q, Mask(), scale=1.0),
        r"k of sdpa must"),
    "capacity in words": (lambda: model("decoder").new_cache("a"),
        "capacity of Transformer must be a whole number or None"),
    "recompute of a number": (lambda: recompute(3).__enter__(), r"model of recompute must be a Module; got 3"),
    "recompute of half a block": (lambda: recompute(block(), 1.5).__enter__(),
        "recompute is the number of blocks.*got 1.5"),
    "a stack without a vocabulary": (lambda: Stack(config("decoder").decoder, None), "needs vocab_size; got None"),
}  # fmt: skip


@pytest.mark.shapes(False)
@pytest.mark.parametrize(("wrong", "message"), ALONE.values(), ids=ALONE)
def test_each_argument_of_a_part_is_named(wrong, message):
    with pytest.raises((ConfigError, DataError), match=message):
        wrong()


def test_an_error_that_no_argument_explains_is_left_as_it_is():
    def attend(*_, **__):
        raise RuntimeError("of my own")

    attention = Attention(8, 2, attend)
    with pytest.raises(RuntimeError, match=r"^of my own$"):
        attention(X)
    with pytest.raises(RuntimeError, match=r"^of my own$"):
        Residual(attention, torch.nn.Identity)(X, mask=Mask())


def test_without_a_mask_everything_is_read():
    attention = Attention(8, 2, AUTO)
    assert torch.equal(attention(X), attention(X, mask=Mask()))


CASES = {
    "a stack for a config": (lambda: Transformer(StackConfig()),
        "config of Transformer must be a ModelConfig; got StackConfig"),
    "a dictionary for a config": (lambda: Transformer({}),
        r"a ModelConfig; got \{\} \(dict\)\. Give config=ModelConfig"),
    "a model for an ensemble": (lambda: Ensemble(model("decoder")),
        r"members of Ensemble must be a Sequence; .* Try members=\[one"),
    "an ensemble of numbers": (lambda: Ensemble([3]),
        r"must be Transformers; member 0 \(counted from 0\) is 3 \(int\)"),
    "observe a number": (lambda: watch(3), r"observe\(\) must be a Module; got 3 \(int\)\. Give it the model"),
    "a row alone": (lambda: model("decoder")(ROW), r"tokens must be token ids.*int64 of shape \[3\].* tokens\[None\]"),
    "float ids": (lambda: model("decoder")(IDS.double()),
        r"float64 of shape \[1, 3\].*numbers: give tokens\.long\(\)"),
    "boolean ids": (lambda: model("decoder")(IDS > 1), r"tokens must be token ids.*torch\.bool of shape \[1, 3\]"),
    "lists for a tensor": (lambda: model("decoder")([[1, 2]]), r"tokens must be a tensor.*got \[\[1, 2\]\] \(list\)"),
    "text for a tensor": (lambda: model("decoder")("a b"), r"tokens must be a tensor.*got 'a b' \(str\)"),
    "a source alone": (lambda: model()(IDS, source=ROW), r"source must be token ids.*give source\[None\]"),
    "a source to encode": (lambda: model().encode(ROW), r"source must be token ids"),
    "no token": (lambda: model("decoder")(IDS[:, :0]),
        r"Each row of tokens needs at least one token; got shape \[1, 0\]\. Begin a text with BOS"),
    "no token to a window": (lambda: model("decoder", window=2, attention="sparse")(IDS[:, :0]), "at least one token"),
    "no token to read both ways": (lambda: model("encoder").hidden(IDS[:, :0], keep=IDS[:, :0] > 0), "shape .1, 0."),
    "no token of a source": (lambda: model()(IDS, source=IDS[:, :0]), "Each row of source needs .*source with EOS"),
    "no token to encode": (lambda: model().encode(IDS[:, :0]), "Each row of source needs at least one token"),
    "no vector": (lambda: model("encoder", **FEATURES)(torch.zeros(2, 0, 3)), r"one vector; got shape \[2, 0, 3\]"),
    "a batch of no token": (lambda: Batch(IDS[:, :0]), "Each row of tokens needs at least one token"),
    "an empty prompt": (lambda: run(prompts=[[7], []]), r"prompt 1 \(counted from 0\) is empty\. Begin it with BOS"),
    "pairs of no rows": (lambda: Batch.pairs([], []), "at least one token; got 0 sequences"),
    "ids for features": (lambda: model("encoder", **FEATURES)(IDS), r"tokens must be features \[B, T, I\]"),
    "one row of features": (lambda: model("encoder", **FEATURES)(torch.zeros(2, 3)),
        r"features \[B, T, I\].*shape \[2, 3\]\. For a batch of one row, give tokens\[None\]"),
    "features for ids": (lambda: model("decoder")(torch.zeros(1, 2, 3)), r"tokens must be token ids \[B, T\]"),
    "a batch of lists of text": (lambda: Batch([["a"]]), r"tokens must be a tensor of token ids.* or features"),
    "a batch of a row": (lambda: Batch(ROW),
        r"tokens must be .*shape \[3\]\. For a batch of one row.* tokens\[None\]"),
    "a batch with a source of a row": (lambda: Batch(IDS, source=ROW), r"source must be .*source\[None\]"),
    "pairs of text": (lambda: Batch.pairs("ab", "ba"), r"in sources must be lists of token ids, but they are 'ab'"),
    "pairs of texts": (lambda: Batch.pairs(["ab"], ["ba"]), r"in sources .*row 0 .*'ab' \(str\)\. Encode texts first"),
    "targets of text": (lambda: Batch.pairs([[7]], ["ba"]), r"in targets .*row 0 .*is 'ba' \(str\)"),
    "pairs of digits as text": (lambda: Batch.pairs([["12"]], [[7]]), r"row 0 has '12' \(str\) at place 0"),
    "pairs of floats": (lambda: Batch.pairs([[7, 7.5]], [[7]]), r"row 0 has 7\.5 \(float\) at place 1"),
    "pairs of rows": (lambda: Batch.pairs([7, 8], [8, 7]),
        r"in sources .*row 0 .* 7 \(int\).*single row, give \[ids\]"),
    "pairs of nothing": (lambda: Batch.pairs(None, [[7]]), r"in sources .*they are None"),
    "blanks of texts": (lambda: Batch.blanks(["ab"], [[7]]), r"in sources .*is 'ab'"),
    "labelled texts": (lambda: Batch.labelled(["ab"], [1]), r"in texts .*is 'ab'"),
    "labels of text": (lambda: Batch.labelled([[7]], ["x"]), r"Labels are whole numbers.*got \['x'\] \(list\)"),
    "labels that are no list": (lambda: Batch.labelled([[7], [8]], [[1.0], [1.0, 2.0]]), r"Labels are whole numbers"),
    "labels of truth": (lambda: Batch.labelled([[7], [8]], [True, False]), r"Labels are whole numbers.*got \[True"),
    "whole numbers for numbers": (lambda: Batch.labelled([[7], [8]], [[1], [2]]), r"write 3\.0 for 3"),
    "a label below 0": (lambda: Batch.labelled([[7], [8]], [0, -1]),
        r"Labels must be at least 0; got -1 for text 1 \(counted from 0\)\. Remove texts that have no label"),
    "a batch of unequal rows": (lambda: Batch(IDS, source=torch.cat([IDS, IDS])),
        r"Row i of source belongs to row i of tokens, .*got source \[2, 3\] and tokens \[1, 3\]"),
    "a keep of another shape": (lambda: Batch(IDS, keep=torch.ones(2, 3, dtype=bool)),
        r"got keep \[2, 3\] and tokens"),
    "a keep of whole numbers": (lambda: Batch(IDS, keep=torch.ones_like(IDS)),
        r"keep must be boolean.*got torch.int64"),
    "a keep in a list": (lambda: Batch(IDS, keep=[[True] * 3]), r"keep must be boolean.*got \[\[True, True, True\]\]"),
    "a source_keep of whole numbers": (lambda: Batch(IDS, source=IDS, source_keep=IDS),
        r"source_keep must be boolean.*Use source_keep\.bool\(\)"),
    "a source_keep alone": (lambda: Batch(IDS, source_keep=IDS > 1), r"source_keep needs source, but this batch"),
    "labels of other rows": (lambda: Batch(IDS, labels=torch.tensor([1, 2])), r"Row i of labels .*labels \[2\]"),
    "labels in other places": (lambda: Batch(IDS, labels=IDS[:, :2]), r"those of tokens, \[1, 3\]; got \[1, 2\]"),
    "labels in a list": (lambda: Batch(IDS, labels=[1]),
        r"The labels of a batch must be a Tensor; got \[1\] \(list\)"),
    "a label_keep of whole numbers": (lambda: Batch(IDS, labels=IDS, label_keep=IDS), r"label_keep must be boolean"),
    "a label_keep without labels": (lambda: Batch(IDS, label_keep=IDS > 1), r"label_keep needs labels"),
    "a source of more rows": (lambda: model()(IDS, source=torch.cat([IDS, IDS])),
        r"source of Transformer must be a tensor of whole numbers \[1, S\] .*; got torch\.int64 of shape \[2, 3\]"),
    "a source of fewer rows": (lambda: model()(torch.cat([IDS, IDS]), source=IDS),
        r"source of Transformer must be .*\[2, S\]"),
    "no preset": (lambda: preset(None), r"preset must be a name; got None\. Known: 'bart-base', "),
    "a list of presets": (lambda: preset(["gpt2"]), r"preset must be a name; got \['gpt2'\] \(list\)"),
    "tagged texts": (lambda: Batch.tagged([[7]], ["a"]), r"in tags .*is 'a'"),
    "padding of a long number": (lambda: pad([[2**63]]), r"row 0 has 9223372036854775808 \(int\) at place 0"),
    "ids that are text": (lambda: check_ids("ab", 9, "sources"), r"Rows in sources must be lists.*they are 'ab'"),
    "answer to text": (lambda: answer(model(), "text"), r"Rows in sources .*they are 'text' \(str\)"),
    "answers to texts": (lambda: answer(model(), ["text"]), r"row 0 .*is 'text' \(str\)"),
    "answers to a row": (lambda: answer(model(), [1, 2]), r"row 0 .*is 1 \(int\)"),
    "answers to a number": (lambda: answer(model(), 3), r"they are 3 \(int\)"),
    "answers of no model": (lambda: answer(3, [[7]]), r"Only a Transformer can write tokens; got 3 \(int\)"),
    "answers of a wrong length": (lambda: answer(model(), [[7]], max_new_tokens="9"),
        r"max_new_tokens must be a whole number; got '9' \(str\)\. Try max_new_tokens=64"),
    "sources of text": (lambda: run(sources=["ab"]), r"in sources .*is 'ab'"),
    "sources of a row": (lambda: run(sources=[7, 8]), r"in sources .*is 7 \(int\)"),
    "a number for sources": (lambda: run(sources=7), r"in sources .*they are 7"),
    "prompts of text": (lambda: run(prompts="ab"), r"in prompts .*they are 'ab'"),
    "a number for prompts": (lambda: run(prompts=7), r"in prompts .*they are 7"),
    "prompts of another number": (lambda: run(sources=[[7]], prompts=[[1], [1]]), "got 1 sources and 2 prompts"),
    "floats in prompts": (lambda: run(prompts=[[1.0]]), r"row 0 has 1\.0 \(float\) at place 0"),
    "half a token": (lambda: run(prompts=[[1]], max_new_tokens=1.5), r"max_new_tokens must be at least.*got \[1\.5\]"),
    "a limit in text": (lambda: run(prompts=[[1]], max_new_tokens="2"), r"max_new_tokens must be.*got \['2'\]"),
    "a limit too many": (lambda: run(prompts=[[1]], max_new_tokens=[2, 2]), r"each of 1 rows; got \[2, 2\]"),
    "no model that generates": (lambda: list(generate(3, prompts=[[1]], max_new_tokens=1)), "a Transformer can write"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_is_named(name):
    call, message = CASES[name]
    with production(), pytest.raises((ConfigError, DataError), match=message):
        call()


def test_what_is_a_list_of_ids_in_other_words_is_taken():
    """Tuples, arrays and tensors of whole numbers are rows as lists are."""
    expected = Batch.pairs([[7, 8], [9, 7]], [[8], [9]])
    with production():
        for rows in (torch.tensor([[7, 8], [9, 7]]), torch.tensor([[7, 8], [9, 7]]).numpy(), ((7, 8), (9, 7))):
            assert torch.equal(Batch.pairs(rows, ((8,), (9,))).source, expected.source)
            assert len(answer(model(), rows, max_new_tokens=1)) == 2


def test_ids_of_32_bits_are_ids():
    network = model("decoder")
    assert torch.equal(network(IDS), network(IDS.int()))
    assert Transformer(ModelConfig(9, decoder=config("decoder").decoder))


def test_a_name_that_is_no_arguments_is_told_with_the_way():
    """Others call it mask, or attention_mask."""
    with pytest.raises(ArgumentError, match=r"Transformer takes no argument 'attention_mask'\. Give keep=, boolean"):
        model("decoder")(IDS, attention_mask=torch.ones(1, 3))
    with pytest.raises(ArgumentError, match=r"Transformer takes no argument 'sorce'.*Did you mean 'source'"):
        model("encoder-decoder")(IDS, sorce=IDS)
    with pytest.raises(ArgumentError, match=r"Attention takes no argument 'attn_mask'.*Did you mean 'mask'"):
        Attention(8, 2, AUTO)(X, attn_mask=torch.ones(3, 3))


# --- public functions

LETTERS = TOKENIZERS["character"].train(["abc"], TokenizerConfig())
SCHEDULE = Schedule("constant", 0.1, 3)


def steps(batches=(), optimizer=None, schedule=SCHEDULE):
    """Train a model; by default with its own optimizer."""
    made = model("encoder-decoder")
    own = torch.optim.SGD(made.parameters()) if optimizer is None else optimizer
    return list(train_steps(made, [BATCH] if batches == () else batches, own, schedule))


BATCH = Batch.pairs([[7, 8]], [[8, 7]])
MAPS = {"encoder.blocks.0.self_attention": torch.eye(2)[None, None]}


@pytest.mark.parametrize(("call", "words"), [
    (lambda: steps(schedule="cosine"), r"schedule of train_steps must be a Schedule; got 'cosine'.*Give Schedule\("),
    (lambda: steps(optimizer="adam"), r"optimizer of train_steps must be an Optimizer; got 'adam'.*Give torch\.optim"),
    (lambda: steps(optimizer=torch.optim.SGD(torch.nn.Linear(2, 2).parameters())), "have parameters of the model"),
    (lambda: steps(BATCH), r"batches of train_steps must be an Iterable.*Give a list"),
    (lambda: steps([IDS]), r"Each batch of train_steps must be a Batch; got .*Batch\.pairs"),
    (lambda: Schedule("cosine", -0.1, 3), r"finite peak of at least 0.*peak=-0\.1"),
    (lambda: Schedule("cosine", float("nan"), 3), "finite peak of at least 0"),
    (lambda: Schedule("linear", 0.1, 0), r"at least one step.*steps=0"),
    (lambda: Schedule("wsd", 0.1, 3, warmup=-1), r"warm-up of 0 steps or more.*warmup=-1"),
    (lambda: Schedule("linear", 0.1, 3, least=0.2), r"least from 0 to the peak.*least=0\.2"),
    (lambda: Update(clip=-1.0), "clip must be at least 0"),
    (lambda: Update(label_smoothing=1.5), "label_smoothing must be .* below 1"),
    (lambda: Update(skip_nonfinite=-1), "skip_nonfinite must be at least 0"),
    (lambda: save("nowhere", model("decoder"), LETTERS), r"tokenizers of save must be a Tokenizers.*\(tokenizer"),
    (lambda: trace("run", LETTERS, "abc"), "model of trace must be a Transformer"),
    (lambda: trace(model("decoder"), None, "abc"), "tokenizer of trace must be a Tokenizers; got None"),
    (lambda: trace(model("decoder"), LETTERS, 5), r"source of trace must be a Sequence; got 5 \(int\)"),
    (lambda: diagnose(model("decoder"), None), "probe of diagnose must be a Probe.*induction_probe"),
    (lambda: heat_map(torch.eye(3), "ab", "abc"), r"got \[3, 3\] with 2 and 3 labels"),
    (lambda: heat_map(torch.eye(3)[None], "abc", "abc"), r"got \[1, 3, 3\].*seen\[name\]\[0, head\]"),
    (lambda: heat_map([[1.0]], "a", "a"), "weights of heat_map must be a Tensor"),
    (lambda: sharpest_head(MAPS, "cross_attention"), r"'cross_attention' was not seen, but encoder\.blocks"),
    (lambda: sharpest_head({}, "self_attention"), "none at all.*with observe"),
    (lambda: plot_positions(length=0), "length must be at least 1; got 0"),
    (lambda: LETTERS.encode(5), r"encodes text; got 5 \(int\)"),
    (lambda: LETTERS.encode_all(["a", None]), r"encodes text; got None"),
])  # fmt: skip
def test_a_public_function_names_its_wrong_argument(call, words):
    with production(), pytest.raises((ConfigError, DataError), match=words):
        call()
