"""The file of a trace: what is written comes back, and what is damaged is named by its field."""

import json
import struct

import numpy as np
import pytest

from glassformer import read_trace
from glassformer.base.errors import DataError
from glassformer.lens.trace.file import ALIGNED, ENCODINGS, decode, encode, pack, unpack
from lens.explored import planted


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


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (lambda data: b"PK\x03\x04" + data[4:], "GFT1"),
        (lambda data: data[:6], "fit into its file"),
        (lambda data: data[:4] + struct.pack("<I", 10**9) + data[8:], "fit into its file"),
        (lambda data: data[:8] + b"}" + data[9:], "JSON"),
        (lambda data: data[:-8], "offset"),
    ],
    ids=["magic", "short", "length", "json", "cut"],
)
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
