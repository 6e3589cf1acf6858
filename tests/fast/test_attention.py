"""Attention in C++ for training is that of the modules, in value and gradient."""

import ctypes

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

from glassformer.base.errors import DataError, ResourceError
from glassformer.base.schemes import Pattern
from glassformer.fast import attention as native_attention
from glassformer.fast import for_training, native
from glassformer.nn.attention import Attention
from glassformer.nn.mask import Mask
from glassformer.nn.norm import LayerNorm, RMSNorm
from glassformer.nn.observe import Attended, watch_attention
from glassformer.nn.positions import Rotation, rotate
from glassformer.nn.rules import ATTEND
from nn.attention_cases import ONE, Case, turning
from specimens import scramble

pytestmark = pytest.mark.skipif(not native.has_cpp(native_attention.SOURCE), reason="needs a C++ compiler")


SIZES = {
    "one block": ONE, "each head its own keys": Case(G=4, T=24, S=24),
    "all heads share keys, many blocks": Case(G=1, T=75, S=75, K=20), "a width beyond a tile": Case(T=30, S=30, K=40),
    "many keys": Case(T=5, S=70, K=6), "many queries": Case(T=70, S=5, K=6), "one of each": Case(T=1, S=1, K=2),
}  # fmt: skip
MASKS = {
    "all": lambda case: Mask(),
    "causal": lambda case: Mask(causal=True),
    "padded": lambda case: Mask(keep=torch.arange(case.S) < torch.tensor([[case.S], [1]])),
    "padded in front, causal": lambda case: Mask(causal=True, keep=torch.arange(case.S) >= torch.tensor([[0], [2]])),
    "biased": lambda case: Mask(bias=torch.randn(case.H, case.T, case.S, dtype=torch.float64)),
    "prefix": lambda case: Mask(causal=True, prefix=torch.tensor([3, 0])),
    "documents": lambda case: Mask(
        documents=torch.arange(case.S).expand(2, -1) // 4, query_documents=torch.arange(case.T).expand(2, -1) // 4
    ),
    "placed": lambda case: Mask(
        causal=True, query_positions=torch.arange(case.T).flip(0), key_positions=torch.arange(case.S)
    ),
}
NORMS = {"none": lambda K: nn.Identity(), "rms": lambda K: RMSNorm(K, 1e-3), "layer": lambda K: LayerNorm(K, 1e-3)}


def by_modules(q, k, v, mask, norms, rotation, *, scale):
    """What `Attention` does without C++."""
    q, k = (rotate(norm(x), rotation) for norm, x in zip(norms, (q, k), strict=True))
    return ATTEND["softmax"]["matmul"](q, k, v, mask, scale=scale)


def both(case: Case, mask: Mask, norm: str = "none", rotation: Rotation | None = None):
    """Result and gradients in C++, and by modules."""
    q, k, v = case.inputs()
    norms = tuple(scramble(NORMS[norm](case.K).double()) for _ in range(2))
    wanted = (q, k, v, *(each for one in norms for each in one.parameters()))
    upstream = torch.randn_like(q)
    assert native_attention.serves(q, k, v, mask, norms, rotation)
    for compute in (native_attention.attend, by_modules):
        y = compute(q, k, v, mask, norms, rotation, scale=0.3)
        yield y.detach(), *torch.autograd.grad(y, wanted, upstream)


def assert_equal(found, expected, tolerance: float = 1e-12) -> None:
    """Compare result and gradients."""
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("size", SIZES)
def test_it_is_what_the_modules_compute_under_every_mask(size, mask):
    case = SIZES[size]
    torch.manual_seed(case.T)
    assert_equal(*both(case, MASKS[mask](case)))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("layout", [None, "half", "interleaved"])
@pytest.mark.parametrize("texts", [False, True], ids=["one row of angles", "angles of each text"])
@pytest.mark.parametrize("size", ["one block", "all heads share keys, many blocks", "a width beyond a tile"])
def test_it_normalises_and_rotates_as_the_modules_do(size, texts, layout, norm):
    case = SIZES[size]
    torch.manual_seed(case.T)
    assert_equal(*both(case, Mask(causal=True), norm, turning(case, layout, texts=texts)))


def test_one_row_of_angles_for_many_texts():
    rotation = turning(ONE._replace(B=1), "half", texts=True)
    assert_equal(*both(ONE, Mask(), rotation=rotation))


def test_in_float32_it_is_as_near_as_products():
    case, scale = Case(T=130, S=130, K=32), 0.2
    wide = case.inputs()
    narrow = [each.detach().float().requires_grad_() for each in wide]
    rotation = turning(case, "half")
    lower = Rotation(rotation.cos.float(), rotation.sin.float())
    norms, lower_norms = ((RMSNorm(case.K, 1e-5).to(dtype),) * 2 for dtype in (torch.float64, torch.float32))
    y = by_modules(*wide, Mask(causal=True), norms, rotation, scale=scale)
    x = native_attention.attend(*narrow, Mask(causal=True), lower_norms, lower, scale=scale)
    upstream = torch.randn_like(y)
    found, expected = torch.autograd.grad(x, narrow, upstream.float()), torch.autograd.grad(y, wide, upstream)
    assert_equal([x.double(), *(each.double() for each in found)], [y, *expected], 3e-5)


def test_a_query_that_may_read_nothing_gets_zeros_and_gives_no_gradient():
    q, k, v = ONE.inputs()
    mask = Mask(keep=torch.tensor([[False] * ONE.S, [True] * ONE.S]))
    y = native_attention.attend(q, k, v, mask, (nn.Identity(),) * 2, None, scale=1.0)
    assert [bool(each.eq(0).all()) for each in y] == [True, False]
    for each in torch.autograd.grad(y.square().sum(), (q, k, v)):
        assert [bool(one.eq(0).all()) for one in each] == [True, False]


def test_what_is_no_number_stays_seen_where_it_is_read():
    q, k, v = ONE.inputs()
    with torch.no_grad():
        k[0, 0, 3, 0], v[1, 1, 5, 0] = torch.nan, torch.inf
    y = native_attention.attend(q, k, v, Mask(causal=True), (nn.Identity(),) * 2, None, scale=1.0)
    seen = ~y.isfinite().all(-1)
    assert seen[0, :2, 3:].all()
    assert seen[1, 2:, 5:].all()
    assert not seen[0, 2:].any()  # heads that read other keys
    assert not seen[1, :2].any()


def test_scores_of_any_size_are_powers_of_e_relative_to_the_largest():
    q, k, v = Case(T=40, S=40).inputs()
    large = [q.detach() * 1e3, k.detach(), v.detach()]
    found = native_attention.attend(
        *(each.requires_grad_() for each in large), Mask(), (nn.Identity(),) * 2, None, scale=1.0
    )
    torch.testing.assert_close(found, ATTEND["softmax"]["reference"](*large, Mask(), scale=1.0), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mask", ["causal", "padded in front, causal", "biased"])
def test_in_bfloat16_it_computes_in_float32_and_rounds_once(mask):
    case = ONE
    narrow = [each.detach().bfloat16().requires_grad_() for each in case.inputs()]
    wide = [each.detach().float().requires_grad_() for each in narrow]
    norms, rotation = (RMSNorm(case.K, 1e-5), RMSNorm(case.K, 1e-5)), turning(case, "half", dtype=torch.float32)
    upstream = torch.randn(case.B, case.H, case.T, case.K).bfloat16()
    mask_value, found = MASKS[mask](case), []
    if mask_value.bias is not None:
        mask_value = Mask(bias=mask_value.bias.float())
    for given in (narrow, wide):
        assert native_attention.serves(*given, mask_value, norms, rotation)
        y = native_attention.attend(*given, mask_value, norms, rotation, scale=0.3)
        assert y.dtype == given[0].dtype
        found.append([y, *torch.autograd.grad(y, given, upstream.to(y.dtype))])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other.bfloat16())


def test_the_number_of_threads_changes_no_bit(threads):
    case = Case(B=3, T=50, S=50)
    q, k, v = case.inputs(torch.float32)
    norms, rotation = (RMSNorm(case.K, 1e-5), RMSNorm(case.K, 1e-5)), turning(case, "half", dtype=torch.float32)
    found = []
    for number in (1, 3):
        torch.set_num_threads(number)
        y = native_attention.attend(q, k, v, Mask(causal=True), norms, rotation, scale=0.3)
        wanted = (q, k, v, norms[0].weight, norms[1].weight)
        found.append([y, *torch.autograd.grad(y.square().sum(), wanted)])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("frozen", [None, "q", "weight"])
def test_it_can_be_differentiated_twice(frozen):
    case = Case(B=1, H=2, G=1, T=3, S=3, K=4)
    norm, rotation = RMSNorm(case.K, 1e-3).double(), turning(case, "half")
    inputs = [*(each.detach().contiguous() for each in case.inputs()), torch.rand(case.K, dtype=torch.float64) + 0.5]
    for name, each in zip(("q", "k", "v", "weight"), inputs, strict=True):
        each.requires_grad_(name != frozen)

    def compute(q, k, v, weight):
        norm.weight = nn.Parameter(weight, requires_grad=weight.requires_grad)
        del norm._parameters["weight"]
        norm.weight = weight
        norms = (norm, nn.Identity())
        return native_attention.attend(q, k, v, Mask(causal=True), norms, rotation, scale=0.7)

    assert torch.autograd.gradcheck(compute, inputs)
    assert torch.autograd.gradgradcheck(compute, inputs)


def test_it_keeps_nothing_of_the_size_of_all_scores():
    q, k, v = Case(B=1, H=2, T=300, S=300).inputs()
    kept: list[int] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        native_attention.attend(q, k, v, Mask(causal=True), (nn.Identity(),) * 2, None, scale=1.0)
    assert max(kept) == q.numel()


LYING = {
    "last number first": lambda bias: bias.mT.contiguous().mT,
    "one number for all keys": lambda bias: bias[..., :1],
    "backwards": lambda bias: bias.flip(-1).as_strided(bias.shape, bias.stride()),
    "one row for all queries": lambda bias: bias[:, :1],
}


@pytest.mark.parametrize("how", LYING)
def test_a_bias_may_lie_in_memory_in_any_way(how):
    torch.manual_seed(1)
    assert_equal(*both(ONE, Mask(bias=LYING[how](torch.randn(ONE.H, ONE.T, ONE.S, dtype=torch.float64)))))


@pytest.mark.parametrize("how", ["padding", "documents"])
def test_rules_may_lie_in_memory_column_by_column(how):
    rule = torch.randint(2, (ONE.S, ONE.B)).T
    assert_equal(*both(ONE, Mask(keep=rule.bool()) if how == "padding" else Mask(documents=rule, causal=True)))


def test_weights_of_norms_may_lie_in_memory_in_any_way():
    q, k, v = ONE.inputs()
    norm = RMSNorm(ONE.K, 1e-5)
    norm.weight = nn.Parameter(torch.randn(2 * ONE.K, dtype=torch.float64)[::2])
    found = [
        torch.autograd.grad(compute(q, k, v, Mask(), (norm, norm), None, scale=0.3).square().sum(), (q, norm.weight))
        for compute in (native_attention.attend, by_modules)
    ]
    assert_equal(*found)


def test_what_is_given_twice_gets_the_gradient_of_both_places_once():
    x = ONE._replace(G=ONE.H).inputs()[0]
    norm = RMSNorm(ONE.K, 1e-3).double()
    found = []
    for compute in (native_attention.attend, by_modules):
        y = compute(x, x, x, Mask(causal=True), (norm, norm), None, scale=0.3)
        first = torch.autograd.grad(y.square().sum(), (x, norm.weight), create_graph=True)
        found.append([*first, *torch.autograd.grad(sum(each.square().sum() for each in first), (x, norm.weight))])
    assert_equal(*found)


@pytest.mark.parametrize("changed", ["bias", "angles", "keys"])
def test_what_was_changed_since_is_refused_on_the_way_back(changed):
    q, k, v = ONE.inputs()
    bias, rotation = torch.zeros(1, 4, 9, 9, dtype=torch.float64), turning(ONE, "half")
    y = native_attention.attend(q, k, v, Mask(bias=bias), (nn.Identity(),) * 2, rotation, scale=0.3)
    with torch.no_grad():
        {"bias": bias, "angles": rotation.sin, "keys": k}[changed].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


# --- Which layers leave their attention to C++: those that learn and that nobody looks into


def layer(**settings) -> tuple[Attention, torch.Tensor]:
    """A layer of attention, and what it reads."""
    torch.manual_seed(1)
    auto = ATTEND["softmax"]["auto"]
    made = Attention(16, 4, settings.pop("attend", auto), qk_norm=lambda width: RMSNorm(width, 1e-5), **settings)
    for_training(made.double())
    return made, torch.randn(2, 9, 16, dtype=torch.float64)


@pytest.fixture
def calls(monkeypatch):
    """Counts what C++ is asked for."""
    noted: list[torch.Tensor] = []
    real = native_attention.attend

    def note(q, *arguments, **settings):
        noted.append(q)
        return real(q, *arguments, **settings)

    monkeypatch.setattr(native_attention, "attend", note)
    return noted


def test_a_layer_that_learns_uses_it_and_computes_the_same(calls):
    attention, x = layer()
    y = attention(x, mask=Mask(causal=True))
    assert len(calls) == 1
    with torch.no_grad():
        torch.testing.assert_close(attention(x, mask=Mask(causal=True)), y, rtol=1e-12, atol=1e-12)
    assert len(calls) == 1


@pytest.mark.shapes(False)
def test_one_source_for_several_rows_is_refused_as_without_it(calls):
    attention, x = layer()
    with pytest.raises(DataError, match=r"source of FastAttention must be a tensor of floats \[2, S, 16\]"):
        attention(x, source=x[:1])
    assert calls == []


def test_autocast_leaves_it_to_cpp_too(calls):
    attention, x = layer()
    attention, x = attention.float(), x.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = attention(x, mask=Mask(causal=True))
        assert len(calls) == 1
        by_steps = attention.eval()(x, mask=Mask(causal=True))
    assert len(calls) == 1
    torch.testing.assert_close(y, by_steps, rtol=0.02, atol=0.02)


@pytest.mark.parametrize(
    "settings", [{"dropout": 0.1}, {"attend": ATTEND["softmax"]["matmul"]}], ids=["dropout", "backend"]
)
def test_a_layer_that_drops_weights_or_names_its_backend_leaves_it_alone(calls, settings):
    attention, x = layer(**settings)
    attention(x, mask=Mask(causal=True))
    assert not calls


def test_a_watched_layer_computes_by_the_steps_that_are_watched(calls):
    attention, x = layer()
    seen: list[Attended] = []
    with watch_attention(attention, seen.append):
        attention(x, mask=Mask(causal=True))
    assert len(seen) == 1
    assert not calls


HOOKS = {
    "forward": lambda norm, note: norm.register_forward_hook(note),
    "before forward": lambda norm, note: norm.register_forward_pre_hook(note),
    "backward": lambda norm, note: norm.register_full_backward_hook(note),
    "before backward": lambda norm, note: norm.register_full_backward_pre_hook(note),
    "of all modules": lambda norm, note: nn.modules.module.register_module_forward_hook(note),
}


@pytest.mark.parametrize("kind", HOOKS)
def test_hooks_of_norms_see_what_passes(calls, kind):
    attention, x = layer()
    seen: list[nn.Module] = []
    handle = HOOKS[kind](attention.query_norm, lambda module, *passing: seen.append(module))
    try:
        attention(x, mask=Mask(causal=True)).sum().backward()
    finally:
        handle.remove()
    assert not calls
    assert seen.count(attention.query_norm) == 1


PLAIN = (nn.Identity(), nn.Identity())


def served(q, k, v, mask=None, *, norms=PLAIN, rotation=None) -> bool:
    """Whether it serves these."""
    return native_attention.serves(q, k, v, mask or Mask(), norms, rotation)


def test_what_it_leaves_to_others(threads):
    q, k, v = ONE.inputs()
    assert served(q, k, v)
    assert not served(*(each.half() for each in (q, k, v)))
    assert not served(q, k.float(), v)
    assert not served(*(each.to("meta") for each in (q, k, v)))
    assert not served(*(each.detach() for each in (q, k, v)))
    assert not served(q, k, v, Mask(window=3, causal=True))
    assert not served(q, k, v, Mask(pattern=Pattern(window=3, dilation=2), causal=True))
    assert not served(q, k, v, Mask(bias=torch.zeros(4, 9, 9, requires_grad=True)))
    with torch.no_grad():
        assert not served(q, k, v)
    with forward_ad.dual_level():
        assert not served(q, k, v)
    torch.set_num_threads(5)  # but two texts of two groups
    assert not served(q, k, v)


def test_sizes_that_do_not_fit_are_left_to_those_who_broadcast_or_refuse():
    q, k, v = ONE.inputs()
    assert not served(q, k[:1], v[:1])
    assert not served(q, k, v[:, :, :5])
    assert not served(q, k[:, :1], v)
    assert not served(q[:, :3], k, v)
    assert not served(q, k[..., :6], v[..., :6])
    assert not served(q[0], k[0], v[0])
    assert not served(q, k, v, Mask(bias=torch.zeros(3, 1, 1, ONE.S, dtype=q.dtype)))
    assert not native_attention.broadcasts((1, 2, 4, 9, 9), (2, 4, 9, 9))
    assert not served(q, k, v, Mask(keep=torch.ones(2, 5, dtype=torch.bool)))


def test_angles_that_do_not_fit_are_left_to_those_who_broadcast_or_refuse():
    q, k, v = ONE.inputs()
    fit = turning(ONE, "half", texts=True)
    assert served(q, k, v, rotation=fit)
    assert not served(q, k, v, rotation=turning(ONE, "half", dtype=torch.float32))
    assert not served(q, k, v, rotation=turning(ONE._replace(T=1), "half"))
    assert not served(q, k, v, rotation=turning(ONE._replace(T=12), "half"))
    assert not served(q, k, v, rotation=turning(ONE._replace(B=3), "half", texts=True))
    assert not served(q, k, v, rotation=turning(ONE._replace(K=12), "half"))
    assert not served(q, k, v, rotation=fit._replace(sin=fit.sin[:, :, :2]))
    assert not served(q, k, v, rotation=fit._replace(layout="another"))
    assert not served(q[:, :, :4], k, v, rotation=fit)


def test_learned_angles_get_gradients():
    q, k, v = ONE.inputs()
    fit = turning(ONE, "half")
    assert not served(q, k, v, rotation=fit._replace(cos=fit.cos.clone().requires_grad_()))


class Own(RMSNorm):
    """May compute anything."""


def test_norms_that_may_change_dtype_or_shape_are_called_themselves(calls):
    q, k, v = ONE.inputs()
    assert served(q, k, v, norms=(RMSNorm(ONE.K, 1e-5).double(), nn.Identity()))
    for other in (RMSNorm(ONE.K, 1e-5), Own(ONE.K, 1e-5).double(), RMSNorm(1, 1e-5).double()):
        assert not served(q, k, v, norms=(nn.Identity(), other))
    attention, x = layer()
    attention.query_norm.forward = lambda q: q * 0
    attention(x, mask=Mask(causal=True)).sum().backward()
    assert not calls


def test_it_leaves_alone_what_functions_of_torch_map():
    q, k, v = ONE.inputs()
    noted: list[bool] = []

    def ask(q):
        noted.append(served(q, k, v))
        return q

    torch.func.vmap(ask)(q[None])
    assert noted == [False]


def test_too_little_memory_is_told():
    call = native_attention.CCall(B=1, H=1, G=1, T=1, S=1 << 40, K=1 << 10)
    with pytest.raises(ResourceError, match="no memory for attention"):
        native_attention.native(torch.zeros(1))(ctypes.byref(call), False, 1)
