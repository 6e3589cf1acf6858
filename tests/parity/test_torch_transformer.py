"""Blocks, stacks and the whole model equal torch.nn's layers in outputs and in every gradient."""

import itertools

import pytest
import torch
from torch import Tensor, nn

from glassformer import Mask
from glassformer.nn.build import build_block
from glassformer.nn.stack import Stack
from glassformer.store.families import as_torch
from specimens import PADDINGS, VOCAB, close, gradients, model, normal, padded, scramble, stack, tokens

# torch warns that it will not take its fast path, which is what these tests want.
pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")

B, T, S = 3, 6, 5
SIZES = {"d_model": 16, "nhead": 4, "dim_feedforward": 24}
kinds = pytest.mark.parametrize(("placement", "activation"), list(itertools.product(["pre", "post"], ["relu", "gelu"])))
paddings = pytest.mark.parametrize("where", [None, "right", "holes"])


def settings(placement: str, activation: str) -> tuple[dict[str, object], dict[str, object]]:
    """One choice in our words and in torch's. No dropout, and in training, so torch computes what it says."""
    theirs = {**SIZES, "dropout": 0.0, "activation": activation, "norm_first": placement == "pre"}
    return (
        {"norm_placement": placement, "activation": activation, "positions": "none"},
        {**theirs, "batch_first": True, "dtype": torch.float64},
    )


def same_gradients(ours: tuple[Tensor, nn.Module], theirs: tuple[Tensor, nn.Module]) -> None:
    """Of a sum over the outputs, for every parameter that torch has."""
    expected = gradients(*theirs)
    mapped = as_torch(gradients(*ours))
    assert mapped.keys() == expected.keys()
    for name, gradient in mapped.items():
        close(gradient, expected[name], name, 1e-11)


def rows(n: int, where: str | None, width: int) -> tuple[Tensor, Tensor | None]:
    """Ids, and which are real; None: all are. Every row begins with a real one: torch divides by zero elsewhere."""
    if where is None:
        return tokens(n, width), None
    ids, keep = padded([tokens(width - i) for i in range(n)], width, where)
    keep[:, 0] = True
    return ids, keep


def hidden(keep: Tensor | None) -> Tensor | None:
    """Torch's padding mask: True is *hidden*."""
    return None if keep is None else ~keep


def later(width: int) -> Tensor:
    """Torch's causal mask."""
    return torch.ones(width, width, dtype=torch.bool).triu(1)


@kinds
def test_block_equals_encoder_layer(placement, activation):
    ours, theirs = settings(placement, activation)
    block = scramble(build_block(stack(**ours), reads_memory=False).double())
    layer = nn.TransformerEncoderLayer(**theirs)
    layer.load_state_dict(as_torch(dict(block.named_parameters())))
    x, (_, keep) = normal(B, T, 16), rows(B, "holes", T)
    for causal, kept in itertools.product([True, False], [None, keep]):
        answer = block(x, mask=Mask(causal=causal, keep=kept))
        expected = layer(x, src_mask=later(T) if causal else None, src_key_padding_mask=hidden(kept))
        close(answer, expected, (causal, kept))
        same_gradients((answer, block), (expected, layer))


@kinds
def test_block_equals_decoder_layer(placement, activation):
    ours, theirs = settings(placement, activation)
    block = scramble(build_block(stack(**ours), reads_memory=True).double())
    layer = nn.TransformerDecoderLayer(**theirs)
    layer.load_state_dict(as_torch(dict(block.named_parameters())))
    x, memory = normal(B, T, 16), normal(B, S, 16)
    for padding in (None, "holes"):
        keep, memory_keep = rows(B, padding, T)[1], rows(B, padding, S)[1]
        answer = block(x, mask=Mask(causal=True, keep=keep), memory=memory, memory_mask=Mask(keep=memory_keep))
        expected = layer(
            x, memory, tgt_mask=later(T), tgt_key_padding_mask=hidden(keep), memory_key_padding_mask=hidden(memory_keep)
        )
        close(answer, expected, padding)
        same_gradients((answer, block), (expected, layer))


@kinds
@paddings
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("final", [True, False])
def test_stack_equals_encoder(placement, activation, where, causal, final):
    ours, theirs = settings(placement, activation)
    made = scramble(Stack(stack(**ours, final_norm=final, causal=causal), VOCAB, scale_embeddings=False).double())
    norm = nn.LayerNorm(16, dtype=torch.float64) if final else None
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**theirs), 2, norm)
    encoder.load_state_dict(as_torch(dict(made.named_parameters())))
    ids, keep = rows(B, where, T)
    real = slice(None) if keep is None else keep
    answer = made(ids, keep=keep)[real]
    mask = later(T) if causal else None
    expected = encoder(made.embedding(ids), mask=mask, src_key_padding_mask=hidden(keep))[real]
    close(answer, expected)
    same_gradients((answer, made), (expected, encoder))


@kinds
@paddings
@pytest.mark.parametrize("final", [True, False])
def test_stack_equals_decoder(placement, activation, where, final):
    ours, theirs = settings(placement, activation)
    chosen = stack(**ours, final_norm=final, causal=True)
    made = scramble(Stack(chosen, VOCAB, reads_memory=True, scale_embeddings=False).double())
    norm = nn.LayerNorm(16, dtype=torch.float64) if final else None
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**theirs), 2, norm)
    decoder.load_state_dict(as_torch(dict(made.named_parameters())))
    (ids, keep), (_, memory_keep) = rows(B, where, T), rows(B, where, S)
    real, memory = slice(None) if keep is None else keep, normal(B, S, 16)
    answer = made(ids, keep=keep, memory=memory, memory_keep=memory_keep)[real]
    expected = decoder(
        made.embedding(ids),
        memory,
        tgt_mask=later(T),
        tgt_key_padding_mask=hidden(keep),
        memory_key_padding_mask=hidden(memory_keep),
    )[real]
    close(answer, expected)
    same_gradients((answer, made), (expected, decoder))
    for mine, other in zip(
        *(torch.autograd.grad(out.square().sum(), memory) for out in (answer, expected)), strict=True
    ):
        close(mine, other, "memory", 1e-11)


@kinds
@paddings
def test_model_equals_transformer(placement, activation, where):
    """From ids to the gradients of all parameters, those of the embeddings among them."""
    ours, theirs = settings(placement, activation)
    made = model(**ours, final_norm=True, tie_embeddings=False, share_embeddings=False, scale_embeddings=False)
    other = nn.Transformer(num_encoder_layers=2, num_decoder_layers=2, **theirs)
    other.load_state_dict(as_torch(dict(made.named_parameters())))
    (ids, keep), (source, source_keep) = rows(B, where, T), rows(B, where, S)
    real = slice(None) if keep is None else keep
    answer = made.hidden(ids, keep=keep, source=source, source_keep=source_keep)[real]
    expected = other(
        made.encoder.embedding(source),
        made.decoder.embedding(ids),
        tgt_mask=later(T),
        src_key_padding_mask=hidden(source_keep),
        tgt_key_padding_mask=hidden(keep),
        memory_key_padding_mask=hidden(source_keep),
    )[real]
    close(answer, expected)
    logits = made.head(answer), made.head(expected)
    close(*logits)
    embeddings = [made.encoder.embedding.weight, made.decoder.embedding.weight, made.head.weight]
    mine, torchs = (torch.autograd.grad(each.square().sum(), embeddings, retain_graph=True) for each in logits)
    for name, one, two in zip(("source", "target", "head"), mine, torchs, strict=True):
        close(one, two, name, 1e-11)
    same_gradients((answer, made), (expected, other))


def test_left_padding_which_torch_cannot_read():
    """Torch answers NaN where a query may read nothing; ours equals torch's answer to the rows alone."""
    made = model(
        positions="none", tie_embeddings=False, share_embeddings=False, scale_embeddings=False, final_norm=True
    )
    other = nn.Transformer(num_encoder_layers=2, num_decoder_layers=2, **settings("pre", "relu")[1])
    other.load_state_dict(as_torch(dict(made.named_parameters())))
    targets, sources = [tokens(4), tokens(2)], [tokens(1), tokens(5)]
    (ids, keep), (source, source_keep) = padded(targets, T, PADDINGS[1]), padded(sources, T, PADDINGS[1])
    answer = made.hidden(ids, keep=keep, source=source, source_keep=source_keep)
    for row, real, target, read in zip(answer, keep, targets, sources, strict=True):
        embedded = made.encoder.embedding(read[None]), made.decoder.embedding(target[None])
        close(row[real], other(*embedded, tgt_mask=later(len(target)))[0])
