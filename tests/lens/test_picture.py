"""The terminal's picture of attention: which head is shown, and with what shades."""

import pytest
import torch

from glassformer import ModelConfig, StackConfig, Transformer
from glassformer.data.config import TokenizerConfig
from glassformer.data.dataset import build_tokenizers
from glassformer.data.pairs import Pair
from glassformer.lens.picture import SHADES, cross_attention_picture, heat_map, sharpest_head


def test_the_most_decided_head_of_the_kind_is_shown():
    blurred, sharp = torch.full((1, 2, 3, 3), 1 / 3), torch.full((1, 2, 3, 3), 1 / 3)
    sharp[0, 1] = torch.eye(3)
    seen = {
        "decoder.blocks.0.cross_attention": blurred,
        "decoder.blocks.1.cross_attention": sharp,
        "decoder.blocks.1.self_attention": torch.eye(3).expand(1, 2, 3, 3),  # sharper, but of another kind
    }
    assert sharpest_head(seen, "cross_attention") == ("decoder.blocks.1.cross_attention", 1)


@pytest.mark.parametrize(
    ("weight", "shade"), [(0.0, 0), (0.12, 0), (0.13, 1), (0.5, 2), (0.87, 3), (0.88, 4), (1.0, 4)]
)
def test_each_weight_has_its_shade(weight, shade):
    line = heat_map(torch.tensor([[weight]]), ["q"], ["k"]).splitlines()[1]
    assert line == "q  " + SHADES[shade]


def test_a_row_for_each_query_and_a_column_for_each_key():
    drawn = heat_map(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), ["c", "bb", "a"], ["xx", "y"])
    assert drawn.splitlines() == ["    xx y ", " c  ██   ", "bb     ██", " a       "]


def test_a_line_for_each_token_written_and_a_column_for_each_read():
    pairs = [Pair("a b", "x"), Pair("b", "y x")]
    words = build_tokenizers(TokenizerConfig(kind="word", shared=False), pairs)
    stack = StackConfig(d_model=8, n_heads=2, n_layers=2, d_ff=8, dropout=0.0)
    config = ModelConfig(words.target.vocab_size, stack, stack, source_vocab_size=words.source.vocab_size)
    model = Transformer(config)
    with torch.no_grad():  # whatever it reads, it writes y and never ends
        model.decoder.norm.weight.zero_()
        model.decoder.norm.bias.copy_(model.head.weight[words.target.encode("y")[0]])
    picture = cross_attention_picture(model, words, "b a b")
    lines = picture.text.splitlines()
    assert lines[0].split() == ["b", "a", "b", "<eos>"]
    assert [line.split()[0] for line in lines[1:]] == ["y"] * 16 + ["<eos>"]  # 2 * 3 + 10 tokens, and the end
    assert picture.head.startswith("decoder.blocks.")
