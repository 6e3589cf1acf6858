"""How a trace's answer comes to be: a beginning is kept, a beam is that of all commands, and its tree is whole."""

import math

import pytest
import torch

from glassformer import answer, trace
from glassformer.base.errors import ConfigError
from glassformer.data.tokens.vocabulary import BOS, EOS
from glassformer.decode.settings import BeamSettings, Sampling
from glassformer.lens.trace.make import from_bytes
from lens.explored import LETTERS, small

TEXT = "abcd"
WRITERS = ["decoder", "encoder-decoder"]


def written_ids(made):
    """The ids that were written."""
    target = made.header["sequences"]["target"]
    return target["ids"][target["n_prompt"] :]


@pytest.mark.parametrize("shape", WRITERS)
@pytest.mark.parametrize("sampling", [Sampling(temperature=0.0), Sampling(seed=4)], ids=["greedy", "drawn"])
def test_an_answer_begun_with_its_own_tokens_is_the_same(shape, sampling):
    model = small(shape)
    whole = trace(model, LETTERS, TEXT, sampling=sampling, max_new_tokens=8)
    again = trace(model, LETTERS, TEXT, sampling=sampling, max_new_tokens=8, begin=written_ids(whole)[:3])
    assert written_ids(again) == written_ids(whole)


@pytest.mark.parametrize("shape", WRITERS)
def test_another_beginning_is_gone_on_from(shape):
    model = small(shape)
    begin = [*reversed(LETTERS.encode("fgh"))]
    made = trace(model, LETTERS, TEXT, begin=begin, max_new_tokens=6)
    assert written_ids(made)[:3] == begin
    read = torch.tensor([made.header["sequences"]["target"]["ids"][:-1]])
    source = None if shape == "decoder" else torch.tensor([[*LETTERS.encode(TEXT), EOS]])
    likeliest = model(read, source=source)[0].argmax(-1).tolist()
    steps = {step["pos"]: step["chosen"] for step in made.header["steps"]}
    first = read.shape[1] - len(written_ids(made)) + 1 + 3
    assert [steps[pos] for pos in range(first, read.shape[1])] == likeliest[first:]


def test_a_beginning_must_fit_and_be_written():
    with pytest.raises(ConfigError, match="at most 2 tokens here; got 3 tokens to begin with"):
        trace(small(), LETTERS, TEXT, begin=[6, 7, 8], max_new_tokens=2)
    for option in ({"begin": [6]}, {"search": BeamSettings(beam=2)}):
        with pytest.raises(ConfigError, match="is for models that write their answer token by token"):
            trace(small("encoder"), LETTERS, TEXT, **option)
        with pytest.raises(ConfigError, match="With a target the model writes nothing"):
            trace(small(), LETTERS, TEXT, "ab", **option)


@pytest.mark.parametrize("shape", WRITERS)
def test_each_token_is_told_and_the_writing_can_be_ended(shape):
    seen, requests = [], []
    made = trace(small(shape), LETTERS, TEXT, max_new_tokens=6, heard=seen.append, poll=lambda: requests.append(1))
    assert seen == written_ids(made)
    assert len(requests) == len(seen)

    def enough():
        raise ConfigError("enough")

    with pytest.raises(ConfigError, match="enough"):
        trace(small(shape), LETTERS, TEXT, poll=enough)


@pytest.mark.parametrize("more", [{"beam": 3}, {"beam": 4, "beam_groups": 2, "length_penalty": 1.0}], ids=str)
def test_the_tree_of_a_beam(more):
    """What it says of each beginning is what the model says of it, and the best answer is that of `answer`."""
    model, search = small().double(), BeamSettings(**more)
    with torch.no_grad():  # so that answers end
        model.head.weight[EOS] = 0.7 * model.head.weight[11]
    seen = []
    made = trace(model, LETTERS, TEXT, search=search, max_new_tokens=6, heard=seen.append)
    nodes = made.header["beams"]["nodes"]
    (best,) = answer(model, [LETTERS.encode(TEXT)], search=search, max_new_tokens=6)
    assert written_ids(made) == seen == [*best.ids, *[EOS] * best.complete]
    source = torch.tensor([[*LETTERS.encode(TEXT), EOS]])
    paths = []
    for node in nodes:
        path = [*([] if node["parent"] < 0 else paths[node["parent"]]), node["token"]]
        paths.append(path)
        log_p = model(torch.tensor([[BOS, *path[:-1]]]), source=source)[0].detach().log_softmax(-1)
        own = log_p.gather(1, torch.tensor(path)[:, None])[:, 0]
        assert node["log_p"] == pytest.approx(float(own.sum()), rel=1e-5)
        assert node["p"] == pytest.approx(math.exp(float(own[-1])), rel=1e-4)
    assert len({*map(tuple, paths)}) == len(paths), "each beginning once"
    ranked = sorted((node["rank"], place) for place, node in enumerate(nodes) if node.get("rank") is not None)
    assert [rank for rank, _ in ranked] == [*range(search.beam)]
    assert paths[ranked[0][1]] == written_ids(made)
    assert any(paths[place][-1] == EOS for _, place in ranked)
    scores = [nodes[place]["score"] for _, place in ranked]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == pytest.approx(best.score, rel=1e-5)
    assert from_bytes(made.to_bytes()).header["beams"] == made.header["beams"], "the schema knows it"
    assert {str(node["token"]) for node in nodes} <= made.header["vocab"].keys()


def test_a_beam_may_begin_as_it_is_told():
    made = trace(small(), LETTERS, TEXT, search=BeamSettings(beam=3), begin=[8, 7], max_new_tokens=5)
    assert written_ids(made)[:2] == [8, 7]
    nodes = made.header["beams"]["nodes"]
    assert [node["token"] for node in nodes[:2]] == [8, 7], "nothing else was looked at"
    held = [each["p"] for each in made.header["steps"]]
    assert [node["p"] for node in nodes[:2]] == pytest.approx(held[:2], rel=1e-4), "as the model holds them"
    (best,) = (node for node in nodes if node.get("rank") == 0)
    assert best["log_p"] == pytest.approx(sum(map(math.log, held)), rel=1e-4)


def test_a_beam_draws_nothing():
    with pytest.raises(ConfigError, match="beam=2 with temperature"):
        trace(small(), LETTERS, TEXT, search=BeamSettings(beam=2), sampling=Sampling())
