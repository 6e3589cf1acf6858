"""Whoever decodes with a model in training finds it, and everything of torch that is global, as it was."""

import pytest
import torch

from glassformer.data.dataset import Tokenizers
from glassformer.data.tokens.vocabulary import Labels, WordTokenizer
from glassformer.decode.answer import (
    Member,
    answer,
    answers,
    ensemble_probabilities,
    fill_blanks,
    label_probabilities,
    read_back,
)
from glassformer.decode.beam import beam_search
from glassformer.decode.choose import chooser
from glassformer.decode.contrastive import contrastive
from glassformer.decode.engine import Engine, warm_up
from glassformer.decode.generate import generate
from glassformer.decode.requests import Request
from glassformer.decode.settings import BeamSettings, Sampling
from glassformer.decode.speculative import speculative
from glassformer.decode.stream import search_texts, write
from glassformer.nn.ensemble import Ensemble
from train.examples import VOCAB, model

TEXT = [[7, 8, 9]]
WORDS = WordTokenizer([f"w{place}" for place in range(VOCAB - 6)])
DRAWN = chooser(Sampling(seed=3))


def searched(network):
    """What `search_texts` does, in letters of one byte."""
    search = BeamSettings(beam=2)
    given = {"sources": TEXT, "prompts": None, "max_new_tokens": [2], "stops": (), "filters": (), "never": ()}
    more = {"forced": None, "numbers": [0], "prefix": False, "poll": int, "behind": [False], "complete": None}
    return [*search_texts(network, WORDS, search=search, n=1, **given, **more)]


def one_of_two(network):
    """A classifier that answers with itself."""
    labels = Tokenizers(WORDS, Labels(("bad", "good", "so")))
    return ensemble_probabilities([Member("a", network, labels), Member("b", network, labels)], [TEXT * 2])


def batched(network):
    """One text of an engine."""
    engine = Engine(network)
    warm_up(engine)
    engine.submit(Request(prompt=[7, 8], max_new_tokens=2))
    return [engine.step(), engine.step()]


CALLS = {
    "answer": ("encoder-decoder", lambda net: answer(net, TEXT, max_new_tokens=2)),
    "answers, beam": ("encoder-decoder", lambda net: answers(net, TEXT, search=BeamSettings(beam=2), n_best=2)),
    "answer, drawn": ("encoder-decoder", lambda net: answer(net, TEXT, sampling=Sampling(), max_new_tokens=2)),
    "answer, blanks": ("encoder", lambda net: answer(net, TEXT)),
    "beam_search": ("encoder-decoder", lambda net: beam_search(net, sources=TEXT, max_new_tokens=2, beam=2)),
    "coverage": (
        "encoder-decoder",
        lambda net: beam_search(net, sources=TEXT, max_new_tokens=2, beam=2, coverage=0.2),
    ),
    "contrastive": ("decoder", lambda net: [*contrastive(net, alpha=0.5, prompts=TEXT, max_new_tokens=2)]),
    "fill_blanks": ("encoder", lambda net: fill_blanks(net, TEXT, [2])),
    "generate": ("decoder", lambda net: [*generate(net, prompts=TEXT, max_new_tokens=2)]),
    "generate, drawn": ("decoder", lambda net: [*generate(net, prompts=TEXT, max_new_tokens=2, choose=DRAWN)]),
    "left early": ("decoder", lambda net: next(generate(net, prompts=TEXT, max_new_tokens=9))),
    "lookup": ("decoder", lambda net: [*speculative(net, lookup=2, prompts=TEXT, max_new_tokens=2)]),
    "draft": ("decoder", lambda net: [*speculative(net, draft=net, prompts=TEXT, max_new_tokens=2)]),
    "write": ("encoder-decoder", lambda net: [*write(net, WORDS, sources=TEXT, max_new_tokens=2)]),
    "search_texts": ("encoder-decoder", searched),
    "read_back": ("encoder-decoder", lambda net: read_back(net, TEXT, answer(net, TEXT, max_new_tokens=2))),
    "label_probabilities": ("classify", lambda net: label_probabilities(net, TEXT)),
    "ensemble_probabilities": ("classify", one_of_two),
    "Engine": ("decoder", batched),
    "Joint": ("decoder", lambda net: [*generate(Ensemble([net, net]), prompts=TEXT, max_new_tokens=2)]),
}


def world(network):
    """What a caller would find changed."""
    modes = [each.training for each in network.modules()]
    return modes, torch.get_rng_state().tolist(), torch.get_num_threads(), torch.is_grad_enabled(), network.config


@pytest.mark.parametrize("name", CALLS)
def test_nothing_of_the_callers_world_changes(name):
    layout, call = CALLS[name]
    network = model(layout, dropout=0.5).train()
    network.reader.blocks[0].eval()  # as a part that its owner froze
    before = world(network)
    call(network)
    assert world(network) == before


@pytest.mark.parametrize("name", [each for each in CALLS if each != "left early"])
def test_nor_does_it_after_an_error(name, monkeypatch):
    layout, call = CALLS[name]
    network = model(layout, dropout=0.5).train()
    before = world(network)
    network.reader.norm.register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        call(network)
    assert world(network) == before


@pytest.mark.parametrize(
    "begin",
    [
        lambda net: generate(net, prompts=TEXT, max_new_tokens=5),
        lambda net: contrastive(net, alpha=0.5, prompts=TEXT, max_new_tokens=5),
        lambda net: speculative(net, lookup=1, prompts=TEXT, max_new_tokens=5),
    ],
)
def test_between_two_tokens_the_model_is_in_its_own_mode_and_texts_have_no_dropout(begin):
    network = model("decoder", dropout=0.5)
    expected = [*begin(network)]
    network.train()
    found = []
    for step in begin(network):
        assert network.training
        assert torch.is_grad_enabled()
        found.append(step)
    assert found == expected
