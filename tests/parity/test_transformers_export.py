"""A model that we exported reads, computes and writes in `transformers` what it does here."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer import Transformer
from glassformer.data.tokenizer import TOKENIZERS
from glassformer.data.tokens.vocabulary import BOS, EOS
from glassformer.decode.choose import greedy
from glassformer.decode.filters import without
from glassformer.decode.generate import generate
from glassformer.proof.laws.hugging_face import take_wide_angles, take_wide_norms
from glassformer.store.export import write_pretrained
from glassformer.store.pretrained import read_pretrained
from specimens import close
from store.export_examples import EXAMPLES, GPT2, READING, decoder, tokenizer
from store.pretrained_examples import TEXT

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
NARROW = 1e-3
"""Their norms and angles are in float32, whatever the dtype of the model."""
families = pytest.mark.parametrize("chosen", [each for _, each in EXAMPLES.values()], ids=EXAMPLES)


def loaded(folder: Path) -> tuple[Any, Any]:
    """Their model and tokenizer, as the folder says."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    return model.eval(), transformers.AutoTokenizer.from_pretrained(folder)


def widen(ours: Transformer, theirs: Any) -> None:
    """Let theirs compute in float64 what it computes in float32 whatever the dtype."""
    theirs.set_attn_implementation("sdpa")
    if ours.config.stack.positions == "rotary":
        take_wide_norms(theirs)
        take_wide_angles(ours, theirs)


@families
def test_logits_are_the_same(tmp_path, chosen):
    ours, cut = decoder(**chosen), tokenizer()
    write_pretrained(tmp_path / "out", ours, cut, READING, named="it")
    theirs, reads = loaded(tmp_path / "out")
    assert theirs.dtype == torch.float64
    ids = [BOS, *cut.encode(TEXT)][:20]
    assert reads(TEXT)["input_ids"][:20] == ids
    expected = ours(torch.tensor([ids]))
    close(theirs(torch.tensor([ids])).logits, expected, tolerance=NARROW)
    widen(ours, theirs)
    close(theirs(torch.tensor([ids])).logits, expected)


@families
def test_greedy_texts_are_the_same(tmp_path, chosen):
    ours, cut = decoder(torch.float32, **chosen), tokenizer()
    with torch.no_grad():
        ours.head.weight[READING.never] *= 9  # so that they would be written, if they might be
    write_pretrained(tmp_path / "out", ours, cut, READING, named="it")
    theirs, reads = loaded(tmp_path / "out")
    never = without(READING.never)
    for prompt in (TEXT[:9], TEXT[3:5], ""):
        given = [BOS, *cut.encode(prompt)]
        steps = generate(
            ours, prompts=[given], max_new_tokens=10, choose=lambda logits, it: greedy(never(logits, it), it)
        )
        written = [int(step.tokens[0]) for step in steps]
        answer = theirs.generate(**reads(prompt, return_tensors="pt"), max_new_tokens=10, do_sample=False)[0].tolist()
        assert answer == [*given, *written]
        text = reads.decode(answer, skip_special_tokens=True)
        assert text == cut.decode(answer)


@families
def test_what_they_save_again_is_the_same_model_here(tmp_path, chosen):
    ours, cut = decoder(torch.float32, **chosen), tokenizer()
    write_pretrained(tmp_path / "out", ours, cut, READING, named="it")
    theirs, reads = loaded(tmp_path / "out")
    reads([TEXT, TEXT[:9]], padding=True, truncation=True, max_length=5)
    for each in (theirs, reads):
        each.save_pretrained(tmp_path / "again")
    found, ours_again = read_pretrained(tmp_path / "again"), read_pretrained(tmp_path / "out")
    assert found.model.config == ours_again.model.config
    assert found.tokenizer.to_json() == cut.to_json()
    weights = found.model.state_dict()
    assert all(torch.equal(each, weights[name]) for name, each in ours.state_dict().items())


def strings(n: int) -> list[str]:
    """Random texts of every kind of character, with our special tokens among them."""
    draw = random.Random(5)
    pools = ["abc <pad><eos>#", "\n\t \x1c\x1f\x85\xa0 　\u200b", "déß日本😀́", TEXT]

    def one() -> str:
        return draw.choice(draw.choice(pools)) if draw.random() < 0.9 else chr(draw.randrange(0xD800))

    return ["", "a<pad><bos> b<eos>", "<unk>", *("".join(one() for _ in range(draw.randrange(60))) for _ in range(n))]


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_texts_have_the_same_tokens(tmp_path, kind):
    cut = tokenizer(kind)
    write_pretrained(tmp_path / "out", decoder(torch.float32, cut, **GPT2), cut, READING, named="it")
    _, reads = loaded(tmp_path / "out")
    for text in strings(300):
        ids = cut.encode(text)
        assert reads(text)["input_ids"] == [BOS, *ids]
        assert reads.decode(ids) == cut.decode(ids)
        assert reads.decode([BOS, *ids, EOS], skip_special_tokens=True) == cut.decode(ids) or 3 in ids
