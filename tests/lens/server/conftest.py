"""An application for all tests of the server."""

import json

import pytest

from glassformer.data.dataset import Tokenizers
from glassformer.lens.ablate import silence
from glassformer.lens.server.app import make_app
from glassformer.lens.server.subject import Subject
from glassformer.nn.observe import attentions
from lens.explored import LETTERS
from lens.server.requests_of import HEADS, MODEL, TOKEN


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """One for all tests, which change nothing that another looks at."""
    tmp_path = tmp_path_factory.mktemp("run")
    lines = [{"kind": "train", "step": 1, "loss": 2.0}, {"kind": "train", "step": 2, "loss": 1.0}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines) + '{"kind": "tr')
    model = MODEL
    whole = attentions(model)["decoder.blocks.0.cross_attention"].attend

    def score(poll):
        poll()
        taken = attentions(model)["decoder.blocks.0.cross_attention"].attend is not whole
        return "exact_match", 0.2 if taken else 1.0, 5

    subject = Subject(
        "toy",
        model,
        Tokenizers(LETTERS, LETTERS),
        examples=[("abc", "cba"), ("ab", None)],
        heads=HEADS,
        sentences=["Found."],
        run=tmp_path,
        silence=silence,
        score=score,
    )
    return make_app(subject, TOKEN)
