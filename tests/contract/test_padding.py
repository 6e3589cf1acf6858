"""Padding and batch-mates change nothing: each row gets what it gets alone, wherever its padding stands."""

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

from glassformer import ATTEND
from glassformer.base.errors import ConfigError
from glassformer.nn.block import PLACEMENTS
from glassformer.nn.positions import POSITIONS
from specimens import (
    ENDS,
    FORWARD_ONLY,
    INSIDES,
    NO_BACKWARD,
    ORDERS,
    PADDINGS,
    PATTERNS,
    RULES,
    SHAPES,
    close,
    gradients,
    model,
    padded,
    tokens,
)

VARIANTS = [
    *ORDERS, *({"attention": name} for name in ATTEND["softmax"]), *INSIDES, *ENDS, *RULES, *PATTERNS,
    *({**each, "window": 2, "n_kv_heads": 2} for each in ORDERS if "rotary" not in each), {"window": 1},
]  # fmt: skip
LEARNERS = [
    {"feed_forward": "experts", "n_experts": 3},
    {"qk_norm": "rms", "norm": "rms", "feed_forward": "gated"},
    {"convolution": 3},
]
LENGTHS = [(5, 3), (1, 7), (8, 1), (2, 4)]  # of tokens and source
variants = pytest.mark.parametrize("variant", VARIANTS, ids=str)
shapes = pytest.mark.parametrize("shape", SHAPES)
paddings = pytest.mark.parametrize("where", PADDINGS)


def rows_for(shape, lengths=LENGTHS):
    """Ids for each row, and its source where the shape reads one."""
    return [(tokens(n), tokens(m) if shape == "encoder-decoder" else None) for n, m in lengths]


def batch(rows, where, width=10):
    """Arguments of a forward: everything padded to `width`."""
    ids, keep = padded([row for row, _ in rows], width, where)
    given = {"tokens": ids, "keep": keep}
    if rows[0][1] is not None:
        given["source"], given["source_keep"] = padded([source for _, source in rows], width, where)
    return given


def alone(made, row):
    ids, source = row
    return made(ids[None], source=None if source is None else source[None])[0]


@pytest.mark.each_two
@shapes
@paddings
@variants
def test_each_row_of_a_padded_batch_gets_what_it_gets_alone(shape, where, variant):
    made, rows = model(shape, **variant), rows_for(shape)
    given = batch(rows, where)
    with torch.no_grad():
        together = made(**given)
        for logits, real, row in zip(together, given["keep"], rows, strict=True):
            close(logits[real], alone(made, row))


@pytest.mark.promise
@hypothesis.given(
    shape=st.sampled_from(SHAPES),
    where=st.sampled_from(PADDINGS),
    settings=st.fixed_dictionaries(
        {
            "positions": st.sampled_from(sorted(POSITIONS.keys() - {"shaw"})),  # not every backend honours it
            "attention_rule": st.sampled_from(sorted({*ATTEND} - {"linear"})),  # which knows no window
            "attention": st.sampled_from(["auto", "reference", "matmul", "sparse"]),
            "norm_placement": st.sampled_from(sorted(PLACEMENTS)),
            "window": st.none() | st.integers(1, 5),
            "n_kv_heads": st.sampled_from([1, 2, 4]),
        }
    ),
    lengths=st.lists(st.tuples(st.integers(1, 8), st.integers(1, 8)), min_size=1, max_size=4),
    spare=st.integers(0, 3),
)
def test_any_batch_any_neighbours_any_padding(shape, where, settings, lengths, spare):
    made, rows = model(shape, **settings), rows_for(shape, lengths)
    given = batch(rows, where, width=max(map(max, lengths)) + spare)
    with torch.no_grad():
        for logits, real, row in zip(made(**given), given["keep"], rows, strict=True):
            close(logits[real], alone(made, row))


@pytest.mark.each_two
@shapes
@paddings
@pytest.mark.parametrize(
    "variant",
    [*({"attention": name} for name in ATTEND["softmax"]), *LEARNERS, *RULES, *PATTERNS, *ORDERS[-2:]],
    ids=str,
)
def test_a_padded_batch_learns_what_its_rows_learn(shape, where, variant):
    """The gradient over the real places is the sum of the rows' gradients; nothing comes from the padding."""
    made, rows = model(shape, **variant), rows_for(shape)
    given = batch(rows, where)
    if variant.get("attention") in FORWARD_ONLY:
        with pytest.raises(ConfigError, match=NO_BACKWARD):
            made(**given)
        return
    together = gradients(made(**given)[given["keep"]], made)
    apart = gradients(torch.cat([alone(made, row) for row in rows]), made)
    for name, gradient in together.items():
        close(gradient, apart[name], name, 1e-11)


@shapes
def test_batch_mates_change_nothing(shape):
    """The same padded row beside other rows, in another place."""
    made, rows = model(shape), rows_for(shape)
    with torch.no_grad():
        first = made(**batch(rows, "right"))
        others = [(tokens(9), None if source is None else tokens(9)) for _, source in rows]
        second = made(**batch([*others, rows[0]], "right"))
    close(first[0, : LENGTHS[0][0]], second[-1, : LENGTHS[0][0]])


@shapes
@paddings
@pytest.mark.parametrize("variant", [*RULES, *PATTERNS], ids=str)
def test_a_row_of_padding_alone_harms_nobody(shape, where, variant):
    """No NaN in its own logits, and no difference for the others, in values and in gradients."""
    made, rows = model(shape, **variant), rows_for(shape)
    empty = (tokens(0), None if rows[0][1] is None else tokens(0))
    given = batch([*rows, empty], where)
    logits = made(**given)
    assert logits.isfinite().all()
    for row, real, expected in zip(logits, given["keep"], [alone(made, row) for row in rows], strict=False):
        close(row[real], expected)
    assert all(gradient.isfinite().all() for gradient in gradients(logits, made).values())


@shapes
def test_keep_of_all_true_is_keep_of_none(shape):
    made = model(shape)
    given = {"tokens": tokens(2, 5), **({"source": tokens(2, 4)} if shape == "encoder-decoder" else {})}
    kept = {
        f"{name}_keep".removeprefix("tokens_"): torch.ones_like(ids, dtype=torch.bool) for name, ids in given.items()
    }
    close(made(**given, **kept), made(**given))
