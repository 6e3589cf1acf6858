"""Real text for tests: files of `shared/data`, which a checkout may lack."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def shared() -> Callable[[str], Path]:
    """The path of a file or folder in `shared/data`, in the checkout or beside it; a test without it is skipped."""

    def find(name: str) -> Path:
        for folder in (ROOT / "shared" / "data", ROOT.parent / "shared" / "data"):
            if (folder / name).exists():
                return folder / name
        pytest.skip(f"shared/data/{name} is not here; it comes with the project's data folder, not with the package")

    return find
