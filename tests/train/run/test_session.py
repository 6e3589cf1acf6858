"""When a run stops and what it keeps: early stopping at the exact evaluation, the best checkpoint, divergence."""

import math
from pathlib import Path

import pytest
import torch

from glassformer.base.errors import DivergedError
from glassformer.store import folders
from glassformer.store.checkpoint import load, load_optimizer, save
from glassformer.store.folders import check, checkpoints, sha256, step_folder
from glassformer.train import evaluate as evaluate_module
from glassformer.train.evaluate import Scores
from glassformer.train.ranks.distributed import ALONE
from glassformer.train.records import Evaluated, Finished, Progress, Saved, Stopped
from glassformer.train.run import session
from glassformer.train.run.session import resume, start
from train.examples import STEPS, assert_same, follow, recipe, weights


def script(monkeypatch, values: list[float], name: str = "exact_match", losses: list[float] | None = None) -> None:
    """The evaluations of a run give these values, one after the other."""
    left = [{name: value, "n": 6} for value in values]
    for number, metrics in enumerate(left):
        metrics.setdefault("loss", (losses or [1.0] * len(left))[number])

    def evaluate_model(scoring, encoded, *rest):
        return Scores(left.pop(0), ["a"] * len(encoded))

    monkeypatch.setattr(evaluate_module, "evaluate_model", evaluate_model)


@pytest.mark.parametrize(("name", "values", "losses", "patience", "best", "last"), [
    ("exact_match", [0.1, 0.3, 0.2, 0.1, 0.9, 0.9], None, 2, 2, 4),
    ("exact_match", [0.1, 0.05, 0.2, 0.1, 0.1, 0.9], None, 2, 3, 5),  # an improvement counts from nought again
    ("exact_match", [0.5, 0.1, 0.6, 0.1, 0.7, 0.1], None, 2, 5, 6),
    ("exact_match", [0.3, 0.3, 0.9, 0.9, 0.9, 0.9], None, 1, 1, 2),  # equal is no better
    ("exact_match", [0.3, 0.3, 0.3, 0.3, 0.3, 0.3], [3, 2, 1, 1, 1, 1], 2, 3, 5),  # unless the loss is
    ("exact_match", [0.3, 0.2, 0.2, 0.2, 0.2, 0.2], [3, 2, 1, 0, 0, 0], 2, 1, 3),
    ("loss", [3.0, 2.0, 2.5, 2.2, 1.0, 1.0], None, 2, 2, 4),
    ("loss", [3.0, 2.0, 1.0, 0.5, 0.2, 0.1], None, 1, 6, 6),
    ("token_accuracy", [0.9, 0.1, 0.1, 0.1, 0.1, 0.1], None, 5, 1, 6),
    ("exact_match", [0.9, 0.1, 0.1, 0.1, 0.1, 0.1], None, 0, 1, 6),  # 0: no limit
])  # fmt: skip
def test_stops_at_the_exact_evaluation_and_keeps_the_best(
    tmp_path, monkeypatch, name, values, losses, patience, best, last
):
    script(monkeypatch, values, name, losses)
    settings = {"training__evaluate_every": 2, "training__patience": patience, "training__metric": name}
    session = start(recipe(**settings, checkpoint__keep=1), tmp_path / "run")
    events, at = [], {}
    for event in session.train():
        events.append(event)
        at[event.step] = weights(session.model)
    evaluated = [event.step for event in events if isinstance(event, Evaluated)]
    assert evaluated == list(range(2, 2 * last + 1, 2))
    assert [event.step for event in events if isinstance(event, Progress)] == list(range(1, 2 * last + 1))
    assert (events[-1].step, events[-1].best_step) == (2 * last, 2 * best)
    assert events[-1].best_metrics[name] == values[best - 1]
    stops = [event for event in events if isinstance(event, Stopped)]
    assert stops == ([Stopped(2 * last, "patience")] if last < 6 else [])
    assert set(checkpoints(tmp_path / "run")) == {2 * best, 2 * last}
    loaded = load(tmp_path / "run")
    assert loaded.folder == step_folder(tmp_path / "run", 2 * best)
    assert_same(weights(loaded.model), at[2 * best])


@pytest.mark.parametrize(("values", "steps", "words"), [
    ([0.3] * 3, 6, "the same at all 3 evaluations: exact_match 0.3000, loss 2.5000"),  # n is a count
    ([0.3] * 2, 4, ""),
    ([0.3, 0.3, 0.2], 6, "the same at all 3 evaluations: loss 2.5000"),
    ([1.0] * 3, 6, "the same at all 3 evaluations: loss 2.5000"),  # all right from the first on
])  # fmt: skip
@pytest.mark.parametrize("stop", [None, 3], ids=["whole", "resumed"])
def test_a_score_that_never_moved_is_named_at_the_end(tmp_path, monkeypatch, values, steps, words, stop):
    script(monkeypatch, values, losses=[2.5] * 3)
    settings = {"training__evaluate_every": 2, "training__steps": steps, "training__metric": "exact_match"}
    events = follow(start(recipe(**settings), tmp_path / "run"), stop_after=stop)
    if stop:
        session = resume(tmp_path / "run")
        assert session.best.evaluations == 1
        events = follow(session)
    assert events[-1].never_moved == words
    assert follow(resume(tmp_path / "run"))[-1].never_moved == words, "nothing was left to do"


def test_a_state_of_before_evaluations_were_counted_is_read(tmp_path, monkeypatch):
    """What may have moved before is in `constant`; only the evaluations since then are counted."""
    script(monkeypatch, [0.3] * 4, losses=[2.5] * 4)
    settings = {"training__evaluate_every": 2, "training__metric": "exact_match"}
    follow(start(recipe(**settings, training__steps=8), tmp_path / "run"), stop_after=3)
    loaded, moments = load(folder := step_folder(tmp_path / "run", 3)), load_optimizer(step_folder(tmp_path / "run", 3))
    older = {name: value for name, value in loaded.state.items() if name != "evaluations"}
    save(folder, loaded.model, loaded.tokenizers, optimizer=moments, state=older)
    words = "the same at all 3 evaluations: exact_match 0.3000, loss 2.5000"
    assert follow(resume(tmp_path / "run"))[-1].never_moved == words


@pytest.mark.parametrize(("every", "keep", "left"), [(0, 2, [12]), (5, 1, [12]), (5, 2, [10, 12]), (5, 9, [5, 10, 12])])
def test_checkpoints_that_are_kept(tmp_path, monkeypatch, every, keep, left):
    script(monkeypatch, [0.5])
    settings = {"training__evaluate_every": 0, "training__metric": "exact_match"}
    follow(start(recipe(**settings, checkpoint__every=every, checkpoint__keep=keep), tmp_path / "run"))
    assert list(checkpoints(tmp_path / "run")) == left


def test_weights_are_hashed_once_a_save(tmp_path, monkeypatch):
    hashed: list[Path] = []

    def watched(path: Path) -> str:
        hashed.append(path)
        return sha256(path)

    monkeypatch.setattr(folders, "sha256", watched)
    follow(start(recipe(checkpoint__every=6, training__evaluate_every=0), tmp_path / "run"))
    assert [path.name for path in hashed].count("model.safetensors") == 2  # saves


def test_request_after_the_last_evaluation_comes_too_late(tmp_path):
    session = start(recipe(), tmp_path / "run")
    for event in session.train():
        if isinstance(event, Evaluated) and event.step == 12:
            session.interrupt()
    assert isinstance(event, Finished)


def until_diverged(session, *, spoil_after: int, spoil) -> tuple[str, dict[str, torch.Tensor]]:
    """Train; `spoil` the model after a step. The message, and the weights as they were then."""
    events = session.train()
    next(event for event in events if isinstance(event, Saved) and event.step == spoil_after)
    with torch.no_grad():
        spoil(session.model)
    after = weights(session.model)
    with pytest.raises(DivergedError) as caught:
        list(events)
    return str(caught.value), after


def test_divergence_keeps_the_last_checkpoint(tmp_path):
    session = start(recipe(checkpoint__every=1), tmp_path / "run")
    name = "decoder.blocks.0.feed_forward.branch.down.bias"
    message, after = until_diverged(session, spoil_after=2, spoil=lambda it: it.get_parameter(name)[:1].fill_(math.nan))
    assert "at step 3 the loss is nan" in message
    assert f"The weight {name} is not finite." in message
    kept = step_folder(tmp_path / "run", 2)
    again = f"glassformer resume {kept.parents[1]} --allow-change training.learning_rate --training.learning-rate 0.005"
    assert message.endswith(
        f"The last checkpoint, {kept}, is intact; continue from it with a lower learning rate: {again}"
    )
    assert list(checkpoints(tmp_path / "run")) == [1, 2]
    check(kept)
    now = weights(session.model)
    assert [each for each in now if not torch.equal(now[each].nan_to_num(7), after[each].nan_to_num(7))] == []
    less = resume(tmp_path / "run", ["training.learning_rate"], {"training.learning_rate": 0.005})
    assert follow(less)[-1].step == STEPS


def test_divergence_before_any_checkpoint(tmp_path):
    session = start(recipe(training__learning_rate=1e30, training__warmup=0), tmp_path / "run")
    anew = r"There is no checkpoint yet: train again with --training\.learning-rate 5e\+29, and --overwrite\.$"
    with pytest.raises(DivergedError, match=rf"at step 2 .*{anew}"):
        list(session.train())


def test_advice_after_a_divergence_is_taken(tmp_path):
    """Half the rate would lie below the one that the schedule comes down to."""
    rates = {"training__learning_rate": 0.01, "training__min_learning_rate": 0.008}
    session = start(recipe(checkpoint__every=1, **rates), tmp_path / "run")
    text, _ = until_diverged(session, spoil_after=2, spoil=lambda network: next(network.parameters()).fill_(math.nan))
    allow = "--allow-change training.learning_rate --allow-change training.min_learning_rate"
    assert text.endswith(f"{allow} --training.learning-rate 0.005 --training.min-learning-rate 0.004")
    options = {"training.learning_rate": 0.005, "training.min_learning_rate": 0.004}
    assert resume(tmp_path / "run", [*options], options).step == 2


def test_evaluation_that_is_no_number_is_divergence_too(tmp_path):
    """It comes before the step that would notice, and must not become the best checkpoint."""
    session = start(recipe(checkpoint__every=1), tmp_path / "run")

    def overflow_when_evaluated(network) -> None:
        network.head.register_forward_hook(lambda head, inputs, logits: logits if head.training else logits * math.nan)

    message, _ = until_diverged(session, spoil_after=3, spoil=overflow_when_evaluated)
    assert "after step 4 the loss on the dev split is nan" in message
    assert "Try a lower training.learning_rate" in message
    assert f"The last checkpoint, {step_folder(tmp_path / 'run', 3)}, is intact" in message
    assert load(tmp_path / "run").state["step"] == 3


def test_weights_that_overflow_in_the_update_are_not_saved(tmp_path):
    session = start(recipe(checkpoint__every=1), tmp_path / "run")
    run = Path(tmp_path / "run")

    def grow(optimizer, *rest):
        if session.step == 2:  # the update of step 3
            with torch.no_grad():
                session.model.head.weight.mul_(math.inf)

    session.optimizer.register_step_post_hook(grow)
    with pytest.raises(DivergedError, match=r"head|embedding"):
        list(session.train())
    assert list(checkpoints(run)) == [1, 2]
    check(step_folder(run, 2))


@pytest.mark.parametrize(("settings", "width"), [({}, 8), ({"model__d_head": 32}, 32)])
def test_flex_is_asked_for_the_width_that_heads_have(settings, width, monkeypatch):
    requests = []
    monkeypatch.setattr(session, "obstacle", lambda _, width, *__, **___: requests.append(width))
    session._runtime(recipe(model__attention="flex", model__d_model=64, model__n_heads=8, **settings), ALONE)
    assert requests == [width]


@pytest.mark.parametrize("ended", ["to the end", "left early", "refused"])
def test_a_run_leaves_the_generator_and_the_threads_of_its_caller(tmp_path, ended):
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    requested = recipe(training__threads=threads + 1)
    try:
        session = start(requested, tmp_path / "run")
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.get_num_threads() == threads
        events = session.train()
        first = next(events)
        assert torch.get_num_threads() == session.threads == threads + 1
        if ended == "refused":
            with pytest.raises(RuntimeError, match="enough"):
                events.throw(RuntimeError("enough"))  # pyright: ignore[reportAttributeAccessIssue]
        elif ended == "left early":
            events.close()  # pyright: ignore[reportAttributeAccessIssue]
        else:
            assert [first, *events]
            resume(tmp_path / "run")
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(threads)
