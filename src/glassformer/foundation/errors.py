"""What a user can be told: the rule, what came, what to do. Each kind carries the exit code of the command line."""

from __future__ import annotations

import errno


class GlassformerError(ValueError):
    """A mistake that its maker can mend. The message says the rule, what came, and what to do."""

    exit_code = 2


class ConfigError(GlassformerError):
    """A configuration that cannot be: an unknown name or key, or values that contradict each other."""

    def __init__(self, message: str, *, setting: str | None = None) -> None:
        super().__init__(message)
        self.setting = setting
        """The field of its config that is to be changed, where it is one."""


class DataError(GlassformerError):
    """A file or value that cannot be read as data. The message names file, line (or row and column) and remedy."""


class TooLongError(DataError):
    """A text of more tokens than the model reads. The message says how many there are, and how many may be."""


class CheckpointError(GlassformerError):
    """A run or checkpoint folder that is missing, incomplete, damaged or of another model."""


class DivergedError(GlassformerError):
    """Loss or gradient is no longer a finite number. Raised before the weights are touched."""

    exit_code = 4


class ResourceError(GlassformerError):
    """Memory or disk ran out."""

    exit_code = 5


class BusyError(GlassformerError):
    """As much is waiting as may wait. The same asked again later will do."""


class ProcessError(GlassformerError):
    """Another of the processes that train a run together failed or does not answer. The message names it."""

    exit_code = 1


def is_out_of_memory(error: Exception) -> bool:
    """Whether Python or torch asked for memory in vain; torch's class is known by name, as torch is not imported."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and any(f in str(error) for f in ("DefaultCPUAllocator", "out of memory")))
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    )
