"""A file that grows during a run: a kill loses nothing of it, and a failing disk only delays it."""

from __future__ import annotations

import os
from pathlib import Path

from glassformer.store.files import FULL
from glassformer.store.lock import RunLock


class Lines:
    """A file that grows by lines. What the disk does not take is kept in memory, and written first when it does."""

    def __init__(self, path: Path, lock: RunLock | None = None) -> None:
        """`lock`: the run's; a deleted file is only recreated while its folder is still the run's."""
        self.path = path
        self.lock = lock
        self.kept = b""
        self.reason = ""
        """Why something is kept in memory, if it is."""
        # unbuffered: each line reaches the system as it is written, so that a killed process loses none
        self.file = path.open("ab", buffering=0)

    def write(self, text: str) -> None:
        """Add lines."""
        self.add(text.encode())

    def add(self, data: bytes) -> None:
        """Add bytes."""
        self.kept += data
        self.flush()

    def flush(self) -> None:
        """Write what is kept, as far as the disk takes it; recreate the file if someone deleted it."""
        try:
            if os.fstat(self.file.fileno()).st_nlink == 0:
                if not self.path.parent.is_dir() or (self.lock and not self.lock.in_place()):
                    self.reason = "its folder was deleted"
                    return
                begun = self.path.open("ab", buffering=0)
                self.file.close()
                self.file = begun
            while self.kept:
                self.kept = self.kept[self.file.write(self.kept) :]
        except OSError as error:  # a read-only folder ends a run as little as a full one
            self.reason = FULL.get(error.errno or 0) or error.strerror or str(error)
