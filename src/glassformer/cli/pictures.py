"""The parts of the demo that need the model: what it writes untrained, and where it looks once trained."""

from __future__ import annotations

from pathlib import Path

from glassformer.cli.explore import EXAMPLES_ALONE, page_of
from glassformer.decode.answer import answer
from glassformer.decode.filters import unwritten
from glassformer.lens.picture import cross_attention_picture
from glassformer.nn.transformer import Transformer
from glassformer.train.pairs_data import PairsData
from glassformer.train.records import Evaluated, Sample
from glassformer.train.run_data import RunData

PAGE = "explorer.html"


def untrained(model: Transformer, prepared: RunData) -> Evaluated:
    """Return the answers to the first few dev sources, as an evaluation after 0 steps."""
    assert isinstance(prepared, PairsData)  # as the demo's recipe says
    pairs = prepared.dev.pairs[: prepared.recipe.training.samples]
    sources = [prepared.dev.encoded.source[index] for index in range(len(pairs))]
    found = answer(model, sources, never=unwritten())
    outputs = [prepared.tokenizers.target.decode(each.ids) for each in found]
    return Evaluated(0, {}, [Sample(*pair, output) for pair, output in zip(pairs, outputs, strict=True)])


def gaze(model: Transformer, prepared: RunData) -> str:
    """Show what the most decided head of the decoder reads while the model answers the first dev source."""
    assert isinstance(prepared, PairsData)
    picture = cross_attention_picture(model, prepared.tokenizers, prepared.dev.pairs[0].source)
    return "\n".join(
        (
            f"Where it looks: {picture.head}. A line for each letter it writes, a column for each letter it reads:",
            *(f"  {line}".rstrip() for line in picture.text.splitlines()),
            "",
        )
    )


def explorer(out: Path) -> str:
    """Write the page of the run into its folder; return a sentence about its heads, and where the page is."""
    found = page_of(out, out / PAGE, EXAMPLES_ALONE).sentences[:1]
    return "\n".join([*found, f"Every head, step and number of it: open {out / PAGE} in a browser.", ""])
