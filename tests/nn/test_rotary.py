"""Rotary positions: pairs turned by their angle, both layouts, part of a head, far positions, and longer texts."""

import math
from dataclasses import replace

import pytest
import torch

from glassformer.base.schemes import LAYOUTS, SCALINGS, RotaryConfig
from glassformer.nn.positions import POSITIONS, ROTARY_LAYOUTS, ROTARY_SCALINGS, Sizes, rotate
from specimens import ROTARY, close, model, tokens

LIKE = torch.zeros((), dtype=torch.float64)
PLACES = torch.tensor([[0, 1, 2, 63, 64, 511, 10_000], [7, 7, 3, 0, 9_999, 1, 0]])
CPU = torch.device("cpu")
LENGTHENED = {
    "linear": RotaryConfig(scaling="linear", factor=8.0),
    "ntk": RotaryConfig(scaling="ntk", factor=4.0, base=20_000.0),
    "yarn": RotaryConfig(scaling="yarn", factor=16.0, original_max_len=4096),
    "yarn by hand": RotaryConfig(
        scaling="yarn", factor=4.0, original_max_len=1000, slow_turns=2.0, fast_turns=20.0, attention_factor=1.25
    ),
    "yarn of few turns": RotaryConfig(scaling="yarn", factor=4.0, original_max_len=16),
    "llama3": RotaryConfig(scaling="llama3", factor=8.0, original_max_len=8192, base=500_000.0),
    "llama3 by hand": RotaryConfig(
        scaling="llama3", factor=32.0, original_max_len=2048, slow_turns=2.0, fast_turns=9.0
    ),
}


def rotary(d_head=4, **settings):
    return POSITIONS["rotary"](Sizes(16, 4, d_head, 32, rotary=RotaryConfig(**settings)))


def speeds(settings, width):
    return ROTARY_SCALINGS[settings.scaling](settings, width, CPU)


def test_the_settings_know_the_same_names():
    assert tuple(ROTARY_LAYOUTS) == LAYOUTS
    assert ROTARY_SCALINGS.keys() == SCALINGS.keys()


@pytest.mark.parametrize("layout", ROTARY_LAYOUTS)
def test_pairs_are_turned_by_their_angle(layout):
    """Complex numbers: a head of width K is K/2 of them, each turned by position times its own speed."""
    K, x = 6, torch.randn(2, 3, 7, 6).double()
    turned = rotate(x, rotary(K, layout=layout).rotation(PLACES, LIKE))
    for i in range(K // 2):
        pair = {"half": [i, i + K // 2], "interleaved": [2 * i, 2 * i + 1]}[layout]
        speed = 10_000 ** (-2 * i / K)
        around = torch.polar(torch.ones(2, 1, 7).double(), PLACES[:, None].double() * speed)
        close(torch.view_as_real(torch.complex(*x[..., pair].unbind(-1)) * around), turned[..., pair])


@pytest.mark.parametrize("share", [0.25, 0.5])
@pytest.mark.parametrize("layout", ROTARY_LAYOUTS)
def test_part_of_a_head_turns_as_a_smaller_head_would(layout, share):
    x, R = torch.randn(2, 3, 7, 16).double(), round(16 * share)
    turned = rotate(x, rotary(16, layout=layout, share=share).rotation(PLACES, LIKE))
    close(turned[..., :R], rotate(x[..., :R], rotary(R, layout=layout).rotation(PLACES, LIKE)))
    assert torch.equal(turned[..., R:], x[..., R:])


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("n_kv_heads", [4, 2])
def test_the_layouts_are_one_up_to_the_order_of_weights(n_kv_heads, share):
    """The rows of query and key that make number 2i of a head, moved to i; 2i + 1 to i + R/2; nothing else changes."""
    settings = {"positions": "rotary", "n_kv_heads": n_kv_heads, "d_model": 32, "n_layers": 1}
    ours = model("decoder", rotary=RotaryConfig(layout="interleaved", share=share), **settings)
    theirs = model("decoder", rotary=RotaryConfig(share=share), **settings)
    K, R = 8, round(8 * share)
    order = torch.tensor([*range(0, R, 2), *range(1, R, 2), *range(R, K)])
    weights = ours.state_dict()
    for name, weight in weights.items():
        if any(part in name for part in ("query", "key")):
            weights[name] = weight.unflatten(0, (-1, K))[:, order].flatten(0, 1)
    ids = tokens(2, 9)
    theirs.load_state_dict(ours.state_dict())
    assert (ours(ids) - theirs(ids)).abs().max() > 1e-3, "unless moved, the weights mean something else"
    theirs.load_state_dict(weights)
    close(theirs(ids), ours(ids))


@pytest.mark.parametrize("settings", [RotaryConfig(), *ROTARY, *LENGTHENED.values()], ids=str)
def test_scores_depend_on_distance_alone(settings):
    """q at 5 and k at 2 score as q at 1,005 and k at 1,002; and the further apart, the other the score."""
    scheme = POSITIONS["rotary"](Sizes(16, 4, 8, None, rotary=settings))
    q, k = torch.randn(2, 1, 1, 1, 8).double()

    def score(at, other):
        at, other = (scheme.rotation(torch.tensor([place]), LIKE) for place in (at, other))
        return (rotate(q, at) @ rotate(k, other).mT).item()

    for distance in (-3, 0, 1, 17):
        scores = [score(start + distance, start) for start in (3, 40, 1002)]
        assert scores == pytest.approx([scores[0]] * 3, abs=1e-11)
    assert len({round(score(distance, 0), 6) for distance in range(10)}) == 10
    if settings.scaling != "yarn":
        assert score(0, 0) == pytest.approx((q * k).sum().item(), abs=1e-12)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-7), (torch.bfloat16, 2.1e-3)])
def test_far_positions_are_as_exact_as_near_ones(dtype, tolerance):
    """One rounding to the dtype at the end: bfloat16 holds no position above 256, float32 no angle above 100,000."""
    places = torch.tensor([0, 3, 255, 257, 4_099, 100_003, 1_000_003])
    rotation = rotary(8).rotation(places, torch.zeros((), dtype=dtype))
    for t, place in enumerate(places.tolist()):
        for i in range(4):
            angle = math.fmod(place * 10_000 ** (-2 * i / 8), 2 * math.pi)
            assert rotation.cos[t, i].item() == pytest.approx(math.cos(angle), abs=tolerance)
            assert rotation.sin[t, i].item() == pytest.approx(math.sin(angle), abs=tolerance)
    assert rotation.cos.dtype == dtype


def by_hand(settings, R):
    """Each scaling of one pair after the other, as its source writes it."""
    own = [settings.base ** (-2 * i / R) for i in range(R // 2)]
    s, L = settings.factor, settings.original_max_len
    if settings.scaling == "linear":
        return [speed / s for speed in own]
    if settings.scaling == "ntk":
        return [(settings.base * s ** (R / (R - 2))) ** (-2 * i / R) for i in range(R // 2)]
    slow, fast = settings.turns
    found = []
    for i, speed in enumerate(own):
        if settings.scaling == "llama3":
            wavelength = 2 * math.pi / speed
            if wavelength < L / fast:
                found.append(speed)
            elif wavelength > L / slow:
                found.append(speed / s)
            else:
                smooth = (L / wavelength - slow) / (fast - slow)
                found.append((1 - smooth) * speed / s + smooth * speed)
        else:
            # A pair turns L speed / 2 pi times; the first that turns no more than `fast` times begins the ramp ...
            ends = [R / 2 * math.log(L / (2 * math.pi * turns), settings.base) for turns in (fast, slow)]
            first, last = max(math.floor(ends[0]), 0), min(math.ceil(ends[1]), R - 1)
            removed = 0.0 if i <= first else 1.0 if i >= last else (i - first) / (last - first)
            found.append(speed * (1 - removed) + speed / s * removed)
    return found


@pytest.mark.parametrize("settings", LENGTHENED.values(), ids=LENGTHENED)
@pytest.mark.parametrize("R", [4, 10, 64, 128])
def test_scalings_are_their_papers_formulas(settings, R):
    expected = by_hand(settings, R)
    close(speeds(settings, R), torch.tensor(expected, dtype=torch.float64), tolerance=1e-14)
    slowed = speeds(replace(RotaryConfig(), base=settings.base), R) / speeds(settings, R)
    assert ((slowed > 1 - 1e-12) & (slowed < settings.factor + 1e-9)).all(), "no pair is slowed more than asked for"


@pytest.mark.parametrize(("name", "changed"), [
    *((name, {"base": 1.7e308}) for name in LENGTHENED),
    *((name, {"factor": 1e300}) for name in LENGTHENED),
    *((name, {"fast_turns": 1e308}) for name in LENGTHENED if SCALINGS[LENGTHENED[name].scaling]),
    *((name, {"slow_turns": 1e-320}) for name in LENGTHENED if SCALINGS[LENGTHENED[name].scaling]),
], ids=str)  # fmt: skip
def test_the_largest_settings_give_numbers(name, changed):
    """Every setting that is not refused: no base or factor is infinite on the way, and no logarithm is of 0."""
    found = speeds(replace(LENGTHENED[name], **changed), 4)
    assert float(found[0]) > 0
    assert ((found >= 0) & (found <= 1)).all()


@pytest.mark.parametrize(("name", "expected"), [("yarn", 0.1 * math.log(16) + 1), ("yarn by hand", 1.25), ("ntk", 1.0)])
def test_yarn_sharpens_scores(name, expected):
    """Queries and keys are both multiplied, so scores by the square."""
    scheme = POSITIONS["rotary"](Sizes(16, 4, 8, None, rotary=LENGTHENED[name]))
    x, rotation = torch.randn(1, 1, 1, 8).double(), scheme.rotation(torch.tensor([3]), LIKE)
    close(rotate(x, rotation).norm() / x.norm(), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("name", LENGTHENED)
def test_scalings_are_those_of_transformers(name):
    rope = pytest.importorskip("transformers.modeling_rope_utils")
    transformers = pytest.importorskip("transformers")
    settings = LENGTHENED[name]
    slow, fast = settings.turns
    theirs = {"rope_type": settings.scaling, "rope_theta": settings.base, "factor": settings.factor}
    length = settings.original_max_len
    if settings.scaling == "ntk":  # the dynamic kind, for a text that is as much longer than what it was trained on
        theirs, length = {**theirs, "rope_type": "dynamic", "factor": 1.0}, 100
    if settings.scaling == "yarn":
        theirs |= {"beta_fast": fast, "beta_slow": slow, "original_max_position_embeddings": length}
        theirs |= {"attention_factor": settings.attention_factor} if settings.attention_factor else {}
    if settings.scaling == "llama3":
        theirs |= {"high_freq_factor": fast, "low_freq_factor": slow, "original_max_position_embeddings": length}
    config = transformers.LlamaConfig(
        hidden_size=128, num_attention_heads=2, max_position_embeddings=length or 100, rope_parameters=theirs
    )
    longer = {"seq_len": round(100 * settings.factor)} if settings.scaling == "ntk" else {}
    inverse, factor = rope.ROPE_INIT_FUNCTIONS[theirs["rope_type"]](config, CPU, **longer)
    close(speeds(settings, 64).float(), inverse, tolerance=2e-6)
    close((speeds(settings, 64).float() / inverse), torch.ones(32), tolerance=1e-5)
    scheme = POSITIONS["rotary"](Sizes(128, 2, 64, None, rotary=settings))
    assert scheme.rotation(torch.tensor([0]), LIKE).cos[0, 0].item() == pytest.approx(factor, abs=1e-12)
