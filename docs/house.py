"""The picture of the house in docs/architecture.md, drawn from the imports: `make house`.

A box is a folder, on its floor; the wider, the more lines. An arrow leads to a folder that it imports, unless the way
through another folder leads there, too. Imports for types alone count.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "tests"))

from architecture import FLOORS, MODULES, SOURCE, floor_of, import_graph  # noqa: E402  # where the tests have it

WIDE, TALL, GAP, BOX = 880, 62, 14, 30
STYLE = """
  text { font: 13px system-ui, sans-serif; text-anchor: middle; fill: #1f2328 }
  .floor { text-anchor: start; fill: #59636e }
  rect { fill: #ddf4ff; stroke: #0969da }
  path { fill: none; stroke: #59636e; marker-end: url(#head) }
  #head path { fill: #59636e; stroke: none; marker-end: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .floor { fill: #9198a1 } rect { fill: #0c2d6b; stroke: #4493f8 } path { stroke: #9198a1 }
    #head path { fill: #9198a1 }
  }"""


def above() -> dict[str, set[str]]:
    """Return, for each folder, those that it imports."""
    texts = {module: (SOURCE / module).read_text("utf-8") for module in MODULES}
    found: dict[str, set[str]] = {name: set() for name, floor in FLOORS.items() if 0 <= floor < FLOORS["__init__"]}
    for module, others in import_graph(texts).items():
        folder = floor_of(module.removesuffix(".py"))[0]
        if folder in found:
            found[folder] |= {floor_of(other.removesuffix(".py"))[0] for other in others} & (found.keys() - {folder})
    return found


def shortest(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Leave out each arrow whose end is also reached through another folder. The graph has no circles."""

    def reached(start: str) -> set[str]:
        return graph[start].union(*(reached(other) for other in graph[start]))

    return {name: others - {far for other in others for far in reached(other)} for name, others in graph.items()}


def drawn() -> str:
    """Return the picture as SVG."""
    lines = {
        name: sum(len(each.read_bytes().splitlines()) for each in (SOURCE / name).rglob("*.py")) for name in above()
    }
    floors = sorted({FLOORS[name] for name in lines}, reverse=True)
    places: dict[str, tuple[float, float, float]] = {}
    for row, floor in enumerate(floors):
        here = [name for name in lines if FLOORS[name] == floor]
        widths = [max(68.0, lines[name] / 80) for name in here]
        left = (WIDE - sum(widths) - GAP * (len(here) - 1)) / 2
        for name, width in zip(here, widths, strict=True):
            places[name] = (left, GAP + row * TALL, width)
            left += width + GAP
    boxes = [
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{BOX}" rx="5"/>'
        f'<text x="{x + width / 2:.0f}" y="{y + 20:.0f}">{name}</text>'
        for name, (x, y, width) in places.items()
    ]
    numbers = [
        f'<text class="floor" x="4" y="{GAP + row * TALL + 20}">{floor}</text>' for row, floor in enumerate(floors)
    ]
    arrows = []
    for name, others in shortest(above()).items():
        for other in sorted(others):
            (x, y, width), (to_x, to_y, to_width) = places[name], places[other]
            start, end = x + width / 2, to_x + to_width / 2
            first, last = y + BOX, to_y - 2
            bend = (last - first) / 2
            arrows.append(
                f'<path class="{name}-{other}" d="M{start:.0f} {first:.0f}C{start:.0f} {first + bend:.0f} '
                f'{end:.0f} {last - bend:.0f} {end:.0f} {last:.0f}"/>'
            )
    head = '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {GAP + len(floors) * TALL}" role="img">',
            "<title>The folders of glassformer, floor by floor, and which imports which</title>",
            f"<style>{STYLE}\n</style>",
            f'<defs>{head}<path d="M0 0L8 4L0 8z"/></marker></defs>',
            *arrows,
            *boxes,
            *numbers,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    (HERE / "pictures" / "house.svg").write_text(drawn(), "utf-8")
