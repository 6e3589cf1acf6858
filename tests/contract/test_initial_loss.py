"""A new model knows nothing: its first loss is ln V within 0.05, whatever the table, the norms, the tying, the size."""

import itertools
import math
from statistics import mean

import pytest
import torch
import torch.nn.functional as F

from glassformer import Transformer
from glassformer.nn.block import PLACEMENTS
from glassformer.nn.initialize import INITS
from specimens import ENDS, INSIDES, ORDERS, PATTERNS, RULES, SHAPES, config

SEEDS = 2
UNDER_A_NORM = (("zero", "output"), ("zero", "sandwich"))
"""Refused: a norm of nothing but zeros."""
variants = pytest.mark.parametrize(
    ("init", "placement"), [each for each in itertools.product(INITS, PLACEMENTS) if each not in UNDER_A_NORM]
)
shapes = pytest.mark.parametrize("shape", SHAPES)


def first_loss(shape: str, **settings: object) -> float:
    """In nats, of random targets after random tokens, less ln V; mean over seeds."""
    chosen = config(shape, max_len=None if settings.get("positions") != "learned" else 32, **settings)
    excess = []
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        made, V = Transformer(chosen), chosen.vocab_size
        ids, targets, source = (torch.randint(V, (8, 32)) for _ in range(3))
        with torch.no_grad():
            logits = made(ids, **({"source": source} if made.encoder and made.decoder else {}))
        excess.append(F.cross_entropy(logits.flatten(0, 1), targets.flatten()).item() - math.log(V))
    return mean(excess)


@pytest.mark.each_two
@shapes
@variants
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize(("d_model", "vocab_size"), [(64, 24), (64, 2000), (128, 100), (512, 24)])
def test_first_loss_is_ln_v(shape, init, placement, tied, d_model, vocab_size):
    sizes = {"d_model": d_model, "d_ff": d_model, "vocab_size": vocab_size}
    excess = first_loss(shape, **sizes, init=init, norm_placement=placement, tie_embeddings=tied)
    assert abs(excess) < 0.05, f"{excess:+.3f}"


@variants
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_with_a_large_vocabulary(init, placement, tied):
    sizes = {"d_model": 512, "d_ff": 512, "vocab_size": 8000}
    excess = first_loss("encoder-decoder", **sizes, init=init, norm_placement=placement, tie_embeddings=tied)
    assert abs(excess) < 0.05, f"{excess:+.3f}"


OTHERS = [
    *ORDERS,
    *ENDS,
    *RULES,
    *PATTERNS,
    {"scale_embeddings": False},
    {"share_embeddings": False},
    {"scale_embeddings": False, "scale_head": True, "attention_scale": 1.0, "positions": "t5", "norm": "rms"},
    {"head_bias": True},
    {"n_layers": 8},
    {"n_layers": 8, "norm": "rms", "feed_forward": "gated", "activation": "silu", "qk_norm": "rms"},
    {"final_norm": True},
    {"final_norm": False},
]


@pytest.mark.each_two
@variants
@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_whatever_else_is_chosen(init, placement, other):
    sizes = {"d_model": 64, "d_ff": 128, "vocab_size": 200}
    excess = first_loss("encoder-decoder", **sizes, init=init, norm_placement=placement, **other)
    assert abs(excess) < 0.05, f"{excess:+.3f}"


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("inside", INSIDES, ids=str)
def test_whatever_is_inside_a_block(init, inside):
    """One stack; deepnorm has gains for the xavier column alone."""
    if "deepnorm" in inside or (init, inside.get("norm_placement")) in UNDER_A_NORM:
        init = "xavier"
    sizes = {"d_model": 64, "d_ff": 128, "vocab_size": 200}
    excess = first_loss("decoder", **sizes, **inside, init=init)
    assert abs(excess) < 0.05, f"{excess:+.3f}"


@shapes
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_deepnorm(shape, tied):
    sizes = {"d_model": 64, "d_ff": 128, "vocab_size": 200, "n_layers": 9, "tie_embeddings": tied}
    excess = first_loss(shape, **sizes, deepnorm=True, norm_placement="post")
    assert abs(excess) < 0.05, f"{excess:+.3f}"


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("settings", [{"norm": "none"}, {"final_norm": False}], ids=str)
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("scaled", [True, False], ids=["scaled", "unscaled"])
def test_a_head_that_reads_no_norm(init, settings, tied, scaled):
    """Nine layers: neither a stream without norms nor a sum of many branches makes the head sure of itself."""
    sizes = {"d_model": 64, "d_ff": 256, "vocab_size": 200, "n_layers": 9}
    chosen = {**settings, "tie_embeddings": tied, "scale_embeddings": scaled}
    excess = first_loss("encoder-decoder", **sizes, **chosen, init=init)
    assert abs(excess) < 0.05, f"{excess:+.3f}"


@shapes
@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("positions", ["learned", "t5", "shaw"])
def test_no_two_matrices_start_alike(positions, init, shape):
    """Layers, projections and stacks each draw their own numbers; a matrix has no two equal rows either.

    Matrices that write to the stream are 0 in the column zero, and in no other.
    """
    made = Transformer(config(shape, init=init, positions=positions, tie_embeddings=False, share_embeddings=False))
    matrices = {name: each for name, each in made.state_dict().items() if each.ndim == 2}
    writing = {name for name in matrices if name.endswith(("output.weight", "down.weight"))}
    assert len(matrices) - len(writing) > 10
    assert len(writing) >= 4
    for name in writing if init == "zero" else ():
        assert not matrices.pop(name).any(), name
    for (one, first), (two, second) in itertools.combinations(matrices.items(), 2):
        assert first.shape != second.shape or not torch.equal(first, second), f"{one} and {two}"
    for name, matrix in matrices.items():
        assert len(matrix.unique(dim=0)) == len(matrix), name


@pytest.mark.parametrize("init", INITS)
def test_routers_start_small(init):
    """Logits of standard deviation 0.1 over a normalised vector, so that no expert is preferred by chance."""
    made = Transformer(config("decoder", d_model=64, feed_forward="experts", n_experts=64, init=init))
    for block in made.decoder.blocks:
        assert block.feed_forward.branch.router.weight.std().item() == pytest.approx(0.1 / 8, rel=0.1)


@pytest.mark.parametrize("init", INITS)
def test_vectors_start_as_the_table_says(init):
    """Biases 0; norms 1 and 0, but for the norm under a tied head."""
    for tied in (True, False):
        made = Transformer(config(init=init, head_bias=True, tie_embeddings=tied))
        vectors = {name: each for name, each in made.named_parameters() if each.ndim == 1}
        under_the_head = vectors.pop("decoder.norm.weight")
        assert (under_the_head.unique().numel(), under_the_head[0].item() < 1.0) == (1, tied and init == "xavier")
        for name, vector in vectors.items():
            assert (vector == float("norm" in name and name.endswith("weight"))).all(), name
