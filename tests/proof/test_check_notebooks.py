"""Modules as tutorial notebooks write them, with other names and layouts, are read; their known flaws are named."""

from __future__ import annotations

import pytest

from glassformer.proof.check.examine import check_file
from proof.learners import BLOCK, HEADS
from proof.learners_models import MODEL, ROTARY
from proof.planted import ATTEND, FEED
from proof.planted_models import HALVES, OTHER, START, STD, TIE

ONE_INPUT = HEADS.replace(
    "def forward(self, query, key, value, mask=None):", "def forward(self, x, mask=None):"
).replace("B, T, _ = query.shape", "query = key = value = x\n        B, T, _ = query.shape")
FUSED = """
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.out_proj = nn.Linear(d_model, d_model)
"""
PARTS = "q, k, v = (self.split(each) for each in self.qkv(x).chunk(3, dim=-1))"
BY_HEAD = (
    "q, k, v = (y.transpose(1, 2) for y in self.qkv(x).view(B, T, self.n_heads, 3 * self.d_head).chunk(3, dim=-1))"
)


def fused(parts: str) -> str:
    text = ONE_INPUT
    for name in "qkvo":
        text = text.replace(f"        self.w_{name} = nn.Linear(d_model, d_model)\n", "")
    lines = [
        f"        {n} = self.split(self.w_{n}({full}))\n"
        for n, full in zip("qkv", ("query", "key", "value"), strict=True)
    ]
    text = text.replace("".join(lines), f"        {parts}\n").replace("self.w_o(", "self.out_proj(")
    return text.replace("        self.drop = nn", FUSED.lstrip("\n") + "        self.drop = nn")


def renamed(*names: str) -> str:
    text = ONE_INPUT
    for old, new in zip(("w_q", "w_k", "w_v", "w_o"), names, strict=True):
        text = text.replace(old, new)
    return text


def keys_first(text: str) -> str:
    """The key map is called before the query map."""
    lines = text.split("\n")
    place = next(number for number, line in enumerate(lines) if line.strip().startswith("q = "))
    lines[place : place + 2] = reversed(lines[place : place + 2])
    return "\n".join(lines)


STRIDED = HEADS.replace(
    "self.n_heads, self.d_head).transpose(1, 2)", "self.d_head, self.n_heads).permute(0, 3, 1, 2)"
).replace("context.transpose(1, 2)", "context.permute(0, 2, 3, 1)")
POST = BLOCK.replace(ATTEND, "x = self.norm1(x + self.attend(x, mask))").replace(
    FEED, "x = self.norm2(x + self.feed(x))"
)
GELU = BLOCK.replace("torch.relu", "torch.nn.functional.gelu")
SANDWICH = (
    BLOCK.replace(ATTEND, "x = x + self.norm2(self.attend(self.norm1(x), mask))")
    .replace(FEED, "x = x + self.norm4(self.feed(self.norm3(x)))")
    .replace(
        "self.dropout = ",
        "self.norm3, self.norm4 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)\n        self.dropout = ",
    )
)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("MultiHeadAttention", ONE_INPUT),
        ("MultiHeadAttention", fused(PARTS)),
        ("MultiHeadAttention", fused(BY_HEAD)),
        ("MultiHeadAttention", renamed("query", "key", "value", "out_proj")),
        ("MultiHeadAttention", renamed("linear_a", "linear_b", "linear_c", "linear_d")),
        ("MultiHeadAttention", keys_first(renamed("linear_a", "linear_b", "linear_c", "linear_d"))),
        (
            "MultiHeadAttention",
            renamed("to_k", "to_q", "to_v", "to_out")
            .replace("to_k(query)", "to_q(query)")
            .replace("to_q(key)", "to_k(key)"),
        ),
        ("MultiHeadAttention", STRIDED),
        ("TransformerBlock", POST),
        ("TransformerBlock", GELU),
        (
            "TransformerBlock",
            BLOCK.replace("self.drop(torch.softmax(scores, dim=-1))", "torch.softmax(scores, dim=-1)"),
        ),
        ("TransformerBlock", SANDWICH),
    ],
)
def test_other_ways_to_write_it_right(tmp_path, kind, text):
    path = tmp_path / "learner.py"
    path.write_text(text, "utf-8")
    [piece] = check_file(path, [kind]).as_json()["pieces"]
    assert piece["problem"] is None
    assert [each["mistake"] for each in piece["properties"] if each["state"] == "fails"] == []
    assert {it["state"] for it in piece["properties"] if it["property"] in ("scale", "split", "mask")} == {"holds"}


WIDE = "angles.sin().repeat_interleave(2, -1), angles.cos().repeat_interleave(2, -1)"
DOUBLED = "torch.cat([angles, angles], -1).sin(), torch.cat([angles, angles], -1).cos()"
UNCACHED = (
    MODEL.replace("tokens, cache=None", "tokens")
    .replace(START, "start = 0")
    .replace("None if cache is None else cache[number]", "None")
    .replace("(self.norm(x)), kept", "(self.norm(x))")
)
OTHER_ORDER = MODEL.replace(
    "vocab_size, d_model, n_heads, n_layers, max_len", "max_len, n_layers, num_heads, embed_dim, vocab_size"
).replace("        super().__init__()\n        self.token", "        d_model, n_heads = embed_dim, num_heads\n"
    "        super().__init__()\n        self.token")  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "untested"), [
    ("apply_rotary", ROTARY.replace(WIDE, DOUBLED).replace(OTHER, HALVES), []),
    ("LanguageModel", UNCACHED, ["cache"]),
    ("LanguageModel", OTHER_ORDER, []),
    ("LanguageModel", MODEL.replace(TIE, "").replace(STD, ""), []),
], ids=["halves", "no cache", "arguments by name", "torch's own start"])  # fmt: skip
def test_other_models_and_rotations(tmp_path, kind, text, untested):
    path = tmp_path / "learner.py"
    path.write_text(text, "utf-8")
    [piece] = check_file(path, [kind]).as_json()["pieces"]
    assert piece["problem"] is None
    assert [each["mistake"] for each in piece["properties"] if each["state"] == "fails"] == []
    assert [each["property"] for each in piece["properties"] if each["state"] == "not tested"] == untested
