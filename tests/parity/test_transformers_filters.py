"""Our filters beside the logits processors of `transformers`, on rows without ties, where the two agree on a rule."""

import pytest
import torch

from glassformer.decode import filters
from glassformer.decode import filters as penalties
from glassformer.decode.choose import chooser
from glassformer.decode.filters import Context
from glassformer.decode.settings import Sampling

theirs = pytest.importorskip("transformers.generation.logits_process", reason="transformers is not installed")

COUNT, VOCAB, LENGTH, BEGIN = 2000, 30, 7, 3


def rows() -> tuple[torch.Tensor, torch.Tensor, Context]:
    """Logits, the ids that each row read, and the same as a context: three of prompt and four written."""
    logits = 3 * torch.randn(COUNT, VOCAB, dtype=torch.float64)
    ids = torch.randint(6, 12, (COUNT, LENGTH))
    return logits, ids, Context(range(COUNT), ids[:, :BEGIN].tolist(), ids[:, BEGIN:].tolist())


CASES = {
    "temperature": (lambda: filters.temperature(0.7), lambda: theirs.TemperatureLogitsWarper(0.7)),
    "top k": (lambda: filters.top_k(5), lambda: theirs.TopKLogitsWarper(5)),
    "top p": (lambda: filters.top_p(0.8), lambda: theirs.TopPLogitsWarper(0.8)),
    "min p": (lambda: filters.min_p(0.1), lambda: theirs.MinPLogitsWarper(0.1)),
    "typical": (lambda: filters.typical(0.6), lambda: theirs.TypicalLogitsWarper(0.6)),
    "repetition": (lambda: penalties.repetition_penalty(1.3), lambda: theirs.RepetitionPenaltyLogitsProcessor(1.3)),
    "n-gram of 1": (lambda: penalties.no_repeat_ngram(1), lambda: theirs.NoRepeatNGramLogitsProcessor(1)),
    "n-gram of 2": (lambda: penalties.no_repeat_ngram(2), lambda: theirs.NoRepeatNGramLogitsProcessor(2)),
    "n-gram of 3": (lambda: penalties.no_repeat_ngram(3), lambda: theirs.NoRepeatNGramLogitsProcessor(3)),
    "banned": (
        lambda: penalties.banned([[20], [6, 7], [8, 9, 10]]),
        lambda: theirs.NoBadWordsLogitsProcessor([[20], [6, 7], [8, 9, 10]], eos_token_id=2),
    ),
    "bias": (
        lambda: penalties.logit_bias({20: 1.5, 7: -2.0}),
        lambda: theirs.SequenceBiasLogitsProcessor([[[20], 1.5], [[7], -2.0]]),
    ),
    "new tokens left": (
        lambda: penalties.min_new_tokens(5),
        lambda: theirs.MinNewTokensLengthLogitsProcessor(BEGIN, 5, 2),
    ),
    "new tokens done": (
        lambda: penalties.min_new_tokens(4),
        lambda: theirs.MinNewTokensLengthLogitsProcessor(BEGIN, 4, 2),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_filter_is_theirs(name):
    ours, other = (make() for make in CASES[name])
    logits, ids, context = rows()
    found, expected = ours(logits, context), other(ids, logits.clone())
    assert torch.equal(found.isneginf(), expected.isneginf())
    torch.testing.assert_close(found.softmax(-1), expected.softmax(-1), rtol=1e-12, atol=1e-12)


def test_the_filters_stand_in_their_order(monkeypatch):
    """All together as `generate` of transformers lines them up, and tokens drawn by the same uniforms."""
    logits, ids, context = rows()
    expected = logits.clone()
    for each in (
        theirs.RepetitionPenaltyLogitsProcessor(1.3),
        theirs.NoRepeatNGramLogitsProcessor(2),
        theirs.TemperatureLogitsWarper(0.7),
        theirs.TopKLogitsWarper(12),
        theirs.TopPLogitsWarper(0.9),
        theirs.TypicalLogitsWarper(0.95),
    ):
        expected = each(ids, expected)
    numbers = torch.rand(COUNT, dtype=torch.float64)
    p = expected.softmax(-1)
    first = ((p.cumsum(-1) / p.sum(-1, keepdim=True)) > numbers[:, None]).int().argmax(-1)
    sampling = Sampling(temperature=0.7, top_k=12, top_p=0.9, typical_p=0.95, repetition_penalty=1.3, no_repeat_ngram=2)
    monkeypatch.setattr("glassformer.decode.choose.own_uniforms", lambda *_: numbers.tolist())
    assert torch.equal(chooser(sampling)(logits, context), first)
