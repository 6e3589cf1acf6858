"""The doctor finds each mistake made on purpose, by what the model does; a healthy run gets no failure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from glassformer.proof.doctor import PROBES
from glassformer.proof.doctor.finding import FAILURE, OK, examine
from glassformer.train.breaks import BREAKS
from proof.doctor_runs import QUICK, case_of, found, named, trained

SOURCES = Path(__file__).parents[2] / "src" / "glassformer" / "proof" / "doctor"

HEALTHY = {
    "encoder-decoder": {},
    "encoder": {"data__layout": "encoder"},
    "label": {},
    "label-attention-pooling": {"model__pooling": "attention"},
    "equal-lengths": {"data__min_length": 4, "model__dropout": 0.0},
    "post-norm-learned": {"model__norm_placement": "post", "model__positions": "learned", "model__max_len": 8},
    "rotary-grouped": {"model__positions": "rotary", "model__n_kv_heads": 1, "model__qk_norm": "rms"},
    "shaw-rms": {"model__positions": "shaw", "model__norm": "rms", "model__tie_embeddings": False},
    "t5-scale": {"model__positions": "t5", "model__attention_scale": 1.0},
    "t5-experts": {"model__positions": "t5", "model__feed_forward": "experts", "model__n_experts": 3},
    "alibi-window": {"model__positions": "alibi", "model__window": 3, "model__norm_placement": "sandwich"},
    "parallel-convolution": {"model__parallel_branches": True, "model__convolution": 2},
    "linear": {"model__attention_rule": "linear"},
    "softcap-deepnorm": {"model__attention_rule": "softcap", "model__deepnorm": True, "model__norm_placement": "post"},
    "two-vocabularies-of-characters": {"tokenizer__kind": "character", "tokenizer__shared": False},
    "one-key-for-heads-of-one-value": {"model__n_kv_heads": 1, "model__window": 1},
    "one-layer-of-bytes": {"tokenizer__kind": "byte", "model__n_layers": 1, "model__n_heads": 1},
}


RARE = (
    *("softcap-deepnorm", "linear", "shaw-rms", "t5-scale", "alibi-window", "one-key-for-heads-of-one-value"),
    *("t5-experts", "parallel-convolution", "two-vocabularies-of-characters", "rotary-grouped", "post-norm-learned"),
)
"""What a push leaves to `make test-all`: three to twenty seconds each."""


@pytest.mark.parametrize("name", [pytest.param(each, marks=[pytest.mark.slow] * (each in RARE)) for each in HEALTHY])
def test_healthy_run_has_no_failure(name, tmp_path):
    layout = {"encoder": "encoder", "label": "label", "label-attention-pooling": "label"}.get(name, "encoder-decoder")
    findings = found(trained(tmp_path, layout, **HEALTHY[name]), PROBES)
    assert [each for each in findings if each.state == FAILURE] == []
    assert len(named(findings, OK)) > 12
    assert all(re.search(r"\d", each.evidence) for each in findings if each.state == OK), "figures"


FINDINGS = {
    "no-scale": ("scale", "the scale is missing"),
    "wrong-scale": ("scale", "the scale uses d_model instead of d_head"),
    "swapped-heads": ("heads", "heads are mixed: they are merged without a transpose"),
    "alike-heads": ("alike-heads", "heads are alike"),
    "leaky-mask": ("causality", "a position reads tokens after it"),
    "no-padding-mask": ("padding", "padding changes the answer"),
    "no-positions": ("order", "order is not seen"),
    "no-residual": ("residual", "the residual is missing"),
    "no-cross-attention": ("source", "the source changes nothing"),
    "shared-layers": ("layers", "layers are the same module"),
    "identical-layers": ("layers", "layers start identical"),
    "unscaled-init": ("first-loss", "the first loss is not that of guessing"),
    "no-embedding-scale": ("embedding", "embeddings are not scaled"),
    "dropout-in-evaluation": ("repeatable", "evaluation is random"),
    "shifted-labels": ("labels", "labels are shifted twice"),
    "unshifted-labels": ("labels", "labels are not shifted"),
    "pads-in-loss": ("padding-in-loss", "padding counts in the loss"),
    "pads-in-pooling": ("pooling", "padding is pooled"),
    "cache-off-by-one": ("cache", "decoding token by token gives another answer"),
}
"""What the doctor calls each mistake: the probe and its words."""
BY_LAYOUT = {
    "encoder-decoder": [name for name in FINDINGS if name != "pads-in-pooling"],
    "label": [
        "swapped-heads",
        "alike-heads",
        "no-padding-mask",
        "pads-in-pooling",
        "no-positions",
        "unscaled-init",
        "no-residual",
        "no-scale",
    ],
    "encoder": ["no-padding-mask", "shifted-labels", "pads-in-loss", "no-positions"],
}
CASES = [
    *((name, layout, {}) for layout, names in BY_LAYOUT.items() for name in names),
    ("no-positions", "encoder-decoder", {"model__positions": "rotary"}),
    ("no-positions", "encoder-decoder", {"model__positions": "shaw"}),
    ("no-positions", "encoder-decoder", {"model__positions": "t5"}),
    ("cache-off-by-one", "encoder-decoder", {"model__positions": "learned", "model__max_len": 9}),
    ("swapped-heads", "encoder-decoder", {"model__n_kv_heads": 1, "model__norm_placement": "post"}),
    ("alike-heads", "encoder-decoder", {"model__n_kv_heads": 1, "model__window": 1}),
    ("dropout-in-evaluation", "encoder-decoder", {"model__dropout": 0.0, "model__token_dropout": 1e-4}),
    ("dropout-in-evaluation", "label", {"model__dropout": 0.0, "model__attention_dropout": 1e-4}),
    ("dropout-in-evaluation", "encoder", {"model__dropout": 0.0, "model__stochastic_depth": 1e-4}),
]


def test_every_mistake_has_its_finding():
    assert {*FINDINGS} == {*BREAKS} == {name for name, *_ in CASES}


@pytest.mark.parametrize(
    ("name", "layout", "changes"),
    CASES,
    ids=["-".join([name, layout, *map(str, changes.values())]) for name, layout, changes in CASES],
)
def test_mistake_is_found(name, layout, changes, tmp_path):
    findings = found(trained(tmp_path, layout, training__broken=name, **changes))
    assert [(each.probe, each.what) for each in findings if each.state == FAILURE] == [FINDINGS[name]]
    [failure] = [each for each in findings if each.state == FAILURE]
    assert re.search(r"\d", failure.evidence)
    assert failure.cause.endswith(".")
    assert failure.remedy


def test_several_mistakes_are_found_together(tmp_path):
    run = trained(tmp_path, training__broken="no-residual,leaky-mask,pads-in-loss,unscaled-init")
    assert {*named(found(run), FAILURE)} == {"residual", "causality", "padding-in-loss", "first-loss"}


def test_doctor_does_not_read_what_was_broken():
    texts = {path.name: path.read_text("utf-8") for path in SOURCES.glob("*.py")}
    assert [
        name for name, text in texts.items() if re.search(r"broken\b\s*[\"'\]]|\.broken|breaks|break_names", text)
    ] == []


def test_mistake_without_a_name_is_found(tmp_path):
    """In the model alone, where no recipe says it."""
    case = case_of(trained(tmp_path))
    case.model.decoder.blocks[1].cross_attention.branch.scale = 1.0
    [failure] = [each for each in examine(case, QUICK) if each.state == FAILURE]
    assert failure.probe == "scale"
    assert "decoder.blocks.1.cross_attention" in failure.evidence
