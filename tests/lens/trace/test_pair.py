"""Two traces side by side: the answer of the one, behind the texts of both."""

import pytest
import torch

from glassformer import trace
from glassformer.base.errors import DataError
from glassformer.lens.trace.make import asked
from glassformer.nn.config import ModelConfig, StackConfig
from glassformer.nn.outputs import Classify
from glassformer.nn.transformer import Transformer
from lens.explored import LETTERS, small

CPU = torch.device("cpu")


def two(shape):
    """Traces of one model, of two texts with two answers."""
    model = small(shape)
    return [trace(model, LETTERS, text, answer).header for text, answer in (("abc", "fg"), ("abd", "hi"))]


def ids(text):
    return LETTERS.encode(text)


def test_an_encoder_decoder_reads_the_other_source_and_the_ones_answer():
    one, other = two("encoder-decoder")
    found = asked(one, other, CPU)
    assert found.one.tokens.tolist() == found.other.tokens.tolist() == [[1, *ids("fg")]]
    assert found.one.source.tolist() == [[*ids("abc"), 2]]
    assert found.other.source.tolist() == [[*ids("abd"), 2]]
    assert found.said == [*ids("fg"), 2]


def test_a_decoder_goes_on_from_the_other_text_with_the_ones_answer():
    one, other = two("decoder")
    found = asked(one, other, CPU)
    assert found.one.tokens.tolist() == [[1, *ids("abc"), *ids("f")]]
    assert found.other.tokens.tolist() == [[1, *ids("abd"), *ids("f")]]
    assert found.said == [None, None, None, *ids("fg")]


def test_an_encoder_is_asked_for_what_it_said_to_the_one():
    one, other = two("encoder")
    found = asked(one, other, CPU)
    assert found.one.tokens.tolist() == [one["sequences"]["source"]["ids"]]
    assert found.other.tokens.tolist() == [other["sequences"]["source"]["ids"]]
    assert [each for each in found.said if each is not None] == [step["chosen"] for step in one["steps"]]


def test_labels_are_refused():
    stack = StackConfig(d_model=16, n_heads=2, n_layers=1, d_ff=16)
    model = Transformer(ModelConfig(LETTERS.vocab_size, encoder=stack, head=Classify(3)))
    header = trace(model, LETTERS, "ab").header
    with pytest.raises(DataError, match="gives labels"):
        asked(header, header, CPU)
