"""What a model writes before it has learned anything: the first picture of the demo."""

from __future__ import annotations

from glassformer.decode.answer import answer
from glassformer.model.transformer import Transformer
from glassformer.train.prepare import Prepared
from glassformer.train.report import Evaluated, Sample


def untrained(model: Transformer, prepared: Prepared) -> Evaluated:
    """The answers to the first few dev sources, as an evaluation after 0 steps."""
    pairs = prepared.dev.pairs[: prepared.recipe.training.samples]
    sources = [prepared.dev.encoded.source[index] for index in range(len(pairs))]
    outputs = [prepared.tokenizers.target.decode(each.ids) for each in answer(model, sources)]
    return Evaluated(0, {}, [Sample(*pair, output) for pair, output in zip(pairs, outputs, strict=True)])
