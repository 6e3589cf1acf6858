"""A model that `transformers` saved, tokenizer and all, computes and writes here what it does there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from glassformer.data.tokens.vocabulary import BOS, EOS, SPECIALS
from glassformer.decode.generate import generate
from glassformer.store.pretrained import read_pretrained
from specimens import close
from store.pretrained_examples import END, SIZES, TEXT, library

transformers = pytest.importorskip("transformers", reason="transformers is not installed")


@pytest.fixture(params=["gelu_new", "gelu", "relu", "silu"])
def saved(request, tmp_path) -> Path:
    torch.manual_seed(3)
    cut = library()
    settings = {"vocab_size": cut.get_vocab_size(), "activation_function": request.param, "initializer_range": 0.3}
    ends = dict.fromkeys(("bos_token_id", "eos_token_id"), cut.token_to_id(END))
    transformers.GPT2LMHeadModel(transformers.GPT2Config(**SIZES, **settings, **ends)).save_pretrained(tmp_path)
    own = {"bos_token": END, "eos_token": END, "unk_token": END}
    transformers.PreTrainedTokenizerFast(tokenizer_object=cut, **own).save_pretrained(tmp_path)
    return tmp_path


def test_tokens_probabilities_and_greedy_texts_are_theirs(saved):
    model = transformers.AutoModelForCausalLM.from_pretrained(saved).double().eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(saved)
    found = read_pretrained(saved)
    ours, ids, there = found.model.double(), found.tokenizer.encode(TEXT[:30]), tokenizer(TEXT[:30])["input_ids"]
    assert [id - len(SPECIALS) for id in ids] == there
    end = tokenizer.eos_token_id
    expected = model(torch.tensor([[end, *there]])).logits.log_softmax(-1)
    answer = ours(torch.tensor([[BOS, *ids]])).log_softmax(-1)
    close(answer[..., len(SPECIALS) :], expected[..., :end])
    close(answer[..., EOS], expected[..., end])
    steps = generate(ours, prompts=[[BOS, *ids]], max_new_tokens=8)
    written = [int(step.tokens[0]) for step in steps]
    theirs = model.generate(torch.tensor([[end, *there]]), max_new_tokens=8, do_sample=False)[0, 1 + len(ids) :]
    assert [id - len(SPECIALS) for id in written if id != EOS] == [id for id in theirs.tolist() if id != end]
