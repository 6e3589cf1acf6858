"""Tables of foreign names: each of our tensors goes to a place of its own, in the layout of theirs."""

import re

import pytest
import torch

from glassformer import PRESETS, Transformer
from glassformer.store.families import FAMILIES
from specimens import close, model

EXAMPLES = {
    "gpt2": PRESETS["gpt2"], "gpt_neox": PRESETS["pythia-70m"], "llama": PRESETS["llama-3-8b"],
    "bert": PRESETS["bert-base"], "t5": PRESETS["t5-small"], "bart": PRESETS["bart-base"],
    "marian": PRESETS["vaswani-base"],
}  # fmt: skip
"""A model for each family, whose names are to be translated."""


@pytest.mark.parametrize(("family", "example"), EXAMPLES.items(), ids=EXAMPLES)
def test_no_name_of_ours_is_left_and_none_is_taken_twice(family, example):
    with torch.device("meta"):
        ours = dict(Transformer(example).named_parameters())
    theirs = FAMILIES[family].export(ours, example.stack.n_heads)
    words = r"\b(blocks|branch|norm_(in|sum|out)|(self|cross)_attention|embedding|embedding_norm|positions)\b"
    assert not [name for name in theirs if re.search(words, name)]
    joined = 2 * sum("query." in name for name in ours) if FAMILIES[family].joined else 0
    assert len(theirs) == len(ours) - joined


def test_every_family_has_its_example_or_is_another_ones_kin():
    assert FAMILIES.keys() - EXAMPLES.keys() == {"t5_gated", "mistral"}


def test_rows_that_no_token_reads_stand_before_ours():
    made = model(positions="learned", embedding_norm=True, norm_placement="post")
    theirs = FAMILIES["bart"].export(dict(made.named_parameters()), 4)
    for side in ("encoder", "decoder"):
        table = theirs[f"model.{side}.embed_positions.weight"]
        assert not table[:2].any()
        close(table[2:], getattr(made, side).positions.weight, tolerance=0)
