"""Settings that together forbid every token: they are named, and no others; and early, where it is certain."""

import math

import pytest
import torch

from glassformer.base.errors import ConfigError
from glassformer.data.config import TokenizerConfig
from glassformer.data.tokenizer import TOKENIZERS
from glassformer.decode.answer import answer
from glassformer.decode.choose import chooser, refuse_certain
from glassformer.decode.constraints import Constraints
from glassformer.decode.filters import Context, banned
from glassformer.decode.settings import GREEDY, BeamSettings, Sampling
from train.examples import model

TEXT = "abcdz"
MADE = TOKENIZERS["character"].train([TEXT], TokenizerConfig())


def told(wishes: Constraints, written: str, sampling: Sampling = GREEDY) -> str:
    """The error of the second of two rows; the first, still empty, may go on."""
    ids = [list[int](), MADE.encode(written)]
    logits, context = torch.zeros(2, MADE.vocab_size), Context([3, 8], [[1], [1]], ids)
    with pytest.raises(ConfigError) as error:
        chooser(sampling, wishes.filters(MADE))(logits, context)
    return str(error.value)


@pytest.mark.parametrize(
    ("wishes", "written", "sampling", "names"),
    [
        (Constraints(banned=["c"], begin="zc"), "z", {}, "Constraints.banned and Constraints.begin"),
        (Constraints(banned=["d"], begin="zzc"), "zz", {"no_repeat_ngram": 1}, None),
        (
            Constraints(banned=["d"], begin="zzcc"),
            "zzc",
            {"no_repeat_ngram": 1},
            "Constraints.begin and no_repeat_ngram",
        ),
        (
            Constraints(biases={"c": -math.inf, "d": 2.0}, begin="zc"),
            "z",
            {},
            "Constraints.biases and Constraints.begin",
        ),
        (
            Constraints(biases={"d": 2.0}, banned=["c"], begin="zc"),
            "z",
            {"top_k": 2},
            "Constraints.banned and Constraints.begin",
        ),
    ],
)
def test_the_settings_that_forbid_are_named_and_no_others(wishes, written, sampling, names):
    chosen = Sampling(**sampling)
    if names is None:
        filters = wishes.filters(MADE)
        context = Context([8], [[1]], [MADE.encode(written)])
        assert chooser(chosen, filters)(torch.zeros(1, MADE.vocab_size), context).tolist() == MADE.encode("c")
    else:
        assert f" tokens of row 8 (counted from 0) all are forbidden by {names}. Change" in told(
            wishes, written, chosen
        )


def test_a_grammar_is_named():
    pytest.importorskip("llguidance", reason="llguidance is not installed")
    wishes = Constraints(regex="zabc|zd", banned=["b"])
    assert "forbidden by Constraints.banned and Constraints.regex. Change or remove one of them." in told(wishes, "za")
    longer = told(Constraints(regex="z(ab)?"), "zab", Sampling(min_new_tokens=9, no_repeat_ngram=9))
    assert "forbidden by Constraints.regex and min_new_tokens. Change or remove one of them." in longer
    stuck = Constraints(regex="zabc", banned=["b"], biases={"d": 1.0}).filters(MADE)
    network = model("encoder-decoder", vocab=MADE.vocab_size, max_len=20)
    with pytest.raises(ConfigError, match=r"as Constraints\.banned and Constraints\.regex forbid them\. Raise beam"):
        answer(network, [[7]], search=BeamSettings(beam=2), filters=stuck)


def test_filters_without_names_and_a_model_that_allows_nothing():
    step, context = banned([[id] for id in range(MADE.vocab_size)]), Context([0], [[1]], [[]])
    with pytest.raises(ConfigError, match=r"forbidden by the filters\. Change or remove it"):
        chooser(GREEDY, [step])(torch.zeros(1, MADE.vocab_size), context)
    with pytest.raises(ConfigError, match=r"the model, whose logits are all -inf\. Check its weights"):
        chooser(GREEDY)(torch.full((1, MADE.vocab_size), -math.inf), context)


def test_what_is_certain_is_refused_and_nothing_else():
    """As far as each next token is the only one; not beyond the limit, and not where a model could go elsewhere."""

    def follow(wishes: Constraints, most: int = 9, prompt: str = "d") -> None:
        refuse_certain(wishes.filters(MADE), MADE.vocab_size, MADE.encode(prompt), most)

    contrary = Constraints(banned=["ab"], begin="zab")
    with pytest.raises(ConfigError, match="after 2 tokens of row 0"):
        follow(contrary)
    follow(contrary, most=2)
    follow(Constraints(banned=["dz"], begin="zab"), prompt="c")
    with pytest.raises(ConfigError, match="after 0 tokens of row 0"):
        follow(Constraints(banned=["dz"], begin="zab"))
    follow(Constraints(banned=["c"], begin="zab"))
    pytest.importorskip("llguidance", reason="llguidance is not installed")
    with pytest.raises(ConfigError, match="after 1 tokens of row 0"):
        follow(Constraints(regex="abc", banned=["b"]))
    follow(Constraints(regex="ab"))
    follow(Constraints(regex="a(bc|d)", banned=["c"]))
