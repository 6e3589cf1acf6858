"""Rows that begin alike are read once, and write what each would alone."""

import pytest

from decode.naive import collected, written
from glassformer.data.tokens.vocabulary import BOS
from glassformer.decode import beam
from glassformer.decode.beam import beam_search
from glassformer.decode.choose import chooser
from glassformer.decode.contrastive import contrastive
from glassformer.decode.rows import memories, read_anew
from glassformer.decode.settings import BeamSettings, Sampling
from train.examples import SCHEMES, model, sequences

WHICH = [0, 1, 0, 0, 2, 1, 0]
"""Each row's prompt, of three which differ in length."""
SOURCES, PROMPTS = sequences([3, 5, 1]), [[BOS, *each] for each in sequences([4, 0, 2])]
LIMITS = [5, 1, 7, 3, 6, 6, 2]
LAYOUTS = ["decoder", "encoder-decoder"]
INSIDES = [*({"positions": each} for each in SCHEMES), {"window": 2}, {"attention_rule": "linear"}, {"convolution": 2}]


def rows_for(layout: str, which: list[int]) -> dict:
    options = {"prompts": [PROMPTS[i] for i in which]}
    return options if layout == "decoder" else options | {"sources": [SOURCES[i] for i in which]}


def rows_read(network, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows the encoder reads, and each step."""
    seen: list[int] = []
    hidden, encode = network.hidden, network.encode
    monkeypatch.setattr(network, "hidden", lambda tokens, **of: seen.append(len(tokens)) or hidden(tokens, **of))
    monkeypatch.setattr(network, "encode", lambda source, keep: seen.append(len(source)) or encode(source, keep))
    return seen


@pytest.mark.parametrize("settings", INSIDES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_write_what_each_would_alone(layout, settings, monkeypatch):
    network, choose = model(layout, n_layers=2, **settings), chooser(Sampling(temperature=1.0, seed=3))
    alone = []
    for row, limit in enumerate(LIMITS):
        requested = rows_for(layout, WHICH[row : row + 1])
        alone += collected(network, 1, max_new_tokens=limit, numbers=[row], choose=choose, eos=-1, **requested)
    assert len({tuple(ids[:2]) for ids in alone}) > 3, "equal prompts go their own ways"
    result = rows_read(network, monkeypatch)
    assert collected(network, 7, max_new_tokens=LIMITS, choose=choose, eos=-1, **rows_for(layout, WHICH)) == alone
    of_first = [3] if layout == "decoder" else [3, 3]
    assert result[: len(of_first) + 1] == [*of_first, 6]


def test_a_prompt_is_alike_only_with_the_same_source(monkeypatch):
    network = model()
    result = rows_read(network, monkeypatch)
    rows = {"sources": [SOURCES[0], SOURCES[1], SOURCES[0]], "prompts": [PROMPTS[0], PROMPTS[0], PROMPTS[1]]}
    found = collected(network, 3, max_new_tokens=4, **rows)
    assert result[:2] == [3, 3]
    for row, ids in enumerate(found):
        (alone,) = collected(network, 1, max_new_tokens=4, **{side: [each[row]] for side, each in rows.items()})
        assert ids == alone


def test_what_is_read_both_ways_is_read_once(monkeypatch):
    network, rows = model("decoder"), rows_for("decoder", WHICH)
    alone = [collected(network, 1, max_new_tokens=4, prompts=[each], prefix=True)[0] for each in rows["prompts"]]
    result = rows_read(network, monkeypatch)
    assert collected(network, 7, max_new_tokens=4, prefix=True, **rows) == alone
    assert result[0] == 3


@pytest.mark.parametrize("layout", LAYOUTS)
def test_contrastive_search_reads_them_once(layout, monkeypatch):
    network, rows = model(layout, seed=3), rows_for(layout, WHICH)

    def found(rows: dict, limits: list[int]) -> list[list[int]]:
        steps = contrastive(network, alpha=0.6, k=3, eos=-1, max_new_tokens=limits, **rows)
        return written(steps, len(limits))

    alone = [found({side: [each[row]] for side, each in rows.items()}, [limit])[0] for row, limit in enumerate(LIMITS)]
    result = rows_read(network, monkeypatch)
    assert found(rows, LIMITS) == alone
    of_first = [3] if layout == "decoder" else [3, 3]
    assert result[: len(of_first) + 1] == [*of_first, 7 * 3]


BEAMS = [{"beam": 3}, {"beam": 6, "beam_groups": 3}, {"beam": 4, "beam_groups": 2, "coverage_penalty": 0.7}]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("settings", BEAMS, ids=str)
def test_beams_read_them_once(layout, settings, monkeypatch):
    """Beside a search in which each row, and each group of it, reads for itself."""
    if layout == "decoder":
        settings = {name: value for name, value in settings.items() if name != "coverage_penalty"}
    network, rows = model(layout, seed=2), rows_for(layout, WHICH)
    options = {"max_new_tokens": LIMITS, "n_best": 2, **rows}
    result = rows_read(network, monkeypatch)
    found = beam_search(network, BeamSettings(**settings), **options)
    assert result[0] == 3
    monkeypatch.setattr(
        beam, "read_first", lambda net, of: read_anew(net, of, list(range(len(of.prompts))), *memories(net, of.sources))
    )
    apart = beam_search(network, BeamSettings(**settings), **options)
    assert [[each.ids for each in best] for best in found] == [[each.ids for each in best] for best in apart]
    for best, its in zip(found, apart, strict=True):
        assert [each.score for each in best] == pytest.approx([each.score for each in its], abs=1e-12)
