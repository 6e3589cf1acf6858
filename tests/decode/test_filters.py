"""Each filter is its definition, row by row; what it may not do it refuses."""

import math
import re

import pytest
import torch

from decode import choices
from glassformer.base.errors import ConfigError
from glassformer.decode import filters
from glassformer.decode import filters as penalties
from glassformer.decode.filters import Context
from glassformer.decode.settings import Sampling

INF = math.inf
NOBODY = Context([0], [[1]], [[]])
CASES = [
    ("temperature", 0.7), ("temperature", 3.0), ("top_k", 1), ("top_k", 4), ("top_k", 11), ("top_p", 0.1),
    ("top_p", 0.9), ("top_p", 0.999), ("min_p", 0.05), ("min_p", 1.0), ("typical", 0.2), ("typical", 0.9),
    ("repetition_penalty", 1.3), ("repetition_penalty", 0.5), ("frequency_penalty", 0.7), ("frequency_penalty", -0.4),
    ("presence_penalty", 0.7), ("no_repeat_ngram", 1), ("no_repeat_ngram", 2), ("no_repeat_ngram", 3),
    ("min_new_tokens", 3), ("banned", [[5], [1, 2], [0, 3, 1]]), ("logit_bias", {4: 1.5, 0: -INF, 7: -2.0}),
]  # fmt: skip


def made(name: str, value: object):
    return getattr(filters if hasattr(filters, name) else penalties, name)(value)


@pytest.mark.parametrize(
    ("name", "value"), CASES, ids=lambda each: "given" if isinstance(each, list | dict) else str(each)
)
def test_equals_its_definition_on_ten_thousand_rows(name, value):
    logits, context = choices.rows()
    before = logits.clone()
    found = made(name, value)(logits, context)
    expected = torch.tensor(
        [
            getattr(choices, name)(z, prompt, written, value)
            for z, prompt, written in zip(logits.tolist(), context.prompts, context.written, strict=True)
        ],
        dtype=torch.float64,
    )
    assert torch.equal(logits, before), "a filter must leave what it is given"
    if name == "temperature":  # logits mean the same with a number added to all of a row
        found, expected = found.log_softmax(-1), expected.log_softmax(-1)
    finite = expected.isfinite()
    assert torch.equal(found.isneginf(), ~finite)
    torch.testing.assert_close(found[finite], expected[finite], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "value"), [
    ("top_k", 12),
    ("top_k", 10**9),
    ("top_p", 1.0),
    ("typical", 1.0),
    ("min_p", 0.0),
    ("temperature", 1.0),
    ("repetition_penalty", 1.0),
    ("frequency_penalty", 0.0),
    ("presence_penalty", 0.0),
    ("min_new_tokens", 0),
    ("no_repeat_ngram", 99),
    ("banned", []),
    ("logit_bias", {}),
], ids=lambda each: "none" if isinstance(each, list | dict) else str(each))  # fmt: skip
def test_the_neutral_value_changes_nothing(name, value):
    logits, context = choices.rows(500)
    assert torch.equal(made(name, value)(logits, context).softmax(-1), logits.softmax(-1))


def test_top_p_of_one_keeps_what_rounding_would_lose():
    logits = torch.tensor([[40.0, 0.0, -40.0, -80.0]], dtype=torch.float64)
    assert filters.top_p(1.0)(logits, NOBODY).isfinite().all()
    assert filters.typical(1.0)(logits, NOBODY).isfinite().all()


@pytest.mark.parametrize("k", [1, 2, 3])
def test_of_equals_the_lowest_ids_stay(k):
    logits = torch.zeros(1, 5)
    for each in (filters.top_k(k), filters.top_p((k - 0.5) / 5), filters.typical((k - 0.5) / 5)):
        assert each(logits, NOBODY).isfinite().tolist() == [[i < k for i in range(5)]]


@pytest.mark.parametrize("name", ["top_k", "top_p", "min_p", "typical", "temperature"])
def test_the_last_token_that_may_come_stays(name):
    logits = torch.full((1, 6), -INF)
    logits[0, 4] = -1e30
    assert made(name, 1 if name == "top_k" else 0.5)(logits, NOBODY).isfinite().tolist() == [[i == 4 for i in range(6)]]


def test_a_low_temperature_is_the_likeliest_token():
    logits, context = choices.rows(500)
    cold = filters.temperature(1e-300)(logits, context).softmax(-1)
    best = (logits == logits.max(-1, keepdim=True).values).double()
    torch.testing.assert_close(cold, best / best.sum(-1, keepdim=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tiny_numbers_are_no_zero(dtype):
    """Smaller than any number of the logits' dtype: the likeliest token stays, and nothing else."""
    logits = torch.tensor([[0.0, 2.0, 1.0]], dtype=dtype)
    assert filters.temperature(1e-320)(logits, NOBODY).softmax(-1).tolist() == [[0.0, 1.0, 0.0]]
    assert filters.top_p(1e-320)(logits, NOBODY).isfinite().tolist() == [[False, True, False]]


def test_half_precision_is_not_lost_in_counts():
    logits = torch.zeros(1, 3, dtype=torch.bfloat16)
    assert penalties.counts(Context([0], [[]], [[1] * 300]).written, logits).tolist() == [[0, 300, 0]]


@pytest.mark.parametrize(("name", "value", "row"), [
    ("repetition_penalty", 1e-40, 7),
    ("repetition_penalty", 1e-320, 7),
    ("repetition_penalty", 1e300, 4),
    ("frequency_penalty", -1e38, 7),
    ("frequency_penalty", 1e300, 4),
    ("presence_penalty", -1e300, 4),
    ("logit_bias", {1: 1e39}, 4),
])  # fmt: skip
def test_what_cannot_be_held_is_refused_by_row_and_setting(name, value, row):
    logits, context = torch.tensor([[0.0, 0.0], [3.0, -INF]]), Context([4, 7], [[], []], [[0], [0, 0, 0, 0, 1]])
    given = value[1] if isinstance(value, dict) else value
    with pytest.raises(ConfigError, match=re.escape(f"with {name}={given} one is NaN or +inf in row {row} ")):
        made(name, value)(logits, context)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: filters.temperature(0.0), "temperature must be above 0 and finite"),
    (lambda: filters.temperature(math.nan), "got nan"),
    (lambda: filters.top_k(0), "top_k must be at least 1; got 0"),
    (lambda: filters.top_p(0.0), r"top_p must be above 0 and at most 1.*got 0\.0"),
    (lambda: filters.top_p(1.1), "top_p must be above 0"),
    (lambda: filters.typical(-1.0), "typical_p must be above 0"),
    (lambda: filters.min_p(2.0), r"min_p must be from 0 to 1; got 2\.0"),
    (lambda: filters.min_p(math.nan), "min_p must be from 0 to 1; got nan"),
    (lambda: penalties.repetition_penalty(0.0), "repetition_penalty must be above 0"),
    (lambda: penalties.frequency_penalty(INF), "frequency_penalty must be a finite number; got inf"),
    (lambda: penalties.presence_penalty(math.nan), "presence_penalty must be a finite number"),
    (lambda: penalties.no_repeat_ngram(0), "no_repeat_ngram must be at least 1"),
    (lambda: penalties.min_new_tokens(-1), "min_new_tokens must be at least 0"),
    (lambda: penalties.banned([[1], []]), "at least one token; got an empty one"),
    (lambda: penalties.logit_bias({1: INF}), "got inf for id 1"),
    (lambda: penalties.logit_bias({9: 1.0})(torch.zeros(1, 3), NOBODY), "from 0 to 2; got 9"),
    (lambda: penalties.banned([[1, -1]])(torch.zeros(1, 3), NOBODY), "from 0 to 2; got -1"),
], ids=[str(i) for i in range(17)])  # fmt: skip
def test_mistakes(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(("settings", "message"), [
    ({"temperature": math.nan}, "temperature must be at least 0 and finite; got nan"),
    ({"top_p": 0.0}, r"top_p must be above 0 and at most 1; got 0\.0"),
    ({"seed": 2**64}, "seed must be at most"),
    ({"temperature": 0.0, "top_k": 5}, "top_k selects the tokens to sample from, but temperature=0 does not sample"),
], ids=[str(i) for i in range(4)])  # fmt: skip
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(ConfigError, match=message):
        Sampling(**settings)
