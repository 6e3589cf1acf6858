"""Sparse patterns: which keys a query reads by its place alone. A value of plain numbers, with its contradictions."""

from __future__ import annotations

from dataclasses import dataclass

from glassformer.foundation.errors import ConfigError
from glassformer.foundation.typed import check_types


@dataclass(frozen=True)
class Pattern:
    """One local rule (window, stride or block), and beside a window perhaps keys that everybody reads.

    With nothing set, every place is read. All numbers count positions. Errors: `ConfigError` for numbers that
    contradict each other. `attend/pattern.py` turns it into a table.
    """

    window: int | None = None
    """Keys less than `window` steps away, the query's own included; a step is `dilation` positions."""
    dilation: int = 1
    """Positions from one key of the window to the next (Longformer, Beltagy et al. 2020, section 3.1)."""
    stride: int | None = None
    """The last `stride` keys, and before them each `stride`-th (Sparse Transformer, Child et al. 2019, section 4.3)."""
    block: int | None = None
    """The keys of the query's own block of this length, and the summary of each block (Child et al. 2019, 4.3)."""
    summary: int = 1
    """The last keys of a block that later blocks read (the paper's c)."""
    global_tokens: int = 0
    """The first tokens read everything and are read by all (Longformer, section 3.1; ETC, Ainslie et al. 2020)."""
    sinks: int = 0
    """The first keys stay readable beside a causal window (StreamingLLM, Xiao et al. 2023, section 3.2)."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.window is not None and self.window < 1:
            raise ConfigError(f"window must be at least 1 (a query reads itself); got {self.window}.")
        for name, least in (("dilation", 1), ("stride", 1), ("block", 1), ("summary", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name} must be at least {least}; got {value}.")
        for name in ("global_tokens", "sinks"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must be at least 0; got {getattr(self, name)}.")
        self._check_one_rule()
        self._check_company()

    def _check_one_rule(self) -> None:
        given = {name: getattr(self, name) for name in ("window", "stride", "block") if getattr(self, name) is not None}
        if len(given) > 1:
            shown = " and ".join(f"{name}={value}" for name, value in given.items())
            raise ConfigError(f"A pattern has one local rule: window, stride or block; got {shown}. Leave one.")

    def _check_company(self) -> None:
        needs_window = {"dilation": self.dilation > 1, "global_tokens": self.global_tokens, "sinks": self.sinks}
        for name, given in needs_window.items():
            if given and self.window is None:
                remedy = "Try window=128." if (self.stride or self.block) is None else f"Leave {name} out."
                raise ConfigError(
                    f"{name} stands beside a window; got {name}={getattr(self, name)} without one. {remedy}"
                )
        if self.summary > 1 and self.block is None:
            raise ConfigError(f"summary belongs to block; got summary={self.summary} without one. Try block=128.")
        if self.block is not None and self.summary > self.block:
            raise ConfigError(
                f"summary counts keys of a block, so it is at most block={self.block}; got {self.summary}. "
                f"Try summary={max(1, self.block // 8)}."
            )
        if self.global_tokens and self.sinks:
            raise ConfigError(
                f"global_tokens={self.global_tokens} are read by all, as sinks are; got sinks={self.sinks} too. "
                "Leave sinks at sinks=0."
            )

    @property
    def reads_everything(self) -> bool:
        """Whether it hides nothing."""
        return self.window is None and self.stride is None and self.block is None

    @property
    def anchored(self) -> bool:
        """Whether it counts from the first place, and not only from the query back."""
        return bool(self.block or self.sinks or self.global_tokens)

    def check_causal(self, causal: bool) -> None:
        """Raises `ConfigError` where a rule that only looks back stands in attention that looks ahead too."""
        for name, given in (("stride", self.stride), ("block", self.block), ("sinks", self.sinks)):
            if given and not causal:
                raise ConfigError(
                    f"{name} is defined for causal attention, which reads back only; got {name}={given} with "
                    "causal=False. Set causal=True, or use window with global_tokens."
                )
