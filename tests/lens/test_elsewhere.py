"""A model on an accelerator is looked into as one here: nothing meets across devices, and no float64 is asked of it."""

import pytest
import torch

from glassformer import diagnose, trace
from glassformer.data.batch import Batch
from glassformer.data.tokens.vocabulary import SPECIALS
from glassformer.decode.settings import BeamSettings, Sampling
from glassformer.lens.ablate import silence
from glassformer.lens.patch import Input, patch
from glassformer.lens.roles.diagnosis import usual_outputs
from glassformer.lens.roles.probe import induction_probe, pairs_probe
from glassformer.train.objective import next_token
from lens.elsewhere import DEVICE, accelerator
from lens.explored import LETTERS, small
from specimens import SHAPES

IDS = range(len(SPECIALS), LETTERS.vocab_size)
SAID = [None, 9, 8]
ROWS = ([9, 8, 7], [11, 8, 7])


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """A device without float64 is known by its kind."""
    monkeypatch.setattr("glassformer.base.tensors.WITHOUT", (DEVICE.type,))


def both(shape, work):
    """What comes of a model here and there, in that order."""
    model = small(shape)
    here = work(model, torch.device("cpu"))
    with accelerator() as device:
        return here, work(model.to(device), device)


def near(wanted):
    """Another device adds up in another order."""
    return pytest.approx(wanted, rel=1e-3, abs=1e-4)


def probe(shape):
    """Data of ordinary letters, made here."""
    if shape == "decoder":
        return induction_probe(IDS, [3, 4], 12)
    pairs = [([7, 8, 9], [9, 8, 7]), ([10, 7], [7, 10])]
    return pairs_probe(
        "planted", pairs, None, pairs, lambda rows: Batch.pairs(*zip(*rows, strict=True)), next_token, IDS
    )


@pytest.mark.parametrize(("shape", "beam"), [("encoder", 1), ("decoder", 1), ("encoder-decoder", 3)])
def test_a_trace(shape, beam):
    here, there = both(shape, lambda model, _: trace(model, LETTERS, "abcd", search=BeamSettings(beam=beam)))
    for mine, other in zip(there.header["steps"], here.header["steps"], strict=True):
        assert mine["chosen"] == other["chosen"]
        assert mine["p"] == near(other["p"])
    for mine, other in zip(there.header["lens"]["p"], here.header["lens"]["p"], strict=True):
        assert [each or 0 for each in mine] == near([each or 0 for each in other])
    for mine, other in zip(*(each.header.get("beams", {"nodes": []})["nodes"] for each in (there, here)), strict=True):
        assert mine == near(other)


def test_what_is_drawn():
    drawn = Sampling(temperature=1.0, top_k=3, seed=4)
    here, there = both("decoder", lambda model, _: trace(model, LETTERS, "abcd", sampling=drawn, max_new_tokens=5))
    assert there.header["sequences"] == here.header["sequences"]


@pytest.mark.parametrize("shape", SHAPES)
def test_patching(shape):
    def work(model, device):
        given = [torch.tensor([ids], device=device) for ids in ROWS]
        tokens = torch.tensor([[1, 9, 8]], device=device)
        one, other = (Input(tokens, each) if shape == "encoder-decoder" else Input(each) for each in given)
        return patch(model, one, other, SAID)

    here, there = both(shape, work)
    assert there.one == near(here.one)
    for where, effects in here.heads.items():
        assert there.heads[where].tolist() == near(effects.tolist())


@pytest.mark.parametrize("shape", [pytest.param("decoder", marks=pytest.mark.slow), "encoder-decoder"])
def test_heads_and_their_means(shape):
    """Of data that were made here, as the explorer's are."""

    def work(model, device):
        source = torch.tensor([ROWS[0]], device=device) if shape == "encoder-decoder" else None
        means = usual_outputs(model, probe(shape))
        with torch.no_grad(), silence(model, [("decoder", 0, 1)], "mean", means=means):
            logits = model(torch.tensor([[1, 9]], device=device), source=source).cpu()
        return diagnose(model, probe(shape)), logits

    (heads, logits), (heads_there, logits_there) = both(shape, work)
    assert torch.allclose(logits, logits_there, atol=1e-5)
    for mine, other in zip(heads_there.to_json(), heads.to_json(), strict=True):
        assert mine["raw"] == near(other["raw"])
        assert mine["ablation"]["value"] == near(other["ablation"]["value"])
        assert mine["grad_importance"] == near(other["grad_importance"])
