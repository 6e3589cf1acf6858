"""What happens around the probing: bad files, signatures, code that hangs or ends Python, and the command itself."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from documents import TEXTS, section, tables
from glassformer.base.errors import DataError
from glassformer.cli.main import main
from glassformer.proof.check.examine import SUBJECTS, check_file
from glassformer.proof.check.file import DOCUMENTED, check, names_in, run_child
from glassformer.proof.check.property import Report, as_text
from proof.learners import ATTENTION, BLOCK, CAUSAL, ENCODING, GREEDY, HEADS, SHIFT, STACK
from proof.planted import FILL


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "learner.py"
    path.write_text(text, "utf-8")
    return path


def report(path: Path, *only: str):
    """In this process, which is quicker."""
    return check_file(path, names_in(path), only).as_json()


def test_every_documented_name_is_probed():
    assert {*SUBJECTS} == {*DOCUMENTED}


def test_the_document_lists_every_subject():
    text = section(TEXTS["docs/check.md"], "What the file may hold")
    listed = [re.findall(r"`(\w+)\(", row[0]) for row in tables(text)]
    assert {name for names in listed for name in names} - {"forward", "fit"} == {*DOCUMENTED}


@pytest.mark.parametrize("kind", SUBJECTS)
def test_properties_are_named_once_and_need_earlier_ones(kind):
    names = [each.name for each in SUBJECTS[kind].properties]
    assert len(names) == len({*names})
    for place, each in enumerate(SUBJECTS[kind].properties):
        assert not {*each.needs} & {*names[place:]}, each.name
        assert each.law.endswith(".")


# --- files that cannot be checked


@pytest.mark.parametrize(("text", "facts"), [
    ("x = 1\ndef attention(q, k v):\n    pass\n", ["line 2", "def attention(q, k v):"]),
    ("def attend(): ...\n", ["nothing to check", "attention", "defines attend"]),
    ("", ["nothing to check", "defines nothing"]),
])  # fmt: skip
def test_unreadable_file(tmp_path, text, facts):
    with pytest.raises(DataError) as refused:
        names_in(written(tmp_path, text))
    assert all(fact in str(refused.value) for fact in facts), refused.value


def test_no_such_file(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        names_in(tmp_path / "none.py")
    with pytest.raises(DataError, match="is a folder"):
        names_in(tmp_path)


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "learner.py").write_bytes(b"def attention(): '\xff'\n")
    with pytest.raises(DataError, match=r"learner\.py"):
        names_in(tmp_path / "learner.py")


def test_import_that_fails_shows_the_learners_line(tmp_path):
    path = written(tmp_path, "import torch\n\nsize = torch.ones(3) @ torch.ones(4)\ndef causal_mask(n): ...\n")
    with pytest.raises(DataError, match=r"learner.py, line 3: size = torch.ones\(3\)"):
        report(path)


def test_what_was_saved_in_the_same_second_is_seen(tmp_path, monkeypatch):
    """Python's bytecode is kept by time in seconds and size, and two saves may share both."""
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    for end, mistakes in (("1", ["off by one: a query may read the next token"]), ("0", [])):
        path = written(
            tmp_path, f"import torch\n\n\ndef causal_mask(n):\n    return torch.ones(n, n).tril({end}).bool()\n"
        )
        os.utime(path, (1e9, 1e9))
        assert [each.mistake for each in check_file(path, ["causal_mask"]).pieces[0].faults] == mistakes
    assert [each.name for each in tmp_path.iterdir()] == ["learner.py"]


def test_import_that_ends_the_program(tmp_path):
    with pytest.raises(DataError, match="__main__"):
        report(written(tmp_path, "def causal_mask(n): ...\nraise SystemExit(0)\n"))


# --- pieces that cannot be probed


@pytest.mark.parametrize(("text", "facts"), [
    ("def attention(q, k): return q", ["attention(q, k, v, mask=None)", "found (q, k)"]),
    ("def causal_mask(): return 1", ["causal_mask(n)", "found ()"]),
    ("class MultiHeadAttention:\n    def __init__(self, d): ...", ["MultiHeadAttention(d_model, n_heads)", "(d)"]),
    ("class MultiHeadAttention:\n    def __init__(self, d, h): ...", ["not an nn.Module"]),
    ("def attention(q, k, v):\n    return q / nothing", ["NameError", "line 2: return q / nothing"]),
    ("def causal_mask(n):\n    raise SystemExit", ["SystemExit"]),
])  # fmt: skip
def test_piece_that_cannot_be_probed(tmp_path, text, facts):
    found = report(written(tmp_path, text + "\n" + SHIFT))
    problem = found["pieces"][0]["problem"]
    assert all(fact in problem for fact in facts), problem
    assert found["pieces"][1]["problem"] is None, "the rest of the file is checked all the same"
    assert Report.of(found).exit_code() == 2


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (GREEDY.replace("return ids", "ids"), ["ends", "the result is not a row of ids", "returns NoneType"]),
        (GREEDY.replace("return ids", "return str(ids)"), ["ends", "the result is not a row of ids", "returns str"]),
        (STACK.replace("x = layer(x, mask)", "layer(x, mask)"), ["used-layers", "some layers are not run", "48 of 50"]),
    ],
)  # fmt: skip
def test_a_result_of_another_kind_is_a_verdict_of_its_own(tmp_path, text, facts):
    found = report(written(tmp_path, SHIFT + text))
    fails = [each for piece in found["pieces"] for each in piece["properties"] if each["state"] == "fails"]
    message = " ".join(f"{each['property']}: {each['mistake']}. {each['evidence']}" for each in fails)
    assert all(fact in message for fact in facts), message
    shifted = next(each for each in found["pieces"] if each["name"] == "shift_labels")
    assert {each["state"] for each in shifted["properties"]} == {"holds"}


def test_what_no_probe_foresaw_stops_its_own_piece_alone(tmp_path):
    text = (
        ATTENTION.replace("def attention", "def right")
        + "\ndef attention(q, k, v, mask=None):\n    return q.to_sparse()\n"
    )
    one, other = report(written(tmp_path, text + SHIFT))["pieces"]
    assert "cannot be compared" in one["problem"]
    assert other["problem"] is None


def test_things_of_others_are_left_out(tmp_path):
    """And not counted, as they are nobody's own: the class of torch; nor what is no class or function."""
    imported = "from torch.nn import MultiheadAttention\n"
    found = report(written(tmp_path, imported + "attention = 3\n" + SHIFT))
    assert [each["name"] for each in found["left_out"]] == ["attention"]
    with pytest.raises(DataError, match=r"nothing is left .*MultiheadAttention: it is imported from torch\.nn"):
        report(written(tmp_path, imported))


def test_other_names_are_known(tmp_path):
    found = report(written(tmp_path, CAUSAL.replace("def causal_mask", "def create_causal_mask")))
    assert [(each["name"], each["found_as"]) for each in found["pieces"]] == [("causal_mask", "create_causal_mask")]


def test_without_mask_or_heads(tmp_path):
    text = (
        "def attention(q, k, v):\n    assert q.ndim == 3\n    return (q @ k.mT * q.size(-1) ** -0.5).softmax(-1) @ v\n"
    )
    found = report(written(tmp_path, text))
    states = {each["property"]: each["state"] for each in found["pieces"][0]["properties"]}
    assert states["mask"] == "not tested"
    assert states["scale"] == "holds"
    assert Report.of(found).exit_code() == 0


def test_maps_that_cannot_be_told_apart(tmp_path):
    text = """
import torch
from torch import nn

class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        self.w = nn.Parameter(torch.randn(4, d_model, d_model))

    def forward(self, x, mask=None):
        q, k, v = (torch.einsum("btd,de->bte", x, w).unflatten(-1, (self.h, -1)).transpose(1, 2) for w in self.w[:3])
        scores = q @ k.mT * q.size(-1) ** -0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, -1e9)
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2) @ self.w[3]
"""

    def mistakes(source):
        properties = report(written(tmp_path, source), "equation", "mask")["pieces"][0]["properties"]
        return [each["mistake"] for each in properties]

    [equation, mask] = report(written(tmp_path, text), "equation", "mask")["pieces"][0]["properties"]
    assert (equation["state"], mask["state"]) == ("not tested", "holds"), "what was not seen is not said to hold"
    assert mistakes(text) == ["", ""]
    assert mistakes(text.replace("~mask", "mask")) == ["", "the mask is inverted"]
    assert mistakes(text.replace("masked_fill(~mask, -1e9)", "clone()")) == ["", "the mask is ignored"]
    mixed = text.replace(".transpose(1, 2).flatten(2)", ".reshape(x.shape)")
    assert mistakes(mixed)[0] == "heads are mixed: positions are not treated alike"


def test_what_is_written_in_place_is_no_mistake(tmp_path):
    """Right code, which scales its queries and adds its branches where they stand."""
    text = STACK.replace("x = x + self.attend(self.norm1(x), mask)", "x = self.attend(self.norm1(x), mask).add_(x)")
    text = text.replace("torch.relu(self.up(x))", "torch.relu_(self.up(x))")
    assert text != STACK
    assert "add_(x)" in text
    for piece in report(written(tmp_path, text))["pieces"]:
        assert piece["problem"] is None
        assert [each["mistake"] for each in piece["properties"] if each["mistake"]] == [], piece["name"]


def test_matrices_that_begin_at_zero_are_not_copies(tmp_path):
    text = STACK.replace(
        "self.dropout = nn.Dropout(0.1)", "self.dropout = nn.Dropout(0.1)\n        nn.init.zeros_(self.down.weight)"
    )
    assert text != STACK
    stack = next(each for each in report(written(tmp_path, text))["pieces"] if each["name"] == "TransformerEncoder")
    assert not any(each["mistake"] == "the layers start identical" for each in stack["properties"])


def test_two_mistakes_are_told_apart(tmp_path):
    text = ATTENTION.replace(" / math.sqrt(q.size(-1))", "").replace("~mask, float", "mask, float")
    found = report(written(tmp_path, text))["pieces"][0]["properties"]
    assert [it["mistake"] for it in found if it["state"] == "fails"] == ["the scale is missing", "the mask is inverted"]


def test_only(tmp_path):
    path = written(tmp_path, ATTENTION + CAUSAL)
    assert [each["name"] for each in report(path, "causal_mask")["pieces"]] == ["causal_mask"]
    [piece] = report(path, "scale")["pieces"]
    assert [each["property"] for each in piece["properties"]] == ["scale"]
    with pytest.raises(DataError, match="Did you mean 'scale'"):
        report(path, "scales")
    with pytest.raises(DataError, match="nothing is left"):
        report(path, "max-len")


def changed(text: str, *pairs: tuple[str, str]) -> str:
    for before, after in pairs:
        assert before in text
        text = text.replace(before, after, 1)
    return text


def test_code_that_hangs_is_ended_where_processes_have_no_groups(monkeypatch):
    """As on Windows."""
    begun = []

    class Watched(subprocess.Popen):
        def __init__(self, *words, **how):
            super().__init__(*words, **how)
            begun.append(self)

    monkeypatch.setattr(subprocess, "Popen", Watched)
    monkeypatch.delattr(os, "killpg")
    monkeypatch.setattr("glassformer.proof.check.file.START", 0.0)
    assert run_child(["while True: pass"], 0.1, module="timeit") is None
    assert [each.poll() for each in begun] == [-signal.SIGKILL]


WRONG_UNDER_AN_OWN_NAME = (
    CAUSAL
    + """
class Reader:
    pass

def _helper(): ...
"""
)


def test_what_was_not_looked_at_is_named_and_counted(tmp_path, capfd):
    path = written(tmp_path, WRONG_UNDER_AN_OWN_NAME + "\nclass TransformerBlok:\n    pass\n")
    assert main(["check", str(path)]) == 0
    out = capfd.readouterr().out
    assert "Reader (line 7) is not looked at: no known part has this name" in out
    assert "the nearest is TransformerBlock" in " ".join(out.split())
    assert out.rstrip().endswith("4 of 4 properties hold; 2 not looked at: Reader, TransformerBlok.")
    assert main(["check", str(path), "--strict"]) == 3


IN_MANY_WAYS = """
from functools import partial
import functools
import torch

def first(n): return n
async def second(n): return n
third = lambda n: n
fourth: object = lambda n: n
fifth, sixth = 1, 2
seventh = partial(first, n=1)
eighth = functools.partial(first, 1)
class Ninth: pass
class SublayerConnection: pass
def _maker(width):
    class Inner:
        size = width
    return Inner
def _list(n):
    def one(): return n
    return [one()]
Thirteenth = _maker(3)
Fourteenth = type("Fourteenth", (), {})
kind = type(first)
fifteenth = _list(2)
try:
    from nowhere import tenth
except ImportError:
    def tenth(n): return n
if torch is None:
    pass
else:
    class Eleventh: pass
class _Memo:
    def __init__(self, function): self.function = function
    def __call__(self, n): return self.function(n)
@_Memo
def sixteenth(n): return n
@functools.lru_cache
def seventeenth(n): return n
if __name__ == "__main__":
    def twelfth(n): return n
"""


def test_whatever_makes_a_function_or_a_class_is_named(tmp_path):
    found = check_file(path := written(tmp_path, CAUSAL + IN_MANY_WAYS), names_in(path))
    assert [each.name for each in found.left_out] == [
        *(
            "first",
            "second",
            "third",
            "fourth",
            "seventh",
            "eighth",
            "Ninth",
            "SublayerConnection",
            "Thirteenth",
            "Fourteenth",
            "tenth",
            "Eleventh",
            "sixteenth",
            "seventeenth",
        )
    ]


PARTS_GIVEN = """
from dataclasses import dataclass

@dataclass
class Settings:
    d_model: int = 8

class Encoder:
    def __init__(self, layer, N): ...
"""


def test_a_class_that_is_given_parts_is_named_and_one_that_is_made_of_a_text_has_its_line(tmp_path):
    text = CAUSAL + PARTS_GIVEN
    found = check_file(path := written(tmp_path, text), names_in(path)).left_out
    lines = [text.split("\n").index(each) + 1 for each in ("class Settings:", "    def __init__(self, layer, N): ...")]
    assert [each.name for each in found] == ["Settings", "Encoder"]
    assert [each.line for each in found] == [lines[0] - 1, lines[1]], "that of the decorator"
    assert "it is given parts (layer)" in found[1].why


def test_what_else_forward_demands_is_no_key(tmp_path):
    """A rotary attention's `start_pos` and `freqs_cis` are not taken for keys and values."""
    rotary = changed(HEADS, ("query, key, value, mask=None", "x, start_pos, freqs_cis, mask=None"))
    [piece] = check_file(path := written(tmp_path, rotary), names_in(path)).pieces
    assert "(x, start_pos, freqs_cis, mask=None)" in str(piece.problem)


def test_layers_without_a_width_are_refused_by_name(tmp_path):
    lazy = changed(HEADS, ("super().__init__()", "super().__init__(); self.lazy = nn.LazyLinear(3)"))
    [piece] = check_file(path := written(tmp_path, lazy), names_in(path)).pieces
    assert "nn.LazyLinear" in str(piece.problem)


READER = "class Reader: pass\n"
PARTS = CAUSAL + SHIFT + READER


@pytest.mark.parametrize(
    ("text", "pieces", "left_out"),
    [
        (READER + "causal_mask = Reader", [("causal_mask", "causal_mask")], []),  # looked at under its other name
        (CAUSAL + "first = second = causal_mask", [("causal_mask", "causal_mask")], []),
        (CAUSAL + "subsequent_mask = causal_mask", [("causal_mask", "causal_mask")], []),  # once is enough
        (CAUSAL + READER + "Other = Reader", [("causal_mask", "causal_mask")], ["Reader"]),
        (CAUSAL + "class _Own: pass\nOwn, seen = _Own, 1", [("causal_mask", "causal_mask")], ["Own"]),
        ("from parts import causal_mask as seen", [("causal_mask", "seen")], []),
        ("from parts import Reader as causal_mask", [("causal_mask", "causal_mask")], []),
        ("import parts\nseen = parts.causal_mask", [("causal_mask", "seen")], []),
        ("from parts import *", [("causal_mask", "causal_mask"), ("shift_labels", "shift_labels")], []),
        (CAUSAL + "from parts import Reader, causal_mask as _theirs", [("causal_mask", "causal_mask")], []),
        (CAUSAL + "from functools import lru_cache\n@lru_cache\ndef own(n): ...", [("causal_mask",) * 2], ["own"]),
        (CAUSAL + "from torch import nn\nfrom torch.nn import LayerNorm, Linear as Map\nNorm = nn.LayerNorm\n"
         "from torch import softmax\nfrom dataclasses import dataclass\nfrom glassformer import Block, Batch as Rows\n"
         "from functools import partial\nRoot = partial(nn.LayerNorm, eps=1e-6)\nmodel, size = nn.Linear(1, 1), 3",
         [("causal_mask", "causal_mask")], []),
    ],
)  # fmt: skip
def test_other_names_of_code_and_code_of_others(tmp_path, monkeypatch, text, pieces, left_out):
    """`B = A`, `from x import A as B`: looked at under any name that is known, once; named if none is."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "parts", raising=False)
    (tmp_path / "parts.py").write_text(PARTS, "utf-8")
    found = report(written(tmp_path, text))
    assert [(each["name"], each["found_as"]) for each in found["pieces"]] == pieces
    assert [each["name"] for each in found["left_out"]] == left_out


def test_a_mistake_in_a_file_that_is_imported_has_its_place_there(tmp_path, capfd):
    (tmp_path / "parts.py").write_text("\n\n" + CAUSAL.replace("tril", "triu"), "utf-8")
    assert main(["check", str(written(tmp_path, "from parts import causal_mask as seen"))]) == 3
    out = capfd.readouterr().out
    line = next(n for n, text in enumerate((tmp_path / "parts.py").read_text().splitlines(), 1) if "triu" in text)
    assert f"where: parts.py, line {line}\n" in out
    assert "learner.py, line" not in out


def test_a_known_name_that_computes_something_else_is_not_passed_in_silence(tmp_path, capfd):
    """The identity has the right shapes; nothing in it can be compared with attention."""
    nothing = """
class CausalSelfAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()

    def forward(self, x):
        return x
"""
    path = written(tmp_path, CAUSAL + "from torch import nn\n" + nothing)
    main(["check", str(path)])
    assert capfd.readouterr().out.rstrip().endswith("and so not tested: CausalSelfAttention.")
    assert main(["check", str(path), "--strict"]) == 3


@pytest.mark.parametrize(
    "body", ["...", "pass", "raise NotImplementedError", 'raise NotImplementedError("exercise 3.3")', '"""What."""']
)
def test_a_stub_is_not_written(tmp_path, body):
    path = written(tmp_path, SHIFT + f"def causal_mask(n):\n    {body}\n")
    found = check_file(path, names_in(path))
    assert [each.written for each in found.pieces] == [True, False]
    assert found.exit_code() == 3
    text = as_text(found, 80)
    assert "NOT WRITTEN learner.py, line 4" in text
    assert "not written: causal_mask." in text


def test_a_part_that_is_a_stub_is_not_written(tmp_path):
    """The mask of a function is still to be written: its properties say so, the others hold."""
    text = ATTENTION.replace("    if mask is not None:\n        scores =", "    if mask is not None:\n"
                             "        raise NotImplementedError\n        scores =", 1)  # fmt: skip
    states = {it.property: it.state for it in check_file(written(tmp_path, text), ["attention"]).pieces[0].properties}
    assert (states["mask"], states["fill"], states["scale"]) == ("not written", "not tested", "holds")


WITH_SOFTMAX = ATTENTION.replace("torch.softmax(", "softmax(") + (
    "\n\ndef softmax(scores, dim):\n"
    "    e = (scores - scores.amax(dim, keepdim=True)).exp()\n"
    "    return e / e.sum(dim, keepdim=True)\n"
)


@pytest.mark.parametrize(("source", "before", "after", "line"), [
    (ATTENTION, "dim=-1)", "dim=-2)", "weights = torch.softmax"),
    (ATTENTION, FILL, "scores.masked_fill(mask, float('-inf'))", "masked_fill(mask"),
    (HEADS, "math.sqrt(self.d_head)", "math.sqrt(self.d_model)", "math.sqrt(self.d_model)"),
    (CAUSAL, "tril", "triu", "torch.triu"),
    (HEADS, "self.drop(", "torch.nn.functional.dropout(", "functional.dropout"),
    (WITH_SOFTMAX, "dim=-1)", "dim=-2)", "weights = softmax"),  # not the right lines of softmax itself
])  # fmt: skip
def test_a_mistake_has_its_line(tmp_path, source, before, after, line):
    text = changed(source, (before, after))
    path = written(tmp_path, text)
    wrong = [each for piece in check_file(path, names_in(path)).pieces for each in piece.faults]
    assert wrong
    assert line in text.splitlines()[wrong[0].line - 1]


def test_a_report_survives_json(tmp_path):
    path = written(tmp_path, ATTENTION.replace("dim=-1)", "dim=-2)") + CAUSAL)
    found = check_file(path, names_in(path))
    assert Report.of(json.loads(json.dumps(found.as_json()))) == found


TORCH = "embed_dim, num_heads, dropout=0.1, bias=True"
OWN_ORDER = [
    changed(HEADS, ("d_model, n_heads, p=0.1", "h, d_model, p=0.1"), ("super", "n_heads = h; super")),
    changed(
        HEADS,
        ("mask=None):", "key_padding_mask=None, need_weights=True, attn_mask=None):"),
        ("        B, T, _", "        mask = attn_mask\n        B, T, _"),
        ("d_model, n_heads, p=0.1", TORCH),
        ("super", "d_model, n_heads, p = embed_dim, num_heads, dropout; super"),
    ),
    changed(ENCODING, ("d_model, max_len):", "d_model: int, dropout: float = 0.1, max_len: int = 5000):")),
    changed(ENCODING, ("d_model, max_len):", "max_len, emb_dim):"), ("super", "d_model = emb_dim; super")),
    changed(
        BLOCK,
        ("def __init__(self, d_model, n_heads, d_ff):", "def __init__(self, config):"),
        ("self.attention =", "d_model, n_heads, d_ff = config.n_embd, config.n_head, config.d_ff; self.attention ="),
    ),
]


@pytest.mark.parametrize("text", OWN_ORDER, ids=["h first", "torch's", "max_len by name", "other order", "a config"])
def test_arguments_are_matched_by_name(tmp_path, text):
    path = written(tmp_path, text)
    piece = check_file(path, names_in(path)).pieces[-1]
    assert piece.problem is None
    assert [each.mistake for each in piece.faults] == []
    untested = {each.property for each in piece.properties if each.state == "not tested"}
    assert untested <= {"norm-first", "named-activation"}, "only what the signature has no argument for"


def test_what_is_optional_is_noted_and_no_failure(tmp_path, capfd):
    text = changed(ENCODING, ("if x.size(1) > self.max_len:", "if False:"), ("div[: d_model // 2]", "div"))
    assert main(["check", str(written(tmp_path, text)), "--only", "PositionalEncoding"]) == 0
    out = capfd.readouterr().out
    assert "note        odd-width: an odd d_model fails (optional)" in out
    assert "noted: an odd d_model fails, a sequence past max_len is not refused." in out


# --- the process of its own


def test_endless_loop_is_stopped_and_its_line_named(tmp_path):
    path = written(tmp_path, "def causal_mask(n):\n    while True:\n        n += 1\n")
    with pytest.raises(DataError, match=r"longer than 3 s .*line [23] \(`"):
        check(path, limit=3.0)


def test_code_that_ends_python(tmp_path):
    with pytest.raises(DataError, match="exit code 7"):
        check(written(tmp_path, "import os\ndef causal_mask(n):\n    os._exit(7)\n"))


def test_command(tmp_path, capfd):
    """Prints of the learner stay out of the answer, modules beside the file are found, nothing is left behind."""
    (tmp_path / "helper.py").write_text("diagonal = 1\n")
    text = f"from helper import diagonal\nprint('hello')\n{CAUSAL}{GREEDY}".replace("(n, n))", "(n, n), diagonal)")
    path = written(tmp_path, text)
    assert main(["check", str(path), "--json", "--only", "causal_mask"]) == 3
    found = json.loads(capfd.readouterr().out)
    assert (found["file"], found["exit_code"]) == (str(path), 3)
    [fault] = [each for each in found["pieces"][0]["properties"] if each["state"] == "fails"]
    assert fault["mistake"] == "off by one: a query may read the next token"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["helper.py", "learner.py"]


def test_command_in_words(tmp_path, capfd, monkeypatch):
    found = report(written(tmp_path, CAUSAL.replace("tril", "triu")))
    monkeypatch.setattr("glassformer.cli.check.check", lambda *_: Report.of({**found, "file": "x.py"}))
    assert main(["check", "x.py"]) == 3
    out = capfd.readouterr().out
    assert "FAILS       entries: the mask is transposed" in out
    assert all(word in out for word in ("evidence:", "likely cause:", "hint:", "holds       boolean"))
    assert out.endswith("x.py: 3 of 4 properties hold; the mask is transposed: queries read the future.\n")


@pytest.mark.parametrize("limit", ["0", "-1", "soon", "nan", "inf"])
def test_limit_is_a_number_of_seconds(tmp_path, capfd, limit):
    assert main(["check", str(written(tmp_path, CAUSAL)), f"--limit={limit}"]) == 2
    assert "--limit must be a number of seconds" in capfd.readouterr().err
