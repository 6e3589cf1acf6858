"""Sparse attention patterns: settings that say, by positions alone, which keys a query may read."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

from glassformer.base.contradictions import BACKWARD, PATTERN, refuse
from glassformer.base.order import MOST_PLACES
from glassformer.base.settings import check, setting


@dataclass(frozen=True)
class Pattern:
    """One local rule (window, stride or block), and with a window optionally keys that every query reads.

    With no rule set, every key may be read. All numbers count positions. The window, its dilation and global tokens are
    Longformer's (Beltagy et al. 2020, section 3.1; ETC, Ainslie et al. 2020), stride, block and its summary, the
    paper's c, those of the Sparse Transformer (Child et al. 2019, section 4.3), sinks those of StreamingLLM (Xiao et
    al. 2023, section 3.2). Errors: `ConfigError` for numbers that contradict each other. `nn/mask.py` evaluates a
    pattern.
    """

    window: int | None = setting(None, 1, MOST_PLACES, varies=True)
    """Sliding-window attention: a query reads itself and the window - 1 keys before it, in an encoder also after it;
    unset: all."""
    dilation: int = setting(1, 1, MOST_PLACES)
    """Dilated window: distance between its keys, in positions."""
    global_tokens: int = setting(0, 0, MOST_PLACES)
    """Global attention (Longformer): first tokens that read all and are read by all, besides a window."""
    sinks: int = setting(0, 0, MOST_PLACES)
    """Attention sinks: first keys that stay readable besides a decoder's window."""
    stride: int | None = setting(None, 1, MOST_PLACES)
    """Strided sparse attention: a decoder's query reads this many last keys and every stride-th before; unset: all."""
    block: int | None = setting(None, 1, MOST_PLACES)
    """Fixed sparse attention: block length; a decoder's query reads its block and the summary of earlier ones; unset:
    all."""
    summary: int = setting(1, 1)
    """Last keys of each block, which later blocks read."""

    def __post_init__(self) -> None:
        check(self)
        refuse(self, PATTERN)

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
        if not causal and (self.stride or self.block or self.sinks):  # torch's compiler cannot follow what is inside
            refuse(SimpleNamespace(**vars(self), causal=causal), BACKWARD)
