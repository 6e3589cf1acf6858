"""Several runs that write as one: scored, answering and going on from prompts, by what their models say on average."""

from pathlib import Path

import pytest
import torch

from glassformer.base.errors import ConfigError, DataError
from glassformer.data.kinds import LABEL
from glassformer.decode.answer import answer
from glassformer.nn.ensemble import Ensemble
from glassformer.store.checkpoint import load, load_mean
from glassformer.train.evaluate import Scoring, evaluate_model
from glassformer.train.finished.loading import load_runs
from glassformer.train.finished.use import Requested, evaluate, translate
from glassformer.train.finished.writing import Writer
from glassformer.train.objective import objective_for
from glassformer.train.recipe import Recipe, load_recipe, override
from glassformer.train.run.beginning import prepare_split
from glassformer.train.run.session import start
from train.examples import follow, recipe
from train.finished.test_use import never_ends
from train.test_classifier import classifier_recipe
from train.text_examples import text_recipe

LINES = [(1, "s0 s1 s2"), (2, "s3"), (3, "s4 s4 s1")]


def trained(folder: Path, **changes: object) -> Path:
    follow(start(recipe(checkpoint__every=3, **changes), folder / "run"))
    return folder / "run"


def own(run: Path) -> Recipe:
    return load_recipe(run / "recipe.toml")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[Path]:
    """Three of the same task and data: one wider, one that takes short texts."""
    unlike = ({}, {"model__d_model": 16, "model__dropout": 0.0}, {"model__max_len": 6})
    return [trained(tmp_path_factory.mktemp("member"), **each) for each in unlike]


@pytest.mark.parametrize("decode", [{}, {"decode.beam": 3}], ids=["greedy", "beam"])
def test_they_are_scored_as_one_model(runs, decode):
    """As the models joined by hand on the split of the first; and the loss is below the mean of theirs (Jensen)."""
    usual = override(own(runs[0]), decode)
    scores = evaluate(runs[0], usual, others=runs[1:])
    found = load(runs[0])
    split = prepare_split(usual, found.tokenizers, "test")
    joint, targets = Ensemble([load(run).model for run in runs]), [pair.target for pair in split.pairs]
    scoring = Scoring(joint, usual, found.tokenizers, objective_for(joint))
    assert scores == evaluate_model(scoring, split.encoded, targets).metrics
    alone = [evaluate(run, override(own(run), decode))["loss"] for run in runs]
    assert scores["loss"] < sum(alone) / 3
    assert scores["loss"] not in alone


def test_they_answer_lines_as_one_model(runs):
    found = load(runs[0])
    expected = answer(
        Ensemble([load(run).model for run in runs]),
        [found.tokenizers.source.encode(line) for _, line in LINES],
        max_new_tokens=4,
    )
    for size in (1, 3):
        answers = list(translate(runs[0], LINES, size, others=runs[1:]))
        assert [each.text for each in answers] == [found.tokenizers.target.decode(each.ids) for each in expected]
    scored = list(translate(runs[0], LINES, 2, requested=Requested(1, True, True), others=runs[1:]))
    assert [each.best[0].text for each in scored] == [each.text for each in answers]
    apart = [list(translate(run, LINES, 2, requested=Requested(1, True))) for run in runs]
    assert all(one[0].best[0].score != scored[0].best[0].score for one in apart)


def test_the_mean_of_checkpoints_is_that_of_every_member(runs):
    loaded = load_runs(runs[0], own(runs[0]), runs[1:], 2)
    for run, member in zip(runs, loaded.model.members, strict=True):
        for one, other in zip(member.parameters(), load_mean(run, 2).model.parameters(), strict=True):
            assert torch.equal(one, other)


def test_one_run_is_no_ensemble(runs):
    assert not isinstance(load_runs(runs[0], own(runs[0])).model, Ensemble)


def test_the_shortest_member_says_how_long_a_text_may_be_and_is_named(runs, tmp_path, monkeypatch):
    """The third takes six tokens, of which <eos> is one; a target has <bos>, too."""
    long = "s0 s1 s2 s3 s4 s0"
    assert len(list(translate(runs[0], [(1, long)], 1, others=runs[1:2]))) == 1
    for others in (runs[1:], runs[:0:-1]):
        with pytest.raises(DataError, match=rf"^{runs[2]}: .* most max_len=6 tokens, <eos> included; line 7 has 7"):
            list(translate(runs[0], [(7, long)], 1, others=others))
        with pytest.raises(DataError, match=rf"^{runs[2]}: A prompt may have at most 6 tokens here"):
            next(Writer(runs[0], own(runs[0]), others=others).write([long]))
    with pytest.raises(DataError, match=r"^A line may have at most max_len=6"):
        list(translate(runs[2], [(7, long)], 1))
    test = tmp_path / "test.tsv"
    test.write_text(f"s0\ts0\n{long}\ts1\n", "utf-8")
    requested = override(own(runs[0]), {"data.task": "pairs", "data.test": str(test)})
    with pytest.raises(DataError, match=rf"^{runs[2]}: {test}:2: the source has 7 tokens, .*at most model\.max_len=6"):
        evaluate(runs[0], requested, others=runs[1:])
    monkeypatch.setattr("glassformer.decode.answer.chooser", lambda *_: never_ends)
    longer = override(own(runs[0]), {"decode.max_new_tokens": 99})
    [answered] = translate(runs[0], [(1, "s0")], 1, longer, others=runs[1:])
    assert answered.cut == f"model.max_len=6, the most that {runs[2]} reads"


def test_the_device_is_that_of_the_first(runs, monkeypatch):
    seen: list[str] = []

    def note(run, its, average=None):
        seen.append(its.training.device)
        return load(run)

    monkeypatch.setattr("glassformer.train.finished.loading.load_run", note)
    load_runs(runs[0], override(own(runs[0]), {"training.device": "auto"}), runs[1:])
    assert seen == ["auto"] * 3


@pytest.mark.parametrize("objective", ["next_token", "masked", "prefix"])
def test_of_running_text(objective, tmp_path):
    """Scored window by window as each token has it from all; and texts are written where it is read in order."""
    book = tmp_path / "book.txt"
    book.write_text("abc abd bca cab " * 60, "utf-8")
    both = []
    for seed in (1, 2):
        follow(start(text_recipe(book, objective, training__seed=seed), tmp_path / f"{seed}"))
        both.append(tmp_path / f"{seed}")
    scores = evaluate(both[0], own(both[0]), "dev", others=both[1:])
    alone = [evaluate(run, own(run), "dev") for run in both]
    assert scores.keys() == alone[0].keys()
    assert scores["loss"] < sum(each["loss"] for each in alone) / 2
    if objective == "masked":
        return
    requested = override(own(both[0]), {"decode.max_new_tokens": 60, "decode.temperature": 1.0})
    texts = ["".join(each.text for each in Writer(run, requested, others=rest).write(["abc"])) for run, *rest in
             (both, both[::-1], both[:1])]  # fmt: skip
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]


def test_runs_that_answer_in_other_ways_are_refused(runs, tmp_path):
    book = tmp_path / "book.txt"
    book.write_text("abc abd bca cab " * 60, "utf-8")
    follow(start(text_recipe(book), tmp_path / "text"))
    follow(start(text_recipe(book, "prefix"), tmp_path / "prefix"))
    with pytest.raises(ConfigError, match=r"same `data\.objective`; .*prefix has 'prefix', .*text has 'next_token'"):
        Writer(tmp_path / "text", own(tmp_path / "text"), others=[tmp_path / "prefix"])
    follow(start(classifier_recipe(tmp_path, training__steps=1), tmp_path / "labels"))
    other = trained(tmp_path / "blanks", data__layout="encoder")
    for strange, message in (
        (tmp_path / "text", rf"`data\.task`; {tmp_path / 'text'} has 'text', .* has 'pairs'"),
        (tmp_path / "labels", rf"`data\.layout`; {tmp_path / 'labels'} has '{LABEL}', .* has 'encoder-decoder'"),
        (other, rf"`data\.layout`; {other} has 'encoder', .* has 'encoder-decoder'"),
    ):
        with pytest.raises(ConfigError, match=rf"must have the same {message}\. Give runs of the same kind"):
            evaluate(runs[0], own(runs[0]), others=[strange])
        with pytest.raises(ConfigError, match="must have the same `data"):
            list(translate(runs[0], LINES, 1, others=[strange]))


def test_other_vocabularies_are_refused(runs, tmp_path):
    other = trained(tmp_path, data__symbols=6)
    message = f"must have the same vocabularies; the source vocabulary of {other} differs from that of {runs[0]}"
    with pytest.raises(ConfigError, match=message):
        evaluate(runs[0], own(runs[0]), others=[other])
