"""Models that write nothing: a text alone is asked of them, and what they answer is shown. And a server that ended."""

import json
import re
from dataclasses import replace
from functools import partial

import pytest

from glassformer import ModelConfig, StackConfig, Transformer, diagnose, trace
from glassformer.data.dataset import Tokenizers
from glassformer.data.tokens.vocabulary import Labels
from glassformer.lens.ablate import silence
from glassformer.lens.page.bundle import resources
from glassformer.lens.server.subject import Subject
from glassformer.lens.trace.reading import Layout
from glassformer.nn.outputs import Classify, Regress
from lens.explored import LETTERS, small, toy
from lens.learners import backwards, learned, probe_of, untrained
from lens.page.conftest import METRICS

NAMES = ["bad", "fine", "good"]


def judge(head):
    """Three labels over ten letters, or three numbers of them."""
    stack = StackConfig(d_model=16, n_heads=4, n_layers=2, d_ff=32, dropout=0.0)
    model = Transformer(ModelConfig(LETTERS.vocab_size, encoder=stack, head=head(len(NAMES)))).eval()
    return Subject("judge", model, Tokenizers(LETTERS, Labels(NAMES)), examples=[("abc", None)])


def filler():
    """An encoder that says a token at each place."""
    return toy("abc", model=small("encoder"))


@pytest.mark.parametrize(
    "made", [partial(judge, Classify), partial(judge, Regress), filler], ids=["labels", "numbers", "fill"]
)
def test_a_text_alone_is_asked(watched, serving, made):
    """No settings, nothing of them in the request, and the answer is there once it has come."""
    subject = made()
    with serving(subject) as address:
        view = watched()
        page = view.open(address, "generate")
        assert page.locator(".prompt input").count() == 0
        assert page.locator("[data-branch]").count() == 0
        requests = []
        page.on("request", lambda request: requests.append(request.post_data) if "generate" in request.url else None)
        page.fill("#prompt", "dcbaab")
        page.locator("form button[type=submit]").click()
        page.wait_for_selector("#bar option[value='1']", state="attached")
        page.wait_for_function("() => location.hash.includes('trace=1')")
        view.settle()
        assert [json.loads(each) for each in requests] == [{"text": "dcbaab"}]
        header = subject.trace("dcbaab").header
        if labels := header.get("labels"):
            assert page.locator(".answer .bars .chip").all_text_contents() == [name for name, _ in labels]
            answers = page.locator(".answer .bars .figure").all_text_contents()
            part = 1 if header["run"]["mode"] == "number" else 100
            given = [float(each.strip(" %")) / part for each in answers]
            assert given == pytest.approx([value for _, value in labels], abs=1e-3)
        else:
            assert page.locator(".steps .chip").count() == len(header["steps"]) > 0


def test_where_the_server_has_ended_the_page_says_so(watched, serving, tmp_path):
    """On a screen that asks, and on one that follows; the history is asked for anew, and goes well then."""
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in METRICS))
    ended = "glassformer explore has ended"
    with serving(toy("abc", run=tmp_path, history=lambda: {"steps": [1], "heads": []})) as address:
        view = watched()
        page = view.open(address)
        page.clock.install()
        view.go("generate")
    page.locator("form button[type=submit]").click()
    page.wait_for_function("said => document.querySelector('.message').textContent.startsWith(said)", arg=ended)
    view.go("curves")
    assert page.locator("main .controls > [role=status]").text_content() == "follows the run"
    page.clock.fast_forward(3000)
    page.wait_for_selector(f".controls > [role=status]:has-text('{ended}')")
    view.go("heads")
    page.locator("#history").click()
    page.wait_for_selector(f".outcome .message:has-text('{ended}')")
    page.route("**/api/history", lambda route: route.fulfill(json={"steps": [1, 2], "heads": []}))
    page.clock.fast_forward(20_000)
    page.wait_for_selector("text=The roles at 2 checkpoints.")
    view.complaints.clear()


@pytest.mark.parametrize("kind", ["target", "masked"])
def test_of_given_tokens_the_likeliest_are_counted(watched, tmp_path, kind):
    """What was read is not right because it was read: told is where the model would have said it, too."""
    model = small() if kind == "target" else small("encoder")
    made = trace(
        model, LETTERS, "abcd", **({"target": "badcf"} if kind == "target" else {"layout": Layout(masked=True)})
    )
    steps = made.header["steps"]
    hits = sum(step["rank"] == 0 for step in steps)
    assert hits < len(steps)
    view = watched()
    page = view.open(made.show().save(tmp_path / "given.html").as_uri())
    assert "What it was made to read" in page.text_content(".answer h2")
    assert f"{hits} of {len(steps)} tokens are the model’s most likely ones" in page.text_content(".answer")
    view.go("generate")
    assert not any(message in page.text_content("main") for message in ("It is correct.", "The correct token is"))
    assert " and writes " not in page.text_content("main")


def test_a_classifier_gives_a_label_without_heads(watched, serving):
    with serving(replace(judge(Classify), silence=silence)) as address:
        page = watched().open(address, "ablations")
        page.locator("[data-head='encoder 0 0']").check()
        page.locator("#ablate").click()
        page.wait_for_selector(".screen.ablations .chip")
        shown = page.text_content(".screen.ablations")
        assert "label without them" in shown
        assert "tokens without them" not in shown


# --- The page of a model that has just learned its task names what its heads do; that of an untrained one does not


def opened_page(opened_with, model):
    """The overview of a model that was to reverse, in the browser."""
    found = diagnose(model, probe_of("encoder-decoder", backwards))
    made = trace(model, LETTERS, "badcf", gold="fcdab")
    made.header["heads"] = found.to_json()
    return opened_with(made, sentences=found.sentences).page


@pytest.mark.slow
def test_a_model_that_reverses_is_named_so(opened_with):
    page = opened_page(opened_with, learned("encoder-decoder", backwards, 250, 2e-2))
    assert "6 of 6 tokens correct" in page.text_content(".answer")
    assert "reversal" in page.text_content(".diagnosis .sentence.first")
    found = page.locator(".diagnosis .found", has=page.locator(".role.strong", has_text="reversal"))
    assert found.count() >= 1
    assert found.first.locator("h3").text_content().startswith("cross")


def test_an_untrained_one_is_not(opened_with):
    page = opened_page(opened_with, untrained("encoder-decoder"))
    assert "No head has a role" in page.text_content(".diagnosis")
    assert "reversal" not in page.text_content(".diagnosis")


# --- The page's own source: text never becomes HTML or script, and no name stands for two things


FORBIDDEN = re.compile(
    r"\beval\b|\bFunction\s*\(|\b(?:inner|outer)HTML\b|\binsertAdjacentHTML\b|\bdocument\s*\.\s*write|\bsrcdoc\b"
    r"|\bcreateContextualFragment\b|\bsetHTML\w*|\bDOMParser\b|\bset(?:Timeout|Interval)\s*\(\s*[\"'`]|javascript:"
)
MODULES = [name for name in resources() if name.endswith(".js")]


@pytest.mark.parametrize("name", MODULES)
def test_no_text_becomes_html_or_script(name):
    text = resources()[name].decode()
    assert [match.group() for match in FORBIDDEN.finditer(text)] == []


@pytest.mark.parametrize(
    "line",
    ["eval(text)", "new Function ('x')", "a.innerHTML = b", "a.outerHTML += b", "a.insertAdjacentHTML('x', b)",
     "document.write(a)", "document . writeln(a)", 'setTimeout("go()")', "a.href = 'javascript:go()'"],
)  # fmt: skip
def test_the_rule_sees_what_is_planted(line):
    assert FORBIDDEN.search(line)


def test_exported_names_are_told_apart():
    """A name that two modules export, or that one exports and another declares, is read as the wrong one."""
    declared = {
        name: set(re.findall(r"^(?:export )?(?:async )?function (\w+)", resources()[name].decode(), re.MULTILINE))
        for name in MODULES
    }
    assert [name for name in MODULES if "apart" in declared[name]] == ["data.js"]
