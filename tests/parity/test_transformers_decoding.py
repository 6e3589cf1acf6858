"""What we write beside what `transformers` writes with the same weights: greedy, by a beam, by given numbers."""

import pytest
import torch

from decode.naive import written
from glassformer.data.batch import pad
from glassformer.data.tokens.vocabulary import BOS, EOS, PAD
from glassformer.decode import beam as beam_module
from glassformer.decode.beam import beam_search
from glassformer.decode.choose import chooser, pick
from glassformer.decode.generate import generate
from glassformer.decode.settings import BeamSettings, Sampling
from glassformer.proof.laws.hugging_face import bart_pair, carry_over, gpt2, marian_pair, tables
from glassformer.proof.laws.law import VOCAB, Setting
from train.examples import sequences

pytest.importorskip("transformers", reason="transformers is not installed")
NEW = 11
SOONER = {"gpt2": 1.0, "marian": 2.0, "bart": 0.5}
"""What is added to the score of <eos>, so that some answers end."""
models = pytest.mark.parametrize("family", SOONER)
WIDE = Setting(torch.device("cpu"), torch.float64)


def pair(family: str):
    """Ours and theirs in float64, with weights so large that texts differ and end at different places."""
    if family == "gpt2":
        ours, theirs, _ = gpt2(WIDE)
    elif family == "bart":
        ours, theirs, _ = bart_pair(WIDE)
    else:
        ours, theirs, _ = marian_pair(WIDE)
        for exact, table in tables(WIDE, ours, theirs):
            with torch.no_grad():
                table.copy_(exact)

    with torch.no_grad():
        for name, each in ours.named_parameters():
            if each.ndim == 2:
                each.normal_(std=(1.0 if "embedding" in name else 2.0) * each.shape[1] ** -0.5)
            else:
                each.normal_(mean=float("norm" in name and "weight" in name), std=0.1)
    carry_over(ours, theirs, family)

    def sooner(module, inputs, output):
        logits = output if isinstance(output, torch.Tensor) else output.logits
        logits[..., EOS] += SOONER[family]

    theirs.register_forward_hook(sooner)
    ours.head.register_forward_hook(sooner)
    return ours.eval(), theirs


def inputs_of(family: str):
    """The same four rows, as ours take them and as theirs do."""
    if family == "gpt2":
        prompts = [[BOS, *each] for each in sequences([3, 3, 3, 3], 3, VOCAB)]
        return {"prompts": prompts}, {"input_ids": torch.tensor(prompts)}
    sources = sequences([5, 2, 7, 3], 3, VOCAB)
    ids, keep = pad([[*each, EOS] for each in sources])
    return {"sources": sources}, {"input_ids": ids, "attention_mask": keep.long(), "decoder_start_token_id": BOS}


def ragged(family: str):
    """Prompts of unequal length, which theirs take with padding on the left and a mask."""
    prompts = [[BOS, *each] for each in sequences([6, 0, 3, 1, 5, 2, 4, 7], 3, VOCAB)]
    ids, keep = pad([[*reversed(each)] for each in prompts])
    return {"prompts": prompts}, {"input_ids": ids.flip(1), "attention_mask": keep.flip(1).long()}


rows = pytest.mark.parametrize(
    ("family", "ask"), [*((each, inputs_of) for each in SOONER), ("gpt2", ragged)], ids=[*SOONER, "unequal prompts"]
)


def theirs_of(theirs, inputs: dict[str, object], **settings: object):
    return theirs.generate(
        **inputs,
        max_new_tokens=NEW,
        eos_token_id=EOS,
        pad_token_id=PAD,
        forced_eos_token_id=None,
        bad_words_ids=None,
        return_dict_in_generate=True,
        output_scores=True,
        **settings,
    )


def texts(family: str, inputs: dict[str, torch.Tensor], found: torch.Tensor) -> list[list[int]]:
    """The new ids of each row up to <eos>, without the padding behind it."""
    begin = inputs["input_ids"].shape[1] if family == "gpt2" else 1
    rows = [row[begin:] for row in found.tolist()]
    return [row[: row.index(EOS) + 1] if EOS in row else row for row in rows]


@rows
def test_the_greedy_text_is_theirs(family, ask):
    (ours, theirs), (own, inputs) = pair(family), ask(family)
    expected = texts(family, inputs, theirs_of(theirs, inputs, do_sample=False, num_beams=1).sequences)
    assert written(generate(ours, **own, max_new_tokens=NEW), len(expected)) == expected
    assert len({tuple(each) for each in expected}) > 2


@rows
@pytest.mark.parametrize("alpha", [0.0, 1.0, 2.0])
def test_the_answers_of_a_beam_are_theirs(family, ask, alpha, monkeypatch):
    """Theirs divide by a power of the number of new tokens; `never` names the bound that loses nothing."""
    (ours, theirs), (own, inputs) = pair(family), ask(family)
    beam = {"num_beams": 4, "num_return_sequences": 3, "length_penalty": alpha, "early_stopping": "never"}
    result = theirs_of(theirs, inputs, do_sample=False, **beam)
    monkeypatch.setattr(beam_module, "length_penalty", lambda alpha: lambda length: length**alpha)
    found = beam_search(ours, BeamSettings(beam=4, length_penalty=alpha), **own, max_new_tokens=NEW, n_best=3)
    expected = texts(family, inputs, result.sequences)
    assert [[*each.ids, *([EOS] if each.complete else [])] for best in found for each in best] == expected
    scores = torch.tensor([each.score for best in found for each in best])
    torch.testing.assert_close(scores, result.sequences_scores.to(scores.dtype), rtol=1e-5, atol=1e-5)
    assert alpha or any(each.complete for best in found for each in best)


@models
def test_with_the_same_numbers_the_drawn_text_is_theirs(family, monkeypatch):
    """Their draw is replaced by ours; all before it, filters and their order, is theirs."""
    (ours, theirs), (own, inputs) = pair(family), inputs_of(family)
    uniforms, step = torch.rand(NEW, 4, dtype=torch.float64).tolist(), iter(range(NEW))
    monkeypatch.setattr(torch, "multinomial", lambda shares, num_samples: pick(shares, uniforms[next(step)])[:, None])
    shape = {"temperature": 1.3, "top_k": 9, "top_p": 0.9, "repetition_penalty": 1.2}
    drawn = theirs_of(theirs, inputs, do_sample=True, num_beams=1, **shape).sequences

    def same(_, context):
        return [uniforms[len(ids)][row] for row, ids in zip(context.numbers, context.written, strict=True)]

    monkeypatch.setattr("glassformer.decode.choose.own_uniforms", same)
    found = written(generate(ours, **own, max_new_tokens=NEW, choose=chooser(Sampling(**shape))), 4)
    assert found == texts(family, inputs, drawn)
    assert found != written(generate(ours, **own, max_new_tokens=NEW), 4)
