"""Every law that `glassformer verify` tries holds in float64, and a law that is broken is seen."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from glassformer.proof.laws import LAWS, hugging_face, notebooks
from glassformer.proof.laws.law import Law, NotHere, Setting, apart, judge, same_gradients

NOTEBOOKS = Path(__file__).parents[2].parent / "shared" / "notebooks"
SETTING = Setting(torch.device("cpu"), torch.float64, NOTEBOOKS if NOTEBOOKS.is_dir() else None)


def named(laws):
    return pytest.mark.parametrize("law", laws, ids=lambda law: f"{law.group}: {law.claim}")


@named([law for law in LAWS if law not in hugging_face.LAWS])
def test_law_holds(law):
    check(law)


@named(hugging_face.LAWS)
def test_law_beside_hugging_face_holds(law):
    check(law)


def check(law):
    verdict = judge(law, SETTING)
    if verdict.missing:
        pytest.skip(verdict.missing)
    assert verdict.holds, verdict
    assert verdict.cases > 0


@pytest.mark.parametrize(("errors", "exact", "holds"), [
    ([0.0, 1e-13], False, True),
    ([0.0, 1e-11], False, False),
    ([0.0, 1e-13], True, False),
    ([0.0], True, True),
    ([math.nan, 0.0], False, False),
    ([], False, False),
])  # fmt: skip
def test_verdict(errors, exact, holds):
    assert judge(Law("group", "claim", lambda setting: iter(errors), exact), SETTING).holds == holds


def test_bound_is_that_of_the_numbers():
    """Where the other side computes in float32, an error of float32 is none; elsewhere it is."""
    one = Law("group", "claim", lambda setting: iter([1e-7]))
    assert not judge(one, SETTING).holds
    assert judge(one._replace(narrow=True), SETTING).holds
    assert judge(one._replace(narrow=True), SETTING).bound == judge(one, SETTING._replace(dtype=torch.float32)).bound


@named(hugging_face.LAWS)
def test_law_beside_hugging_face_sees_a_wrong_loss_and_a_wrong_logit(law, monkeypatch):
    """No error is scaled away: with every difference taken a thousandfold too large, each law is broken."""
    pytest.importorskip("transformers")
    monkeypatch.setattr(hugging_face, "apart", lambda ours, theirs: apart(ours, theirs * 1.01))
    assert not judge(law, SETTING).holds


def test_law_that_cannot_be_tried_says_what_is_missing():
    def errors(setting):
        yield 0.0
        raise NotHere("the moon is not here")

    verdict = judge(Law("group", "claim", errors), SETTING)
    assert (verdict.missing, verdict.holds, verdict.cases) == ("the moon is not here", True, 0)


# --- notebooks that are not here are stood in for: one with the flaw, and one that was mended


class Encoding(torch.nn.Module):
    """A table of positions of even width and a fixed length."""

    def __init__(self, d_model, max_len):
        super().__init__()
        angles = torch.arange(max_len)[:, None] * torch.exp(torch.arange(0, d_model, 2) * (-math.log(10_000) / d_model))
        pe = torch.zeros(max_len, d_model)
        pe[:, 0::2], pe[:, 1::2] = angles.sin(), angles.cos()
        self.register_buffer("pe", pe[None])

    def forward(self, x):
        return x + self.pe[:, : x.shape[1]]


class MendedEncoding(Encoding):
    """It takes odd widths, and any length."""

    def __init__(self, d_model, max_len):
        super().__init__(d_model + d_model % 2, max_len)

    def forward(self, x):
        return x


class Heads(torch.nn.Module):
    """Attention of 4 heads, in the names of notebook 000."""

    zeros = False

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.W_q, self.W_k, self.W_v, self.W_o = (torch.nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, mask=None):
        q, k, v = (each(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for each in (self.W_q, self.W_k, self.W_v))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, -1e9 if self.zeros else -math.inf)
        return self.W_o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class MendedHeads(Heads):
    """A row that may read nothing reads something."""

    zeros = True


@pytest.mark.parametrize("mended", [False, True], ids=["flawed", "mended"])
@pytest.mark.parametrize("law", ["odd_width", "nothing_to_read"])
def test_a_notebook_without_its_flaw_is_seen(law, mended, monkeypatch):
    classes = {
        "PositionalEncoding": MendedEncoding if mended else Encoding,
        "MultiHeadSelfAttention": MendedHeads if mended else Heads,
    }
    monkeypatch.setattr(notebooks, "notebook", lambda setting, number: classes)
    monkeypatch.setattr(notebooks, "ATTENTIONS", {"000": notebooks.ATTENTIONS["000"]})
    verdict = judge(Law("notebooks", law, getattr(notebooks, law)), SETTING)
    assert verdict.holds == (not mended), verdict
    assert verdict.cases > 3


def test_errors_are_seen():
    x = torch.tensor([1.0, 100.0], dtype=torch.float64)
    assert apart(x, x) == 0.0
    assert apart(x + 1, x) == pytest.approx(1.0)
    assert apart(x[:1], x) == math.inf
    assert math.isnan(apart(x * math.nan, x))
    assert same_gradients({"a": x}, {"a": x, "b": x}) == math.inf


# --- notebooks in the user's own files


def test_code_cells_of_a_notebook_an_export_and_a_module(tmp_path):
    cells = [
        "import torch\n!pip install torch\n%matplotlib inline\nimport matplotlib.pyplot as plt",
        "class TransformerEncoderBlock:\n    pass\n\nclass TransformerDecoderBlock:\n    pass\n",
        "raise RuntimeError('a demo')\ndef after(): return 1",
    ]
    as_notebook = {"cells": [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]}
    as_notebook["cells"].insert(1, {"cell_type": "markdown", "source": ["# No code"]})
    prose = "What this shows\n\n- no code, an apostrophe's trap (\n"
    for name, text in (
        ("mine.ipynb", json.dumps(as_notebook)),
        ("mine.txt", "A title\n" + "".join(f"In [None]:\n{cell}\n{prose}" for cell in cells)),
        ("fenced.txt", "".join(f"{prose}```python\n{cell}\n```\n" for cell in cells)),
        ("mine.py", "\n".join(cells)),
    ):
        folder = tmp_path / name.replace(".", "-")
        folder.mkdir()
        (folder / name).write_text(text, "utf-8")
        found = notebooks.notebook_file(folder, "003")
        assert found == folder / name, name
        assert {"TransformerEncoderBlock", "TransformerDecoderBlock", "after"} <= {*notebooks.definitions(found)}
        assert notebooks.notebook_file(folder, "004") is None


def test_a_notebook_that_is_not_there_is_named_with_what_is(tmp_path):
    (tmp_path / "lesson.py").write_text("def attention(): ...\n", "utf-8")
    verdict = judge(Law("notebooks", "claim", notebooks.odd_width), SETTING._replace(notebooks=tmp_path))
    assert all(word in verdict.missing for word in ("000*.ipynb", "PositionwiseFFN", "it holds lesson.py"))


@pytest.mark.parametrize(("name", "text", "why"), [
    ("000.ipynb", '{"cells": 5}', "cannot be read: TypeError"),
    ("000.ipynb", "{", "cannot be read: JSONDecodeError"),
    ("000.py", "import no_such_module_at_all", "cannot be read: ModuleNotFoundError: No module named 'no_such"),
    ("000.txt", "class A: pass", "does not define MultiHeadSelfAttention, PositionwiseFFN, TransformerEncoder"),
    ("mine.ipynb", '{"cells": [5]}', "it holds mine.ipynb"),
])  # fmt: skip
def test_a_notebook_that_cannot_be_read_is_named_and_not_tried(tmp_path, name, text, why):
    (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(NotHere, match=why):
        notebooks.notebook(SETTING._replace(notebooks=tmp_path), "000")
