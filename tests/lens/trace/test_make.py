"""A trace says what the model did: its logits, its tokens, its attention; and changes nothing."""

import json
import math
import struct

import numpy as np
import pytest
import torch

from glassformer import ModelConfig, StackConfig, Transformer, answer, observe, read_trace, trace
from glassformer.base.errors import ConfigError, DataError
from glassformer.data.dataset import Tokenizers
from glassformer.data.tokens.vocabulary import BLANK, BOS, EOS, SEP, Labels
from glassformer.decode.choose import greedy
from glassformer.decode.settings import BeamSettings, Sampling
from glassformer.lens.ablate import place
from glassformer.lens.roles.roles import value_weighted
from glassformer.lens.trace.file import ALIGNED, ENCODINGS, decode, encode, pack, unpack
from glassformer.lens.trace.make import compared, from_bytes
from glassformer.lens.trace.reading import Layout, Manner, read
from glassformer.lens.trace.sight import SIDE, decided, look, shrunk
from glassformer.nn.observe import watch_attention
from glassformer.nn.outputs import Classify, Regress
from lens.explored import LETTERS, planted, small
from specimens import SHAPES, close

TEXT = "abcd"


def inputs(made, model):
    """What the model read, from the header."""
    sequences = made.header["sequences"]
    if model.decoder is None:
        return torch.tensor([sequences["source"]["ids"]]), None
    source = torch.tensor([sequences["source"]["ids"]]) if "source" in sequences else None
    return torch.tensor([sequences["target"]["ids"][:-1]]), source


@pytest.mark.parametrize("shape", SHAPES)
def test_attention_is_what_observe_sees(shape):
    model = small(shape)
    made = trace(model, LETTERS, TEXT, "ab", encoding="f32")
    tokens, source = inputs(made, model)
    with torch.no_grad(), observe(model) as seen:
        model(tokens, source=source)
    assert {place(name)[0] for name in seen} == {group["block"] for group in made.header["attention"]}
    for name, weights in seen.items():
        block, layer = place(name)
        assert torch.equal(torch.tensor(made.attention(block)[layer]), weights[0])


@pytest.mark.parametrize("shape", ["decoder", "encoder-decoder"])
def test_the_replay_has_the_logits_of_the_fast_path(shape, monkeypatch):
    """Each token was chosen through the cache; one pass over all of them comes to the same scores."""
    model, fast = small(shape).double(), []

    def noting(logits, context):
        fast.append(logits[0].float())
        return greedy(logits, context)

    monkeypatch.setattr("glassformer.lens.trace.reading.chooser", lambda *_: noting)
    reading = read(model, LETTERS.encode(TEXT), None, None, manner=Manner(max_new_tokens=7))
    source = None if reading.source is None else torch.tensor([reading.source])
    seen = look(model, torch.tensor([reading.tokens]), source)
    assert len(fast) > 0
    close(seen.logits, model(torch.tensor([reading.tokens]), source=source)[0].float(), tolerance=0)
    for step, logits in enumerate(fast):
        close(seen.logits[reading.n_prompt - 1 + step], logits, tolerance=1e-6)


def test_looking_changes_nothing():
    model = small()
    tokens, source = torch.tensor([[BOS, 7, 8]]), torch.tensor([[6, 9, EOS]])
    before, seams = model(tokens, source=source), [m.attend for m in model.modules() if hasattr(m, "attend")]
    assert torch.equal(look(model, tokens, source).logits, before[0])
    assert torch.equal(model(tokens, source=source), before)
    assert [m.attend for m in model.modules() if hasattr(m, "attend")] == seams
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in model.modules())


def test_steps_are_those_of_the_answer():
    model = small()
    made = trace(model, LETTERS, TEXT, gold="ba", max_new_tokens=8)
    [given] = answer(model, [LETTERS.encode(TEXT)], max_new_tokens=8)
    chosen = [step["chosen"] for step in made.header["steps"]]
    assert chosen == [*given.ids, *([EOS] if given.complete else [])]
    assert made.header["sequences"]["target"]["ids"] == [BOS, *chosen]
    logits = model(torch.tensor([[BOS, *chosen[:-1]]]), source=torch.tensor([[*LETTERS.encode(TEXT), EOS]]))[0]
    p = logits.detach().double().softmax(-1)
    for t, step in enumerate(made.header["steps"]):
        assert step["p"] == pytest.approx(float(p[t, step["chosen"]]), rel=1e-4)
        assert step["rank"] == 0
        assert step["entropy"] == pytest.approx(float(-(p[t] * p[t].log()).sum()), rel=1e-4)
        assert step["top"][0][0] == step["chosen"]
        assert [row[1] for row in step["top"]] == sorted((row[1] for row in step["top"]), reverse=True)
        assert sum(row[1] for row in step["top"]) + step["rest"] == pytest.approx(1, abs=1e-4)
    gold = [*LETTERS.encode("ba"), EOS]
    for step, right in zip(made.header["steps"], gold, strict=False):
        assert step["gold"] == right
        assert step["loss"] == pytest.approx(-float(p[step["pos"], right].log()), rel=1e-4)
    assert [step["gold"] for step in made.header["steps"][len(gold) :]] == [None] * (len(chosen) - len(gold))


def test_a_target_is_read_and_not_written():
    made = trace(small(), LETTERS, TEXT, "dc")
    assert made.header["run"]["mode"] == "forced"
    assert made.header["sequences"]["target"]["ids"] == [BOS, *LETTERS.encode("dc"), EOS]
    assert [step["gold"] for step in made.header["steps"]] == [*LETTERS.encode("dc"), EOS]


def test_an_encoder_fills_its_blanks():
    made = trace(small("encoder"), LETTERS, TEXT, gold="ab")
    ids = LETTERS.encode(TEXT)
    assert made.header["sequences"]["source"]["ids"] == [*ids, SEP, BLANK, BLANK]
    assert [step["pos"] for step in made.header["steps"]] == [len(ids) + 1, len(ids) + 2]
    assert made.header["run"]["mode"] == "fill"
    masked = trace(small("encoder"), LETTERS, TEXT, layout=Layout(masked=True))
    assert masked.header["sequences"]["source"]["ids"] == ids
    assert len(masked.header["steps"]) == len(ids)


def test_a_decoder_goes_on_from_its_prompt():
    made = trace(small("decoder"), LETTERS, TEXT, max_new_tokens=3)
    target = made.header["sequences"]["target"]
    assert target["ids"][: target["n_prompt"]] == [BOS, *LETTERS.encode(TEXT)]
    assert len(target["ids"]) <= target["n_prompt"] + 3
    assert made.header["steps"][0]["chosen"] == LETTERS.encode(TEXT)[0], "what stands in the prompt is no choice"
    bare = trace(small("decoder"), LETTERS, TEXT, layout=Layout(begins=False), max_new_tokens=1)
    assert bare.header["sequences"]["target"]["ids"][0] == LETTERS.encode("a")[0]


def test_masks_are_named_by_their_rule():
    def named(**settings):
        return {it["block"]: it["mask"] for it in trace(small(**settings), LETTERS, TEXT, "a").header["attention"]}

    assert named() == {"encoder": "none", "decoder": "causal", "cross": "none"}
    made = trace(small("decoder", window=2), LETTERS, TEXT, "a")
    assert made.header["attention"][0]["mask"] == "explicit"
    allowed = made.buffers["m.decoder"][1]
    assert allowed.sum(-1).max() == 2
    assert ((made.attention("decoder") > 0).any((0, 1)) <= allowed.astype(bool)).all()


def test_logit_lens_ends_in_the_logits():
    made = trace(small(), LETTERS, TEXT, max_new_tokens=4)
    lens = made.header["lens"]
    assert lens["names"] == ["input", "block 0", "block 1"]
    for step in made.header["steps"]:
        assert lens["p"][-1][step["pos"]] == pytest.approx(step["p"], rel=1e-4)
        assert lens["top"][-1][step["pos"]][0][0] == step["top"][0][0]


def test_a_classifier_gives_labels():
    stack = StackConfig(d_model=16, n_heads=2, n_layers=1, d_ff=16)
    model = Transformer(ModelConfig(LETTERS.vocab_size, encoder=stack, head=Classify(3)))
    made = trace(model, Tokenizers(LETTERS, Labels(["bad", "fine", "good"])), TEXT)
    assert sum(p for _, p in made.header["labels"]) == pytest.approx(1)
    assert {name for name, _ in made.header["labels"]} == {"bad", "fine", "good"}
    assert made.header["steps"] == []


def test_numbers_of_a_text_have_names():
    stack = StackConfig(d_model=16, n_heads=2, n_layers=1, d_ff=16)
    model = Transformer(ModelConfig(LETTERS.vocab_size, encoder=stack, head=Regress(2))).eval()
    made = trace(model, Tokenizers(LETTERS, Labels(["price", "area"])), TEXT)
    assert made.header["run"]["mode"] == "number"
    with torch.no_grad():
        (given,) = model(torch.tensor([made.header["sequences"]["source"]["ids"]])).tolist()
    assert made.header["labels"] == [
        ["price", pytest.approx(given[0], rel=1e-5)],
        ["area", pytest.approx(given[1], rel=1e-5)],
    ]


def test_what_cannot_be_traced_is_refused():
    stack = StackConfig(d_model=16, n_heads=2, n_layers=1, d_ff=16)
    with pytest.raises(ConfigError, match="head 'regress'"):
        trace(Transformer(ModelConfig(LETTERS.vocab_size, encoder=stack, head=Regress(1, "none"))), LETTERS, TEXT)
    with pytest.raises(DataError, match="at most 4096"):
        trace(small(), LETTERS, "a" * 5000)
    with pytest.raises(DataError, match="at most 4 tokens"):
        trace(small("decoder", max_len=4), LETTERS, TEXT + "e")
    with pytest.raises(DataError, match=r"at most 67,108,864; a text of 3000 tokens has 72,\d+"):
        trace(small("decoder"), LETTERS, "a" * 2999, "a")
    with pytest.raises(ConfigError, match="encoding"):
        trace(small(), LETTERS, TEXT, "a", encoding="u8")
    with pytest.raises(DataError, match="encoder, decoder, cross"):
        trace(small(), LETTERS, TEXT, "a").attention("memory")


@pytest.mark.parametrize("shape", SHAPES)
def test_value_weighted_maps_can_be_had_from_the_trace(shape):
    """Weights times the sizes that are kept are what `value_weighted` makes of the forward itself."""
    model = small(shape, n_kv_heads=2)
    made = trace(model, LETTERS, TEXT, "ab", encoding="f32")
    tokens, source = inputs(made, model)
    calls = {}
    with torch.no_grad(), watch_attention(model, lambda call: calls.__setitem__(place(call.name), call)):
        model(tokens, source=source)
    for (block, layer), call in calls.items():
        weights = torch.tensor(made.attention(block)[layer])
        columns = call.attention.output.weight.unflatten(1, (-1, call.attention.d_head))
        wanted = value_weighted(weights[None], call.v, columns)[0]
        sized = weights * torch.tensor(made.buffers[f"v.{block}"][1][layer])[:, None]
        assert (sized / sized.sum(-1, keepdim=True) - wanted).abs().max() < 1e-6


@pytest.mark.parametrize("shape", SHAPES)
def test_the_terms_of_each_step_sum_to_its_logit(shape):
    made = trace(small(shape), LETTERS, TEXT, "ab")
    names, terms = made.header["attribution"]["names"], made.buffers["attribution"][1]
    assert terms.shape == (len(names), len(made.header["steps"]))
    for step, column in zip(made.header["steps"], terms.T, strict=True):
        logit = made.buffers["logits"][1][step["pos"], step["chosen"]]
        assert float(column.sum()) == pytest.approx(float(logit), abs=1e-4)


def test_a_head_over_labels_has_no_terms():
    stack = StackConfig(d_model=16, n_heads=2, n_layers=1, d_ff=16)
    made = trace(Transformer(ModelConfig(LETTERS.vocab_size, encoder=stack, head=Classify(3))), LETTERS, TEXT)
    assert "attribution" not in made.header


# --- Two traces side by side: the answer of the one, behind the texts of both


CPU = torch.device("cpu")


def two(shape):
    """Traces of one model, of two texts with two answers."""
    model = small(shape)
    return [trace(model, LETTERS, text, answer).header for text, answer in (("abc", "fg"), ("abd", "hi"))]


def ids(text):
    return LETTERS.encode(text)


def test_an_encoder_decoder_reads_the_other_source_and_the_ones_answer():
    one, other = two("encoder-decoder")
    given, changed, answer_ids = compared(one, other, CPU)
    assert given.tokens.tolist() == changed.tokens.tolist() == [[1, *ids("fg")]]
    assert given.source.tolist() == [[*ids("abc"), 2]]
    assert changed.source.tolist() == [[*ids("abd"), 2]]
    assert answer_ids == [*ids("fg"), 2]


def test_a_decoder_goes_on_from_the_other_text_with_the_ones_answer():
    one, other = two("decoder")
    given, changed, answer_ids = compared(one, other, CPU)
    assert given.tokens.tolist() == [[1, *ids("abc"), *ids("f")]]
    assert changed.tokens.tolist() == [[1, *ids("abd"), *ids("f")]]
    assert answer_ids == [None, None, None, *ids("fg")]


def test_an_encoder_is_asked_for_what_it_said_to_the_one():
    one, other = two("encoder")
    given, changed, answer_ids = compared(one, other, CPU)
    assert given.tokens.tolist() == [one["sequences"]["source"]["ids"]]
    assert changed.tokens.tolist() == [other["sequences"]["source"]["ids"]]
    assert [each for each in answer_ids if each is not None] == [step["chosen"] for step in one["steps"]]


def test_labels_are_refused():
    stack = StackConfig(d_model=16, n_heads=2, n_layers=1, d_ff=16)
    model = Transformer(ModelConfig(LETTERS.vocab_size, encoder=stack, head=Classify(3)))
    header = trace(model, LETTERS, "ab").header
    with pytest.raises(DataError, match="gives labels"):
        compared(header, header, CPU)


# --- What is known of a head before its weights are: no line of a map is lost in its small picture


@pytest.mark.parametrize("shape", [(130, 200), (64, 65), (700, 3), (1, 129)])
def test_each_cell_is_the_largest_of_those_it_stands_for(shape):
    weights = np.random.default_rng(0).random((2, 3, *shape))
    small = shrunk(weights)
    rows, columns = (min(each, SIDE) for each in shape)
    assert small.shape == (2, 3, rows, columns)
    tops, lefts = ([*(np.arange(n) * length // n), length] for n, length in zip((rows, columns), shape, strict=True))
    for i in range(rows):
        for j in range(columns):
            part = weights[:, :, tops[i] : tops[i + 1], lefts[j] : lefts[j + 1]]
            assert (small[:, :, i, j] == part.max((-2, -1))).all()


def test_a_small_map_stays_as_it_is():
    weights = np.random.default_rng(0).random((1, 1, SIDE, SIDE))
    assert (shrunk(weights) == weights).all()


def test_confidence_and_entropy():
    """By hand: one head reads one key of four, another all alike; a row that sums to 4 is taken as shares."""
    sure = np.tile([0.0, 1.0, 0.0, 0.0], (3, 1))
    even = np.full((3, 4), 0.25)
    double = np.full((3, 4), 1.0)
    found = decided(np.stack([sure, even, double])[None])
    assert found["confidence"] == [[1.0, 0.25, 1.0]]
    assert found["entropy"] == [pytest.approx([0.0, math.log(4), math.log(4)], abs=1e-5)]
    assert decided(np.zeros((1, 1, 2, 3))) == {"confidence": [[0.0]], "entropy": [[0.0]]}


# --- The file of a trace: what is written comes back, and what is damaged is named by its field


def test_what_is_saved_comes_back(tmp_path):
    made, _ = planted(encoding="sqrt255")
    path = made.save(tmp_path / "one.gft")
    again = read_trace(path)
    written = {name: value for name, value in again.header.items() if name not in ("buffers", "format", "version")}
    assert written == made.header
    assert again.header["format"] == "gft"
    for name, (encoding, stored) in made.buffers.items():
        assert again.buffers[name][0] == encoding
        assert np.array_equal(again.buffers[name][1], stored)
    assert again.to_bytes() == path.read_bytes()


def test_buffers_are_aligned_and_little_endian():
    data = planted(encoding="sqrt255")[0].to_bytes()
    header, _ = unpack(data)
    (length,) = struct.unpack("<I", data[4:8])
    assert data[:4] == b"GFT1"
    assert (8 + length) % ALIGNED == 0
    assert all(entry["offset"] % ALIGNED == 0 for entry in header["buffers"].values())
    at = 8 + length + header["buffers"]["logits"]["offset"]
    assert struct.unpack("<f", data[at : at + 4])[0] == planted()[0].buffers["logits"][1][0, 0]


def test_numbers_that_are_not_finite_are_null():
    made, _ = planted()
    made.header["steps"][0]["p"] = float("nan")
    assert unpack(made.to_bytes())[0]["steps"][0]["p"] is None


def test_unknown_fields_are_left_alone():
    made, _ = planted()
    made.header["later"] = {"made": "by another version"}
    assert unpack(made.to_bytes())[0]["later"] == {"made": "by another version"}


def remade(change):
    """The bytes of a trace whose header was changed behind the writer's back."""
    data = planted()[0].to_bytes()
    (length,) = struct.unpack("<I", data[4:8])
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % ALIGNED)
    return data[:4] + struct.pack("<I", len(text)) + text + data[8 + length :]


DAMAGES = {
    "header.attribution.buffer": lambda h: h.update(attribution={"names": ["input"], "buffer": "logits"}),
    "header.version": lambda h: h.update(version=2),
    "header.steps": lambda h: h.pop("steps"),
    "header.steps[0].rank": lambda h: h["steps"][0].update(rank=-1),
    "header.steps[0].chosen": lambda h: h["steps"][0].update(chosen=True),
    "header.model.kind": lambda h: h["model"].update(kind="rnn"),
    "header.sequences.source.ids[1]": lambda h: h["sequences"]["source"]["ids"].__setitem__(1, "b"),
    "header.sequences.source.text": lambda h: h["sequences"]["source"]["text"].pop(),
    "header.attention[0].q_len": lambda h: h["attention"][0].update(q_len=4),
    "header.attention[0].buffer": lambda h: h["attention"][0].update(buffer="nothing"),
    "header.attention[1].mask_buffer": lambda h: h["attention"][1].update(mask="explicit"),
    "header.buffers.a.cross.nbytes": lambda h: h["buffers"]["a.cross"].update(nbytes=8),
    "header.buffers.a.cross.offset": lambda h: h["buffers"]["a.cross"].update(offset=10**9),
    "header.buffers.a.cross.shape": lambda h: h["buffers"]["a.cross"]["shape"].reverse(),
    "header.buffers.a.cross.encoding": lambda h: h["buffers"]["a.cross"].update(encoding="jpeg"),
}


@pytest.mark.parametrize("field", DAMAGES)
def test_damage_is_named_by_its_field(field):
    with pytest.raises(DataError) as caught:
        unpack(remade(DAMAGES[field]))
    assert field in str(caught.value)


@pytest.mark.parametrize(("damage", "word"), [
    (lambda data: b"PK\x03\x04" + data[4:], "GFT1"),
    (lambda data: data[:6], "fit into its file"),
    (lambda data: data[:4] + struct.pack("<I", 10**9) + data[8:], "fit into its file"),
    (lambda data: data[:8] + b"}" + data[9:], "JSON"),
    (lambda data: data[:-8], "offset"),
], ids=["magic", "short", "length", "json", "cut"])  # fmt: skip
def test_a_damaged_file_is_refused(damage, word):
    with pytest.raises(DataError, match=word):
        unpack(damage(planted()[0].to_bytes()))


def test_a_trace_of_a_later_version_is_left_to_its_program():
    with pytest.raises(DataError, match=r"reads traces of version 1 .* got 2. Open it with the version that wrote it"):
        unpack(remade(lambda header: header.update(version=2, attention="of another kind")))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_trace(tmp_path / "none.gft")


@pytest.mark.parametrize(("encoding", "most"), [("sqrt255", 0.004), ("u16", 1e-5), ("f32", 0.0)])
def test_quantising_loses_no_more_than_it_says(encoding, most):
    weights = np.random.default_rng(1).dirichlet(np.full(40, 0.1), size=200).astype(np.float32)
    again = decode(encode(weights, encoding), encoding)
    assert encode(weights, encoding).dtype == np.dtype(ENCODINGS[encoding].dtype)
    assert np.abs(again - weights).max() <= most
    assert np.abs(again.sum(-1) - 1).max() <= 0.011


def test_zero_stays_zero_and_one_stays_one():
    for encoding in ("sqrt255", "u16", "f32"):
        assert decode(encode(np.array([0.0, 1.0], np.float32), encoding), encoding).tolist() == [0.0, 1.0]


def test_a_writer_cannot_write_what_a_reader_refuses():
    made, _ = planted()
    header = {name: value for name, value in made.header.items() if name != "steps"}
    with pytest.raises(DataError, match="steps"):
        pack(header, made.buffers)


# --- How a trace's answer comes to be: a beginning is kept, a beam is that of all commands, and its tree is whole


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
