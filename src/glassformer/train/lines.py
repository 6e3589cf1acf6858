"""A file that grows as a run goes on: nothing of it is lost in a kill, and a full disk only delays it."""

from __future__ import annotations

import os
from pathlib import Path

from glassformer.store.files import FULL


class Lines:
    """A file that grows by lines. What the disk has no room for is kept in memory, and goes first when it has."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kept = b""
        # unbuffered: each line reaches the system as it is written, so that a killed process loses none
        self.file = path.open("ab", buffering=0)

    def write(self, text: str) -> None:
        """Add lines. Errors: `OSError` of the system, but for want of room."""
        self.add(text.encode())

    def add(self, data: bytes) -> None:
        """Add bytes. Errors: the same."""
        self.kept += data
        self.flush()

    def flush(self) -> None:
        """Write what is kept, as far as there is room; a file that someone deleted begins anew, where its folder is."""
        try:
            if os.fstat(self.file.fileno()).st_nlink == 0:
                if not self.path.parent.is_dir():
                    return
                self.file.close()
                self.file = self.path.open("ab", buffering=0)
            while self.kept:
                self.kept = self.kept[self.file.write(self.kept) :]
        except OSError as error:
            if error.errno not in FULL:
                raise
