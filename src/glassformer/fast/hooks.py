"""Whether modules have hooks, asked at every step of decoding."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.nn.modules.module import _has_any_global_hook  # pyright: ignore[reportPrivateUsage]
from torch.utils.hooks import RemovableHandle


class Hooks:
    """The forward hooks of some modules, and those of all modules.

    torch numbers hooks as they are registered. So where there were none, there are none as long as no number was given,
    and most steps need not look at each module, whose tables the weights have driven out of the processor's cache.
    """

    def __init__(self) -> None:
        self._attributes: list[dict[str, Any]] = []  # of modules, as their tables of hooks may be exchanged
        self._none_until: int | None = None

    def watch(self, module: nn.Module) -> None:
        """Adds a module."""
        self._attributes.append(vars(module))
        self._none_until = None

    @property
    def any(self) -> bool:
        """Whether there is one now."""
        if self._none_until == RemovableHandle.next_id:
            return False
        found = bool(_has_any_global_hook()) or any_of(self._attributes)
        self._none_until = None if found else RemovableHandle.next_id
        return found


def any_of(attributes: Iterable[dict[str, Any]]) -> bool:
    """Whether a module with these attributes has a hook."""
    return any(each["_forward_hooks"] or each["_forward_pre_hooks"] for each in attributes)
