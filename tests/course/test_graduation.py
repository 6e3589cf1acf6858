"""Graduation: how a learner's model is built is read from its calls, and it equals ours in values and gradients."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from glassformer.base.errors import DataError
from glassformer.learn import finish
from glassformer.learn.carry import CLOSE, SIZES, Learner, compare, read
from glassformer.learn.course import read_course
from glassformer.learn.report import Checked, Verdict
from glassformer.learn.workspace import Workspace
from glassformer.proof.check.calling import scramble
from glassformer.proof.check.examine import load
from glassformer.proof.laws.notebooks import notebook_file, parts
from glassformer.train.finished.loading import load_run
from glassformer.train.recipe import load_recipe

NOTEBOOKS = Path(__file__).parents[2].parent / "shared" / "notebooks"
COURSE = read_course()
OURS = COURSE.solution_file()
MAPS = "self.query, self.key, self.value, self.output = (nn.Linear(d_model, d_model) for _ in range(4))"
MAPPED = "mapped = self.query(query), self.key(key), self.value(key if value is None else value)"
FUSED = "self.qkv, self.output = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)"
CUT = "mapped = [self.qkv(x).chunk(3, -1)[n] for n, x in enumerate((query, key, key if value is None else value))]"
OTHER_SIGNATURE = [
    ("def __init__(self, source_vocab, target_vocab, d_model, n_heads, n_layers, d_ff, max_len, dropout=0.0):\n",
     "def __init__(self, src_vocab, tgt_vocab, emb_dim, num_heads, n_encoder_layers, n_decoder_layers, dff):\n"
     "        source_vocab, target_vocab, d_model, n_heads, n_layers, d_ff, max_len, dropout = (\n"
     "            src_vocab, tgt_vocab, emb_dim, num_heads, n_encoder_layers, dff, 90, 0.0)\n"),
    ("self.encoder(source, None if source_keep is None else source_keep[:, None, None])",
     "self.encoder(source, source_keep)"),
    ("mask = causal_mask(target.size(1)).to(target.device)\n        keep = None if source_keep is None else "
     "source_keep[:, None, None]\n", "keep, mask = source_keep\n"),
    ("forward(self, source, target, source_keep=None):\n        return self.decode(target, self.encode(source, "
     "source_keep), source_keep)",
     "forward(self, src, tgt, src_mask, tgt_mask):\n"
     "        return self.decode(tgt, self.encode(src, src_mask), (src_mask, tgt_mask)), None"),
]  # fmt: skip
"""Other names of arguments, no max_len, masks that are given, and a second output."""
VARIANTS = {
    "post-norm, relu, 2 + 2 layers, separate maps": [],
    "norm first, gelu, 2 + 2 layers, separate maps": [
        ("norm_first=False", "norm_first=True"), ('activation="relu"', 'activation="gelu"')],
    "post-norm, relu, 2 + 2 layers, one map": [(MAPS, FUSED), (MAPPED, CUT)],
    "post-norm, relu, 2 + 2 layers, separate maps for query, key and value, scaled": [
        ("self.output(self.norm(x))", "self.output(x)"), ("        self.norm = nn.LayerNorm(d_model)\n", "")],
    "post-norm, relu, 2 + 2 layers, separate maps for query, key and value, unscaled": [
        ("self.table(ids) * self.factor", "self.table(ids)")],
    "post-norm, relu, 2 + 2 layers, separate": OTHER_SIGNATURE,
}  # fmt: skip


@pytest.fixture
def model_of(tmp_path):
    def make(*changes: tuple[str, str]):
        text = OURS
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        path = tmp_path / "my_transformer.py"
        path.write_text(text, "utf-8")
        return scramble(Learner(load(path).Transformer, SIZES))

    return make


@pytest.mark.parametrize("message", VARIANTS)
def test_read_and_equal(model_of, message):
    model = model_of(*VARIANTS[message])
    found = read(model)
    assert found.sentence().startswith(f"yours: {message}")
    assert compare(model, found).equal


@pytest.mark.parametrize(
    ("before", "after", "where"),
    [
        ("x = block(x, memory, mask, keep)", "x = block(x, memory, mask)", "cross_attention.branch.output"),
        ("return self.down(self.activation(self.up(x)))", "return self.down(self.activation(self.up(x)) + 1)",
         "feed_forward.branch.down"),
        ("math.sqrt(q.size(-1))", "q.size(-1)", "self_attention.branch.output"),
    ],
)  # fmt: skip
def test_a_gap_is_found_where_it_begins(model_of, before, after, where):
    model = model_of((before, after))
    gaps = compare(model, read(model))
    assert not gaps.equal
    assert gaps.values > CLOSE
    assert gaps.where.endswith(where)


def test_what_cannot_be_read_is_said(model_of):
    with pytest.raises(DataError, match="2 blocks should call 6 norms"):
        read(model_of(("return self.norm3(x + self.dropout(self.feed_forward(x)))", "return x + self.feed_forward(x)")))
    model = model_of(("self.output = nn.Linear(d_model, target_vocab)", "self.output = nn.Bilinear(1, 1, 1)"),
                     ("return self.output(self.norm(x))\n\n    def forward(self, source",
                      "return self.norm(x)\n\n    def forward(self, source"))  # fmt: skip
    with pytest.raises(DataError, match="linear map to the words"):
        read(model)


def checked(place: Workspace, state: str = "done") -> Checked:
    return Checked(place.path, verdicts={each.id: Verdict(each.id, state) for each in COURSE.exercises})


def test_open_exercises_come_first(tmp_path):
    lines: list[str] = []
    place = Workspace(COURSE, tmp_path)
    assert finish.graduate(place, checked(place, "fails"), False, "", lines.append) == 3
    assert lines[0].startswith("Still open: 1.1 Softmax")
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
@pytest.mark.shapes(False)
def test_the_whole_way(tmp_path, monkeypatch):
    """With few updates nothing is learned, and that is said; the run opens, and holds the weights that were trained."""
    monkeypatch.setattr(finish, "STEPS", 10)
    place, lines = Workspace(COURSE, tmp_path), []
    place.path.write_text(OURS, "utf-8")
    assert finish.graduate(place, checked(place), True, "", lines.append) == 3
    assert any("Not learned well enough: copy" in line for line in lines)
    plain = json.loads((tmp_path / "runs" / "mine" / "graduation.json").read_text("utf-8"))
    assert plain["passed"] is False
    run = tmp_path / "runs" / "mine"
    assert load_run(run, load_recipe(run / "recipe.toml")).model.config.head_bias
    monkeypatch.setattr(finish, "ENOUGH", 0.0)
    assert finish.graduate(place, checked(place), True, "Ada <b>", lines.append) == 0
    page = (tmp_path / "diploma.html").read_text("utf-8")
    assert "Ada &lt;b&gt;" in page
    assert "http" not in page.replace("http-equiv", "")


@pytest.mark.slow
@pytest.mark.shapes(False)
def test_what_was_trained_is_read_again(tmp_path, monkeypatch):
    """Tables of positions are made in float32: that does not hide which activation and which layout were trained."""
    monkeypatch.setattr(finish, "STEPS", 5)
    text = OURS
    for before, after in VARIANTS["post-norm, relu, 2 + 2 layers, one map"]:
        text = text.replace(before, after)
    path = tmp_path / COURSE.file
    path.write_text(text.replace('activation="relu"', 'activation="gelu"'), "utf-8")
    kind = load(path).Transformer
    reading = finish.proved(kind, lambda _: None)
    assert reading is not None
    assert finish.learned(kind, reading, "copy", lambda _: None).model.config.stack.activation == "gelu"


def test_a_file_without_an_encoder_decoder_is_named(tmp_path):
    path = tmp_path / "parts.py"
    path.write_text("def softmax(x):\n    return x\n")
    with pytest.raises(DataError, match=r"parts\.py has no encoder-decoder: a class called Transformer, or Seq2Seq"):
        finish.graduate_file(path, tmp_path, True, "", print, 60.0)


@pytest.mark.slow
def test_a_model_that_fails_the_check_is_not_proved(tmp_path):
    lines: list[str] = []
    path = tmp_path / "seq2seq.py"
    leaky = OURS.replace("class Transformer(", "class Seq2Seq(").replace(".tril()", "")
    path.write_text(leaky, "utf-8")
    assert finish.graduate_file(path, tmp_path, True, "", lines.append, 60.0) == 3
    assert "causal: queries read the future" in lines[0]
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
@pytest.mark.shapes(False)
@pytest.mark.skipif(not NOTEBOOKS.is_dir(), reason="the notebooks are not here")
def test_the_model_of_tutorial_004_graduates(tmp_path):
    """As it stands there: masks are given to it, it has no max_len, and its parts have other names than ours."""
    lines: list[str] = []
    found = notebook_file(NOTEBOOKS, "004")
    path = tmp_path / "translator.py"
    path.write_text(ast.unparse(ast.Module([*parts(found)], [])), "utf-8")
    assert finish.graduate_file(path, tmp_path, False, "", lines.append, 60.0) == 0
    plain = json.loads((tmp_path / "runs" / "translator" / "graduation.json").read_text("utf-8"))
    assert plain["passed"] is True
    assert [each["exact_match"] for each in plain["tasks"].values()] == [1.0, 1.0]
    assert (tmp_path / "diploma.html").is_file()
