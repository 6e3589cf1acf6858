"""Recorded steps: what they write is what `generate` writes, no step waits, and what cannot be recorded is not."""

from __future__ import annotations

import contextlib
import math
import warnings

import pytest
import torch
from torch.nn.modules.module import register_module_forward_hook

from decode.naive import collected
from fast.recorder import Forbidden, Recorder, Recording
from glassformer.base.errors import ConfigError, DataError
from glassformer.data.tokens.vocabulary import BOS
from glassformer.decode.choose import chooser, greedy, own_uniforms
from glassformer.decode.filters import ByLogits, Context, logit_bias, without
from glassformer.decode.generate import generate
from glassformer.decode.settings import GREEDY, Sampling
from glassformer.fast import graphs as machine
from glassformer.fast.decoding import KERNELS
from glassformer.fast.graphs import REFUSED, REHEARSALS, Cuda, ahead_of
from glassformer.nn.observe import watch_attention
from glassformer.nn.transformer import Transformer
from specimens import INSIDES, ORDERS, VOCAB, model

ROWS = [[5, 6, 7], [5], [8, 9, 5, 6, 6]]
LIMITS = [30, 75, 40]
"""Longer than the first cache in constant shapes."""
CHOICES = {
    "greedy": greedy,
    "filtered": chooser(GREEDY, [without([BOS, 3])]),
    "drawn": chooser(Sampling(temperature=0.9, top_k=6, top_p=0.95, min_p=0.01, typical_p=0.9, seed=3)),
}
INSIDE = [each for each in (*INSIDES, *ORDERS) if each.get("feed_forward") != "experts" and "layers" not in each]
"""Experts ask how many tokens each of them has, so they are not recorded; nor are blocks that differ."""
BOTH = ["decoder", "encoder-decoder"]


@pytest.fixture
def recorder(monkeypatch):
    """Lets a CPU record steps, as a device of CUDA does."""
    made = Recorder()
    monkeypatch.setitem(machine.RECORDERS, "cpu", lambda _: made)
    monkeypatch.setattr(Transformer, "kernels", KERNELS)
    return made


def made_of(shape, **settings):
    return model(shape, **{"n_layers": 2, "max_len": 200, **settings}).eval()


def call_of(network, rows=ROWS, limits=LIMITS):
    name = "prompts" if network.encoder is None else "sources"
    return {name: rows, "max_new_tokens": limits, "eos": -1}


def plainly(network, monkeypatch, n_rows=3, **given):
    with monkeypatch.context() as patch:
        patch.delitem(machine.RECORDERS, "cpu")
        return collected(network, n_rows, **given)


def compare(network, recorder, monkeypatch, n_rows=3, **given):
    expected = plainly(network, monkeypatch, n_rows, **given)
    assert collected(network, n_rows, **given) == expected
    assert recorder.plays > recorder.records > 0
    return expected


@pytest.mark.each_two
@pytest.mark.parametrize("settings", INSIDE, ids=str)
@pytest.mark.parametrize("shape", BOTH)
def test_recorded_steps_write_the_same(shape, settings, recorder, monkeypatch):
    network = made_of(shape, **settings)
    compare(network, recorder, monkeypatch, **call_of(network))
    assert recorder.late == 2, "a step is asked for before the tokens of the last one are read"
    assert len(recorder.sizes) == max(LIMITS), "and none for nothing"


@pytest.mark.parametrize("choose", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("shape", BOTH)
def test_each_way_to_choose_writes_the_same(shape, choose, recorder, monkeypatch):
    network = made_of(shape, positions="rotary")
    compare(network, recorder, monkeypatch, choose=choose, **call_of(network))


@pytest.mark.parametrize("settings", [{"positions": "rotary"}, {"convolution": 2}], ids=str)
@pytest.mark.parametrize("shape", BOTH)
def test_rows_end_where_they_would(shape, settings, recorder, monkeypatch):
    """Those that are left go on, in a smaller batch."""
    network, ends = made_of(shape, **settings), [90, 36, 12, 48, 24]
    rows = [[5, 6], [7], [8, 9, 5], [6, 6], [9]]
    given = {**call_of(network, rows, 90), "choose": chooser(Sampling(seed=5)), "numbers": [3, 9, 4, 0, 1]}
    stop = lambda row, ids: len(ids) == ends[row]  # noqa: E731
    assert [*map(len, compare(network, recorder, monkeypatch, 5, stop=stop, **given))] == ends
    assert recorder.records > 3
    assert recorder.sizes[0] == 5 > recorder.sizes[-1], "who has ended leaves the batch"


def test_rows_end_with_eos(recorder, monkeypatch):
    network = made_of("decoder")
    given = {**call_of(network), "choose": chooser(Sampling(temperature=2.0, seed=5)), "eos": 4}
    assert any(4 in ids for ids in compare(network, recorder, monkeypatch, **given))


def test_rows_that_begin_alike_part(recorder, monkeypatch):
    network = made_of("encoder-decoder")
    given = {"sources": [ROWS[0]] * 3, "max_new_tokens": 40, "choose": chooser(Sampling(seed=2)), "eos": -1}
    assert len({tuple(ids) for ids in compare(network, recorder, monkeypatch, **given)}) == 3


def test_a_prefix_is_read_both_ways(recorder, monkeypatch):
    network = made_of("decoder")
    for each in network.parameters():
        each.data *= 3  # so that it matters what is read
    drawn = chooser(Sampling(temperature=5.0, seed=1))
    given = {**call_of(network, limits=30), "choose": drawn, "prefix": True}
    assert compare(network, recorder, monkeypatch, **given) != plainly(
        network, monkeypatch, **{**given, "prefix": False}
    )


LOOKS = {
    "linear attention": ({"attention_rule": "linear"}, {}),
    "another rule": ({"attention_rule": "sigmoid"}, {}),
    "a window": ({"window": 2}, {}),
    "experts": ({"feed_forward": "experts", "n_experts": 3}, {}),
    "another backend": ({"attention": "matmul"}, {}),
    "longer than the model": ({"max_len": 40}, {"max_new_tokens": [1, 37, 1]}),
    "longer than the context": ({}, {"max_context": 15}),
    "a penalty": ({}, {"choose": chooser(Sampling(temperature=0.0, repetition_penalty=1.3))}),
    "a bias": ({}, {"choose": chooser(GREEDY, [logit_bias({5: -1.0})])}),
}


@pytest.mark.parametrize(("settings", "given"), LOOKS.values(), ids=LOOKS)
def test_what_has_to_look_is_not_recorded(settings, given, recorder, monkeypatch):
    network = made_of("decoder", **settings)
    given = {**call_of(network), "max_new_tokens": 12, **given}
    assert collected(network, 3, **given) == plainly(network, monkeypatch, **given)
    assert recorder.records == recorder.plays == 0


@pytest.mark.parametrize(
    ("settings", "given"), [({"max_len": 40}, {"max_new_tokens": [1, 36, 1]}), ({}, {"max_context": 31})], ids=str
)
def test_a_text_that_just_fits_is_recorded(settings, given, recorder, monkeypatch):
    """Into the model and its context; the last token is never read."""
    network = made_of("decoder", **settings)
    compare(network, recorder, monkeypatch, **{**call_of(network, limits=27), **given})


def test_a_cache_in_8_bits_is_not_recorded(recorder):
    network = made_of("decoder")
    network.rounds_cache = True
    collected(network, 3, **call_of(network))
    assert recorder.records == 0


def test_no_rows_are_refused_as_ever(recorder):
    with pytest.raises(DataError):
        collected(made_of("decoder"), 0, prompts=[], max_new_tokens=4)


def test_autocast_is_not_recorded(recorder):
    network = made_of("decoder").float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        collected(network, 3, **call_of(network))
    assert recorder.records == 0


def test_who_looks_into_a_model_sees_each_step(recorder):
    network, seen = made_of("decoder"), []
    with watch_attention(network, seen.append):
        collected(network, 3, **call_of(network))
    assert len(seen) == 2 * max(LIMITS)
    hook = network.reader.blocks[1].register_forward_hook(lambda *given: seen.append(given))
    collected(network, 3, **call_of(network))
    hook.remove()
    assert len(seen) == 3 * max(LIMITS)
    hook = register_module_forward_hook(lambda module, *given: seen.append(given) if module is network.head else None)
    collected(network, 3, **call_of(network))
    hook.remove()
    assert len(seen) == 4 * max(LIMITS)
    assert recorder.records == 0


@pytest.mark.parametrize("choose", CHOICES.values(), ids=CHOICES)
def test_logits_that_are_no_numbers_are_refused(choose, recorder, monkeypatch):
    """What came before is told."""
    network = made_of("decoder", positions="learned")
    given = {**call_of(network), "choose": choose}
    network.reader.positions.weight.data[30] = torch.nan
    ways, seen = [], []
    for write in (lambda: generate(network, **given), lambda: generate(network, **given)):
        ways.append([])
        with pytest.raises(DataError, match=r"logits are not numbers \(NaN\) in row") as refused:
            ways[-1].extend(write())
        seen.append(str(refused.value))
        monkeypatch.delitem(machine.RECORDERS, "cpu", raising=False)
    assert seen[0] == seen[1]
    assert ways[0] == ways[1]
    assert recorder.plays > 0


def test_who_refuses_a_token_sees_its_logits(recorder, monkeypatch):
    """The step after it, which has been asked for already, has nothing to refuse."""
    network, highest = made_of("decoder"), []
    given = call_of(network, ROWS[1:2], 75)
    note = ByLogits(lambda logits: highest.append(logits.amax().item()) or logits)
    plainly(network, monkeypatch, 1, choose=chooser(GREEDY, [note]), **given)
    only = next(each for each in highest[3 * REHEARSALS :] if sum(abs(each - other) < 1e-6 for other in highest) == 1)

    def refusing(logits):
        return logits.masked_fill((logits.amax(-1, keepdim=True) - only).abs() < 1e-7, -torch.inf)

    given["choose"] = chooser(GREEDY, [ByLogits(refusing)])
    seen = []
    for patch in (lambda: None, lambda: monkeypatch.delitem(machine.RECORDERS, "cpu")):
        patch()
        with pytest.raises(ConfigError, match="Each step needs at least one allowed token") as refused:
            collected(network, 1, **given)
        seen.append(str(refused.value))
    assert seen[0] == seen[1]
    assert recorder.plays > 0


def test_a_machine_that_fails_half_way_changes_nothing(recorder, monkeypatch):
    """It returns the work as it was; what the host had counted until then is not counted twice."""

    def fails(work):
        recorder.records += 1
        recording = Recording()
        with monkeypatch.context() as patch, recording:
            patch.setattr(network.head, "forward", lambda hidden: hidden.nothing)
            with pytest.raises(AttributeError):
                work()
        recording.put_back()
        return work

    network = made_of("decoder", convolution=2)
    monkeypatch.setattr(recorder, "record", fails)
    for end in range(40, 60):  # so that it fails at each place before the cache is full
        given = {**call_of(network, limits=70), "stop": lambda row, ids, end=end: row == 1 and len(ids) == end}
        assert collected(network, 3, **given) == plainly(network, monkeypatch, **given)
    assert recorder.records > 20


def test_filters_that_forbid_all_are_named(recorder):
    network = made_of("decoder")
    given = {**call_of(network), "choose": chooser(GREEDY, [without(range(VOCAB))])}
    with pytest.raises(ConfigError, match="Each step needs at least one allowed token; after 0 tokens"):
        collected(network, 3, **given)
    assert ahead_of(given["choose"]) is not None


def test_the_recorder_refuses_what_a_device_would():
    held = torch.zeros(3)
    for work in (lambda: held.sum().item(), lambda: held.nonzero(), lambda: held + torch.tensor([1.0, 2.0, 3.0])):
        with pytest.raises(Forbidden), Recording():
            work()
    with Recording() as recording:
        held += 1
        doubled = held * 2
    recording.put_back()
    assert held.tolist() == [0, 0, 0]
    recording.play()
    assert (held.tolist(), doubled.tolist()) == ([1, 1, 1], [2, 2, 2])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no cuda device here to record on")
@pytest.mark.parametrize("choose", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("shape", BOTH)
def test_a_cuda_graph_writes_the_same(shape, choose, monkeypatch, recwarn):
    network = made_of(shape, positions="rotary", convolution=2).to("cuda")
    given = {**call_of(network), "choose": choose, "eos": 4}
    with monkeypatch.context() as patch:
        patch.delitem(machine.RECORDERS, "cuda")
        expected = collected(network, 3, **given)
    assert collected(network, 3, **given) == expected
    assert not recwarn.list, "all was recorded"


# --- Choices that need not know the last token: those of `Choose`, and a mark where it raises an error


FORBIDS = chooser(GREEDY, [without([0])])
DRAWS = chooser(Sampling(seed=4), [without([0])])
CONTEXT = Context([0, 1, 2], [()] * 3, [[]] * 3)


def chosen(choose, logits):
    ahead = ahead_of(choose)
    drawn = None if ahead.seed is None else torch.tensor(own_uniforms(ahead.seed, CONTEXT))
    return ahead(logits, drawn).tolist()


@pytest.mark.parametrize("choose", [greedy, FORBIDS, DRAWS], ids=["greedy", "filtered", "drawn"])
def test_choices_are_the_same(choose):
    for logits in torch.randn(50, 3, 9):
        assert chosen(choose, logits) == choose(logits, CONTEXT).tolist()


@pytest.mark.parametrize("choose", [FORBIDS, DRAWS], ids=["filtered", "drawn"])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, None], ids=str)
def test_what_is_refused_is_marked(choose, wrong):
    """Also what stands at a token that is forbidden; None: all others are forbidden."""
    logits = torch.zeros(3, 9)
    if wrong is None:
        logits[1, 1:] = -math.inf
    else:
        logits[1, 0] = wrong
    found = chosen(choose, logits)
    assert found[1] == REFUSED
    assert REFUSED not in (found[0], found[2])
    with pytest.raises(ConfigError if wrong is None else DataError):
        choose(logits, CONTEXT)


# --- What a CUDA device is asked for where it refuses to record; its driver is played here


@pytest.fixture
def driver(monkeypatch):
    """Refuses with `error` whatever is recorded, after it was run; counts what it was asked."""

    class Driver:
        error: Exception | None = None
        requested = 0

        @contextlib.contextmanager
        def graph(self, *_, **__):
            Driver.requested += 1
            yield
            if Driver.error is not None:
                raise Driver.error

    made = Driver()
    for name in ("CUDAGraph", "Stream", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: made)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "graph", made.graph)
    made.replay = lambda: None
    yield made
    Driver.error, Driver.requested = None, 0


def test_what_is_recorded_is_done_again(driver):
    done = []
    assert Cuda(torch.device("cuda", 1)).record(lambda: done.append(1)) is driver.replay
    assert done == [1]


def test_a_refusal_is_told_once_and_not_asked_again(driver):
    type(driver).error, cuda, work = RuntimeError("operation not permitted\nmore"), Cuda(torch.device("cuda")), list
    with pytest.warns(UserWarning, match=r"cannot be a CUDA graph here, .* one by one: operation not permitted$"):
        assert cuda.record(work) is work
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cuda.record(work) is work
    assert driver.requested == 1


def test_the_first_of_two_errors_is_told(driver, monkeypatch):
    def fails():
        raise RuntimeError("this asks")

    @contextlib.contextmanager
    def graph(*_, **__):
        try:
            yield
        finally:
            raise RuntimeError("the capture has failed")

    monkeypatch.setattr(torch.cuda, "graph", graph)
    with pytest.warns(UserWarning, match="one by one: this asks$"):
        Cuda(torch.device("cuda")).record(fails)


def test_no_memory_is_no_refusal(driver):
    type(driver).error = torch.OutOfMemoryError("none left")
    with pytest.raises(torch.OutOfMemoryError):
        Cuda(torch.device("cuda")).record(list)
