"""Whether a run on disk is the arm that is asked for."""

from __future__ import annotations

from dataclasses import replace

from glassformer.study.folder import differences
from glassformer.train.recipe import load_recipe


def test_what_a_run_found_out_by_its_text_is_no_difference():
    asked = load_recipe("lm")
    kept = replace(asked, data=replace(asked.data, documents=True))
    assert differences(kept, asked) == []
    told = replace(asked, data=replace(asked.data, documents=False))
    assert differences(kept, told) == ["data.documents is True there and False here"]


def test_what_was_left_open_elsewhere_is_a_difference():
    asked = load_recipe("lm")
    kept = replace(asked, training=replace(asked.training, threads=1))
    assert differences(kept, asked) == ["training.threads is 1 there and 0 here"]
