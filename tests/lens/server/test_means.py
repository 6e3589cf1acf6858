"""Heads of a run that are taken out give what they give on average, where that is asked for."""

import json

import numpy as np
import pytest

from glassformer.base.errors import GlassformerError
from glassformer.lens.ablate import silence
from glassformer.lens.roles.diagnosis import open_run, usual_outputs
from glassformer.lens.server.app import make_app
from glassformer.lens.server.subject import SEQUENCES, subject_of
from glassformer.lens.trace.make import from_bytes
from glassformer.lens.trace.reading import Manner
from lens.server.requests_of import TOKEN, ask
from lens.test_roles_of_a_run import SMALL, untrained_run


def silenced(subject, kind, means, manner):
    """The trace of the first example without two heads, in whose place stands this."""
    with silence(subject.model, [("cross", 0, 0), ("cross", 0, 1)], kind, means=means):
        return subject.trace(*subject.examples[0], manner)


def test_heads_give_their_mean(tmp_path):
    """What stands in their place is what they give on average over the run's own probe, as in the diagnosis."""
    run = untrained_run(tmp_path / "run", "reverse", SMALL)
    subject = subject_of(run)
    app = make_app(subject, TOKEN)
    heads = [{"block": "cross", "layer": 0, "head": head} for head in range(2)]
    asked = {"trace": "0", "heads": heads, "kind": "mean"}
    name = ask(app, "POST", "/api/ablate", json.dumps(asked).encode()).json["same"]
    made = from_bytes(ask(app, "GET", f"/api/trace/{name}").body)
    means = usual_outputs(subject.model, open_run(run).probe(SEQUENCES, 1))
    whole = from_bytes(ask(app, "GET", "/api/trace/0").body)
    said = whole.header["sequences"]["target"]["ids"][1:]
    expected, nothing = (
        silenced(subject, kind, means, Manner(most=len(said), begin=said)) for kind in ("mean", "zero")
    )
    for block in ("decoder", "cross"):
        assert np.array_equal(made.attention(block), expected.attention(block))
    chances = [[step["p"] for step in each.header["steps"]] for each in (made, expected, nothing)]
    assert chances[0] == chances[1]
    assert chances[0] != chances[2], "of the last layer's heads the chances alone tell what stood in their place"
    assert made.header["run"]["note"].startswith("with the mean of x.0.0, x.0.1")
    other = json.dumps({"trace": name, "heads": heads}).encode()
    refused = ask(app, "POST", "/api/ablate", other)
    assert refused.status == 400
    assert "it is 'mean'; got 'zero'" in refused.json["error"]


def test_the_figure_without_heads_can_be_ended(tmp_path):
    """Who asked may have left: it is asked for at each batch."""
    subject = subject_of(untrained_run(tmp_path / "run", "reverse", SMALL))

    def end():
        raise GlassformerError("Nobody waits.")

    with pytest.raises(GlassformerError, match="Nobody waits"):
        subject.score(end)
