"""`glassformer doctor RUN` and `glassformer train --break NAME` as a user meets them."""

import json
from pathlib import Path

import pytest

from cli.conftest import TASK, TINY
from glassformer.cli.main import main
from glassformer.proof.doctor.finding import Ailment, Probe, Seen
from glassformer.train.breaks import BREAKS

SICK = Ailment("it is ill", "It caught something.", "Rest.")


@pytest.fixture
def probes(monkeypatch):
    """Looks with these probes instead of the library's; the number of threads stays as it is."""

    def put(*these: Probe) -> None:
        monkeypatch.setattr("glassformer.proof.doctor.PROBES", these)

    monkeypatch.setattr("glassformer.base.runtime.choose_threads", lambda requested: (1, ""))
    return put


WELL = Probe("pulse", "It beats.", lambda case: Seen("60 a minute"))
WARM = Probe("warmth", "It is warm.", lambda case: Seen("38 degrees", SICK, serious=False))
BAD = Probe("breath", "It breathes.", lambda case: Seen("0 a minute", SICK))
AFTER = Probe("voice", "It speaks.", lambda case: Seen("100 words"), ("breath",))


def test_text(run, probes, a_run):
    probes(WELL, WARM, BAD, AFTER)
    answer = run("doctor", str(a_run))
    assert answer.code == 3
    assert answer.out.splitlines() == [
        "ok          pulse: It beats: 60 a minute",
        "WARNING     warmth: it is ill",
        *(
            "            evidence: 38 degrees",
            "            likely cause: It caught something.",
            "            remedy: Rest.",
        ),
        "FAILURE     breath: it is ill",
        *(
            "            evidence: 0 a minute",
            "            likely cause: It caught something.",
            "            remedy: Rest.",
        ),
        "not probed  voice: It speaks: fix `breath` first",
        f"{a_run}: 1 ok, 1 warning, 1 failure, 1 not probed: it is ill.",
    ]


def test_warnings_are_no_failure(run, probes, a_run):
    probes(WELL, WARM)
    answer = run("doctor", str(a_run), "--json")
    assert answer.code == 0
    report = json.loads(answer.out)
    assert (report["run"], report["exit_code"]) == (str(a_run), 0)
    assert [each["state"] for each in report["findings"]] == ["ok", "warning"]
    assert {*report["findings"][1]} == {"probe", "state", "what", "evidence", "cause", "remedy"}


def test_broken_run_from_end_to_end(run, capsys):
    words = (*TINY, *TASK, "--training.steps", "2", "--break", "leaky-mask,no-residual", "--out", "runs/bad")
    assert main(["train", "reverse", *words]) == 0
    assert "broken on purpose (leaky-mask): The causal mask is missing" in capsys.readouterr().err
    assert 'broken = "leaky-mask,no-residual"' in Path("runs/bad/recipe.toml").read_text("utf-8")
    answer = run("doctor", "runs/bad")
    assert answer.code == 3
    assert "FAILURE     causality: a position reads tokens after it" in answer.out
    assert "FAILURE     residual: the residual is missing" in answer.out
    assert "Traceback" not in answer.err


def test_what_is_no_run(refused):
    assert "is not a run folder" in refused("doctor", "runs/none")
    assert "needs a run folder" in refused("doctor")


def test_break_refuses_before_anything_is_made(refused):
    assert "Did you mean 'leaky-mask'" in refused("train", "reverse", "--break", "leaky-masks", code=2)
    assert "is not possible in this model, as the recipe has no dropout" in refused(
        "train", "reverse", "--break", "dropout-in-evaluation"
    )
    assert not Path("runs").exists()


def test_help_lists_every_mistake(run):
    text = run("train", "--help").out.partition("Mistakes for --break")[2].partition("Flags")[0]
    assert all(f"  {name} " in text for name in BREAKS)
