"""FlexAttention under our mask: the blocks it is told, what it refuses, when it is picked, and what it answers."""

import shutil
import sys
from pathlib import Path

import pytest
import torch

from fresh import printed
from glassformer import ATTEND, Mask
from glassformer.base.errors import ConfigError
from glassformer.nn.flex import BLOCK, LEAST, NARROWEST, ROWS, blocks_of, flex, obstacle, pays
from glassformer.nn.rules import pick
from nn.compiled_flex import B, H, masks, packed
from nn.largest import Largest
from specimens import close, normal
from train.examples import recipe

CPU = torch.device("cpu")
MODULE = sys.modules["glassformer.nn.flex"]  # the package shows the function under this name


@pytest.mark.parametrize("name", masks(1, 1))
@pytest.mark.parametrize(("T", "S"), [(1, 1), (BLOCK, BLOCK), (70, 300), (300, 2 * BLOCK), (ROWS + 9, ROWS + 9)])
def test_blocks_are_those_of_the_mask(T, S, name):
    """A block is full where every pair may be read, partial where some may, and named once for its queries."""
    mask = masks(T, S)[name]
    blocks, share = blocks_of(mask, T, S, CPU)
    allowed = mask.allowed(T, S, CPU)
    table = torch.ones(1, 1, T, S, dtype=torch.bool) if allowed is None else allowed.expand(-1, -1, T, -1)
    table = torch.nn.functional.pad(table, (0, -S % BLOCK, 0, -T % BLOCK))
    read = table.unflatten(3, (-1, BLOCK)).unflatten(2, (-1, BLOCK)).sum((3, 5))
    assert blocks.kv_num_blocks.shape[0] in (1, B)
    kinds = {
        "partial": (blocks.kv_num_blocks, blocks.kv_indices, (read > 0) & (read < BLOCK**2)),
        "full": (blocks.full_kv_num_blocks, blocks.full_kv_indices, read == BLOCK**2),
    }
    for kind, (numbers, indices, wanted) in kinds.items():
        for at, number in enumerate(numbers.flatten().tolist()):
            named = indices.flatten(0, 2)[at, :number].tolist()
            expected = wanted.expand(len(numbers), -1, -1, -1).flatten(0, 2)[at].nonzero()[:, 0].tolist()
            assert named == expected, (kind, at)
    assert share.item() == (read > 0).double().mean().item()


def test_no_table_of_all_pairs_is_made():
    T = 4 * ROWS
    with Largest() as seen:
        blocks_of(Mask(causal=True, documents=packed(T, 7)[0]), T, T, CPU)
    assert seen.numbers <= ROWS * T


def test_blocks_are_made_once_also_where_the_bias_learns():
    mask = Mask(causal=True, bias=normal(H, 5, 5))
    assert blocks_of(mask, 5, 5, CPU) is blocks_of(mask, 5, 5, CPU)
    assert blocks_of(mask, 5, 5, CPU) is not blocks_of(mask, 4, 5, CPU)


def test_nothing_is_compiled_at_import():
    code = "import sys, glassformer.nn.rules; sys.exit('torch._dynamo' in sys.modules)"
    printed("-c", code)


def test_a_bias_is_read_where_it_lies():
    """Changed afterwards it is seen changed: nobody holds a copy. Wide numbers are narrowed, as for sdpa."""
    place = [torch.zeros(1), *torch.zeros(4, 1).long()]
    for bias in (torch.zeros(H, 5, 7), torch.zeros(1, H, 5, 7), torch.zeros(B, H, 5, 7)):
        add = MODULE._adding(bias, torch.float32)
        bias += 1.0
        assert add(*place) == 1.0
    assert MODULE._adding(torch.zeros(H, 5, 7).double(), torch.float32)(*place).dtype == torch.float32


@pytest.mark.parametrize(("device", "width", "dtype", "learns", "dropout", "message"), [
    ("cpu", 4, torch.float64, False, 0.0, None),
    ("cuda", NARROWEST, torch.bfloat16, True, 0.0, None),
    ("cpu", 64, torch.float32, True, 0.0, "no backward pass on cpu, so attention_rule='softmax' with attention='flex'"),
    ("mps", 64, torch.float32, True, 0.0, "no backward pass on mps"),
    ("cuda", 64, torch.float32, False, 0.1, r"cannot drop any; got dropout=0\.1\. Set attention_dropout=0\.0"),
    ("cuda", NARROWEST - 1, torch.float32, False, 0.0, f"d_head of at least 16,.*d_head={NARROWEST - 1} in float32"),
    ("cuda", 64, torch.float64, False, 0.0, "got d_head=64 in float64. Try attention='auto'"),
])  # fmt: skip
def test_what_stands_in_its_way(device, width, dtype, learns, dropout, message):
    reason = obstacle(device, width, dtype, learns=learns, dropout=dropout)
    if message is None:
        assert reason is None
        return
    with pytest.raises(ConfigError, match=message):
        raise ConfigError(reason)


def test_inputs_that_want_gradients_may_come_without_a_graph():
    q, mask = normal(B, H, 5, 3), Mask(causal=True)
    with torch.no_grad():
        answer = flex(q, q, q, mask, scale=0.5)
    assert not answer.requires_grad
    close(answer, ATTEND["softmax"]["reference"](q.detach(), q.detach(), q.detach(), mask, scale=0.5))


def test_a_run_is_refused_before_its_data_is_read(tmp_path):
    from glassformer.train.run.session import start

    with pytest.raises(ConfigError, match="no backward pass on cpu"):
        start(recipe(model__attention="flex", training__device="cpu"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_where_it_is_picked():
    """On cuda alone, for packed documents alone, where they are long and leave half of the blocks unread."""
    S = LEAST
    rules = {"causal": True, "documents": packed(S, 4, 3)}
    name, why = pick("cuda", S, S, Mask(**rules))
    assert name == "flex"
    assert "{T} x {S}" in why
    for device in ("cpu", "mps", "xpu"):
        assert pick(device, S, S, Mask(**rules))[0] == "sdpa"
    assert pick("cuda", S, S, Mask(**rules), flexible=False)[0] == "sdpa"
    assert pick("cuda", S, S, Mask(causal=True))[0] == "sdpa"
    others = [
        {**rules, "documents": packed(S, 1)},  # more than half of the blocks of one causal document are read
        {**rules, "documents": torch.arange(S) % 4},  # not one after the other: something in every block
        {**rules, "bias": torch.zeros(H, S, S)},
    ]
    assert not any(pays(Mask(**each), S, S) for each in others)
    assert not pays(Mask(documents=packed(S, 4), query_documents=packed(S - 1, 4)), S - 1, S)
    assert not pays(Mask(documents=packed(S - 1, 4)), S - 1, S - 1)


def chosen(q, device, monkeypatch, **given):
    """Whether `auto` lets `pick` have FlexAttention."""
    heard = []
    auto = sys.modules["glassformer.nn.rules"]
    monkeypatch.setattr(auto, "pick", lambda *_, flexible, **__: heard.append(flexible) or ("sdpa", "as the test says"))
    monkeypatch.setattr(auto, "obstacle", lambda _, *rest, **named: obstacle(device, *rest, **named))
    ATTEND["softmax"]["auto"](q, q, q, Mask(), scale=1.0, **given)
    return heard[0]


def test_auto_leaves_it_where_it_would_refuse(monkeypatch):
    wide, narrow = torch.zeros(1, 1, 2, NARROWEST), torch.zeros(1, 1, 2, NARROWEST - 1)
    assert chosen(wide, "cuda", monkeypatch)
    assert not chosen(wide, "cuda", monkeypatch, dropout=0.1)
    assert not chosen(narrow, "cuda", monkeypatch)
    assert not chosen(wide.double(), "cuda", monkeypatch)


def beside_the_reference(*words):
    """The kernel and the equation in a process of their own."""
    return printed(Path(__file__).with_name("compiled_flex.py"), *words)


@pytest.mark.slow
def test_the_compiled_kernel_leaves_blocks_out():
    """On a processor, by torch's C++ template: value alone."""
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler (g++) here, which torch's template for processors needs")
    assert "documents, 70 x 300" in beside_the_reference("cpu", "documents", "bias")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no cuda device here to try FlexAttention's gradients")
def test_on_cuda_it_equals_the_reference_in_value_and_gradient():
    assert "learned bias, 70 x 300" in beside_the_reference("cuda")
