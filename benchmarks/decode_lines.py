"""Translates lines of mixed length by a model of ours and by CTranslate2 with the same weights.

Each side reads text with the run's tokenizer, forms batches by length, and returns the answers in the order of the
lines. Both models are in memory already. Without a run, weights are random, 3 + 3 layers of width 256; then lines are
ids, and no answer ends before its last token.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from decode_peers import library
from engine import Engine
from files import read
from torch import nn

from glassformer import Block, ModelConfig, StackConfig, Transformer, answer
from glassformer.base.errors import CheckpointError
from glassformer.data.tokens.vocabulary import BOS, EOS, SPECIALS, UNK
from glassformer.nn.attention import Attention
from glassformer.store.checkpoint import load

TOGETHER = 128
"""Sentences in a batch, on both sides."""
LONGEST, WRITTEN = 64, 15
"""Tokens of an answer: the most, and the number if it has no end of its own."""
Stream = Callable[[], list[str]]
"""Turns all lines into all answers."""


class Lines(NamedTuple):
    """The lines to translate, the model, and how text becomes ids and ids become text."""

    model: Transformer
    lines: Sequence[str]
    encode: Callable[[str], list[int]]
    decode: Callable[[Sequence[int]], str]
    longest: int
    shortest: int

    def sizes(self, stream: Stream) -> tuple[int, float, float]:
        """Return the number of lines, and how many tokens are read and written per line."""
        n = len(self.lines)
        written = sum(len(self.encode(each)) for each in stream())
        return n, round(sum(len(self.encode(line)) for line in self.lines) / n, 1), round(written / n, 1)


def lines_of(run: str | None, data: str | None, *, small: bool) -> Lines:
    """Return the captions of Multi30k for a run; without one, random ids and weights."""
    if run is None:
        return random_lines(small=small)
    if data is None:
        sys.exit("--run translates captions of Multi30k. Add --data FOLDER, in which multi30k/ lies.")
    try:
        loaded, lines = load(Path(run)), read(Path(data) / "multi30k" / "test_2016_flickr.en")
    except (CheckpointError, FileNotFoundError) as error:
        sys.exit(str(error))
    check_shape(loaded.model, run)
    return Lines(loaded.model, lines, loaded.tokenizers.source.encode, loaded.tokenizers.target.decode, LONGEST, 1)


def random_lines(*, small: bool) -> Lines:
    """Return 1,000 lines of 8 to 20 numbers, each an id, and a model whose answers do not end by themselves."""
    sizes = {"d_model": 16, "n_heads": 2, "n_layers": 1, "d_ff": 32} if small else SHAPE
    stack = StackConfig(**sizes)
    model = Transformer(ModelConfig(64 if small else 4_000, encoder=stack, decoder=stack, tie_embeddings=False)).eval()
    with torch.no_grad():
        cast(nn.Parameter, model.head.weight)[EOS] = 0.0  # its logit, 0, is never the highest
    draw = random.Random(0)
    rows = [draw.choices(range(len(SPECIALS), 60), k=draw.randint(8, 20)) for _ in range(4 if small else 1_000)]
    written = 3 if small else WRITTEN
    return Lines(model, [*map(text_of, rows)], ids_of, text_of, written, written)


SHAPE = {"d_model": 256, "n_heads": 4, "n_layers": 3, "d_ff": 512}


def ids_of(line: str) -> list[int]:
    """Return the numbers of a line."""
    return [int(word) for word in line.split()]


def text_of(ids: Sequence[int]) -> str:
    """Return ids as numbers in a line."""
    return " ".join(map(str, ids))


def we_translate(lines: Lines, model: Transformer) -> Stream:
    """Return our contestant, which uses `answer`."""

    def stream() -> list[str]:
        sources = [lines.encode(line) for line in lines.lines]
        found = answer(model, sources, max_new_tokens=lines.longest, batch_size=TOGETHER)
        return [lines.decode(each.ids) for each in found]

    return stream


def ctranslate_translates(lines: Lines, engine: Engine) -> Stream:
    """Return CTranslate2 as a contestant."""
    lengths = {"max_decoding_length": lines.longest, "min_decoding_length": lines.shortest}

    def stream() -> list[str]:
        words = [[f"{id}" for id in (*lines.encode(line), EOS)] for line in lines.lines]
        found = engine(words, beam_size=1, max_batch_size=TOGETHER, **lengths)
        return [lines.decode([int(word) for word in each]) for each in found]

    return stream


def check_shape(model: Transformer, run: str) -> None:
    """Exit if the conversion does not support the model."""
    stack, wanted = model.config.stack, StackConfig(**SHAPE)
    same = (
        *("positions", "norm", "norm_placement", "activation", "feed_forward", "bias", "attention_rule"),
        *("n_kv_heads", "convolution"),
    )
    other = [name for name in same if getattr(stack, name) != getattr(wanted, name)]
    if other or model.encoder is None or model.decoder is None:
        sys.exit(
            f"CTranslate2 cannot load {run}, because of {', '.join(other) or 'its layout'}. Train one of the recipe "
            "multi30k with --model.positions sinusoidal --model.convolution 1."
        )


def convert_lines(ours: Transformer, folder: Path) -> None:
    """Save an encoder-decoder of this kind as a CTranslate2 model, whose words are the ids as numbers."""
    assert ours.encoder is not None
    assert ours.decoder is not None
    layers = (len(ours.encoder.blocks), len(ours.decoder.blocks))
    spec = library("ctranslate2").specs.TransformerSpec.from_config(layers, ours.config.stack.n_heads, pre_norm=True)
    for theirs, stack in ((spec.encoder, ours.encoder), (spec.decoder, ours.decoder)):
        (embedding,) = theirs.embeddings if isinstance(theirs.embeddings, list) else [theirs.embeddings]
        embedding.weight = stack.embedding.weight.detach()
        theirs.scale_embeddings = ours.config.scale_embeddings
        places = torch.arange(ours.config.stack.max_len or 512)
        theirs.position_encodings.encodings = stack.positions.embedding(places, torch.empty(0))
        put(theirs.layer_norm, stack.norm)
        for layer, block in zip(theirs.layer, stack.blocks, strict=True):
            put_block(layer, cast(Block, block))
    put(spec.decoder.projection, ours.head)
    words = [f"{i}" for i in range(cast(nn.Parameter, ours.head.weight).shape[0])]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    named = {"unk_token": UNK, "bos_token": BOS, "eos_token": EOS, "decoder_start_token": BOS}
    for name, id in named.items():
        setattr(spec.config, name, f"{id}")
    spec.config.add_attribute("layer_norm_epsilon", ours.config.stack.norm_eps)
    spec.validate()
    spec.optimize()
    spec.save(str(folder))


def put_block(layer: Any, block: Block) -> None:
    """Copy one block. CTranslate2 fuses projections of the same input into one map."""
    attention = cast(Attention, block.self_attention.branch)
    put(layer.self_attention.layer_norm, block.self_attention.norm_in)
    put(layer.self_attention.linear[0], attention.query, attention.key, attention.value)
    put(layer.self_attention.linear[1], attention.output)
    if block.cross_attention is not None:
        attention = cast(Attention, block.cross_attention.branch)
        put(layer.attention.layer_norm, block.cross_attention.norm_in)
        put(layer.attention.linear[0], attention.query)
        put(layer.attention.linear[1], attention.key, attention.value)
        put(layer.attention.linear[2], attention.output)
    put(layer.ffn.layer_norm, block.feed_forward.norm_in)
    put(layer.ffn.linear_0, cast(Any, block.feed_forward.branch).up)
    put(layer.ffn.linear_1, cast(Any, block.feed_forward.branch).down)


def put(theirs: Any, *ours: nn.Module) -> None:
    """Copy the weights of a norm, or of maps stacked on top of each other."""
    weight = torch.cat([cast(nn.Parameter, each.weight).detach() for each in ours])
    biases = [each.bias.detach() for each in ours if isinstance(each.bias, nn.Parameter)]
    if hasattr(theirs, "gamma"):
        theirs.gamma, theirs.beta = weight, biases[0]
        return
    theirs.weight = weight
    if biases:
        theirs.bias = torch.cat(biases)
