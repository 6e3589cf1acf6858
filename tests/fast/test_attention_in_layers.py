"""Which layers leave their attention to C++: those that learn and that nobody looks into."""

import ctypes

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

from glassformer.base.errors import ResourceError
from glassformer.base.schemes import Pattern
from glassformer.fast import attention as native_attention
from glassformer.fast import for_training, native
from glassformer.nn.attention import Attention
from glassformer.nn.mask import Mask
from glassformer.nn.norm import RMSNorm
from glassformer.nn.observe import Attended, watch_attention
from glassformer.nn.rules import ATTEND
from nn.attention_cases import ONE, turning

pytestmark = pytest.mark.skipif(not native.has_cpp(native_attention.SOURCE), reason="needs a C++ compiler")


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
    fit = RMSNorm(ONE.K, 1e-5).double()
    assert served(q, k, v, norms=(fit, nn.Identity()))
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
