"""`glassformer plot RUN ...`: plot the learning curves of runs."""

from __future__ import annotations

from glassformer.base.figures import check_picture
from glassformer.cli.arguments import Arguments
from glassformer.cli.runs import existing_runs
from glassformer.store.pictures import save_figure

USUAL = "curves.png"


def run(arguments: Arguments) -> int:
    """Draw one panel per metric and one colour per run, and print where the picture is."""
    folders = existing_runs(arguments)
    out = check_picture(arguments.options.get("out", USUAL))
    from glassformer.study.plot import chosen, draw_curves, read_curves

    runs = [read_curves(folder) for folder in folders]
    requested = arguments.options.get("metric")
    metrics = chosen(runs, [] if requested is None else requested.split(","))
    save_figure(draw_curves(runs, metrics, log="log" in arguments.options), out)
    print(f"Picture: {out} ({', '.join(metrics)})")
    return 0
