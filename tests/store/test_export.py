"""A model becomes a folder of Hugging Face from which the same model is read again, or is refused with the reason."""

import json
from dataclasses import fields, replace

import pytest
import torch
from safetensors import safe_open

from glassformer import ModelConfig, StackConfig
from glassformer.base.errors import GlassformerError, ResourceError
from glassformer.base.schemes import RelativeConfig, RotaryConfig
from glassformer.data.tokens.vocabulary import BOS, EOS, SPECIALS
from glassformer.nn.feed_forward import ACTIVATIONS
from glassformer.nn.outputs import Classify, Lm
from glassformer.store import export
from glassformer.store.export import Text, write_pretrained
from glassformer.store.families import FAMILIES
from glassformer.store.family import ACTIVATIONS as FAMILY_ACTIVATIONS
from glassformer.store.family import NOT_COMPARED
from glassformer.store.pretrained import read_pretrained
from specimens import close, model
from store.export_examples import EXAMPLES, GPT2, LLAMA, READING, decoder, tokenizer
from store.pretrained_examples import TEXT, pretrained


def written(folder, made, cut=None, text=READING):
    return write_pretrained(folder / "out", made, tokenizer() if cut is None else cut, text, named="the model")


def settings(folder, name):
    return json.loads((folder / "out" / name).read_text("utf-8"))


@pytest.mark.parametrize(("family", "chosen"), EXAMPLES.values(), ids=EXAMPLES)
def test_what_is_read_again_is_the_same_model(tmp_path, family, chosen):
    made, cut = decoder(torch.float32, **chosen), tokenizer()
    assert written(tmp_path, made).family == family
    again = read_pretrained(tmp_path / "out")
    assert (again.family, again.notes, again.documents) == (family, [], True)
    longest = made.config.stack.max_len or READING.longest
    expected = replace(made.config.stack, max_len=longest, dropout=again.model.config.stack.dropout)
    assert again.model.config == replace(made.config, decoder=expected, init="normal")
    assert again.tokenizer.to_json() == cut.to_json()
    ours, theirs = made.state_dict(), again.model.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(each, theirs[name]) for name, each in ours.items())
    ids = torch.tensor([[BOS, *cut.encode(TEXT)[:20]]])
    close(again.model(ids), made(ids), tolerance=0)


@pytest.mark.parametrize("tied", [True, False])
def test_an_imported_model_returns_with_its_own_vocabulary(tmp_path, tied):
    def untie(parts):
        parts["config"]["tie_word_embeddings"] = tied

    before = pretrained(tmp_path / "in", untie, tie_embeddings=tied)
    found = read_pretrained(tmp_path / "in")
    made = written(tmp_path, found.model, found.tokenizer)
    assert (made.tokens, made.notes) == (before.config.vocab_size, [])
    assert settings(tmp_path, "config.json")["bos_token_id"] == settings(tmp_path, "config.json")["eos_token_id"] == 0
    assert settings(tmp_path, "tokenizer_config.json")["bos_token"] == SPECIALS[EOS]
    again = read_pretrained(tmp_path / "out")
    assert again.model.config == found.model.config
    assert again.documents
    theirs = again.model.state_dict()
    assert all(torch.equal(each, theirs[name]) for name, each in found.model.state_dict().items())
    assert again.tokenizer.to_json() == found.tokenizer.to_json()


def test_a_special_token_with_a_row_of_its_own_is_kept_and_told(tmp_path):
    cut = tokenizer()
    made = decoder(torch.float32, silent="0,1,3,4,5", **GPT2)
    with torch.no_grad():
        made.decoder.embedding.weight[[0, 4, 5]] = 0.0
    [note] = written(tmp_path, made, cut).notes
    assert note.startswith("never written by this run: <bos>, <unk>; transformers computes a logit for each")
    assert settings(tmp_path, "generation_config.json")["suppress_tokens"] == [0, 2]
    again = read_pretrained(tmp_path / "out")
    assert again.model.config.silent == made.config.silent
    assert all(torch.equal(each, again.model.state_dict()[name]) for name, each in made.state_dict().items())


def test_tokens_that_a_tokenizer_gives_are_kept(tmp_path):
    cut = tokenizer("character")
    made = decoder(torch.float32, cut, silent="0,1,3,4,5", **GPT2)
    with torch.no_grad():
        made.decoder.embedding.weight[[0, 1, 3, 4, 5]] = 0.0
    written(tmp_path, made, cut)
    known = settings(tmp_path, "tokenizer.json")["model"]["vocab"]
    assert [known.get(name) for name in SPECIALS] == [None, 0, 1, 2, None, None]


def test_the_files_are_those_that_transformers_needs(tmp_path):
    written(tmp_path, decoder(torch.float32, **GPT2))
    files = ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == files
    with safe_open(tmp_path / "out" / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
    config = settings(tmp_path, "config.json")
    assert [config[name] for name in ("model_type", "architectures", "torch_dtype", "vocab_size")] == [
        *("gpt2", ["GPT2LMHeadModel"], "float32", 280),
    ]
    ends = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": 0}
    assert ends.items() <= config.items()
    assert settings(tmp_path, "generation_config.json") == {**ends, "suppress_tokens": [0, 1, 3, 4, 5]}
    own = settings(tmp_path, "tokenizer_config.json")
    assert own["split_special_tokens"] is True
    assert (own["bos_token"], own["model_max_length"]) == ("<bos>", 24)


def test_a_text_without_a_beginning_has_none_there(tmp_path):
    written(tmp_path, decoder(torch.float32, **GPT2), text=Text(begins=False, never=[*range(6)], longest=24))
    assert settings(tmp_path, "tokenizer.json")["post_processor"] is None
    assert settings(tmp_path, "generation_config.json")["suppress_tokens"] == [*range(6)]
    assert not read_pretrained(tmp_path / "out").documents


CHANGED = {
    "d_model": 32, "n_heads": 2, "n_layers": 1, "d_ff": 20, "n_features": 3, "n_segments": 2, "embedding_norm": True,
    "n_kv_heads": 2, "d_head": 6, "dropout": 0.2, "attention_dropout": 0.2, "feed_forward_dropout": 0.2,
    "token_dropout": 0.2, "norm": "none", "norm_eps": 1e-2, "norm_placement": "post", "final_norm": False,
    "qk_norm": "rms", "parallel_branches": True, "residual_scale": 0.5, "stochastic_depth": 0.2, "convolution": 3,
    "activation": "sigmoid", "feed_forward": "experts", "n_experts": 3, "experts_per_token": 1, "expert": "gated",
    "balance_loss": 0.5, "router_z_loss": 0.5, "positions": "alibi", "rotary": RotaryConfig(layout="interleaved"),
    "relative": RelativeConfig(n_buckets=4), "max_len": 23, "causal": True, "window": 3, "dilation": 2, "stride": 3,
    "block": 3, "summary": 2, "layers": "0 d_ff=16", "global_tokens": 1, "sinks": 1, "bias": True,
    "attention_rule": "sigmoid", "attention": "reference", "attention_scale": 1.0, "softcap": 3.0, "vocab_size": 300,
    "encoder": None, "decoder": None, "source_vocab_size": None, "tie_embeddings": False, "share_embeddings": False,
    "scale_embeddings": True, "scale_head": True, "head_bias": True, "silent": "0", "init": "xavier", "deepnorm": True,
    "head": Lm(transform="relu"),
}  # fmt: skip
"""Another value of every setting that a model has."""
OF_EXPERTS = ("experts_per_token", "expert", "balance_loss", "router_z_loss")
NEEDED = {
    "feed_forward": {"n_experts": 3}, "n_experts": {"feed_forward": "experts"}, "dilation": {"window": 3},
    "global_tokens": {"window": 3}, "sinks": {"window": 3}, "n_features": {"tie_embeddings": False},
    "deepnorm": {"norm_placement": "post", "init": "xavier"}, "summary": {"block": 3},
    "softcap": {"attention_rule": "softcap"}, "relative": {"positions": "t5"}, "rotary": {"positions": "rotary"},
    **{each: {"feed_forward": "experts", "n_experts": 3} for each in OF_EXPERTS},
}  # fmt: skip
"""What some of them cannot be set without."""
ELSEWHERE = {"n_features", "encoder", "decoder", "source_vocab_size", "causal"}
"""Refused before settings are compared, or the same in every decoder."""
SHAPES = {name: family.shape for name, family in FAMILIES.items() if family.shape is not None}


def test_every_setting_has_another_value():
    assert {each.name for kind in (StackConfig, ModelConfig) for each in fields(kind)} == CHANGED.keys()


@pytest.mark.parametrize("name", sorted(CHANGED.keys() - ELSEWHERE))
@pytest.mark.parametrize("family", SHAPES)
def test_every_setting_is_written_or_refused_or_changes_nothing(family, name):
    shape = SHAPES[family]
    own = {"scale_embeddings": False, "positions": "learned", "d_ff": 24, **shape.fixed}
    chosen = {name: each for name, each in own.items() if name in CHANGED} | NEEDED.get(name, {})
    if chosen.get(name) == CHANGED[name]:
        return
    changed = model("decoder", **chosen | {name: CHANGED[name]})
    misfits = {each.name for each in shape.misfits(changed.config)}
    if misfits:
        assert name in misfits or misfits & NEEDED[name].keys()
        return
    rows = {row.ours: row for row in shape.rows}
    assert name in rows or name in NOT_COMPARED
    if name in rows:
        assert shape.write(changed.config) != shape.write(model("decoder", **chosen).config)
    elif name != "silent":
        usual = model("decoder", **chosen)
        usual.load_state_dict(changed.state_dict())
        close(usual(torch.tensor([[1, 2, 3]])), changed(torch.tensor([[1, 2, 3]])))


REFUSED = {
    "two families": (
        {**GPT2, "norm": "rms", "residual_scale": 0.5},
        r"gpt2 needs model.norm='layer' \(here 'rms'\), model.residual_scale=1.0 \(here 0.5\); gpt_neox needs .*; "
        r"llama needs .*model.bias=False \(here True\).* Train a model with the settings of one family",
    ),
    "encoder-decoder": ({"shape": "encoder-decoder"}, "Only decoders can be exported.*; the model has one"),
    "encoder": ({"shape": "encoder"}, "Only decoders can be exported"),
    "classifier": ({"head": Classify(3), "tie_embeddings": False}, "the head of the model is 'classify'"),
    "layout": (
        {**LLAMA, "rotary": RotaryConfig(layout="interleaved")},
        r"llama needs model.rotary=RotaryConfig\(layout='half', share=1.0\) \(here RotaryConfig\(",
    ),
    "ntk": (
        {**LLAMA, "rotary": RotaryConfig(scaling="ntk", factor=2.0)},
        r"RotaryConfig\(scaling='none' or 'linear' or 'yarn' or 'llama3'\)",
    ),
    "window": ({**GPT2, "window": 3}, r"gpt2 needs model.window=None \(here 3\)"),
    "heads": ({**GPT2, "n_kv_heads": 2, "d_head": 6}, r"model.n_kv_heads=4 \(here 2\), model.d_head=4 \(here 6\)"),
    "odd": ({**LLAMA, "n_heads": 3, "d_head": 6}, "llama needs model.d_model=a multiple of n_heads, 3, .here 16"),
}


@pytest.mark.parametrize(("chosen", "message"), REFUSED.values(), ids=REFUSED)
def test_a_model_of_no_family_is_refused_with_what_each_needs(tmp_path, chosen, message):
    made = model(**{"shape": "decoder", "scale_embeddings": False, **chosen})
    with pytest.raises(GlassformerError, match=message):
        written(tmp_path, made)
    assert not (tmp_path / "out").exists()


def test_no_folder_that_is_in_use_is_written(tmp_path):
    made = decoder(**GPT2)
    (tmp_path / "out").mkdir()
    written(tmp_path, made)
    with pytest.raises(GlassformerError, match=r"out exists and is not empty\. Choose another name, or delete it"):
        written(tmp_path, made)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "out")
    for name in ("file", "link"):
        with pytest.raises(GlassformerError, match=rf"{name} is a file or a link"):
            write_pretrained(tmp_path / name, made, tokenizer(), READING, named="the model")


def test_nothing_is_left_of_a_folder_that_could_not_be_written(tmp_path, monkeypatch):
    def full(*_args):
        raise ResourceError("the disk is full")

    monkeypatch.setattr(export, "write_new", full)
    with pytest.raises(ResourceError):
        written(tmp_path, decoder(**GPT2))
    assert not list(tmp_path.iterdir())


def test_every_activation_has_a_name_there():
    assert ACTIVATIONS.keys() == {*FAMILY_ACTIVATIONS.values()}
