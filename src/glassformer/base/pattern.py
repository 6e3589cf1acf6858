"""Sparse attention patterns: settings that say, by positions alone, which keys a query may read."""

from __future__ import annotations

from dataclasses import dataclass

from glassformer.base.errors import ConfigError
from glassformer.base.typed import check_types


@dataclass(frozen=True)
class Pattern:
    """One local rule (window, stride or block), and with a window optionally keys that every query reads.

    With no rule set, every key may be read. All numbers count positions. Errors: `ConfigError` for numbers that
    contradict each other. `nn/mask.py` evaluates a pattern.
    """

    window: int | None = None
    """A query reads keys less than `window` steps away, its own included; a step is `dilation` positions."""
    dilation: int = 1
    """Distance between neighbouring keys of the window (Longformer, Beltagy et al. 2020, section 3.1)."""
    stride: int | None = None
    """A query reads the last `stride` keys and each `stride`-th before (Sparse Transformer, Child et al. 2019, 4.3)."""
    block: int | None = None
    """A query reads its own block of this length, and the summary of every block (Child et al. 2019, section 4.3)."""
    summary: int = 1
    """How many last keys of a block later blocks read (the paper's c)."""
    global_tokens: int = 0
    """This many first tokens read all and are read by all (Longformer, section 3.1; ETC, Ainslie et al. 2020)."""
    sinks: int = 0
    """This many first keys stay readable besides a causal window (StreamingLLM, Xiao et al. 2023, section 3.2)."""

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
            raise ConfigError(
                f"A pattern has only one of window, stride and block; got {shown}. Keep one, and remove the others."
            )

    def _check_company(self) -> None:
        needs_window = {"dilation": self.dilation > 1, "global_tokens": self.global_tokens, "sinks": self.sinks}
        for name, given in needs_window.items():
            if given and self.window is None:
                remedy = "Try window=128." if (self.stride or self.block) is None else f"Remove {name}."
                raise ConfigError(f"{name} needs a window; got {name}={getattr(self, name)} without window. {remedy}")
        if self.summary > 1 and self.block is None:
            remedy = "Try block=128." if (self.window or self.stride) is None else "Remove summary."
            raise ConfigError(f"summary needs a block; got summary={self.summary} without block. {remedy}")
        if self.block is not None and self.summary > self.block:
            raise ConfigError(
                f"summary counts keys of a block, so it must be at most block={self.block}; got {self.summary}. "
                f"Try summary={max(1, self.block // 8)}."
            )
        if self.global_tokens and self.sinks:
            raise ConfigError(
                f"The first keys are either global tokens or sinks; got global_tokens={self.global_tokens} and "
                f"sinks={self.sinks}. Set sinks=0, as every query reads the global tokens too."
            )

    @property
    def reads_everything(self) -> bool:
        """Whether it hides no key."""
        return self.window is None and self.stride is None and self.block is None

    @property
    def anchored(self) -> bool:
        """Whether it depends on positions from the start, and not only on distances from the query."""
        return bool(self.block or self.sinks or self.global_tokens)

    def check_causal(self, causal: bool) -> None:
        """Raise `ConfigError` for a rule that only reads back, if attention is not causal."""
        for name, given in (("stride", self.stride), ("block", self.block), ("sinks", self.sinks)):
            if given and not causal:
                raise ConfigError(
                    f"{name} is defined only for causal attention; got {name}={given} with causal=False. "
                    "Set causal=True, or use window with global_tokens."
                )
