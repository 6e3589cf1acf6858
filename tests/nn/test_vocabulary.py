"""Embedding and head: what they compute, and the id that is no token."""

import pytest
import torch

from glassformer.base.errors import DataError
from glassformer.nn.embedding import Embedding, check_tokens
from glassformer.nn.heads import Head
from specimens import SHAPES, VOCAB, close, model, scramble, tokens


def test_embedding_looks_up_and_scales():
    embedding = scramble(Embedding(5, 3, scale=1.5))
    close(embedding(torch.tensor([[4, 0]])), embedding.weight[[4, 0]][None] * 1.5, tolerance=0)


def test_head_is_a_product():
    head = scramble(Head(5, 3, bias=True).double())
    x = torch.randn(2, 4, 3).double()
    close(head(x), torch.einsum("btd,vd->btv", x, head.weight) + head.bias)


def test_a_tied_head_holds_the_embeddings_matrix():
    embedding = Embedding(5, 3)
    assert Head(5, 3, tied=embedding).weight is embedding.weight


@pytest.mark.parametrize("wrong", [-1, VOCAB, 10**9])
@pytest.mark.parametrize("shape", SHAPES)
def test_an_id_outside_the_vocabulary_is_named_by_row_and_column(shape, wrong):
    made, ids = model(shape), tokens(3, 4)
    given = {"source": tokens(3, 4)} if shape == "encoder-decoder" else {}
    for each in (ids, *given.values()):
        kept = each[1, 2].item()
        each[1, 2], each[2, 0] = wrong, wrong  # the first of them is named
        with pytest.raises(DataError, match=rf"below .* {VOCAB}; got {wrong} at row 1, column 2\. .*tokenizer"):
            made(ids, **given)
        each[1, 2], each[2, 0] = kept, 0


def test_the_source_has_a_vocabulary_of_its_own():
    made = model("encoder-decoder", source_vocab_size=5)
    made(torch.tensor([[VOCAB - 1]]), source=torch.tensor([[4]]))
    with pytest.raises(DataError, match="below the vocabulary's size, 5; got 5 at row 0, column 0"):
        made(torch.tensor([[1]]), source=torch.tensor([[5]]))


def test_no_tokens_are_no_mistake():
    check_tokens(torch.empty(0, 3, dtype=torch.long), 5)
    check_tokens(torch.empty(3, 0, dtype=torch.long), 5)
