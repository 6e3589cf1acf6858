"""The library that constrained decoding needs, if it is installed. Imports no torch."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from glassformer.base.errors import ConfigError, install


def llguidance() -> ModuleType:
    """Import llguidance. Errors: `ConfigError` if it is not installed."""
    try:
        return import_module("llguidance")
    except ImportError:
        raise ConfigError(
            "Constraints by a regular expression or a JSON schema need llguidance, which is not installed. Install it: "
            f"{install('constrain')}."
        ) from None
