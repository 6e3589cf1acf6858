"""What to type to install an optional extra: its packages by name, which works from a clone, a wheel or an index."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires

MARK = re.compile(r"""^(?P<package>[^;]+);.*\bextra\s*==\s*["'](?P<extra>[^"']+)["']""")


def install(extra: str) -> str:
    """The command that installs the packages of an extra, as this installation of glassformer names them.

    The name of glassformer itself is not in it, as a copy from a clone or a wheel need not be the one on an index.
    """
    try:
        packages = packages_of(extra, requires("glassformer") or ())
    except PackageNotFoundError:  # imported from a folder
        packages = []
    if not packages:
        return f"pip install '.[{extra}]' (in the clone of glassformer)"
    return f"pip install {' '.join(map(repr, packages))}"


def packages_of(extra: str, requirements: Iterable[str]) -> list[str]:
    """The requirements of one extra, without their markers."""
    found = filter(None, map(MARK.match, requirements))
    return [each["package"].strip() for each in found if each["extra"] == extra]
