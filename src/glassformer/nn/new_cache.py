"""Which cache a model decodes with: what `Transformer.new_cache` and `new_slots` make."""

from __future__ import annotations

from glassformer.base.schemes import Pattern
from glassformer.nn.cache import Cache, cache_of
from glassformer.nn.compact_cache import RollingCache, RoundedSlotted, Slotted, StateCache, rounding_cache
from glassformer.nn.config import StackConfig, blocks_of
from glassformer.nn.slots import Recent, Slots, StateSlots


def new_cache(
    stack: StackConfig, n_layers: int, capacity: int | None, *, whole: bool, plain: bool, rounds: bool
) -> Cache:
    """As `Transformer.new_cache`. `rounds`: in 8 bits. Without `plain`, steps are compiled and no window rolls."""
    rolls = capacity is None and not whole
    if stack.attention_rule == "linear":
        made = StateCache(n_layers, stack.head_width, capacity=capacity)
    elif rolls and plain and (widest := widest_window(stack)) is not None:
        made = RollingCache(n_layers, widest)
    else:
        made = cache_of(n_layers, capacity)
    if rounds and not isinstance(made, StateCache):
        made = rounding_cache(made)
    taps = max(each.convolution for each in blocks_of(stack))
    if taps > 1:
        made.taps = taps
        made.convolved = RollingCache(2 * n_layers, Pattern(window=taps)) if rolls else cache_of(2 * n_layers, capacity)
    return made


def new_slots(fresh: Cache, n_layers: int, most_rows: int, *, rounds: bool) -> Slots | StateSlots:
    """As `Transformer.new_slots`; `fresh` is what `new_cache` makes for the model, whole."""
    recent = None if fresh.convolved is None else Recent(2 * n_layers, fresh.taps, most_rows=most_rows)
    if isinstance(fresh, StateCache):
        made = StateSlots(n_layers, fresh.features, most_rows=most_rows, recent=recent)
    else:
        room = RoundedSlotted if rounds else Slotted
        made = Slots(n_layers, most_rows=most_rows, room=room, recent=recent)
    made.taps = fresh.taps
    return made


def widest_window(stack: StackConfig) -> Pattern | None:
    """The pattern with the widest window of any block; None if some block has none."""
    patterns = [each.pattern for each in blocks_of(stack)]
    windows = [each for each in patterns if each is not None and each.window is not None]
    return max(windows, key=lambda each: each.window or 0) if len(windows) == len(patterns) else None
