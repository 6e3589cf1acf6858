"""Resume is exact: cut after any step, by a kill or on request, a run ends with the bits of one that was not cut."""

import json
import os
import re
import shutil
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch

from glassformer.base.errors import CheckpointError, ConfigError, DataError
from glassformer.data.config import TokenizerConfig
from glassformer.data.tokenizer import TOKENIZERS
from glassformer.nn.presets import preset
from glassformer.store.checkpoint import load, load_optimizer, save
from glassformer.store.folders import checkpoints, step_folder
from glassformer.train.recipe import anchored, dumps_recipe, load_recipe
from glassformer.train.records import Evaluated, Finished, Progress, Saved, Started, Stopped
from glassformer.train.run import running
from glassformer.train.run import session as module
from glassformer.train.run import session as session_of
from glassformer.train.run.resumable import refuse_other_model
from glassformer.train.run.session import resume, start
from train.examples import STEPS, assert_resumed_to_the_same_bits, assert_same_end, follow, killed_after, recipe


def test_the_example_has_all_that_might_not_resume(whole):
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    train, dev = ([line for line in lines if line["kind"] == kind] for kind in ("train", "dev"))
    assert [line["step"] for line in train] == list(range(1, STEPS + 1))
    assert [line["step"] for line in dev] == [4, 8, 12]
    assert {line["epoch"] for line in train} == {0, 1, 2}
    assert len({line["learning_rate"] for line in train}) > 9
    assert any(line["pad_share"] > 0 for line in train)


@pytest.mark.parametrize("step", range(1, STEPS))
def test_killed_after_any_step(whole, tmp_path, step):
    run = killed_after(whole, step, tmp_path / "run")
    torch.manual_seed(step)
    session = resume(run)
    assert session.step == step
    follow(session)
    assert_same_end(run, whole)


def test_interrupted_after_every_step(whole, tmp_path):
    run = tmp_path / "run"
    session = start(recipe(checkpoint__every=1), run)
    for step in range(1, STEPS):
        *_, saved, stopped = follow(session, stop_after=step)
        assert (saved, stopped) == (Saved(step, step_folder(run, step)), Stopped(step, "interrupted"))
        torch.manual_seed(step)
        session = resume(run)
    assert isinstance(follow(session)[-1], Finished)
    assert_same_end(run, whole)


def test_a_run_resumes_without_the_file_of_its_tokenizer(tmp_path, monkeypatch):
    """Each checkpoint has the vocabulary; the file is read at the start only, and from any folder."""
    monkeypatch.chdir(tmp_path)
    made = TOKENIZERS["bpe"].train(["a b c d e"] * 8, TokenizerConfig(kind="bpe", vocab_size=263))
    Path("own.json").write_text(made.to_json(), "utf-8")
    requested = anchored(recipe(tokenizer__kind="own.json", checkpoint__every=4))
    assert requested.tokenizer.kind == str(tmp_path / "own.json")
    whole = start(requested, tmp_path / "whole")
    follow(whole)
    assert f"vocabulary: {made.vocab_size:,} tokens, of {tmp_path / 'own.json'}" in whole.notes
    follow(start(requested, tmp_path / "run"), stop_after=4)
    Path("own.json").unlink()
    follow(resume(tmp_path / "run"))
    assert_same_end(tmp_path / "run", tmp_path / "whole")
    assert load(tmp_path / "run").tokenizers.source.to_json() == made.to_json()
    with pytest.raises(DataError, match=r"own\.json: there is no such file"):
        start(requested, tmp_path / "anew")


VARIANTS = {
    "encoder": {"data__layout": "encoder"},
    "two vocabularies": {"tokenizer__shared": False, "data__task": "numbers", "decode__max_new_tokens": 2},
    "two equal vocabularies": {"tokenizer__shared": False},
    "untied": {"model__tie_embeddings": False, "model__share_embeddings": False, "model__norm_placement": "post"},
    "bfloat16": {"training__precision": "bfloat16"},
    "muon": {"optimizer__name": "muon"},
    "adafactor": {"optimizer__name": "adafactor"},
    "averaged": {"optimizer__average": 0.7, "checkpoint__every": 3},
    "averaged, saved in training": {"optimizer__average": 0.7, "checkpoint__background": False},
    "best by accuracy": {"training__metric": "token_accuracy", "training__evaluate_every": 1},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_other_runs_resume_too(tmp_path, name):
    assert_resumed_to_the_same_bits(recipe(**VARIANTS[name]), tmp_path)


def test_finished_run_has_nothing_left_to_do(whole, tmp_path):
    run = killed_after(whole, STEPS, tmp_path / "run")
    started, finished = follow(resume(run))
    assert (type(started), type(finished), finished.step) == (Started, Finished, STEPS)
    assert f"nothing is left to do: all {STEPS} steps are done. To train on: --allow-change training.steps" in str(
        started
    )
    assert_same_end(run, whole)


def test_run_that_stopped_for_want_of_patience_has_nothing_left_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "rank", lambda metrics, name, task: (0.0, 0.0))  # no evaluation beats the first
    events = follow(start(recipe(training__evaluate_every=2, training__patience=2), tmp_path / "run"))
    assert [type(each) for each in events[-2:]] == [Stopped, Finished]
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    started, finished = follow(resume(tmp_path / "run"))
    assert (started.step, finished.step, finished.best_step) == (6, 6, 2)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def test_best_and_patience_survive_a_stop(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "rank", lambda metrics, name, task: (0.0, 0.0))
    requested = recipe(training__evaluate_every=2, training__patience=4)
    follow(start(requested, tmp_path / "run"), stop_after=5)
    *_, stopped, finished = follow(resume(tmp_path / "run"))
    assert (stopped, finished.best_step) == (Stopped(10, "patience"), 2)
    assert load(tmp_path / "run").state["best"] == 2


def test_other_random_numbers_outside_change_nothing(whole, tmp_path):
    torch.manual_seed(99)
    follow(start(recipe(checkpoint__every=1), tmp_path / "run"))
    assert_same_end(tmp_path / "run", whole)
    other = start(recipe(training__seed=2), tmp_path / "other")
    assert not torch.equal(other.model.head.weight, load(step_folder(whole, 1)).model.head.weight)


def test_events_come_in_order(whole, tmp_path):
    events = follow(start(recipe(checkpoint__every=3, training__metric="exact_match"), tmp_path / "run"))
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Finished)
    assert [event.step for event in events if isinstance(event, Progress)] == list(range(1, STEPS + 1))
    best = {event.step for event in events if isinstance(event, Evaluated) and event.is_best}
    assert [event.step for event in events if isinstance(event, Saved)] == sorted({3, 6, 9, 12} | best)
    steps = [event.step for event in events[1:]]
    assert steps == sorted(steps)
    order = [type(event) for event in events if event.step == STEPS]
    assert order == [Progress, Evaluated, Saved, Finished]


def test_arithmetic_is_chosen_once(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "choose_precision", lambda name, network, firsts: ("bfloat16", f"chosen for {name}"))
    requested = recipe(training__precision="auto")
    session = start(requested, tmp_path / "run")
    assert "arithmetic: chosen for auto" in session.notes
    assert session.recipe.training.precision == "bfloat16"
    follow(session, stop_after=2)
    monkeypatch.delattr(module, "choose_precision")
    again = resume(tmp_path / "run")
    assert "arithmetic: bfloat16, as in the run so far" in again.notes
    assert again.recipe == session.recipe != requested


def test_edited_model_settings_are_refused_and_listed(whole, tmp_path):
    run = killed_after(whole, 3, tmp_path / "run")
    (run / "recipe.toml").write_text(dumps_recipe(recipe(model__d_ff=16, model__dropout=0.3, training__steps=2)))
    with pytest.raises(CheckpointError, match=r"recipe\.toml or .* another: .*Undo that change.*--out") as caught:
        resume(run)
    for side in ("encoder", "decoder"):
        assert f"{side}.d_ff is 12, and 16 is asked for" in str(caught.value)
        assert f"{side}.dropout is 0.2, and 0.3 is asked for" in str(caught.value)
    assert str(caught.value).count(" is asked for") == 4


def test_a_vocabulary_of_another_size_is_told_apart_from_other_settings(tmp_path):
    built = preset("gpt2")
    refuse_other_model(tmp_path, built, preset("gpt2"))
    with pytest.raises(CheckpointError, match=r"vocab_size is 50257, .* has 68 tokens\. Restore its tokenizer\.json"):
        refuse_other_model(tmp_path, built, replace(built, vocab_size=68))
    both = replace(built, vocab_size=68, decoder=replace(built.stack, d_ff=16))
    with pytest.raises(CheckpointError, match=r"asks for another: vocab_size is 50257, and 68 is asked for; "):
        refuse_other_model(tmp_path, built, both)


def test_checkpoint_of_another_hand_is_refused(whole, tmp_path):
    run = killed_after(whole, 3, tmp_path / "run")
    loaded = load(step_folder(run, 3))
    for state, has in (
        ({}, "nothing"),
        ({"note": "mine", "step": 3}, "note, step"),
        ({**loaded.state, "data": "x"}, ""),
    ):
        save(step_folder(run, 4), loaded.model, loaded.tokenizers, state=state)
        with pytest.raises(CheckpointError, match=rf"saved itself; .*step-000000004 must have .*but has {has}"):
            resume(run)


def test_run_that_is_trained_cannot_be_resumed_a_second_time(whole, tmp_path):
    run = killed_after(whole, 9, tmp_path / "run")
    first = resume(run)
    with pytest.raises(CheckpointError, match="Only one process at a time"):
        resume(run)
    events = first.train()
    next(events)
    with pytest.raises(CheckpointError, match="Only one process at a time"):
        start(recipe(), run)
    events.close()
    assert resume(run).step == 9


def test_what_fails_keeps_no_lock(whole, tmp_path):
    """Though its traceback is kept, as a notebook keeps it."""
    run = killed_after(whole, 9, tmp_path / "run")
    text = (run / "recipe.toml").read_text()
    (run / "recipe.toml").write_text(dumps_recipe(recipe(model__d_ff=16)))
    with pytest.raises(CheckpointError) as kept:
        resume(run)
    (run / "recipe.toml").write_text(text)
    assert resume(run).step == 9
    assert kept.value


def test_threads_are_chosen_once(tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    processors = [set(range(3))]
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: processors[0], raising=False)
    monkeypatch.setattr("glassformer.base.runtime.share_of_threads", lambda threads: 1.0)
    session = start(recipe(training__threads=0), tmp_path / "run")
    assert (session.threads, session.recipe.training.threads) == (3, 3)
    follow(session, stop_after=1)
    processors[0] = {0, 1}
    monkeypatch.setattr("glassformer.base.runtime.share_of_threads", lambda threads: 0.1)
    again = resume(tmp_path / "run")
    assert (again.threads, again.recipe) == (3, session.recipe)
    assert any("3 threads, as the settings say, although this process may use only 2" in note for note in again.notes)


def test_arithmetic_is_chosen_by_one_piece_of_a_batch(tmp_path, monkeypatch):
    timed = []

    def choose(requested, network, firsts):
        timed.extend(islice(firsts, 2))
        return "float32", "it was"

    monkeypatch.setattr(module, "choose_precision", choose)
    session = start(recipe(training__accumulate=3), tmp_path / "run")
    whole = [batch for _, batch in islice(session.prepared.batches(0), 2)]
    assert [len(piece.tokens) for piece in timed] == [len(batch.split(3)[0].tokens) for batch in whole]


# --- Resuming where there is no checkpoint, no intact one, or one whose state was edited


@pytest.mark.parametrize("step", [0, 3])
def test_killed_before_the_first_checkpoint(whole, tmp_path, step):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    shutil.rmtree(run / "checkpoints")
    if not step:  # as a kill between the recipe and the first line leaves it
        for name in ("metrics.jsonl", "timing.jsonl", "log.txt"):
            (run / name).unlink()
        shutil.rmtree(run / "samples")
    torch.manual_seed(99)
    session = resume(run)
    assert session.step == 0
    assert "there is no checkpoint yet, so training begins at step 0" in session.notes
    follow(session)
    assert_same_end(run, whole)


def without_checkpoint(whole, run):
    shutil.copytree(whole, run)
    shutil.rmtree(run / "checkpoints")
    return run


def test_before_the_first_checkpoint_changes_are_allowed_by_name_too(whole, tmp_path):
    run = without_checkpoint(whole, tmp_path / "run")
    options = {"training.learning_rate": 0.5}
    with pytest.raises(CheckpointError, match=r"trained with other settings.*--training\.learning-rate 0\.5"):
        resume(run, requested=options)
    with pytest.raises(ConfigError, match="its value is the same as in the run so far"):
        resume(run, ["training.seed"])
    with pytest.raises(CheckpointError, match="keeps the vocabulary"):
        resume(run, ["tokenizer.min_count"], {"tokenizer.min_count": 7})
    assert (run / "recipe.toml").read_bytes() == (whole / "recipe.toml").read_bytes()
    session = resume(run, ["training.learning_rate"], options)
    assert any(note.startswith("changed, as allowed: training.learning_rate") for note in session.notes)
    assert load_recipe(run / "recipe.toml").training.learning_rate == 0.5


def test_a_resume_that_fails_leaves_the_recipe(whole, tmp_path, monkeypatch):
    run = without_checkpoint(whole, tmp_path / "run")

    def fails(_):
        raise DataError("no such file")

    monkeypatch.setattr(session_of, "begin", fails)
    with pytest.raises(DataError):
        resume(run, ["training.learning_rate"], {"training.learning_rate": 0.5})
    assert (run / "recipe.toml").read_bytes() == (whole / "recipe.toml").read_bytes()


def test_what_is_of_no_use_for_a_new_beginning_is_told(whole, tmp_path):
    run = without_checkpoint(whole, tmp_path / "run")
    (run / "checkpoints" / "kept-by-hand").mkdir(parents=True)
    notes = resume(run).notes
    assert any(note.startswith("left alone: kept-by-hand in ") for note in notes)
    assert any(
        re.fullmatch(r"dropped: [1-9]\d* lines of metrics\.jsonl, of steps that will be repeated", n) for n in notes
    )


def test_run_whose_checkpoints_are_all_damaged_is_refused(whole, tmp_path):
    run = killed_after(whole, 2, tmp_path / "run")
    for folder in checkpoints(run).values():
        (folder / "state.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"no intact checkpoint to resume from.*--overwrite") as refused:
        resume(run)
    message = str(refused.value)
    assert "another checkpoint" not in message  # there is none
    assert message.endswith(f"start over: glassformer train {run / 'recipe.toml'} --out {run} --overwrite")


@pytest.mark.parametrize(("change", "words"), [
    ({"step": 5}, "step is 5, which differs from that in the folder's name"),
    ({"step": True}, "step is True"),
    ({"step": 10**25}, "step is 1000"),
    ({"best": 9}, "best is 9, but must be a step up to 4"),
    ({"best": 4, "best_metrics": {}}, "best_metrics has no number for 'loss'"),
    ({"best": 4, "best_metrics": {"loss": "1"}}, "best_metrics has no number for 'loss'"),
    ({"best": 4, "best_metrics": {"loss": 1.0, "exact_match": 1.0, "n": [3]}}, "best_metrics holds 'n'"),
    ({"since_best": -1}, "since_best is -1"),
    ({"sides": "x"}, "sides is 'x', but must be of type dict"),
    ({"recipe": "x"}, "recipe is 'x', but must be of type dict"),
    ({"skipped": "x"}, "skipped is 'x', but must be of type int"),
    ({"evaluations": "x"}, "evaluations is 'x', but must be of type int"),
    ({"evaluation_due": "x"}, "evaluation_due is 'x', but must be of type bool"),
], ids=str)  # fmt: skip
def test_edited_state_is_refused_when_it_is_loaded(whole, tmp_path, change, words):
    run = killed_after(whole, 4, tmp_path / "run")
    folder = step_folder(run, 4)
    loaded, moments = load(folder), load_optimizer(folder)
    save(folder, loaded.model, loaded.tokenizers, optimizer=moments, state={**loaded.state, **change})
    with pytest.raises(CheckpointError, match=rf"saved itself; in the state of .*step-000000004 .*{re.escape(words)}"):
        resume(run)
