"""A model that `transformers` saved, tokenizer and all, computes and writes here what it does there."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

from data.tokens.published_examples import END as LAST
from data.tokens.published_examples import PUBLISHED, json_of
from glassformer.data.tokens.vocabulary import BOS, EOS, SPECIALS
from glassformer.decode.generate import generate
from glassformer.store.export import Text, write_pretrained
from glassformer.store.pretrained import read_pretrained
from parity.test_transformers_export import widen
from specimens import close
from store.pretrained_examples import END, SIZES, TEXT, library

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
NARROW = 1e-3
"""Their RMS norms and angles are in float32, whatever the dtype of the model."""
WIDTHS = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
WIDTHS |= {"max_position_embeddings": 48}
WHOLE = {"rope_theta": 10_000.0, "rope_type": "default", "partial_rotary_factor": 1.0}
QUARTER = {**WHOLE, "partial_rotary_factor": 0.25}
BANDS = {"factor": 4.0, "original_max_position_embeddings": 12}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **BANDS}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    **{
        f"GPT-2, {name}": ("GPT2", "LMHeadModel", {**SIZES, "activation_function": name})
        for name in ("gelu_new", "gelu", "relu", "silu")
    },
    "Llama": ("Llama", "ForCausalLM", WIDTHS),
    "Llama, grouped, tied": (
        *("Llama", "ForCausalLM"),
        {**WIDTHS, "num_key_value_heads": 2, "head_dim": 6, "tie_word_embeddings": True, "hidden_act": "gelu"},
    ),
    "Llama, linear": (
        *("Llama", "ForCausalLM"),
        {**WIDTHS, "rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 4.0}},
    ),
    "Llama, YaRN": (
        *("Llama", "ForCausalLM"),
        {**WIDTHS, "rope_parameters": {"rope_type": "yarn", "rope_theta": 100.0, **BANDS}},
    ),
    "Llama, Llama 3": ("Llama", "ForCausalLM", {**WIDTHS, "rope_parameters": LLAMA3}),
    "Mistral": ("Mistral", "ForCausalLM", {**WIDTHS, "num_key_value_heads": 2, "sliding_window": 5}),
    "Mistral, whole": ("Mistral", "ForCausalLM", {**WIDTHS, "num_key_value_heads": 4, "sliding_window": None}),
    "Pythia": (
        *("GPTNeoX", "ForCausalLM"),
        {**WIDTHS, "num_attention_heads": 2, "use_parallel_residual": True, "rope_parameters": QUARTER},
    ),
    "GPT-NeoX": ("GPTNeoX", "ForCausalLM", {**WIDTHS, "use_parallel_residual": False, "rope_parameters": WHOLE}),
}


@pytest.fixture(params=MODELS.values(), ids=MODELS)
def saved(request, tmp_path) -> Path:
    torch.manual_seed(3)
    cut, (family, task, sizes) = library(), request.param
    settings = {"vocab_size": cut.get_vocab_size(), "initializer_range": 0.3}
    ends = dict.fromkeys(("bos_token_id", "eos_token_id"), cut.token_to_id(END))
    config = getattr(transformers, f"{family}Config")(**sizes, **settings, **ends)
    getattr(transformers, f"{family}{task}")(config).save_pretrained(tmp_path / "in")
    own = {"bos_token": END, "eos_token": END, "unk_token": END}
    transformers.PreTrainedTokenizerFast(tokenizer_object=cut, **own).save_pretrained(tmp_path / "in")
    return tmp_path / "in"


def test_tokens_probabilities_and_greedy_texts_are_theirs(saved):
    model = transformers.AutoModelForCausalLM.from_pretrained(saved).double().eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(saved)
    found = read_pretrained(saved)
    ours, ids, there = found.model.double(), found.tokenizer.encode(TEXT[:30]), tokenizer(TEXT[:30])["input_ids"]
    assert [id - len(SPECIALS) for id in ids] == there
    end = tokenizer.eos_token_id
    answer = ours(torch.tensor([[BOS, *ids]])).log_softmax(-1)
    for tolerance in (NARROW, 1e-12):
        expected = model(torch.tensor([[end, *there]])).logits.log_softmax(-1)
        close(answer[..., len(SPECIALS) :], expected[..., :end], tolerance=tolerance)
        close(answer[..., EOS], expected[..., end], tolerance=tolerance)
        widen(ours, model)
    steps = generate(ours, prompts=[[BOS, *ids]], max_new_tokens=8)
    written = [int(step.tokens[0]) for step in steps]
    theirs = model.generate(torch.tensor([[end, *there]]), max_new_tokens=8, do_sample=False)[0, 1 + len(ids) :]
    assert [id - len(SPECIALS) for id in written if id != EOS] == [id for id in theirs.tolist() if id != end]


def test_what_was_imported_is_exported_as_it_was(saved, tmp_path):
    found = read_pretrained(saved)
    write_pretrained(tmp_path / "out", found.model, found.tokenizer, Text(True, [0, 1, 3, 4, 5], 9), named="it")
    before, after = (transformers.AutoModelForCausalLM.from_pretrained(each) for each in (saved, tmp_path / "out"))
    cut = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    ids, end = cut(TEXT)["input_ids"][:30], before.config.eos_token_id
    assert after.config.eos_token_id == 0
    assert [id - 1 for id in ids] == transformers.AutoTokenizer.from_pretrained(saved)(TEXT)["input_ids"][:30]
    answer = after.eval()(torch.tensor([[0, *ids]])).logits
    expected = before.eval()(torch.tensor([[end, *(id - 1 for id in ids)]])).logits
    assert torch.equal(answer, torch.cat([expected[..., [end]], expected[..., :end]], -1))


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_tokenizers_and_the_rows_of_their_tokens_are_theirs(name, tmp_path):
    cut = Tokenizer.from_str(json_of(name))
    size = cut.get_vocab_size()
    begin, end = (cut.token_to_id(each) for each in (("<s>", "</s>") if "<s>" in cut.get_vocab() else (LAST, LAST)))
    torch.manual_seed(3)
    ends = {"bos_token_id": begin, "eos_token_id": end}
    config = transformers.LlamaConfig(**WIDTHS, **ends, vocab_size=size, initializer_range=0.3)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    transformers.PreTrainedTokenizerFast(tokenizer_object=cut).save_pretrained(tmp_path)
    found, tokenizer = read_pretrained(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    ids, there = found.tokenizer.encode(TEXT)[:40], tokenizer(TEXT)["input_ids"][:40]
    assert found.tokenizer.decode(ids) == tokenizer.decode(there)
    answer = found.model(torch.tensor([[BOS, *ids]])).log_softmax(-1)
    logits = theirs(torch.tensor([[begin, *there]])).logits
    logits[..., [id for id in (begin, cut.token_to_id("<unk>")) if id not in (None, end)]] = -torch.inf  # never written
    expected, places = logits.log_softmax(-1), range(len(ids))
    close(answer[0, places, ids], expected[0, places, there], tolerance=1e-4)
    close(answer[0, :, EOS], expected[0, :, end], tolerance=1e-4)
