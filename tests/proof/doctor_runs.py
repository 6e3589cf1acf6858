"""Small runs of two steps, and what the doctor finds in them."""

from __future__ import annotations

from pathlib import Path

from glassformer.proof.doctor import PROBES
from glassformer.proof.doctor.case import Case
from glassformer.proof.doctor.finding import Finding, examine
from glassformer.train.recipe import load_recipe
from glassformer.train.run.session import start
from train.examples import follow, recipe

LABELLED = {"data__task": "labelled", "data__layout": "label", "training__metric": "accuracy"}
QUICK = tuple(probe for probe in PROBES if probe.name != "overfit")
"""All but the one that takes as long as the others together."""


def settings(layout: str, folder: Path) -> dict[str, object]:
    """Those of a small run of this layout, which is trained for two steps."""
    common: dict[str, object] = {
        "model__d_model": 16, "model__d_ff": 32, "model__n_layers": 2, "training__steps": 2,
        "training__batch_tokens": 256, "training__accumulate": 1,
    }  # fmt: skip
    sizes = {"data__train_size": 60, "data__dev_size": 12, "data__test_size": 12, "data__symbols": 8}
    if layout != "label":
        return common | sizes | {"data__layout": layout}
    texts = [f"{a} {b} {c}{d}" for a in "pqr" for b in "st" for c in ("u v", "w") for d in ("", " x y")]
    rows = [f"{text}\t{'yes' if 'p' in text else 'no'}\n" for text in texts]
    for name, part in (("train", rows[:18]), ("dev", rows[18:21]), ("test", rows[21:])):
        (folder / f"{name}.tsv").write_text("".join(part), "utf-8")
    return common | LABELLED | {f"data__{name}": str(folder / f"{name}.tsv") for name in ("train", "dev", "test")}


def trained(folder: Path, layout: str = "encoder-decoder", **changes: object) -> Path:
    """A run of two steps."""
    follow(start(recipe(**{**settings(layout, folder), **changes}), folder / "run"))
    return folder / "run"


def case_of(run: Path) -> Case:
    """The run, ready to be looked at."""
    return Case(run, load_recipe(run / "recipe.toml"))


def found(run: Path, probes=QUICK) -> list[Finding]:
    """What is found in a run."""
    return [*examine(case_of(run), probes)]


def named(findings: list[Finding], state: str) -> list[str]:
    """The probes with a finding of this state."""
    return [each.probe for each in findings if each.state == state]
