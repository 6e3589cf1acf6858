"""What stands beside a run: other inputs, other runs, its study; and checkpoints that come while one looks."""

import json
from statistics import fmean

import pytest

from glassformer.lens.trace.make import model_facts
from glassformer.nn.config import ModelConfig, StackConfig
from glassformer.nn.transformer import Transformer
from lens.explored import planted, toy

pytestmark = pytest.mark.slow


def test_other_inputs_are_a_click_away(opened_with):
    """Each with its answer, and how much of it is right; the page leads to it and back."""
    traces = [planted(sources=(letter, "b", "c", "d", "<eos>"))[0] for letter in "abc"]
    traces[1].header["steps"][1]["gold"] = 0
    view = opened_with(*traces)
    page = view.page
    page.locator(".examples .tokens .chip").nth(5).wait_for()
    rows = page.locator(".examples li")
    assert rows.locator("button").all_text_contents() == ["bbcd", "cbcd"]
    assert [row.locator(".quiet").text_content().strip() for row in rows.all()] == [
        "2 of 3 tokens correct",
        "3 of 3 tokens correct",
    ]
    assert rows.nth(0).locator(".chip").all_text_contents() == ["d", "c", "b"]
    assert rows.nth(0).locator(".chip.wrong").all_text_contents() == ["c"]
    rows.nth(0).locator("button").click()
    view.settle()
    assert "trace=1" in page.url
    assert page.locator(".examples button").all_text_contents() == ["abcd", "cbcd"]


@pytest.mark.parametrize(("taps", "shown"), [(1, []), (3, ["of 3 tokens"])])
def test_a_convolution_is_told_where_there_is_one(opened_with, taps, shown):
    made = planted()[0]
    stack = StackConfig(d_model=8, n_heads=2, n_layers=1, d_ff=8, causal=True, convolution=taps)
    made.header["model"] |= {"convolution": model_facts(Transformer(ModelConfig(9, decoder=stack)))["convolution"]}
    page = opened_with(made).page
    page.locator("dt", has_text="d_model").first.wait_for()
    assert page.locator("dt:text-is('convolution') + dd").all_text_contents() == shown


@pytest.mark.parametrize(("parallel", "shown"), [(False, []), (True, ["in parallel"])])
def test_branches_in_parallel_are_told_and_stand_side_by_side(opened_with, parallel, shown):
    made = planted()[0]
    stack = StackConfig(d_model=8, n_heads=2, n_layers=1, d_ff=8, causal=True, parallel_branches=parallel)
    facts = model_facts(Transformer(ModelConfig(9, decoder=stack)))
    made.header["model"] |= {"parallel_branches": facts["parallel_branches"]}
    page = opened_with(made).page
    page.locator("dt", has_text="d_model").first.wait_for()
    assert page.locator("dt:text-is('branches') + dd").all_text_contents() == shown
    boxes = page.evaluate(
        "[...document.querySelector('.block').children].map((box) => box.getBoundingClientRect().top)"
    )
    assert len(set(boxes)) == (1 if parallel else len(boxes))
    assert page.evaluate(
        "[...document.querySelectorAll('.block')].every((block) => block.scrollWidth <= block.clientWidth)"
    )


def lines(speed, steps):
    """Figures of a run."""
    return [{"kind": "train", "step": step, "loss": speed / step, "tokens_per_second": speed} for step in steps]


def test_runs_side_by_side(opened_with):
    """A colour for each run, dashes from the fifth on, its name at its figures."""
    others = [{"name": f"other {i}", "metrics": lines(i + 2, range(1, 9))} for i in range(4)]
    figures, named = lines(1, range(1, 9)), [each["name"] for each in others]
    page = opened_with(planted()[0], place="curves", name="mine", metrics=figures, beside=others, others=named).page
    card = page.locator(".charts .card", has_text="tokens per second")
    assert card.locator(".keys span").all_text_contents() == ["mine", *(f"other {i}" for i in range(4))]
    assert [each.get_attribute("class") for each in card.locator("path.line:not(.raw)").all()] == [
        *(f"line c{i} d0" for i in range(4)),
        "line c0 d1",
    ]
    shown = card.locator(".values").text_content().split("\n")
    assert shown[4] == "step 8: other 3, train tokens per second 5"


STUDY = {
    "name": "depth",
    "metric": "exact_match",
    "share": True,
    "split": "dev",
    "n": 500,
    "arms": [
        {"values": {"model.n_layers": layers}, "seed": seed, "figure": figure, "seconds": 1.0, "data": f"{seed:04x}"}
        for layers, figures in ((1, (0.5, 0.6, 0.7)), (2, (0.58, 0.69, 0.8)), (4, (0.9,)))
        for seed, figure in enumerate(figures)
    ],
}


def test_a_study_compares_its_settings(opened_with):
    """By hand: the mean of 8, 9 and 10 points, with 4.303 standard errors of 1 / sqrt(3) on both sides."""
    page = opened_with(planted()[0], place="ablations", study=STUDY).page
    rows = page.locator(".study tbody tr")
    cells = [row.locator("td, th").all_text_contents() for row in rows.all()]
    assert [row[0] for row in cells] == ["n_layers = 1", "n_layers = 2", "n_layers = 4"]
    assert [row[1] for row in cells] == ["3", "3", "1"]
    half = 4.303 * 10 / 3**0.5
    assert cells[0][2] == f"60.0 % [{60 - half:.1f} %, {60 + half:.1f} %]"
    assert cells[0][4] == "the baseline"
    half = 4.303 / 3**0.5
    assert cells[1][4] == f"+9.00 % [+{9 - half:.2f} %, +{9 + half:.1f} %]"
    assert cells[1][5] == "interval excludes 0"
    assert cells[2][4:] == ["+40.0 %", "no interval from one seed"]
    page.locator(".study select").select_option("n_layers = 2")
    assert rows.nth(0).locator("td").nth(3).text_content().startswith("−9.00 % [−11.5 %, −6.52 %]")
    assert rows.nth(1).locator("circle").count() == 3
    assert fmean([0.58, 0.69, 0.8]) == pytest.approx(0.69)
    assert page.text_content(".study p").startswith("exact match on the dev split, n = 500: ")
    assert "which saw the same data" in page.text_content(".study")


def test_a_study_of_other_data_says_so(opened_with):
    """A setting of the data is varied, so that runs of one seed did not learn from the same."""
    arms = [{**each, "data": "00ff"} if each["values"]["model.n_layers"] == 2 else each for each in STUDY["arms"]]
    page = opened_with(planted()[0], place="ablations", study={**STUDY, "arms": arms}).page
    assert "which did not all see the same data" in page.text_content(".study")


def test_checkpoints_that_come_are_marked(watched, serving, tmp_path):
    """While the page is open, and without a new line of figures."""
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in lines(1, range(1, 41))))
    kept = [10]
    past, others = {"steps": [], "heads": []}, [("other", tmp_path)]
    subject = toy("ab", run=tmp_path, history=lambda: past, kept=lambda: list(kept), others=others)
    with serving(subject) as address:
        page = watched().open(address, "curves")
        assert page.locator(".chart .kept").count() == 1
        assert page.locator(".keys").first.locator("span").all_text_contents()[:2] == ["toy", "other"]
        kept.append(30)
        page.locator(".chart .kept").nth(1).wait_for()
        assert "step 30" in page.locator(".chart .kept").nth(1).get_attribute("aria-label")
        page.goto("about:blank")
