"""What cannot write together, and what an ensemble is not asked for, is refused by rule and remedy."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from glassformer import Transformer, save, trace
from glassformer.base.errors import ConfigError
from glassformer.data.dataset import Tokenizers
from glassformer.data.tokens.vocabulary import BOS
from glassformer.data.tokens.words import WordTokenizer
from glassformer.decode.speculative import speculative
from glassformer.nn.cache import Cache
from glassformer.nn.ensemble import Ensemble
from train.examples import model


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "at least one member; got none"),
        ([None], r"must be Transformers; member 0 \(counted from 0\) is None"),
        (["decoder", "classify"], r"head=Lm\(\); member 1 \(counted from 0\) has head 'classify'"),
        (
            ["encoder-decoder", "decoder"],
            r"the same stacks; member 1 \(counted from 0\) has decoder, the first encoder and decoder",
        ),
        (["encoder", "causal encoder"], "the same causal; .* has True, the first False"),
        (["decoder", {"vocab": 14}], "the same vocab_size; .* has 14, the first 13"),
        (["decoder", {"n_segments": 2}], r"the same n_segments; .* has \[None, 2\], the first \[None, None\]"),
    ],
    ids=["none", "no model", "classifier", "stacks", "both ways", "vocabulary", "segments"],
)
def test_what_cannot_write_together_is_refused(given, said):
    made = {"causal encoder": partial(model, "encoder", causal=True)}
    models = [
        made.get(each, partial(model, each))() if isinstance(each, str) else each and model("decoder", **each)
        for each in given
    ]
    with pytest.raises(ConfigError, match=said):
        Ensemble(models)


def test_other_sources_are_refused():
    """Ids of a vocabulary of its own, or vectors."""
    own = [Transformer(replace(model().config, source_vocab_size=size, share_embeddings=False)) for size in (13, 14)]
    with pytest.raises(ConfigError, match=r"the same source vocab_size; .* has 14, the first 13"):
        Ensemble(own)
    reads = [replace(each.config, encoder=replace(each.config.encoder, n_features=3)) for each in own[:1]]
    with pytest.raises(ConfigError, match=r"the same n_features; .* has \[3, None\], the first \[None, None\]"):
        Ensemble([own[0], *map(Transformer, reads)])


def test_other_numbers_and_slots_are_refused():
    with pytest.raises(ConfigError, match=r"the same dtype; .* has torch\.float32, the first torch\.float64"):
        Ensemble([model("decoder"), model("decoder").float()])
    joint = Ensemble([model("decoder")] * 2)
    with pytest.raises(ConfigError, match=r"needs a single model; got an ensemble of 2"):
        joint.new_slots(4)
    with pytest.raises(ConfigError, match=r"member 1 \(counted from 0\) is an ensemble itself"):
        Ensemble([model("decoder"), joint])
    with pytest.raises(ConfigError, match=r"a cache for each member; .*Use new_cache\(\)"):
        joint.hidden(torch.tensor([[1]]), cache=Cache(1))
    with pytest.raises(ConfigError, match="belong to an encoder-decoder; this model has one stack"):
        joint.hidden(torch.tensor([[1]]), memory=torch.zeros(1, 1, 8))


def test_one_model_is_asked_for():
    """A checkpoint and a trace; and what can take no guesses back, whichever member it is."""
    joint, words = Ensemble([model("decoder")] * 2), WordTokenizer([f"w{place}" for place in range(7)])
    with pytest.raises(
        ConfigError, match=r"A checkpoint needs a single model; got an ensemble of 2\. Save each member"
    ):
        save("never", joint, Tokenizers(words, words))
    with pytest.raises(ConfigError, match=r"A trace needs a single model; got an ensemble of 2\. Trace each member"):
        trace(joint, words, "w1")
    late = Ensemble([model("decoder"), model("decoder", attention_rule="linear")])
    with pytest.raises(ConfigError, match="from which a rejected guess cannot be removed"):
        list(speculative(late, lookup=1, prompts=[[BOS]], max_new_tokens=3))
    assert {name.split(".")[0] for name in joint.state_dict()} == {"_members"}
