"""The small pictures in another order, and some of them alone; figures beside a map and of a cell."""

import math

import pytest
import torch

from glassformer import trace
from glassformer.nn.observe import watch_attention
from lens.explored import LETTERS, page_of, planted, small

FACTS = [  # layer, head, role, strength, score, what is left of 1.0 without it
    (0, 0, "previous", "strong", 0.8, 0.9),
    (0, 1, "reversal", "partial", 0.4, 0.2),
    (0, 2, "none", "none", 0.1, 1.0),
    (1, 0, "reversal", "strong", 0.9, 0.6),
    (1, 1, "previous", "strong", 0.95, 0.99),
    (1, 2, "mixed", "none", 0.2, 0.95),
]
ORDERS = {
    "layer": "0.0 0.1 0.2 1.0 1.1 1.2",
    "role": "1.1 0.0 1.0 0.1 1.2 0.2",
    "score": "1.1 1.0 0.0 0.1 1.2 0.2",
    "effect": "0.1 1.0 0.0 1.2 1.1 0.2",
}
FILTERS = {
    "role:reversal": "0.1 1.0",
    "layer:1": "1.0 1.1 1.2",
    "sure": "0.0 1.0 1.1",
    "needed": "0.0 0.1 1.0",
    "": "0.0 0.1 0.2 1.0 1.1 1.2",
}


@pytest.fixture(scope="module")
def arranged(tmp_path_factory):
    """The address of a planted trace whose cross heads all have a role and an effect."""
    made, _ = planted()
    made.header["heads"] = [
        {
            "id": f"x.{layer}.{head}",
            "block": "cross",
            "layer": layer,
            "head": head,
            "role": {"label": role, "strength": strength, "score": score, "runner_up": ["first", 0.0]},
            "ablation": {
                "kind": "zero",
                "metric": "exact_match",
                "base": 1.0,
                "value": left,
                "ci95": [left - 0.06, left + 0.06],
                "n": 100,
                "verdict": "needed, pattern not recognised" if left < 0.95 else "no pattern, not needed alone",
            },
        }
        for layer, head, role, strength, score, left in FACTS
    ]
    return page_of(tmp_path_factory.mktemp("arranged"), made)


LENGTHS = """() => {
  const canvas = document.querySelector(".map-received"), pen = canvas.getContext("2d");
  const column = j => pen.getImageData((j + 0.5) * canvas.width / 3, 0, 1, canvas.height).data;
  return [0, 1, 2].map(j => column(j).filter((value, i) => i % 4 === 3 && value).length);
}"""


def names(page):
    """The heads as they stand."""
    return " ".join(page.locator(".thumb-name").all_text_contents())


def test_heads_are_sorted_and_left_out(watched, arranged):
    view = watched()
    page = view.open(arranged)
    for sort, expected in ORDERS.items():
        view.go(f"attention?sort={sort}")
        assert names(page) == expected, sort
    for only, expected in FILTERS.items():
        view.go(f"attention?only={only}")
        assert names(page) == expected, only
    view.go("attention?sort=constructor&only=constructor")
    assert names(page) == ORDERS["layer"], "what is no order is none"


def test_keys_go_where_the_heads_stand(watched, arranged):
    """Two rows of three, by what is lost; the choice keeps its focus as the order changes."""
    view = watched()
    page = view.open(f"{arranged}#attention?layer=0&head=1")
    select = page.locator(".all-heads .picker", has_text="Sort by").locator("select")
    select.focus()
    select.select_option("effect")
    view.settle()
    assert select.evaluate("each => each === document.activeElement")
    page.locator(".thumb[aria-selected=true]").focus()
    for key, at in (("ArrowRight", "1 0"), ("ArrowDown", "1 1"), ("End", "0 2"), ("PageUp", "0 0"), ("Home", "0 1")):
        page.keyboard.press(key)
        view.settle()
        assert page.get_attribute(".thumb[aria-selected=true]", "data-at") == at
        assert page.evaluate("() => document.activeElement.dataset.at") == at
    page.locator(".all-heads .picker", has_text="Show").locator("select").select_option("layer:1")
    view.settle()
    assert page.locator(".thumb[tabindex='0']").get_attribute("data-at") == "1 0", "one is reached by Tab"


def test_figures_beside_a_map(opened, shown):
    """Of each query the entropy, of each key what it receives, as numbers and as lengths of bars."""
    weights = shown[2]["decoder"][1, 1].astype(float)
    page = opened.go("attention?block=decoder&layer=1&head=1&q=2&k=1")
    row = weights[2, :3]
    row = row / row.sum()
    entropy = -sum(p * math.log(p) for p in row)
    shown = page.text_content("[data-fact=entropy]").split()
    assert float(shown[0]) == pytest.approx(entropy, abs=0.02)
    assert float(shown[4]) == pytest.approx(math.log(3), abs=0.01)
    shown = page.text_content("[data-fact=received]").split()
    assert float(shown[0]) == pytest.approx(weights[1:, 1].sum(), abs=0.02)
    assert shown[2:] == ["2", "queries"], "the first query may not read it"
    box = page.locator(".map-received").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 6, box["y"] + 10)
    opened.settle()
    tip = page.get_attribute(".map-received", "data-tip")
    assert float(tip.partition("receives ")[2].split()[0]) == pytest.approx(weights[:, 0].sum(), abs=0.02)
    lengths = page.evaluate(LENGTHS)
    sums = weights.sum(0)
    assert [each / max(lengths) for each in lengths] == pytest.approx(list(sums / sums.max()), abs=0.06)


def test_a_masked_cell_says_so(opened):
    page = opened.go("attention?block=decoder&q=0&k=1")
    assert page.text_content("[data-fact=mask]").startswith("masked")
    assert page.locator("[data-fact=score], [data-fact=moved]").count() == 0
    opened.go("attention?block=decoder&q=1&k=0")
    assert page.text_content("[data-fact=mask]") == "may be read"


@pytest.mark.parametrize("encoding", ["f32", "sqrt255"])
def test_the_score_is_that_before_softmax(opened_with, encoding):
    """As the products of queries and keys have it, within what the page says that it may be off."""
    model = small("decoder", n_layers=1, positions="t5")  # whose scores have a bias, too
    made = trace(model, LETTERS, "abcde", max_new_tokens=3, encoding=encoding)
    scores = {}

    def note(call):
        scores["of"] = (call.q @ call.k.mT * call.scale + call.mask.bias)[0]

    with torch.no_grad(), watch_attention(model, note):
        model(torch.tensor([made.header["sequences"]["target"]["ids"][:-1]]))
    view = opened_with(made)
    for head, q, k in ((0, 3, 2), (3, 5, 0), (2, 4, 4)):
        page = view.go(f"attention?head={head}&q={q}&k={k}")
        page.locator("[data-fact=score]").wait_for()
        value, *off = page.text_content("[data-fact=score]").split(" ± ")
        assert len(off) == (0 if encoding == "f32" else 1)
        within = float(off[0]) * 1.1 + 0.006 if off else 1e-3
        assert float(value) == pytest.approx(float(scores["of"][head, q, k]), abs=within)


def test_a_role_has_its_shift_and_the_chance_of_that(watched, arranged):
    page = watched().open(arranged)
    named = """() => {
      const { chanceOf, roleName } = modules["role.js"];
      const role = (label, shift) => ({ label, shift, strength: "strong", score: 0.9 });
      const head = { role: role("reversal", -1), chance: { reversal: 0.1, "reversal -1": 0.2 } };
      const others = [role("first", 0), role("diagonal", 2), null];
      return [roleName(head.role), chanceOf(head), ...others.map(roleName)];
    }"""
    assert page.evaluate(named) == ["reversal -1", 0.2, "first", "diagonal +2", ""]
