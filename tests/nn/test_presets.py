"""Presets have as many parameters as what they are named after: as published, as in transformers, as in a notebook."""

import importlib.util
import re
import runpy
from pathlib import Path

import pytest
import torch

from glassformer import PRESETS, ModelConfig, StackConfig, Transformer, preset
from glassformer.base.errors import ConfigError
from glassformer.nn import presets
from glassformer.nn.count import count_parameters, on_meta
from specimens import SHAPES, config

NOTEBOOKS = Path(__file__).parents[2].parent / "shared" / "notebooks"
PARAMETERS = {
    "vaswani-base": 63_082_496,
    "vaswani-big": 214_245_376,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "pythia-70m": 18_915_328 + 2 * 512 * 50_304,  # of its paper, without the embeddings
    "pythia-160m": 85_056_000 + 2 * 768 * 50_304,
    "pythia-410m": 302_311_424 + 2 * 1024 * 50_304,
    "bert-base": 109_514_298,
    "bert-large": 335_174_458,
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "bart-base": 139_420_416 - 2 * 2 * 768,  # theirs has two rows of positions a stack that no token reads
    "llama-2-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
    "notebook-000": 24_035_328,
    "notebook-001": 18_688,
    "notebook-002": 152_660,
    "notebook-003": 34_240 + 32 * 33 + 2 * 33,  # the notebook's stack, a map of features before it and labels behind
    "notebook-004": 702_183,
}


@pytest.mark.parametrize("name", PRESETS)
def test_every_number_is_counted(name):
    rows, total = count_parameters(on_meta(preset(name)))
    assert total == PARAMETERS[name] == sum(row.numbers for row in rows)


@pytest.mark.parametrize("name", [name for name in PRESETS if not name.startswith("notebook")])
def test_the_table_in_the_docstring_says_the_same(name):
    (shown,) = re.findall(rf"^    {re.escape(name)} +([\d,]+)  ", str(presets.__doc__), re.MULTILINE)
    assert int(shown.replace(",", "")) == PARAMETERS[name]


@pytest.mark.parametrize("name", PRESETS)
def test_survives_plain_values(name):
    assert ModelConfig.from_dict(preset(name).to_dict()) == preset(name)


def test_counting_allocates_nothing():
    assert all(each.is_meta for each in on_meta(preset("notebook-001")).parameters())


def test_unknown_names_meet_the_nearest():
    with pytest.raises(ConfigError, match=r"^preset='gpt-2' is not known\. Known: .* Did you mean 'gpt2'\?$"):
        preset("gpt-2")


GPT2 = {"": (768, 12, 12), "-medium": (1024, 16, 24), "-large": (1280, 20, 36), "-xl": (1600, 25, 48)}
LLAMA = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32, "tie_word_embeddings": False}
BART = {f"{side}_{name}": size for side in ("encoder", "decoder")
        for name, size in (("layers", 6), ("ffn_dim", 3072), ("attention_heads", 12))}  # fmt: skip
PYTHIA = {"70m": (512, 8, 6), "160m": (768, 12, 12), "410m": (1024, 16, 24)}
THEIRS = {
    **{f"pythia-{size}": ("GPTNeoX", "ForCausalLM", {
        "vocab_size": 50_304, "hidden_size": width, "num_attention_heads": heads, "num_hidden_layers": layers,
        "intermediate_size": 4 * width}) for size, (width, heads, layers) in PYTHIA.items()},
    **{f"gpt2{size}": ("GPT2", "LMHeadModel", dict(zip(("n_embd", "n_head", "n_layer"), sizes, strict=False)))
       for size, sizes in GPT2.items()},
    "bert-base": ("Bert", "ForMaskedLM", {}),
    "bert-large": ("Bert", "ForMaskedLM", {"hidden_size": 1024, "num_attention_heads": 16, "num_hidden_layers": 24,
                                           "intermediate_size": 4096}),
    "t5-small": ("T5", "ForConditionalGeneration", {}),
    "t5-base": ("T5", "ForConditionalGeneration", {"d_model": 768, "num_heads": 12, "num_layers": 12, "d_ff": 3072}),
    "bart-base": ("Bart", "ForConditionalGeneration", {"d_model": 768, **BART}),
    "llama-2-7b": ("Llama", "ForCausalLM", {**LLAMA, "vocab_size": 32_000, "intermediate_size": 11_008}),
    "llama-3-8b": ("Llama", "ForCausalLM", {**LLAMA, "vocab_size": 128_256, "intermediate_size": 14_336,
                                            "num_key_value_heads": 8}),
}  # fmt: skip


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
@pytest.mark.parametrize("name", THEIRS)
def test_as_many_as_theirs(name):
    """The models of transformers, made from their configs on `meta`; unread rows of positions are BART's alone."""
    import transformers

    family, task, sizes = THEIRS[name]
    settings = getattr(transformers, f"{family}Config")(**sizes)
    with torch.device("meta"):
        theirs = getattr(transformers, f"{family}{task}")(settings)
    unread = 2 * 2 * 768 if family == "Bart" else 0
    assert sum(each.numel() for each in theirs.parameters()) == PARAMETERS[name] + unread


MADE = {  # notebook: the class that it builds and the sizes it gives
    "000": ("TransformerEncoder", (10_000, 512, 8, 2048, 6), {"max_len": 512}),
    "001": ("TransformerEncoder", (50, 32, 4, 64, 2), {}),
    "002": ("TransformerEncoder", (20, 64, 4, 3), {}),
    "003": ("TransformerEncoder", (4, 32, 4, 64), {}),
    "004": ("Transformer", (103, 103, 128, 4, 2, 2, 256), {}),
}


@pytest.mark.skipif(not NOTEBOOKS.is_dir(), reason="the notebooks are not here")
@pytest.mark.parametrize("number", MADE)
def test_as_many_as_the_notebooks(number):
    """Notebook 003 builds a stack over vectors; its preset has a map before it and a head behind."""
    name, sizes, settings = MADE[number]
    definitions = runpy.run_path(str(NOTEBOOKS / "extract.py"))["definitions"]
    (path,) = NOTEBOOKS.glob(f"{number}_*.txt")
    theirs = definitions(path)[name](*sizes, **settings)
    with torch.device("meta"):
        ours = Transformer(preset(f"notebook-{number}"))
    spare = 0
    if number == "003":
        spare = sum(each.numel() for part in (ours.encoder.embedding, ours.head) for each in part.parameters())
    assert sum(each.numel() for each in theirs.parameters()) == sum(each.numel() for each in ours.parameters()) - spare


# --- Parameters are counted once each, and the count of the paper's model is the one made by hand


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("tied", [True, False])
def test_total_is_the_unique_tensors(shape, tied):
    made = Transformer(config(shape, tie_embeddings=tied, positions="learned"))
    rows, total = count_parameters(made)
    assert total == sum({parameter.data_ptr(): parameter.numel() for parameter in made.parameters()}.values())
    assert total == sum(row.numbers for row in rows)
    assert sum(row.share for row in rows) == pytest.approx(1)
    assert {row.name: row.shape for row in rows} == {name: each.shape for name, each in made.state_dict().items()}
    for row in rows:
        assert (row.numbers == 0) == (row.same_as is not None)
        if row.same_as:
            assert made.get_parameter(row.name) is made.get_parameter(row.same_as)


def test_the_papers_base_model():
    """Vaswani et al. 2017, table 3, base: 6 + 6 blocks, 512 wide, 8 heads, 2048 inside, 37,000 tokens in common."""
    stack = StackConfig(d_model=512, n_heads=8, n_layers=6, d_ff=2048, norm_placement="post")
    with torch.device("meta"):
        made = Transformer(ModelConfig(vocab_size=37_000, encoder=stack, decoder=stack))
    attention = 4 * (512 * 512 + 512)
    feed_forward = 512 * 2048 + 2048 + 2048 * 512 + 512
    norm = 2 * 512
    encoder = 6 * (attention + feed_forward + 2 * norm)
    decoder = 6 * (2 * attention + feed_forward + 3 * norm)
    assert count_parameters(made)[1] == 37_000 * 512 + encoder + decoder == 63_082_496  # "65" million, says the paper


@pytest.mark.parametrize(("settings", "more"), [
    ({"feed_forward": "gated"}, 16 * 24 + 24),
    ({"feed_forward": "gated", "bias": False}, 16 * 24 - 24 - 16 - 4 * 16),
    ({"feed_forward": "experts", "n_experts": 5}, 4 * (2 * 16 * 24 + 24 + 16) + 16 * 5),
    ({"feed_forward": "experts", "n_experts": 2, "expert": "gated"},
        2 * (3 * 16 * 24 + 2 * 24 + 16) + 16 * 2 - (2 * 16 * 24 + 24 + 16)),
    ({"qk_norm": "rms"}, 2 * 4),
    ({"qk_norm": "layer"}, 2 * 2 * 4),
    ({"norm_placement": "sandwich"}, 2 * 2 * 16),
    ({"n_kv_heads": 1}, -2 * 3 * 4 * (16 + 1)),
])  # fmt: skip
def test_what_a_variant_adds_to_a_block(settings, more):
    """Counted by hand: d_model 16, four heads of 4, d_ff 24, one block."""
    plain, other = (count_parameters(Transformer(config("decoder", n_layers=1, **each)))[1] for each in ({}, settings))
    assert other - plain == more


def test_a_module_without_parameters():
    assert count_parameters(torch.nn.Identity()) == ([], 0)
