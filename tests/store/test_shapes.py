"""config.json of Llama, Mistral and GPT-NeoX: what would compute something else is refused by name."""

import json

import pytest
import torch

from glassformer.base.errors import GlassformerError
from glassformer.base.schemes import RotaryConfig
from glassformer.store.export import write_pretrained
from glassformer.store.pretrained import read_pretrained
from store.export_examples import GPT2, LLAMA, NEOX, READING, decoder, tokenizer

FOLDERS = {
    "llama": {**LLAMA, "n_kv_heads": 2, "tie_embeddings": False},
    "mistral": {**LLAMA, "n_kv_heads": 2, "window": 3},
    "gpt_neox": NEOX,
    "gpt2": GPT2,
}
MISSING = object()


def changed(folder, family, **settings):
    """The config that is read from a folder of a family after settings of its config.json were changed."""
    if not folder.exists():
        write_pretrained(folder, decoder(torch.float32, **FOLDERS[family]), tokenizer(), READING, named="it")
    config = json.loads((folder / "config.json").read_text()) | settings
    given = {name: each for name, each in config.items() if each is not MISSING}
    (folder / "config.json").write_text(json.dumps(given))
    return read_pretrained(folder).model.config


def scaled(kind, **settings):
    return {"rope_scaling": {"rope_type": kind, **settings}}


ORIGINAL = {"original_max_position_embeddings": 8}
REFUSED = {
    "attention_bias": ("llama", {"attention_bias": True}, "attention_bias must be False.*got True"),
    "mlp_bias": ("llama", {"mlp_bias": True}, "mlp_bias must be False.*got True"),
    "slices": ("llama", {"pretraining_tp": 2}, "pretraining_tp must be 1.*got 2"),
    "activation": ("llama", {"hidden_act": "mish"}, "hidden_act must be one of gelu_new, .*; got 'mish'"),
    "heads": ("llama", {"num_key_value_heads": 3}, r"n_heads \(4\) must be a multiple of n_kv_heads \(3\)"),
    "dynamic": ("llama", scaled("dynamic", factor=2.0), "rope_scaling.rope_type must be one of default, .*'dynamic'"),
    "old name": ("llama", {"rope_scaling": {"type": "longrope"}}, "rope_scaling.type must be one of .*'longrope'"),
    "no factor": ("llama", scaled("linear"), "rope_scaling.factor must be a number of at least 0; got None"),
    "more": ("llama", scaled("yarn", factor=2.0, mscale=1.0), "rope_scaling.mscale must be None.*got 1.0"),
    "ramp": ("llama", scaled("yarn", factor=2.0, truncate=False), "rope_scaling.truncate must be True.*got False"),
    "sharper": (
        "llama",
        scaled("yarn", factor=2.0, attention_factor=1.1),
        "rope_scaling.attention_factor must be None",
    ),
    "turns": ("llama", scaled("llama3", factor=2.0, low_freq_factor=2.0), "rope_scaling.low_freq_factor must be 1.0"),
    "outside": ("llama", scaled("yarn", factor=2.0) | ORIGINAL, "json: original_max_position_embeddings must be None"),
    "part": ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor must be 1.0.*got 0.5"),
    "inside": ("llama", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor must be 1.0"),
    "no object": ("llama", {"rope_scaling": 3}, "rope_scaling must be an object of settings, or null; got 3"),
    "tied": ("llama", {"tie_word_embeddings": True}, "lm_head.weight differs from model.embed_tokens.weight"),
    "window": ("mistral", {"sliding_window": 0}, "sliding_window must be a whole number of at least 1; got 0"),
    "usual heads": ("mistral", {"num_key_value_heads": MISSING}, r"n_kv_heads \(8\)"),
    "no pairs": ("gpt_neox", {"rotary_pct": 0.7}, "share times d_head must be an even whole number of at least 2; got"),
    "no part": ("gpt_neox", {"rotary_pct": 1.5}, "share must be above 0 and at most 1; got 1.5"),
    "no bias": ("gpt_neox", {"attention_bias": False}, "attention_bias must be True.*got False"),
    "class": ("llama", {"architectures": ["LlamaModel"]}, r"LlamaForCausalLM can be .* is \['LlamaModel'\]"),
    "family": ("llama", {"model_type": "qwen2"}, "type gpt2, gpt_neox, llama, mistral can be .* is 'qwen2'"),
}


@pytest.mark.parametrize(("family", "settings", "message"), REFUSED.values(), ids=REFUSED)
def test_what_would_compute_something_else_is_refused(tmp_path, family, settings, message):
    with pytest.raises(GlassformerError, match=message):
        changed(tmp_path / "in", family, **settings)


LINEAR = RotaryConfig(scaling="linear", factor=2.0)
YARN = RotaryConfig(scaling="yarn", factor=2.0, original_max_len=24)
READ = {
    "as now": ({"rope_parameters": {"rope_type": "default", "rope_theta": 50.0}}, RotaryConfig(50.0)),
    "as before": ({"rope_theta": 50.0, "rope_scaling": None}, RotaryConfig(50.0)),
    "usual": ({"rope_theta": MISSING}, RotaryConfig()),
    "old name": ({"rope_scaling": {"type": "linear", "factor": 2.0}}, LINEAR),
    "both": (scaled("linear", factor=2.0) | {"rope_parameters": {"rope_theta": 50.0}}, LINEAR),
    "usual length": (scaled("yarn", factor=2.0), YARN),
    "usual turns": (scaled("yarn", factor=2.0, beta_fast=32, beta_slow=1.0, truncate=True), YARN),
}


@pytest.mark.parametrize(("settings", "rotary"), READ.values(), ids=READ)
def test_rotary_positions_are_read_where_they_stand(tmp_path, settings, rotary):
    assert changed(tmp_path / "in", "llama", **settings).stack.rotary == rotary


def test_the_usual_values_are_theirs(tmp_path):
    assert changed(tmp_path / "in", "mistral", sliding_window=MISSING).stack.window == 4096
    assert changed(tmp_path / "in", "mistral", sliding_window=None).stack.window is None
    neox = changed(
        tmp_path / "neox", "gpt_neox", num_attention_heads=2, use_parallel_residual=MISSING, rotary_pct=MISSING
    )
    assert (neox.stack.parallel_branches, neox.stack.rotary) == (True, RotaryConfig(share=0.25))
    assert (
        changed(tmp_path / "neox", "gpt_neox", num_attention_heads=2, hidden_act="gelu_fast").stack.activation
        == "gelu_tanh"
    )
    names = ("num_key_value_heads", "head_dim", "rms_norm_eps", "tie_word_embeddings", "attention_dropout")
    assert changed(tmp_path / "other", "llama", num_attention_heads=4).stack.norm_eps == 1e-5
    with pytest.raises(GlassformerError, match=r"k_proj.weight \(expected \[16, 16\], found \[8, 16\]\)"):
        changed(tmp_path / "other", "llama", **dict.fromkeys(names, MISSING))


def test_weights_without_their_head_are_read(tmp_path):
    from safetensors.torch import load_file, save_file

    before = changed(tmp_path / "in", "mistral")
    path = tmp_path / "in" / "model.safetensors"
    save_file({name.removeprefix("model."): each for name, each in load_file(path).items()}, path)
    assert read_pretrained(tmp_path / "in").model.config == before


def test_one_number_here_is_not_two_there(tmp_path):
    assert changed(tmp_path / "in", "gpt2", resid_pdrop=0.2, embd_pdrop=MISSING).stack.dropout == 0.2
    with pytest.raises(GlassformerError, match=r"embd_pdrop must be 0\.2, as resid_pdrop is: .* number here; got 0\.0"):
        changed(tmp_path / "in", "gpt2", resid_pdrop=0.2, embd_pdrop=0.0)
