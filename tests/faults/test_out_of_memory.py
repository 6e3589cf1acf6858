"""Memory that runs out in training (R20): exit code 5, the estimate, what would help, and nothing lost."""

import sys
from pathlib import Path

import pytest
import torch

from fresh import python
from glassformer.base.errors import ResourceError
from glassformer.store.checkpoint import Snapshot
from glassformer.store.folders import newest
from glassformer.train.ranks import team
from glassformer.train.run.session import resume, start
from train.examples import final, follow, recipe

PLANTED = {
    "torch, processor": RuntimeError(
        "[enforce fail at alloc_cpu.cpp:124] . DefaultCPUAllocator: can't allocate memory"
    ),
    "torch, accelerator": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore lines"),
    "python": MemoryError(),
}


def plant(monkeypatch, error: Exception, forward: int) -> None:
    """The loss of the forward of this number fails."""
    calls = iter(range(1, 10**6))
    own = team.loss_of

    def failing(*given, **more):
        if next(calls) == forward:
            raise error
        return own(*given, **more)

    monkeypatch.setattr(team, "loss_of", failing)


@pytest.mark.parametrize("kind", PLANTED)
def test_what_helps_is_said_and_nothing_is_lost(tmp_path, monkeypatch, kind):
    small = recipe(checkpoint__every=3)
    with monkeypatch.context() as planted:
        plant(planted, PLANTED[kind], forward=15)  # two a step, so in step 8
        with pytest.raises(ResourceError) as caught:
            follow(start(small, tmp_path / "run"))
    message = str(caught.value)
    facts = ["in step 8", "training.batch_tokens=88", "training.accumulate=4", "training.recompute=1 (about", "resume"]
    assert [fact for fact in [*facts, "step-000000006, is intact"] if fact not in message] == []
    assert (newest(tmp_path / "run").folder or Path()).name == "step-000000006"
    follow(
        resume(tmp_path / "run", requested={"training.recompute": 1})
    )  # needs no permission, as the bits are the same
    assert "recompute = 1" in (tmp_path / "run" / "recipe.toml").read_text()
    follow(start(small, tmp_path / "whole"))
    ours, theirs = final(tmp_path / "run"), final(tmp_path / "whole")
    for name in ("model.safetensors", "optimizer.safetensors", "metrics.jsonl"):
        assert ours[name] == theirs[name]


def test_before_the_first_checkpoint(tmp_path, monkeypatch):
    plant(monkeypatch, MemoryError(), forward=1)
    with pytest.raises(ResourceError, match=r"in step 1, .*no checkpoint yet"):
        follow(start(recipe(), tmp_path / "run"))


@pytest.mark.parametrize(("where", "message"), [
    ("score", "step 8, in an evaluation .*resume .* --decode.batch-size 64 --allow-change decode.batch_size"),
    ("copied", "step 9, in a checkpoint .*resume .* --checkpoint.no-background"),
], ids=["evaluation", "checkpoint"])  # fmt: skip
def test_beside_a_step(tmp_path, monkeypatch, where, message):
    requested = recipe(checkpoint__every=3, checkpoint__background=True, decode__batch_size=128)
    session = start(requested, tmp_path / "run")
    owner, last = (type(session.prepared.dev), 8) if where == "score" else (Snapshot, 9)
    own = getattr(owner, where)

    def failing(*given, **more):
        if session.step == last:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore lines")
        return own(*given, **more)

    with monkeypatch.context() as planted:
        planted.setattr(owner, where, failing)
        with pytest.raises(ResourceError, match=message) as caught:
            follow(session)
    assert f"step-{6 if last == 8 else 8:09}, is intact" in str(caught.value)
    changed = {"decode.batch_size": 64} if where == "score" else {"checkpoint.background": False}
    follow(resume(tmp_path / "run", allowed=["decode.batch_size"] if where == "score" else [], requested=changed))


def test_another_error_stays_what_it_is(tmp_path, monkeypatch):
    plant(monkeypatch, RuntimeError("shapes do not fit"), forward=1)
    with pytest.raises(RuntimeError, match=r"^shapes do not fit$"):
        follow(start(recipe(), tmp_path / "run"))


LIMITED = """
import resource, sys
from glassformer.cli.main import main
from glassformer.train.run import running

own = running.train_steps
def limited(*given, **more):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 96 * 2**20,) * 2)
    return own(*given, **more)
running.train_steps = limited
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_AS is kept by Linux alone")
def test_a_process_with_a_limit(tmp_path):
    words = ["train", "reverse", "--out", "run", "--training.batch-tokens", "60000", "--training.precision", "float32"]
    words += ["--training.threads", "1", "--data.train-size", "20000", "--model.d-ff", "1024"]
    done = python("-c", LIMITED, *words, cwd=tmp_path, timeout=600)
    assert done.returncode == 5, done.stderr
    assert "Memory ran out in step 1" in done.stderr
    assert "--training.recompute 1" in done.stderr
    assert "Traceback" not in done.stderr
