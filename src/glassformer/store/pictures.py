"""Finishing a picture (names in it are text, never formulas) and saving it atomically: the old picture or the new one.

Names come from users: runs, files, values of settings, tokens. Any character may be in them.
"""

from __future__ import annotations

import logging
import re
import warnings
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

from glassformer.base.figures import DATED, SETTINGS, check_picture, matplotlib
from glassformer.store.files import write_bytes

LOG = logging.getLogger(__name__)
LACKING = re.compile(r"Glyph (\d+) .* missing from font")


def finished(figure: Any, file: Path | str | None = None) -> Any:
    """Make each name in a matplotlib figure plain text, in which `$` begins no formula; save it if a file is given.

    Returns the figure. The numbers beside an axis keep what matplotlib writes itself, such as powers of ten. Errors:
    those of `save_figure`.
    """
    ticker = matplotlib("ticker")
    for text in figure.findobj(matplotlib("text").Text):
        text.set_usetex(False)
        text.set_parse_math(False)
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        if not isinstance(axis.get_major_formatter(), ticker.FixedFormatter | ticker.FuncFormatter):
            for number in axis.get_ticklabels(which="both"):
                number.set_parse_math(True)
    if file is not None:
        save_figure(figure, file)
    return figure


def save_figure(figure: Any, path: Path | str) -> Path:
    """Write a matplotlib figure in the format of the file name (.png, .svg or .pdf), replacing an existing file.

    Characters that the font lacks are counted in one note; in .svg they are text, for the viewer's own fonts.
    Errors: `ConfigError`, see `check_picture`; those of `write_bytes`.
    """
    path = check_picture(path)
    kind, drawn = path.suffix.lower(), BytesIO()
    with warnings.catch_warnings(record=True) as caught, import_module("matplotlib").rc_context(SETTINGS):
        warnings.simplefilter("always")
        figure.savefig(drawn, format=kind[1:], dpi=150, metadata={DATED[kind]: None} if kind in DATED else None)
    lacking: dict[str, None] = {}
    for each in caught:
        if found := LACKING.match(str(each.message)):
            lacking[chr(int(found[1]))] = None
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    if lacking and kind != ".svg":
        characters = "".join([*lacking][:20])
        LOG.warning(
            f"{path}: the font of the picture lacks {len(lacking)} of its characters ({characters}), which are boxes "
            "there. Save it as .svg, in which text is text, to see them."
        )
    write_bytes(path, drawn.getvalue())
    return path
