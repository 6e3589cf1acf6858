"""Without some heads a classifier gives a label, and a model that is given its tokens holds some likeliest."""

import json

import pytest

from glassformer import ModelConfig, StackConfig, Transformer
from glassformer.data.dataset import Tokenizers
from glassformer.data.tokens.words import Labels
from glassformer.lens.ablate import silence
from glassformer.lens.server.app import make_app
from glassformer.lens.server.subject import Subject
from glassformer.lens.trace.reading import Layout
from glassformer.nn.outputs import Classify
from lens.explored import LETTERS, small
from lens.server.requests_of import TOKEN, ask

TEXT = "abcdefghij"
OUT = [("encoder", 0, head) for head in range(4)]


def label(trace):
    return [trace.header["labels"][0][0]]


def likeliest(trace):
    return [trace.header["vocab"][str(step["top"][0][0])] for step in trace.header["steps"]]


@pytest.mark.parametrize("said", [label, likeliest])
def test_what_is_answered_without_heads(said):
    stack = StackConfig(d_model=16, n_heads=4, n_layers=2, d_ff=32, dropout=0.0)
    judge = Transformer(ModelConfig(LETTERS.vocab_size, encoder=stack, head=Classify(3))).eval()
    both, given = Tokenizers(LETTERS, LETTERS), {"examples": [(TEXT, None)], "silence": silence}
    if said is label:
        subject = Subject("judge", judge, Tokenizers(LETTERS, Labels(["bad", "fine", "good"])), **given)
    else:
        subject = Subject("masked", small("encoder"), both, Layout(masked=True), **given)
    heads = [{"block": block, "layer": layer, "head": head} for block, layer, head in OUT]
    app = make_app(subject, TOKEN)
    told = ask(app, "POST", "/api/ablate", json.dumps({"trace": "0", "heads": heads}).encode()).json
    assert told["before"] == said(subject.trace(TEXT))
    with silence(subject.model, OUT):
        assert told["after"] == said(subject.trace(TEXT))
    if said is likeliest:
        assert told["before"] != [*TEXT], "what was read is no answer"
