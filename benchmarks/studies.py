"""The shipped studies: each is a `glassformer ablate` command, whose table and pictures are in docs/studies.md.

Without a name, all of them run one after the other, each in runs/studies/NAME; a stopped study continues. With --docs,
the new tables go into docs/studies.md and the pictures into docs/studies/.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from common import fail

from glassformer.cli.main import main as glassformer

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "studies.md"
PICTURES = ROOT / "docs" / "studies"

STUDIES = {
    "depth": (
        "glassformer ablate reverse --vary model.n_layers=1,2,4,6 --seeds 3 --training.steps 300 "
        "--training.batch-tokens 1024 --training.evaluate-every 20 --training.samples 0 --data.train-size 20000 "
        "--data.dev-size 200 --data.test-size 500"
    ),
    "norm": (
        "glassformer ablate reverse --vary model.norm_placement=pre,post --seeds 3 --model.n-layers 12 "
        "--optimizer.name adamw --training.steps 500 --training.learning-rate 1e-3 --training.batch-tokens 1024 "
        "--training.evaluate-every 50 --training.samples 0 --data.train-size 20000 "
        "--data.dev-size 200 --data.test-size 500"
    ),
    "positions": (
        "glassformer ablate reverse --vary model.positions=sinusoidal,learned,rotary,alibi,t5,shaw,none "
        "--vary data.task=copy,reverse,sort --seeds 3 --data.min-length 2 --data.max-length 16 "
        "--test data.min_length=17 --test data.max_length=32 --model.max-len 40 --training.steps 700 "
        "--training.batch-tokens 1024 --training.evaluate-every 175 --training.samples 0 --data.train-size 20000 "
        "--data.dev-size 200 --data.test-size 500"
    ),
    "language": (
        "glassformer ablate lm --vary model.init=xavier,normal,zero --vary model.qk_norm=none,rms --seeds 3 "
        "--model.n-layers 2 --training.steps 300 --training.evaluate-every 100 --training.samples 0"
    ),
    "lm": (
        "glassformer ablate lm --seeds 3 --model.n-layers 2 --training.steps 300 --training.evaluate-every 100 "
        "--training.samples 0 --change model.positions=sinusoidal,model.scale_embeddings=true "
        "--change model.norm=rms --change model.activation=relu_squared --change model.init=xavier "
        "--change model.qk_norm=rms --change training.schedule=cosine "
        "--change optimizer.name=adamw,optimizer.momentum=0.95,training.learning_rate=1e-3 "
        "--change optimizer.name=adamw,optimizer.momentum=0.95,training.learning_rate=3e-3"
    ),
    **{
        recipe: (
            f"glassformer ablate {recipe} --seeds 3 --model.n-layers 2 --training.steps 250 "
            "--training.evaluate-every 125 --training.samples 0 --model.norm rms --model.qk-norm rms "
            "--model.activation relu_squared --model.init xavier "
            "--change model.positions=sinusoidal,model.scale_embeddings=true --change model.norm=layer "
            "--change model.qk_norm=none --change model.activation=relu --change model.init=normal "
            "--change training.schedule=cosine --change optimizer.name=adamw,training.learning_rate=1e-3 "
            "--change optimizer.name=adamw,training.learning_rate=3e-3"
        )
        for recipe in ("mlm", "denoise")
    },
    "convolution": (
        "glassformer ablate lm --vary model.d_model=96,128 --vary model.convolution=1,2,4 --seeds 3 --model.d-ff 384 "
        "--model.n-layers 2 --training.steps 300 --training.evaluate-every 100 --training.samples 0"
    ),
}
"""By name: the command without --out."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the requested studies."""
    options = reader().parse_args(words)
    if unknown := set(options.studies) - {*STUDIES}:
        return fail(f"There is no study {', '.join(sorted(unknown))}. Studies: {', '.join(STUDIES)}.")
    if options.list:
        print("\n".join(STUDIES[name] for name in options.studies or STUDIES))
        return 0
    codes = [0]
    for name in options.studies or STUDIES:
        folder = Path(options.runs) / name
        print(f"\n## {name}\n\n{STUDIES[name]}\n", flush=True)
        jobs = ["--jobs", options.jobs] if options.jobs else []
        codes.append(glassformer([*shlex.split(STUDIES[name])[1:], "--out", str(folder), *jobs]))
        if codes[-1] > 1:
            break
        if options.docs:
            publish(name, folder)
    return max(codes)


def publish(name: str, folder: Path) -> None:
    """Put the table and the pictures between the study's marks in docs/studies.md."""
    text = (folder / "table.md").read_text("utf-8")
    PICTURES.mkdir(exist_ok=True)
    for kind in ("plot", "curves", "lengths"):
        if (picture := folder / f"{kind}.svg").is_file():
            shutil.copyfile(picture, PICTURES / f"{name}-{kind}.svg")
            text += f"\n![{name}: {kind}]({PICTURES.name}/{name}-{kind}.svg)\n"
    PAGE.write_text(replaced(PAGE.read_text("utf-8"), name, text), "utf-8")


def replaced(page: str, name: str, text: str) -> str:
    """Return the page with `text` between the marks of a study. What was there is lost: write your own text outside."""
    start, stop = place(page, name)
    return page[:start] + "\n" + text + "\n" + page[stop:]


def place(page: str, name: str) -> tuple[int, int]:
    """Return where the text between the marks of a study starts and stops."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    found = re.search(re.escape(begin) + "(.*?)" + re.escape(end), page, re.S)
    if found is None:
        raise SystemExit(f"{PAGE} has no place for the study {name}: {begin.strip()} and {end}.")
    return found.span(1)


def reader() -> argparse.ArgumentParser:
    """Return the parser of this command."""
    parser = argparse.ArgumentParser(
        prog="run.py studies", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=f"some of {', '.join(STUDIES)}")
    parser.add_argument("--runs", default="runs/studies", metavar="FOLDER", help="default: %(default)s")
    parser.add_argument("--jobs", metavar="N", help="runs at a time (default: one a processor)")
    parser.add_argument("--list", action="store_true", help="print the commands and run nothing")
    parser.add_argument("--docs", action="store_true", help="also write tables and pictures into docs/")
    return parser


if __name__ == "__main__":
    sys.exit(main())
